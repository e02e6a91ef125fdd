"""Elementwise operations: sums and products of bases and constants keep exact values, all others become arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import tiles
from tests.support import any_bits, count, ops_of, tile_kernel, warps_of
from weft.ir.types import (
    Pointer,
    RegsType,
    ScalarType,
    bfloat16,
    float8e4nv,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
)  # fmt: skip
from weft.layout import BlockedLayout
from weft.ops import arith, asm, control, elements, memory, regs, tile

LAW = settings(deadline=None, max_examples=examples(40))
LINE = BlockedLayout([4], [32], [4], [0])
EXTREMES = [0, 1, -1, 2, 3, 5, 127, 1 << 16, 2**31 - 1, -(2**31), 1664525, -123456789]
STEPS = ["add", "sub", "rsub", "mul", "shl", "double"]


def integers(k, shape, layout, element, data):
    """A tile of integers in one of the forms that sums and products start from."""
    kind = data.draw(st.sampled_from(["positions", "scalar", "constant", "loaded", "coordinate"]))
    like = k.positions(shape, layout)
    if kind == "scalar":
        value = k.splat(k.number_in(data.draw(st.sampled_from(EXTREMES))), like)
    elif kind == "constant":
        value = k.number(data.draw(st.sampled_from(EXTREMES)), like)
    elif kind == "loaded":
        value = k.input(int32, shape, layout, any_bits(k.rng, int32, int(np.prod(shape))))
    elif kind == "coordinate":
        value = k.coordinate(shape, 0, layout)
    else:
        value = like
    return value if element == int32 else k.cast(value, element)


@LAW
@given(st.data(), tiles(), st.sampled_from([int32, int64, uint32, uint64, int8]))
def test_random_sums_and_products_wrap_as_the_type_does(data, case, element):
    layout, shape = case[0], tuple(case[1])
    k = tile_kernel(num_warps=warps_of(layout, shape))
    x = integers(k, shape, layout, element, data)
    for _ in range(data.draw(st.integers(1, 6))):
        step = data.draw(st.sampled_from(STEPS))
        y = integers(k, shape, layout, element, data)
        if step == "double":
            x = k.add(x, x)
        elif step == "shl":
            x = k.emit(arith.shl, x, k.number(data.draw(st.integers(0, element.bits + 1)), x))
        elif step == "rsub":
            x = k.emit(arith.sub, y, x)
        else:
            x = k.emit({"add": arith.add, "sub": arith.sub, "mul": arith.mul}[step], x, y)
        if element == int32 and data.draw(st.integers(0, 5)) == 0:
            x, element = k.cast(x, int64), int64
    k.output(x)
    k.output(k.cmp(data.draw(st.sampled_from(["eq", "lt", "ge"])), x, integers(k, shape, layout, element, data)))
    k.check()


@LAW
@given(st.data(), tiles())
def test_wide_offsets_have_their_exact_values_in_every_shape(data, case):
    """int32 values that wrapped, then widened, then reshaped: stored values are the wrapped ones."""
    layout, shape = case[0], tuple(case[1])
    k = tile_kernel(num_warps=warps_of(layout, shape))
    x = k.positions(shape, layout)
    wide = k.cast(k.mul(x, k.number(data.draw(st.sampled_from(EXTREMES)), x)), int64)
    wide = k.add(wide, k.splat(k.number_in(5, int64), wide))
    k.output(k.emit(tile.permute, wide, order=tuple(reversed(range(len(shape))))))
    k.output(k.cmp("lt", wide, k.number(0, wide)))
    k.output(k.expand(k.mul(wide, wide), 0))
    k.check()


def test_constants_of_a_chain_of_products_stay_in_range():
    """A linear congruential generator on positions: the constants wrap, not grow."""
    k = tile_kernel()
    x = k.positions((512,), LINE)
    for _ in range(8):
        x = k.add(k.mul(x, k.number(1664525, x)), k.number(1013904223, x))
    k.output(x)
    wide = k.cast(k.positions((512,), LINE), int64)
    for _ in range(8):
        wide = k.add(k.mul(wide, k.number(6364136223846793005, wide)), k.number(1442695040888963407, wide))
    k.output(wide)
    k.check()


def test_exact_value_first_needed_inside_a_branch():
    """The widened value is made in the branch, and again after it, where the branch's values are not in scope."""
    k = tile_kernel()
    x = k.positions((512,), LINE)
    wide = k.cast(k.mul(x, k.number(1 << 24, x)), int64)
    with k.region() as then:
        k.output(wide)
        k.emit(control.yield_)
    with k.region() as orelse:
        k.emit(control.yield_)
    k.emit(control.if_, k.number_in(True, int1), regions=(then.done, orelse.done))
    k.output(wide)
    k.check()


