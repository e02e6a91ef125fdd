"""Floating-point instructions of PTX (PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions").

The only rounding mode modelled is `.rn`. NaN results are the type's canonical NaN. Approximate instructions return the true
value, rounded once; their forms state the error bound within which a GPU's result may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from weft.sim.machine.data import Array, where
from weft.sim.numbers import arithmetic as numbers
from weft.sim.numbers.ptx_forms import Bound, Form, Meaning, Modifiers, forms
from weft.sim.numbers.ptx_integers import compared, comparisons, plain

HALVES = ("f16", "f16x2")
BRAINS = ("bf16", "bf16x2")
CANONICAL = {
    "float32": 0x7FFFFFFF, "float16": 0x7FFF, "bfloat16": 0x7FFF, "float64": 0x7FF8000000000000,
    "float8_e4m3fn": 0x7F, "float8_e5m2": 0x7F,
}  # fmt: skip
"""The canonical NaN of each type: for fp8 from the PTX ISA, for the others as GPUs return it."""
TINY = {"float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
"""The smallest positive normal number of each type."""
LARGE = np.float32(2.0**126)


def canonical(x: Array) -> Array:
    """Replace NaNs by the type's canonical NaN."""
    nan = np.array(CANONICAL[x.dtype.name], f"u{x.dtype.itemsize}").view(x.dtype)
    return where(np.isnan(x), nan, x)


def flushed(x: Array) -> Array:
    """Flush subnormals to sign-preserving zero (`.ftz`)."""
    return where(np.abs(x) < x.dtype.type(TINY[x.dtype.name]), np.copysign(x.dtype.type(0), x), x)


