"""A simulated world: the ranks of a group, each with a GPU and one stream, whose launches run side by side.

The world owns what lasts longer than a launch: symmetric memory, the history of accesses, and what happens before what. A
launch follows all earlier ones of its rank; nothing but signals (releases and acquires of scope sys) and `barrier` orders it
after those of other ranks. A host function may write its rank's symmetric arrays between launches: what it has changed counts
as written there, in the order of the stream. Turns between ranks are `weft.sim.machine.turns`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from weft.analysis.steering import NOTHING
from weft.errors import Hazard, fail, hazard
from weft.errors.base import counted
from weft.ir.core import Func, FuncAttrs, Op, Region
from weft.ops import memory
from weft.sim.machine.data import Array
from weft.sim.machine.findings import Findings
from weft.sim.machine.naming import Naming
from weft.sim.machine.report import Report
from weft.sim.machine.tasks import Block
from weft.sim.machine.turns import Halt, Turns
from weft.sim.memory.clocks import Clock
from weft.sim.memory.heap import REGION, Buffer, Changes, GlobalPlace, Heap, Segment, segment_of
from weft.sim.memory.history import History
from weft.sim.memory.launches import Dependence
from weft.sim.memory.learned import Known, fenced, later
from weft.sim.memory.races import Races
from weft.sim.memory.tracks import Actor, Touch, Way

NO_KERNEL = Func("host", Region((), ()), FuncAttrs(num_warps=1, stage="tile"))
"""In place of a kernel, for what host functions do."""
HOMES = 1 << 12
"""The number of the first region of memory that outlasts a launch: beyond those of a launch's arguments."""


class Pid(tuple[int, int, int]):  # noqa: SLOT001 - a tuple cannot have slots that are not empty
    """The coordinates of a program, which print with its rank."""

    rank: int

    def __str__(self) -> str:
        return f"({self[0]}, {self[1]}, {self[2]}) of rank {self.rank}"

    __repr__ = __str__


class HostPid(Pid):
    """The host function of a rank, in place of a program."""

    def __str__(self) -> str:
        return f"the host of rank {self.rank}"

    __repr__ = __str__


class PutPid(Pid):
    """The puts of a program, in place of it."""

    def __str__(self) -> str:
        return f"a put of program {super().__str__()}"

    __repr__ = __str__


def pid_of(rank: int, pid: tuple[int, int, int], kind: type[Pid] = Pid) -> Pid:
    """The coordinates of a program of a rank."""
    made = kind(pid)
    made.rank = rank
    return made


@dataclass(slots=True, eq=False)
class Storage:
    """A symmetric array on one rank: its elements, its place, its bytes when the rank's host function ran last, and the
    rank."""

    array: Array
    segment: Segment
    seen: Array
    rank: int


@dataclass(slots=True, eq=False)
class HostActor:
    """The host function of a rank as the race detector sees it."""

    pid: tuple[int, int, int]
    number: int
    program: int
    clock: Clock
    slot: int = 0
    threads: int = 1
    settled: int = 0
    rank: int = 0


