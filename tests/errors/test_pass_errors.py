from __future__ import annotations

import pytest

from weft import targets
from weft.errors import CompilationError, ErrorGroup, LayoutError, Loc
from weft.ir.build import Builder
from weft.ir.core import FuncAttrs
from weft.ir.types import float32, tile_type
from weft.layout import AutoLayout, BlockedLayout
from weft.ops import arith, control, tile
from weft.passes.tile.resolve_layouts import resolve_layouts

AUTO = AutoLayout()
LINE, OTHER = BlockedLayout([4], [32], [4], [0]), BlockedLayout([1], [32], [4], [0])


class Kernel:
    """A function under construction; each operation stands in a line of its own, counted from 1."""

    def __init__(self) -> None:
        self.build = Builder()
        self.line = 0

    def __call__(self, op, /, *operands, **attrs):
        self.line += 1
        self.build.loc = Loc("kernel.py", self.line)
        return self.build.emit(op, *operands, **attrs)

    def range(self, name=""):
        return self(tile.arange, start=0, end=512, layout=AUTO, name=name)

    def refused(self, kind=CompilationError):
        self(control.return_)
        func = self.build.func("k", (), FuncAttrs(num_warps=4, stage="tile", params=()))
        with pytest.raises(kind) as error:
            resolve_layouts(func, targets.get("sm_90a"))
        return error.value


def test_two_layouts():
    k = Kernel()
    x = k.range("x")
    k(tile.set_layout, x, layout=LINE)
    k(tile.set_layout, k(arith.add, x, x), layout=OTHER)
    error = k.refused()
    assert error.code == "resolve-conflict"
    assert error.message == (
        f"the layout of 'x' is left to the compiler, but its uses need two layouts: {LINE} and {OTHER}"
    )
    assert error.loc.line == 4
    assert [(label, loc.line) for label, loc in error.related] == [("the first layout is needed here", 2)]
    assert "convert_layout" in error.fix


def test_one_range_for_rows_and_columns():
    k = Kernel()
    x = k(tile.arange, start=0, end=32, layout=AUTO, name="x")
    wide = [k(tile.broadcast, k(tile.expand_dims, x, axis=axis), shape=(32, 32)) for axis in (0, 1)]
    k(tile.set_layout, k(arith.add, *wide), layout=BlockedLayout([1, 1], [8, 4], [4, 1], [1, 0]))
    error = k.refused()
    assert error.code == "resolve-conflict"
    assert "SliceLayout(0, " in error.message and "SliceLayout(1, " in error.message


def test_a_loop_between_two_layouts():
    k = Kernel()
    x = k(arith.constant, value=0.0, type=tile_type(float32, (512,), AUTO), name="x")
    y = k(arith.mul, x, x)
    k(tile.set_layout, x, layout=LINE)
    k(tile.set_layout, y, layout=OTHER)
    assert k.refused().code == "resolve-conflict"


def test_no_layout():
    k = Kernel()
    x = k.range("offsets")
    k(arith.add, x, x)
    error = k.refused()
    assert error.code == "resolve-open"
    assert "'offsets'" in error.message
    assert (error.loc.line, [loc.line for _, loc in error.related]) == (1, [2])
    assert "set_auto_layout" in error.fix


def test_all_tiles_without_a_layout_are_reported():
    k = Kernel()
    k.range("first")
    k.range("second")
    error = k.refused(ErrorGroup)
    assert [(e.code, e.loc.line) for e in error.errors] == [("resolve-open", 1), ("resolve-open", 2)]


def test_a_layout_that_does_not_follow_names_the_line():
    """The halves of a split lie in one thread, which this layout's last axis does not."""
    k = Kernel()
    x = k(arith.constant, value=0.0, type=tile_type(float32, (64, 2), AUTO))
    k(tile.split, x)
    k(tile.set_layout, x, layout=BlockedLayout([1, 1], [16, 2], [4, 1], [1, 0]))
    error = k.refused(LayoutError)
    assert (error.code, error.loc.line) == ("layout-split", 2)
