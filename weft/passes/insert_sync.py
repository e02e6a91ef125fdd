"""Place block barriers between accesses of different threads to the same bytes of shared memory, as few as needed.

    scratch.store %s, ...                 scratch.store %s, ...
    %v = scratch.load %s, ...    -->      sync.barrier {reason = "before scratch.load"}
                                          %v = scratch.load %s, ...

The pass follows the declared effects of operations in program order and remembers the accesses since the last barrier. A
loop is entered with what its own end leaves open. Atomics that release publish for the whole block, so they wait for the
block's earlier global accesses, other atomics included; what accesses global memory after an acquire waits for it. Where that
stands in a branch or loop the wait comes before it: not all threads may take it, and only loads stand where not all do.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.ir.core import Func, Op, Region, Value, walk
from weft.ir.types import ScratchType
from weft.ops import control, program, scratch

Span = tuple[int, int, bool]
"""First byte, one past the last byte, whether it is written."""


@dataclass(frozen=True, slots=True)
class Open:
    """What happened since the last barrier: shared accesses, whether global memory was accessed, whether it was acquired."""

    spans: frozenset[Span] = frozenset()
    touched_global: bool = False
    acquired: bool = False

    def __or__(self, other: Open) -> Open:
        if other is NOTHING or other == self:
            return self
        return Open(
            self.spans | other.spans, self.touched_global or other.touched_global, self.acquired or other.acquired
        )


NOTHING = Open()


def insert_sync(func: Func) -> Func:
    """The function with barriers. Allocations have their offsets already."""
    offsets = {op.result: op.attrs["offset"] for op in walk(func.body) if op.kind is scratch.alloc}
    body, _ = _Inserter(offsets).region(func.body, NOTHING)
    return Func(func.name, body, func.attrs, func.loc)


class _Inserter:
    """Walks regions; `offsets` are the byte offsets of the allocations."""

    def __init__(self, offsets: dict[Value, int]) -> None:
        self.offsets = offsets

    def region(self, region: Region, state: Open) -> tuple[Region, Open]:
        """The region with barriers, entered in a state, and the state it leaves."""
        ops: list[Op] = []
        for op in region.ops:
            if op.kind is program.barrier:
                state = NOTHING
            elif op.kind.effects:
                mine = self._accesses(op)
                if _conflict(op, mine, state):
                    ops.append(_barrier(op))
                    state = NOTHING
                state |= mine
            elif op.regions:
                if state.acquired and any(_touches_global(inner) for region in op.regions for inner in walk(region)):
                    ops.append(_barrier(op))
                    state = NOTHING
                op, state = self._inside(op, state)
            ops.append(op)
        return Region(region.args, tuple(ops)), state

    def _inside(self, op: Op, state: Open) -> tuple[Op, Open]:
        if op.kind is control.if_:
            (then, after_then), (orelse, after_else) = (self.region(region, state) for region in op.regions)
            return _with_regions(op, (then, orelse)), after_then | after_else
        entering = state
        while True:
            regions, states = self._once(op, entering)
            if entering | states[-1] == entering:
                # A `while` is left after its condition, anything else after its body or without having entered it.
                return _with_regions(op, regions), states[0] if op.kind is control.while_ else states[-1] | state
            entering |= states[-1]

    def _once(self, op: Op, state: Open) -> tuple[tuple[Region, ...], list[Open]]:
        """The regions one after another, and the state after each."""
        regions: list[Region] = []
        states: list[Open] = []
        for region in op.regions:
            region, state = self.region(region, state)
            regions.append(region)
            states.append(state)
        return tuple(regions), states

    def _accesses(self, op: Op) -> Open:
        spans: set[Span] = set()
        for effect in op.kind.effects:
            if effect.space == "shared" and effect.operand is not None:
                value = op.operand(effect.operand)
                assert value is not None and isinstance(value.type, ScratchType)
                first = self.offsets[value]
                spans.add((first, first + value.type.count * value.type.element.itemsize, effect.kind == "write"))
        return Open(frozenset(spans), _touches_global(op), op.attrs.get("order") in ("acquire", "acq_rel"))


def _conflict(op: Op, mine: Open, state: Open) -> bool:
    """Whether an operation has to wait for what other threads may still be doing."""
    if mine.touched_global and (state.acquired or (state.touched_global and _publishes(op))):
        return True
    return any(
        first < other_end and other_first < end and (written or other_written)
        for first, end, written in mine.spans
        for other_first, other_end, other_written in state.spans
    )


def _barrier(before: Op) -> Op:
    return Op(program.barrier, (), {"reason": f"before {before.name}"}, (), (), before.loc)


def _touches_global(op: Op) -> bool:
    return any(effect.space == "global" for effect in op.kind.effects)


def _publishes(op: Op) -> bool:
    return op.attrs.get("order") in ("release", "acq_rel")


def _with_regions(op: Op, regions: tuple[Region, ...]) -> Op:
    return Op(op.kind, op.operands, op.attrs, op.results, regions, op.loc)
