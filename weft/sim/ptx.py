"""Inline PTX text on whole arrays, where its author gives no `sim=` function.

A register is an array of bits (unsigned integers); an instruction's type says how to read them. Understood are straight
lines of `cvt` and the instructions in `weft.sim.instructions`, `.reg` declarations, `mov` between a register and its halves in
braces, and immediates; no predicated instructions, branches, memory or special registers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.ir.types import BY_CODE, DType
from weft.sim import numbers
from weft.sim.data import Array
from weft.sim.instructions import INSTRUCTIONS, Instruction, Modifiers, apply
from weft.sim.numbers import bits_dtype, bits_of, numpy_dtype


class UnknownInstruction(Exception):
    """Text that is not understood."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


TYPES = {
    **{f"{kind}{bits}": BY_CODE[f"{'i' if kind == 's' else 'u'}{bits}"] for kind in "sub" for bits in (8, 16, 32, 64)},
    **{code: BY_CODE[code] for code in ("f16", "bf16", "f32", "f64")},
    "e4m3": BY_CODE["f8e4m3"],
    "e5m2": BY_CODE["f8e5m2"],
    "pred": BY_CODE["u8"],
}


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DECLARATION = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)
_RANGE = re.compile(r"(\w+)<(\d+)>")
_OPERAND = re.compile(r"\{[^}]*\}|[^,\s][^,{}]*")


def run(text: str, results: Sequence[int], operands: Sequence[Array]) -> list[Array]:
    """Run PTX text: `$0` on are results of these widths in bits, then the operands, all as bits. Returns the results.

    Raises UnknownInstruction for a statement that is not understood.
    """
    registers: dict[str, Array] = {f"${len(results) + n}": np.asarray(bits) for n, bits in enumerate(operands)}
    widths = {f"${n}": width for n, width in enumerate(results)}
    for statement in _COMMENT.sub(" ", text).replace("$$", "").split(";"):
        words = statement.strip().lstrip("{} \t\n").rstrip("} \t\n") if "mov" not in statement else _unbraced(statement)
        if declared := _DECLARATION.match(words):
            widths |= dict.fromkeys(_declared(declared[2]), TYPES[declared[1]].bits)
        elif words:
            _execute(words, registers, widths)
    missing = [f"${n}" for n in range(len(results)) if f"${n}" not in registers]
    if missing:
        raise UnknownInstruction(text.strip())
    return [registers[f"${n}"] for n in range(len(results))]


def _unbraced(statement: str) -> str:
    """Without the braces of scopes; those of a `mov` stay."""
    words = statement.strip().lstrip("{} \t\n")
    return words.rstrip("} \t\n") if words.count("}") > words.count("{") else words


def _declared(names: str) -> list[str]:
    out: list[str] = []
    for name in names.split(","):
        many = _RANGE.fullmatch(name.strip())
        out += [f"{many[1]}{n}" for n in range(int(many[2]))] if many else [name.strip()]
    return out


def _execute(words: str, registers: dict[str, Array], widths: dict[str, int]) -> None:
    head, _, rest = words.partition(" ")
    target, *sources = [operand.strip() for operand in _OPERAND.findall(rest)]
    name, *suffixes = head.split(".")
    if name == "cvt":
        _assign(target, _convert(words, suffixes, sources, registers), registers, widths)
        return
    entry = INSTRUCTIONS.get(f"{name}.{suffixes[0]}" if name == "shf" and suffixes else name)
    modifiers = frozenset(suffixes[:-1])
    if entry is None or not suffixes or not modifiers <= entry.modifiers:
        raise UnknownInstruction(words)
    half = suffixes[-1].removesuffix("x2")
    if half not in TYPES:
        raise UnknownInstruction(words)
    if name == "mov" and sources[0].startswith("{"):
        bits = _from_parts(sources[0], TYPES[half].bits, registers, words)
    elif half != suffixes[-1]:
        bits = _in_halves(entry, modifiers, half, sources, registers, words)
    else:
        types = entry.operands or (None,) * len(sources)
        values = [_read(s, TYPES[t or half], registers, words) for s, t in zip(sources, types, strict=True)]
        bits = bits_of(apply(entry, modifiers, values))
    _assign(target, bits, registers, widths)


