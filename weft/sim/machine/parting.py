"""Threads that leave a loop or branch while others wait in it for what they do behind it.

    while not probe(bar): pass        # some threads have left, the others wait
    arrive(bar)                       # for these arrivals

The threads of a warp run in step. On a GPU since sm_70 those that have left a loop go on (CUDA C++ Programming Guide,
"Independent Thread Scheduling"). So they do here once all others wait: up to the end of the region around the loop, or to the
first operation that a warp or the block executes together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any, TypeAlias

from weft.analysis.handles import is_alloc
from weft.ir.core import Func, Op, Region
from weft.ops import control, hints
from weft.sim.machine.data import Array, Data, chosen
from weft.sim.machine.sides import Parted, Side, Values, run_sides
from weft.sim.machine.wait import Run, Wait

Parting: TypeAlias = Generator[Wait, None, tuple[Values, Values | None]]
"""A loop or branch, which gives its results, and the values of `behind` if that has been executed."""


def parted(run: Run, op: Op, left: Array, results: Values, around: Array | None) -> Run:
    """A part of a loop, whose waits say which threads have left the loop."""
    while True:
        try:
            wait = next(run)
        except StopIteration as end:
            return end.value
        yield Parted(wait.inner if isinstance(wait, Parted) else wait, op, left, results, around)


def running(
    task: Any, region: Region, op: Op, run: Run, execute: Callable[..., Run], gone: Array | None = None
) -> Parting:
    """A loop or branch of a region. `gone`: threads that have left it and do not wait for it."""
    while True:
        try:
            wait = next(run)
        except StopIteration as end:
            return end.value, None
        if not isinstance(wait, Parted):
            yield wait
            continue
        left = wait.left if gone is None else wait.left & ~gone
        if not wait.of(op) or not left.any():
            yield wait.inner
            continue
        tail, branch = behind(region, op), region in branches(task.machine.func)
        if tail is not None and not wait.inner.ready():
            break
        if branch and tail is None and region.ops[-2] is op:
            ended = dict(zip(op.results, wait.results, strict=True))
            values = tuple(ended[v] if v in ended else task.env[v] for v in region.terminator.uses)
            yield Parted(wait.inner, region, left, values, wait.around)
        else:
            yield wait.inner
    apart = left if gone is None else left | gone

    def stay() -> Run:
        yield wait.inner
        out, rest = yield from running(task, region, op, run, execute, apart)
        if rest is None:
            task.env.update(zip(op.results, out, strict=True))
            with task.only(~apart):
                rest = yield from execute(task, tail, ())
        return (*out, *rest)

    def go_on() -> Run:
        return (*wait.results, *(yield from execute(task, tail, ())))

    staying = Side(task, stay(), None)
    task.active, inside = wait.around, task.active
    there = {**task.env, **dict(zip(op.results, wait.results, strict=True))}
    going = Side(task, go_on(), left, there)
    task.active = inside
    last = branch and region.ops[-2] is tail.ops[-2]
    for waiting in run_sides((staying, going), op.loc):
        if not (last and going.ended):
            yield waiting
            continue
        there.update(zip((*op.results, *tail.terminator.uses), going.results, strict=True))
        ended, values = left, tuple(there[v] for v in region.terminator.uses)
        if staying.parted is not None:
            more = staying.parted.left
            ended, values = ended | more, _values(more, staying.parted.results, values)
        yield Parted(waiting, region, ended, values, wait.around)
    staying.adopt()
    task.active = wait.around
    values = _values(left, going.results, staying.results)
    return values[: len(op.results)], values[len(op.results) :]


@lru_cache(maxsize=256)
def branches(func: Func) -> frozenset[Region]:
    """The regions of a function's branches: threads that have come to the end of one have left the branch."""
    return frozenset(region for op in func.body.every if op.kind is control.if_ for region in op.regions)


def _values(mask: Array, these: Values, others: Values) -> Values:
    """Values of the threads of a mask, and of the others. Handles and the like are the same in all."""
    pairs = zip(these, others, strict=True)
    return tuple(chosen(mask, a, b) if a is not b and _is_data(a) and _is_data(b) else b for a, b in pairs)


def _is_data(x: Any) -> bool:
    return isinstance(x, Data)


@lru_cache(maxsize=4096)
def behind(region: Region, op: Op) -> Region | None:
    """What follows an operation in its region, up to what threads do together, as a region that gives its values."""
    *ops, terminator = region.ops
    first = ops.index(op) + 1
    last = next((i for i in range(first, len(ops)) if _together(ops[i])), len(ops))
    if last == first:
        return None
    values = tuple(value for each in ops[first:last] for value in each.results)
    return Region((), (*ops[first:last], Op(control.yield_, values, {}, (), (), terminator.loc)))


def _together(op: Op) -> bool:
    """Whether more than single threads have to come to an operation, or to one inside of it."""
    if op.kind.needs != "thread" or op.kind is hints.uniform or is_alloc(op):
        return True
    return any(_together(inner) for part in op.regions for inner in part.ops)
