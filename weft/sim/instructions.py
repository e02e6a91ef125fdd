"""The meaning of common PTX instructions, on whole arrays of the instruction's type.

Semantics: the PTX ISA manual, section of each instruction. How text names registers and types is in `weft.sim.ptx`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weft.sim import numbers
from weft.sim.data import Array, arange, where
from weft.sim.numbers import bits_of

Modifiers = frozenset[str]
Meaning = Callable[..., Array]


@dataclass(frozen=True, slots=True)
class Instruction:
    """`meaning(modifiers, *operands)`; the modifiers it knows; operand and result types where not the instruction's own."""

    meaning: Meaning
    modifiers: Modifiers = frozenset()
    operands: tuple[str | None, ...] = ()
    result: str | None = None


_ROUNDED = frozenset({"rn", "ftz", "sat"})
_APPROX = frozenset({"approx", "full", "rn", "ftz", "sat"})


def _arithmetic(compute: Callable[..., Array]) -> Meaning:
    def run(modifiers: Modifiers, *operands: Array) -> Array:
        whole = operands[0].dtype.kind in "iu"
        return compute(*operands) if whole else numbers.through32(compute, *operands)

    return run


def _plain(compute: Callable[..., Array]) -> Meaning:
    def run(modifiers: Modifiers, *operands: Array) -> Array:
        return compute(*operands)

    return run


def _mul(modifiers: Modifiers, a: Array, b: Array) -> Array:
    if "wide" in modifiers:
        wide = np.dtype(f"{a.dtype.kind}{a.dtype.itemsize * 2}")
        return a.astype(wide) * b.astype(wide)
    if "hi" not in modifiers:
        return numbers.through32(np.multiply, a, b) if a.dtype.kind not in "iu" else a * b
    if a.dtype.itemsize < 4:
        return (a.astype(np.int64) * b.astype(np.int64) >> np.int64(a.dtype.itemsize * 8)).astype(a.dtype)
    high = numbers.high_product(a, b)
    if a.dtype.kind == "u":
        return high
    # From the unsigned product to the signed one.
    zero = a.dtype.type(0)
    correction = where(a < 0, b, zero) + where(b < 0, a, zero)
    return high - correction


def _fma(modifiers: Modifiers, a: Array, b: Array, c: Array) -> Array:
    return a * b + c if a.dtype.kind in "iu" else numbers.fma(a, b, c)


def _division(modifiers: Modifiers, a: Array, b: Array) -> Array:
    return numbers.divide_integers(a, b) if a.dtype.kind in "iu" else numbers.through32(np.divide, a, b)


def _math(name: str) -> Meaning:
    def run(modifiers: Modifiers, a: Array) -> Array:
        return numbers.function(name, a)

    return run


def _shift(compute: Callable[[Array, Array], Array]) -> Meaning:
    """Amounts clamp at the register's width."""

    def run(modifiers: Modifiers, a: Array, amount: Array) -> Array:
        # NumPy clamps where the amount, in the value's own type, is at least the width.
        return compute(a, np.minimum(amount, amount.dtype.type(a.dtype.itemsize * 8)).astype(a.dtype))

    return run


def _funnel(left: bool) -> Meaning:
    """`shf`: 32 bits of the 64-bit number `high:low`, shifted by an amount that wraps or clamps."""

    def run(modifiers: Modifiers, low: Array, high: Array, amount: Array) -> Array:
        n = amount & np.uint32(31) if "wrap" in modifiers else np.minimum(amount, np.uint32(32))
        both = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
        shifted = both << n.astype(np.uint64) >> np.uint64(32) if left else both >> n.astype(np.uint64)
        return shifted.astype(np.uint32)

    return run


def _bits(a: Array) -> Array:
    """The bits of each element along a new last axis, lowest first."""
    places = arange(a.dtype.itemsize * 8).astype(a.dtype)
    return np.asarray(a)[..., None] >> places & a.dtype.type(1)


def _same(a: Array) -> Array:
    return a


def _reciprocal(a: Array) -> Array:
    return a.dtype.type(1) / a


def _choose(a: Array, b: Array, predicate: Array) -> Array:
    return where(predicate != 0, a, b)


def _popc(modifiers: Modifiers, a: Array) -> Array:
    return _bits(a).sum(axis=-1).astype(np.uint32)


def _brev(modifiers: Modifiers, a: Array) -> Array:
    places = arange(a.dtype.itemsize * 8)[::-1].astype(a.dtype)
    return np.bitwise_or.reduce(_bits(a) << places, axis=-1)


def _highest(a: Array) -> Array:
    """Number of the highest bit set, -1 without one."""
    n = a.dtype.itemsize * 8
    set_bits = _bits(a)[..., ::-1] != 0
    return where(np.any(set_bits, axis=-1), n - 1 - np.argmax(set_bits, axis=-1), -1)


def _clz(modifiers: Modifiers, a: Array) -> Array:
    return (a.dtype.itemsize * 8 - 1 - _highest(a)).astype(np.uint32)


