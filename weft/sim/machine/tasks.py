"""Programs: their blocks, which own memories, mbarriers and agents, and the tasks that execute regions.

Most programs are one block. A program that is a cluster has several blocks, which are resident together. A task is one
partition of a block (the whole block unless the kernel is warp-specialised). It runs as a generator, so that it can be
suspended while it waits for another task (`weft.sim.machine.schedule`). Its threads run in lockstep: an operation acts on
arrays over all threads. Under divergence of threads, or of the elements that a function is mapped over, `active` is the mask
for which a region executes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from weft.errors import Hazard, Loc, Row, UserError, fail, hazard
from weft.ir.core import Op, Region, Value
from weft.ir.types import TileType
from weft.layout import WARP_SIZE
from weft.layout.cluster import receivers
from weft.ops import mma, tcgen05
from weft.sim.machine.agents import Agents, Groups, Pipe
from weft.sim.machine.barriers import Agent, Barrier
from weft.sim.machine.crews import Crew
from weft.sim.machine.data import Array, Data, Mark, where_marked
from weft.sim.machine.hardware import own_part_of, part_of
from weft.sim.machine.machine import Machine
from weft.sim.machine.naming import Naming
from weft.sim.machine.parting import behind, running
from weft.sim.machine.pending import Response
from weft.sim.machine.wait import Polled, Run, Wait
from weft.sim.memory.clocks import Clock, Released
from weft.sim.memory.events import Event, EventMode
from weft.sim.memory.heap import HeapAccess, Made
from weft.sim.memory.shadow import Shadow
from weft.sim.memory.spaces import COLUMN_BYTES, SHARED, TENSOR, Allocation, Space
from weft.sim.memory.store import Store
from weft.sim.memory.verdicts import SHARED_ORDERING, TENSOR_ORDERING, clashing, task_words
from weft.sim.numbers import divisions
from weft.sim.numbers.arithmetic import bits_of
from weft.sim.numbers.products import InFlight, NotReady


class Cluster:
    """One program: its coordinates in the grid, its number in start order, and its blocks.

    `first`: the number of its first task, of all tasks that have started.

    `slot` numbers the tasks of all blocks together. Each task has a clock, bulk groups, cp.async batches, wgmma groups, and a
    pipe of tcgen05 operations. `rounds`: what each phase of the cluster's barrier published. `refused`: the responses of
    clusterlaunchcontrol requests that found no program left. `exchanges`: the last exchange of tiles between the blocks, by
    operation and partition. `repeated`: how often each block has come to an operation that one of them executes for all whose
    ranks differ in some bits, by operation and bits."""

    __slots__ = (
        "_components", "blocks", "bulk", "clocks", "copies", "exchanges", "first", "machine", "number", "pid", "pipes",
        "products", "refused", "repeated", "rounds",
    )  # fmt: skip

    def __init__(self, machine: Machine, pid: tuple[int, int, int]) -> None:
        self.machine = machine
        self.pid = pid
        self.number, self.first = machine.log.begin(machine.tasks * machine.blocks, machine.launch)
        self.clocks = [Clock(slot) for slot in range(machine.tasks * machine.blocks)]
        if machine.member is not None:
            machine.member.starts(self.first, self.clocks)
        self._components = len(self.clocks)
        self.bulk = [Groups(self.component(), self.component()) for _ in self.clocks]
        self.copies = [Groups(self.component()) for _ in self.clocks]
        self.products = [Groups(self.component()) for _ in self.clocks]
        self.pipes = [Pipe(self.component(), self.component()) for _ in self.clocks]
        self.rounds: list[Released] = []
        self.refused: list[Response] = []
        self.exchanges: dict[tuple[Op, int], Exchange] = {}
        self.repeated: dict[tuple[Op, int], list[int]] = {}
        self.blocks = [Block(self, rank) for rank in range(machine.blocks)]

    def component(self) -> int:
        """Allocate a new component of the clocks."""
        self._components += 1
        return self._components - 1

    @property
    def tasks(self) -> Iterator[Task]:
        """The tasks of all blocks that are still running."""
        return (task for block in self.blocks for task in block.tasks)


class Block:
    """A block, at its rank in the cluster: its memories, mbarriers, agents and tasks, the descriptors that it made, and for
    each address the last response of a clusterlaunchcontrol request. `puts`: by task and rank, puts whose data may still have
    to move. `released`: it has called `gdc_launch_dependents`."""

    __slots__ = (
        "_stores",
        "agents",
        "barriers",
        "cluster",
        "ended",
        "machine",
        "made",
        "meetings",
        "pid",
        "puts",
        "rank",
        "released",
        "responses",
        "tasks",
    )

    def __init__(self, cluster: Cluster, rank: int = 0) -> None:
        self.cluster = cluster
        self.machine = machine = cluster.machine
        self.pid = cluster.pid
        self.rank = rank
        self.tasks: list[Task] = []
        self.ended = self.released = False
        self.agents = Agents(machine.schedule, machine.random)
        self.barriers: dict[int, Barrier] = {}
        self.responses: dict[int, Response] = {}
        self.made: dict[Op, Made] = {}
        self.meetings: dict[int, Meeting] = {}
        self.puts: dict[tuple[int, int], list[Agent]] = {}
        self._stores: dict[Space, Store] = {}

    def store(self, space: Space) -> Store:
        """The block's memory of a space, created on first use."""
        found = self._stores.get(space)
        if found is None:
            machine = self.machine
            found = Store(
                space, machine.func.attrs.shared_bytes if space is SHARED else 0, machine.granule,
                self._shadow(space) if machine.hazards else None, machine.uninitialized == "ignore",
            )  # fmt: skip
            self._stores[space] = found
        return found

    def _shadow(self, space: Space) -> Shadow:
        machine, tensor = self.machine, space is TENSOR
        return Shadow(
            self.pid, machine.tasks, machine.blocks, self.rank, machine.plain and not tensor, machine.names, machine.found,
            TENSOR_ORDERING if tensor else SHARED_ORDERING, self.cluster.pipes if tensor else (), machine.meets,
        )  # fmt: skip

    def _known(self, space: Space) -> Shadow | None:
        """The shadow of a space, if its memory exists and hazards are checked."""
        found = self._stores.get(space)
        return None if found is None else found.shadow

    def start(self, slot: int, region: Region, args: Sequence[Data], threads: int, env: dict[Value, Data]) -> Task:
        """Start a task for a partition of the block."""
        task = Task(self, self.rank * self.machine.tasks + slot, threads)
        task.env.update(env)
        if self.machine.crews:
            task.crew = Crew(threads)
            task.run = task.crew.run(task, lambda: execute(task, region, args), env)
        else:
            task.run = execute(task, region, args)
        self.tasks.append(task)
        return task

    def partition(self, slot: int) -> str:
        """The name of a task of the cluster in reports."""
        return task_words(slot, self.machine.tasks, self.machine.blocks)

    @property
    def events(self) -> int:
        """The number of accesses to the block's shared memory so far."""
        known = self._known(SHARED)
        return 0 if known is None else known.count

    def meet(self, clock: Clock, events: int | None = None) -> None:
        """A barrier of all threads of a task. `events`: the shared-memory event count at its arrival (None: now)."""
        shared, tensor = self._known(SHARED), self._known(TENSOR)
        if shared is not None:
            shared.barrier(clock, events)
        # Between arrive and wait of the cluster's barrier threads may have accessed memory again. There is no event count of
        # tensor memory at the arrival, so later reads stay grouped with the earlier ones, which is conservative.
        if tensor is not None and events is None:
            tensor.barrier(clock)

    def expect_response(self, place: int, response: Response) -> None:
        """A response will be written to `place` in shared memory. Raises LaunchControlMisuse if it overwrites an unread one."""
        self._keep(self.responses.get(place), "when the next one is requested", response.op)
        self.responses[place] = response
        if response.program is None and response not in self.cluster.refused:
            self.cluster.refused.append(response)

    def _keep(self, response: Response | None, end: str, op: Op) -> None:
        """Check that a response with a program was read. Raises LaunchControlMisuse."""
        if response is not None and response.program is not None and not response.used:
            label = "it was asked for here"
            fields: dict[str, Any] = {"program": self.pid, "taken": response.program, "end": end}
            raise clashing(hazard.CLC_LOST, op.loc, response.op.loc, label, "", (), fields)

    def finish(self) -> None:
        """The block has ended: agents finish, and operations without a wait are reported. Raises StoreUnread, BlockExited,
        BlocksDivided, TensorMemoryInUse, TensorMemoryKept, and LaunchControlMisuse if the cluster has ended without reading a
        response."""
        self.ended = True
        self.agents.finish()
        machine, cluster = self.machine, self.cluster
        if not self.released:
            # The end of all tasks follows each of their waits.
            for clock in cluster.clocks[self.rank * machine.tasks : (self.rank + 1) * machine.tasks]:
                machine.dependence.release(clock)
        if not machine.hazards:
            return
        if all(block.ended for block in cluster.blocks):
            self._check_repeated()
            for response in [response for block in cluster.blocks for response in block.responses.values()]:
                self._keep(response, "at its end", response.op)
        own = slice(self.rank * machine.tasks, (self.rank + 1) * machine.tasks)
        for slot, groups in enumerate(cluster.bulk[own], own.start):
            for agent in groups.running:
                raise self._unread(agent, slot)
        self._check_visitors(cluster.clocks[own.start])
        self.free_tensor_memory(cluster.clocks[own.start])
        kept = self._stores[TENSOR].reserved if TENSOR in self._stores else None
        if kept is not None:
            columns = kept.size // COLUMN_BYTES
            raise fail(hazard.TENSOR_KEPT, loc=kept.op.loc, program=self.pid, columns=columns)
        flights = [agent for barrier in self.barriers.values() for agent in barrier.flights]
        flights = [agent for agent in flights if agent.op.kind is not tcgen05.commit]
        for agent in (*flights, *(agent for groups in cluster.copies[own] for agent in groups.running)):
            machine.report.advise(
                "in-flight-at-exit", "no thread waits for this copy before the kernel ends", agent.op.loc
            )
        for agent in (agent for groups in cluster.products[own] for agent in groups.running):
            machine.report.advise(
                "in-flight-at-exit", "no thread waits for this MMA before the kernel ends", agent.op.loc
            )

    def _check_repeated(self) -> None:
        """Check that all blocks have come as often to what one of them does for them all. Raises BlocksDivided."""
        for (op, bits), counts in self.cluster.repeated.items():
            for rank, times in enumerate(counts):
                first = rank & ~bits
                if times != counts[first]:
                    fields: dict[str, Any] = {"what": op.name, "first": first, "once": counts[first], "times": times}
                    raise fail(hazard.BLOCKS_DIVIDED, loc=op.loc, program=self.pid, other=rank, **fields)

    def _check_visitors(self, clock: Clock) -> None:
        """Check that this block ends after the accesses of other blocks' threads to its shared memory: it must know of them by
        a cluster barrier. Raises BlockExited."""
        shadow = self._known(SHARED)
        late = None if shadow is None or self.machine.blocks == 1 else shadow.unknown_visit(clock, self.barriers.keys())
        if late is not None:
            raise self.exited(late.op, late.slot)

    def exited(self, op: Op, slot: int) -> UserError:
        """The hazard of an access to this block's memory, by a task of another block, that nothing orders before its end."""
        other = slot // self.machine.tasks
        return fail(hazard.BLOCK_EXITED, loc=op.loc, program=self.pid, block=other, other=self.rank)

    def free_tensor_memory(self, clock: Clock) -> None:
        """Deallocate the block's tensor memory. Raises TensorMemoryInUse if an operation on it may be in flight."""
        shadow = self._known(TENSOR)
        event = None if shadow is None else shadow.under_way(clock)
        if event is not None:
            loc, name, names = event.op.loc, event.memory.name, (self.partition(event.slot), self.partition(clock.slot))
            fields: dict[str, Any] = {"program": self.pid, "name": name, "other": names[0]}
            raise clashing(hazard.TENSOR_AT_EXIT, loc, loc, "it was started here", name, names, fields)

    def _unread(self, agent: Agent, slot: int) -> Hazard:
        loc = agent.op.loc
        fields: dict[str, Any] = {"program": self.pid, "name": agent.name, "partition": self.partition(slot)}
        return clashing(
            hazard.STORE_UNREAD, loc, loc, "the store was started here", agent.name, (self.partition(slot),), fields
        )


