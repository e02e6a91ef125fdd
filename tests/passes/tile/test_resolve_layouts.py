from __future__ import annotations

import pytest

from weft import targets
from weft.errors import Loc, UserError
from weft.ir.build import Builder
from weft.ir.core import Func, FuncAttrs, ParamFacts, Value, walk
from weft.ir.types import Pointer, ScalarType, TileType, float16, float32, int1, int32, tile_type
from weft.ir.verify import verify
from weft.layout import (
    AutoLayout,
    BlockedLayout,
    CoalescedLayout,
    DistributedLinearLayout,
    DotOperandLayout,
    SliceLayout,
)
from weft.layout.distributed import infer
from weft.ops import arith, control, memory, tile
from weft.passes.tile.resolve_layouts import resolve_layouts

SM90 = targets.get("sm_90a")
AUTO, BEST = AutoLayout(), CoalescedLayout()
LINE = BlockedLayout([4], [32], [4], [0])
PLANE = BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0])
I32 = ScalarType(int32)


class Kernel:
    """A function under construction; `line` numbers the operations."""

    def __init__(self, element=float32) -> None:
        self.build = Builder()
        self.p = Value(ScalarType(Pointer(element)), "p")
        self.n, self.m = Value(I32, "n"), Value(I32, "m")
        self.line = 0

    def __call__(self, kind, *operands, **attrs):
        self.line += 1
        self.build.loc = Loc("kernel.py", self.line)
        return self.build.emit(kind, *operands, **attrs)

    def func(self, num_warps=4) -> Func:
        self(control.return_)
        facts = (ParamFacts(16), ParamFacts(16), ParamFacts())
        params = (self.p, self.n, self.m)
        return self.build.func("k", params, FuncAttrs(num_warps=num_warps, stage="tile", params=facts))

    def resolve(self, num_warps=4) -> dict[str, TileType]:
        """Types by name after the pass, which leaves a well-formed function without open layouts."""
        func = resolve_layouts(self.func(num_warps), SM90)
        verify(func)
        ops = list(walk(func.body))
        assert all(op.kind is not tile.set_layout for op in ops)
        values = [v for op in ops for v in (*op.results, *(a for region in op.regions for a in region.args))]
        assert all(v.type.resolved for v in values if isinstance(v.type, TileType))
        return {value.name: value.type for value in values if value.name}

    def range(self, end, layout=AUTO, name=""):
        return self(tile.arange, start=0, end=end, layout=layout, name=name)

    def full(self, *shape, layout=AUTO, name="", dtype=float32):
        return self(arith.constant, value=0, type=tile_type(dtype, shape, layout), name=name)

    def splat(self, x, *shape, layout=AUTO, name=""):
        return self(tile.splat, x, shape=shape, layout=layout, name=name)

    def set(self, x, layout, name=""):
        return self(tile.set_layout, x, layout=layout, name=name)


def test_resolved_functions_are_returned_as_they_are():
    k = Kernel()
    k(arith.add, k.range(128, LINE), k.range(128, LINE))
    func = k.func()
    assert resolve_layouts(func, SM90) is func


def test_layout_flows_up_and_down_through_elementwise_operations():
    k = Kernel()
    a, b = k.range(512, name="a"), k.range(512, name="b")
    c = k(arith.add, a, b, name="c")
    d = k(arith.cmp, c, k.splat(k.n, 512, name="n"), predicate="lt", name="d")
    k.set(b, LINE)
    k(arith.select, d, c, a, name="e")
    assert {t.layout for t in k.resolve().values()} == {LINE}


def test_a_set_layout_between_two_open_tiles_ties_them():
    k = Kernel()
    a = k.full(64, 64, layout=BEST, name="a")
    b = k.set(a, AUTO, name="b")
    k.set(b, PLANE)
    assert k.resolve() == {"a": tile_type(float32, (64, 64), PLANE)}


def test_slices_follow_from_what_they_expand_to():
    k = Kernel()
    rows, columns = k.range(64, name="rows"), k.range(32, name="columns")
    wide = k(tile.broadcast, k(tile.expand_dims, rows, axis=1), shape=(64, 32))
    other = k(tile.broadcast, k(tile.expand_dims, columns, axis=0), shape=(64, 32))
    k.set(k(arith.add, wide, other), PLANE)
    found = k.resolve()
    assert found["rows"].layout == SliceLayout(1, PLANE)
    assert found["columns"].layout == SliceLayout(0, PLANE)


def test_what_slices_expand_to_follows_from_them():
    k = Kernel()
    rows = k.range(64, name="rows")
    wide = k(tile.broadcast, k(tile.expand_dims, rows, axis=1), shape=(64, 32), name="wide")
    k.set(rows, SliceLayout(1, PLANE))
    k.full(1, layout=LINE)
    assert k.resolve()["wide"].layout == PLANE
    assert wide.type.layout == AUTO


def sum_of(k: Kernel, x, axis, name=""):
    with k.build.region([ScalarType(float32)] * 2) as combine:
        k(control.yield_, k(arith.add, *combine.args))
    return k(tile.reduce, x, axis=axis, regions=(combine.done,), name=name)


