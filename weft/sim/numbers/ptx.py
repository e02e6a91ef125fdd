"""An interpreter of inline PTX on whole arrays, for inline assembly without a `sim=` function.

A register is an array of bits (unsigned integers); a predicate is an array of 0 and 1. The interpreter accepts straight-line
code with the instruction forms of `weft.sim.numbers.ptx_instructions`, `.reg` declarations, `mov` between a register and a
brace-enclosed vector of its parts, and immediates. It rejects everything else with a reason: guards (`@p`), labels and
branches, memory, special registers, registers narrower or wider than the instruction's type, and unlisted forms.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from weft.sim.machine.data import Array, where
from weft.sim.numbers import arithmetic as numbers
from weft.sim.numbers.arithmetic import bits_dtype
from weft.sim.numbers.ptx_forms import DTYPES, PREDICATE, Form, from_register, key_of, to_register, width_of
from weft.sim.numbers.ptx_instructions import instructions, lacking


class UnknownInstruction(Exception):
    """A statement that is not modelled. `text`: the statement. `reason`: the unsupported part."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"{reason}: {text}")
        self.text = text
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Operand:
    """A register (a predicate may be negated), a brace-enclosed vector of parts of a register, or the bits of a constant."""

    names: tuple[str, ...] = ()
    constant: Array | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class PtxStep:
    """A decoded instruction. `widths`: the widths of its targets; a brace-enclosed vector has several."""

    form: Form
    targets: tuple[str, ...]
    widths: tuple[int, ...]
    operands: tuple[Operand, ...]


@dataclass(slots=True)
class Value:
    """The contents of a register. `unspecified`: mask of elements whose value PTX leaves open."""

    bits: Array
    unspecified: Array | None = None


