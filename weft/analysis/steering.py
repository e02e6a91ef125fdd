"""Which strong reads of global memory decide what a kernel does next.

An atomic, or a load with an order, tells its program something about others only through the value that it gives. Where no
branch, loop, address or mask depends on that value, the program would do the same had it come first, so what happened to be
published by then orders nothing. This is a static analysis of the function that runs: from each such read the value is followed
through arithmetic, control flow and memory. What it decides at run time is in `weft.sim.memory.learned`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from weft.analysis.flow import STRUCTURED, Edge, Values, decides
from weft.ir.core import Effect, Func, Op, Region, Value, walk
from weft.ir.types import DType
from weft.ops import control

Bits = int
"""A set of reads, by their numbers; while values are followed also of parameters, which come after them."""
ANYWHERE = "global"
"""In place of a parameter: global memory through a pointer that comes from somewhere else."""
STORED = ("value", "compare", "other")
"""Operands that are written, compared or kept, and name no place."""


@dataclass(frozen=True, slots=True)
class Steering:
    """What is known of a function's strong reads.

    `readers`: the number of each. `decided`: the reads that decide which way a branch or loop goes, or where and whether an
    operation accesses global memory. `told`: those that an operation's operands depend on at all, its value included. `joins`:
    of a decided branch, for each of its regions whether it reads or waits for what others do."""

    readers: dict[Op, int] = field(default_factory=dict[Op, int])
    decided: dict[Op, Bits] = field(default_factory=dict[Op, Bits])
    told: dict[Op, Bits] = field(default_factory=dict[Op, Bits])
    joins: dict[Op, tuple[bool, bool]] = field(default_factory=dict[Op, tuple[bool, bool]])

    @property
    def deciding(self) -> Bits:
        """The reads that decide anything."""
        out = 0
        for bits in self.decided.values():
            out |= bits
        return out


NOTHING = Steering()


def reads_strongly(op: Op) -> bool:
    """Whether an operation reads global memory while others may write it: an atomic, or a load with an order."""
    if not (op.attrs.get("order") or op.attrs.get("volatile")):
        return False
    return any(effect.kind == "read" and effect.space == "global" for effect in op.kind.effects)


@lru_cache(maxsize=256)
def steering_of(func: Func) -> Steering:
    """What a function's strong reads decide."""
    readers = {op: number for number, op in enumerate(op for op in walk(func.body) if reads_strongly(op))}
    if not readers:
        return NOTHING
    flow = _Flow(func, readers)
    joins = {op: (_meets(op.regions[0]), _meets(op.regions[1])) for op in flow.decided if op.kind is control.if_}
    return Steering(readers, flow.decided, flow.told, joins)


def global_writers(func: Func) -> dict[Op, tuple[int, ...]]:
    """The operations that may write global memory, each with the numbers of the parameters whose memory it may be; none where
    the address may come from anywhere."""
    flow = _Flow(func, {})
    return {op: () if ANYWHERE in places else places for op, places in flow.writers.items()}


def _meets(region: Region) -> bool:
    return any(reads_strongly(op) or any(_waits(effect) for effect in op.kind.effects) for op in walk(region))


def _waits(effect: Effect) -> bool:
    return effect.kind == "sync" and effect.space not in ("warp", "io")


