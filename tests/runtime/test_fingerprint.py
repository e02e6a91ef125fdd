"""Fingerprints change with what they stand for, and the manifest never serves what is stale."""

from __future__ import annotations

import enum
import functools
import io
import linecache
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from weft.kernel import jit
from weft.language.marks import constexpr_function
from weft.layout import BlockedLayout
from weft.runtime import fingerprint as fp
from weft.runtime import function_text, manifest, paths, watch
from weft.runtime.cache import Cache
from weft.runtime.compiled import Binary, CompileRequest, Options
from weft.runtime.fingerprint import fingerprint
from weft.runtime.paths import path_of
from weft.runtime.specialise import Constexpr, Pointer

MODULE = """
import {jit_from}
SCALE = {scale}
def host(n):
    return {host}
FACTOR = {factor}
@jit
def helper(x):
    return x * {inner} + SCALE
class Pair:
    @jit
    def total(self):
        return self.a + {method}
@jit
def kernel(x, n):
    return helper(x) + host(n)
"""


def load(name="made", **texts):
    """A module of `MODULE`, with the source where `linecache` finds it."""
    filled = {"scale": 2, "factor": 3, "inner": 4, "method": 5, "host": "n * FACTOR", **texts}
    source = MODULE.format(jit_from="sys", **filled)
    path = f"<{name}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    module = ModuleType(name)
    module.jit = jit
    exec(compile(source, path, "exec"), module.__dict__)  # noqa: S102 - a module made on the spot
    return module


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Config:
    block: int
    scale: float = 1.0


class Plain:
    __slots__ = ("a",)
    a: int
    WIDTH = 4

    @property
    def twice(self):
        return self.a * Plain.WIDTH

    @staticmethod
    def one():
        return 1


VALUES = [
    0, 1, True, 1.0, -0.0, 0.0, float("nan"), None, "1", b"1", (1, 2), [1, 2], (1, (2,)), {"a": 1}, frozenset({1, 2}),
    Colour.RED, Config(1), Config(2), BlockedLayout([1], [32], [4], [0]), BlockedLayout([2], [32], [4], [0]),
    np.dtype("float32"), np.dtype("int8"), sys, os, len, Colour, Config, load, int,
]  # fmt: skip


