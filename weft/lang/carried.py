"""Loop-carried values: which leaves of which names become arguments of a loop.

The loop is read to a fixpoint. The first attempt assumes that constants keep their values and carries every run-time value. An
attempt may find that a constant changes (it becomes a carried scalar), that a tile without a layout gains one from the body
(it is carried in that layout), or that a name changes its type (it has no value from then on). The body is then read again with
this known. The first attempt that finds nothing new is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.errors import Loc
from weft.errors import source as errors
from weft.ir.core import Value
from weft.ir.types import DType, Type, float32
from weft.lang.frame import POISON, Binding, Env, Frame, Unusable
from weft.lang.statements import identifier
from weft.lang.values import (
    accepts,
    difference,
    gains_layout,
    is_memory,
    is_number,
    materialise,
    number_type,
    same_leaf,
)
from weft.language import tensor
from weft.language.aggregate import declared_constexpr
from weft.language.runtime_value import RuntimeValue, wrap
from weft.language.tree import Structure, flatten, unflatten


@dataclass(frozen=True, slots=True)
class Slot:
    """One leaf of a name at the entry of a loop. `type` is None for a leaf that is not carried: a constant, or memory that
    threads address, as long as the body does not change it. The body must not change a `fixed` one."""

    path: str
    entry: Any
    type: Type | None
    fixed: bool


@dataclass(frozen=True, slots=True)
class Carried:
    """A name that the loop assigns: its structure, and a slot per leaf."""

    name: str
    loc: Loc | None
    structure: Structure
    slots: tuple[Slot, ...]

    @property
    def arguments(self) -> Iterator[Slot]:
        """The slots that are arguments of the loop."""
        return (slot for slot in self.slots if slot.type is not None)


@dataclass(slots=True)
class Edge:
    """The back edge of a loop: the values for the next iteration, and the assumptions of this attempt that proved wrong.

    `promote`: leaves that must be carried, by path. `drop`: names that lose their value. `again`: the loop's exits changed."""

    values: list[Value] = field(default_factory=list[Value])
    promote: dict[str, Type] = field(default_factory=dict[str, Type])
    drop: dict[str, Unusable] = field(default_factory=dict[str, Unusable])
    again: bool = False

    @property
    def stable(self) -> bool:
        """True at the fixpoint: the attempt's assumptions held."""
        return not (self.promote or self.drop or self.again)


@dataclass(frozen=True, slots=True)
class ReadLoop:
    """A loop at its fixpoint: the result of the attempt, its carried names, its back edge, and names that lost their value."""

    made: Any
    carried: tuple[Carried, ...]
    edge: Edge
    dropped: dict[str, Unusable]


def read_to_fixpoint(
    frame: Frame,
    line: Loc,
    names: Callable[[], Sequence[str]],
    attempt: Callable[[tuple[Carried, ...]], tuple[Any, Edge]],
) -> ReadLoop:
    """Attempt to read a loop until its assumptions about carried values hold. `names` returns the names its body assigns."""
    trace, base = frame.trace, frame.env
    key = key_of(frame, line)
    promoted, dropped = trace.promoted.get(key, dict[str, Type]()), dict[str, Unusable]()
    while True:
        known = len(trace.errors)
        frame.env = {**base, **{name: Binding(value, base[name].loc) for name, value in dropped.items()}}
        carried = tuple(_carry(name, frame.env[name], promoted) for name in names() if has_value(frame.env, name))
        try:
            made, edge = attempt(carried)
        finally:
            frame.env = base
        if edge.stable:
            trace.promoted[key] = promoted
            return ReadLoop(made, carried, edge, dropped)
        del trace.errors[known:]
        # A name may have changed its type only because this attempt read a constant where the next one reads a scalar. So
        # names are dropped only by an attempt that promotes nothing.
        promoted |= edge.promote
        dropped |= {} if edge.promote else edge.drop


def key_of(frame: Frame, line: Loc) -> object:
    """The identity of a loop: its location (with the inlining calls) and the iterations of unrolled loops around it."""
    return line, tuple(frame.trace.unrolled)


def has_value(env: Env, name: str) -> bool:
    """True for a name that holds a value."""
    return name in env and not isinstance(env[name].value, Unusable)


def _carry(name: str, binding: Binding, promoted: Mapping[str, Type]) -> Carried:
    leaves, structure = flatten(binding.value)
    slots = (
        Slot(path, leaf, _entry_type(leaf, promoted.get(path)), fixed)
        for leaf, path, fixed in zip(leaves, structure.paths(name), declared_constexpr(structure), strict=True)
    )
    return Carried(name, binding.loc, structure, tuple(slots))


