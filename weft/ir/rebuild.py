"""Rebuilding a function with changes: the basis of every pass.

    def rule(out: Rebuilder, op: Op, operands: tuple[Value | None, ...]) -> Replacement: ...
    new = rebuild(func, rule)

If only attributes change, `with_op_attrs` keeps the rest of the function.

The rule gets each operation with its operands already mapped to the new function. It returns None to keep the operation, or the
values that replace its results (emitted through `out`, or existing values). With `number=True` a pure operation equal to an
earlier one in scope is not emitted again (value numbering).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft.ir.build import Builder
from weft.ir.core import Attrs, Func, Op, OpDef, Region, Value
from weft.ir.types import TileType

Operands = tuple[Value | None, ...]
Replacement = tuple[Value, ...] | None
Rule = Callable[["Rebuilder", Op, Operands], Replacement]


class Rebuilder(Builder):
    """A builder with a map from old values to new ones."""

    __slots__ = ("_numbers", "env", "number", "rule")

    def __init__(self, rule: Rule, number: bool = False) -> None:
        super().__init__()
        self.rule = rule
        self.number = number
        self.env: dict[Value, Value] = {}
        self._numbers: list[dict[Any, tuple[Value, ...]]] = [{}]

    def create(
        self, kind: OpDef, operands: Operands, attrs: Attrs, regions: tuple[Region, ...] = (), name: str = ""
    ) -> tuple[Value, ...]:
        """As `Builder.create`; for a pure operation equal to one in scope it returns the earlier result."""
        if not (self.number and kind.pure):
            return super().create(kind, operands, attrs, regions, name)
        given = [attrs[each] for each in kind.attributes]
        key = (kind, operands, tuple([(value.__class__, _distinct(value)) for value in given]) if given else ())
        for scope in reversed(self._numbers):
            if key in scope:
                return scope[key]
        results = super().create(kind, operands, attrs, regions, name)
        # Tiles with unresolved layouts are not numbered, since they may be resolved to different layouts.
        if len(results) == 1 and getattr(results[0].type, "resolved", True):
            self._numbers[-1][key] = results
        return results

    def mapped(self, value: Value | None) -> Value | None:
        """The new value of an old one."""
        return None if value is None else self.env[value]

    def copy_region(self, region: Region, args: tuple[Value, ...] | None = None) -> Region:
        """A new region with operations rewritten by the rule, and fresh (or the given) arguments."""
        fresh = args if args is not None else tuple(Value(arg.type, arg.name) for arg in region.args)
        self.env.update(zip(region.args, fresh, strict=True))
        ops: list[Op] = []
        self._open.append(ops)
        self._numbers.append({})
        self.copy_ops(region)
        self._numbers.pop()
        self._open.pop()
        return Region(fresh, tuple(ops))

    def copy_isolated(self, region: Region) -> Region:
        """As `copy_region`, but values numbered outside of the region are not reused in it."""
        around, self._numbers = self._numbers, [{}]
        try:
            return self.copy_region(region)
        finally:
            self._numbers = around

    def copy_ops(self, region: Region) -> None:
        """Append the region's operations, rewritten by the rule, to the open region. This inlines the region."""
        for op in region.ops:
            self.copy_op(op)

    def copy_op(self, op: Op) -> None:
        """Append one operation, rewritten by the rule."""
        self.loc = op.loc
        operands = tuple([None if v is None else self.env[v] for v in op.operands])
        new = self.rule(self, op, operands)
        if new is None:
            new = self.keep(op, operands)
        self.env.update(zip(op.results, new, strict=True))

    def keep(self, op: Op, operands: Operands) -> tuple[Value, ...]:
        """Emit the operation unchanged on new operands, with its regions rewritten."""
        regions = tuple([self.copy_region(region) for region in op.regions])
        self.loc = op.loc
        made = self.create(op.kind, operands, op.attrs, regions, op.results[0].name if op.results else "")
        for new, old in zip(made[1:], op.results[1:], strict=True):
            new.name = old.name
        return made


def rebuild(func: Func, rule: Rule, *, number: bool = False, **attrs: Any) -> Func:
    """The function rebuilt by applying `rule` to every operation, with `attrs` set."""
    out = Rebuilder(rule, number)
    body = out.copy_region(func.body)
    return func.with_body(body, **attrs)


def with_op_attrs(func: Func, changed: Mapping[Op, Attrs], **attrs: Any) -> Func:
    """The function with new attributes on some operations, and with `attrs` set. Values keep their identity.

    Result types must not depend on the changed attributes.
    """

    def region(old: Region) -> Region:
        ops = tuple([op(each) if each in changed or each.regions else each for each in old.ops])
        return old if ops == old.ops else Region(old.args, ops)

    def op(old: Op) -> Op:
        regions = tuple([region(each) for each in old.regions])
        if old not in changed and regions == old.regions:
            return old
        return Op(old.kind, old.operands, changed.get(old, old.attrs), old.results, regions, old.loc)

    return func.with_body(region(func.body), **attrs)


def _distinct(value: Any) -> Any:
    """The key of an attribute in value numbering: -0.0 differs from 0.0, and equal tile types with different spellings
    differ."""
    if value.__class__ is float:
        return value.hex()
    return (value, value.layout) if value.__class__ is TileType else value
