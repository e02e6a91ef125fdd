"""The cluster's barrier (PTX ISA, "barrier.cluster"), the rank of a block, and accesses to other blocks' shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op
from weft.ops import cluster
from weft.sim.machine.data import Array, Data, Mark, arange, moved
from weft.sim.machine.exchange import gathered, meet
from weft.sim.machine.hardware import linear_of
from weft.sim.machine.tasks import Block, Task
from weft.sim.machine.wait import Run, Wait
from weft.sim.memory import places
from weft.sim.memory.clocks import Released
from weft.sim.memory.places import Place
from weft.sim.memory.spaces import Handle
from weft.sim.numbers.arithmetic import numpy_dtype
from weft.sim.rule import rule
from weft.sim.rules.mbarrier import check_rank
from weft.sim.rules.regs import per_thread
from weft.sim.rules.shared import (
    bases,
    by_register,
    combine_all,
    count_of,
    element_of,
    mask_of,
    place_in,
    send,
    shared_type,
    spread,
    tile_of,
    write_registers,
)


@rule(cluster.rank)
def _rank(task: Task, op: Op) -> Data:
    return Data(np.int32(task.rank))


@rule(cluster.arrive)
def _arrive(task: Task, op: Op) -> None:
    """Each thread's arrival is a release unless it is relaxed."""
    if task.arrived != task.awaited:
        raise task.fail(hazard.CLUSTER_PAIR, op, what="arrives at", wanted="cluster.wait()")
    rounds = task.block.cluster.rounds
    if task.arrived == len(rounds):
        rounds.append(Released())
    task.sealed = -1, -1
    if not op.attrs["relaxed"]:
        task.sealed = task.clock.position, task.block.events
        rounds[task.arrived].join(task.clock.release_all())
    task.arrived += 1


class ClusterWait(Wait):
    """A task that waits at the barrier of its cluster."""

    __slots__ = ("_task",)

    def __init__(self, op: Op, task: Task) -> None:
        super().__init__(op.loc)
        self._task = task

    def _missing(self) -> list[Task]:
        """The tasks that have not arrived. The barrier waits for non-exited threads only (PTX ISA, "barrier.cluster")."""
        return [other for other in self._task.block.cluster.tasks if other.arrived < self._task.arrived]

    def ready(self) -> bool:
        """True if all tasks have arrived."""
        return not self._missing()

    def words(self) -> str:
        """Message text for the tasks that have not arrived."""
        missing = ", ".join(other.block.partition(other.slot) for other in self._missing())
        return f" at the barrier of the cluster, to which {missing} has not come"


@rule(cluster.wait)
def _wait(task: Task, op: Op) -> Run:
    if task.arrived == task.awaited:
        raise task.fail(hazard.CLUSTER_PAIR, op, what="waits at", wanted="cluster.arrive()")
    wait = ClusterWait(op, task)
    if not wait.ready():
        yield wait
    task.awaited += 1
    task.clock.acquire(task.block.cluster.rounds[task.arrived - 1])
    position, events = task.sealed
    if position == task.clock.position:
        task.clock.barrier()
    if events >= 0:
        task.block.meet(task.clock, events)
    return ()


@rule(cluster.barrier)
def _barrier(task: Task, op: Op, bar: Handle | None) -> Run:
    task.barrier()
    yield from meet(task, op, None, orders=True)
    return ()


@rule(cluster.convert)
def _convert(task: Task, op: Op, x: Data, bar: Handle | None) -> Run:
    return (yield from gathered(task, op, x, linear_of(tile_of(op.operands[0])), op.attrs["first"]))


# Accesses to the shared memory of another block by its rank (tile stage)


def _block(task: Task, op: Op, handle: Handle, peer: Data) -> Block:
    """The block of a rank. Raises OutOfBounds."""
    task.demand(op, peer, "a rank")
    rank = int(task.uniform(op, peer, "a rank").array)
    check_rank(task, op, handle, rank)
    return task.block.cluster.blocks[rank]


@rule(cluster.load)
def _load(task: Task, op: Op, handle: Handle, peer: Data) -> Data:
    type, block = shared_type(op.operands[0]), _block(task, op, handle, peer)
    place = places.place_of(task, type, handle, linear_of(tile_of(op.result)), reading=True)
    return places.read(task, op, handle, place, type.element, block)


@rule(cluster.store)
def _store(task: Task, op: Op, handle: Handle, peer: Data, value: Data) -> None:
    type, block = shared_type(op.operands[0]), _block(task, op, handle, peer)
    place = places.place_of(task, type, handle, linear_of(tile_of(op.operands[2])), reading=False)
    places.write_tile(task, op, handle, place, type.element, value, block)


@rule(cluster.async_store)
def _async_store(task: Task, op: Op, handle: Handle, peer: Data, value: Data, bar: Handle) -> None:
    type, block = shared_type(op.operands[0]), _block(task, op, handle, peer)
    place = places.place_of(task, type, handle, linear_of(tile_of(op.operands[2])), reading=False)
    send(task, op, handle, place, type.element, value, bar, block)


# Accesses to the shared memory of other blocks, per thread (lowered stage)


