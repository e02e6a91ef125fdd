"""The race detector for global memory: between the programs of a launch, and between the threads of one program.

Programs are ordered only by release and acquire: atomics, and loads and stores with an order. An acquire orders what follows
if it reads from a release at the same address and its value decides something (`weft.sim.memory.learned`). Tasks of one program
are ordered by their vector clocks. For each granule of an array, which several arguments may share, the detector keeps the last
weak write, weak read, strong write (atomics included), strong read, and read by an asynchronous copy. Strong accesses never
race with each other (PTX ISA, memory consistency model, "Morally strong operations").

Verdicts are those of the table in `weft.sim.memory.verdicts`, as are those on a block's memory; what differs is storage. Any
number of programs may have touched an array, so a granule has one entry of each way of access, with the event and the thread,
instead of one for each task; and an access of many granules meets many events at once, so it is judged by masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.analysis.steering import POLLS, Steering
from weft.errors import Hazard, Row, fail, hazard
from weft.ir.core import Op
from weft.ops import nvshmem
from weft.sim.machine.data import Array, arange, where
from weft.sim.machine.findings import Findings
from weft.sim.machine.naming import Naming
from weft.sim.machine.report import Report
from weft.sim.memory.clocks import EVERY
from weft.sim.memory.heap import GlobalPlace, Heap, HeapAccess
from weft.sim.memory.history import History
from weft.sim.memory.launches import Dependence
from weft.sim.memory.learned import Known
from weft.sim.memory.published import Published, scope_of
from weft.sim.memory.tracks import (
    AGAINST,
    CHANNELS,
    OTHERS,
    PLAIN,
    THREAD_BITS,
    THREADS,
    VERBS,
    WRITES,
    Actor,
    Touch,
    Tracks,
    Way,
    element_at,
    per_granule,
)  # fmt: skip
from weft.sim.memory.verdicts import (
    BY_THREADS,
    GLOBAL_ORDERING,
    MANY,
    WAIT_FOR_LOAD,
    End,
    barrier_between,
    task_words,
    unordered,
    wait_for_copy,
    waited,
)  # fmt: skip
from weft.sim.memory.warps import is_one, of_one_warp, several

STRONG: tuple[Way, ...] = ("atomic", "strong read", "strong write")
"""Strong accesses."""
WRITTEN = ("write", "atomic", "other atomic")
"""The channels of writes."""
UNSETTLED = np.iinfo(np.int32).max
"""In place of an event's number in its task: the completion of a copy that no release has published yet."""
LATER = 1 << 16
"""Reads of an array that are queued before they are recorded."""