def test_reductions_both_ways():
    k = Kernel()
    a, b = k.full(64, 32, name="a"), k.full(64, 32, name="b")
    k(arith.add, sum_of(k, a, 0, "s"), k.full(32, name="t"))
    k.set(a, PLANE)
    k.set(sum_of(k, b, 1, "u"), SliceLayout(1, PLANE))
    found = k.resolve()
    assert found["s"].layout == found["t"].layout == SliceLayout(0, PLANE)
    assert found["b"].layout == PLANE


def test_slices_of_open_layouts():
    """A reduction that is expanded again, all of it open until the end."""
    k = Kernel()
    a = k.full(64, 32, name="a")
    back = k(tile.broadcast, k(tile.expand_dims, sum_of(k, a, 1, "s"), axis=1), shape=(64, 32), name="back")
    k.set(back, PLANE)
    found = k.resolve()
    assert found["a"].layout == found["back"].layout == PLANE
    assert found["s"].layout == SliceLayout(1, PLANE)


@pytest.mark.parametrize("first", [True, False], ids=["forwards", "backwards"])
def test_permute_reshape_join_split(first):
    k = Kernel()
    a = k.full(64, 32, name="a")
    b = k(tile.permute, a, order=(1, 0), name="b")
    c = k(tile.reshape, b, shape=(16, 128), name="c")
    d = k(tile.join, c, c, name="d")
    left, right = k(tile.split, d)
    e = k(arith.add, left, right, name="e")
    transposed = infer.permute(PLANE, (64, 32), (1, 0))
    last = infer.reshape(transposed, (32, 64), (16, 128))
    k.set(a if first else e, PLANE if first else last)
    found = k.resolve()
    assert found["a"] == tile_type(float32, (64, 32), PLANE)
    assert found["b"] == tile_type(float32, (32, 64), transposed)
    assert found["c"] == found["e"] == tile_type(float32, (16, 128), last)


@pytest.mark.parametrize("first", [True, False], ids=["forwards", "backwards"])
def test_slices_and_their_concatenation(first):
    held = BlockedLayout([1, 8], [32, 1], [4, 1], [1, 0])
    k = Kernel()
    a = k.full(128, 64, name="a")
    part = k(tile.slice_, a, offsets=(0, 32), shape=(128, 32), name="part")
    both = k(tile.cat, part, part, axis=1, name="both")
    k.set(a if first else both, held)
    assert {found.layout for found in k.resolve().values()} == {held}


def test_a_part_alone_does_not_place_the_rest():
    k = Kernel()
    a = k.full(128, 64, name="a")
    part = k(tile.slice_, a, offsets=(0, 32), shape=(128, 32), name="part")
    thin = BlockedLayout([1, 4], [8, 4], [1, 4], [1, 0])
    k.set(part, thin)
    with pytest.raises(UserError) as error:
        k.resolve()
    assert error.value.code == "resolve-open"


def test_loops_and_branches_carry_layouts():
    k = Kernel()
    zero, one = k(arith.constant, value=0, type=I32), k(arith.constant, value=1, type=I32)
    acc = k.full(64, 32, name="acc")
    kind = acc.type
    with k.build.region([I32, kind], ["i", "carried"]) as body:
        test = k(arith.cmp, body.args[0], k.n, predicate="lt")
        with k.build.region() as then:
            k(control.yield_, k(arith.add, body.args[1], body.args[1]))
        with k.build.region() as orelse:
            k(control.yield_, k.full(64, 32, name="other"))
        k(control.yield_, k(control.if_, test, regions=(then.done, orelse.done), name="chosen"))
    result = k(control.for_, zero, k.n, one, acc, descending=False, regions=(body.done,), name="result")
    with k.build.region([kind], ["before"]) as condition:
        k(control.condition, k(arith.constant, value=False, type=ScalarType(int1)), condition.args[0])
    with k.build.region([kind], ["after"]) as after:
        k(control.yield_, after.args[0])
    last = k(control.while_, result, regions=(condition.done, after.done), name="last")
    k.set(last, PLANE)
    found = k.resolve()
    names = ["acc", "carried", "other", "chosen", "result", "before", "after", "last"]
    assert {found[name].layout for name in names} == {PLANE}


def test_conversions_end_what_is_tied():
    k = Kernel()
    a = k.range(128, name="a")
    b = k(tile.convert, a, layout=AUTO, name="b")
    k.set(a, LINE)
    k.set(b, BlockedLayout([1], [32], [4], [0]))
    found = k.resolve()
    assert (found["a"].layout, found["b"].layout) == (LINE, BlockedLayout([1], [32], [4], [0]))


def test_what_is_only_converted_is_made_in_place():
    k = Kernel()
    k(tile.convert, k.range(128, name="a"), layout=LINE)
    assert k.resolve()["a"].layout == LINE