def saturated(x: Array) -> Array:
    """Clamp to [0, 1] (`.sat`); NaN and -0 become +0."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    return where(x > zero, where(x > one, one, x), zero)


def rectified(x: Array) -> Array:
    """Clamp negative numbers to +0 (`.relu`); NaN stays NaN."""
    return where((x > 0) | np.isnan(x), x, x.dtype.type(0))


def finished(x: Array, modifiers: Modifiers) -> Array:
    """Apply `.ftz`, `.sat` and `.relu` to a result, and make NaNs canonical."""
    if "ftz" in modifiers:
        x = flushed(x)
    if "sat" in modifiers:
        x = saturated(x)
    if "relu" in modifiers:
        x = rectified(x)
    return canonical(x)


def _floating(compute: Callable[..., Array]) -> Meaning:
    def run(modifiers: Modifiers, *operands: Array) -> Array:
        if "ftz" in modifiers:
            operands = tuple(flushed(x) for x in operands)
        return finished(compute(*operands), modifiers)

    return run


def _product(modifiers: Modifiers, a: Array, b: Array) -> Array:
    """`mul`: with `.ftz`, a product that is subnormal before rounding is flushed. Measured on an H200: 2**-126 times the float
    below 1 is 0, although the product rounds to 2**-126."""
    if "ftz" not in modifiers:
        return _narrow(np.multiply)(modifiers, a, b)
    a, b = flushed(a), flushed(b)
    rounded = numbers.through32(np.multiply, a, b)
    tiny = np.abs(a.astype(np.float64) * b.astype(np.float64)) < TINY[a.dtype.name]  # exact: 48 bits at most
    return finished(where(tiny, np.copysign(a.dtype.type(0), rounded), rounded), modifiers)


def _narrow(compute: Callable[..., Array]) -> Meaning:
    def run(*operands: Array) -> Array:
        return numbers.through32(compute, *operands)

    return _floating(run)


def _fused(a: Array, b: Array, c: Array) -> Array:
    return numbers.fma(*np.broadcast_arrays(a, b, c))


def _reciprocal(a: Array) -> Array:
    return a.dtype.type(1) / a


def _extremum(compute: Callable[..., Array]) -> Meaning:
    def run(modifiers: Modifiers, a: Array, b: Array) -> Array:
        if "ftz" in modifiers:
            a, b = flushed(a), flushed(b)
        return canonical(compute(a, b, "NaN" in modifiers))

    return run


def _math(name: str) -> Meaning:
    def run(a: Array) -> Array:
        return numbers.function(name, a)

    return _floating(run)


def _divided(a: Array, b: Array) -> Array:
    """`div.approx`: multiplication by the reciprocal, which is 0 for divisors with a magnitude above 2**126."""
    beyond = (np.abs(b) > LARGE) & np.isfinite(b)
    return where(beyond, np.copysign(np.float32(0), b) * a, a / b)


def _copied_sign(a: Array, b: Array) -> Array:
    """`copysign d, a, b`: the magnitude of `b` with the sign of `a`."""
    return np.copysign(b, a)


def _differ(a: Array, b: Array) -> Array:
    """Ordered inequality: less or greater, so False for NaN."""
    return (a < b) | (a > b)


def _nan(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


def _numbers(a: Array, b: Array) -> Array:
    return ~_nan(a, b)


def _or_unordered(compute: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def run(a: Array, b: Array) -> Array:
        return compute(a, b) | _nan(a, b)

    return run


_ORDERED: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": _differ, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_FLOAT_ORDERS: dict[str, Callable[[Array, Array], Array]] = {
    **_ORDERED, **{f"{name}u": _or_unordered(compute) for name, compute in _ORDERED.items()}, "num": _numbers, "nan": _nan,
}  # fmt: skip


def _order(modifiers: Modifiers, a: Array, b: Array, *predicate: Array) -> Array:
    if "ftz" in modifiers:
        a, b = flushed(a), flushed(b)
    return compared(_FLOAT_ORDERS)(modifiers, a, b, *predicate)


def _subnormal(a: Array) -> Array:
    """True for subnormals; PTX counts zero as normal (PTX ISA, "testp")."""
    return (np.abs(a) < np.finfo(a.dtype).tiny) & (a != 0)


def _is_number(a: Array) -> Array:
    return ~np.isnan(a)


def _normal(a: Array) -> Array:
    return np.isfinite(a) & ~_subnormal(a)


_TESTS: dict[str, Callable[[Array], Array]] = {
    "finite": np.isfinite, "infinite": np.isinf, "number": _is_number, "notanumber": np.isnan, "normal": _normal,
    "subnormal": _subnormal,
}  # fmt: skip


def _tested(modifiers: Modifiers, a: Array) -> Array:
    (name,) = modifiers
    return _TESTS[name](a).astype(np.uint8)


def table() -> Iterator[Form]:
    """All forms of this module."""
    yield from _exact()
    yield from _approximate()
    names = "|".join(_FLOAT_ORDERS)
    yield from comparisons(names, ("f32", "f16"), _order, "{.ftz}")
    yield from comparisons(names, ("f64", "bf16"), _order)
    yield from forms(
        "testp.{finite|infinite|number|notanumber|normal|subnormal}.T", ("f32", "f64"), "T", _tested, result="pred"
    )


def _exact() -> Iterator[Form]:
    for name, meaning in (("add", _narrow(np.add)), ("sub", _narrow(np.subtract)), ("mul", _product)):
        yield from forms(f"{name}{{.rn}}{{.ftz}}{{.sat}}.T", ("f32", *HALVES), "T T", meaning)
        yield from forms(f"{name}{{.rn}}.T", ("f64", *BRAINS), "T T", meaning)
    fused = _floating(_fused)
    for name in ("fma", "mad"):
        yield from forms(f"{name}.rn{{.ftz}}{{.sat}}.f32", ["f32"], "T T T", fused)
        yield from forms(f"{name}.rn.f64", ["f64"], "T T T", fused)
    yield from forms("fma.rn{.ftz}{|.sat|.relu}.T", HALVES, "T T T", fused)
    yield from forms("fma.rn{.relu}.T", BRAINS, "T T T", fused)
    yield from forms("div.rn{.ftz}.f32", ["f32"], "T T", _floating(np.divide))
    yield from forms("div.rn.f64", ["f64"], "T T", _floating(np.divide))
    yield from forms("rcp.rn{.ftz}.f32", ["f32"], "T", _floating(_reciprocal))
    yield from forms("rcp.rn.f64", ["f64"], "T", _floating(_reciprocal))
    yield from forms("sqrt.rn{.ftz}.f32", ["f32"], "T", _floating(np.sqrt))
    yield from forms("sqrt.rn.f64", ["f64"], "T", _floating(np.sqrt))
    for name, compute in (("min", numbers.minimum), ("max", numbers.maximum)):
        yield from forms(f"{name}{{.ftz}}{{.NaN}}.T", ("f32", *HALVES), "T T", _extremum(compute))
        yield from forms(f"{name}{{.NaN}}.T", BRAINS, "T T", _extremum(compute))
        yield from forms(f"{name}.f64", ["f64"], "T T", _extremum(compute))
    for name, compute in (("abs", np.abs), ("neg", np.negative)):
        yield from forms(f"{name}{{.ftz}}.T", ("f32", *HALVES), "T", _floating(compute))
        yield from forms(f"{name}.T", ("f64", *BRAINS), "T", _floating(compute))
    yield from forms("copysign.T", ("f32", "f64"), "T T", plain(_copied_sign))


def _approximate() -> Iterator[Form]:
    f32 = ["f32"]
    divide = _floating(np.divide)
    yield from forms("div.approx{.ftz}.f32", f32, "T T", _floating(_divided), bound=Bound(2.0**-22))
    yield from forms("div.full{.ftz}.f32", f32, "T T", divide, bound=Bound(2.0**-22))
    reciprocal = _floating(_reciprocal)
    yield from forms("rcp.approx{.ftz}.f32", f32, "T", reciprocal, bound=Bound(2.0**-23))
    yield from forms("sqrt.approx{.ftz}.f32", f32, "T", _floating(np.sqrt), bound=Bound(2.0**-23))
    yield from forms("rsqrt.approx{.ftz}.f32", f32, "T", _math("rsqrt"), bound=Bound(2.0**-22.4))
    yield from forms("ex2.approx{.ftz}.f32", f32, "T", _math("exp2"), bound=Bound(2.0**-22))
    yield from forms("lg2.approx{.ftz}.f32", f32, "T", _math("log2"), bound=Bound(2.0**-22, 2.0**-22))
    for name in ("sin", "cos"):
        yield from forms(f"{name}.approx{{.ftz}}.f32", f32, "T", _math(name), bound=Bound(0.0, 2.0**-20.5))
    yield from forms("tanh.approx.f32", f32, "T", _math("tanh"), bound=Bound(2.0**-11))
    yield from forms("tanh.approx.T", HALVES, "T", _math("tanh"), bound=Bound(0.0, 2.0**-10.987))
    yield from forms("tanh.approx.T", BRAINS, "T", _math("tanh"), bound=Bound(0.0, 2.0**-8))
    yield from forms("ex2.approx.T", HALVES, "T", _math("exp2"), bound=Bound(2.0**-9.9))
    yield from forms("ex2.approx.ftz.T", BRAINS, "T", _math("exp2"), bound=Bound(2.0**-7))
