"""The verifier: checks that a function is well formed, in tests and between passes (`WEFT_VERIFY=1`).

It checks that values are defined once and before their uses, regions end in the right terminator, operands, attributes and
regions match the definition, results have the types that the typing rules infer, operations belong to the function's stage, and
the function's attributes have the types that `FuncAttrs` declares. A failure is a bug in weft, never an error of a kernel's
author.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from types import UnionType
from typing import Any, Literal, NoReturn, cast, get_args, get_origin, get_type_hints

from weft.errors import Loc, WeftError, render
from weft.ir.core import ABOUT_VALUES, Func, FuncAttrs, Op, OpDef, ParamFacts, Region, Value
from weft.ir.text import format_op
from weft.ir.types import DescriptorType, ScalarType, SharedType, TensorType, TileType

AT_LEAST_ONE = ("num_warps", "num_ctas", "total_warps", "min_blocks", "maxnreg")
# Types that do not occur in a stage.
FOREIGN: dict[str, tuple[type, ...]] = {"tile": (), "lowered": (TileType, SharedType, TensorType)}


class VerificationError(WeftError):
    """A function is not well formed. Attributes: `message`, `op` (the invalid operation, if any) and `loc` (its Python
    line)."""

    def __init__(self, message: str, op: Op | None = None, loc: Loc | None = None) -> None:
        self.message = message
        self.op = op
        self.loc = loc
        shown = [message]
        if op is not None:
            shown.append(f"  {format_op(op).splitlines()[0]}")
        if loc is not None:
            shown.append(render(loc))
        super().__init__("\n".join(shown))


def verify(func: Func, known: AbstractSet[Op] = frozenset()) -> AbstractSet[Op]:
    """Raise VerificationError if the function is not well formed. Returns its operations.

    Operations never change, so those `known` from a verified function of the same stage are only checked for where they
    stand."""
    _check_attrs(func)
    if not all(isinstance(param.type, (ScalarType, DescriptorType)) for param in func.params):
        raise VerificationError("parameters are scalars and descriptors", loc=func.loc)
    verifier = _Verifier(func.attrs.stage, known)
    verifier.region(func.body, "control.return", None, frozenset())
    for name in ABOUT_VALUES:
        if not verifier.defined.issuperset(getattr(func.attrs, name)):
            raise VerificationError(f"{name} speaks of a value that the function does not have", loc=func.loc)
    return verifier.seen


def _check_attrs(func: Func) -> None:
    attrs = func.attrs
    for name, annotation in _annotations(FuncAttrs).items():
        value = getattr(attrs, name)
        if not _fits(value, annotation) or (type(value) is int and value < (name in AT_LEAST_ONE)):
            raise VerificationError(f"the attribute {name} cannot be {value!r}", loc=func.loc)
    if len(attrs.params) != len(func.params):
        raise VerificationError(f"{len(func.params)} parameters, but facts about {len(attrs.params)}", loc=func.loc)
    if attrs.total_warps is not None and attrs.total_warps < attrs.num_warps:
        raise VerificationError(f"{attrs.num_warps} of {attrs.total_warps} warps", loc=func.loc)


@cache
def _annotations(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a value is of an annotated type, as far as `FuncAttrs` has such types; a bool is no int."""
    of, parts = get_origin(annotation), get_args(annotation)
    if of is Literal:
        return value in parts
    if of is UnionType:
        return any(_fits(value, part) for part in parts)
    if of is Mapping:
        key, entry = parts
        return isinstance(value, Mapping) and all(
            _fits(k, key) and _fits(v, entry) for k, v in cast("Mapping[Any, Any]", value).items()
        )
    if of is tuple:
        values = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else None
        kinds = (parts[0],) * len(values or ()) if parts[-1] is ... else parts
        return values is not None and len(values) == len(kinds) and all(map(_fits, values, kinds))
    if type(value) is not annotation:
        return False
    return annotation is not ParamFacts or all(_fits(getattr(value, n), a) for n, a in _annotations(ParamFacts).items())


