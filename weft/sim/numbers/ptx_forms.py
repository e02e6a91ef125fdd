"""Instruction forms of inline PTX: the operand types, and the semantics as a function of arrays.

A form is one spelling of an instruction: its name, its modifiers (in any order, as ptxas accepts them) and its types. Only
forms that a table lists are modelled, so that no modifier is silently ignored. Single elements are arrays of the type's dtype;
pairs (`f16x2`) have a last axis of two, the low element first; predicates are 0 or 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from weft.ir.types import BY_CODE
from weft.sim.machine.data import Array
from weft.sim.numbers.arithmetic import bits_dtype, bits_of, numpy_dtype

Modifiers = frozenset[str]
Meaning = Callable[..., Array]
"""`meaning(modifiers, *operands)`."""
Key = tuple[str, Modifiers, tuple[str, ...]]
"""An instruction's name, modifiers and types."""

SIGNED, UNSIGNED = ("s16", "s32", "s64"), ("u16", "u32", "u64")
WHOLE = (*UNSIGNED, *SIGNED)
UNTYPED = ("b16", "b32", "b64")
_CODES = {"s": "i", "u": "u", "b": "u"}
DTYPES = {
    **{f"{kind}{bits}": numpy_dtype(BY_CODE[f"{_CODES[kind]}{bits}"]) for kind in "sub" for bits in (8, 16, 32, 64)},
    **{code: numpy_dtype(BY_CODE[code]) for code in ("f16", "bf16", "f32", "f64")},
    "e4m3": numpy_dtype(BY_CODE["f8e4m3"]),
    "e5m2": numpy_dtype(BY_CODE["f8e5m2"]),
    "pred": np.dtype(np.uint8),
}
PAIRS = ("u16x2", "s16x2", "f16x2", "bf16x2", "e4m3x2", "e5m2x2")
TYPES = frozenset((*DTYPES, *PAIRS))
PREDICATE = 1
"""In place of a register width in bits: a predicate."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The error bound of an approximate instruction: the larger of a relative and an absolute error."""

    relative: float
    absolute: float = 0.0


@dataclass(frozen=True, slots=True)
class Form:
    """One spelling of an instruction: the types of its result and operands ("immediate": a constant), its semantics, and the
    error bound that the PTX ISA states if it is approximate.

    `unspecified` tells where PTX leaves the result open; `chooses`: the last operand is a predicate that picks one of the
    others; `relaxed`: registers may be wider than the types."""

    text: str
    result: str
    operands: tuple[str, ...]
    compute: Callable[..., Array]
    bound: Bound | None = None
    unspecified: Callable[..., Array] | None = None
    chooses: bool = False
    relaxed: bool = False


def key_of(opcode: str) -> Key:
    """The key of an opcode as written, independent of the order of its modifiers."""
    name, *parts = opcode.split(".")
    types = tuple(part for part in parts if part in TYPES)
    return name, frozenset(part for part in parts if part not in TYPES), types


def forms(
    pattern: str,
    types: Iterable[str],
    operands: str,
    meaning: Meaning,
    *,
    result: str = "T",
    bound: Bound | None = None,
    unspecified: Callable[..., Array] | None = None,
    chooses: bool = False,
    relaxed: bool = False,
) -> Iterator[Form]:
    """The forms of a syntax line of the PTX ISA: `add{.rn}{.ftz}.T` for each type `T`; `{a|b}` is a choice, `{a}` is optional.

    `operands` and `result` are types; `T` is the instruction's, `W` the one of twice its width."""
    for type in types:
        for text in spellings(pattern):
            opcode = re.sub(r"\bT\b", type, text)
            modifiers = key_of(opcode)[1]
            yield Form(
                opcode, _actual(result, type), tuple(_actual(operand, type) for operand in operands.split()),
                partial(meaning, modifiers), bound, unspecified, chooses, relaxed,
            )  # fmt: skip


def spellings(pattern: str) -> list[str]:
    """
    >>> spellings("min{.ftz}.{lo|hi}.f32")
    ['min.lo.f32', 'min.hi.f32', 'min.ftz.lo.f32', 'min.ftz.hi.f32']
    """
    pieces = re.split(r"\{(.*?)\}", pattern)
    choices = [[piece] if number % 2 == 0 else _alternatives(piece) for number, piece in enumerate(pieces)]
    return ["".join(chosen) for chosen in product(*choices)]


def _alternatives(piece: str) -> list[str]:
    return piece.split("|") if "|" in piece else ["", piece]


def _actual(word: str, type: str) -> str:
    if word == "W":
        return f"{type[0]}{int(type[1:]) * 2}"
    return type if word == "T" else word


# Registers and types


def width_of(type: str) -> int:
    """The width in bits of a register for the type."""
    if type == "pred":
        return PREDICATE
    return 2 * width_of(type.removesuffix("x2")) if type in PAIRS else DTYPES[type].itemsize * 8


def from_register(bits: Array, type: str) -> Array:
    """A register's contents as a type; the low bits if the register is wider."""
    if type in PAIRS:
        narrow = bits_dtype(DTYPES[type.removesuffix("x2")].itemsize)
        size = bits.dtype.type(narrow.itemsize * 8)
        halves = np.stack([bits.astype(narrow), (bits >> size).astype(narrow)], axis=-1)
        return halves.view(DTYPES[type.removesuffix("x2")])
    dtype = DTYPES[type]
    return bits.astype(bits_dtype(dtype.itemsize)).view(dtype)


def to_register(value: Array, type: str, width: int) -> Array:
    """A value as the contents of a register of `width` bits; signed integers are sign-extended."""
    if type in PAIRS:
        wide = bits_dtype(width_of(type) // 8)
        halves = bits_of(value).astype(wide)
        return halves[..., 1] << wide.type(width_of(type) // 2) | halves[..., 0]
    if type == "pred":
        return value.astype(np.uint8)
    if value.dtype.kind == "i":
        return bits_of(value.astype(f"i{width // 8}"))
    return bits_of(value).astype(bits_dtype(width // 8))
