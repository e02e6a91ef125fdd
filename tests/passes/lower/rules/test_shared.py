"""The author's shared memory: every load, store, gather and scatter keeps its meaning, and takes the instructions it should."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import powers, shapes, shared_layouts, tiles
from tests.support import check_pass, count, ops_of, tile_kernel, warps_of
from weft import targets
from weft.errors import CompilationError
from weft.ir.types import ScalarType, float16, float32, int1, int8, int16, int32, int64
from weft.layout import (
    BlockedLayout,
    NVMMADistributedLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SliceLayout,
    SwizzledSharedLayout,
)
from weft.layout.shared import views as shared_views
from weft.ops import arith, control, regs, shared, tile
from weft.passes.pipeline import lower_pipeline, tile_pipeline

LAW = settings(deadline=None, max_examples=examples(30))
TARGET = targets.get("sm_90a")
ELEMENTS = {8: int8, 16: float16, 32: int32, 64: int64}
GRID = BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
ACROSS = BlockedLayout([8, 1], [8, 4], [1, 4], [0, 1])
MMA = NVMMADistributedLayout([2, 0], [4, 1], [16, 8])
PLAIN = SwizzledSharedLayout(1, 1, 1, [1, 0])
SWIZZLED = SwizzledSharedLayout(8, 1, 8, [1, 0])


def alloc(k, element, shape, layout, name="smem"):
    return k.emit(shared.alloc, element=element, shape=tuple(shape), layout=layout, tag=len(k._open[0]), name=name)


def check(k, target=TARGET):
    """Run the tile IR that the pipeline gives and its lowered form; both must leave the same bits. Gives the latter."""
    return check_pass(tile_pipeline(k.finished(), TARGET), lambda func: lower_pipeline(func, target), k.arguments)


def only(func, kind):
    (op,) = ops_of(func, kind)
    return op


# Whole tiles


@LAW
@given(st.data(), tiles(), st.sampled_from([8, 16, 32, 64]))
def test_stores_and_loads(data, case, bits):
    layout, shape = case
    k = tile_kernel(num_warps=warps_of(layout, shape))
    smem = alloc(k, ELEMENTS[bits], shape, data.draw(shared_layouts(shape, bits)))
    k.emit(shared.store, smem, k.input(ELEMENTS[bits], tuple(shape), layout))
    k.output_of_all(k.emit(shared.load, smem, layout=layout))
    check(k)


@LAW
@given(st.data(), st.sampled_from([8, 16, 32, 64]))
def test_parts_of_tiles(data, bits):
    """A stage, permuted or not, and a slice of it along each dimension."""
    shape = data.draw(shapes(2, 1 << 9))
    element, layout = ELEMENTS[bits], data.draw(shared_layouts(shape, bits))
    stages = data.draw(st.integers(1, 2))
    k = tile_kernel()
    smem = alloc(k, element, (stages, *shape), layout)
    stage = data.draw(st.integers(0, stages - 1))
    whole = k.emit(shared.index, smem, data.draw(st.sampled_from([k.number(stage), k.number_in(stage)])))
    k.emit(shared.store, whole, k.input(element, tuple(shape), GRID))
    part = whole
    if data.draw(st.booleans()):
        view = shared_views.permuted(layout, (1, 0), shape)
        part = k.emit(shared.permute, part, order=(1, 0), layout=view)
    for dim in data.draw(st.permutations(range(2))):
        size = part.type.shape[dim]
        length = data.draw(powers(size.bit_length() - 1))
        start = data.draw(st.integers(0, size // length - 1)) * length
        part = k.emit(shared.slice, part, start=start, length=length, dim=dim)
    own = data.draw(st.sampled_from([GRID, ACROSS, MMA]))
    k.output_of_all(k.emit(shared.load, part, layout=own))
    k.emit(shared.store, part, k.input(element, part.type.shape, own))
    k.output(k.emit(shared.load, whole, layout=ACROSS))
    check(k)


def test_reshaped_and_reinterpreted():
    k = tile_kernel()
    smem = alloc(k, float32, (32, 32), SWIZZLED)
    k.emit(shared.store, smem, k.input(float32, (32, 32), GRID))
    line = k.emit(shared.reshape, smem, shape=(1024,), layout=shared_views.reshaped(SWIZZLED, (32, 32), (1024,)))
    k.output(k.emit(shared.load, line, layout=BlockedLayout([4], [32], [4], [0])))
    half = k.emit(shared.slice, smem, start=16, length=16, dim=0)
    words = k.emit(shared.reinterpret, half, element=int16, shape=(2, 16, 32), layout=PLAIN)
    k.output(k.emit(shared.load, k.emit(shared.index, words, k.number(1)), layout=GRID))
    check(k)


def test_arrays_of_tiles_of_two_dimensions():
    """Rows of tiles, and parts of such arrays."""
    k = tile_kernel()
    smem = alloc(k, float32, (2, 3, 8, 32), PLAIN)
    values = [k.input(float32, (8, 32), GRID) for _ in range(6)]
    for i, value in enumerate(values):
        row = k.emit(shared.index, smem, k.number(i // 3))
        k.emit(shared.store, k.emit(shared.index, row, k.number(i % 3)), value)
    rest = k.emit(shared.slice, smem, start=1, length=1, dim=0)
    for j in range(3):
        row = k.emit(shared.index, rest, k.number_in(0))
        k.output(k.emit(shared.load, k.emit(shared.index, row, k.number_in(j)), layout=GRID))
    check(k)


@LAW
@given(st.data(), tiles(2), st.sampled_from([8, 32]))
def test_chosen_elements(data, case, bits):
    """Gathered and scattered along either axis, also where threads hold elements twice."""
    layout, shape = case
    element, axis = ELEMENTS[bits], data.draw(st.integers(0, 1))
    k = tile_kernel(num_warps=warps_of(layout, shape))
    smem = alloc(k, element, shape, data.draw(shared_layouts(shape, bits)))
    k.emit(shared.store, smem, k.input(element, tuple(shape), layout))
    at = k.coordinate(tuple(shape), axis, layout)
    turned = k.emit(arith.xor, at, k.number(shape[axis] - 1, at))
    k.output_of_all(k.emit(shared.gather, smem, turned, axis=axis))
    k.emit(shared.scatter, smem, k.input(element, tuple(shape), layout), turned, axis=axis)
    k.output(k.emit(shared.load, smem, layout=layout))
    check(k)


def test_bools():
    k = tile_kernel()
    smem = alloc(k, int1, (32, 32), PLAIN)
    k.emit(shared.store, smem, k.input(int1, (32, 32), GRID))
    k.output(k.emit(shared.load, smem, layout=ACROSS))
    check(k)


# Instructions


def stored_and_loaded(layout, memory, element=float16, shape=(64, 64), target=TARGET):
    k = tile_kernel()
    smem = alloc(k, element, shape, memory)
    k.emit(shared.store, smem, k.input(element, shape, layout))
    k.output(k.emit(shared.load, smem, layout=layout))
    return check(k, target)


@pytest.mark.parametrize("memory", [PLAIN, SWIZZLED, NVMMASharedLayout(128, 16), NVMMASharedLayout(64, 16)])
def test_rows_move_sixteen_bytes_at_a_time(memory):
    func = stored_and_loaded(GRID, memory)
    assert only(func, shared.load_regs).attrs["vec"] == only(func, shared.store_regs).attrs["vec"] == 8


def test_what_only_the_access_knows_is_added():
    """Rows further down differ in constants, which end in the instruction; the swizzle is in the thread's base."""
    op = only(stored_and_loaded(GRID, SWIZZLED), shared.load_regs)
    assert set(op.attrs["offsets"]) == {0}
    assert op.attrs["added"] == (0, 1024, 2048, 3072)