class World:
    """The state that all ranks share. `launches` counts the launches that have begun. With `hazards` accesses are recorded."""

    __slots__ = (
        "_arrived", "_homes", "_meetings", "_races", "changes", "hazards", "launches", "log", "ranks", "size", "storages",
        "turns",
    )  # fmt: skip

    def __init__(self, size: int, seed: int, hazards: bool = True) -> None:
        self.size = size
        self.hazards = hazards
        self.log = History(size)
        self.changes = Changes()
        self.turns = Turns(size, seed)
        self.launches = 0
        self.storages: dict[int, Storage] = {}
        self._homes = HOMES
        self._arrived: dict[int, Known | None] = {}
        self._meetings = 0
        self._races = Races(
            Heap({}), 1, 1, NOTHING, Naming(NO_KERNEL), Findings(), Report(), Dependence(), self.log, -1
        )
        self.ranks = [Rank(self, rank) for rank in range(size)]

    def share(self, arrays: Sequence[Array], watched: bool = True) -> None:
        """Make the arrays of the ranks, one each, symmetric memory. `watched`: host functions may write it."""
        for rank, array in enumerate(arrays):
            data = array.reshape(-1).view(np.uint8)
            segment = segment_of(self.region(), Buffer(f"the symmetric array of rank {rank}", data))
            segment.home = segment.start
            storage = Storage(array, segment, data.copy(), rank)
            self.storages[data.ctypes.data] = storage
            if watched:
                self.ranks[rank].own.append(storage)

    def region(self) -> int:
        """The number of a region of memory that no other storage has."""
        self._homes += 1
        return self._homes

    def access(self, actor: Actor, op: Op, way: Way, place: GlobalPlace, itemsize: int) -> None:
        """An actor of its own has accessed these elements. Raises RankRace, PutSource."""
        self._races.touch(Touch(actor, op, way, place, itemsize, 0, 0))

    def host_access(self, actor: HostActor, storage: Storage, index: Array, op: Op) -> None:
        """The host function of a rank has accessed these elements, or a copy on its stream does. Raises RankRace."""
        if not self.hazards:
            # Launches do not record what they order, either.
            return
        size = storage.array.itemsize
        _, view = storage.segment.view(size)
        place = GlobalPlace(storage.segment, view, index, None)
        touch = Touch(actor, op, WAYS[op], place, size, 0, 0)
        self._races.touch(touch)
        if op is STREAM_WRITE:
            self._races.release(touch, storage.segment.start + index * size, replaces=True)

    def meet(self, rank: int, stream: Known | None) -> Known | None:
        """All ranks meet: what each has done happens before what any does afterwards."""
        self._arrived[rank] = stream
        meeting = self._meetings
        if len(self._arrived) == self.size:
            known: Known | None = None
            for each in self._arrived.values():
                known = known if each is None else later(known, each)
            for member in self.ranks:
                member.stream = known
            self._arrived.clear()
            self._meetings += 1
        self.turns.wait(rank, Halt(lambda: self._meetings > meeting, waits="at weft.distributed.barrier()"))
        return self.ranks[rank].stream

    def finish(self, pads: Sequence[Array]) -> None:
        """All host functions have returned. Raises SignalLeft for a signal that no launch has waited for."""
        for rank, pad in enumerate(pads):
            sent, taken = np.ravel(pad).reshape(2, -1)
            left = np.flatnonzero(sent != taken)
            if left.size:
                raise self._left(rank, pad, int(left[0]), int(sent[left[0]] - taken[left[0]]))

    def _left(self, rank: int, pad: Array, index: int, count: int) -> Hazard:
        segment = self.storages[pad.ctypes.data].segment
        flag, source = divmod(index, self.size)
        sender = self.log.senders.get(segment.home + index * pad.itemsize)
        loc = None if sender is None else sender[1].loc
        error = fail(
            hazard.SIGNAL_LEFT, loc=loc, rank=rank, source=source, flag=flag, count=counted(count, "signal")
        )  # fmt: skip
        assert isinstance(error, Hazard)
        return error


HOST_WRITE = Op(memory.store, (None, None, None), {"order": "", "scope": "sys"}, ())
"""A write of a host function, which the simulator sees by its result alone, or of a copy."""
HOST_READ = Op(memory.load, (None, None, None), {"order": "", "scope": "sys", "volatile": False}, ())
"""A read of a copy."""


STREAM_WRITE = Op(memory.store, (None, None, None), {"order": "release", "scope": "sys"}, ())
"""A write of a stream to a word."""
WAYS: dict[Op, Way] = {HOST_READ: "read", HOST_WRITE: "write", STREAM_WRITE: "strong write"}