class _Flow(Values[Bits, Bits]):
    """The reads that each value depends on. The context of a region are the reads that say whether it runs."""

    def __init__(self, func: Func, readers: dict[Op, int]) -> None:
        super().__init__()
        self.readers = readers
        self.every = (1 << len(readers)) - 1
        # What was written, by space, and in global memory by the number of the parameter that the pointer comes from.
        self.memory: dict[str | int, Bits] = {}
        self.decided: dict[Op, Bits] = {}
        self.told: dict[Op, Bits] = {}
        # Where operations may write global memory, by the numbers of parameters.
        self.writers: dict[Op, tuple[Any, ...]] = {}
        for number, param in enumerate(func.params):
            if not isinstance(param.type.element, DType):
                self.known[param] = 1 << len(readers) + number
        # Memory hands on what was written to reads anywhere, so the whole function is followed again.
        self.settle(func.body, 0)

    def join(self, value: Value, old: Bits, new: Bits, number: int) -> Bits:
        """All that either way depends on."""
        return old | new

    def handed(self, op: Op, edge: Edge, value: Value, target: Value) -> Bits:
        """What comes out of a branch or loop depends on what decides about it."""
        return self.of(value) | (self.decides(op) if edge.target is None else 0)

    def through(self, op: Op, context: Bits) -> None:
        """Note what decides about an operation's regions."""
        super().through(op, context)
        self.note(self.decided, op, self.decides(op))

    def begin(self, op: Op, context: Bits) -> None:
        """A counter depends on its bounds, and elements on the tiles that they are of."""
        for region in op.regions:
            if op.kind is control.for_:
                self.known[region.args[0]] = self.decides(op)
            elif op.kind not in STRUCTURED:
                self.known.update(dict.fromkeys(region.args, self.all(op.operands)))

    def within(self, op: Op, number: int, context: Bits) -> Bits:
        """Where a region runs, what decides about it has said so."""
        return context | self.decides(op)

    def end(self, op: Op, context: Bits) -> None:
        """What functions of elements give depends on all that they take and hand on."""
        if op.kind not in STRUCTURED:
            handed = [value for region in op.regions for value in region.terminator.operands]
            self.known.update(dict.fromkeys(op.results, self.all([*op.operands, *handed])))

    def visit(self, op: Op, context: Bits) -> None:
        """Its results depend on its operands, and on what may be in the memory that it reads."""
        bits = self.all(op.operands)
        if not op.kind.effects:
            self.known.update(dict.fromkeys(op.results, bits))
            return
        bits &= self.every
        for effect in op.kind.effects:
            places = self.places(op, effect)
            if effect.kind == "write":
                if effect.space == "global":
                    self.writers[op] = places
                for place in places:
                    self.wrote(place, bits | context)
            elif effect.kind == "read":
                for place in places if places != (ANYWHERE,) else self.memory:
                    bits |= self.memory.get(place, 0)
                bits |= self.memory.get(ANYWHERE, 0)
        if op in self.readers:
            bits |= 1 << self.readers[op]
        self.known.update(dict.fromkeys(op.results, bits))
        if any(effect.space == "global" for effect in op.kind.effects):
            named = [value for name, value in _named(op) if name not in STORED]
            self.note(self.decided, op, self.all(named))
            self.note(self.told, op, self.all(op.operands))

    def places(self, op: Op, effect: Effect) -> tuple[str | int, ...]:
        """Where an effect may be: a space, or in global memory what each parameter of the pointer points to."""
        if effect.space != "global":
            return (effect.space,)
        roots = 0 if effect.operand is None else self.of(op.operand(effect.operand)) >> len(self.readers)
        return tuple(number for number in range(roots.bit_length()) if roots >> number & 1) or (ANYWHERE,)

    def decides(self, op: Op) -> Bits:
        """The reads that decide a branch or loop."""
        return self.all(decides(op)) & self.every

    def note(self, table: dict[Op, Bits], op: Op, bits: Bits) -> None:
        bits &= self.every
        if bits:
            table[op] = table.get(op, 0) | bits

    def of(self, value: Value | None) -> Bits:
        return 0 if value is None else self.known.get(value, 0)

    def all(self, values: Iterable[Value | None]) -> Bits:
        out = 0
        for value in values:
            out |= self.of(value)
        return out

    def wrote(self, place: str | int, bits: Bits) -> None:
        if bits & ~self.memory.get(place, 0):
            self.memory[place] = self.memory.get(place, 0) | bits
            self.version += 1


def _named(op: Op) -> Iterator[tuple[str, Value | None]]:
    """The operands of an operation with their names; those of a variable number have none."""
    names = op.kind.operands
    for number, value in enumerate(op.operands):
        yield names[number] if number < len(names) else "", value