class Races:
    """Checks and records all accesses of a launch to global memory."""

    __slots__ = (
        "_advice", "_blocks", "_dependence", "_found", "_names", "_of_block", "_steering", "_tasks", "heap", "log", "published",
    )  # fmt: skip

    def __init__(
        self, heap: Heap, tasks: int, blocks: int, steering: Steering, names: Naming, found: Findings, report: Report,
        dependence: Dependence, log: History, rank: int | None = None,
    ) -> None:  # fmt: skip
        self.heap = heap
        self._dependence = dependence
        # Tasks of a block, blocks of a program, and tasks of a program.
        self._of_block, self._blocks, self._tasks = tasks, blocks, tasks * blocks
        self._names = names
        self._found = found
        self._advice = report
        self._steering = steering
        self.log = log
        self.published = Published(steering, self._tasks, log, rank)

    def touch(self, touch: Touch, bits: Array | None = None) -> None:
        """Check an access against earlier ones and record it. `bits`: the values about to be written. Raises GlobalRace, and
        DependentLaunch."""
        segment = touch.place.segment
        if self._dependence.before:
            self._dependence.check(touch, self._found)
        tracks = self.log.tracks.get(segment.home)
        if tracks is None:
            tracks = self.log.tracks[segment.home] = Tracks(segment, touch.itemsize)
        if touch.way == "read" and touch.place.again is not None and tracks.only_read:
            touch.place = GlobalPlace(segment, touch.place.view, None, None, touch.place.again)
            tracks.later.append((touch, self._number(touch)))
            if len(tracks.later) == LATER:
                self._catch_up(tracks)
            return
        self._catch_up(tracks)
        index = tracks.index(touch.place, touch.itemsize)
        for way in AGAINST[touch.way]:
            if way in tracks.channels:
                self._check(touch, tracks.channels[way][index], way, bits)
        if self.log.ranks and touch.way in STRONG:
            self._check_ranks(touch, tracks, index)
        if touch.mode not in BY_THREADS:
            self._check_fence(touch, tracks, index)
        self._note(touch, tracks, index, self._number(touch))

    def conflict(self, touch: Touch) -> tuple[int, Op, Way] | None:
        """See `weft.sim.memory.launches.Recorded`."""
        place = touch.place
        own, (origin, _) = place.segment, place.segment.view(touch.itemsize)
        index = place.index if place.again is None or place.index is not None else place.again()
        bytes_in = np.ravel(index) * touch.itemsize + (origin - own.start + own.buffer.data.ctypes.data)
        if not bytes_in.size:
            return None
        low, high = int(bytes_in.min()), int(bytes_in.max()) + touch.itemsize
        for tracks in self.log.tracks.values():
            data = tracks.segment.buffer.data
            start = data.ctypes.data
            if high <= start or start + data.size <= low or tracks.segment.buffer.freed:
                continue
            self._catch_up(tracks)
            inside = (bytes_in >= start) & (bytes_in + touch.itemsize <= start + data.size)
            granules = (bytes_in[inside] - start + tracks.segment.start) // tracks.granule
            granules = granules[:, None] - tracks.segment.start // tracks.granule
            granules = granules + arange(max(touch.itemsize // tracks.granule, 1))
            for channel, notes in tracks.channels.items():
                if touch.way in WRITES or channel in WRITTEN:
                    met = np.any(notes[granules] != 0, axis=1)
                    if met.any():
                        first = int(np.argmax(met))
                        number = int(notes[granules[first]].max()) >> THREAD_BITS
                        op = self.log.ops[number]
                        assert op is not None
                        return int(np.flatnonzero(inside)[first]), op, _way_of(op, channel)
        return None

    def _catch_up(self, tracks: Tracks) -> None:
        """Record the queued reads."""
        later, tracks.later = tracks.later, []
        for touch, number in later:
            assert touch.place.again is not None
            touch.place.index = touch.place.again()
            self._note(touch, tracks, tracks.index(touch.place, touch.itemsize), number)

    def _number(self, touch: Touch) -> int:
        number = self.log.grow()
        task = touch.task
        self.log.owners[number] = task.number
        self.log.positions[number] = task.clock.tick()
        if touch.component != PLAIN:
            self.log.positions[number] = UNSETTLED
            self.log.components[number], self.log.values[number] = touch.component, touch.value
            self.log.unsettled.setdefault(task.program, []).append(number)
        self.log.ops.append(touch.op)
        self.log.kinds.append((touch.mode, touch.way in WRITES))
        self.log.pids[task.program] = task.pid
        return number

    def _note(self, touch: Touch, tracks: Tracks, index: Array, number: int) -> None:
        notes = per_granule(touch.notes, touch, index)
        note = notes | number << THREAD_BITS
        flight = touch.way == "read" and touch.component != PLAIN
        name = "flight" if flight else CHANNELS.get(touch.way, touch.way)
        channel = tracks.channel(name)
        if name in OTHERS:
            self._keep_others(touch, tracks, index, channel[index], OTHERS[name])
        if touch.each and not isinstance(note, int):
            self._note_each(touch, channel, index, note, number)
        elif touch.way == "read" and not isinstance(note, int):
            # If several threads read the same granule, record the first: the last assignment to an index remains.
            flat = np.ravel(index)[::-1]
            channel[flat] = np.ravel(np.broadcast_to(note, np.shape(index)))[::-1]
        else:
            channel[index] = note

    def _note_each(self, touch: Touch, channel: Array, index: Array, note: Array, number: int) -> None:
        """Record every thread. A granule that several threads accessed in this event, or since the last barrier, gets the
        encoding of several threads."""
        task = touch.task
        before = channel[index]
        note = np.broadcast_to(note, np.shape(index))
        if touch.way != "write" and touch.component == PLAIN and before.any():
            events = before >> THREAD_BITS
            known = max(task.clock.known.get(task.slot, 0), task.settled)
            recent = (events != 0) & (self.log.owners[events] == task.number) & (self.log.positions[events] >= known)
            note = where(recent & ((before ^ note) & THREADS != 0), _together(before, note, number), note)
        channel[index] = note
        lost = channel[index] != note
        if not lost.any():
            return
        both = _together(channel[index[lost]], note[lost], number)
        channel[index[lost]] = both
        mixed = both & THREADS == THREADS
        channel[index[lost][mixed]] = both[mixed]
        if touch.way == "write":
            message = f"several threads store equal values to the same elements of {touch.place.segment.buffer.name}"
            self._advice.advise("equal-stores", message, touch.op.loc)

    def _keep_others(self, touch: Touch, tracks: Tracks, index: Array, before: Array, others: str) -> None:
        if not before.size:
            return
        first, last = int(before.min()), int(before.max())
        if first == last:
            # One event (or none) made all of these accesses.
            if first and self.log.owners[first >> THREAD_BITS] != touch.task.number:
                tracks.channel(others)[index] = first
            return
        events = before >> THREAD_BITS
        theirs = (events != 0) & (self.log.owners[events] != touch.task.number)
        if np.any(theirs):
            tracks.channel(others)[index[theirs]] = before[theirs]

    def _ordered(self, touch: Touch, notes: Array) -> tuple[Array, Array]:
        """Mask of the events that happen before an access, and of those that are its program's own."""
        task = touch.task
        events = notes >> THREAD_BITS
        owners, positions = self.log.owners[events], self.log.positions[events]
        first = task.number - task.slot
        own = self._own(task, owners)
        if self._tasks == 1:
            known: Any = max(task.clock.known.get(task.slot, 0), task.settled)
        else:
            counts = [task.clock.known.get(slot, 0) for slot in range(self._tasks)]
            counts[task.slot] = max(counts[task.slot], task.settled)
            known = np.array(counts)[where(own, owners - first, 0)]
        threads = per_granule(touch.threads, touch, notes)
        decided = self._steering.decided.get(touch.op, 0)
        acquired = task.clock.learned.knows(owners, positions, notes & THREADS, threads, decided)
        return where(own, positions < known, acquired), own

    def _check(self, touch: Touch, notes: Array, way: str, bits: Array | None) -> None:
        if not notes.size or not notes.any():
            return
        task = touch.task
        events, threads = notes >> THREAD_BITS, per_granule(touch.threads, touch, notes)
        owners, positions = self.log.owners[events], self.log.positions[events]
        ordered, own = self._ordered(touch, notes)
        bad = ~(ordered | (events == 0))
        if not bad.any():
            return
        same = (owners == task.number) & ((notes & THREADS) == threads) & (threads != THREADS)
        copies = self.log.components[events] != PLAIN
        pending = bad & copies
        bad = bad & ~same & ~copies
        if task.clock.warps and touch.each:
            before = notes & THREADS
            in_warps = task.clock.orders_in_warp(task.slot, before, threads, positions)
            bad = bad & ~((owners == task.number) & in_warps)
        if task.clock.links and touch.each:
            met = task.clock.orders_threads(task.slot, _entries(notes & THREADS), _entries(threads), positions)
            bad = bad & ~((owners == task.number) & met)
        if pending.any():
            bad = bad | self._in_flight(task, events, pending, own, same)
        if bad.any():
            self._clash(touch, way, bad, notes, own, bits)

    def _in_flight(self, task: Actor, events: Array, pending: Array, own: Array, same: Array) -> Array:
        """Mask of the pending asynchronous copies that this access is not ordered after."""
        out = pending
        for number in np.unique(events[pending & own]).tolist():
            component, value = int(self.log.components[number]), int(self.log.values[number])
            clock, here = task.clock, own & (events == number)
            if clock.known.get(component, 0) > value:
                out = out & ~here
            elif waited(self._end(number), component, value, clock):
                out = out & ~(here & same)
        return out

    def _end(self, number: int) -> End:
        """When accesses like that of an event have ended."""
        return GLOBAL_ORDERING.ends[self.log.kinds[number]]

    def _check_fence(self, touch: Touch, tracks: Tracks, index: Array) -> None:
        """Report a TMA access to granules that threads wrote in this launch, or that TMA of another program did, if no proxy
        fence has followed. Raises MissingFence."""
        for way in ("write", "atomic") if touch.way != "atomic" else ("write",):
            if way not in tracks.channels:
                continue
            notes = tracks.channels[way][index]
            events = notes >> THREAD_BITS
            if not events.any():
                continue
            own = self._own(touch.task, self.log.owners[events])
            bad = (events != 0) & ((self.log.components[events] == PLAIN) | ~own) & ~self._fenced(touch, notes, own)
            if bad.any():
                self._report(hazard.GLOBAL_FENCE, touch, way, bad, notes)

    def _check_ranks(self, touch: Touch, tracks: Tracks, index: Array) -> None:
        """Strong accesses of two ranks conflict if the scope of one does not include the other rank, and if one overwrites a
        value that another rank waits for. Raises RankScope, SignalReused."""
        rank, scope = _rank_of(touch.task.pid), scope_of(touch.op)
        for way in ("atomic", OTHERS["atomic"], "strong read", OTHERS["strong read"]):
            if way not in tracks.channels or not (touch.way in WRITES or way in WRITTEN):
                continue
            notes = tracks.channels[way][index]
            if not notes.any():
                continue
            ordered, _ = self._ordered(touch, notes)
            numbers: list[int] = np.unique(notes[~ordered] >> THREAD_BITS).tolist()
            for number in numbers:
                op = self.log.ops[number]
                if op is None or _rank_of(self._program(number)) == rank:
                    continue
                bad = ~ordered & (notes >> THREAD_BITS == number)
                if scope != "sys" or scope_of(op) != "sys":
                    self._report(hazard.RANK_SCOPE, touch, way, bad, notes)
                elif touch.way in WRITES and op.kind in POLLS and not op.attrs["at_least"]:
                    self._report(hazard.SIGNAL_REUSED, touch, way, bad, notes)

    def _fenced(self, touch: Touch, notes: Array, own: Array) -> Array:
        """Mask of the events that a proxy fence has followed, as far as the thread that starts an access knows."""
        task, clock, events, threads = touch.task, touch.task.clock, notes >> THREAD_BITS, notes & THREADS
        owners, positions = self.log.owners[events], self.log.positions[events]
        slots = where(own, owners - (task.number - task.slot), 0)
        counts = np.array([clock.proxied.get(slot, 0) for slot in range(self._tasks)])
        counts[task.slot] = max(counts[task.slot], clock.own_proxied.get(EVERY, 0))
        mine = np.zeros(THREADS + 1, np.int64)
        for thread, count in clock.own_proxied.items():
            mine[thread] = count if thread != EVERY else 0
        alone = where(owners == task.number, mine[threads], 0)
        decided = self._steering.decided.get(touch.op, 0)
        thread = touch.threads if isinstance(touch.threads, int) and touch.threads != THREADS else None
        others = clock.learned.fenced(owners, positions, threads, thread, decided)
        return where(own, positions < np.maximum(counts[slots], alone), others)

    def _clash(self, touch: Touch, way: str, bad: Array, notes: Array, own: Array, bits: Array | None) -> None:
        flat = int(np.argmax(bad))
        number, here = int(notes.ravel()[flat]) >> THREAD_BITS, bool(own.ravel()[flat])
        if (
            way == touch.way == "write"
            and bits is not None
            and not np.any(self.log.components[notes[bad] >> THREAD_BITS] != PLAIN)
        ):
            each = bad.size // np.size(touch.place.index)
            changed: Array = np.ravel(touch.place.view[touch.place.index] != bits)
            unequal: Array = (bad.reshape(-1, each) & changed[:, None]).reshape(bad.shape)
            if not np.any(unequal):
                who = "threads" if here else f"programs {self._program(number)} and {touch.task.pid}"
                message = f"{who} store equal values to the same elements, and nothing orders the stores"
                self._advice.advise("equal-stores", message, touch.op.loc)
                return
            bad = unequal
            flat = int(np.argmax(bad))
            number, here = int(notes.ravel()[flat]) >> THREAD_BITS, bool(own.ravel()[flat])
        self._report(self._rule(touch, number, here), touch, way, bad, notes)

    def _rule(self, touch: Touch, number: int, own: bool) -> Row:
        """The hazard of an access after an event that nothing orders before it."""
        slot = int(self.log.owners[number]) - (touch.task.number - touch.task.slot)
        same_block = own and slot // self._of_block == touch.task.slot // self._of_block
        learned = touch.task.clock.learned.world is not None
        earlier, same_rank = self.log.ops[number], _rank_of(self._program(number)) == _rank_of(touch.task.pid)
        if earlier is not None and earlier.kind is nvshmem.put and same_rank and not self.log.kinds[number][1]:
            return hazard.PUT_READS
        found = unordered(GLOBAL_ORDERING, self._end(number), touch.way in WRITES, own, same_block, learned)
        if found is not GLOBAL_ORDERING.programs or same_rank:
            return found
        return hazard.RANK_WRITE if touch.way in WRITES else hazard.RANK_READ

    def _program(self, number: int) -> tuple[int, int, int]:
        """The program of an event."""
        return self.log.pids[self.log.of_task[int(self.log.owners[number])]]

    def _own(self, task: Actor, owners: Any) -> Any:
        """Mask of the tasks, given by number, that belong to the program of this one."""
        first = task.number - task.slot
        return (owners >= first) & (owners < first + self._tasks)

    def _partition(self, slot: int) -> str:
        """The name of a program's task in reports."""
        return task_words(slot, self._of_block, self._blocks)

    def _report(self, entry: Row, touch: Touch, way: str, bad: Array, notes: Array) -> None:
        """Report a hazard at the first bad granule of an access."""
        flat = int(np.argmax(bad))
        number = int(notes.ravel()[flat]) >> THREAD_BITS
        task, op, owner = touch.task, self.log.ops[number], int(self.log.owners[number])
        assert op is not None
        key = entry, op, touch.op
        if self._found.known(*key):
            return
        name, index = element_at(touch.place, touch.itemsize, flat // (bad.size // np.size(touch.place.index)))
        verb, _ = VERBS[touch.way]
        before = VERBS[_way_of(op, way)][1]
        program, slot = self._program(number), owner - (task.number - task.slot)
        own = bool(self._own(task, owner))
        if own:
            names = self._partition(slot), self._partition(task.slot)
        else:
            names = _who(program), _who(task.pid)
        label = f"{names[0]} {before} it here"
        fields: dict[str, Any] = {
            "program": task.pid, "access": verb, "name": name, "index": index, "before": before, "partition": names[0],
            "block": task.rank, "other": slot // self._of_block if own else program,
            "unordered": self._unordered(touch), "who": _who(task.pid), "whom": _who(program),
            "scope": scope_of(touch.op) if "scope" in touch.op.attrs else "", "other_scope": op.attrs.get("scope", ""),
            "wait": WAIT_FOR_LOAD if self.log.kinds[number][0] == "load" else wait_for_copy(touch.op, self._names),
        }  # fmt: skip
        if entry is hazard.GLOBAL_THREADS and touch.each:
            entry, names = hazard.GLOBAL_PAIR, self._pair(touch, int(notes.ravel()[flat]), flat, notes)
            view = self._names.view
            label = f"{names[0]} {before} it here{view(op)}"
            order = barrier_between(
                op, touch.op, self._names, warp=self._in_warps(touch, bad, notes), wrote=_way_of(op, way) in WRITTEN,
                several=touch.way == "write" and _by_several(touch, flat // (bad.size // np.size(touch.place.index))),
            )  # fmt: skip
            fields |= {"thread": names[1], "other": names[0], "view": view(touch.op), "order": order}
        error = fail(entry, loc=touch.op.loc, related=() if op.loc is None else ((label, op.loc),), **fields)
        assert isinstance(error, Hazard)
        error.buffer, error.partitions = name, names
        self._found.add(error, *key)

    def _unordered(self, touch: Touch) -> str:
        """Message text about the kernel's first strong read that orders nothing, although it may look like an acquire."""
        deciding = self._steering.deciding
        for op, number in self._steering.readers.items():
            line = "" if op.loc is None else f" at line {op.loc.line}"
            decides, acquires = deciding >> number & 1, op.attrs["order"] in ("acquire", "acq_rel")
            if acquires and not decides:
                return f" (the one{line} orders nothing, since no branch, mask or address depends on what it reads)"
            if decides and not acquires:
                how = "volatile=True is relaxed" if op.attrs.get("volatile") else f"its sem is {op.attrs['order']}"
                return f" (the read{line} orders nothing: {how})"
        return (
            "; one thread does so for its block if gl.barrier() stands between it and the others" if touch.each else ""
        )

    def _pair(self, touch: Touch, note: int, flat: int, notes: Array) -> tuple[str, str]:
        """The names of two conflicting threads, the earlier one first."""
        threads = np.broadcast_to(per_granule(touch.threads, touch, notes), np.shape(notes))
        numbers = note & THREADS, int(threads.ravel()[flat])
        first, second = (self._names.thread(n) if is_one(n) else "several threads" for n in numbers)
        return first, second

    def _in_warps(self, touch: Touch, bad: Array, notes: Array) -> bool:
        """True if all conflicts of an access are between threads of the same task and warp."""
        threads = np.broadcast_to(per_granule(touch.threads, touch, notes), np.shape(notes))[bad]
        own = self.log.owners[notes[bad] >> THREAD_BITS] == touch.task.number
        return bool(np.all(own & of_one_warp(notes[bad] & THREADS, threads)))

    def last_writer(self, access: HeapAccess) -> tuple[tuple[int, int, int], Op] | None:
        """The program and the operation of the last strong write to these addresses."""
        number = max(self._strong_writes(access), default=0)
        op = self.log.ops[number]
        return None if op is None else (self._program(number), op)

    def writer_since(
        self, task: Actor, access: HeapAccess, since: int
    ) -> tuple[tuple[int, int, int], Op, str, int] | None:
        """The last strong write to these addresses by a program other than the task's that started as number `since` or later:
        its program, the operation, and the element."""
        for number in sorted(self._strong_writes(access), reverse=True):
            program, op = self.log.of_task[int(self.log.owners[number])], self.log.ops[number]
            if program >= since and program != task.program and op is not None:
                place = self.heap.places(access)[0]
                return self._program(number), op, *element_at(place, access.itemsize, 0)
        return None

    def _strong_writes(self, access: HeapAccess) -> set[int]:
        """The numbers of the last strong writes to addresses, and of those before them by other tasks."""
        found: set[int] = set()
        for place in self.heap.places(access):
            tracks = self.log.tracks.get(place.segment.home)
            if tracks is None:
                continue
            index = tracks.index(place, access.itemsize)
            for name in ("atomic", OTHERS["atomic"]):
                if name in tracks.channels:
                    found.update((np.unique(tracks.channels[name][index]) >> THREAD_BITS).tolist())
        return found - {0}

    def stored(self, task: Actor, op: Op, place: GlobalPlace, itemsize: int, bits: Array) -> None:
        """After a store: report an element to which several threads stored different values. Raises GlobalRace."""
        lost = place.view[place.index] != bits
        if np.any(lost) and not self._found.known(hazard.GLOBAL_STORE, op):
            name, index = element_at(place, itemsize, int(np.argmax(lost)))
            error = fail(hazard.GLOBAL_STORE, loc=op.loc, program=task.pid, name=name, index=index)
            assert isinstance(error, Hazard)
            error.buffer = name
            self._found.add(error, hazard.GLOBAL_STORE, op)

    def release(self, touch: Touch, addresses: Array, replaces: bool) -> None:
        """A release at these addresses. `replaces`: it is a store, which ends the release sequences of earlier releases there
        (an atomic continues them)."""
        if self.published.enabled:
            self.published.release(touch, addresses, replaces)
            self._settle(touch.task, touch.each)

    def present(self, task: Actor, op: Op) -> Known:
        """The clock that a task would publish now by an operation of all its threads."""
        self._settle(task, each=False)
        return self.published.present(task, op)

    def fenced_write(self, touch: Touch, addresses: Array, replaces: bool) -> None:
        """A relaxed write at these addresses, which a fence before it makes a release."""
        if self.published.enabled:
            self.published.fenced_write(touch, addresses, replaces)

    def fence(self, task: Actor, op: Op, threads: Array | None, each: bool) -> None:
        """A fence of memory order by these threads (None: all). `each`: the code is written per thread."""
        if self.published.enabled:
            self._settle(task, each)
            self.published.fence(task, op, threads)

    def fence_proxy(self, task: Actor, threads: Array | None, each: bool) -> None:
        """A proxy fence by these threads."""
        self._settle(task, each)
        task.clock.fence_global(threads)

    def _settle(self, task: Actor, each: bool) -> None:
        """A release also publishes the completion of the copies that the task knows to be complete. From now on such a copy is
        an event of this task. `each`: the code is written per thread, so a completion that not all threads know by a barrier
        is published by each thread for itself."""
        for tracks in self.log.tracks.values():
            self._catch_up(tracks)
        cluster, clock = task.program, task.clock
        still: list[int] = []
        for number in self.log.unsettled.get(cluster, ()):
            component, value = int(self.log.components[number]), int(self.log.values[number])
            done = max(clock.known.get(component, 0), clock.each.get(component, 0))
            # Code for tiles has a barrier before a release, which therefore covers what the elected thread has waited for.
            if max(done, 0 if each else clock.elected.get(component, 0)) > value:
                met = each and clock.known.get(component, 0) > value
                last = clock.known.get(task.slot, 0) if met else clock.position
                self.log.owners[number], self.log.positions[number] = task.number, last - 1
            else:
                still.append(number)
        self.log.unsettled[cluster] = still


def _rank_of(pid: tuple[int, int, int]) -> int | None:
    """The rank of a program of a world; None for others."""
    return getattr(pid, "rank", None)


def _who(pid: tuple[int, int, int]) -> str:
    """A program in message text, or the host function of a rank, which stands in place of one."""
    text = str(pid)
    return f"program {text}" if text.startswith("(") else text


def _way_of(op: Op, channel: str) -> Way:
    """The way in which an operation made an access that is recorded in a channel."""
    kinds = {effect.kind for effect in op.effects if effect.space == "global"}
    if channel in ("atomic", "other atomic"):
        return "atomic" if "read" in kinds else "strong write"
    return "write" if channel == "write" else "read"


def _together(before: Array, note: Array, number: int) -> Array:
    """Entries of an event for granules that other threads accessed as well."""
    return number << THREAD_BITS | several(before & THREADS, note & THREADS, THREADS)


def _entries(threads: Any) -> Any:
    """Threads as notes have them, as entries of `weft.sim.memory.warps`."""
    return where(np.equal(threads, THREADS), MANY, threads)


def _by_several(touch: Touch, number: int) -> bool:
    """Whether several threads access an element, given by its number in the access."""
    if isinstance(touch.threads, int):
        return False
    index = np.broadcast_to(
        touch.place.index, np.broadcast_shapes(np.shape(touch.place.index), np.shape(touch.threads))
    )
    threads = np.broadcast_to(touch.threads, index.shape)
    return np.unique(threads[index == np.ravel(touch.place.index)[number]]).size > 1
