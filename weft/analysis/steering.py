"""Taint analysis: which strong reads of global memory influence control flow, addresses or masks.

    %old = memory.atomic_add %counter, 1 {order="acq_rel"}
    control.if (%old == %last) { ... }                       the atomic decides the branch: it can order the reads after it

An atomic, or a load with a memory order, synchronises with another program only through the value that it returns. If no
branch, loop, address or mask depends on that value, the program would behave the same if its read came first, so a release
that happened to precede the read orders nothing. This static analysis follows the value of each such read through arithmetic,
control flow and memory. `weft.sim.memory.learned` uses the result at run time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from weft.analysis.flow import STRUCTURED, Edge, Values, decides
from weft.ir.core import Effect, Func, Op, Region, Value, walk
from weft.ir.types import DType
from weft.ops import control, memory

Bits = int
"""A bit set of strong reads by number. During the analysis the bits above them stand for the kernel's pointer parameters."""
ANYWHERE = "global"
"""Stands for a parameter: global memory through a pointer of unknown origin."""
POLLS = (memory.poll, memory.poll_regs)
"""Reads that wait for a value."""
STORED = ("value", "compare", "other", "expected", "timeout")
"""Operands that are data, not part of an address or mask."""


@dataclass(frozen=True, slots=True)
class Steering:
    """The strong reads of a function and what depends on them.

    `readers`: the number of each strong read. `decided`: for a branch or loop the reads that its condition depends on, for an
    access to global memory the reads that its address or mask depends on. `told`: for an access to global memory the reads that
    any of its operands depends on, data included. `joins`: for a decided branch, whether each of its regions contains a strong
    read or a wait."""

    readers: dict[Op, int] = field(default_factory=dict[Op, int])
    decided: dict[Op, Bits] = field(default_factory=dict[Op, Bits])
    told: dict[Op, Bits] = field(default_factory=dict[Op, Bits])
    joins: dict[Op, tuple[bool, bool]] = field(default_factory=dict[Op, tuple[bool, bool]])

    @property
    def deciding(self) -> Bits:
        """The reads that some condition, address or mask depends on."""
        out = 0
        for bits in self.decided.values():
            out |= bits
        return out


NOTHING = Steering()


def reads_strongly(op: Op) -> bool:
    """Whether an operation is a strong read of global memory: an atomic, or a load that is volatile or has a memory order."""
    return any(effect.kind == "read" and effect.space == "global" and effect.order for effect in op.effects)


@lru_cache(maxsize=256)
def steering_of(func: Func) -> Steering:
    """The strong reads of a function and what depends on them."""
    readers = {op: number for number, op in enumerate(op for op in walk(func.body) if reads_strongly(op))}
    if not readers:
        return NOTHING
    flow = _Flow(func, readers)
    joins = {op: (_meets(op.regions[0]), _meets(op.regions[1])) for op in flow.decided if op.kind is control.if_}
    return Steering(readers, flow.decided, flow.told, joins)


def global_writers(func: Func) -> dict[Op, tuple[int, ...]]:
    """The operations that may write global memory, each with the indices of the parameters that its pointer may come from;
    empty if the pointer's origin is unknown."""
    flow = _Flow(func, {})
    return {op: () if ANYWHERE in places else places for op, places in flow.writers.items()}


def _meets(region: Region) -> bool:
    return any(reads_strongly(op) or any(_waits(effect) for effect in op.effects) for op in walk(region))


def _waits(effect: Effect) -> bool:
    return effect.kind == "sync" and effect.space not in ("warp", "io", "cluster", "global")


class _Flow(Values[Bits, Bits]):
    """The forward analysis: the reads that each value depends on. The context of a region is the set of reads that decide
    whether it runs."""

    def __init__(self, func: Func, readers: dict[Op, int]) -> None:
        super().__init__()
        self.readers = readers
        self.every = (1 << len(readers)) - 1
        # The reads that memory contents depend on, by space; in global memory by the index of the pointer's parameter.
        self.memory: dict[str | int, Bits] = {}
        self.decided: dict[Op, Bits] = {}
        self.told: dict[Op, Bits] = {}
        # The parameters whose memory each operation may write.
        self.writers: dict[Op, tuple[Any, ...]] = {}
        for number, param in enumerate(func.params):
            if not isinstance(param.type.element, DType):
                self.known[param] = 1 << len(readers) + number
        # A write may reach a read that precedes it in program order, so the whole function is analysed to a fixpoint.
        self.settle(func.body, 0)

    def join(self, value: Value, old: Bits, new: Bits, number: int) -> Bits:
        """The union."""
        return old | new

    def handed(self, op: Op, edge: Edge, value: Value, target: Value) -> Bits:
        """The result of a branch or loop depends on its condition."""
        return self.of(value) | (self.decides(op) if edge.target is None else 0)

    def through(self, op: Op, context: Bits) -> None:
        """Record the reads that decide an operation's regions."""
        super().through(op, context)
        self.note(self.decided, op, self.decides(op))

    def begin(self, op: Op, context: Bits) -> None:
        """A loop counter depends on its bounds, and the arguments of an elementwise function on its operands."""
        for region in op.regions:
            if op.kind is control.for_:
                self.known[region.args[0]] = self.decides(op)
            elif op.kind not in STRUCTURED:
                self.known.update(dict.fromkeys(region.args, self.all(op.operands)))

    def within(self, op: Op, number: int, context: Bits) -> Bits:
        """A region that runs depends on the condition of its operation."""
        return context | self.decides(op)

    def end(self, op: Op, context: Bits) -> None:
        """The result of an elementwise function depends on its operands and on what its region yields."""
        if op.kind not in STRUCTURED:
            handed = [value for region in op.regions for value in region.terminator.operands]
            self.known.update(dict.fromkeys(op.results, self.all([*op.operands, *handed])))

    def visit(self, op: Op, context: Bits) -> None:
        """The results of an operation depend on its operands and on the memory that it reads."""
        bits = self.all(op.operands)
        if not op.effects:
            self.known.update(dict.fromkeys(op.results, bits))
            return
        bits &= self.every
        for effect in op.effects:
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
            if op.kind in POLLS and op.operand("timeout") is None:
                # What follows such a poll runs because of the value that has ended it.
                self.note(self.decided, op, 1 << self.readers[op])
        self.known.update(dict.fromkeys(op.results, bits))
        if any(effect.space == "global" for effect in op.effects):
            named = [value for name, value in _named(op) if name not in STORED]
            self.note(self.decided, op, self.all(named))
            self.note(self.told, op, self.all(op.operands))

    def places(self, op: Op, effect: Effect) -> tuple[str | int, ...]:
        """The memory that an effect may touch: a space, or in global memory the parameters that the pointer may come from."""
        if effect.space != "global":
            return (effect.space,)
        roots = 0 if effect.operand is None else self.of(op.operand(effect.operand)) >> len(self.readers)
        return tuple(number for number in range(roots.bit_length()) if roots >> number & 1) or (ANYWHERE,)

    def decides(self, op: Op) -> Bits:
        """The reads that the condition or bounds of a branch or loop depend on."""
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
    """The operands of an operation with their names; variadic operands have an empty name."""
    names = op.kind.operands
    for number, value in enumerate(op.operands):
        yield names[number] if number < len(names) else "", value