def _bfind(modifiers: Modifiers, a: Array) -> Array:
    """The highest bit that differs from the sign; all ones without one."""
    unsigned = bits_of(where(a < 0, ~a, a) if a.dtype.kind == "i" else a)
    return _highest(unsigned).astype(np.int64).astype(np.uint32)


def _prmt(modifiers: Modifiers, a: Array, b: Array, selector: Array) -> Array:
    """Four bytes of `b:a`, each picked by a nibble of the selector whose top bit repeats the byte's sign instead."""
    both = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
    out = np.zeros(np.broadcast(both, selector).shape, np.uint32)
    for byte in range(4):
        nibble = selector >> np.uint32(4 * byte) & np.uint32(15)
        picked = (both >> (nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8) & np.uint64(255)).astype(np.uint32)
        sign = where(picked & np.uint32(128), np.uint32(255), np.uint32(0))
        out = out | where(nibble & np.uint32(8), sign, picked) << np.uint32(8 * byte)
    return out


def _lop3(modifiers: Modifiers, a: Array, b: Array, c: Array, table: Array) -> Array:
    out = np.zeros(np.broadcast(a, b, c).shape, np.uint32)
    for row in range(8):
        term = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        out = out | where(table >> np.uint32(row) & np.uint32(1), term, np.uint32(0))
    return out


def _extremum(compute: Callable[..., Array]) -> Meaning:
    def run(modifiers: Modifiers, a: Array, b: Array) -> Array:
        return compute(a, b, "NaN" in modifiers)

    return run


def _setp(modifiers: Modifiers, a: Array, b: Array) -> Array:
    compare: dict[str, Callable[..., Array]] = {
        "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    }  # fmt: skip
    (name,) = modifiers & compare.keys()
    return compare[name](a, b).astype(np.uint8)


INSTRUCTIONS: dict[str, Instruction] = {
    "mov": Instruction(_plain(_same)),
    "add": Instruction(_arithmetic(np.add), _ROUNDED),
    "sub": Instruction(_arithmetic(np.subtract), _ROUNDED),
    "mul": Instruction(_mul, _ROUNDED | {"lo", "hi", "wide"}),
    "mad": Instruction(_fma, _ROUNDED | {"lo"}),
    "fma": Instruction(_fma, _ROUNDED),
    "div": Instruction(_division, _APPROX),
    "rem": Instruction(_plain(np.fmod)),
    "min": Instruction(_extremum(numbers.minimum), frozenset({"ftz", "NaN"})),
    "max": Instruction(_extremum(numbers.maximum), frozenset({"ftz", "NaN"})),
    "abs": Instruction(_plain(np.abs), frozenset({"ftz"})),
    "neg": Instruction(_plain(np.negative), frozenset({"ftz"})),
    "rcp": Instruction(_arithmetic(_reciprocal), _APPROX),
    "sqrt": Instruction(_math("sqrt"), _APPROX),
    "rsqrt": Instruction(_math("rsqrt"), _APPROX),
    "ex2": Instruction(_math("exp2"), _APPROX),
    "lg2": Instruction(_math("log2"), _APPROX),
    "sin": Instruction(_math("sin"), _APPROX),
    "cos": Instruction(_math("cos"), _APPROX),
    "tanh": Instruction(_math("tanh"), _APPROX),
    "and": Instruction(_plain(np.bitwise_and)),
    "or": Instruction(_plain(np.bitwise_or)),
    "xor": Instruction(_plain(np.bitwise_xor)),
    "not": Instruction(_plain(np.bitwise_not)),
    "shl": Instruction(_shift(np.left_shift), operands=(None, "u32")),
    "shr": Instruction(_shift(np.right_shift), operands=(None, "u32")),
    "shf.l": Instruction(_funnel(left=True), frozenset({"l", "wrap", "clamp"})),
    "shf.r": Instruction(_funnel(left=False), frozenset({"r", "wrap", "clamp"})),
    "popc": Instruction(_popc, result="u32"),
    "clz": Instruction(_clz, result="u32"),
    "brev": Instruction(_brev),
    "bfind": Instruction(_bfind, result="u32"),
    "prmt": Instruction(_prmt),
    "lop3": Instruction(_lop3),
    "setp": Instruction(_setp, frozenset({"eq", "ne", "lt", "le", "gt", "ge", "ftz"}), result="pred"),
    "selp": Instruction(_plain(_choose), operands=(None, None, "pred")),
}


def apply(entry: Instruction, modifiers: Modifiers, values: list[Array]) -> Array:
    """The instruction's result; `ftz` takes subnormals as zeros, `sat` clamps to 0 ... 1."""
    if "ftz" in modifiers:
        values = [_flushed(value) for value in values]
    result = entry.meaning(modifiers, *values)
    if "ftz" in modifiers:
        result = _flushed(result)
    if "sat" in modifiers:
        result = numbers.clamp(result, result.dtype.type(0), result.dtype.type(1))
    return result


def _flushed(x: Array) -> Array:
    """float32 with subnormals as zeros of their sign."""
    if x.dtype != np.float32:
        return x
    return where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)
