"""The definition of operations: each is one Python function.

    @op("arith.add")
    def add(lhs: Value, rhs: Value) -> Type:
        '''Sum ...'''
        same_type(lhs, rhs)
        return lhs.type

Parameters annotated `Value` (or `Value | None`, or `*values: Value`) are operands, `Region` ones (or `*partitions: Region`) are
regions, all others are attributes. The body is the typing rule: the builder runs it to infer the result types, the verifier
runs it again. Effects, scopes, stage, constant folding and algebraic laws are data of the definition, which passes
read instead of testing for operations by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

from weft.ir.core import NO_LAWS, Effect, Effects, Fold, Laws, OpDef, OpStage, Order, Scope
from weft.ir.types import Type
from weft.loading import Registry


def reads(operand: str, space: Literal["global", "shared"] = "global", order: Order = "") -> Effect:
    """A generic-proxy read through an operand."""
    return Effect("read", space, operand, order=order)


def writes(operand: str, space: Literal["global", "shared"] = "global", order: Order = "") -> Effect:
    """A generic-proxy write through an operand."""
    return Effect("write", space, operand, order=order)


def exact(compute: Callable[..., int | None]) -> Fold:
    """A fold that depends on the numbers alone."""
    return lambda numbers, attrs, dtype: compute(*numbers)


OPS: Registry[str, OpDef] = Registry("operation")


def op(
    name: str,
    *,
    effects: Effects = (),
    stage: OpStage = "both",
    removed_by: str | None = None,
    scope: Scope = "block",
    needs: Scope = "thread",
    terminator: bool = False,
    elementwise: bool = False,
    updates: str | None = None,
    verb: str = "",
    fold: Fold | None = None,
    laws: Laws = NO_LAWS,
) -> Callable[[Callable[..., Type | tuple[Type, ...] | None]], OpDef]:
    """Turn a typing rule into an operation and register it in `OPS`."""

    def define(rule: Callable[..., Type | tuple[Type, ...] | None]) -> OpDef:
        parameters = inspect.signature(rule).parameters.values()
        kinds = {p.name: _parameter_kind(p) for p in parameters}
        operands = tuple(n for n, kind in kinds.items() if kind == "operand")
        definition = OpDef(
            name=name,
            rule=rule,
            doc=inspect.getdoc(rule) or "",
            operands=operands,
            variadic=next((n for n, kind in kinds.items() if kind == "variadic"), None),
            regions=tuple(n for n, kind in kinds.items() if kind == "region"),
            variadic_region=next((n for n, kind in kinds.items() if kind == "regions"), None),
            attributes=tuple(n for n, kind in kinds.items() if kind == "attribute"),
            defaults={
                p.name: p.default for p in parameters if kinds[p.name] == "attribute" and p.default is not p.empty
            },
            effects=effects,
            stage=stage,
            removed_by=removed_by,
            scope=scope,
            needs=needs,
            terminator=terminator,
            pure=not (effects or terminator or {"region", "regions"} & set(kinds.values())),
            elementwise=elementwise,
            updates=updates,
            verb=verb,
            fold=fold,
            laws=laws,
            operand_index={n: i for i, n in enumerate(operands)},
        )
        return OPS.enter(name, definition)

    return define


def _parameter_kind(
    parameter: inspect.Parameter,
) -> Literal["operand", "variadic", "region", "regions", "attribute"]:
    annotation: Any = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    many = parameter.kind is inspect.Parameter.VAR_POSITIONAL
    if text == "Region":
        return "regions" if many else "region"
    if text not in ("Value", "Value | None"):
        return "attribute"
    return "variadic" if many else "operand"
