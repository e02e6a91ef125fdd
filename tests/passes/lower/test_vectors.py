"""Wide accesses where only facts about whole tiles, or promises of the author, tell that addresses are consecutive."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import tiles
from tests.support import any_bits, ops_of, tile_kernel, warps_of
from weft.ir.types import bfloat16, float16, float32, int8, int32, int64
from weft.layout import BlockedLayout
from weft.ops import arith, hints, memory, tile
from weft.sim.numbers.arithmetic import numpy_dtype

LAW = settings(deadline=None, max_examples=examples(80))
LINE = BlockedLayout([4], [32], [4], [0])
GRID = BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0])


def hint(k, x, **promises):
    return k.emit(hints.axes, x, **{name: (n,) for name, n in promises.items()})


def widths(after):
    return [op.attrs["vec"] for op in ops_of(after, memory.load_regs)]


def loaded_offsets(k, data):
    return k.input(int32, (512,), LINE, data.astype("i4"))


def test_remainders_and_quotients():
    """A row repeated, and each element repeated: the first is read four at a time."""
    k = tile_kernel()
    at = k.positions((512,), LINE)
    row = k.pointer_in(any_bits(k.rng, float32, 512), float32)
    k.output(k.load(row, k.emit(arith.rem, at, k.number(64, at))))
    k.output(k.load(row, k.emit(arith.div, at, k.number(4, at))))
    assert widths(k.check()) == [4, 1]


@pytest.mark.parametrize(
    ("promises", "vec"),
    [({}, 1), ({"contiguous": 4}, 1), ({"contiguous": 4, "divisible": 4}, 4), ({"contiguous": 4, "divisible": 2}, 2),
     ({"contiguous": 2, "divisible": 8}, 2)],
)  # fmt: skip
def test_promises_about_loaded_offsets(promises, vec):
    k = tile_kernel()
    offsets = hint(k, loaded_offsets(k, (k.rng.permutation(128)[:, None] * 8 + np.arange(4)).ravel()), **promises)
    k.output(k.load(k.pointer_in(any_bits(k.rng, float32, 1024), float32), offsets))
    assert widths(k.check()) == [4, vec]


@pytest.mark.parametrize(("constant", "vec"), [(8, 4), (2, 2), (1, 1)])
def test_promises_about_what_a_mask_compares(constant, vec):
    k = tile_kernel()
    at = k.positions((512,), LINE)
    rows = hint(k, loaded_offsets(k, np.repeat(k.rng.integers(0, 100, 64), 8)), constant=constant)
    mask = k.cmp("lt", rows, k.splat(k.number_in(50), rows))
    both = k.emit(arith.and_, mask, k.cmp("lt", at, k.splat(k.number_in(400, divisible=16), at)))
    source = k.pointer_in(any_bits(k.rng, float32, 512), float32)
    k.output(k.load(source, at, mask, k.number(0, k.cast(at, float32))))
    k.output(k.load(source, at, both, k.number(0, k.cast(at, float32))))
    assert widths(k.check())[1:] == [vec, vec]


def test_a_promise_is_about_the_first_of_a_run():
    """Offsets start at 16, as a thread's 13 and a constant 3: neither part is a multiple of anything."""
    k = tile_kernel()
    at = k.emit(tile.arange, start=3, end=515, layout=LINE)
    at = hint(k, k.add(at, k.splat(k.number_in(13), at)), divisible=16)
    k.output(k.load(k.pointer_in(any_bits(k.rng, float32, 600), float32), at))
    assert widths(k.check()) == [4]


def test_runs_that_start_between_multiples_are_read_one_by_one():
    k = tile_kernel()
    at = k.emit(tile.arange, start=3, end=515, layout=LINE)
    k.output(k.load(k.pointer_in(any_bits(k.rng, float32, 600), float32), at))
    assert widths(k.check()) == [1]


POINTERS = [(float32, 16, 4), (float32, 8, 2), (bfloat16, 16, 8), (int8, 4, 4)]


