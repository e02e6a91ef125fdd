"""Tasks, and the execution of regions by a task.

A task is one partition of a block (the whole block unless the kernel is warp-specialised). It runs as a generator, so that it
can be suspended while it waits for another task (`weft.sim.machine.schedule`). Its threads run in lockstep: an operation acts
on arrays over all threads. Under divergence of threads, or of the elements that a function is mapped over, `active` is the mask
for which a region executes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from math import prod
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from weft.analysis.steering import NOTHING, steering_of
from weft.errors import Hazard, Loc, Row, UserError, fail, hazard
from weft.ir.core import Func, Op, Region, Value, walk
from weft.ir.types import SharedArrayType, SharedType, TileType
from weft.layout import WARP_SIZE
from weft.ops import control
from weft.sim.machine.agents import Schedule
from weft.sim.machine.code import Code, compile_region
from weft.sim.machine.data import Array, Data, Mark, where_marked
from weft.sim.machine.findings import Findings
from weft.sim.machine.hardware import own_part_of, part_of
from weft.sim.machine.naming import Naming
from weft.sim.machine.pending import Pending
from weft.sim.machine.report import Report
from weft.sim.machine.wait import Run, Wait
from weft.sim.memory.heap import Access, Heap
from weft.sim.memory.races import Races
from weft.sim.memory.shadow import Event
from weft.sim.memory.store import SHARED, TENSOR, Lifetime
from weft.sim.memory.verdicts import Mode
from weft.sim.numbers import divisions
from weft.sim.numbers.arithmetic import bits_of
from weft.sim.numbers.products import NotReady, misused
from weft.targets import Target

if TYPE_CHECKING:
    from weft.sim.machine.blocks import Block

Uninitialized = Literal["error", "poison", "ignore"]


class Machine:
    """The state that all blocks of one launch share."""

    __slots__ = (
        "_codes", "blocks", "found", "func", "granule", "grid", "hazards", "heap", "idle", "names", "output", "pending",
        "plain", "races", "random", "report", "schedule", "seed", "steering", "target", "tasks", "threads", "two_ctas",
        "uninitialized",
    )  # fmt: skip

    def __init__(
        self,
        func: Func,
        grid: tuple[int, int, int],
        heap: Heap,
        target: Target,
        output: Callable[[str], None],
        *,
        seed: int = 0,
        hazards: bool = True,
        schedule: Schedule | None = None,
        uninitialized: Uninitialized = "error",
        keep_going: bool = False,
    ) -> None:
        self.func = func
        self.grid = grid
        self.heap = heap
        self.target = target
        self.output = output
        # Set when the launch begins.
        self.pending = Pending((), 0)
        self.found = Findings(keep_going)
        self.report = Report(hazards=self.found.hazards)
        block = func.attrs.block
        self.threads = func.attrs.num_warps * WARP_SIZE if block is None else prod(block)
        self.seed, self.random = seed, Random(seed)
        self.schedule: Schedule = schedule or ("random" if seed else "late")
        self.hazards = hazards
        self.uninitialized: Uninitialized = uninitialized
        self.granule, self.tasks = _shared_granule(func), _task_count(func)
        self.blocks = func.attrs.num_ctas
        # True if blocks work in pairs and the even block issues the MMAs of both (`.cta_group::2`).
        self.two_ctas = func.attrs.two_ctas
        # True if there is one task, and only threads and their cp.async copies access shared memory: a barrier orders all.
        self.plain = self.tasks == self.blocks == 1 and not _uses_async_proxy(func)
        self.names = Naming(func)
        self.steering = steering_of(func) if hazards else NOTHING
        self.races = Races(heap, self.tasks * self.blocks, self.steering) if hazards else None
        # For each barrier or fence of the author, how often it ran and how often it had nothing to order.
        self.idle: dict[Op, tuple[int, int]] = {}
        self._codes: dict[Region, Code] = {}

    @property
    def lowered(self) -> bool:
        """True for a function of the lowered stage."""
        return self.func.attrs.stage == "lowered"

    def overtakes(self) -> bool:
        """True if other programs run before one whose wait has just ended; random under a seed, False without."""
        return self.seed != 0 and self.random.random() < 0.5

    def code(self, region: Region) -> Code:
        """The region prepared for execution, cached."""
        if region not in self._codes:
            self._codes[region] = compile_region(region)
        return self._codes[region]

    def print(self, line: str) -> None:
        """Print a line of the kernel's output."""
        self.report.lines.append(line)
        self.output(line)

    def ordered(self, op: Op, useful: bool) -> None:
        """Record whether a barrier or fence of the author had anything to order."""
        if not op.attrs.get("reason") and not op.attrs.get("of"):
            runs, idle = self.idle.get(op, (0, 0))
            self.idle[op] = runs + 1, idle + (not useful)

    def advise_idle(self) -> None:
        """Advise against barriers and fences that never ordered anything."""
        for op, (runs, idle) in self.idle.items():
            if runs == idle:
                self.report.advise(
                    "redundant-sync", f"{op.name} orders nothing here: nothing happened since the last one", op.loc
                )