def test_padding():
    func = stored_and_loaded(GRID, PaddedSharedLayout.with_identity_for([[64, 8]], [64, 64], [1, 0]))
    op = only(func, shared.store_regs)
    assert (op.attrs["pads"], op.attrs["vec"]) == (((64, 8),), 8)
    assert op.attrs["added"] == (0, 1152, 2304, 3456)


def test_matrices_where_registers_lie_so():
    func = stored_and_loaded(MMA, NVMMASharedLayout(128, 16))
    assert only(func, shared.load_matrix).attrs["matrices"] == only(func, shared.store_matrix).attrs["matrices"] == 4
    assert not only(func, shared.load_matrix).attrs["transposed"]
    assert not count(func, shared.load_regs, shared.store_regs)


def test_transposed_matrices():
    func = stored_and_loaded(MMA, NVMMASharedLayout(128, 16, transposed=True))
    assert only(func, shared.load_matrix).attrs["transposed"]
    assert only(func, shared.store_matrix).attrs["transposed"]


def test_no_stmatrix_before_hopper():
    func = stored_and_loaded(MMA, NVMMASharedLayout(128, 16), target=targets.get("sm_80"))
    assert count(func, shared.load_matrix) == count(func, shared.store_regs) == 1


def test_warps_that_hold_the_same_store_it_once():
    """Four warps hold one tile: one of them writes it, by matrices; all read it."""
    k = tile_kernel()
    smem = alloc(k, float16, (16, 64), NVMMASharedLayout(128, 16))
    layout = NVMMADistributedLayout([2, 0], [4, 1], [16, 8])
    k.emit(shared.store, smem, k.input(float16, (16, 64), layout))
    k.output_of_all(k.emit(shared.load, smem, layout=layout))
    assert only(check(k), shared.store_matrix).operand("mask") is not None


