"""Loads, stores and atomics: values, how often each element is touched, and how wide the accesses are."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import tiles
from tests.support import any_bits, count, ops_of, tile_kernel, warps_of
from weft import targets
from weft.ir.types import ScalarType, bfloat16, float8e5, float16, float32, float64, int1, int8, int32, int64, uint64
from weft.layout import BlockedLayout, DistributedLinearLayout, SliceLayout
from weft.ops import arith, memory, program, regs, shared, sync, tile
from weft.passes.dce import dce
from weft.passes.lower import lower_tiles

LAW = settings(deadline=None, max_examples=examples(40))
LINE = BlockedLayout([4], [32], [4], [0])
GRID = BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0])
# Lane 16 holds what lane 3 holds.
SKEWED = DistributedLinearLayout([[1], [2]], [[4], [8], [16], [32], [12]], [[64], [128]], [], [256])


def start(case):
    layout, shape = case
    return layout, tuple(shape), tile_kernel(num_warps=warps_of(layout, shape))


# Values


@LAW
@given(st.data(), tiles(), st.sampled_from([int1, int8, float16, float32, float64, uint64]))
def test_masked_loads_and_stores(data, case, element):
    layout, shape, k = start(case)
    n = prod(shape)
    at = k.positions(shape, layout)
    limit = k.number_in(data.draw(st.integers(0, n)), divisible=1)
    masks = [k.cmp("lt", at, k.splat(limit, at)), k.input(int1, shape, layout), k.splat(k.number_in(True, int1), at)]
    mask = data.draw(st.sampled_from(masks))
    ptr = k.pointer_in(any_bits(k.rng, element, n), element, data.draw(st.sampled_from([element.itemsize, 16])))
    others = [k.input(element, shape, layout), k.splat(k.number_in(element.is_int() and 1, element), at)]
    k.output_of_all(k.load(ptr, at, mask, data.draw(st.sampled_from(others))))
    k.output(k.load(ptr, at, mask), mask)
    k.check()


def check_masked(k, at, mask, element):
    """Loads, stores and selections of the elements of an array, in the order of their places."""
    ptr = k.pointer_in(any_bits(k.rng, element, prod(at.type.shape)), element)
    other = k.splat(k.number_in(3 if element.is_int() else 0.5, element), at)
    k.output_of_all(k.load(ptr, at, mask, other))
    k.output(k.load(ptr, at, mask), mask)
    k.output(k.emit(arith.select, mask, k.load(ptr, at), other))
    k.check()


def check_cut(mask_of):
    """The same under a mask of 4,096 numbers, from `mask_of(k, numbers)`."""
    k = tile_kernel()
    at = k.emit(tile.arange, start=0, end=4096, layout=BlockedLayout([8], [32], [4], [0]))
    check_masked(k, at, mask_of(k, at), float16)


@pytest.mark.parametrize("limit", [0, 3, 4, 6, 4094])
def test_a_mask_of_numbers_that_step_in_runs(limit):
    def steps(k, at):
        four = k.splat(k.number(4), at)
        return k.cmp("lt", k.mul(k.emit(arith.div, at, four), four), k.splat(k.number_in(limit, int32, 1), at))

    check_cut(steps)


@pytest.mark.parametrize("first", [0, 2, 7, 100])
def test_a_mask_of_unsigned_numbers_that_wrap(first):
    """The range check in one comparison."""

    def between(k, at):
        moved = k.emit(arith.sub, at, k.splat(k.number_in(first, int32, 1), at))
        wide = k.emit(arith.cast, moved, dtype=uint64)
        return k.cmp("lt", wide, k.splat(k.number_in(100, uint64, 1), wide))

    check_cut(between)


def test_a_mask_of_registers_out_of_order():
    layout = DistributedLinearLayout([[9], [4], [1], [2]], [[16], [32], [64], [128], [256]], [[512], [0]], [], [1024])
    k = tile_kernel()
    at = k.emit(tile.arange, start=0, end=1024, layout=layout)
    mask = k.cmp("lt", at, k.splat(k.number_in(12, int32, 4), at))
    check_masked(k, at, mask, float16)


COMPARED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
"""Comparisons, and with their sides exchanged."""


@LAW
@given(st.data(), st.sampled_from([int8, float16, bfloat16, float32, float64]))
def test_masks_that_begin_and_end_anywhere(data, element):
    """Loads, stores and selections of vectors that masks cut, by any comparisons, with bounds inside and outside."""
    k = tile_kernel()
    layout = BlockedLayout([data.draw(st.sampled_from([1, 2, 4, 8, 16]))], [32], [4], [0])
    at = k.emit(tile.arange, start=0, end=4096, layout=layout)
    masks = []
    for kind in data.draw(st.lists(st.sampled_from(list(COMPARED)), min_size=1, max_size=2)):
        limit = data.draw(st.one_of(st.integers(-9, 4105), st.sampled_from([-(2**31), 2**31 - 1])))
        bound = k.splat(k.number_in(limit, int32, 1), at)
        masks.append(k.cmp(COMPARED[kind], bound, at) if data.draw(st.booleans()) else k.cmp(kind, at, bound))
    mask = masks[0] if len(masks) == 1 else k.emit(arith.and_, *masks)
    check_masked(k, at, mask, element)


@LAW
@given(st.data(), tiles(2), st.sampled_from([int8, float16, float32]))
def test_masks_of_rows_and_columns(data, case, element):
    """A mask of whole rows, one that cuts them, and both, as of a matrix of any size."""
    layout, shape, k = start(case)
    lines = [k.emit(tile.arange, start=0, end=shape[axis], layout=SliceLayout(1 - axis, layout)) for axis in (0, 1)]

    def spread(x, axis):
        return k.emit(tile.broadcast, k.emit(tile.expand_dims, x, axis=1 - axis), shape=shape)

    masks = []
    for axis in data.draw(st.sampled_from([(0,), (1,), (0, 1), (1, 0)])):
        limit = k.splat(k.number_in(data.draw(st.integers(-1, shape[axis] + 1)), int32, 1), lines[axis])
        masks.append(spread(k.cmp(data.draw(st.sampled_from(list(COMPARED))), lines[axis], limit), axis))
    mask = masks[0] if len(masks) == 1 else k.emit(arith.and_, *masks)
    first = k.mul(lines[0], k.splat(k.number(shape[1]), lines[0]))
    places = k.add(spread(first, 0), spread(lines[1], 1))
    check_masked(k, places, mask, element)


@LAW
@given(st.data(), tiles(2))
def test_strides(data, case):
    """Row-major, column-major and spread matrices, with run-time and constant strides."""
    layout, shape, k = start(case)
    rows, columns = (k.coordinate(shape, axis, layout) for axis in (0, 1))
    sizes = [data.draw(st.sampled_from([1, 2, 16, 17, shape[1], shape[0]])) for _ in range(2)]
    known = [data.draw(st.booleans()) for _ in range(2)]
    size = (shape[0] - 1) * sizes[0] + (shape[1] - 1) * sizes[1] + 1
    offsets = None
    for at, stride, constant in zip((rows, columns), sizes, known, strict=True):
        step = k.number(stride, at) if constant else k.splat(k.number_in(stride, int32, stride & -stride), at)
        term = k.mul(at, step)
        offsets = term if offsets is None else k.add(offsets, term)
    ptr = k.pointer_in(any_bits(k.rng, float16, size), float16)
    mask = k.cmp("lt", rows, k.splat(k.number_in(shape[0] // 2 + 1), rows))
    k.output_of_all(k.load(ptr, offsets, mask, k.number(0, k.cast(rows, float16))))
    k.check()


@LAW
@given(tiles(), st.sampled_from([int32, float32]))
def test_everything_is_stored_once(case, element):
    """A load that follows an atomic sum of ones finds one everywhere, and a sum of the old values none."""
    layout, shape, k = start(case)
    at = k.positions(shape, layout)
    counts = k.pointer_in(np.zeros(prod(shape), np.float32 if element.is_floating() else np.int32), element)
    address = k.address(counts, at)
    ones = k.number(1, k.cast(at, element))
    k.output(k.emit(memory.atomic, address, ones, None, kind="add"))
    k.emit(memory.atomic, address, ones, k.below(at, prod(shape) // 2), kind="add")
    after = k.check()
    assert count(after, memory.atomic_regs) == 2


@LAW
@given(tiles(), st.sampled_from(["add", "max", "xor", "xchg"]))
def test_atomics_give_old_values_to_all_holders(case, kind):
    layout, shape, k = start(case)
    n = prod(shape)
    at = k.positions(shape, layout)
    address = k.address(k.pointer_in(any_bits(k.rng, int32, n), int32), at)
    value = k.input(int32, shape, layout)
    mask = k.input(int1, shape, layout)
    k.output_of_all(k.emit(memory.atomic, address, value, None, kind=kind))
    k.output(k.emit(memory.atomic, address, value, mask, kind=kind), mask)
    old = k.emit(memory.atomic_cas, address, k.number(3, value), value)
    k.output_of_all(k.add(old, old))
    k.check()


@pytest.mark.parametrize(("order", "used", "element", "vec"), [
    ("relaxed", False, float32, 4), ("relaxed", True, float32, 1), ("acq_rel", False, float32, 1),
    ("relaxed", False, float64, 1), ("relaxed", False, bfloat16, 4),
])  # fmt: skip
def test_additions_are_vectors_if_relaxed_and_nothing_reads_old_values(order, used, element, vec):
    k = tile_kernel()
    at = k.positions((512,), LINE)
    address = k.address(k.pointer_in(any_bits(k.rng, element, 512), element), at)
    value = k.input(element, (512,), LINE)
    old = k.emit(memory.atomic, address, value, None, kind="add", order=order)
    if used:
        k.output(old)
    k.output(k.emit(memory.load, address, None, None))
    after = k.check()
    assert [op.attrs["vec"] for op in ops_of(after, memory.reduce_regs)] == [vec] * (vec > 1)
    assert count(after, memory.atomic_regs) == (vec == 1)


@pytest.mark.parametrize("element", [int32, int64, float32, float16])
def test_old_values_reach_holders_whose_lanes_are_not_just_repeated(element):
    """Lanes 16 to 31 repeat other lanes than those their numbers give with a bit cleared."""
    k = tile_kernel()
    at = k.positions((256,), SKEWED)
    data = np.arange(256).astype({int32: "i4", int64: "i8", float32: "f4", float16: "f2"}[element])
    counts, ones = k.address(k.pointer_in(data, element), at), k.number(1, k.cast(at, element))
    old = k.emit(memory.atomic, counts, ones, None, kind="add")
    k.output_of_all(old)
    k.output_of_all(k.emit(arith.sub, old, k.cast(at, element)))
    k.check()


@pytest.mark.parametrize("num_warps", [1, 2, 8])
@pytest.mark.parametrize("masked", [True, False])
def test_scalar_accesses(num_warps, masked):
    k = tile_kernel(num_warps=num_warps)
    ptr = k.pointer_in(np.array([5, 7], "i4"), int32)
    on = k.number_in(masked, int1)
    x = k.emit(memory.load, ptr, on, k.number(9))
    k.output(x)
    old = k.emit(memory.atomic, ptr, x, None, kind="add")
    k.output(old)
    k.emit(memory.atomic, ptr, x, on, kind="add")
    k.output(k.emit(memory.atomic_cas, ptr, k.number(10), k.number(11)))
    k.output(k.splat(old, k.positions((64,), BlockedLayout([1], [32], [num_warps], [0]))))
    k.check()


def test_loads_of_undefined_elements_move_freely_and_are_not_stored():
    k = tile_kernel()
    at = k.positions((512,), LINE)
    mask = k.below(at, 100)
    other = BlockedLayout([1], [32], [4], [0])
    x = k.convert(k.load(k.pointer_in(any_bits(k.rng, float32, 512), float32), at, mask), other)
    k.output(x, k.below(k.positions((512,), other), 100))
    k.check()


# Shapes of accesses


def copied(per_thread, element=float32, divisible=16, limit=None, shape=2048):
    """Vector width of a load and of a store of `per_thread` consecutive elements per thread."""
    k = tile_kernel()
    layout = BlockedLayout([per_thread], [32], [4], [0])
    begin = k.mul(k.emit(program.program_id, axis=0), k.number(shape))
    at = k.emit(tile.arange, start=0, end=shape, layout=layout)
    at = k.add(k.splat(begin, at), at)
    mask = None if limit is None else k.cmp("lt", at, k.splat(k.number_in(*limit), at))
    data = any_bits(k.rng, element, 2 * shape)
    x = k.load(k.pointer_in(data, element, divisible), at, mask)
    k.store(k.pointer_in(np.zeros_like(data), element, divisible), at, x, mask)
    after = k.check(grid=(2,))
    (load,), (store,) = ops_of(after, memory.load_regs), ops_of(after, memory.store_regs)
    assert count(after, memory.load_part, memory.store_part) == 2 * (
        limit is not None and limit[-1] % load.attrs["vec"] > 0
    )
    assert load.attrs["vec"] == store.attrs["vec"]
    assert isinstance(load.operands[0].type, ScalarType)
    assert isinstance(store.operands[0].type, ScalarType)
    return load


@pytest.mark.parametrize(("per_thread", "vec"), [(1, 1), (2, 2), (4, 4), (8, 4), (16, 4)])
def test_widths_of_float32(per_thread, vec):
    assert copied(per_thread).attrs["vec"] == vec


@pytest.mark.parametrize(("element", "vec"), [(int8, 16), (float8e5, 16), (bfloat16, 8), (float32, 4), (float64, 2)])
def test_accesses_have_at_most_16_bytes(element, vec):
    assert copied(16, element).attrs["vec"] == vec


@pytest.mark.parametrize(("divisible", "vec"), [(4, 1), (8, 2), (16, 4), (64, 4)])
def test_widths_follow_the_pointer(divisible, vec):
    assert copied(8, divisible=divisible).attrs["vec"] == vec


@pytest.mark.parametrize(("limit", "vec"), [((4000, int32, 16), 4), ((4002, int32, 2), 4), ((4001, int32, 1), 4)])
def test_widths_by_what_divides_the_limit_of_a_mask(limit, vec):
    load = copied(8, limit=limit)
    assert load.attrs["vec"] == vec
    assert load.operands[1].type.count == 16 // vec


def test_a_target_with_wider_accesses_uses_them():
    k = tile_kernel()
    at = k.positions((2048,), BlockedLayout([8], [32], [4], [0]))
    data = any_bits(k.rng, float32, 2048)
    k.store(k.pointer_in(np.zeros_like(data), float32, 32), at, k.load(k.pointer_in(data, float32, 32), at))
    after = k.check(lambda func: dce(lower_tiles(func, targets.get("sm_100a"))))
    assert [op.attrs["vec"] for kind in (memory.load_regs, memory.store_regs) for op in ops_of(after, kind)] == [8, 8]


def axes(k, shape, layout):
    """Row and column numbers, as kernels make them."""
    lines = [k.emit(tile.arange, start=0, end=shape[a], layout=SliceLayout(1 - a, layout)) for a in (0, 1)]
    return [k.broadcast(k.expand(line, 1 - a), shape) for a, line in enumerate(lines)]


def strided(order, stride, divisible, layout=GRID, element=float32):
    """Vector width of a load of a matrix whose axes `order[0]`, `order[1]` have stride 1 and `stride`."""
    k = tile_kernel()
    shape = (32, 64)
    rows, columns = axes(k, shape, layout)
    near, far = (columns, rows) if order == (1, 0) else (rows, columns)
    step = k.number(stride, far) if divisible is None else k.splat(k.number_in(stride, int32, divisible), far)
    at = k.add(k.mul(far, step), near)
    x = k.load(k.pointer_in(any_bits(k.rng, element, 64 * stride + 64), element), at)
    k.output(x)
    after = k.check()
    load = ops_of(after, memory.load_regs)[0]
    assert not any("regs" in str(v.type) for v in load.uses)
    return load.attrs["vec"]


@pytest.mark.parametrize(
    ("order", "stride", "divisible", "vec"),
    [((1, 0), 64, None, 4), ((1, 0), 80, 16, 4), ((1, 0), 66, 2, 2), ((1, 0), 67, 1, 1), ((0, 1), 32, None, 1)],
)
def test_widths_of_matrices(order, stride, divisible, vec):
    assert strided(order, stride, divisible) == vec


def test_a_transposed_layout_reads_along_columns():
    assert strided((0, 1), 32, None, BlockedLayout([4, 1], [8, 4], [2, 2], [0, 1])) == 4


def test_strides_of_one_tile_are_one_vector():
    """A run-time stride between rows: one base, the stride beside it, and no register array for addresses."""
    k = tile_kernel()
    shape = (64, 64)
    rows, columns = axes(k, shape, GRID)
    step = k.number_in(64, int32, 16)
    at = k.add(k.mul(rows, k.splat(step, rows)), columns)
    k.output(k.load(k.pointer_in(any_bits(k.rng, float32, 4096), float32), at))
    after = k.check()
    load = ops_of(after, memory.load_regs)[0]
    assert len(load.attrs["offsets"]) == 2
    assert load.attrs["vec"] == 4
    assert count(after, regs.affine, regs.xor, shared.store_regs) == 0


def test_the_mask_is_compared_once_per_vector():
    load = copied(16, limit=(4000, int32, 16))
    assert load.operands[1].type.count == 4


def test_repeated_registers_are_loaded_once():
    k = tile_kernel()
    layout = SliceLayout(1, BlockedLayout([2, 8], [32, 1], [4, 1], [1, 0]))
    at = k.positions((256,), layout)
    k.output(k.broadcast(k.expand(k.load(k.pointer_in(any_bits(k.rng, float32, 256), float32), at), 1), (256, 8)))
    after = k.check()
    assert ops_of(after, memory.load_regs)[0].attrs["count"] == 2


def test_a_volatile_scalar_is_read_once_for_the_block():
    k = tile_kernel()
    flag = k.emit(memory.load, k.pointer_in(np.array([7], "i4"), int32), None, None, volatile=True)
    k.output(k.splat(flag, k.positions((128,), BlockedLayout([1], [32], [4], [0]))))
    after = k.check()
    (load,) = ops_of(after, memory.load_regs)
    assert load.operand("mask") is not None, "one thread reads"
    assert count(after, sync.barrier) == 1, "and the others wait for what it read"