def _entry_type(leaf: Any, promoted: Type | None) -> Type | None:
    if promoted is not None and accepts(promoted, leaf):
        return promoted
    return leaf.handle.type if isinstance(leaf, RuntimeValue) and not is_memory(leaf) else None


def argument_types(carried: Sequence[Carried]) -> tuple[list[Type], list[str]]:
    """Types and names of the loop's arguments."""
    slots = [slot for each in carried for slot in each.arguments]
    return [slot.type for slot in slots if slot.type is not None], [identifier(slot.path) for slot in slots]


def initial_values(frame: Frame, carried: Sequence[Carried]) -> list[Value]:
    """The loop's arguments at entry. Emits constants for the Python numbers among them."""
    slots = (slot for each in carried for slot in each.arguments)
    return [materialise(frame.builder, slot.entry, slot.type) for slot in slots if slot.type is not None]


def bind(frame: Frame, carried: Sequence[Carried], values: Sequence[Value], loc: Loc | None = None) -> None:
    """Bind the carried names to `values`, one per argument; leaves that are not carried keep their entry value."""
    rest = iter(values)
    for each in carried:
        leaves = [slot.entry if slot.type is None else wrap(next(rest)) for slot in each.slots]
        frame.bind(each.name, unflatten(each.structure, leaves), loc or each.loc)


def edge(frame: Frame, carried: Sequence[Carried], arguments: Sequence[Value], line: Loc) -> Edge:
    """Compare the carried names at the body's end with their slots; `arguments` are their values at the body's start.

    Emits constants for the Python numbers among the next values."""
    found = Edge()
    rest = iter(arguments)
    for each in carried:
        mine = [next(rest) for _ in each.arguments]
        binding = frame.env[each.name]
        if binding.value is POISON:
            found.values += mine  # The error has been reported; the value only keeps the types consistent.
        elif isinstance(binding.value, Unusable):
            found.drop[each.name] = binding.value
        else:
            _edge_of(frame, each, binding, line, found)
    return found


def _edge_of(frame: Frame, each: Carried, binding: Binding, line: Loc, found: Edge) -> None:
    leaves, structure = flatten(binding.value)
    if structure != each.structure:
        before = unflatten(each.structure, [slot.entry for slot in each.slots])
        found.drop[each.name] = _carried_error(each.name, before, binding.value, each, binding, line)
        return
    for slot, leaf in zip(each.slots, leaves, strict=True):
        if slot.type is not None and accepts(slot.type, leaf):
            found.values.append(materialise(frame.builder, leaf, slot.type))
        elif slot.type is None and same_leaf(slot.entry, leaf):
            continue
        elif slot.type is None and not slot.fixed and is_number(slot.entry) and _is_single(leaf):
            found.promote[slot.path] = number_type(slot.entry)
        elif isinstance(leaf, RuntimeValue) and _carried_as(slot, leaf.handle.type):
            found.promote[slot.path] = leaf.handle.type
        else:
            fix = _start(slot, leaf)
            found.drop[each.name] = _carried_error(slot.path, _entry(slot), leaf, each, binding, line, fix)
            return


def _carried_as(slot: Slot, type: Type) -> bool:
    """True for a leaf that must be carried in a new type: a tile that gains its layout, or memory that the body replaces by
    other memory of the same type."""
    return gains_layout(slot.type, type) or (is_memory(slot.entry) and slot.entry.handle.type == type)


def _is_single(leaf: Any) -> bool:
    return is_number(leaf) or (isinstance(leaf, tensor) and leaf.is_scalar)


def _entry(slot: Slot) -> Any:
    """The leaf as the body reads it: of the type in which it is carried."""
    as_it_came = isinstance(slot.entry, RuntimeValue) and slot.entry.handle.type == slot.type
    return slot.entry if slot.type is None or as_it_came else wrap(Value(slot.type))


def _start(slot: Slot, leaf: Any) -> str | None:
    """The fix for a Python number that the loop turns into a scalar of another type; None in other cases."""
    number = slot.entry
    if (
        not is_number(number)
        or not isinstance(leaf, tensor)
        or not leaf.is_scalar
        or not isinstance(leaf.element, DType)
    ):
        return None
    if isinstance(number, int) and leaf.element == float32:
        return f"start with a float: {slot.path} = {float(number)} before the loop"
    return f"start with a number of that type: {slot.path} = gl.cast({number}, gl.{leaf.element.name}) before the loop"


def _carried_error(
    path: str, before: Any, after: Any, each: Carried, binding: Binding, line: Loc, fix: str | None = None
) -> Unusable:
    fields = difference(path, before, after)
    related = () if each.loc is None else (("before the loop", each.loc),)
    named = {"path": path, "line": line.line, "before": fields[0], "after": fields[1], "fix": fix or fields[2]}
    return Unusable(errors.CARRIED, named, binding.loc, related)