class Task:
    """A partition of a block: its values, its threads, its vector clock, and the mask of active threads or elements (None:
    all). `slot`: its number in the cluster. `arrived` and `awaited` count its arrivals and waits at the cluster's barrier.
    `sealed`: the event counts of the task and of its block's shared memory at the last arrival."""

    __slots__ = (
        "active", "arrived", "awaited", "block", "clock", "crew", "env", "last_read", "machine", "number", "pid", "reads",
        "run", "sealed", "settled", "slot", "threads", "wait",
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
        # What a loop that polls has read last.
        self.last_read: HeapAccess | Polled | None = None
        self.run: Run | None = None
        self.crew: Crew | None = None
        self.wait: Wait | None = None
        # The task's number across the launch.
        self.number = block.cluster.first + slot
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
    def program(self) -> int:
        """The number of the task's program, in start order."""
        return self.block.cluster.number

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

    def acts(self, op: Op, bits: int = -1) -> bool:
        """Whether the task's block executes an operation that one block executes for all whose rank differs in these bits, or
        each for itself (`weft.analysis.apart`)."""
        if self.machine.lowered or op in self.machine.apart.each:
            return True
        self._repeats(op, bits)
        return not self.rank & bits

    def _repeats(self, op: Op, bits: int) -> None:
        """Note that the task's block has come to an operation that one block executes for all which differ in these bits."""
        count = self.machine.blocks
        if bits & count - 1:
            self.block.cluster.repeated.setdefault((op, bits & count - 1), [0] * count)[self.rank] += 1

    def sends(self, op: Op, sharing: int) -> bool:
        """Whether the task's block sends to all whose rank differs in the bits `sharing`: it is the operation's `sender`, or
        reaches it under a condition that differs between blocks."""
        sender = int(op.attrs.get("sender", 0))
        divided = self.machine.lowered or (op in self.machine.apart.under and not sender)
        if not divided:
            self._repeats(op, sharing)
        return divided or self.rank & sharing == sender

    def own(self, op: Op, value: Value | None, mask: Array | None) -> Array | None:
        """A mask restricted to active elements for which the task's block performs an operation that happens once in the
        cluster: the elements of which it is the lowest-ranked holder, and scalars in block 0. Of an operation that each block
        executes for itself, those that it holds."""
        active = self.under(mask)
        if self.machine.blocks == 1 or self.machine.lowered or value is None:
            return active
        if op in self.machine.apart.each:
            return self.held(value, mask)
        if not isinstance(value.type, TileType) or value.type.linear is None:
            self._repeats(op, -1)
            return active if self.rank == 0 else np.bool_(False)
        self._repeats(op, receivers(value.type.linear, self.machine.blocks))
        owned = own_part_of(value.type.linear, self.rank, self.machine.blocks)
        return active if owned is None else _both(active, owned.reshape(value.type.shape))

    def event(
        self,
        op: Op,
        mode: EventMode,
        writes: bool,
        memory: Allocation,
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

    def has_undefined(self, data: Data) -> bool:
        """Whether a value has undefined active elements."""
        return (
            data.undefined is not None
            and where_marked(data.undefined, np.shape(data.array), self.under(None)) is not None
        )

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
        error = fail(entry, loc=op.loc, related=related, program=self.pid, sink=sink, where=where, cause=mark.cause)
        if mark.cause == NEVER_STORED:
            error.fix = OWN_ARRAY
        return error

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
NEVER_STORED = "the element of the thread's own array that it was read from was never written"
OWN_ARRAY = (
    "write each element of a thread's own array before reading it; for memory that all threads of the block share, allocate it "
    "with address_space=gl.AddressSpace.SHARED"
)
DIVIDED = "it is the result of a division by zero"


def execute(task: Task, region: Region, args: Sequence[Data]) -> Run:
    """Execute a region with these arguments; returns the operands of its terminator."""
    code = task.machine.code(region)
    env = task.env
    env.update(zip(code.args, args, strict=True))
    task.machine.report.operations += len(code.steps)
    op = code.end.op
    try:
        steps = iter(code.steps)
        for step in steps:
            op = step.op
            out: Any = step.rule(task, op, *[None if v is None else env[v] for v in step.operands])
            if step.parts:
                values, rest = yield from running(task, region, op, out, execute)
                env.update(zip(step.results, values, strict=True))
                tail = behind(region, op)
                if rest is not None and tail is not None:
                    env.update(zip(tail.terminator.uses, rest, strict=True))
                    for _ in tail.ops[:-1]:
                        next(steps)
            elif step.suspends:
                run: Run = out
                env.update(zip(step.results, (yield from run), strict=True))
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


def misused(task: Task, op: Op, accumulator: InFlight) -> UserError:
    """The error for an operation that uses an accumulator in flight, or one that another operation has consumed."""
    started, taken = accumulator.product.op.loc, accumulator.taken
    related: tuple[tuple[str, Loc], ...] = () if started is None else (("the MMA was issued here", started),)
    if taken is None:
        error = task.fail(hazard.ACCUMULATOR, op, partition=task.block.partition(task.slot))
    else:
        waited = taken.kind is mma.warpgroup_wait
        by = "a wait" if waited else "another MMA"
        error = task.fail(hazard.ACCUMULATOR_OLD, op, partition=task.block.partition(task.slot), by=by)
        if taken.loc is not None:
            related += ((f"{by} claimed it here", taken.loc),)
    error.related = related
    return error


class Meeting:
    """A named barrier between tasks: the warps that have arrived, the clock that they release, and completed generations."""

    __slots__ = ("arrived", "gathered", "generation", "published")

    def __init__(self) -> None:
        self.arrived = 0
        self.generation = 0
        self.gathered = Released()
        self.published = Released()

    def arrive(self, warps: int, needed: int, released: Released) -> None:
        """Arrival of some warps."""
        self.arrived += warps
        self.gathered.join(released)
        if self.arrived >= needed:
            self.published, self.gathered = self.gathered, Released()
            self.arrived -= needed
            self.generation += 1


class Exchange:
    """One exchange between the blocks of a cluster: the tiles by rank (None at a barrier), what the blocks released, and the
    whole tile (`weft.sim.machine.exchange`)."""

    __slots__ = ("given", "released", "whole")

    def __init__(self) -> None:
        self.given: dict[int, Data | None] = {}
        self.released = Released()
        self.whole: Data | None = None
