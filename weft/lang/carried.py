"""Carried values: which leaves of which names go round a loop.

A loop is read in good faith first: constants are assumed to stay as they are, everything else goes round. Numbers that turn
out to change become scalars, tiles without a layout take the one that the body gives them, names whose type changes lose
their value, and the body is read again with that known. The attempt in which nothing new turns up is the one that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.errors import Loc
from weft.errors import lang as errors
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
    """One leaf of a name at the entry of a loop. `type` is None for what stays as it is: memory that threads address and
    constants, as long as the body does not change them, which it must not do to `fixed` ones."""

    path: str
    entry: Any
    type: Type | None
    fixed: bool


@dataclass(frozen=True, slots=True)
class Carried:
    """A name that the loop may change: its structure, and a slot per leaf."""

    name: str
    loc: Loc | None
    structure: Structure
    slots: tuple[Slot, ...]

    @property
    def arguments(self) -> Iterator[Slot]:
        """The slots that go round."""
        return (slot for slot in self.slots if slot.type is not None)


@dataclass(slots=True)
class Edge:
    """The end of a loop's body: the values for the next round, and what the attempt got wrong. `again`: how it is left."""

    values: list[Value] = field(default_factory=list[Value])
    promote: dict[str, Type] = field(default_factory=dict[str, Type])
    drop: dict[str, Unusable] = field(default_factory=dict[str, Unusable])
    again: bool = False

    @property
    def settled(self) -> bool:
        """True when nothing new turned up."""
        return not (self.promote or self.drop or self.again)


@dataclass(frozen=True, slots=True)
class Settled:
    """A loop that was read: what its attempt made, the names carried, the body's last values, and names without a value."""

    made: Any
    carried: tuple[Carried, ...]
    edge: Edge
    dropped: dict[str, Unusable]


def settle(
    frame: Frame,
    line: Loc,
    names: Callable[[], Sequence[str]],
    attempt: Callable[[tuple[Carried, ...]], tuple[Any, Edge]],
) -> Settled:
    """Attempt to read a loop until the constants it was read with are right. `names` gives those that its body assigns."""
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
        if edge.settled:
            trace.promoted[key] = promoted
            return Settled(made, carried, edge, dropped)
        del trace.errors[known:]
        # With a constant in its place a name may have taken another type than it will have with the run-time value.
        promoted |= edge.promote
        dropped |= {} if edge.promote else edge.drop


def key_of(frame: Frame, line: Loc) -> object:
    """What tells a loop from all others that are read."""
    return line, tuple(frame.trace.unrolled)


def has_value(env: Env, name: str) -> bool:
    """True for a name that can be read."""
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
    """Types and names of the loop's carried arguments."""
    slots = [slot for each in carried for slot in each.arguments]
    return [slot.type for slot in slots if slot.type is not None], [identifier(slot.path) for slot in slots]


def initial_values(frame: Frame, carried: Sequence[Carried]) -> list[Value]:
    """The carried arguments before the first round; emits the numbers among them."""
    slots = (slot for each in carried for slot in each.arguments)
    return [materialise(frame.builder, slot.entry, slot.type) for slot in slots if slot.type is not None]


def bind(frame: Frame, carried: Sequence[Carried], values: Sequence[Value], loc: Loc | None = None) -> None:
    """Let the carried names hold `values`, one per argument; the constants among their leaves stay."""
    rest = iter(values)
    for each in carried:
        leaves = [slot.entry if slot.type is None else wrap(next(rest)) for slot in each.slots]
        frame.bind(each.name, unflatten(each.structure, leaves), loc or each.loc)


def edge(frame: Frame, carried: Sequence[Carried], arguments: Sequence[Value], line: Loc) -> Edge:
    """What the body made of the carried names; `arguments` are theirs at its start. Emits the numbers among the results."""
    found = Edge()
    rest = iter(arguments)
    for each in carried:
        mine = [next(rest) for _ in each.arguments]
        binding = frame.env[each.name]
        if binding.value is POISON:
            found.values += mine  # reported already
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
        elif isinstance(leaf, RuntimeValue) and _goes_round_as(slot, leaf.handle.type):
            found.promote[slot.path] = leaf.handle.type
        else:
            fix = _start(slot, leaf)
            found.drop[each.name] = _carried_error(slot.path, _entry(slot), leaf, each, binding, line, fix)
            return


def _goes_round_as(slot: Slot, type: Type) -> bool:
    """True for what goes round after all: a tile that gains its layout, memory that becomes another of the same type."""
    return gains_layout(slot.type, type) or (is_memory(slot.entry) and slot.entry.handle.type == type)


def _is_single(leaf: Any) -> bool:
    return is_number(leaf) or (isinstance(leaf, tensor) and leaf.is_scalar)


def _entry(slot: Slot) -> Any:
    """The leaf as the body saw it: of the type that it goes round in."""
    as_it_came = isinstance(slot.entry, RuntimeValue) and slot.entry.handle.type == slot.type
    return slot.entry if slot.type is None or as_it_came else wrap(Value(slot.type))


def _start(slot: Slot, leaf: Any) -> str | None:
    """What to write before the loop where a Python number becomes a scalar of another type in it; None for anything else."""
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
