"""The PTX instruction `cvt` (PTX ISA, "Data Movement and Conversion Instructions: cvt").

Modelled conversions: integer to integer, integer to float (`.rn`), float to integer, float to float, two float32 to a packed
pair, and pairs of fp8. Forms have a rounding mode exactly where the PTX ISA requires one, and `.sat` where it has an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from weft.ir.types import BY_CODE
from weft.sim.machine.data import Array, where
from weft.sim.numbers import arithmetic as numbers
from weft.sim.numbers.ptx_floats import finished, flushed
from weft.sim.numbers.ptx_forms import DTYPES, WHOLE, Form, Meaning, Modifiers, forms

INTEGERS = ("u8", "s8", *WHOLE)
FLOATS = ("f16", "bf16", "f32", "f64")
# The float types to which each float type converts exactly.
WIDER = {"f16": ("f32", "f64"), "bf16": ("f32", "f64"), "f32": ("f64",), "f64": ()}
_TO_WHOLE: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc}


def _between_integers(target: str) -> Meaning:
    dtype = DTYPES[target]

    def run(modifiers: Modifiers, a: Array) -> Array:
        if "sat" in modifiers:
            of, to = np.iinfo(a.dtype), np.iinfo(dtype)
            a = np.clip(a, a.dtype.type(max(of.min, to.min)), a.dtype.type(min(of.max, to.max)))
        return a.astype(dtype)

    return run


def _whole(modifiers: Modifiers, a: Array) -> Array:
    """Round a float to an integral value of the same type."""
    if "ftz" in modifiers:
        a = flushed(a)
    (mode,) = modifiers & _TO_WHOLE.keys()
    return numbers.through32(_TO_WHOLE[mode], a)


def _to_integer(source: str, target: str) -> Meaning:
    """Float to integer, clamped to the target's range. NaN becomes 0 if both types have at most 32 bits, otherwise the integer
    with only the top bit set."""
    element = BY_CODE[target.replace("s", "i")]
    zero = source != "f64" and target not in ("s64", "u64")
    nan = np.array(0 if zero else 1 << element.bits - 1, f"u{element.itemsize}").view(DTYPES[target])

    def run(modifiers: Modifiers, a: Array) -> Array:
        return where(np.isnan(a), nan, numbers.float_to_integer(_whole(modifiers, a), element))

    return run


def _to_float(target: str) -> Meaning:
    def run(modifiers: Modifiers, a: Array) -> Array:
        return finished(np.asarray(numbers.integer_to_float(a, DTYPES[target])), modifiers)

    return run


def _between_floats(target: str) -> Meaning:
    dtype = DTYPES[target]

    def run(modifiers: Modifiers, a: Array) -> Array:
        if "ftz" in modifiers and a.dtype == np.float32:
            a = flushed(a)
        if modifiers & _TO_WHOLE.keys():
            a = _whole(modifiers - {"ftz"}, a)
        mode = "rz" if "rz" in modifiers else "rn"
        rounded = np.asarray(a if a.dtype == dtype else numbers.float_to_float(a, dtype, mode))
        return finished(rounded, modifiers if dtype == np.float32 else modifiers - {"ftz"})

    return run


def _pair(target: str) -> Meaning:
    """Two float32 to a packed pair; the first operand goes to the upper half (PTX ISA, "cvt")."""
    convert = _between_floats(target)

    def run(modifiers: Modifiers, a: Array, b: Array) -> Array:
        return np.stack(np.broadcast_arrays(convert(modifiers, b), convert(modifiers, a)), axis=-1)

    return run


def table() -> Iterator[Form]:
    """All forms of this module."""
    for source in INTEGERS:
        for target in INTEGERS:
            of, to = np.iinfo(DTYPES[source]), np.iinfo(DTYPES[target])
            sat = "{.sat}" if to.min > of.min or to.max < of.max else ""
            yield from _cvt(f"cvt{sat}", target, source, _between_integers(target))
        for target in ("f16", "f32", "f64"):
            yield from _cvt("cvt.rn{.sat}", target, source, _to_float(target))
    for source in WHOLE:
        yield from _cvt("cvt.rn", "bf16", source, _to_float("bf16"))
    for source in FLOATS:
        yield from _from_float(source)
    for source, target in (("f64", "f32"), ("f64", "f16"), ("f32", "f16")):
        ftz = "{.ftz}" if "f32" in (source, target) else ""
        yield from _cvt(f"cvt.{{rn|rz}}{ftz}{{.sat}}", target, source, _between_floats(target))
    yield from _cvt("cvt.{rn|rz}{.relu}", "bf16", "f32", _between_floats("bf16"))
    yield from _cvt("cvt.{rn|rz}.relu", "f16", "f32", _between_floats("f16"))
    yield from _cvt("cvt.rn", "bf16", "f64", _between_floats("bf16"))
    yield from _pairs()


def _from_float(source: str) -> Iterator[Form]:
    ftz = "{.ftz}" if source == "f32" else ""
    saturating = "" if source == "bf16" else "{.sat}"
    for target in WHOLE if source == "bf16" else INTEGERS:
        yield from _cvt(f"cvt.{{rni|rzi|rmi|rpi}}{ftz}{saturating}", target, source, _to_integer(source, target))
    for target in WIDER[source]:
        flush = "{.ftz}" if "f32" in (source, target) and "bf16" not in (source, target) else ""
        yield from _cvt(f"cvt{flush}{saturating}", target, source, _between_floats(target))
    if source != "bf16":
        yield from _cvt(f"cvt{{|.rni|.rzi|.rmi|.rpi}}{ftz}{{.sat}}", source, source, _between_floats(source))


def _pairs() -> Iterator[Form]:
    for target in ("f16", "bf16"):
        yield from forms(f"cvt.{{rn|rz}}{{.relu}}.{target}x2.f32", ["f32"], "T T", _pair(target), result=f"{target}x2")
    for target in ("e4m3", "e5m2"):
        pair, halves = f"{target}x2", "f16x2"
        yield from forms(f"cvt.rn.satfinite{{.relu}}.{pair}.f32", ["f32"], "T T", _pair(target), result=pair)
        yield from forms(f"cvt.rn.satfinite{{.relu}}.{pair}.T", [halves], "T", _between_floats(target), result=pair)
        yield from forms(f"cvt.rn{{.relu}}.T.{pair}", [halves], pair, _between_floats("f16"))


def _cvt(pattern: str, target: str, source: str, meaning: Meaning) -> Iterator[Form]:
    """The forms of a conversion between two types; integer registers may be wider than the type."""
    return forms(f"{pattern}.{target}.T", [source], "T", meaning, result=target, relaxed=True)