class Proud(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


class Meta(type):
    @property
    def width(cls):
        return 1


class Bound(functools.partial):
    """What it is bound to lies in its C part."""


class Text(io.StringIO):
    """Its text lies in its C part."""


def test_distinct_values_have_distinct_fingerprints():
    texts = [fingerprint(value) for value in VALUES]
    assert len(set(texts)) == len(texts)
    assert texts == [fingerprint(value) for value in VALUES]


def test_equal_values_agree():
    assert fingerprint(Config(3)) == fingerprint(Config(3))
    assert fingerprint({1, 2, 3}) == fingerprint({3, 2, 1})
    assert fingerprint(BlockedLayout([1], [32], [4], [0])) == fingerprint(BlockedLayout((1,), (32,), (4,), (0,)))


@pytest.mark.parametrize(
    "value",
    [
        object(),
        (1, object()),
        sys.stdout,
        np.zeros(2),
        np.float64(1),
        Proud(1),
        Bound(print, 1),
        Text(),
        Meta("C", (), {}),
    ],
)
def test_what_is_unknown_or_runs_the_authors_python_has_no_fingerprint(value):
    assert fingerprint(value) is None


@pytest.mark.parametrize(
    ("name", "changed", "same"),
    [("helper", {"inner": 9}, {"scale": 9}), ("host", {"host": "n - 1"}, {"factor": 9}), ("Pair", {"method": 9}, {})],
)
def test_functions_and_classes_follow_their_text(name, changed, same):
    before = fingerprint(getattr(load(), name))
    assert fingerprint(getattr(load(**changed), name)) != before
    assert fingerprint(getattr(load(**same), name)) == before


ENDS = {
    "one line": ("def f(x): return x\n", ["def f(x): return x\n"]),
    "a header's bracket at the margin": ("def f(\n    x,\n):\n    return x\n", None),
    "an inner function last": ("def f(x):\n    def g():\n        return (x,\n1)\n", None),
    "dead code and annotations": ("def f(x):\n    return x\n    y: int\n    # done\n", None),
    "the module's own lines": ("def f(x):\n    return x\nF = f\n# rest\n", ["def f(x):\n", "    return x\n"]),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_text_of_a_function_ends_where_the_function_does(name):
    source, expected = ENDS[name]
    space = {}
    exec(source, space)  # noqa: S102 - the lines are given beside it
    lines = source.splitlines(keepends=True)
    assert function_text.text_of(space["f"], lines) == (lines if expected is None else expected)


@pytest.mark.parametrize(
    "tail", ['    g(x, """\nmov {}\n""")\n', "    return (\nx + {}\n)\n", "    def g(): return (x,\n{})\n"]
)
def test_what_stands_at_the_margin_behind_the_last_instruction_counts(tail):
    def digest(number):
        space = {}
        exec(compile("def f(x):\n" + tail.format(number), "tail.py", "exec"), space)  # noqa: S102 - from above
        return function_text.source_text(space["f"])

    assert digest(3) == digest(3)
    assert digest(3) != digest(4)


def test_defaults_count_and_captures_are_reads_of_their_own():
    def make(n, default):
        def inner(x=default):
            return x + n

        return inner

    assert fingerprint(make(1, 2)) == fingerprint(make(2, 2)) != fingerprint(make(1, 3))
    assert manifest.read(make(1, 2), path_of("n")) != manifest.read(make(2, 2), path_of("n"))


def test_two_functions_of_one_line_differ():
    one, two = (lambda x: x + 1), (lambda x: x + 2)
    assert fingerprint(one) != fingerprint(two)


def test_a_function_without_text_is_its_byte_code():
    def make(body):
        space = {}
        exec(f"def f(x):\n    return {body}", space)  # noqa: S102 - a function without a source
        return space["f"]

    assert fingerprint(make("x + 1")) == fingerprint(make("x + 1"))
    assert fingerprint(make("x + 1")) != fingerprint(make("x + 2"))


def test_byte_code_with_a_set_agrees_between_processes():
    code = (
        "from weft.runtime.fingerprint import fingerprint\n"
        "space = {}\n"
        'exec(\'def f(x): return x in {"a", "b", "c", "d"}\', space)\n'
        "print(fingerprint(space['f']))"
    )
    assert len({output(code, seed) for seed in "12345"}) == 1


def test_recursive_host_functions_end():
    def count(n):
        return 0 if n == 0 else 1 + count(n - 1)

    assert fingerprint(count) == fingerprint(count)


def test_fingerprints_agree_between_processes():
    code = (
        "from weft.runtime.fingerprint import fingerprint, toolchain\n"
        "from tests.runtime.test_fingerprint import VALUES, Plain, load\n"
        "print(fingerprint((*VALUES, Plain, load().Pair, load().host)), toolchain())"
    )
    assert len({output(code, seed) for seed in "12"}) == 1


def output(code, seed):
    """What a program prints in a process of its own that orders sets by `seed`."""
    environ = {**os.environ, "PYTHONPATH": str(Path(fp.__file__).parents[2]), "PYTHONHASHSEED": seed}
    return subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True).stdout


def request_of(kernel, **constexprs):
    arguments = {"x": Pointer("float32", True), **{name: Constexpr(v) for name, v in constexprs.items()}}
    return CompileRequest(kernel, arguments, Options(), "sm_90a")


def test_key0_depends_on_source_types_options_and_target():
    base = request_of(load().kernel, n=1)
    keys = {
        fp.key0(base),
        fp.key0(request_of(load().kernel, n=2)),
        fp.key0(CompileRequest(base.fn, base.arguments, Options(num_warps=8), "sm_90a")),
        fp.key0(CompileRequest(base.fn, base.arguments, Options(), "sm_100a")),
        fp.key0(CompileRequest(base.fn, {"x": Pointer("float32")}, Options(), "sm_90a")),
    }
    assert len(keys) == 5
    assert fp.key0(request_of(load().kernel, n=1)) == fp.key0(base)


def reads_of(module):
    """What reading the kernel records; `host` is called, and all that it reads is recorded too."""
    return [
        read(module.kernel.fn, "helper"),
        read(module.helper.fn, "SCALE"),
        read(module.kernel.fn, "host", module),
        read(module.host, "FACTOR"),
        read(module.kernel.fn, "len"),
    ]


def read(owner, path, module=None):
    """A read, as the compiler records it."""
    called = frozenset() if module is None else frozenset({id(module.host)})
    return manifest.read(owner, path_of(path), called=called)


@pytest.fixture
def store(tmp_path):
    return Cache(tmp_path, 1 << 20)


def keep(store, request, reads, entry):
    """Keep an entry as the compiler does."""
    return manifest.remember(store, request, reads, entry, is_open=False)


def found(store, request):
    """What the manifest finds, which must come with what the kernel read."""
    answer = manifest.find(store, request)
    assert answer is not None
    for each in answer.reads:
        assert fingerprint(paths.resolve(each.owner, each.path)) == each.fingerprint
    assert answer.binary is not None
    return answer.binary


def test_a_manifest_finds_what_it_remembers(store):
    module = load()
    assert manifest.find(store, request_of(module.kernel)) is None
    assert keep(store, request_of(module.kernel), reads_of(module), Binary(b"kernel", 32, 0))
    assert found(store, request_of(load().kernel)) == Binary(b"kernel", 32, 0)


@pytest.mark.parametrize("edit", [{"scale": 7}, {"inner": 7}, {"factor": 7}])
def test_an_edited_constant_or_helper_is_never_served_stale(store, edit):
    old, new = load(), load(**edit)
    keep(store, request_of(old.kernel), reads_of(old), Binary(b"old", 32, 0))
    assert manifest.find(store, request_of(new.kernel)) is None
    keep(store, request_of(new.kernel), reads_of(new), Binary(b"new", 40, 8))
    assert found(store, request_of(new.kernel)) == Binary(b"new", 40, 8)
    assert found(store, request_of(old.kernel)) == Binary(b"old", 32, 0), "both variants stay"


def test_a_name_that_is_gone_does_not_match(store):
    module = load()
    keep(store, request_of(module.kernel), reads_of(module), Binary(b"kernel", 32, 0))
    other = load()
    del other.SCALE
    assert manifest.find(store, request_of(other.kernel)) is None


def test_methods_and_constexpr_functions_are_found_again(store):
    module = load()

    def reads(module):
        return [
            read(module.kernel.fn, "Pair"),
            read(module.Pair.total.fn, "SCALE"),
            read(module.helper.fn, "SCALE"),
        ]

    assert keep(store, request_of(module.kernel, f=(module.helper,)), reads(module), Binary(b"found", 32, 0))
    again = load()
    assert found(store, request_of(again.kernel, f=(again.helper,))) == Binary(b"found", 32, 0)
    changed = load(scale=8)
    assert manifest.find(store, request_of(changed.kernel, f=(changed.helper,))) is None


def test_reads_of_a_function_nobody_leads_to_are_not_kept(store):
    module, stranger = load(), load("elsewhere")
    assert not keep(store, request_of(module.kernel), [read(stranger.host, "FACTOR")], Binary(b"kernel", 32, 0))
    answer = manifest.find(store, request_of(module.kernel))
    assert answer is not None and answer.binary is None, "the manifest says that the compilation is open"


def test_paths_lead_where_python_looks():
    captured = 5

    def kernel(x):
        return x + captured + VALUES[0] + len(x)

    def at(text):
        return paths.resolve(kernel, path_of(text))

    assert at("captured") == 5 and at("VALUES") is VALUES and at("len") is len and at("os.path.sep") == os.path.sep
    assert read(kernel, "nowhere").fingerprint == "absent" == read(kernel, "os.nowhere").fingerprint


def test_a_look_finds_each_fingerprint_once():
    """What is known is taken by identity: an equal value that is another object is looked at itself."""
    known: fp.Known = {}
    value = (1, 2.5)
    first = fp.fingerprint(value, known)
    assert first == fp.fingerprint(value) and known == {id(value): (value, first)}
    known[id(value)] = value, "from before"
    assert fp.fingerprint(value, known) == "from before"
    assert fp.fingerprint((*[1], 2.5), known) == first


def mutual(count):
    """Classes each of which has all others as attributes."""
    classes = [type(f"C{number}", (), {"__module__": __name__}) for number in range(count)]
    for cls in classes:
        for other in classes:
            setattr(cls, f"to_{other.__name__}", other)
    return classes


def test_a_walk_takes_time_in_proportion_to_what_it_meets():
    walks = {}
    for count in (10, 20, 40):
        walks[count] = walk = fp._Walk()
        walk.visit(mutual(count)[0])
        assert len(walk.met) <= 2 * count + 10, "each object is entered once"
    assert len(walks[40].out) < 5 * len(walks[20].out) < 25 * len(walks[10].out), "as the references between them"
    assert fingerprint(mutual(40)[0]) == fingerprint(mutual(40)[0])


def test_called_python_that_reaches_a_large_package_is_watched_at_once():
    def called():
        return pytest.Item, np.ndarray, sys.modules

    found = {}
    watch.Surroundings(found).ran(called)
    assert len(found) < 10


def test_a_cycle_of_objects_ends():
    one = SimpleNamespace(width=1)
    one.own = [one]
    other = SimpleNamespace(width=1)
    other.own = [other]
    assert fingerprint(one) == fingerprint(other)
    other.width = 2
    assert fingerprint(one) != fingerprint(other)


def test_the_decorator_of_a_function_counts():
    def plain(x):
        return x

    assert len({fingerprint(plain), fingerprint(jit(plain)), fingerprint(constexpr_function(plain))}) == 3


@pytest.mark.parametrize("annotation", ["Pair", "Pair | int", "list[Pair]", "'Pair'", "outer.Pair", "not a name"])
def test_the_names_in_an_annotation_are_found(annotation):
    assert ("Pair" in fp._names_in(annotation)) == (annotation not in ("'Pair'", "not a name"))
