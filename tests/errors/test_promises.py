"""Promises of the author that the simulator checks: hints, assumptions, uniformity, offsets that do not wrap."""

from __future__ import annotations

import numpy as np
import pytest

from tests.errors.hazards import N, X, out, report, two_pointers
from tests.sim.build import Kernel, elementwise, pointer, run
from weft.errors import hazard
from weft.ir.types import int32
from weft.ops import arith, hints, program


@pytest.mark.parametrize(
    ("promise", "scale", "shift", "holds"),
    [
        ({"divisible": (4,)}, 4, 0, True),
        ({"divisible": (4,)}, 4, 2, False),
        ({"divisible": (16,)}, 1, 32, True),
        ({"divisible": (16,)}, 1, 8, False),
        ({"contiguous": (128,)}, 1, 5, True),
        ({"contiguous": (2,)}, 2, 0, False),
        ({"constant": (128,)}, 0, 3, True),
        ({"constant": (4,)}, 1, 0, False),
    ],
)
def test_hints(promise, scale, shift, holds):
    k = two_pointers()
    offsets = k.arange(N)
    values = k.add(k.mul(offsets, k.number(scale, offsets)), k.number(shift, offsets))
    k.at(8)
    k.emit(hints.axes, values, **promise)
    if holds:
        run(k.done(), X, out())
        return
    error = report("hazard-hint", hazard.BrokenPromise, k, X, out())
    assert error.loc.line == 8


def test_hint_on_a_scalar_pointer():
    k = two_pointers()
    at = k.address(k.params[0], k.number(1))
    k.emit(hints.axes, at, divisible=(16,))
    aligned = np.zeros(256, np.uint8)
    start = -aligned.__array_interface__["data"][0] % 16
    error = report("hazard-hint", hazard.BrokenPromise, k, aligned[start : start + 128].view(np.int32), out())
    assert "divisibility by 16 along axis 0" in error.message


def test_assume():
    k = Kernel(("n", int32))
    k.emit(hints.assume, k.below(k.params[0], 10))
    func = k.done()
    run(func, 9)
    with pytest.raises(hazard.BrokenPromise) as caught:
        run(func, 10)
    assert caught.value.code == "hazard-assume"


def test_uniform():
    k = two_pointers()
    warp = k.emit(program.warp_id)
    same = k.emit(hints.uniform, k.emit(arith.rem, warp, k.number(1)))
    k.store(k.params[1], same, k.number(4))
    k.at(3)
    k.emit(hints.uniform, warp)
    error = report("hazard-not-uniform", hazard.BrokenPromise, k, X, out())
    assert "thread 0 has 0 and thread 32 has 1" in error.message
    assert error.loc.line == 3


def test_wrapped_offset():
    k = Kernel(("out", pointer(int32)), ("stride", int32), ("rows", int32))
    offsets = k.arange(N)
    k.at(4)
    scaled = k.mul(offsets, k.splat(k.params[1], offsets))
    k.at(5)
    moved = k.add(scaled, k.splat(k.mul(k.params[1], k.number(0)), scaled))
    k.at(6)
    k.store(k.params[0], moved, offsets, k.cmp("lt", offsets, k.splat(k.params[2], offsets)))
    func = k.done()
    # Only masked-off elements wrap.
    run(func, np.zeros(200, np.int32), 2**26, 1)
    with pytest.raises(hazard.WrappedOffset) as caught:
        run(func, np.zeros(200, np.int32), 2**26, N)
    error = caught.value
    assert error.code == "hazard-wrapped-offset"
    assert error.loc.line == 4
    assert [loc.line for _, loc in error.related] == [6]
    assert "(index 32)" in error.message


def test_a_hash_may_wrap():
    x = np.arange(N, dtype=np.int32)

    def body(k, value):
        mixed = k.add(k.mul(value, k.number(1103515245, value)), k.number(12345, value))
        index = k.emit(arith.and_, mixed, k.number(127, value))
        return k.load(k.params[0], index)

    found = elementwise([x], np.dtype(np.int32), body)
    np.testing.assert_array_equal(found, (x.astype(np.int64) * 1103515245 + 12345) & 127)
