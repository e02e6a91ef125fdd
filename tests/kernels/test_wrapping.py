"""Integers that wrap: every form computes what wrapping arithmetic gives, and an access that depends on one is reported."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import run_lowered, same
from weft import language as gl
from weft.errors import Hazard
from weft.sim.machine import wraps

LINE = gl.BlockedLayout([4], [32], [4], [0])
N = 512


@pytest.fixture
def unreported(monkeypatch):
    """The simulator computes accesses that depend on wrapped integers, as a GPU does, and does not report them."""
    monkeypatch.setattr(wraps, "check", lambda *_: None)


def both_stages(kernel, out, *args, programs=(0,), grid=None):
    """What the tile stage and the lowered stage write."""
    tile, lowered = out.copy(), out.copy()
    grid = grid or max(programs) + 1
    with weft.simulate(programs=programs):
        compiled = kernel[grid](tile, *args)
    if programs == (0,):
        run_lowered(kernel, compiled, grid, (lowered, *args), {})
    return tile, lowered


@weft.jit
def quarters(out, start, layout: gl.constexpr):
    i = gl.arange(0, 512, layout=layout)
    quotient = (start * 65536 + i) // 4
    gl.store(out + i, gl.full_like(i, 1), mask=(quotient & 1) == 1)


def odd_quarters(x):
    quotient = np.sign(x).astype(np.int64) * (np.abs(x.astype(np.int64)) // 4)
    return (quotient & 1) == 1


@pytest.mark.parametrize("start", [0, 1, 32767, 32768, 65535])
def test_mask_of_a_quotient_of_a_number_that_wraps(start, unreported):
    """Below zero a quotient is truncated upwards, so four neighbours do not share a bit of it."""
    x = (np.int64(start) * 65536 + np.arange(N)).astype(np.int32)
    for got in both_stages(quarters, np.zeros(N, np.int32), start, LINE):
        same(got, odd_quarters(x).astype(np.int32))


@weft.jit
def of_programs(out, layout: gl.constexpr):
    i = gl.arange(0, 512, layout=layout)
    quotient = (gl.program_id(0) * 65536 + i) // 4
    gl.store(out + i, gl.full_like(i, 1), mask=(quotient & 1) == 1)


def test_one_predicate_for_four_elements_only_where_their_mask_is_equal(unreported):
    tile, _ = both_stages(of_programs, np.zeros(N, np.int32), LINE, programs=(32768,))
    x = (np.int64(32768) * 65536 + np.arange(N)).astype(np.int32)
    same(tile, odd_quarters(x).astype(np.int32))
    front = of_programs[1](np.zeros(N, np.int32), LINE).front
    stores = [op for op in front.lowered.body.ops if op.kind.name == "memory.store_regs"]
    assert [op.attrs["vec"] for op in stores] == [1]


@weft.jit
def constants(out, layout: gl.constexpr):
    i = gl.arange(0, 512, layout=layout)
    high = i + 1073741824 + 1073741824
    gl.store(out + i, high // 4)
    gl.store(out + 512 + i, high % 4)


def test_quotient_of_constants_that_wrap(run):
    """-2**31 + i, not 2**31 + i, is divided."""
    x = np.arange(N) - (1 << 31)
    out = np.zeros(2 * N, np.int32)
    run(constants, 1, out, LINE)
    same(out, np.concatenate([-(-x // 4), x + 4 * (-x // 4)]).astype(np.int32))


def test_a_mask_that_wraps_is_reported():
    with pytest.raises(Hazard) as caught, weft.simulate(programs=(32768,)):
        of_programs[32769](np.zeros(N, np.int32), LINE)
    assert caught.value.code == "hazard-wrapped-mask"
    assert "depends on an integer that wrapped" in caught.value.message
    assert "uint32" in caught.value.fix


@weft.jit
def behind(out, x, factor, zero, which: gl.constexpr, layout: gl.constexpr):
    i = gl.arange(0, 128, layout=layout)
    y = i * factor
    if which == "div":
        y = y // 3
    elif which == "rem":
        y = y % 1000
    elif which == "shr":
        y = y >> 3
    elif which == "and":
        y = y & -8
    elif which == "or":
        y = y | 1
    elif which == "xor":
        y = y ^ 5
    elif which == "minimum":
        y = gl.minimum(y, 100)
    elif which == "maximum":
        y = gl.maximum(y, -100)
    elif which == "select":
        y = gl.where(y > 7, 1, 0)
    elif which == "widen":
        y = y.to(gl.int64) // 3
    elif which == "abs":
        y = gl.abs(y)
    gl.store(out + i, gl.load(x + y * zero))


@pytest.mark.parametrize(
    "which", ["div", "rem", "shr", "and", "or", "xor", "minimum", "maximum", "select", "widen", "abs"]
)
def test_an_address_behind_any_operation_is_reported(which):
    out, x = np.zeros(128, np.int32), np.zeros(8, np.int32)
    behind[1](out, x, 1 << 23, 0, which, LINE)
    with pytest.raises(Hazard) as caught:
        behind[1](out, x, 1 << 30, 0, which, LINE)
    assert caught.value.code == "hazard-wrapped-offset"


@weft.jit
def hashed(out, x, factor, which: gl.constexpr, layout: gl.constexpr):
    i = gl.arange(0, 128, layout=layout)
    if which == "low bits":
        y = i * factor & 63
    elif which == "high bits":
        y = (i * factor >> 8) & 63
    else:
        y = (i * factor).to(gl.uint32) % 61
    gl.store(out + i, gl.load(x + y), mask=y < 60)


@pytest.mark.parametrize("which", ["low bits", "high bits", "unsigned"])
def test_bits_that_wrapping_does_not_change_are_not_reported(which, run):
    factor, out = 0x3C6EF35F, np.zeros(128, np.int32)
    run(hashed, 1, out, np.arange(64, dtype=np.int32), factor, which, LINE)
    full = np.arange(128) * factor
    y = {"low bits": full & 63, "high bits": full >> 8 & 63, "unsigned": (full & 0xFFFFFFFF) % 61}[which]
    same(out, np.where(y < 60, y, 0).astype(np.int32))


@weft.jit
def by_threads(out, factor):
    shared = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout((64,), (1,)), address_space=gl.AddressSpace.SHARED)
    shared[gl.thread_idx.x * factor] = 1
    out[gl.thread_idx.x] = shared[gl.thread_idx.x * factor]


def test_an_index_into_shared_memory_that_wraps_is_reported():
    """2**32 wraps to 0, which is inside."""
    with pytest.raises(Hazard) as caught:
        by_threads[1](weft.LayoutTensor(np.zeros(64, np.int32)), 1 << 26, block=(64,))
    assert caught.value.code in ("hazard-wrapped-offset", "hazard-view-bounds")