def test_operands_of_a_dot_follow_its_accumulator():
    k = Kernel()
    a, b, acc = k.full(64, 16, name="a"), k.full(16, 32, name="b"), k.full(64, 32, name="acc")
    k.set(k(tile.dot_fma, a, b, acc, name="c"), PLANE)
    found = k.resolve()
    assert found["a"].layout == DotOperandLayout(0, PLANE, 0)
    assert found["b"].layout == DotOperandLayout(1, PLANE, 0)
    assert found["acc"].layout == PLANE


def test_gathers_take_the_layout_of_the_index():
    k = Kernel()
    src, index = k.full(64, 32, name="src"), k.full(64, 8, name="index", dtype=int32)
    k.set(index, PLANE)
    k.set(src, BlockedLayout([4, 1], [8, 4], [2, 2], [0, 1]))
    k(tile.gather, src, index, axis=1, name="out")
    k.set(k(tile.histogram, k.set(k.range(64, name="x"), LINE), None, bins=32, layout=AUTO, name="h"), LINE)
    found = k.resolve()
    assert found["out"].layout == PLANE
    assert found["h"].layout == LINE


def test_equal_layouts_spelled_differently_are_no_conflict():
    k = Kernel()
    a = k.range(128, name="a")
    k.set(a, LINE)
    k.set(a, infer.as_spelling(LINE.to_linear((128,)), (128,)))
    assert k.resolve()["a"].layout in (LINE, infer.as_spelling(LINE.to_linear((128,)), (128,)))


def test_registers_that_a_slice_drops_are_no_conflict():
    """The layout holds four registers, a tile of two elements repeats them; its slice spelling would drop the others."""
    k = Kernel()
    a = k.range(2, name="a")
    k(tile.expand_dims, a, axis=1, name="b")
    k.set(a, LINE)
    found = k.resolve()
    assert found["a"].layout == LINE
    assert isinstance(found["b"].layout, DistributedLinearLayout)


# Coalescing


def row(k: Kernel, size, base=None):
    offsets = k.range(size, BEST, "offsets")
    if base is not None:
        offsets = k(arith.add, offsets, k.splat(base, size, layout=BEST))
    return k(memory.addptr, k.splat(k.p, size, layout=BEST), offsets, name="at")


@pytest.mark.parametrize(
    ("element", "size", "warps", "width"),
    [(float32, 1024, 4, 4), (float16, 4096, 4, 8), (float32, 128, 4, 1), (float32, 64, 4, 1), (float32, 256, 1, 4)],
)
def test_a_row_is_read_as_wide_as_alignment_and_size_allow(element, size, warps, width):
    k = Kernel(element)
    k(memory.load, row(k, size), None, None, name="x")
    found = k.resolve(warps)
    assert found["x"].layout == found["offsets"].layout == BlockedLayout([width], [32], [warps], [0])


def test_unaligned_rows_are_read_element_by_element():
    k = Kernel()
    k(memory.load, row(k, 1024, k.m), None, None, name="x")
    assert k.resolve()["x"].layout == BlockedLayout([1], [32], [4], [0])


def test_rows_at_aligned_offsets_are_read_wide():
    k = Kernel()
    k(memory.load, row(k, 1024, k.n), None, None, name="x")
    assert k.resolve()["x"].layout == BlockedLayout([4], [32], [4], [0])


def plane(k: Kernel, shape, fast, layout=AUTO):
    """Addresses of a plane whose axis `fast` is contiguous, made from coalesced ranges."""
    parts = []
    for axis in (0, 1):
        line = k.range(shape[axis], BEST, f"line{axis}")
        if axis != fast:
            line = k(arith.mul, line, k.splat(k.n, shape[axis], layout=BEST))
        parts.append(k(tile.broadcast, k(tile.expand_dims, line, axis=1 - axis), shape=shape))
    offsets = k(arith.add, *parts)
    return k(memory.addptr, k.splat(k.p, *shape), offsets, name="at")


def test_planes_follow_their_contiguous_axis():
    k = Kernel()
    k(memory.load, plane(k, (64, 32), 1), None, None, name="x")
    found = k.resolve()
    assert found["x"].layout == BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    assert found["line0"].layout == SliceLayout(1, found["x"].layout)

    k = Kernel()
    k(memory.store, plane(k, (64, 32), 0), k.full(64, 32, name="x"), None)
    assert k.resolve()["x"].layout == BlockedLayout([4, 1], [16, 2], [1, 4], [0, 1])


def test_coalesced_gives_way_to_a_layout_that_is_known():
    k = Kernel()
    k.set(k(memory.load, row(k, 1024), None, None, name="x"), BlockedLayout([2], [32], [4], [0]))
    assert k.resolve()["offsets"].layout == BlockedLayout([2], [32], [4], [0])


def test_converted_to_coalesced_for_a_store():
    k = Kernel()
    x = k(tile.convert, k.full(1024, layout=BlockedLayout([1], [32], [4], [0])), layout=BEST, name="x")
    k(memory.store, row(k, 1024), x, None)
    assert k.resolve()["x"].layout == BlockedLayout([4], [32], [4], [0])


def test_coalesced_without_an_access_is_row_major():
    k = Kernel()
    k.full(64, 32, layout=BEST, name="x")
    assert k.resolve()["x"].layout == BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