@pytest.mark.parametrize(("element", "promised", "vec"), POINTERS)
@pytest.mark.parametrize("of", ["scalar", "uniform tile", "tile"])
def test_promises_about_pointers_are_in_bytes(element, promised, vec, of):
    layout = BlockedLayout([16], [32], [1], [0])
    k = tile_kernel(num_warps=1)
    at = k.positions((512,), layout)
    ptr = k.pointer_in(any_bits(k.rng, element, 512), element, element.itemsize)
    if of == "scalar":
        ptr = hint(k, ptr, divisible=promised)
    pointers = k.splat(ptr, at)
    if of == "uniform tile":
        pointers = hint(k, pointers, divisible=promised)
    pointers = k.emit(memory.addptr, pointers, at)
    if of == "tile":
        pointers = hint(k, pointers, divisible=promised)
    k.output(k.emit(memory.load, pointers, None, None))
    assert widths(k.check()) == [vec]


def test_shifted_starts():
    k = tile_kernel()
    at = k.positions((512,), LINE)
    start = k.emit(arith.shl, k.number_in(3), k.number(4))
    k.output(k.load(k.pointer_in(any_bits(k.rng, float32, 600), float32), k.add(k.splat(start, at), at)))
    assert widths(k.check()) == [4]


def test_matrices_with_wrapped_rows():
    """Rows taken modulo a number, as a matrix product does at its edges; columns stay consecutive."""
    k = tile_kernel()
    shape = (32, 64)
    rows = k.emit(arith.rem, k.coordinate(shape, 0, GRID), k.number(24, k.coordinate(shape, 0, GRID)))
    columns = k.coordinate(shape, 1, GRID)
    at = k.add(k.mul(rows, k.splat(k.number_in(64, divisible=16), rows)), columns)
    k.output(k.load(k.pointer_in(any_bits(k.rng, float32, 64 * 24), float32), at))
    assert widths(k.check()) == [4]


SUMS = [arith.add, arith.sub, arith.mul, arith.div, arith.rem]
OPERATIONS = [*SUMS, arith.shl, arith.shr, arith.and_, arith.or_, arith.xor]


@LAW
@given(st.data(), tiles(), st.sampled_from([int8, float16, float32]), st.booleans())
def test_random_offsets_and_masks(data, case, element, wide):
    """Whatever is claimed of an expression, accesses stay aligned and read what each element names."""
    layout, shape = case[0], tuple(case[1])
    k = tile_kernel(num_warps=warps_of(layout, shape))

    def expression(steps):
        x = k.positions(shape, layout) if data.draw(st.booleans()) else k.coordinate(shape, len(shape) - 1, layout)
        for _ in range(steps):
            kind = data.draw(st.sampled_from(OPERATIONS))
            small = kind in (arith.shl, arith.shr)
            n = data.draw(st.integers(0, 3) if small else st.sampled_from([1, 2, 3, 4, 8, 16, 24, 64]))
            known = data.draw(st.booleans())
            y = k.number(n, x) if known else k.splat(k.number_in(n, x.type.element, n & -n or 16), x)
            x = k.emit(kind, x, y)
        return x

    offsets = expression(data.draw(st.integers(0, 4)))
    size = 1 << 12
    offsets = k.emit(arith.and_, offsets, k.number(size - 1, offsets))
    mask = k.cmp(data.draw(st.sampled_from(["lt", "ge", "gt", "le", "eq"])), expression(1), expression(2))
    source = k.pointer_in(any_bits(k.rng, element, size), element)
    offsets = k.cast(offsets, int64) if wide else offsets
    k.output(k.load(source, offsets, mask, k.number(1, k.cast(offsets, element))))
    k.output(k.load(source, k.cast(offsets, int64)))
    target = np.zeros(size, numpy_dtype(element))
    k.store(k.pointer_in(target, element), k.positions(shape, layout), k.load(source, offsets), mask)
    k.check()
    assert prod(shape) <= size