NUMBERS = [float16, bfloat16, float32, float64, float8e4nv, int8, int16, uint8, int64, uint64]


@pytest.mark.parametrize("element", NUMBERS)
def test_every_element_type(element):
    k = tile_kernel()
    x, y = (k.input(element, (512,), LINE) for _ in range(2))
    k.output(k.mul(k.add(x, y), x))
    k.output(k.emit(arith.select, k.cmp("lt", x, y), x, k.number(1, x)))
    k.output(k.cast(x, float32))
    k.check()


def test_uniform_operations_stay_scalar():
    k = tile_kernel()
    like = k.positions((512,), LINE)
    x, y = k.splat(k.number_in(2.5, float32), like), k.splat(k.number_in(1.5, float32), like)
    k.output(k.emit(arith.math, k.add(k.mul(x, y), x), fn="exp"))
    after = k.check()
    assert all(op.result.type.element == float32 for op in ops_of(after, regs.splat))
    computed = [op for kind in (arith.add, arith.mul, arith.math) for op in ops_of(after, kind)]
    assert not any(isinstance(op.result.type, RegsType) for op in computed)


def test_select_with_a_scalar_and_a_uniform_condition():
    k = tile_kernel()
    x, y = (k.input(float32, (512,), LINE) for _ in range(2))
    c = k.number_in(True, int1)
    k.output(k.emit(arith.select, c, x, y))
    k.output(k.emit(arith.select, k.splat(c, x), y, x))
    k.check()


def test_masks_in_every_form():
    k = tile_kernel()
    x = k.positions((512,), LINE)
    lazy, loaded = k.below(x, 100), k.input(int1, (512,), LINE)
    uniform = k.splat(k.number_in(True, int1), x)
    for a in (lazy, loaded, uniform):
        for b in (lazy, loaded, uniform):
            k.output(k.emit(arith.and_, a, b))
            k.output(k.emit(arith.or_, a, b))
    k.check()


def test_pointers_compare_and_select():
    k = tile_kernel()
    x = k.positions((512,), LINE)
    p = k.splat(k.parameter(Pointer(float32), np.zeros(512, "f4"), 16), x)
    q = k.emit(memory.addptr, p, x)
    k.output(k.cmp("eq", p, q))
    k.output(k.emit(arith.select, k.below(x, 100), p, q))
    k.output(k.cmp("eq", p, p))
    k.check()


# Functions of elements


def mapped(k, x, body, pack=1, results=1):
    with k.region([ScalarType(x.type.element)] * pack) as region:
        k.emit(control.yield_, *body(*region.args))
    return k.emit(elements.map_elements, x, pack=pack, regions=(region.done,))


@LAW
@given(tiles(), st.sampled_from([1, 2]))
def test_map_elements(case, pack):
    layout, shape = case[0], tuple(case[1])
    if layout.to_linear(shape).in_size("register") % pack:
        return
    k = tile_kernel(num_warps=warps_of(layout, shape))
    x = k.input(float32, shape, layout)
    if pack == 1:
        k.output(mapped(k, x, lambda a: [k.mul(a, a)]))
    else:
        k.output(mapped(k, x, lambda a, b: [k.add(a, b), a], pack=2))
    k.check()


def test_map_elements_with_control_flow_and_captured_scalars():
    k = tile_kernel()
    x = k.input(int32, (512,), LINE)
    limit = k.number_in(10)

    def body(a):
        with k.region() as then:
            k.emit(control.yield_, k.mul(a, limit))
        with k.region() as orelse:
            k.emit(control.yield_, a)
        return [k.emit(control.if_, k.cmp("gt", a, limit), regions=(then.done, orelse.done))]

    k.output(mapped(k, x, body))
    k.check()