def test_a_slice_reads_each_element_once():
    """Threads without elements of their own load what others do, and no element is stored twice."""
    k = tile_kernel()
    smem = alloc(k, float32, (16, 16), PLAIN)
    part = k.emit(shared.slice, smem, start=8, length=8, dim=0)
    row = SliceLayout(0, GRID)
    k.emit(shared.store, smem, k.input(float32, (16, 16), GRID))
    k.output_of_all(k.emit(shared.load, part, layout=GRID))
    assert row.to_linear((16,)).in_size("register") == 8
    check(k)


def test_an_index_is_a_multiplication():
    """Constants need none, and the same stage is formed once."""
    k = tile_kernel()
    smem = alloc(k, float32, (4, 32, 32), PLAIN)
    i = k.number_in(2)
    stage = k.emit(shared.index, smem, i, name="stage")
    k.emit(shared.store, stage, k.input(float32, (32, 32), GRID))
    k.output(k.emit(shared.load, stage, layout=GRID))
    k.emit(shared.store, k.emit(shared.index, smem, k.number(3)), k.input(float32, (32, 32), GRID))
    func = check(k)
    views = ops_of(func, shared.view)
    assert [view.result.name for view in views] == ["stage", ""]
    assert only(func, shared.array).attrs["count"] == 4 * 1024


# Control flow


def looped(k, lower, upper, inits, body):
    """`body(i, *carried)` gives the next carried values."""
    with k.region([ScalarType(int32), *(v.type for v in inits)], ["i", *(v.name for v in inits)]) as region:
        k.emit(control.yield_, *body(*region.args))
    return k.emit(control.for_, lower, upper, k.number(1), *inits, regions=(region.done,), descending=False)


def test_a_carried_stage_is_one_number():
    k = tile_kernel()
    smem = alloc(k, float32, (3, 16, 64), SWIZZLED)
    for i in range(3):
        k.emit(shared.store, k.emit(shared.index, smem, k.number(i)), k.input(float32, (16, 64), GRID))
    first = k.emit(shared.index, smem, k.number(0), name="now")
    total = k.input(float32, (16, 64), GRID)

    def body(i, now, total):
        total = k.add(total, k.emit(shared.load, now, layout=GRID))
        return k.emit(shared.index, smem, i), total

    _, total = looped(k, k.number(0), k.number_in(3), (first, total), body)
    k.output(total)
    func = check(k)
    carried = [value.type for value in list(only(func, control.for_).uses)[3:]]
    assert ScalarType(int32) in carried and len(carried) == 2


def test_allocations_change_places():
    """Of two buffers that swap in a loop the memory itself is carried."""
    k = tile_kernel()
    a, b = (alloc(k, float32, (16, 64), SWIZZLED, name) for name in "ab")
    k.emit(shared.store, a, k.input(float32, (16, 64), GRID))
    k.emit(shared.store, b, k.input(float32, (16, 64), GRID))

    def body(i, a, b):
        k.emit(shared.store, b, k.add(k.emit(shared.load, a, layout=GRID), k.emit(shared.load, b, layout=GRID)))
        return b, a

    a, b = looped(k, k.number(0), k.number_in(3), (a, b), body)
    k.output(k.emit(shared.load, a, layout=GRID))
    k.output(k.emit(shared.load, b, layout=ACROSS))
    check(k)