@rule(cluster.load_regs)
def _load_regs(task: Task, op: Op, handle: Handle, base: Data, peer: Data) -> Data:
    elements = bases(task, op, base)[..., None] + arange(op.attrs["vec"])
    ranks = np.broadcast_to(_peers(task, op, peer)[..., None], elements.shape)
    return _read(task, op, handle, by_register(op, elements), by_register(op, ranks))


@rule(cluster.load_at)
def _load_at(task: Task, op: Op, handle: Handle, index: Data, peer: Data) -> Data:
    return _read(task, op, handle, _chosen(task, op, index), _each(task, op, peer))


def _vectors(task: Task, op: Op, base: Data, peer: Data) -> tuple[Array, Array]:
    """The elements of each access, and the ranks of the blocks that they are in."""
    elements = bases(task, op, base)[..., None] + arange(op.attrs["vec"])
    return elements, np.broadcast_to(_peers(task, op, peer)[..., None], elements.shape)


@rule(cluster.store_regs)
def _store_regs(task: Task, op: Op, handle: Handle, base: Data, peer: Data, value: Data, mask: Data | None) -> None:
    elements, ranks = _vectors(task, op, base, peer)
    _write(task, op, handle, elements, ranks, value, mask, np.array(op.attrs["registers"]))


@rule(cluster.store_at)
def _store_at(task: Task, op: Op, handle: Handle, index: Data, peer: Data, value: Data, mask: Data | None) -> None:
    elements = _chosen(task, op, index)
    _write(task, op, handle, elements, _each(task, op, peer), value, mask, arange(elements.shape[1]))


@rule(cluster.async_store_regs)
def _async_store_regs(
    task: Task, op: Op, handle: Handle, base: Data, peer: Data, value: Data, bar: Handle, mask: Data | None
) -> None:
    elements, ranks = _vectors(task, op, base, peer)
    task.demand(op, mask, "a mask")
    table = np.array(op.attrs["registers"])
    data = moved(per_thread(task, value, count_of(op.operand("value"))), lambda array: array[:, table])
    for block, chosen in _by_block(task, op, handle, ranks, mask_of(task, mask, elements.shape)):
        place = replace(place_in(task, op, handle, elements, chosen), mine=chosen)
        send(task, op, handle, place, element_of(op.operands[0]), data, bar, block)


@rule(cluster.atomic_at)
def _atomic_at(task: Task, op: Op, handle: Handle, index: Data, peer: Data, value: Data, mask: Data | None) -> Data:
    task.demand(op, mask, "a mask")
    elements, ranks = _chosen(task, op, index), _each(task, op, peer)
    active = mask_of(task, mask, elements.shape)

    def where() -> Iterator[tuple[Block, Place]]:
        for block, chosen in _by_block(task, op, handle, ranks, active):
            yield block, replace(place_in(task, op, handle, elements, chosen), mine=chosen)

    return combine_all(
        task, op, handle, element_of(op.operands[0]), per_thread(task, value, elements.shape[1]), where()
    )


def _peers(task: Task, op: Op, peer: Data) -> Array:
    """The rank that each access of each thread is to, (threads, n)."""
    return np.broadcast_to(peer.array ^ np.array(op.attrs["peers"], np.int64), (task.threads, len(op.attrs["peers"])))


def _each(task: Task, op: Op, data: Data) -> Array:
    """An index of each thread and register."""
    task.demand(op, data, "an address")
    return per_thread(task, data, count_of(op.operand("peer"))).array.astype(np.int64)


def _chosen(task: Task, op: Op, index: Data) -> Array:
    return spread(op, _each(task, op, index))


def _read(task: Task, op: Op, handle: Handle, elements: Array, ranks: Array) -> Data:
    """Read elements as (threads, count), each from the block of its rank; the values of inactive threads are arbitrary."""
    element = element_of(op.operands[0])
    active = mask_of(task, None, elements.shape)
    out: Array = np.zeros(elements.shape, numpy_dtype(element))
    undefined: Array = np.zeros(elements.shape, bool)
    mark: Mark | None = None
    for block, chosen in _by_block(task, op, handle, ranks, active):
        found = places.read(task, op, handle, place_in(task, op, handle, elements, chosen), element, block)
        out[chosen] = found.array[chosen]
        if found.undefined is not None:
            mark = found.undefined
            undefined[chosen] = np.broadcast_to(mark.mask, elements.shape)[chosen]
    return Data(out, mark and Mark(undefined, mark.cause, mark.loc))


def _write(
    task: Task, op: Op, handle: Handle, elements: Array, ranks: Array, value: Data, mask: Data | None, table: Array
) -> None:
    """Write each thread's registers `table` to `elements`, each in the block of its rank."""
    task.demand(op, mask, "a mask")
    active = mask_of(task, mask, elements.shape)
    for block, chosen in _by_block(task, op, handle, ranks, active):
        write_registers(task, op, handle, elements, chosen, value, table, block)


def _by_block(task: Task, op: Op, handle: Handle, ranks: Array, active: Array) -> Iterator[tuple[Block, Array]]:
    """Each accessed block, with the mask of the active accesses to it. Raises OutOfBounds."""
    for rank in np.unique(ranks[active]).tolist():
        check_rank(task, op, handle, rank)
        yield task.block.cluster.blocks[rank], active & (ranks == rank)