def test_map_elements_of_scalars_and_of_uniform_tiles():
    k = tile_kernel()
    x = k.number_in(3)
    k.output(mapped(k, x, lambda a: [k.add(a, a)]))
    k.output(mapped(k, k.splat(x, k.positions((512,), LINE)), lambda a: [k.add(a, a)]))
    k.check()


def assembled(k, *values, **attrs):
    return k.emit(asm.inline_asm, *values, **{"pack": 1, "dtypes": (int32,), "constraints": "=r,r,r", **attrs})


def test_inline_asm():
    k = tile_kernel()
    x, y = (k.input(int32, (512,), LINE) for _ in range(2))
    k.output(assembled(k, x, y, asm="add.s32 $0, $1, $2;"))
    k.output(assembled(k, k.splat(k.number_in(3), x), k.number(4, x), asm="add.s32 $0, $1, $2;"))
    k.output(assembled(k, k.number_in(3), k.number_in(4), asm="add.s32 $0, $1, $2;"))
    uniform = k.splat(k.number_in(3), x)
    for a, b in ((x, y), (uniform, uniform)):
        two = {"constraints": "=r,=r,r,r", "dtypes": (int32, int32), "sim": lambda a, b: (a + b, a)}
        for value in assembled(k, a, b, asm="add.s32 $0, $2, $3; mov.b32 $1, $2;", **two):
            k.output(value)
    k.check()


def test_packed_inline_asm():
    k = tile_kernel()
    x, y = (k.input(uint8, (512,), LINE) for _ in range(2))
    for a, b in ((x, y), (k.splat(k.number_in(3, uint8), x), k.number(4, x))):
        k.output(assembled(k, a, b, asm="xor.b32 $0, $1, $2;", pack=4, dtypes=(uint8,)))
    k.check()


def test_bases_and_constants_are_not_spelled_out_for_addresses():
    k = tile_kernel()
    x = k.cast(k.positions((512,), LINE), int64)
    x = k.expand(k.add(k.mul(x, k.number(1, x)), k.number(0, x)), 0)
    p = k.splat(k.pointer_in(np.zeros(512, "f4"), float32), x)
    mask = k.cmp("lt", x, k.splat(k.number_in(512, int64, 16), x))
    k.output(k.emit(memory.load, k.emit(memory.addptr, p, x), mask, None))
    after = k.check()
    assert count(after, regs.affine) == 0
    assert ops_of(after, memory.load_regs)[0].attrs["vec"] == 4


@LAW
@given(st.data(), tiles())
def test_parts_of_a_coordinate_are_bits_of_it(data, case):
    """Quotients and remainders of the places of elements by powers of two: of bases and constants apart."""
    layout, shape = case[0], tuple(case[1])
    k = tile_kernel(num_warps=warps_of(layout, shape))
    x = k.coordinate(shape, data.draw(st.integers(0, len(shape) - 1)), layout)
    for _ in range(data.draw(st.integers(1, 3))):
        kind, divisor = data.draw(st.sampled_from([arith.div, arith.rem])), 1 << data.draw(st.integers(0, 6))
        x = k.emit(kind, x, k.number(divisor, x))
    k.output(x)
    k.check()


def test_parts_of_a_coordinate_are_no_arrays():
    """What a nested layout makes of an index is one base and constants: one load of four and one address."""
    k = tile_kernel()
    row = k.pointer_in(any_bits(k.rng, float32, 512), float32)
    at = k.emit(tile.arange, start=0, end=512, layout=LINE)
    inside, outside = (k.emit(kind, at, k.number(64, at)) for kind in (arith.rem, arith.div))
    offsets = k.emit(arith.add, inside, k.emit(arith.mul, outside, k.number(64, at)))
    k.output(k.load(row, offsets))
    after = k.check()
    assert [op.attrs["vec"] for op in ops_of(after, memory.load_regs)] == [4]
    assert count(after, arith.div, arith.rem, regs.affine) == 0


def test_other_quotients_are_computed_element_by_element():
    k = tile_kernel()
    at = k.positions((512,), LINE)
    moved = k.emit(arith.sub, at, k.number(100, at))
    for kind, x, divisor in ((arith.rem, at, 24), (arith.div, at, -4), (arith.rem, moved, 8), (arith.div, moved, 8)):
        k.output(k.emit(kind, x, k.number(divisor, x)))
    assert count(k.check(), arith.div, arith.rem) == 4
