"""Whether two functions say the same: for tests of passes, and of the text's round trip."""

from __future__ import annotations

from typing import Any

from weft.ir.core import Func, Op, Region, Value
from weft.ir.text import about_values, same_attribute


def equivalent(a: Func, b: Func) -> bool:
    """Whether two functions are the same but for the names and locations of their values."""
    paired: dict[Value, Value] = {}
    if a.name != b.name or not same_attribute(_facts(a), _facts(b)) or not _same_regions(a.body, b.body, paired):
        return False
    here, there = about_values(a), about_values(b)
    translated = {name: {paired.get(value): entry for value, entry in about.items()} for name, about in here.items()}
    return same_attribute(translated, there)


def _facts(func: Func) -> dict[str, Any]:
    params: tuple[dict[str, Any] | None, ...] = func.attrs.get("params", (None,) * len(func.params))
    nothing: dict[str, Any] = {}
    others = {name: value for name, value in func.attrs.items() if name not in about_values(func)}
    return {**others, "params": tuple([fact or nothing for fact in params])}


def _same_regions(a: Region, b: Region, paired: dict[Value, Value]) -> bool:
    if [arg.type for arg in a.args] != [arg.type for arg in b.args] or len(a.ops) != len(b.ops):
        return False
    paired.update(zip(a.args, b.args, strict=True))
    return all(_same_ops(x, y, paired) for x, y in zip(a.ops, b.ops, strict=True))


def _same_ops(a: Op, b: Op, paired: dict[Value, Value]) -> bool:
    if a.kind is not b.kind or [r.type for r in a.results] != [r.type for r in b.results]:
        return False
    if [None if v is None else paired.get(v) for v in a.operands] != list(b.operands):
        return False
    if not same_attribute({**a.kind.defaults, **a.attrs}, {**b.kind.defaults, **b.attrs}) or len(a.regions) != len(
        b.regions
    ):
        return False
    if not all(_same_regions(x, y, paired) for x, y in zip(a.regions, b.regions, strict=True)):
        return False
    paired.update(zip(a.results, b.results, strict=True))
    return True