class _Verifier:
    """`defined` contains all values so far, to detect second definitions; the visible values are passed down. `seen` are the
    operations so far."""

    def __init__(self, stage: str, known: AbstractSet[Op]) -> None:
        self.stage = stage
        self.foreign = FOREIGN[stage]
        self.known = known
        self.defined: set[Value] = set()
        self.seen: set[Op] = set()

    def region(self, region: Region, terminator: str, owner: Op | None, outer: frozenset[Value]) -> None:
        visible = set(outer)
        self._define(region.args, owner, visible)
        if not region.ops or not region.ops[-1].kind.terminator:
            _fail(f"a region ends in {terminator}", owner)
        for op in region.ops[:-1]:
            if op.kind.terminator:
                _fail(f"{op.name} stands before the end of its region", op)
        if region.ops[-1].name != terminator:
            _fail(f"this region ends in {terminator}", region.ops[-1])
        for op in region.ops:
            self.op(op, visible)

    def op(self, op: Op, visible: set[Value]) -> None:
        for value in op.uses:
            if value not in visible:
                _fail(f"{value} is used where it is not defined", op)
        self.seen.add(op)
        known = op in self.known
        if not known:
            _check_shape(op)
            if op.kind.stage not in (self.stage, "both"):
                _fail(f"{op.name} does not belong into the {self.stage} stage", op)
        for name, region in zip(op.kind.region_names(len(op.regions)), op.regions, strict=True):
            self.region(region, _terminator(op, name), op, frozenset(visible))
        if not known:
            _check_types(op)
        self._define(op.results, op, visible)

    def _define(self, values: tuple[Value, ...], owner: Op | None, visible: set[Value]) -> None:
        for value in values:
            if value in self.defined:
                _fail(f"{value} is defined twice", owner)
            if isinstance(value.type, self.foreign):
                _fail(f"{value} has a type that does not belong into the {self.stage} stage", owner)
            self.defined.add(value)
            visible.add(value)


def _terminator(op: Op, region: str) -> str:
    return "control.condition" if (op.name, region) == ("control.while", "condition") else "control.yield"


def _check_shape(op: Op) -> None:
    """Check that operands, attributes and regions match the definition."""
    kind = op.kind
    fixed = len(kind.operands)
    if len(op.operands) < fixed or (len(op.operands) > fixed and kind.variadic is None):
        _fail(f"{op.name} takes {fixed} operands, not {len(op.operands)}", op)
    for name, value in zip(kind.operands, op.operands, strict=False):
        if value is None and name in _needed(kind):
            _fail(f"{op.name} needs its operand {name!r}", op)
    if None in op.operands[fixed:]:
        _fail(f"{op.name}: only named operands may be absent", op)
    if set(op.attrs) != set(kind.attributes):
        _fail(f"{op.name} has the attributes {', '.join(kind.attributes)}, not {', '.join(op.attrs)}", op)
    if kind.variadic_region is None and len(op.regions) != len(kind.regions):
        _fail(f"{op.name} has {len(kind.regions)} regions, not {len(op.regions)}", op)


@cache
def _needed(kind: OpDef) -> frozenset[str]:
    annotations: dict[str, object] = kind.rule.__annotations__
    return frozenset(name for name in kind.operands if annotations[name] in ("Value", Value))


def _check_types(op: Op) -> None:
    """Check that the typing rule accepts the operation and infers its results' types."""
    try:
        types = op.kind.infer(op.operands, op.attrs, op.regions)
    except WeftError as error:
        raise VerificationError(str(error), op, op.loc) from error
    found = tuple(result.type for result in op.results)
    if found != types:
        _fail(f"the typing rule gives {', '.join(map(str, types))}, not {', '.join(map(str, found))}", op)


def _fail(message: str, op: Op | None) -> NoReturn:
    raise VerificationError(message, op, op.loc if op is not None else None)