def test_allocations_change_places_in_a_while():
    """What its condition passes on is memory too, for its body and for what follows."""
    k = tile_kernel()
    a, b = (alloc(k, float32, (16, 64), SWIZZLED, name) for name in "ab")
    k.emit(shared.store, a, k.input(float32, (16, 64), GRID))
    k.emit(shared.store, b, k.input(float32, (16, 64), GRID))
    inits = (a, b, k.number_in(0))
    types = [value.type for value in inits]
    with k.region(types) as condition:
        x, y, i = condition.args
        k.emit(control.condition, k.below(i, 3), y, x, i)
    with k.region(types) as body:
        y, x, i = body.args
        k.emit(shared.store, y, k.add(k.emit(shared.load, x, layout=GRID), k.emit(shared.load, y, layout=GRID)))
        k.emit(control.yield_, y, x, k.add(i, k.number(1)))
    x, y, _ = k.emit(control.while_, *inits, regions=(condition.done, body.done))
    k.output(k.emit(shared.load, x, layout=GRID))
    k.output(k.emit(shared.load, y, layout=ACROSS))
    check(k)


@pytest.mark.parametrize("chosen", [True, False])
def test_parts_that_lie_alike_may_meet(chosen):
    """Rows from 0 or 16 on are bytes further on; the branches hand on that number."""
    k = tile_kernel()
    smem = alloc(k, float32, (32, 64), SWIZZLED)
    k.emit(shared.store, smem, k.input(float32, (32, 64), GRID))
    halves = [k.emit(shared.slice, smem, start=start, length=16, dim=0) for start in (0, 16)]
    sides = []
    for half in halves:
        with k.region() as side:
            k.emit(control.yield_, half)
        sides.append(side.done)
    half = k.emit(control.if_, k.number_in(chosen, int1), regions=tuple(sides))
    k.output(k.emit(shared.load, half, layout=GRID))
    check(k)


def test_while_hands_handles_on():
    k = tile_kernel()
    smem = alloc(k, float32, (4, 8, 32), PLAIN)
    for i in range(4):
        k.emit(shared.store, k.emit(shared.index, smem, k.number(i)), k.input(float32, (8, 32), GRID))
    first, zero = k.emit(shared.index, smem, k.number(0)), k.number_in(0)
    types = [first.type, zero.type]
    with k.region(types, ["now", "i"]) as condition:
        now, i = condition.args
        k.emit(control.condition, k.below(i, 3), now, i)
    with k.region(types, ["now", "i"]) as body:
        _, i = body.args
        after = k.add(i, k.number(1))
        k.emit(control.yield_, k.emit(shared.index, smem, after), after)
    last, _ = k.emit(control.while_, first, zero, regions=(condition.done, body.done))
    k.output(k.emit(shared.load, last, layout=GRID))
    check(k)


def test_parts_that_lie_differently_cannot_meet():
    """Columns 0 and 32 of a swizzled tile are no bytes apart."""
    k = tile_kernel()
    smem = alloc(k, float16, (32, 64), NVMMASharedLayout(128, 16))
    k.emit(shared.store, smem, k.input(float16, (32, 64), GRID))
    sides = []
    for start in (0, 32):
        with k.region() as side:
            k.emit(control.yield_, k.emit(shared.slice, smem, start=start, length=32, dim=1))
        sides.append(side.done)
    half = k.emit(control.if_, k.number_in(True, int1), regions=tuple(sides))
    k.output(k.emit(shared.load, half, layout=GRID))
    with pytest.raises(CompilationError, match=r"\[0, 0\].*\[0, 32\]") as caught:
        lower_pipeline(tile_pipeline(k.finished(), TARGET), TARGET)
    assert caught.value.code == "lower-handles"


def test_views_cost_no_registers():
    """No data moves for slices, permutations and reshapes of memory."""
    k = tile_kernel()
    smem = alloc(k, float16, (64, 64), NVMMASharedLayout(128, 16))
    k.emit(shared.store, smem, k.input(float16, (64, 64), GRID))
    turned = k.emit(shared.permute, smem, order=(1, 0), layout=NVMMASharedLayout(128, 16, transposed=True))
    k.output(k.emit(shared.load, k.emit(shared.slice, turned, start=32, length=32, dim=0), layout=ACROSS))
    func = check(k)
    assert not count(func, shared.view, regs.gather)
    assert prod(only(func, shared.load_regs).result.type.element.bits for _ in range(1)) == 16
    assert not count(func, tile.convert)
