"""Approximate instructions over random bit patterns of float32, `fast_math`, and powers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from tests.kernels.harness import frozen, kept_poison, poison, same, within
from tests.language.support import building
from weft import language as gl
from weft.errors import CompilationError, LaunchError
from weft.language.extra import libdevice
from weft.ops.libdevice import FAST
from weft.runtime.compiled import FAST_MATH

LINE = gl.BlockedLayout([1], [32], [4], [0])
BLOCK, TINY = 1024, 2.0**-126
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, TINY, -TINY, 2.0**-149, -(2.0**-149), 2.0**127, -(2.0**127)]


@weft.jit
def one(out, x, n, function: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    gl.store(out + at, function(gl.load(x + at, mask=at < n, other=1.0)), mask=at < n)


@weft.jit
def two(out, x, y, n, function: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    inside = at < n
    gl.store(
        out + at,
        function(gl.load(x + at, mask=inside, other=1.0), gl.load(y + at, mask=inside, other=1.0)),
        mask=inside,
    )


def patterns(rng, device) -> np.ndarray:
    """Numbers with random bits, of which every 64th is subnormal or not finite, and special ones."""
    size = 2**20 - 3 if device.is_gpu else 4093
    bits = rng.integers(0, 2**32, size, dtype=np.uint32)
    bits[::64] &= 0x807FFFFF
    bits[1::64] |= 0x7F800000
    x = np.array(bits.view(np.float32))
    x[: len(SPECIAL)] = SPECIAL
    return frozen(x)


def flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < TINY, np.copysign(0, x), x)


def relative(bound: float):
    return lambda x, y: bound * np.abs(y)


def ulps(count: float):
    return lambda x, y: count * np.spacing(np.abs(y).astype(np.float32)).astype(np.float64)


def logarithm(inside: float, count: float):
    return lambda x, y: np.where((x >= 0.5) & (x <= 2), inside, ulps(count)(x, y))


def steps(slope: float):
    return lambda x, y: (2 + np.floor(np.abs(slope * x))) * ulps(1)(x, y)


# The function in float64, the bound of its absolute error, where that is stated, and whether it keeps subnormal numbers.
EVERYWHERE = (-np.inf, np.inf)
ONE = {
    "exp2": (np.exp2, ulps(2), EVERYWHERE), "exp": (np.exp, steps(1.173), EVERYWHERE),
    "exp10": (lambda x: np.power(10, x), steps(2.97), EVERYWHERE),
    "log2": (np.log2, logarithm(2**-22, 2), EVERYWHERE), "log": (np.log, logarithm(2**-21.41, 3), EVERYWHERE),
    "log10": (np.log10, logarithm(2**-24, 3), EVERYWHERE),
    "sqrt": (np.sqrt, ulps(2), EVERYWHERE), "rsqrt": (lambda x: 1 / np.sqrt(x), ulps(2), EVERYWHERE),
    "sin": (np.sin, lambda x, y: 2**-21.41, (-np.pi, np.pi)), "cos": (np.cos, lambda x, y: 2**-21.19, (-np.pi, np.pi)),
    "tanh": (np.tanh, relative(2**-11), EVERYWHERE),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_functions(run, rng, device, name):
    """Zeros for subnormal operands and results; elsewhere the stated bound, and infinities and NaN where the function has them.
    Where the function of the flushed operand is within the bound of the smallest normal number, both are right."""
    exact, bound, (low, high) = ONE[name]
    x = patterns(rng, device)
    out = poison(-(-x.size // BLOCK) * BLOCK, np.float32)
    run(one, -(-x.size // BLOCK), out, x, x.size, getattr(libdevice, FAST[name]), BLOCK, LINE, exact=False)
    kept_poison(out, x.size)
    keeps = name == "tanh"
    with np.errstate(all="ignore"):
        found, wide = out[: x.size].astype(np.float64), x.astype(np.float64)
        wanted = exact(wide if keeps else flushed(wide))
        limit = np.broadcast_to(bound(wide, wanted), wanted.shape) + np.spacing(np.abs(wanted).astype(np.float32)) / 2
        stated = (~np.isfinite(wide)) | ((wide >= low) & (wide <= high))
        largest = np.finfo(np.float32).max
        near_overflow = np.abs(wanted) > largest - 200 * np.spacing(largest)
        small = (np.abs(wanted) < TINY * (1 + 2**-14)) & (not keeps)
        right = np.abs(found - wanted) <= limit
        right |= (found == np.where(np.abs(wanted) > largest, np.copysign(np.inf, wanted), wanted)) | (
            np.isnan(found) & np.isnan(wanted)
        )
        right |= near_overflow & (np.abs(found) > largest * (1 - 2**-14)) & (np.sign(found) == np.sign(wanted))
        right = np.where(small, (found == 0) | (right & (np.abs(wanted) >= TINY * (1 - 2**-14))), right)
    wrong = np.flatnonzero(~right & stated)
    assert not wrong.size, [(name, x[i], found[i], wanted[i]) for i in wrong[:5]]
    assert not (np.abs(found[(found != 0) & ~np.isnan(found)]) < TINY).any() or keeps


@pytest.mark.parametrize(("degree", "bound"), [(3, -13.2), (4, -18.3), (5, -22.5)])
def test_exponentials_by_polynomials(run, rng, device, degree, bound):
    """The bound over the whole range, and the ends of the range."""
    x = np.array(patterns(rng, device))
    x[len(SPECIAL) : x.size // 2] = rng.uniform(-130, 130, x.size // 2 - len(SPECIAL))
    x[-5:] = [-127, 128, np.nextafter(np.float32(128), np.float32(0)), -126.5, -126]
    out = poison(-(-x.size // BLOCK) * BLOCK, np.float32)
    run(by_polynomial, -(-x.size // BLOCK), out, frozen(x), x.size, degree, BLOCK, LINE)
    kept_poison(out, x.size)
    found, wide = out[: x.size].astype(np.float64), np.where(np.isnan(x), 128, x).astype(np.float64)
    with np.errstate(over="ignore"):
        exact = np.exp2(wide)
    exact = np.where(exact < 2.0**128, exact, np.inf)
    normal = (exact >= TINY) & np.isfinite(exact)
    assert (np.abs(found[normal] / exact[normal] - 1) <= 2.0**bound).all()
    small = exact < TINY
    assert (np.abs(found[small] - exact[small]) <= 2.0**-127).all()
    assert (found[wide <= -127] == 0).all() and np.isinf(found[wide >= 128]).all()


@weft.jit
def by_polynomial(out, x, n, degree: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    gl.store(out + at, gl.exp2_polynomial(gl.load(x + at, mask=at < n, other=1.0), degree), mask=at < n)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda k: gl.exp2_polynomial(k.tile(gl.float32), 6), "language-exp2-degree"),
        (lambda k: gl.exp2_polynomial(k.tile(gl.float16)), "language-float-needed"),
    ],
)
def test_exponentials_without_polynomials(call, code):
    with building() as kernel, pytest.raises(CompilationError) as caught:
        call(kernel)
    assert caught.value.code == code


def test_quotients(run, rng, device):
    x, y = patterns(rng, device), patterns(rng, device)
    out = poison(-(-x.size // BLOCK) * BLOCK, np.float32)
    run(two, -(-x.size // BLOCK), out, x, y, x.size, libdevice.fast_dividef, BLOCK, LINE, exact=False)
    kept_poison(out, x.size)
    with np.errstate(all="ignore"):
        found, a, b = out[: x.size].astype(np.float64), flushed(x.astype(np.float64)), flushed(y.astype(np.float64))
        wanted = a / b
        stated = (np.abs(b) <= 2.0**126) & (np.abs(wanted) > TINY * 1.001) & (np.abs(wanted) < 3.4e38)
        error = np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(np.float32))
        assert (error[stated] <= 2.5).all()
        assert (found[(np.abs(wanted) < TINY * 0.999) & ~np.isnan(wanted)] == 0).all()
        assert np.isinf(found[(b == 0) & (a != 0) & ~np.isnan(a)]).all()
        assert (found[(np.abs(b) > 2.0**126) & np.isfinite(a) & ~np.isnan(b)] == 0).all()


# fast_math


@weft.jit
def accurate(out, x, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    v = gl.load(x + at)
    gl.store(
        out + at, gl.exp2(v) + gl.tanh(v) / gl.sqrt(gl.abs(v) + 1.0) + libdevice.exp10(v * 0.25) + gl.sqrt_rn(gl.abs(v))
    )


fast = weft.jit(fast_math=True)(accurate.fn)
of_some = weft.jit(fast_math=("tanh", "exp2"))(accurate.fn)


def test_the_option_of_a_kernel(run, rng):
    x = frozen(rng.normal(size=BLOCK).astype(np.float32))
    wide, results = x.astype(np.float64), []
    exact = np.exp2(wide) + np.tanh(wide) / np.sqrt(np.abs(wide) + 1) + 10 ** (wide / 4) + np.sqrt(np.abs(wide))
    for kernel, bound in ((accurate, 1e-6), (of_some, 2**-11), (fast, 2**-11)):
        out = poison(BLOCK, np.float32)
        compiled = run(kernel, 1, out, x, BLOCK, LINE, exact=False)
        assert np.abs(out / exact - 1).max() < bound
        results.append(compiled)
    plain, some, all_of_it = (set(re.findall(r"fast_\w+", compiled.asm["ir"])) for compiled in results)
    assert plain == set()
    assert some == {"fast_tanhf", "fast_exp2f"}
    assert all_of_it == {"fast_tanhf", "fast_exp2f", "fast_dividef", "fast_sqrtf", "fast_exp10f"}
    assert "sqrt_rn" in results[2].asm["ir"]
    sizes = [len(re.findall(r";", compiled.asm["sass"])) for compiled in results]
    assert sizes[0] > sizes[1] > sizes[2]


def test_names_of_the_option():
    assert set(FAST_MATH) == FAST.keys()
    assert accurate.fast_math == () and fast.fast_math == FAST_MATH and of_some.fast_math == ("exp2", "tanh")
    for wrong in ("erf", ("exp2", "add"), 3, (None,)):
        with pytest.raises(LaunchError) as caught:
            weft.jit(fast_math=wrong)(accurate.fn)
        assert caught.value.code == "launch-option-value"
        assert "a list of operations (div, sqrt," in str(caught.value)


# Fusion


@weft.jit
def product_and_sum(out, x, y, z, N: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, N, layout)
    gl.store(out + at, gl.load(x + at) * gl.load(y + at) + gl.load(z + at))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_products_and_sums_without_fusion(run, rng, kind):
    x, y, z = (frozen(rng.normal(size=BLOCK).astype(kind)) for _ in range(3))
    fused, apart = poison(BLOCK, kind), poison(BLOCK, kind)
    run(product_and_sum, 1, fused, x, y, z, BLOCK, LINE)
    compiled = run(product_and_sum, 1, apart, x, y, z, BLOCK, LINE, enable_fp_fusion=False)
    same(apart, x * y + z)
    assert (fused != apart).any()
    assert not re.search(r"\b[DFH]FMA", compiled.asm["sass"]) or kind == np.float16


# Powers


@weft.jit
def powers(out, x, y, i, N: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, N, layout)
    a, b, k = gl.load(x + at), gl.load(y + at), gl.load(i + at)
    gl.store(out + at, a**2)
    gl.store(out + N + at, a**7)
    gl.store(out + 2 * N + at, a**-3.0)
    gl.store(out + 3 * N + at, gl.pow(a, 0))
    gl.store(out + 4 * N + at, a**b)
    gl.store(out + 5 * N + at, a**k)
    gl.store(out + 6 * N + at, 2**b)
    gl.store(out + 7 * N + at, 1.5**b)
    gl.store(out + 8 * N + at, a**0.5)
    gl.store(out + 9 * N + at, gl.log1p(a) + gl.expm1(b * 0.001))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_powers(run, rng, kind):
    x, y = rng.uniform(0.25, 4, BLOCK).astype(kind), rng.uniform(-4, 4, BLOCK).astype(kind)
    i, out = rng.integers(-6, 7, BLOCK).astype(np.int32), poison((10, BLOCK), kind)
    run(powers, 1, out, frozen(x), frozen(y), frozen(i), BLOCK, LINE, exact=False)
    wide, far = x.astype(np.longdouble), y.astype(np.longdouble)
    same(out[0], x * x)
    for row, (exact, bound) in enumerate(
        [
            (wide**7, 4), (1 / wide**3, 6), (np.ones_like(wide), 0), (wide**far, 4), (wide**i, 8), (np.exp2(far), 2),
            (np.power(np.longdouble(1.5), far), 4), (np.sqrt(wide), 4), (np.log1p(wide) + np.expm1(far * 0.001), 6),
        ],
        start=1,
    ):  # fmt: skip
        within(out[row], exact, bound)


@weft.jit
def whole(out, x, N: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, N, layout)
    gl.store(out + at, gl.load(x + at) ** 5)


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.int64])
def test_powers_of_integers_wrap(run, rng, kind):
    x, out = rng.integers(0, 100, BLOCK).astype(kind), poison(BLOCK, kind)
    run(whole, 1, out, frozen(x), BLOCK, LINE)
    same(out, x * x * x * x * x)
