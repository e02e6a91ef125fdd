"""Launches with `sanitize_overflow=True`: integers that fit change nothing, those that do not are named at their line."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import NUMPY, frozen, poison, same
from weft import language as gl
from weft.errors.hazard import AssertionFailed

LINE = gl.BlockedLayout([1], [32], [4], [0])


@weft.jit
def combine(a, b, how: gl.constexpr):
    if how == "sum":
        result = a + b
    elif how == "difference":
        result = a - b
    else:
        result = a * b
    return result


@weft.jit
def over_tiles(out, x, y, how: gl.constexpr):
    at = gl.arange(0, 128, LINE)
    gl.store(out + at, combine(gl.load(x + at), gl.load(y + at), how))


@weft.jit
def over_threads(out, x, y, how: gl.constexpr):
    i = gl.thread_idx.x
    gl.store(out + i, combine(gl.load(x + i), gl.load(y + i), how))


@weft.jit
def accumulate(out, n, step):
    total = 0
    for _ in range(n):
        total += step
    gl.store(out, total)


HOWS = {"sum": np.add, "difference": np.subtract, "product": np.multiply}
DTYPES = [gl.int32, gl.uint32, gl.int16, gl.uint8]


def numbers(rng, dtype, how):
    """Operands near the ends of the type whose exact results fit it."""
    info = np.iinfo(NUMPY[dtype])
    x, y = (rng.integers(info.min, info.max + 1, 4096, dtype=np.int64) for _ in range(2))
    y[::2] >>= dtype.bits // 2
    x[::2] >>= dtype.bits // 2 if how == "product" else 0
    exact = HOWS[how](x, y)
    fits = (info.min <= exact) & (exact <= info.max)
    return tuple(frozen(v[fits][:128].astype(NUMPY[dtype])) for v in (x, y))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("how", HOWS)
def test_results_that_fit(run, rng, how, dtype):
    x, y = numbers(rng, dtype, how)
    out = poison(128, NUMPY[dtype])
    run(over_tiles, 1, out, x, y, how, sanitize_overflow=True, spills=True)  # The arguments of printf are on the stack.
    same(out, HOWS[how](x, y))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kernel", [over_tiles, over_threads], ids=["tiles", "threads"])
def test_results_that_do_not_fit(rng, kernel, how, dtype):
    x, y = (v.copy() for v in numbers(rng, dtype, how))
    info = np.iinfo(NUMPY[dtype])
    x[77], y[77] = (info.min, 1) if how == "difference" else (info.max, 2)
    out = np.zeros(128, NUMPY[dtype])
    options = {"block": 128} if kernel is over_threads else {}
    kernel[1](out, x, y, how, **options)  # Unchecked, it wraps.
    with pytest.raises(AssertionFailed, match=f"this {how} overflows {dtype.name}") as caught:
        kernel[1](out, x, y, how, sanitize_overflow=True, **options)
    text = str(caught.value)
    assert {"sum": "a + b", "difference": "a - b", "product": "a * b"}[how] in text
    assert "77" in text


def test_integers_of_a_loop():
    out = np.zeros(1, np.int32)
    accumulate[1](out, 15, 2**27, sanitize_overflow=True)
    assert out[0] == 15 * 2**27
    with pytest.raises(AssertionFailed, match="this sum overflows int32") as caught:
        accumulate[1](out, 16, 2**27, sanitize_overflow=True)
    assert "total += step" in str(caught.value)
    assert "compute it in a wider type" in caught.value.fix


def test_integers_of_64_bits_and_floats_are_not_checked():
    x = np.full(128, np.iinfo(np.int64).max)
    over_tiles[1](np.zeros_like(x), x, x, "sum", sanitize_overflow=True)
    x = np.full(128, 3e38, np.float32)
    over_tiles[1](np.zeros_like(x), x, x, "product", sanitize_overflow=True)


def test_the_machine_code_has_the_checks_without_debug():
    arguments = (np.zeros(128, np.int32),) * 3
    checked, plain = (
        over_tiles.warmup(*arguments, "sum", sanitize_overflow=on, target="sm_90a") for on in (True, False)
    )
    assert "this sum overflows int32" in checked.asm["cuda"]
    assert "trap" in checked.asm["ptx"]
    assert "trap" not in plain.asm["ptx"]
