"""When a stored choice still counts: for the same text, wherever it stands."""

from __future__ import annotations

import importlib.util

import pytest

from weft import Config
from weft.tune.identity import identity

HELPER = """
STEP = 2

def helper(n):
    return n * STEP

def unused(n):
    return n
"""
MAIN = """
import math
import helpers_of_tune as other
import weft

LIMIT = 10

@weft.jit
def kernel(x):
    pass

def near(n):
    return other.helper(n) + LIMIT + math.ceil(n)

def host(x, BLOCK):
    near(BLOCK)
    kernel[1](x)
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """The function `host` of a fresh module with these texts."""
    number = 0

    def fresh(main: str = MAIN, helper: str = HELPER):
        nonlocal number
        number += 1
        for name, text in (("helpers_of_tune", helper), ("main_of_tune", main)):
            path = tmp_path / f"{name}_{number}.py"
            path.write_text(text)
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            monkeypatch.setitem(__import__("sys").modules, name, module)
            spec.loader.exec_module(module)
        return module.host

    return fresh


CONFIGS = (Config({"BLOCK": 1}), Config({"BLOCK": 2}))


def test_the_same_text_in_another_place_is_the_same(load):
    assert identity(load(), CONFIGS) == identity(load("\n\n# moved\n" + MAIN), CONFIGS)


@pytest.mark.parametrize(
    ("main", "helper"),
    [
        (("near(BLOCK)", "near(BLOCK + 1)"), ("", "")),
        (("    pass", "    x"), ("", "")),
        (("LIMIT = 10", "LIMIT = 11"), ("", "")),
        (("", ""), ("n * STEP", "n + STEP")),
        (("", ""), ("STEP = 2", "STEP = 3")),
    ],
)
def test_what_it_names_counts_however_deep(load, main, helper):
    changed = load(MAIN.replace(*main) if main[0] else MAIN, HELPER.replace(*helper) if helper[0] else HELPER)
    assert identity(changed, CONFIGS) != identity(load(), CONFIGS)


def test_what_it_does_not_name_does_not_count(load):
    unused = HELPER.replace("    return n\n", "    return -n\n")
    assert identity(load(MAIN, unused), CONFIGS) == identity(load(), CONFIGS)


def test_the_configs_count(load):
    assert identity(load(), CONFIGS) != identity(load(), CONFIGS[:1])


def test_closures_and_functions_without_text():
    def make(step):
        space = {}
        exec("def f(x):\n    return x", space)  # noqa: S102 - a function without text
        inner = space["f"]

        def outer(x):
            return inner(x) * step

        return outer

    assert identity(make(1), CONFIGS) == identity(make(1), CONFIGS)
    assert identity(make(1), CONFIGS) != identity(make(2), CONFIGS)
