"""Operands of tcgen05 operations, and their issue: checks happen at once, data moves later, in the order of the pipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.ir.core import Op
from weft.ir.types import DType
from weft.sim.machine.data import Array, Data
from weft.sim.machine.tasks import Block, Task
from weft.sim.machine.tensor_order import Accumulators
from weft.sim.memory import places
from weft.sim.memory.clocks import join
from weft.sim.memory.events import EventMode
from weft.sim.memory.places import Place
from weft.sim.memory.spaces import Handle
from weft.sim.memory.verdicts import WORDS
from weft.sim.numbers.arithmetic import bits_of
from weft.sim.rules.mbarrier import peer


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """An operand: elements of a block's shared or tensor memory."""

    task: Task
    block: Block
    handle: Handle
    place: Place
    element: DType

    @property
    def mine(self) -> Array | None:
        """Mask of the elements that the block holds; None for all."""
        return self.place.mine

    def fetch(self) -> Array:
        """The stored elements."""
        return places.fetch(self.task, self.handle, self.place, self.element, self.block)

    def put(self, values: Array) -> None:
        """Store the elements."""
        place, bits = self.place, bits_of(values)
        places.change(self.task, self.handle, place, self.element, place.written, place.chosen(bits), self.block)


def working_blocks(task: Task, op: Op, two_ctas: bool) -> list[Block]:
    """The blocks that a task's operation serves: its own; both of a pair; or none, if the other block of the pair issues it.

    Raises BlockExited."""
    if not two_ctas:
        return [task.block]
    return [] if task.rank & 1 else [task.block, peer(task, op, task.rank | 1)]


class Started:
    """An operation that is being issued: an MMA with its `accumulators`, or a copy (None). Its reads and writes are checked and
    recorded at issue."""

    __slots__ = ("_mode", "_op", "_pipe", "_task")

    def __init__(self, task: Task, op: Op, accumulators: Accumulators | None) -> None:
        self._task = task
        self._op = op
        self._mode: EventMode = "cp" if accumulators is None else "mma"
        self._pipe = task.block.cluster.pipes[task.slot]
        self._pipe.begin(accumulators)

    def reads(self, part: Part, sink: str) -> None:
        """Record a read of elements, which must all have values. Raises OutOfBounds, UninitializedRead, UndefinedValue, and
        the hazards of both memories."""
        self._note(part, writes=False)
        self.demands(part, sink)

    def demands(self, part: Part, sink: str) -> None:
        """Check that elements have values. Raises UninitializedRead, UndefinedValue."""
        access, _ = WORDS[self._mode, False]
        places.demand_written(self._task, self._op, part.handle, part.place, part.element, sink, part.block, access)

    def writes(self, part: Part) -> None:
        """Record a write of elements. Raises OutOfBounds, and the hazards of tensor memory."""
        self._note(part, writes=True)
        memory = part.handle.memory
        part.block.store(memory.space).written(memory, part.place.area.where)

    def _note(self, part: Part, writes: bool) -> None:
        task, op, pipe, handle, place = self._task, self._op, self._pipe, part.handle, part.place
        places.check_bounds(task, op, handle, place, part.element, WORDS[self._mode, writes][0])
        places.note(
            task, op, handle, place, self._mode, writes, component=pipe.component, value=pipe.count, block=part.block
        )

    def go_on(self, work: Callable[[], None]) -> None:
        """Put the operation in flight, ordered behind the operations of other pipes that are known to have been issued."""
        task, pipe = self._task, self._pipe
        clock = task.clock
        behind = [(other, clock.known.get(other.issued, 0)) for other in task.block.cluster.pipes if other is not pipe]

        def move() -> None:
            for other, count in behind:
                other.run(count)
            work()

        count = pipe.add(move)
        join(clock.elected, {pipe.issued: count})
        task.block.agents.start(self._op, lambda: pipe.run(count))


def whole(parts: list[Part]) -> Array:
    """The elements of several blocks, combined."""
    first, *others = parts
    values = first.fetch()
    for part in others:
        if part.mine is not None:
            values[part.mine] = part.fetch()[part.mine]
    return values


def flag(task: Task, op: Op, value: Data | None, name: str) -> bool:
    """The value of a predicate, which must be uniform; True without one."""
    if value is None:
        return True
    task.demand(op, value, name)
    return bool(task.uniform(op, value, name).array)
