"""What operations of tcgen05 read and write, and how they begin: checks at once, data later, in the order of a pipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.ir.core import Op
from weft.ir.types import DType
from weft.sim.machine.blocks import Block
from weft.sim.machine.data import Array, Data
from weft.sim.machine.tasks import Task
from weft.sim.machine.tensor_order import Accumulators
from weft.sim.memory import places
from weft.sim.memory.clocks import join
from weft.sim.memory.places import Place
from weft.sim.memory.store import Handle
from weft.sim.memory.verdicts import WORDS, Mode
from weft.sim.numbers.arithmetic import bits_of
from weft.sim.rules.mbarrier import peer


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Elements of a block's shared or tensor memory."""

    task: Task
    block: Block
    handle: Handle
    place: Place
    element: DType

    @property
    def mine(self) -> Array | None:
        """Which elements the block has; None for all."""
        return self.place.mine

    def fetch(self) -> Array:
        """The elements as they are."""
        return places.fetch(self.task, self.handle, self.place, self.element, self.block)

    def put(self, values: Array) -> None:
        """Change the elements."""
        place, bits = self.place, bits_of(values)
        places.change(self.task, self.handle, place, self.element, place.written, place.chosen(bits), self.block)


def working_blocks(task: Task, op: Op, two_ctas: bool) -> list[Block]:
    """The blocks for which a task's operation works: its own, both of a pair, or none where the pair's other one does it.

    Raises BlockExited."""
    if not two_ctas:
        return [task.block]
    return [] if task.rank & 1 else [task.block, peer(task, op, task.rank | 1)]


class Started:
    """An operation that begins, a product that adds to `accumulators` or a copy: what it will read and write is checked and
    noted from now on."""

    __slots__ = ("_mode", "_op", "_pipe", "_task")

    def __init__(self, task: Task, op: Op, accumulators: Accumulators | None) -> None:
        self._task = task
        self._op = op
        self._mode: Mode = "cp" if accumulators is None else "mma"
        self._pipe = task.block.cluster.pipes[task.slot]
        self._pipe.begin(accumulators)

    def reads(self, part: Part, sink: str) -> None:
        """It reads elements that all have values. Raises OutOfBounds, UninitializedRead, UndefinedValue, hazards of both
        memories."""
        self._note(part, writes=False)
        self.demands(part, sink)

    def demands(self, part: Part, sink: str) -> None:
        """Elements have values. Raises UninitializedRead, UndefinedValue."""
        access, _ = WORDS[self._mode, False]
        places.demand_written(self._task, self._op, part.handle, part.place, part.element, sink, part.block, access)

    def writes(self, part: Part) -> None:
        """It gives elements values. Raises OutOfBounds, hazards of tensor memory."""
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
        """It is under way, behind the operations that are known to have been started."""
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
    """The elements of several blocks put together."""
    first, *others = parts
    values = first.fetch()
    for part in others:
        if part.mine is not None:
            values[part.mine] = part.fetch()[part.mine]
    return values


def flag(task: Task, op: Op, value: Data | None, name: str) -> bool:
    """A predicate that all threads share; None: it holds."""
    if value is None:
        return True
    task.demand(op, value, name)
    return bool(task.uniform(op, value, name).array)