class Rank:
    """One rank of a world. `own`: its symmetric memory. `stream`: what happens before its next launch."""

    __slots__ = ("_clocks", "own", "rank", "stream", "world")

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.rank = rank
        self.own: list[Storage] = []
        self.stream: Known | None = None
        self._clocks: list[tuple[int, Sequence[Clock]]] = []

    @property
    def log(self) -> History:
        """The history of the world."""
        return self.world.log

    @property
    def changes(self) -> Changes:
        """The count of operations that changed memory."""
        return self.world.changes

    @property
    def launches(self) -> int:
        """The number of launches of the world that have begun."""
        return self.world.launches

    def enter(self) -> None:
        """The host function begins: wait for the first turn."""
        self.world.turns.enter(self.rank)
        self._see()

    def place(self, pid: tuple[int, int, int]) -> tuple[int, int, int]:
        """A program's coordinates, which print with the rank."""
        return pid_of(self.rank, pid)

    def home(self, segment: Segment) -> int:
        """Where the history knows a storage: symmetric memory by a home of its own, other arrays by one of this launch."""
        storage = self.world.storages.get(segment.buffer.data.ctypes.data)
        if storage is not None:
            return storage.segment.home
        return (self.world.region() + 1 << REGION) + segment.start % (1 << REGION)

    def begin(self) -> None:
        """A launch begins: what the host function has written precedes it. Raises RankRace."""
        self._publish_writes()
        self.world.launches += 1
        self._clocks = []

    def starts(self, first: int, clocks: Sequence[Clock]) -> None:
        """A program of the launch starts. It knows what has happened on the rank's stream."""
        self._clocks.append((first, clocks))
        for clock in clocks:
            clock.learned.world = self.stream

    def turn(self) -> None:
        """Other ranks may run."""
        self.world.turns.turn(self.rank)

    def rank_of(self, data: Array) -> int | None:
        """The rank that has this storage, if it is symmetric memory."""
        storage = self.world.storages.get(data.ctypes.data)
        return None if storage is None else storage.rank

    def access(self, actor: Actor, op: Op, way: Way, place: GlobalPlace, itemsize: int) -> None:
        """A put has accessed these elements. Raises RankRace, PutSource."""
        self.world.access(actor, op, way, place, itemsize)

    def puts(self, pid: tuple[int, int, int], known: Known) -> HostActor:
        """An actor for puts of a program to one rank, the first of which begins when it knows this."""
        program, first = self.log.begin(1, self.launches)
        actor = HostActor(pid_of(self.rank, pid, PutPid), first, program, Clock(0))
        actor.clock.learned.world = known
        return actor

    def wait(self, ready: Callable[[], bool], live: Sequence[Block], pending: int) -> None:
        """No program of the launch can continue before it is ready. Raises Deadlock."""
        self.world.turns.wait(self.rank, Halt(ready, live, pending))

    def end(self) -> None:
        """The launch has ended: all that its programs did and knew precedes the next one, and is visible to every proxy."""
        log = self.log
        for first, clocks in self._clocks:
            for number in log.unsettled.pop(log.of_task[first], ()):
                log.positions[number] = clocks[int(log.owners[number]) - first].position
        self._extend([(first + slot, clock) for first, clocks in self._clocks for slot, clock in enumerate(clocks)])
        self._see()

    def barrier(self) -> None:
        """Meet all ranks: their earlier launches and host writes precede what any rank does afterwards."""
        self._publish_writes()
        self.stream = self.world.meet(self.rank, self.stream)
        self._see()

    def copy(self, array: Array, elements: Array, values: Array, read: tuple[Array, Array] | None) -> None:
        """A copy to elements of a symmetric array of any rank; `read`: those of the own one that it reads, if it does. Raises
        RankRace."""
        self._publish_writes()
        storages = self.world.storages
        actor = self._actor()
        if read is not None:
            self.world.host_access(actor, storages[read[0].ctypes.data], read[1], HOST_READ)
        storage = storages[array.ctypes.data]
        self.world.host_access(actor, storage, elements, HOST_WRITE)
        array.reshape(-1)[elements] = values
        self._done(actor)
        self._see()

    def write_value(self, array: Array, elements: Array, value: int) -> None:
        """A write of the stream to a word of a symmetric array of any rank: a release of all that the stream was given before.
        Raises RankRace."""
        self._publish_writes()
        actor, storage = self._actor(), self.world.storages[array.ctypes.data]
        self.world.host_access(actor, storage, elements, STREAM_WRITE)
        array.reshape(-1)[elements] = value
        self._done(actor)
        self._see()

    def _actor(self) -> HostActor:
        program, first = self.log.begin(1, -1)
        actor = HostActor(pid_of(self.rank, (0, 0, 0), HostPid), first, program, Clock(0))
        actor.clock.learned.world = self.stream
        return actor

    def _done(self, actor: HostActor) -> None:
        self._extend([(actor.number, actor.clock)])
        self.changes.count += 1

    def _extend(self, tasks: Sequence[tuple[int, Clock]]) -> None:
        counts: Array = np.zeros(self.log.room(), np.int32)
        known: Known | None = self.stream
        for number, clock in tasks:
            counts[number] = clock.position + 1
            learned = clock.learned.everything()
            known = known if learned is None or learned is self.stream else later(known, learned)
        self.stream = fenced(later(known, Known(counts)))

    def _see(self) -> None:
        for storage in self.own:
            storage.seen[:] = storage.segment.buffer.data

    def _publish_writes(self) -> None:
        """Record what the host function has written since the last launch of the rank."""
        for storage in self.own:
            data, size = storage.segment.buffer.data, storage.array.itemsize
            changed = (data != storage.seen).reshape(-1, size).any(axis=1)
            if changed.any():
                actor = self._actor()
                self.world.host_access(actor, storage, np.flatnonzero(changed), HOST_WRITE)
                self._done(actor)
