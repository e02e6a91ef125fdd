"""The definition of operations: each is one Python function.

    @op("arith.add", pure=True)
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
from dataclasses import dataclass, field
from typing import Any, Literal

from weft.ir.core import Attrs, Region, Value
from weft.ir.types import DType, Type
from weft.loading import Registry

Scope = Literal["block", "warp", "thread"]
OpStage = Literal["tile", "lowered", "both"]
Completion = Literal["cp.async", "mbarrier", "bulk", "wgmma", "tcgen05"]
"""Completion mechanisms of asynchronous accesses: a thread's cp.async groups, an mbarrier's phase, the elected thread's bulk
groups, a warpgroup's wgmma groups, and the elected thread's tcgen05 operations, whose commit arrives on an mbarrier."""
SCOPES: tuple[Scope, ...] = ("block", "warp", "thread")


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect of an operation on memory.

    `kind`: "read" and "write" access memory. "update" modifies a barrier atomically, by the elected thread. "release" makes
    earlier accesses of all threads of the partition visible. "sync" orders accesses: in space "threads" it is a barrier of the
    partition, in "warp" one of each warp; with `completes` a wait for accesses with that completion mechanism; with proxy
    "async" a proxy fence.

    `operand` names the pointer or handle parameter (None: memory internal to the operation, or all memory). `space` is the
    memory space, `proxy` the proxy of the access, `completes` the completion mechanism of an asynchronous access (None:
    synchronous). `elected`: one elected thread of the partition performs it instead of all threads.
    """

    kind: Literal["read", "write", "update", "release", "sync"]
    space: Literal["global", "shared", "tensor", "local", "io", "threads", "warp"]
    operand: str | None = None
    proxy: Literal["generic", "async"] = "generic"
    completes: Completion | None = None
    elected: bool = False


def reads(operand: str, space: Literal["global", "shared"] = "global") -> Effect:
    """A generic-proxy read through an operand."""
    return Effect("read", space, operand)


def writes(operand: str, space: Literal["global", "shared"] = "global") -> Effect:
    """A generic-proxy write through an operand."""
    return Effect("write", space, operand)


Fold = Callable[[tuple[int, ...], Attrs, DType], int | None]
"""The result of an operation on constant integers, of its attributes and of their type, before it wraps; None: not known."""


def exact(compute: Callable[..., int | None]) -> Fold:
    """A fold that depends on the numbers alone."""
    return lambda numbers, attrs, dtype: compute(*numbers)


@dataclass(frozen=True, slots=True)
class Laws:
    """Algebra of an operation on integers, as far as simplification uses it.

    `commutes`: its first two operands may be exchanged, floats too. `neutral`: the right operand that leaves the left one as it
    is, `floats`: floats as well. `absorbing`: the right operand that alone decides the result. `itself`: of one value twice the
    result is that value ("same"), or does not depend on it ("constant").
    """

    commutes: bool = False
    neutral: int | None = None
    floats: bool = False
    absorbing: int | None = None
    itself: Literal["", "same", "constant"] = ""


@dataclass(frozen=True, slots=True, eq=False)
class OpDef:
    """The definition of an operation; see the module docstring. Compared by identity.

    `pure` is True when results depend only on operands and attributes, without effects. `scope` is the minimum scope of the
    results, joined with the operands' scopes; `needs` is the scope of control flow that the operation requires. `removed_by`
    names the pass that eliminates the operation, which then has no CUDA rule. `fold` and `laws` are for operations
    on integers.
    """

    name: str
    rule: Callable[..., Type | tuple[Type, ...] | None]
    doc: str
    operands: tuple[str, ...]
    variadic: str | None
    regions: tuple[str, ...]
    variadic_region: str | None
    attributes: tuple[str, ...]
    defaults: Attrs
    effects: tuple[Effect, ...]
    stage: OpStage
    removed_by: str | None
    scope: Scope
    needs: Scope
    terminator: bool
    pure: bool
    fold: Fold | None
    laws: Laws
    operand_index: dict[str, int] = field(default_factory=dict[str, int])

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def infer(self, operands: tuple[Value | None, ...], attrs: Attrs, regions: tuple[Region, ...]) -> tuple[Type, ...]:
        """Result types, by the typing rule. Raises what the rule raises."""
        if self.variadic_region is not None:
            types = self.rule(*operands, *regions, **attrs)
        else:
            inner = dict(zip(self.regions, regions, strict=True)) if regions else {}
            types = self.rule(*operands, **attrs, **inner)
        if types is None:
            return ()
        return types if isinstance(types, tuple) else (types,)

    def region_names(self, count: int) -> tuple[str, ...]:
        """The names of an operation's `count` regions in IR text."""
        return self.regions if self.variadic_region is None else (self.variadic_region,) * count


OPS: Registry[str, OpDef] = Registry("operation")


def op(
    name: str,
    *,
    effects: tuple[Effect, ...] = (),
    stage: OpStage = "both",
    removed_by: str | None = None,
    scope: Scope = "block",
    needs: Scope = "thread",
    terminator: bool = False,
    fold: Fold | None = None,
    laws: Laws = Laws(),
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
