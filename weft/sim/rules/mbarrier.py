"""Rules of mbarrier operations; `weft.sim.machine.barriers` holds the state of a barrier.

An operation on a barrier also accesses the 8 bytes of the barrier object. For the race detector `init` and `invalidate` are
writes; all other operations count as reads, because arrivals are atomic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.errors import Loc, UserError, hazard
from weft.ir.core import Op, Value, walk
from weft.ops import arith, async_copy, mbarrier, shared, tcgen05
from weft.ops.control import run_by
from weft.sim.machine.barriers import Barrier
from weft.sim.machine.data import Array, Data, arange
from weft.sim.machine.tasks import Block, Task
from weft.sim.machine.wait import Run, Wait
from weft.sim.memory import places
from weft.sim.memory.each_thread import Accesses
from weft.sim.memory.events import ELECTED, Area, Event
from weft.sim.memory.spaces import SHARED, Handle
from weft.sim.memory.verdicts import MANY
from weft.sim.rule import rule

BYTES = 8
ARRIVING = (mbarrier.expect, mbarrier.arrive, *mbarrier.ARRIVALS, async_copy.mbarrier_arrive, tcgen05.commit)


def block_of(task: Task, op: Op, shared_by: int) -> Block:
    """The block that holds a shared barrier: those blocks share it whose ranks differ in bits of `shared_by` only.

    Raises BlockExited."""
    return peer(task, op, task.rank & ~shared_by)


def peer(task: Task, op: Op, rank: int) -> Block:
    """The block of the task's cluster with this rank, for an access to its shared memory. Raises BlockExited."""
    block = task.block.cluster.blocks[rank]
    if block.ended:
        raise task.fail(hazard.BLOCK_EXITED, op, block=task.rank, other=rank)
    return block


def check_rank(task: Task, op: Op, handle: Handle, rank: int) -> None:
    """Check that the cluster has a block of this rank. Raises OutOfBounds."""
    if not 0 <= rank < task.machine.blocks:
        access = "writes" if any(effect.kind == "write" for effect in op.effects) else "reads"
        raise task.fail(
            hazard.PEER_RANK,
            op,
            block=task.rank,
            access=access,
            name=handle.memory.name,
            rank=rank,
            last=task.machine.blocks - 1,
        )


