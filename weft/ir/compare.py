"""Equality of functions up to names and locations, for tests of passes and of the text round trip."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from weft.ir.core import ABOUT_VALUES, Func, Op, Region, Value
from weft.ir.text import same_attribute


def equivalent(a: Func, b: Func) -> bool:
    """Whether two functions are equal except for names and locations of their values."""
    paired: dict[Value, Value] = {}
    if a.name != b.name or not _same_regions(a.body, b.body, paired):
        return False
    about: dict[str, Any] = {
        name: {paired.get(value): entry for value, entry in getattr(a.attrs, name).items()} for name in ABOUT_VALUES
    }
    return replace(a.attrs, **about) == b.attrs


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
