"""Tile IR and the lowered IR made of it give the same bits and the same verdicts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.effort import examples
from tests.sim.build import GRID, LINE, TARGET, Kernel, pointer, run
from tests.sim.rules.test_tile import combine, layouts
from tests.sim.test_kernels import collatz, copy_2d
from weft.errors import hazard
from weft.ir.types import ScalarType, bfloat16, float16, float32, int32
from weft.layout import BlockedLayout, DotOperandLayout
from weft.ops import arith, control, debug, elements, memory, program, tile
from weft.passes.pipeline import lower_pipeline, tile_pipeline

RNG = np.random.default_rng(13)


def both(func, *arguments, grid=(1,)) -> list[np.ndarray]:
    """Run both stages, each on its own copies; the arrays afterwards, which are equal bit for bit."""
    whole = tile_pipeline(func, TARGET)
    results = []
    for stage in (whole, lower_pipeline(whole, TARGET)):
        own = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        report = run(stage, *own, grid=grid)
        results.append(([a for a in own if isinstance(a, np.ndarray)], report.lines))
    (tiles, printed), (lowered, printed_lowered) = results
    for first, second in zip(tiles, lowered, strict=True):
        assert first.tobytes() == second.tobytes()
    assert sorted(printed) == sorted(printed_lowered)
    return tiles


def on_tile(x, result_shape, body, layout=GRID, dtype=None) -> np.ndarray:
    """`body(kernel, tile of x)` stored, at both stages."""
    out = np.zeros(result_shape, dtype or x.dtype)
    types = {np.dtype(np.float32): float32, np.dtype(np.int32): int32, np.dtype(np.float16): float16}
    k = Kernel(("x", pointer(types[x.dtype])), ("out", pointer(types[out.dtype])))
    found = body(k, k.load(k.params[0], k.grid_offsets(x.shape, x.shape[1], layout)))
    if len(result_shape) == 1:
        k.store(k.params[1], k.arange(result_shape[0], found.type.layout), found)
    else:
        k.store(k.params[1], k.grid_offsets(result_shape, result_shape[1], found.type.layout), found)
    return both(k.done(), x, out)[1]


def numbers_of(shape):
    return (RNG.normal(size=shape) * 10.0 ** RNG.integers(-3, 3, shape)).astype(np.float32)


def test_copy():
    x = numbers_of((100, 200))
    out = both(copy_2d((32, 64)), x, np.zeros_like(x), 100, 200, 200, 1, 200, 1, grid=(4, 4))[1]
    np.testing.assert_array_equal(out, x)


@settings(deadline=None, max_examples=examples(25))
@given(layouts())
def test_float_sums_and_scans(case):
    layout, shape = case
    x = numbers_of(shape)
    for axis in (0, 1):
        rest = shape[:axis] + shape[axis + 1 :]
        on_tile(
            x, rest,
            lambda k, t, a=axis: k.emit(tile.reduce, t, axis=a, regions=(combine(k, [arith.add], [float32]),)), layout,
        )  # fmt: skip
        for reverse in (False, True):
            on_tile(
                x, shape,
                lambda k, t, a=axis, r=reverse: k.emit(
                    tile.scan, t, axis=a, reverse=r, regions=(combine(k, [arith.add], [float32]),)
                ), layout,
            )  # fmt: skip


@settings(deadline=None, max_examples=examples(25))
@given(layouts(), layouts())
def test_conversions(case, other):
    layout, shape = case
    x = numbers_of(shape)
    found = on_tile(x, shape, lambda k, t: k.emit(tile.convert, t, layout=other[0]), layout)
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize(
    "body",
    [
        lambda k, t: k.emit(arith.cast, k.emit(arith.cast, t, dtype=bfloat16), dtype=float32),
        lambda k, t: k.emit(arith.cast, k.emit(arith.cast, t, dtype=int32), dtype=float32),
        lambda k, t: k.add(k.mul(t, t), k.number(0.1, t)),
        lambda k, t: k.emit(arith.maximum, t, k.emit(arith.math, t, fn="neg")),
        lambda k, t: k.emit(arith.math, k.emit(arith.math, t, fn="abs"), fn="sqrt_rn"),
        lambda k, t: k.emit(tile.permute, k.emit(tile.permute, t, order=(1, 0)), order=(1, 0)),
        lambda k, t: k.emit(tile.split, k.emit(tile.join, t, k.add(t, t)))[1],
    ],
)
def test_elementwise(body):
    on_tile(numbers_of((32, 64)), (32, 64), body)


def test_argmax_histogram_gather_and_dot():
    x = numbers_of((32, 32))
    layout = BlockedLayout([2, 2], [4, 8], [2, 2], [1, 0])

    def dot(k, t):
        left = k.emit(tile.convert, t, layout=DotOperandLayout(0, layout, 0))
        right = k.emit(tile.convert, t, layout=DotOperandLayout(1, layout, 0))
        return k.emit(tile.dot_fma, left, right, t)

    on_tile(x, (32, 32), dot, layout)

    def gathered(k, t):
        index = k.emit(arith.and_, k.grid_offsets((32, 32), 7), k.number(31, k.grid_offsets((32, 32), 7)))
        return k.emit(tile.gather, t, index, axis=1)

    on_tile(x, (32, 32), gathered)
    index = RNG.integers(0, 16, 512).astype(np.int32)
    k = Kernel(("x", pointer(int32)), ("out", pointer(int32)))
    loaded = k.load(k.params[0], k.arange(512))
    k.store(k.params[1], k.arange(16), k.emit(tile.histogram, loaded, k.below(loaded, 12), bins=16, layout=LINE))
    counts = both(k.done(), index, np.zeros(16, np.int32))[1]
    np.testing.assert_array_equal(counts, np.bincount(index, minlength=16) * (np.arange(16) < 12))


def test_atomics_happen_once_per_element():
    """64 elements in a layout of 512: others repeat them."""
    k = Kernel(("cells", pointer(int32)), ("old", pointer(int32)))
    offsets = k.arange(64)
    old = k.emit(memory.atomic, k.address(k.params[0], offsets), k.number(1, offsets), None, kind="add")
    k.store(k.params[1], offsets, old)
    scalar = k.emit(memory.atomic, k.params[0], k.number(10), None, kind="add")
    k.store(k.params[1], k.number(64), scalar)
    cells, old = both(k.done(), np.zeros(64, np.int32), np.zeros(65, np.int32))
    assert cells.tolist() == [11] + [1] * 63
    assert old.tolist() == [0] * 64 + [1]


def test_control_flow_and_functions_of_elements():
    k = Kernel(("x", pointer(int32)), ("out", pointer(int32)))
    pid = k.emit(program.program_id, axis=0)
    x = k.load(k.params[0], k.arange(128))
    with k.region([ScalarType(int32), x.type]) as body:
        i, total = body.args
        even = k.cmp("eq", k.emit(arith.and_, i, k.number(1)), k.number(0))
        with k.region() as then:
            k.emit(control.yield_, k.add(total, x))
        with k.region() as orelse:
            k.emit(control.yield_, k.mul(total, k.number(3, total)))
        k.emit(control.yield_, k.emit(control.if_, even, regions=(then.done, orelse.done)))
    total = k.emit(control.for_, k.number(0), pid, k.number(1), x, descending=False, regions=(body.done,))
    with k.region([ScalarType(int32)]) as mapped:
        k.emit(control.yield_, collatz(k, mapped.args[0]))
    steps = k.emit(elements.map_elements, x, pack=1, regions=(mapped.done,))
    k.emit(debug.print_, pid, prefix="program")
    at = k.add(k.arange(128), k.splat(k.mul(pid, k.number(128)), x))
    k.store(k.params[1], at, k.add(total, steps))
    both(k.done(), np.arange(128, dtype=np.int32), np.zeros(512, np.int32), grid=(4,))


@pytest.mark.parametrize(("size", "mask", "kind"), [(100, 128, hazard.OutOfBounds), (128, 100, hazard.UndefinedValue)])
def test_verdicts(size, mask, kind):
    k = Kernel(("x", pointer(int32)), ("out", pointer(int32)))
    offsets = k.arange(128)
    k.at(4)
    loaded = k.load(k.params[0], offsets, k.below(offsets, mask))
    k.at(5)
    k.store(k.params[1], offsets, k.add(loaded, loaded))
    whole = tile_pipeline(k.done(), TARGET)
    found = []
    for stage in (whole, lower_pipeline(whole, TARGET)):
        with pytest.raises(kind) as caught:
            run(stage, np.zeros(size, np.int32), np.zeros(128, np.int32))
        found.append((caught.value.code, caught.value.loc.line))
    assert found[0] == found[1]