def _note(
    task: Task, op: Op, bar: Handle, threads: int | Array, writes: bool = False, block: Block | None = None,
    ending: Barrier | None = None,
) -> None:  # fmt: skip
    """Record an access to the barrier's bytes, by one thread or by each of several. `ending`: the barrier, if this is its
    invalidation. Raises OutOfBounds, races."""
    store = (block or task.block).store(SHARED)
    first = bar.base - bar.memory.start
    if first < 0 or first + BYTES > bar.memory.size:
        raise places.outside(task, op, bar.memory, bar.base, bar.base + BYTES, "uses")
    granules = slice(bar.base // store.granule, (bar.base + BYTES) // store.granule)
    event = task.event(op, "generic", writes, bar.memory)
    shadow = store.shadow
    if shadow is not None:

        def over(earlier: Event, _: Array) -> bool:
            """Operations of the elected thread in completed phases precede a task that has waited for these phases, even if
            no release covers them."""
            there = earlier.slot != task.clock.slot and shadow.by_elected(earlier.slot, granules)
            return ending is not None and there and ending.idle(task.clock)

        area = Area(granules, threads, excuse=over)
        if not isinstance(threads, int):
            there = arange(granules.start, granules.stop)
            area = Area(np.tile(there, threads.size), np.repeat(threads, there.size), repeats=True, excuse=over)
        shadow.access(task.clock, event, area)
        if writes:
            shadow.supersede(granules)
    if writes:
        store.written(bar.memory, granules)


def barrier_name(bar: Handle) -> str:
    """The name of a barrier in reports."""
    name = bar.memory.name or "an mbarrier"
    return name if bar.memory.size == BYTES else f"{name}[{(bar.base - bar.memory.start) // BYTES}]"


def barrier_at(task: Task, op: Op, bar: Handle, threads: int = ELECTED, block: Block | None = None) -> Barrier:
    """The barrier, in `block` (default: the task's own), for an operation other than its initialisation.

    Raises BarrierNotInitialised, BarrierInvalidated, races."""
    barrier = (block or task.block).barriers.get(bar.base)
    if barrier is None:
        _note(task, op, bar, threads, block=block)
        partition = task.block.partition(task.slot)
        raise task.fail(hazard.BARRIER_FRESH, op, partition=partition, name=barrier_name(bar))
    barrier.usable(op, task.slot)
    _note(task, op, bar, threads, block=block)
    return barrier


def _first(task: Task, op: Op) -> bool:
    """True if the task's block holds the barrier, among the blocks that share it."""
    bar = op.operands[0]
    assert bar is not None
    return not task.rank & mbarrier.blocks_sharing(bar)


def holds(task: Task, op: Op, pred: Data | None) -> bool:
    """The value of an operation's predicate, which must be uniform; True without one."""
    if pred is None:
        return True
    task.demand(op, pred, "a predicate")
    return bool(task.uniform(op, pred, "a predicate").array)


def _count(op: Op) -> int:
    """The arrival count of a phase: `count` arrivals from each block that shares the barrier."""
    bar = op.operands[0]
    assert bar is not None
    return int(op.attrs["count"]) << mbarrier.blocks_sharing(bar).bit_count()


@rule(mbarrier.init)
def _init(task: Task, op: Op, bar: Handle) -> None:
    if not _first(task, op):
        return
    _check_unused(task, op, bar)
    _note(task, op, bar, ELECTED, writes=True)
    _begin(task, op, bar, _count(op))


def _check_unused(task: Task, op: Op, bar: Handle) -> None:
    """Raises BarrierReinitialised."""
    known = task.block.barriers.get(bar.base)
    if known is not None and known.invalidated is None:
        related: tuple[tuple[str, Loc], ...] = (
            () if known.op.loc is None else (("it was initialised here", known.op.loc),)
        )
        error = task.fail(hazard.BARRIER_REINITIALISED, op, name=barrier_name(bar))
        error.related = related
        raise error


def _begin(task: Task, op: Op, bar: Handle, count: int) -> None:
    """The first phase of a barrier."""
    block = task.block
    whose = f" of block {block.rank}" if task.machine.blocks > 1 else ""
    block.barriers[bar.base] = Barrier(
        block.pid, barrier_name(bar) + whose, block.cluster.component(), count, op, block.partition,
        lambda: _share(task, bar, count),
    )  # fmt: skip


def _share(task: Task, bar: Handle, count: int) -> int:
    """The number of a phase's `count` arrivals per arrival in the source: the warps that arrive separately."""
    spread = {op for op in _arriving(task, bar) if op.by == "each warp"}
    share = max((warps for op, warps in run_by(task.machine.func) if op in spread), default=1)
    return 1 if count % share else share


@rule(mbarrier.invalidate)
def _invalidate(task: Task, op: Op, bar: Handle) -> None:
    if not _first(task, op):
        return
    barrier = barrier_at(task, op, bar)
    barrier.invalidate(op, task.clock)
    _note(task, op, bar, ELECTED, writes=True, ending=barrier)


@rule(mbarrier.expect)
def _expect(task: Task, op: Op, bar: Handle, pred: Data | None) -> None:
    if holds(task, op, pred):
        for block in _arrives_in(task, op):
            barrier_at(task, op, bar, block=block).expect(op, task.clock, int(op.attrs["bytes"]))


def _arrives_in(task: Task, op: Op) -> list[Block]:
    """The blocks whose barriers the task's block arrives on."""
    others = int(op.attrs["sent_to"])
    if not others:
        return [block_of(task, op, op.attrs["shared_by"])]
    # In tile IR every block executes the operation.
    ranks = range(0 if task.rank & others else task.machine.blocks)
    return [peer(task, op, rank) for rank in ranks if rank & ~others == task.rank]


@rule(mbarrier.arrive)
def _arrive(task: Task, op: Op, bar: Handle, pred: Data | None) -> None:
    if not holds(task, op, pred):
        return
    count = int(op.attrs["count"])
    if op.attrs["everywhere"]:
        released = task.clock.release()
        for rank in range(task.machine.blocks):
            barrier_at(task, op, bar, block=peer(task, op, rank)).arrive(op, task.clock, count, released)
        return
    for block in _arrives_in(task, op):
        barrier = barrier_at(task, op, bar, block=block)
        if op.by == "each warp":
            barrier.arrive(op, task.clock, count * task.warps, task.clock.release_all())
        else:
            barrier.arrive(op, task.clock, count, task.clock.release())


class PhaseWait(Wait):
    """A task that waits for a phase of an mbarrier."""

    __slots__ = ("_bar", "_barrier", "_op", "_phase", "_task")

    def __init__(self, op: Op, task: Task, bar: Handle, barrier: Barrier, phase: int) -> None:
        super().__init__(op.loc)
        self._op = op
        self._task = task
        self._bar = bar
        self._barrier = barrier
        self._phase = phase

    def ready(self) -> bool:
        """True if the phase is complete."""
        return self._barrier.passed(self._phase)

    def words(self) -> str:
        """Message text: the phase, and what it lacks."""
        return f" for {self._barrier.missing(self._phase, _arriving(self._task, self._bar))}"

    def memory(self) -> str:
        """The name of the barrier."""
        return self._barrier.name

    def starved(self) -> UserError | None:
        """The specific error if the phase lacks nothing but bytes."""
        return self._barrier.starved(self._op)


def _arriving(task: Task, bar: Handle) -> list[Op]:
    """The operations of the kernel that may arrive at a barrier. An index that is not constant may select any barrier."""
    producers = {value: op for op in walk(task.machine.func.body) for value in op.results}
    number = (bar.base - bar.memory.start) // BYTES

    def may_be(value: Value | None) -> bool:
        while value in producers and producers[value].operands:
            op = producers[value]
            at = producers.get(op.operands[1]) if op.kind is shared.index and op.operands[1] is not None else None
            if at is not None and at.kind is arith.constant and at.attrs["value"] != number:
                return False
            value = op.operands[0]
        # The handle is a phi or an argument: it may be any barrier.
        return value not in producers or producers[value] is bar.memory.op

    return [op for op in walk(task.machine.func.body) if op.kind in ARRIVING and may_be(op.operands[0])]


@rule(mbarrier.wait)
def _wait(task: Task, op: Op, bar: Handle, phase: Data, pred: Data | None, *deps: Handle) -> Run:
    if not _first(task, op) or not holds(task, op, pred):
        return ()
    task.demand(op, phase, "a phase")
    parity = int(task.uniform(op, phase, "a phase").array) & 1
    barrier = barrier_at(task, op, bar, MANY)
    task.block.agents.step()
    awaited = barrier.awaited(op, task.clock, parity, task.clock.position - 1)
    if not barrier.passed(awaited):
        yield PhaseWait(op, task, bar, barrier, awaited)
    barrier.learn(task.clock, awaited)
    return ()


# Each thread for itself


def _words(
    task: Task, op: Op, memory: Handle, index: Data, writes: bool = False, noted: bool = True
) -> list[tuple[Handle, Array]]:
    """Each mbarrier that active threads use, and the mask of these threads. `noted`: in the block's own memory. Raises
    UndefinedValue, OutOfBounds, races."""
    accesses = Accesses(task, op, memory, index, None, "updates")
    if writes:
        _check_one(task, op, accesses)
    if noted:
        accesses.note(writes=writes)
    if writes:
        accesses.wrote()
    at = np.broadcast_to(accesses.elements, (task.threads, 1))[:, 0]
    active = np.broadcast_to(True if accesses.active is None else accesses.active, (task.threads, 1))[:, 0]
    return [
        (Handle(memory.memory, int(word) * BYTES), active & (at == word)) for word in np.unique(at[active]).tolist()
    ]


def _check_one(task: Task, op: Op, accesses: Accesses) -> None:
    """Check that one thread initialises or invalidates each mbarrier. Raises BarrierReinitialised."""
    words, counts = np.unique(accesses.at, return_counts=True)
    if counts.max(initial=0) > 1:
        bar = Handle(accesses.handle.memory, int(words[np.argmax(counts)]) * BYTES)
        verb = "initialise" if op.kind is mbarrier.init_at else "invalidate"
        raise task.fail(hazard.BARRIER_BY_MANY, op, name=barrier_name(bar), threads=int(counts.max()), verb=verb)


@rule(mbarrier.init_at)
def _init_at(task: Task, op: Op, memory: Handle, index: Data) -> None:
    for bar, _ in _words(task, op, memory, index, writes=True):
        _check_unused(task, op, bar)
        _begin(task, op, bar, int(op.attrs["count"]))


@rule(mbarrier.invalidate_at)
def _invalidate_at(task: Task, op: Op, memory: Handle, index: Data) -> None:
    for bar, _ in _words(task, op, memory, index, writes=True):
        _usable(task, op, bar).invalidate(op, task.clock)


def _usable(task: Task, op: Op, bar: Handle, block: Block | None = None) -> Barrier:
    """The block's barrier. Raises BarrierNotInitialised, BarrierInvalidated."""
    barrier = (block or task.block).barriers.get(bar.base)
    if barrier is None:
        raise task.fail(
            hazard.BARRIER_FRESH, op, partition=task.block.partition(task.slot), name=barrier_name(bar)
        )  # fmt: skip
    barrier.usable(op, task.slot)
    return barrier


@rule(mbarrier.arrive_at)
def _arrive_at(task: Task, op: Op, memory: Handle, index: Data) -> Data:
    states = np.zeros((task.threads, 1), np.int64)
    for bar, threads in _words(task, op, memory, index):
        barrier = _usable(task, op, bar)
        phase = barrier.arrive_each(op, task.clock, threads, int(op.attrs["bytes"]), task.names.thread)
        states[threads, 0] = _state(bar, phase)
        task.machine.heap.changes.count += 1
    return Data(states)


@rule(mbarrier.arrive_in)
def _arrive_in(task: Task, op: Op, memory: Handle, index: Data, rank: Data) -> None:
    task.demand(op, rank, "a rank")
    ranks = np.broadcast_to(rank.array, (task.threads, 1))[:, 0]
    for bar, threads in _words(task, op, memory, index, noted=False):
        for number in np.unique(ranks[threads]).tolist():
            check_rank(task, op, memory, number)
            block, these = peer(task, op, number), threads & (ranks == number)
            _note(task, op, bar, np.flatnonzero(these), block=block)
            barrier = _usable(task, op, bar, block)
            barrier.arrive_each(op, task.clock, these, int(op.attrs["bytes"]), task.names.thread)
            task.machine.heap.changes.count += 1


def _state(bar: Handle, phase: int) -> int:
    """The state that an arrival for a phase returns: opaque to kernels."""
    return bar.base + BYTES << 32 | phase


@rule(mbarrier.probe)
def _test_wait(task: Task, op: Op, memory: Handle, index: Data, phase: Data) -> Data:
    task.demand(op, phase, "a phase")
    given = np.broadcast_to(phase.array, (task.threads, 1))[:, 0]
    found = np.zeros((task.threads, 1), np.bool_)
    task.reads += 1
    task.block.agents.step()
    for bar, threads in _words(task, op, memory, index):
        barrier = _usable(task, op, bar)
        if op.attrs["parity"]:
            phases = barrier.phases_of(task.clock, given & 1, threads)
        else:
            strange = threads & (given >> 32 != _state(bar, 0) >> 32)
            if strange.any():
                thread = task.names.thread(int(np.argmax(strange)))
                raise task.fail(hazard.BARRIER_STATE, op, name=barrier_name(bar), thread=thread)
            phases = given & 0xFFFFFFFF
        for number in np.unique(phases[threads]).tolist():
            these = threads & (phases == number)
            found[:, 0] |= barrier.probe(op, task.clock, number, these)
            if not found[these].all():
                task.last_read = Probe(task, op, bar, barrier, number)
    return Data(found)


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A probe that found a phase incomplete, as the last read of a loop."""

    task: Task
    op: Op
    bar: Handle
    barrier: Barrier
    phase: int

    def wait(self, loc: Loc | None, stuck: bool) -> Wait:
        """What a task waits for whose loop repeats the probe."""
        return ProbeWait(self, loc, stuck)


class ProbeWait(PhaseWait):
    """A task in a loop that probes an mbarrier; without `stuck` the loop changes its own state, and merely yields."""

    __slots__ = ("_seen", "_stuck")

    def __init__(self, probe: Probe, loc: Loc | None, stuck: bool) -> None:
        super().__init__(probe.op, probe.task, probe.bar, probe.barrier, probe.phase)
        self.loc = loc
        self._stuck = stuck
        self._seen = probe.task.machine.heap.writes

    def ready(self) -> bool:
        """True if the next iteration may differ from the last one."""
        return not self._stuck or self._task.machine.heap.writes != self._seen or super().ready()
