"""Which block runs when.

Blocks start in the order of the grid and each runs until it ends or waits. A block that waits lets the next one start, up to
how many are resident at once, as on a GPU that places blocks in order and never takes one away. A block that waits for memory
is resumed once memory has changed; when all wait and no more can start, it is a deadlock. The order is a function of the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from weft.errors import UserError, fail, hazard
from weft.sim.data import Data
from weft.sim.machine import Block, Machine, Run, Wait, execute

Pid = tuple[int, int, int]


@dataclass(slots=True, eq=False)
class Task:
    """A block that has started: its execution, why it stopped last, and how often memory had changed by then."""

    block: Block
    run: Run
    wait: Wait | None = None
    seen: int = -1

    def can_move(self, writes: int) -> bool:
        """False when it would only repeat what it did."""
        return self.wait is None or not self.wait.stuck or self.seen != writes


def run_blocks(
    machine: Machine,
    programs: Sequence[Pid],
    arguments: tuple[Data, ...],
    resident: int,
    seed: int,
    finished: Callable[[], None],
) -> None:
    """Run every program to its end. Raises Deadlock, and whatever the programs raise. `finished` is called after each."""
    random = Random(seed)
    waiting = list(reversed(programs))
    live: list[Task] = []
    while waiting or live:
        turns = [task for task in live if task.can_move(machine.heap.writes)]
        if seed:
            random.shuffle(turns)
        if waiting and len(live) < resident:
            block = Block(machine, waiting.pop())
            turns.append(Task(block, execute(block, machine.func.body, arguments)))
            live.append(turns[-1])
        if not turns:
            raise deadlock(machine, live, len(waiting))
        for task in turns:
            if _advance(task):
                live.remove(task)
                finished()


def _advance(task: Task) -> bool:
    """Run until it waits (False) or has ended (True)."""
    heap = task.block.machine.heap
    try:
        task.wait = next(task.run)
    except StopIteration:
        task.block.machine.report.programs += 1
        return True
    task.seen = heap.writes
    return False


def deadlock(machine: Machine, live: list[Task], pending: int) -> UserError:
    """The report of a launch in which nothing can move."""
    related = tuple(
        (f"program {task.block.pid} waits{_watched(machine, task.block)}", task.wait.loc)
        for task in live
        if task.wait is not None and task.wait.loc is not None
    )
    waiting = f"{len(live)} programs" if len(live) > 1 else f"program {live[0].block.pid}"
    later = f", and {pending} more cannot start while {len(live)} are resident" if pending else ""
    loc = live[0].wait.loc if live[0].wait is not None else None
    return fail(hazard.DEADLOCK, loc=loc, related=related, waiting=waiting, pending=later)


def _watched(machine: Machine, block: Block) -> str:
    """Words for the memory that a block read last."""
    access = block.last_read
    if access is None or access.addresses.size == 0:
        return ""
    address = int(access.addresses.min())
    segment = machine.heap.segment_at(address)
    if segment is None:
        return ""
    return f" for {segment.buffer.name}[{(address - segment.pointer) // access.itemsize}]"
