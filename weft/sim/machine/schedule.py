"""The scheduler of blocks and tasks.

Programs start in launch order, all blocks of a cluster together; programs that others have claimed never start. A block runs
until all of its tasks wait; then the next program starts, up to the number that is resident at once. This models a GPU, which
places blocks in order and does not preempt them. If no task can run and no program can start, the launch is deadlocked. The
schedule is a function of the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from weft.errors import Hazard, Loc, UserError, fail, hazard
from weft.sim.machine.data import Data
from weft.sim.machine.late import TICKET, unstarted_writer
from weft.sim.machine.machine import Machine
from weft.sim.machine.tasks import Block, Cluster, Task
from weft.sim.machine.wait import Wait


def run_blocks(
    machine: Machine, arguments: tuple[Data, ...], seed: int, finished: Callable[[int], None]
) -> None:  # fmt: skip
    """Run every program to its end. `finished` is called after each with the number of finished programs. Raises Deadlock, and
    the hazards of the programs."""
    random = Random(seed) if seed else None
    pending = machine.pending
    live: list[Block] = []

    def start(pid: tuple[int, int, int]) -> list[Block]:
        cluster = Cluster(machine, pid if machine.member is None else machine.member.place(pid))
        for block in cluster.blocks:
            block.start(0, machine.func.body, arguments, machine.threads, {})
        return cluster.blocks

    def turn(block: Block) -> bool:
        able = _ready(block)
        _advance(block, random)
        return able

    def able() -> bool:
        return any(map(_ready, live))

    while pending or live:
        if machine.member is not None:
            machine.member.turn()
        turns = [block for block in live if _ready(block)]
        if random is not None:
            random.shuffle(turns)
        pid = pending.start() or (None if turns else pending.start(stuck=True))
        if pid is not None:
            blocks = start(pid)
            turns += blocks
            live += blocks
        if not turns and machine.member is not None:
            machine.member.wait(able, live, len(pending))
        elif not turns:
            if not time_out(live):
                error = stuck(live, len(pending))
                raise _named(error, unstarted_writer(machine, live, start, turn))
            continue
        for block in turns:
            _advance(block, random)
            if not block.tasks:
                live.remove(block)
                _finish(machine, block, finished)


def _finish(machine: Machine, block: Block, finished: Callable[[int], None]) -> None:
    """End a block whose tasks have ended, and with the last block of a cluster its program."""
    block.finish()
    if all(other.ended for other in block.cluster.blocks):
        machine.pending.running -= 1
        machine.report.programs += 1
        finished(machine.report.programs + machine.pending.canceled)


def _can_move(task: Task) -> bool:
    return task.wait is None or task.wait.ready()


def _ready(block: Block) -> bool:
    return any(_can_move(task) for task in block.tasks)


def time_out(live: Sequence[Block]) -> bool:
    """Nothing can run: the waits with the shortest time-out give up. Returns whether there is one."""
    waits = [task.wait for block in live for task in block.tasks if task.wait is not None]
    shortest = min((wait.expires for wait in waits if wait.expires is not None), default=None)
    for wait in waits:
        if shortest is not None and wait.expires == shortest:
            wait.expire()
    return shortest is not None


def _advance(block: Block, random: Random | None) -> None:
    """Run the block's tasks until all of them wait. A task that polls gets a single turn."""
    polled: set[Task] = set()
    while True:
        turns = [task for task in block.tasks if task not in polled and _can_move(task)]
        if not turns:
            return
        if random is not None:
            random.shuffle(turns)
        for task in turns:
            _resume(task)
            if task.ended:
                block.tasks.remove(task)
            elif task.wait is not None and task.wait.polls:
                polled.add(task)


def _resume(task: Task) -> None:
    assert task.run is not None
    try:
        task.wait = next(task.run)
    except StopIteration:
        task.run = task.wait = None


def _named(error: UserError, late: tuple[str, Loc] | None) -> UserError:
    """The error of a deadlocked launch with the line of a program that has not started, which would end one of its waits."""
    if late is not None:
        error.related, error.fix = (*error.related, late), TICKET
    return error


def stuck(live: Sequence[Block], pending: int, others: str = "") -> UserError:
    """The error for a deadlocked launch, or for those of several ranks. Waits that follow from other waits of the same program
    are listed last. `others`: message text about ranks without a launch."""
    waiters = [(task, task.wait) for block in live for task in block.tasks if task.wait is not None]
    waiters.sort(key=lambda waiter: waiter[1].follows)
    # If some task polls global memory, the missing bytes may belong to a load that it has not issued: report the deadlock.
    if not any(wait.polls for _, wait in waiters):
        for _, wait in waiters:
            starved = wait.starved()
            if starved is not None:
                return starved
    writers = (writer for _, wait in waiters for writer in wait.writers())
    related = (*_grouped(waiters), *dict.fromkeys(writers))
    programs = len({block.cluster for block in live})
    ranks = len({block.machine for block in live})
    waiting = f"{programs} programs" if programs > 1 else f"the tasks of program {live[0].pid}"
    waiting += f" of {ranks} ranks" if ranks > 1 else ""
    later = f", and {pending} more cannot start while {programs} are resident" if pending else ""
    error = fail(
        hazard.DEADLOCK,
        loc=waiters[0][1].loc,
        related=related,
        waiting=waiting,
        pending=later + others,
        fix=waiters[0][1].instead(),
    )
    assert isinstance(error, Hazard)
    error.buffer = next(filter(None, (wait.memory() for _, wait in waiters)), "")
    error.partitions = tuple(task.block.partition(task.slot) for task, _ in waiters)
    return error


def _grouped(waiters: list[tuple[Task, Wait]]) -> tuple[tuple[str, Loc], ...]:
    """One line of message text per source line where programs wait: the first program, and the number of others."""
    groups: dict[tuple[Machine, Loc, int, type[Wait]], list[tuple[Task, Wait]]] = {}
    for task, wait in waiters:
        if wait.loc is not None:
            groups.setdefault((task.machine, wait.loc, task.slot, type(wait)), []).append((task, wait))
    related: list[tuple[str, Loc]] = []
    for (_, loc, _, _), group in groups.items():
        task, wait = group[0]
        others = "one other program" if len(group) == 2 else f"{len(group) - 1} other programs"
        more = f"; so do{'es' * (len(group) == 2)} {others} at this line" if len(group) > 1 else ""
        related.append((f"{_who(task)} waits{wait.words()}{more}", loc))
    return tuple(related)


def _who(task: Task) -> str:
    several = task.machine.tasks * task.machine.blocks > 1
    return f"program {task.pid}" + (f", {task.block.partition(task.slot)}" if several else "")