@dataclass(slots=True)
class _Scope:
    """The parser's state: the width of each register, the registers written so far, and the decoded instructions."""

    widths: dict[str, int]
    written: set[str]
    steps: list[PtxStep] = field(default_factory=list[PtxStep])


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DECLARATION = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)
_RANGE = re.compile(r"(\w+)<(\d+)>")
_OPERANDS = re.compile(r"\s*(\{[^{}]*\}|[^,{}]+?)\s*(?:,|$)")
_NAME = re.compile(r"(?:[a-zA-Z][\w$]*|[_$%][\w$]+)")
_WHOLE = re.compile(r"(-?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?")
_FLOAT = re.compile(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|-?\d+\.\d*(?:[eE][+-]?\d+)?|-?\d+[eE][+-]?\d+")


def run(
    text: str, results: Sequence[int], operands: Sequence[Array], tied: Sequence[int | None] = ()
) -> list[Value]:  # fmt: skip
    """Run PTX text. Registers `$0`, `$1`, ... are the results (`results`: their widths in bits), then the operands, all as
    bits. Returns the results.

    `tied`: for each operand, the number of the result whose register it shares, or None.
    Raises UnknownInstruction for a statement that is not modelled.
    """
    places = [*tied, *[None] * (len(operands) - len(tied))]
    widths = tuple(np.asarray(bits).dtype.itemsize * 8 for bits in operands)
    names = _names(len(results), tuple(places))
    registers = {name: Value(np.asarray(bits)) for name, bits in zip(names, operands, strict=True)}
    for step in _read(text, tuple(results), widths, tuple(places)):
        _execute(step, registers)
    return [registers[f"${n}"] for n in range(len(results))]


def _names(results: int, tied: tuple[int | None, ...]) -> list[str]:
    """The register names of the operands."""
    return [f"${results + n}" if place is None else f"${place}" for n, place in enumerate(tied)]


@lru_cache(maxsize=1024)
def _read(
    text: str, results: tuple[int, ...], operands: tuple[int, ...], tied: tuple[int | None, ...]
) -> tuple[PtxStep, ...]:
    """Parse the text. Raises UnknownInstruction."""
    names = _names(len(results), tied)
    scope = _Scope(
        {f"${n}": width for n, width in enumerate(results)} | dict(zip(names, operands, strict=True)), set(names)
    )
    shared = {f"${len(results) + n}": name for n, name in enumerate(names)}
    *statements, rest = _COMMENT.sub(" ", text).replace("$$", "%").split(";")
    if rest.strip(" \t\r\n{}"):
        raise UnknownInstruction(rest.strip(), "a statement without a semicolon")
    for statement in statements:
        words = " ".join(statement.strip().lstrip("{} \t\r\n").split())
        words = re.sub(r"\$\d+", lambda match: shared.get(match[0], match[0]), words)
        if words:
            _statement(words, scope)
    for n in range(len(results)):
        if f"${n}" not in scope.written:
            raise UnknownInstruction(text.strip(), f"text that never writes its result ${n}")
    return tuple(scope.steps)


def _statement(words: str, scope: _Scope) -> None:
    if declared := _DECLARATION.fullmatch(words):
        _declare(words, declared[1], declared[2], scope)
    elif words.startswith("@"):
        raise UnknownInstruction(words, "a guard (@): use selp, or sim=")
    elif words.startswith(".") or ":" in words.partition(" ")[0]:
        raise UnknownInstruction(words, "directives and labels other than .reg")
    else:
        scope.steps.append(_instruction(words, scope))


def _declare(words: str, type: str, names: str, scope: _Scope) -> None:
    if type not in DTYPES:
        raise UnknownInstruction(words, f"registers of .{type}")
    for name in names.split(","):
        many = _RANGE.fullmatch(name.strip())
        for one in [f"{many[1]}{n}" for n in range(int(many[2]))] if many else [name.strip()]:
            if not _NAME.fullmatch(one) or one in scope.widths:
                raise UnknownInstruction(words, f"the declaration of {one!r}, which hides another or is no name")
            scope.widths[one] = width_of(type)


def _instruction(words: str, scope: _Scope) -> PtxStep:
    opcode, _, rest = words.partition(" ")
    form = instructions().get(key_of(opcode))
    if form is None:
        raise UnknownInstruction(words, lacking(opcode))
    target, *sources = _split(rest, words)
    if len(sources) != len(form.operands):
        raise UnknownInstruction(words, f"{opcode} of {len(sources)} operands")
    operands = tuple(_operand(s, t, form, words, scope) for s, t in zip(sources, form.operands, strict=True))
    targets = _parts(target, form, words)
    total = width_of(form.result)
    for name in targets:
        width = scope.widths.get(name, total // len(targets))
        if name not in scope.widths and name != "_":
            raise UnknownInstruction(words, f"the register {name}, which is not declared")
        _check_width(name, width, total // len(targets), form, words)
    scope.written.update(targets)
    return PtxStep(form, targets, tuple(scope.widths.get(name, total // len(targets)) for name in targets), operands)


def _split(rest: str, words: str) -> list[str]:
    """Split comma-separated operands. Raises UnknownInstruction on a syntax error."""
    found, position = list[str](), 0
    while match := _OPERANDS.match(rest, position):
        found.append(match[1])
        position = match.end()
    if position != len(rest) or not found or rest.endswith(","):
        raise UnknownInstruction(words, "operands of this form")
    return found


def _parts(target: str, form: Form, words: str) -> tuple[str, ...]:
    if not target.startswith("{"):
        if not _NAME.fullmatch(target):
            raise UnknownInstruction(words, f"the destination {target}")
        return (target,)
    names = tuple(name.strip() for name in target.strip("{}").split(","))
    _check_parts(len(names), form, words)
    return names


def _check_parts(count: int, form: Form, words: str) -> None:
    if not form.text.startswith("mov.b") or count not in (2, 4) or width_of(form.result) // count < 8:
        raise UnknownInstruction(words, f"{count} registers in braces for {form.text}")


def _check_width(name: str, width: int, need: int, form: Form, words: str) -> None:
    whole = form.relaxed and PREDICATE not in (width, need)
    if width != need and not (whole and width > need and need >= 8):
        have = "is a predicate" if width == PREDICATE else f"has {width} bits"
        raise UnknownInstruction(words, f"the register {name}, which {have}, for {form.text}")


def _operand(source: str, type: str, form: Form, words: str, scope: _Scope) -> Operand:
    if type == "immediate":
        return Operand(constant=_constant(source, "b32", words))
    if source.startswith("{"):
        names = tuple(name.strip() for name in source.strip("{}").split(","))
        _check_parts(len(names), form, words)
    elif type == "pred" and source.startswith("!") and form.text.startswith("setp"):
        names = (source[1:].strip(),)
    elif _NAME.fullmatch(source):
        names = (source,)
    else:
        return Operand(constant=_constant(source, type, words))
    for name in names:
        if name not in scope.widths:
            raise UnknownInstruction(words, f"the register {name}, which is not declared")
        if name not in scope.written:
            raise UnknownInstruction(words, f"reading {name} before it is written")
        _check_width(name, scope.widths[name], width_of(type) // len(names), form, words)
    return Operand(names, negated=source.startswith("!"))


def _constant(source: str, type: str, words: str) -> Array:
    """An immediate as bits: an integer, or for a float type a decimal literal or hexadecimal bits (`0f...`, `0d...`)."""
    if type not in DTYPES or type == "pred":
        raise UnknownInstruction(words, f"the constant {source} as .{type}")
    dtype = DTYPES[type]
    floating = dtype.kind not in "iu"
    if whole := _WHOLE.fullmatch(source):
        digits = whole[2]
        value = int(digits, 8 if re.fullmatch(r"0[0-7]+", digits) else 0)
        value = -value if whole[1] else value
        if not floating and -(1 << dtype.itemsize * 8 - 1) <= value < 1 << dtype.itemsize * 8:
            return np.array(value & (1 << dtype.itemsize * 8) - 1, bits_dtype(dtype.itemsize))
    elif _FLOAT.fullmatch(source) and type in ("f32", "f64"):
        hexadecimal = source[1] in "fFdD"
        exact = (
            np.frombuffer(bytes.fromhex(source[2:]), ">f4" if len(source) == 10 else ">f8")[0] if hexadecimal else None
        )
        number = np.float64(source) if exact is None else np.float64(exact)
        return np.asarray(numbers.float_to_float(number, dtype)).view(bits_dtype(dtype.itemsize))
    raise UnknownInstruction(words, f"the operand {source} as .{type}")


def _execute(step: PtxStep, registers: dict[str, Value]) -> None:
    form = step.form
    given = [_fetch(operand, type, registers) for operand, type in zip(step.operands, form.operands, strict=True)]
    values = [
        from_register(v.bits, "b32" if t == "immediate" else t) for v, t in zip(given, form.operands, strict=True)
    ]
    result = form.compute(*values)
    width = step.widths[0] if len(step.targets) == 1 else width_of(form.result)
    bits = to_register(np.asarray(result), form.result, width)
    unspecified = _unspecified(form, given, values)
    for number, (name, size) in enumerate(zip(step.targets, step.widths, strict=True)):
        part = (
            bits if len(step.targets) == 1 else (bits >> bits.dtype.type(number * size)).astype(bits_dtype(size // 8))
        )
        registers[name] = Value(part, unspecified)


def _fetch(operand: Operand, type: str, registers: dict[str, Value]) -> Value:
    if operand.constant is not None:
        return Value(operand.constant)
    if len(operand.names) == 1:
        value = registers[operand.names[0]]
        return Value(value.bits ^ np.uint8(1), value.unspecified) if operand.negated else value
    parts = [registers[name] for name in operand.names]
    size = width_of(type) // len(parts)
    wide = bits_dtype(width_of(type) // 8)
    bits = np.zeros((), wide)
    for number, part in enumerate(parts):
        bits = bits | part.bits.astype(wide) << wide.type(number * size)
    return Value(bits, _union([part.unspecified for part in parts]))


def _unspecified(form: Form, given: Sequence[Value], values: Sequence[Array]) -> Array | None:
    masks = [value.unspecified for value in given]
    if form.chooses and any(mask is not None for mask in masks):
        first, second, predicate = (False if mask is None else mask for mask in masks)
        return where(values[2] != 0, first, second) | predicate
    if form.unspecified is not None:
        found = form.unspecified(*values)
        masks.append(found if np.any(found) else None)
    return _union(masks)


def _union(masks: Sequence[Array | None]) -> Array | None:
    known = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(np.broadcast_arrays(*known)) if known else None