def _in_halves(
    entry: Instruction, modifiers: Modifiers, half: str, sources: list[str], registers: dict[str, Array], words: str
) -> Array:
    type = TYPES[half]
    pairs = [_halves(_read(source, BY_CODE["u32"], registers, words), type) for source in sources]
    low, high = (
        bits_of(apply(entry, modifiers, list(values))).astype(np.uint32) for values in zip(*pairs, strict=True)
    )
    return high << np.uint32(type.bits) | low


def _halves(bits: Array, type: DType) -> tuple[Array, Array]:
    """The low and the high element in one register."""
    narrow = bits_dtype(type.itemsize)
    high = bits >> bits.dtype.type(type.bits)
    return bits.astype(narrow).view(numpy_dtype(type)), high.astype(narrow).view(numpy_dtype(type))


def _from_parts(braced: str, bits: int, registers: dict[str, Array], words: str) -> Array:
    """`mov` from the parts of a register, the lowest first."""
    parts = [part.strip() for part in braced.strip("{}").split(",")]
    width = bits // len(parts)
    wide = bits_dtype(bits // 8)
    out = np.zeros((), wide)
    for number, part in enumerate(parts):
        value = _read(part, BY_CODE[f"u{width}"], registers, words).astype(wide)
        out = out | value << wide.type(number * width)
    return out


def _convert(words: str, suffixes: list[str], sources: list[str], registers: dict[str, Array]) -> Array:
    """`cvt`: between numbers; two float32 into a pair (the first operand on top); a pair into another pair."""
    *names, target, source = suffixes if len(suffixes) > 1 else ("", "", "")
    modifiers = frozenset(names)
    to, of = TYPES.get(target.removesuffix("x2")), TYPES.get(source.removesuffix("x2"))
    if to is None or of is None or not modifiers <= _CONVERSIONS:
        raise UnknownInstruction(words)
    if not target.endswith("x2"):
        return bits_of(_converted(_read(sources[0], of, registers, words), of, to, modifiers))
    if source.endswith("x2"):
        pair = _halves(_read(sources[0], BY_CODE[f"u{of.bits * 2}"], registers, words), of)
    else:
        pair = (_read(sources[1], of, registers, words), _read(sources[0], of, registers, words))
    wide = bits_dtype(to.itemsize * 2)
    low, high = (bits_of(_converted(value, of, to, modifiers)).astype(wide) for value in pair)
    return high << wide.type(to.bits) | low


_CONVERSIONS = frozenset({"rn", "rz", "rni", "rzi", "rmi", "rpi", "satfinite", "ftz"})
_TO_WHOLE: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil}


def _converted(x: Array, source: DType, target: DType, modifiers: Modifiers) -> Array:
    for name in modifiers & _TO_WHOLE.keys():
        x = numbers.through32(_TO_WHOLE[name], x)
    return numbers.cast(x, source, target, "rz" if "rz" in modifiers else "rn")


def _read(operand: str, type: DType, registers: dict[str, Array], words: str) -> Array:
    """A register or an immediate as a type; of a wider register the low bits."""
    dtype = numpy_dtype(type)
    if operand in registers:
        return registers[operand].astype(bits_dtype(type.itemsize)).view(dtype)
    text = operand.removesuffix("U")
    try:
        if re.fullmatch(r"0[fFdD](?:[0-9a-fA-F]{8}){1,2}", text):
            number = np.frombuffer(bytes.fromhex(text[2:]), ">f8" if text[1] in "dD" else ">f4")[0]
            return np.asarray(number).astype(dtype)
        value: Any = float(text) if type.is_floating() else int(text, 0)
    except ValueError:
        raise UnknownInstruction(words) from None
    return np.asarray(numbers.constant(value, type))


def _assign(target: str, bits: Array, registers: dict[str, Array], widths: dict[str, int]) -> None:
    """Write a register, or the parts of one in braces, in its declared width."""
    if not target.startswith("{"):
        width = widths.get(target) or bits.dtype.itemsize * 8
        registers[target] = bits.astype(bits_dtype(width // 8))
        return
    parts = [part.strip() for part in target.strip("{}").split(",")]
    width = bits.dtype.itemsize * 8 // len(parts)
    for number, part in enumerate(parts):
        registers[part] = (bits >> bits.dtype.type(number * width)).astype(bits_dtype(width // 8))
