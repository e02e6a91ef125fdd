"""Programs and their blocks, which own memories, mbarriers, agents and tasks.

Most programs are one block. A program that is a cluster has several blocks, which are resident together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.errors import Hazard, fail, hazard
from weft.ir.core import Op, Region, Value
from weft.ops import tcgen05
from weft.sim.machine.agents import Agents, Groups, Pipe
from weft.sim.machine.barriers import Agent, Barrier
from weft.sim.machine.data import Data
from weft.sim.machine.pending import Response
from weft.sim.machine.tasks import Machine, Task, execute
from weft.sim.memory.clocks import Clock, Released
from weft.sim.memory.heap import Made
from weft.sim.memory.shadow import Shadow
from weft.sim.memory.store import COLUMN_BYTES, SHARED, TENSOR, Space, Store
from weft.sim.memory.tensor_shadow import TensorShadow
from weft.sim.memory.verdicts import clashing, task_words


class Cluster:
    """One program: its coordinates in the grid, its number in start order, and its blocks.

    `slot` numbers the tasks of all blocks together. Each task has a clock, bulk groups, cp.async batches, wgmma groups, and a
    pipe of tcgen05 operations. `rounds`: what each phase of the cluster's barrier published. `refused`: the responses of
    clusterlaunchcontrol requests that found no program left."""

    __slots__ = (
        "_components", "blocks", "bulk", "clocks", "copies", "machine", "number", "pid", "pipes", "products", "refused",
        "rounds",
    )  # fmt: skip

    def __init__(self, machine: Machine, pid: tuple[int, int, int], number: int = 0) -> None:
        self.machine = machine
        self.pid = pid
        self.number = number
        self.clocks = [Clock(slot) for slot in range(machine.tasks * machine.blocks)]
        self._components = len(self.clocks)
        self.bulk = [Groups(self.component()) for _ in self.clocks]
        self.copies = [Groups(self.component()) for _ in self.clocks]
        self.products = [Groups(self.component()) for _ in self.clocks]
        self.pipes = [Pipe(self.component(), self.component()) for _ in self.clocks]
        self.rounds: list[Released] = []
        self.refused: list[Response] = []
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
    each address the last response of a clusterlaunchcontrol request."""

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
        "rank",
        "responses",
        "tasks",
    )

    def __init__(self, cluster: Cluster, rank: int = 0) -> None:
        self.cluster = cluster
        self.machine = machine = cluster.machine
        self.pid = cluster.pid
        self.rank = rank
        self.tasks: list[Task] = []
        self.ended = False
        self.agents = Agents(machine.schedule, machine.random)
        self.barriers: dict[int, Barrier] = {}
        self.responses: dict[int, Response] = {}
        self.made: dict[Op, Made] = {}
        self.meetings: dict[int, Meeting] = {}
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
        machine, place = self.machine, (self.pid, self.machine.tasks, self.machine.blocks, self.rank)
        if space is TENSOR:
            return TensorShadow(*place, machine.names, self.cluster.pipes, machine.found)
        return Shadow(*place, machine.plain, machine.names, machine.found)

    def _known(self, space: Space) -> Shadow | None:
        """The shadow of a space, if its memory exists and hazards are checked."""
        found = self._stores.get(space)
        return None if found is None else found.shadow

    def start(self, slot: int, region: Region, args: Sequence[Data], threads: int, env: dict[Value, Data]) -> Task:
        """Start a task for a partition of the block."""
        task = Task(self, self.rank * self.machine.tasks + slot, threads)
        task.env.update(env)
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
        """The block has ended: agents finish, and operations without a wait are reported. Raises StoreUnread,
        TensorMemoryInUse, TensorMemoryKept, and LaunchControlMisuse if the cluster has ended without reading a response."""
        self.ended = True
        self.agents.finish()
        machine, cluster = self.machine, self.cluster
        if not machine.hazards:
            return
        if all(block.ended for block in cluster.blocks):
            for response in [response for block in cluster.blocks for response in block.responses.values()]:
                self._keep(response, "at its end", response.op)
        own = slice(self.rank * machine.tasks, (self.rank + 1) * machine.tasks)
        for slot, groups in enumerate(cluster.bulk[own], own.start):
            for agent in groups.running:
                raise self._unread(agent, slot)
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

    def free_tensor_memory(self, clock: Clock) -> None:
        """Deallocate the block's tensor memory. Raises TensorMemoryInUse if an operation on it may be in flight."""
        shadow = self._known(TENSOR)
        event = shadow.under_way(clock) if isinstance(shadow, TensorShadow) else None
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