def _shared_granule(func: Func) -> int:
    """Size in bytes of the smallest element in shared memory."""
    types = (value.type for op in walk(func.body) for value in op.results)
    return min((t.element.itemsize for t in types if isinstance(t, (SharedType, SharedArrayType))), default=4)


def _task_count(func: Func) -> int:
    """The maximum number of tasks of a block that run concurrently."""
    kinds = (control.warp_specialize, control.partitions)
    return max((len(op.regions) for op in walk(func.body) if op.kind in kinds), default=1)


def _uses_async_proxy(func: Func) -> bool:
    """True if the async proxy (TMA, wgmma) may access shared memory."""
    effects = (effect for op in walk(func.body) for effect in op.effects)
    return any(effect.proxy == "async" or effect.completes in ("mbarrier", "bulk", "wgmma") for effect in effects)


class Task:
    """A partition of a block: its values, its threads, its vector clock, and the mask of active threads or elements (None:
    all). `slot`: its number in the cluster. `arrived` and `awaited` count its arrivals and waits at the cluster's barrier.
    `sealed`: the event counts of the task and of its block's shared memory at the last arrival."""

    __slots__ = (
        "active", "arrived", "awaited", "block", "clock", "env", "last_read", "machine", "pid", "place", "reads", "run",
        "sealed", "settled", "slot", "threads", "wait",
    )  # fmt: skip

    def __init__(self, block: Block, slot: int, threads: int) -> None:
        self.block = block
        self.machine = block.machine
        self.pid = block.pid
        self.slot = slot
        self.threads = threads
        self.clock = block.cluster.clocks[slot]
        self.arrived = self.awaited = 0
        self.sealed: tuple[int, int] = (0, 0)
        self.env: dict[Value, Data] = {}
        self.active: Array | None = None
        self.reads = 0
        self.last_read: Access | None = None
        self.run: Run | None = None
        self.wait: Wait | None = None
        # The task's number across the launch.
        self.place = block.cluster.number * len(block.cluster.clocks) + slot
        # Events of the task before this one are ordered for all its threads with respect to global memory.
        self.settled = 0

    @property
    def ended(self) -> bool:
        """True once the task's region has ended."""
        return self.run is None

    @property
    def warps(self) -> int:
        """The number of warps."""
        return -(-self.threads // WARP_SIZE)

    @property
    def rank(self) -> int:
        """The rank of the task's block in the cluster."""
        return self.block.rank

    @property
    def names(self) -> Naming:
        """The names of threads in reports."""
        return self.machine.names

    def part(self, value: Value | None) -> Array | None:
        """Mask of a tile's elements that the task's block holds; None for all."""
        if (
            self.machine.blocks == 1
            or value is None
            or not isinstance(value.type, TileType)
            or value.type.linear is None
        ):
            return None
        held = part_of(value.type.linear, self.rank)
        return None if held is None else held.reshape(value.type.shape)

    def held(self, value: Value | None, mask: Array | None) -> Array | None:
        """A mask restricted to active elements that the task's block holds."""
        return _both(self.under(mask), self.part(value))

    def own(self, value: Value | None, mask: Array | None) -> Array | None:
        """A mask restricted to active elements for which the task's block performs effects that happen once in the cluster: the
        elements of which it is the lowest-ranked holder, and scalars in block 0."""
        active = self.under(mask)
        if self.machine.blocks == 1 or self.machine.lowered or value is None:
            return active
        if not isinstance(value.type, TileType) or value.type.linear is None:
            return active if self.rank == 0 else np.bool_(False)
        owned = own_part_of(value.type.linear, self.rank, self.machine.blocks)
        return active if owned is None else _both(active, owned.reshape(value.type.shape))

    def event(
        self,
        op: Op,
        mode: Mode,
        writes: bool,
        memory: Lifetime,
        component: int = -1,
        value: int = 0,
        atomic: bool = False,
    ) -> Event:
        """The event of an access that completes at once, or (given a component) when the component has counted past `value`."""
        if component < 0:
            component, value = self.slot, self.clock.tick()
        return Event(component, value, mode, writes, self.slot, op, memory, atomic)

    def barrier(self) -> None:
        """A barrier of all threads of the task."""
        self.clock.barrier()
        self.block.meet(self.clock)

    def fail(self, entry: Row, op: Op, **fields: Any) -> UserError:
        """The exception of a catalogue row at an operation of this program. The field `name` is the memory at fault."""
        error = fail(entry, loc=op.loc, program=self.pid, **fields)
        if isinstance(error, Hazard):
            error.buffer = str(fields.get("name", ""))
            if isinstance(error, hazard.OutOfBounds) and fields.get("index", 0) < 0:
                error.fix += divisions.hint(self.machine.report)
            error.partitions = (self.block.partition(self.slot),)
        return error

    def under(self, mask: Array | None) -> Array | None:
        """A mask restricted to active threads or elements."""
        if mask is None or self.active is None:
            return self.active if mask is None else mask
        return mask & self.active

    @contextmanager
    def only(self, mask: Array) -> Generator[None, None, None]:
        """Restrict the active threads or elements to `mask`."""
        before = self.active
        self.active = mask if before is None else mask & before
        try:
            yield
        finally:
            self.active = before

    def where(self, shape: tuple[int, ...], flat: int) -> str:
        """Message text for one element of an array, given by its row-major index."""
        if len(shape) == 0:
            return "a scalar"
        index = tuple(int(i) for i in np.unravel_index(flat, shape))
        if self.names.of_threads(shape, self.threads):
            registers = prod(shape[1:])
            return self.names.thread(index[0]) + (f", register {flat % registers}" if registers > 1 else "")
        return f"index {index}" if len(index) > 1 else f"index {flat}"

    def demand(self, op: Op, data: Data | None, sink: str, mask: Array | None = None) -> None:
        """Check that a value has no undefined active elements under `mask`, before it is used. Raises UndefinedValue."""
        if data is None or data.undefined is None:
            return
        bad = where_marked(data.undefined, np.shape(data.array), self.under(mask))
        if bad is not None:
            self.refuse(op, data.undefined, sink, bad)

    def refuse(self, op: Op, mark: Mark, sink: str, bad: Array) -> None:
        """Report an undefined element that reaches `sink`. The run can continue if the element is only stored."""
        if sink not in STORED:
            raise self.undefined(op, mark, sink, bad)
        if not self.machine.found.known(sink, op):
            self.machine.found.add(self.undefined(op, mark, sink, bad), sink, op)

    def undefined(self, op: Op, mark: Mark, sink: str, bad: Array) -> UserError:
        """The error for an undefined element that reaches `sink`."""
        where = f" ({self.where(np.shape(bad), int(np.argmax(bad)))})" if np.ndim(bad) else ""
        related: tuple[tuple[str, Loc], ...] = () if mark.loc is None else (("the element comes from", mark.loc),)
        if mark.cause == DIVIDED:
            return fail(hazard.DIVISION, loc=mark.loc, program=self.pid, where=where)
        entry = (
            hazard.UNDEFINED_SHARED if mark.cause in (SHARED.never_written, TENSOR.never_written) else hazard.UNDEFINED
        )
        return fail(entry, loc=op.loc, related=related, program=self.pid, sink=sink, where=where, cause=mark.cause)

    def uniform(self, op: Op, data: Data, what: str) -> Data:
        """A scalar that must be uniform over the active threads, with shape (). Raises BrokenPromise."""
        if data.array.ndim == 0:
            return data
        self.demand(op, data, what)
        active = np.broadcast_to(True if self.active is None else self.active, data.array.shape)
        chosen = np.flatnonzero(active)
        if not chosen.size:
            return Data(data.array.ravel()[0])
        flat = data.array.ravel()[chosen]
        differs = np.flatnonzero(bits_of(flat) != bits_of(flat[0]))
        if differs.size:
            raise self._differing(op, what, "the block", data, int(chosen[0]), int(chosen[differs[0]]))
        return Data(flat[0])

    def warp_uniform(self, op: Op, data: Data, what: str) -> Data:
        """A scalar that must be uniform over the active threads of each warp. Raises BrokenPromise."""
        if data.array.ndim == 0:
            return data
        self.demand(op, data, what)
        active = np.broadcast_to(True if self.active is None else self.active, data.array.shape)
        chosen = np.flatnonzero(active)
        warps, firsts = np.unique(chosen // WARP_SIZE, return_index=True)
        first = chosen[firsts[np.searchsorted(warps, chosen // WARP_SIZE)]]
        bits = bits_of(data.array.ravel())
        differs = np.flatnonzero(bits[chosen] != bits[first])
        if differs.size:
            at = int(differs[0])
            raise self._differing(op, what, "a warp", data, int(first[at]), int(chosen[at]))
        return data

    def _differing(self, op: Op, what: str, scope: str, data: Data, first: int, second: int) -> UserError:
        values, thread = data.array.ravel(), self.names.thread
        return self.fail(
            hazard.NOT_UNIFORM, op, what=what, scope=scope, first=thread(first), first_value=values[first],
            second=thread(second), second_value=values[second],
        )  # fmt: skip


def _both(first: Array | None, second: Array | None) -> Array | None:
    """The conjunction of two masks; None stands for all."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


STORED = ("a store", "an atomic")  # sinks whose values decide neither control flow nor an address
DIVIDED = "it is the result of a division by zero"


def execute(task: Task, region: Region, args: Sequence[Data]) -> Run:
    """Execute a region with these arguments; returns the operands of its terminator."""
    code = task.machine.code(region)
    env = task.env
    env.update(zip(code.args, args, strict=True))
    task.machine.report.operations += len(code.steps)
    op = code.end.op
    try:
        for step in code.steps:
            op = step.op
            out: Any = step.rule(task, op, *[None if v is None else env[v] for v in step.operands])
            if step.suspends:
                running: Run = out
                env.update(zip(step.results, (yield from running), strict=True))
            elif step.single is not None:
                env[step.single] = out
            elif step.results:
                env.update(zip(step.results, out, strict=True))
            for value in step.dead:
                env.pop(value, None)
        op = code.end.op
        return code.end.rule(task, op, *[env[v] for v in code.end.operands if v is not None])
    except NotReady as early:
        raise misused(task, op, early.accumulator) from None
