"""IR text (`weft.ir.parse` parses it).

    func @scale(%x: ptr<f32> {divisible = 16}, %n: i32) {num_warps = 4, stage = "tile"} {
      %zero = arith.constant {value = 0} : i32
      %total = control.for %lo, %n, %one, %zero {descending = false} body(%i: i32, %sum: i32) {
        ...
        control.yield %next
      } : i32
      control.return
    }

Operands are in the definition's order, with `_` for an absent optional one. Attributes with their default value are omitted,
and so is an attribute `type`, which is the result's. Values have the author's names, made unique (`%x`, `%x_1`); unnamed ones
are numbered. Layouts are spelled as in Python. The parser skips comments (`// file:line`).

Attributes of the function with their default value are omitted too. Those that map values to entries (`storage`) follow its
body. The round trip is exact with one exception: a Python function (which the simulator calls for inline PTX) prints as
`<function>` and is parsed as absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from weft.errors import WeftError
from weft.ir.core import ABOUT_VALUES, Func, FuncAttrs, Op, ParamFacts, Region, Value
from weft.ir.types import DType, Pointer, Type
from weft.layout import TileLayout
from weft.layout.tensor_cores.shared_operands import Operand


class TextError(WeftError):
    """A value that has no text, or text that is not IR; in that case the message ends with the line."""


def format_func(func: Func, locations: bool = False) -> str:
    """The function as text; with `locations`, each operation's Python line as a comment."""
    return _Printer(locations).func(func)


def format_op(op: Op) -> str:
    """One operation as text, including its regions, for messages. Names of operands are unique within the text only."""
    printer = _Printer(locations=False)
    printer.op(op, "")
    return "\n".join(printer.lines)


class _Printer:
    """`names` and `types` cache text; types by identity, since equal tile types may have different spellings."""

    def __init__(self, locations: bool) -> None:
        self.locations = locations
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.types: dict[int, str] = {}
        self.taken: set[str] = set()
        self.unnamed = 0

    def func(self, func: Func) -> str:
        params = [
            f"{arg}{' ' + spell(known) if (known := _set(facts)) else ''}"
            for arg, facts in zip(self._args(func.params), func.attrs.params, strict=True)
        ]
        attrs = _set(func.attrs)
        about = {name: attrs.pop(name) for name in ABOUT_VALUES if name in attrs}
        attrs.pop("params", None)
        header = f"func @{func.name}({', '.join(params)}) {spell(attrs)} {{"
        self.lines.append(header + self._comment(func))
        self._ops(func.body, "  ")
        tail = ", ".join(f"{name} = {self._about(entries)}" for name, entries in about.items())
        self.lines.append(f"}} {{{tail}}}" if tail else "}")
        return "\n".join(self.lines) + "\n"

    def _about(self, entries: Mapping[Value, Any]) -> str:
        return "{" + ", ".join([f"{self.names[value]} = {spell(entry)}" for value, entry in entries.items()]) + "}"

    def op(self, op: Op, indent: str) -> None:
        names = self.names
        head = [indent]
        if op.results:
            head += [", ".join([names.get(r) or self._define(r) for r in op.results]), " = "]
        head.append(op.kind.name)
        if op.operands:
            head += [" ", ", ".join(["_" if v is None else names.get(v) or self._define(v) for v in op.operands])]
        if op.attrs and (attrs := self._attrs(op)):
            head += [" {", attrs, "}"]
        tail = f" : {', '.join([self._type(r.type) for r in op.results])}" if op.results else ""
        if not op.regions:
            self.lines.append("".join(head) + tail + self._comment(op))
            return
        line, comment = "".join(head), self._comment(op)
        for name, region in zip(op.kind.region_names(len(op.regions)), op.regions, strict=True):
            args = f"({', '.join(self._args(region.args))})" if region.args else ""
            self.lines.append(f"{line} {name}{args} {{{comment}")
            self._ops(region, indent + "  ")
            line, comment = indent + "}", ""
        self.lines.append(line + tail)

    def _ops(self, region: Region, indent: str) -> None:
        for op in region.ops:
            self.op(op, indent)

    def _args(self, args: Iterable[Value]) -> list[str]:
        return [f"{self._define(arg)}: {self._type(arg.type)}" for arg in args]

    def _attrs(self, op: Op) -> str:
        defaults = op.kind.defaults
        return ", ".join(
            [
                f"{name} = {spell(value)}"
                for name, value in op.attrs.items()
                if name != "type" and not (name in defaults and same_attribute(value, defaults[name]))
            ]
        )

    def _define(self, value: Value) -> str:
        if value.name:
            name = self._unique(value.name if value.name.isidentifier() else _clean(value.name))
        else:
            name, self.unnamed = str(self.unnamed), self.unnamed + 1
        self.names[value] = text = "%" + name
        return text

    def _unique(self, name: str) -> str:
        base, count = name, 0
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name

    def _type(self, type: Type) -> str:
        text = self.types.get(id(type))
        if text is None:
            text = self.types[id(type)] = str(type)
        return text

    def _comment(self, where: Op | Func) -> str:
        return f" // {where.loc}" if self.locations and where.loc is not None else ""


def _set(attrs: FuncAttrs | ParamFacts) -> dict[str, Any]:
    """The attributes that differ from their defaults, or have none."""
    found = {each.name: (getattr(attrs, each.name), each) for each in fields(attrs)}
    return {name: value for name, (value, each) in found.items() if value != each.default and value != {}}


def same_attribute(a: Any, b: Any) -> bool:
    """Equality under which 1, 1.0 and true differ, 0.0 and -0.0 differ, and a NaN equals itself."""
    kind = a.__class__
    if kind is not b.__class__:
        return False
    if kind is float:
        return repr(a) == repr(b)
    if kind is tuple:
        return len(a) == len(b) and all(map(same_attribute, a, b))
    if kind is dict:
        return a.keys() == b.keys() and all(same_attribute(value, b[name]) for name, value in a.items())
    return a == b


def _clean(name: str) -> str:
    text = re.sub(r"[^\w.]", "_", name, flags=re.ASCII)
    return text if re.match(r"[A-Za-z_]", text) else "_" + text


def spell(value: object) -> str:
    """An attribute's value as text. Raises TextError for a value of another type."""
    speller = _SPELLERS.get(type(value))
    if speller is not None:
        return speller(value)
    if isinstance(value, TileLayout):
        return repr(value)
    if callable(value):
        return "<function>"
    raise TextError(f"no attribute holds {value!r}")


def _spell_tuple(values: tuple[Any, ...]) -> str:
    if set(map(type, values)) == {int}:
        return f"[{str(values)[1:-1].rstrip(',')}]"
    return f"[{', '.join([spell(value) for value in values])}]"


def _spell_dict(values: dict[str, Any]) -> str:
    return "{" + ", ".join([f"{name} = {spell(value)}" for name, value in values.items()]) + "}"


def _spell_operand(operand: Operand) -> str:
    fields = (operand.swizzle, operand.transposed, operand.leading, operand.stride, operand.warps)
    return f"Operand({', '.join(map(spell, fields))})"


_SPELLERS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "true" if value else "false",
    int: str,
    float: repr,
    str: lambda value: json.dumps(value, ensure_ascii=False),
    type(None): lambda value: "none",
    tuple: _spell_tuple,
    dict: _spell_dict,
    DType: str,
    Pointer: str,
    Operand: _spell_operand,
}
