"""Programs that wait in memory for programs which had not started when the wait began.

A GPU starts a block once there is room for it, and in no promised order. A program that spins keeps its room, so it may wait
for ever for one that has not started. A program that takes its number from an atomic counter (a ticket) knows that all lower
numbers belong to programs that run already. Where such a wait ends in the simulator because all programs were resident, that is
advice; where they do not fit, the launch is deadlocked, and the report names the program that would have stored the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.errors import Loc, UserError
from weft.ir.core import Op
from weft.sim.machine.machine import Machine
from weft.sim.machine.tasks import Block, Task
from weft.sim.machine.wait import MemoryWait
from weft.sim.memory.heap import HeapAccess

RULE = "waits-for-later-program"
TICKET = (
    "let each program take its number from an atomic counter, number = gl.atomic_add(counter, 1), and wait only for programs "
    "with lower numbers, which have started; or launch no more programs than are resident at once, with "
    "launch_cooperative_grid=True"
)
PROBED = 64
"""Up to this many programs are started, and get this many turns each time, to find out which of them would end a wait in a
deadlocked launch."""


def advise(task: Task, op: Op, since: int | None) -> None:
    """A wait of a task has ended, which began when `since` programs had started (None: it did not have to wait). Advise if the
    value that ended it came from a program that had not, unless the launch is cooperative."""
    races, access = task.machine.races, task.last_read
    if since is None or races is None or task.machine.pending.together or not isinstance(access, HeapAccess):
        return
    found = races.writer_since(task, access, since)
    if found is None:
        return
    pid, write, name, index = found
    line = "" if write.loc is None else f" at line {write.loc.line}"
    task.machine.report.advise(
        RULE,
        f"program {task.pid} waits here for {name}[{index}], which program {pid} stores{line}, and that program had not "
        f"started: it may never start while this one waits. To be safe, {TICKET}",
        op.loc,
    )


def unstarted_writer(
    machine: Machine, live: Sequence[Block], start: Callable[[tuple[int, int, int]], Sequence[Block]],
    advance: Callable[[Block], bool],
) -> tuple[str, Loc] | None:  # fmt: skip
    """In a deadlocked launch: message text about a program that has not started and stores what another one waits for, with the
    line of the store. Programs start in spite of the limit, and run as far as they can, until one does; the launch has failed
    anyway. `advance` runs a block that can run, and returns whether it could."""
    waits = [task.wait for block in live for task in block.tasks if isinstance(task.wait, MemoryWait)]
    reads = [(wait, wait.read) for wait in waits if wait.read is not None]
    before = [np.array(machine.heap.read(read)) for _, read in reads]
    begun: list[Block] = []
    for _ in range(PROBED):
        pid = machine.pending.next()
        if pid is None or not reads:
            return None
        try:
            begun += start(pid)
            for _ in range(PROBED):
                if not any([advance(block) for block in begun]):  # noqa: C419 - each of them gets its turn
                    break
        except UserError:
            return None
        for (wait, read), held in zip(reads, before, strict=True):
            if not np.array_equal(machine.heap.read(read), held) and (found := _stored(machine, wait, read)):
                return found
    return None


def _stored(machine: Machine, wait: MemoryWait, read: HeapAccess) -> tuple[str, Loc] | None:
    """Message text about the program that has stored what another one waits for, with the line of the store."""
    writer = None if machine.races is None else machine.races.last_writer(read)
    if writer is None or writer[1].loc is None:
        return None
    return f"program {writer[0]}, which has not started, stores {wait.memory() or 'it'} here", writer[1].loc
