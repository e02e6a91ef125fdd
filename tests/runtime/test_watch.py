"""No launch is served from code that was compiled for what a variable held before."""

from __future__ import annotations

import importlib
import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import language as gl
from weft import settings
from weft.runtime import nvrtc, watch
from weft.runtime.compiled import Options
from weft.runtime.paths import path_of

NUMBER = 1
BOXED = gl.constexpr(1)
LAYOUT = gl.BlockedLayout([1], [32], [4], [0])
TABLE = {"a": [1, 2]}
SETTINGS = types.SimpleNamespace(width=1)


class Config:
    WIDTH = 1


class Wide(Config):
    pass


def made(value):
    @weft.jit
    def kernel(out):
        gl.store(out, value)

    def change(new):
        nonlocal value
        value = new

    return kernel, change


@weft.jit
def number(out):
    gl.store(out, NUMBER)


@weft.jit
def boxed(out):
    gl.store(out, BOXED)


@weft.jit
def contents(out):
    gl.store(out, TABLE["a"][0])


@weft.jit
def attribute(out):
    gl.store(out, Wide.WIDTH)


@weft.jit
def member(out):
    gl.store(out, SETTINGS.width)


def watched(owner, path):
    """The names that are watched of a read."""
    found = {}
    watch.Surroundings(found).read(owner, path_of(path), unknown=False)
    return [name for _, name in found]


def stored(kernel) -> int:
    out = np.zeros(1, np.int32)
    kernel[1](out)
    return int(out[0])


CHANGES = {
    "a number": (number, lambda patch: patch.setitem(globals(), "NUMBER", 2)),
    "a constexpr": (boxed, lambda patch: patch.setitem(globals(), "BOXED", gl.constexpr(2))),
    "what a list in a dictionary holds": (contents, lambda patch: patch.setitem(TABLE, "a", [2, 2])),
    "an inherited attribute of a class": (attribute, lambda patch: patch.setattr(Config, "WIDTH", 2)),
    "an attribute of an object": (member, lambda patch: patch.setattr(SETTINGS, "width", 2)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_compiles_anew(what, monkeypatch):
    kernel, change = CHANGES[what]
    assert stored(kernel) == 1
    change(monkeypatch)
    assert stored(kernel) == 2


@pytest.mark.parametrize("what", CHANGES)
def test_compiling_without_a_launch_sees_changes_too(what, monkeypatch):
    kernel, change = CHANGES[what]

    def compiled():
        return kernel._compile(kernel._request({"out": "*i32"}, Options(), "sm_90a"))

    before = compiled()
    assert compiled() is before
    change(monkeypatch)
    assert compiled().asm["ir"] != before.asm["ir"]


def test_a_captured_variable():
    kernel, change = made(1)
    assert stored(kernel) == 1
    change(2)
    assert stored(kernel) == 2


def test_what_belongs_to_weft_and_modules_are_not_watched():
    def reader():
        return gl, np, LAYOUT

    assert watched(reader, "gl.arange") == watched(reader, "gl.int32") == []
    assert watched(reader, "len") == ["len"], "a global may hide it"
    assert watched(reader, "LAYOUT.order") == ["LAYOUT"]


def test_what_is_made_at_each_look_is_not_watched():
    class Lazy:
        @property
        def pair(self):
            return [object()]

    lazy = Lazy()

    def reader():
        return lazy

    assert "pair" not in watched(reader, "lazy.pair")


HELPERS = """
import weft
from weft import language as gl

@weft.jit
def helper(x):
    return x + 1

@weft.jit
def kernel(out):
    gl.store(out, helper(1))
"""


@pytest.fixture
def helpers(tmp_path: Path, monkeypatch):
    """A module of kernels, and what edits its file."""
    name = f"helpers_of_{tmp_path.name}"
    file = tmp_path / f"{name}.py"
    file.write_text(HELPERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.import_module(name)

    def edit(old: str, new: str) -> None:
        time = file.stat().st_mtime_ns + 10**9
        file.write_text(file.read_text().replace(old, new))
        os.utime(file, ns=(time, time))

    yield module, edit
    del sys.modules[name]


def test_an_edited_file_counts_once_it_is_reloaded(helpers):
    module, edit = helpers

    @weft.jit
    def kernel(out):
        gl.store(out, module.helper(1))

    edit("x + 1", "x + 10")
    assert stored(kernel) == stored(module.kernel) == 2
    importlib.reload(module)
    assert stored(kernel) == stored(module.kernel) == 11


@pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")
def test_a_reloaded_kernel_is_not_taken_from_the_disk_cache(helpers, tmp_path):
    module, edit = helpers
    with settings.using(cache_dir=tmp_path / "cache"):
        before = module.kernel.warmup("*i32", target="sm_90a").binary
        edit("helper(1)", "helper(7)")
        importlib.reload(module)
        after = module.kernel.warmup("*i32", target="sm_90a").binary
    assert before.cubin != after.cubin
