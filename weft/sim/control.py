"""Structured control flow.

Where all threads agree a region runs as it is. Where they differ, both ways run, each for its threads or elements only, and
results are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op
from weft.ops import control
from weft.sim.data import Array, Data, chosen
from weft.sim.machine import Block, Run, Wait, execute
from weft.sim.rules import rule
from weft.sim.spin import deciding

# A loop that reads memory but changes its own state gets this many turns before others get theirs.
TURNS = 256


def decide(block: Block, op: Op, condition: Data, sink: str) -> bool | None:
    """Which way all active threads go, or None where they differ. Raises UndefinedValue."""
    block.demand(op, condition, sink)
    if np.ndim(condition.array) == 0:
        return bool(condition.array)
    if not np.any(block.under(condition.array)):
        return False
    return True if not np.any(block.under(~condition.array)) else None


def merged(condition: Array, lhs: Sequence[Data], rhs: Sequence[Data]) -> tuple[Data, ...]:
    """Value by value, the left one where the condition holds."""
    return tuple(chosen(condition, a, b) for a, b in zip(lhs, rhs, strict=True))


@rule(control.yield_, control.return_)
def _hand_over(block: Block, op: Op, *values: Data) -> tuple[Data, ...]:
    return values


@rule(control.condition)
def _condition(block: Block, op: Op, condition: Data, *values: Data) -> tuple[Data, ...]:
    return (condition, *values)


@rule(control.if_)
def _if(block: Block, op: Op, condition: Data) -> Run:
    then, orelse = op.regions
    way = decide(block, op, condition, "a branch")
    if way is not None:
        return (yield from execute(block, then if way else orelse, ()))
    with block.only(condition.array):
        first = yield from execute(block, then, ())
    with block.only(~condition.array):
        second = yield from execute(block, orelse, ())
    return merged(condition.array, first, second)


@rule(control.for_)
def _for(block: Block, op: Op, lower: Data, upper: Data, step: Data, *inits: Data) -> Run:
    for bound in (lower, upper, step):
        block.demand(op, bound, "a loop bound")
    state: tuple[Data, ...] = inits
    if any(np.ndim(bound.array) for bound in (lower, upper, step)):
        return (yield from _divergent_for(block, op, lower.array, upper.array, step.array, state))
    first, last, by = int(lower.array), int(upper.array), int(step.array)
    descending = bool(op.attrs["descending"])
    if (by >= 0 if descending else by <= 0) and (first > last if descending else first < last):
        raise block.fail(hazard.LOOP_STEP, op, lower=first, upper=last, step=by)
    kind: Any = lower.array.dtype.type
    for counter in range(first, last, by) if by else ():
        state = yield from execute(block, op.regions[0], (Data(kind(counter)), *state))
    return state


def _divergent_for(block: Block, op: Op, counter: Array, upper: Array, step: Array, state: tuple[Data, ...]) -> Run:
    while True:
        running = counter > upper if op.attrs["descending"] else counter < upper
        if not np.any(block.under(running)):
            return state
        with block.only(running):
            after = yield from execute(block, op.regions[0], (Data(counter), *state))
        state = merged(running, after, state)
        counter = counter + step


@rule(control.while_)
def _while(block: Block, op: Op, *inits: Data) -> Run:
    condition, body = op.regions
    heap = block.machine.heap
    state: tuple[Data, ...] = inits
    turns = 0
    while True:
        reads, writes = block.reads, heap.writes
        going, *passed = yield from execute(block, condition, state)
        way = decide(block, condition.terminator, going, "a loop condition")
        if way is None:
            return (yield from _divergent_while(block, op, going.array, passed))
        if not way:
            return tuple(passed)
        before, state = state, (yield from execute(block, body, passed))
        if block.reads == reads or heap.writes != writes:
            continue
        stuck = all(_same(before[number], state[number]) for number in deciding(op))
        turns += 1
        if stuck or turns % TURNS == 0:
            yield Wait(op.loc, stuck)


def _divergent_while(block: Block, op: Op, going: Array, passed: Sequence[Data]) -> Run:
    """Go on for those whose condition held; results are what each passed on when its own failed."""
    condition, body = op.regions
    results = tuple(passed)
    running = block.under(going)
    while np.any(running):
        reads, writes = block.reads, block.machine.heap.writes
        with block.only(running):
            state = yield from execute(block, body, passed)
            again, *passed = yield from execute(block, condition, state)
            block.demand(condition.terminator, again, "a loop condition")
        results = merged(running, passed, results)
        running = running & again.array
        if block.reads != reads and block.machine.heap.writes == writes:
            yield Wait(op.loc, stuck=False)
    return results


def _same(first: Data, second: Data) -> bool:
    a, b = np.asarray(first.array), np.asarray(second.array)
    return a.shape == b.shape and a.tobytes() == b.tobytes()
