"""MMA on tensor cores: `mma.sync` and `wgmma`.

`wgmma` is asynchronous: an agent reads the shared-memory operands as late as it may. `wgmma.wait_group` covers the MMAs of the
executing warps only (PTX ISA, "wgmma.wait_group"). In a task of one warpgroup it orders all threads; in a larger task the
other warpgroups' MMAs are known to be complete only after a barrier. Register arrays of the lowered stage hold PTX matrix
fragments (`weft.sim.numbers.fragments`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.ir.core import Op, Value
from weft.ir.types import BY_CODE, DType, RegsType
from weft.layout.base import WARPGROUP
from weft.layout.distributed.fragments import WARPGROUP_ROWS
from weft.layout.tensor_cores.mma import k_order
from weft.layout.tensor_cores.shared_operands import Operand
from weft.ops import mma
from weft.ops.check import tile
from weft.sim.machine.data import Array, Data
from weft.sim.machine.tasks import Task, misused
from weft.sim.memory import places
from weft.sim.memory.clocks import join
from weft.sim.memory.matrix_operands import operand_place
from weft.sim.memory.places import Place
from weft.sim.memory.spaces import SHARED, Handle
from weft.sim.memory.verdicts import MANY
from weft.sim.numbers import fragments
from weft.sim.numbers.products import InFlight, NotReady, Product, multiply, multiply_sync
from weft.sim.rule import rule
from weft.sim.rules.regs import per_thread
from weft.sim.rules.shared import shared_type

COLUMNS = 8
"""Columns (n) of an `mma.sync`."""
SINK = "a matrix product"
Fetch = Callable[[], Array]
Compute = Callable[[Array], Array]


# Tile stage


@rule(mma.warpgroup)
def _warpgroup(task: Task, op: Op, a: Data | Handle, b: Handle, acc: Data, use_acc: Data | None) -> Data:
    left, right, result = (_element(value) for value in op.operands[:3])
    adds, imprecise = _adds(task, op, use_acc), int(op.attrs["max_imprecise"])
    fetch_a, fetch_b = _operand(task, op, 0, a), _operand(task, op, 1, b)

    def compute(before: Array) -> Array:
        return multiply(fetch_a(), fetch_b(), before if adds else None, left, right, result, imprecise)

    if imprecise and isinstance(acc, InFlight):
        # Threads add partial accumulators in registers, so they need the accumulator's value now.
        raise NotReady(acc)
    started = _start(task, op, acc, adds, compute)
    if not imprecise:
        return started
    # The emitted code waits for each partial MMA.
    _complete(task, 0)
    return Data(started.product.result())


def _adds(task: Task, op: Op, use_acc: Data | None) -> bool:
    """True if the MMA adds to the accumulator; False if it overwrites it."""
    if use_acc is None:
        return True
    task.demand(op, use_acc, "use_acc")
    return bool(task.uniform(op, use_acc, "use_acc").array)


def _element(value: Value | None) -> DType:
    assert value is not None and isinstance(value.type.element, DType)
    return value.type.element


def _operand(task: Task, op: Op, number: int, given: Data | Handle) -> Fetch:
    """The function that fetches an operand of a tile MMA. The read may happen at any time from now. Raises hazards of shared
    memory."""
    value = op.operands[number]
    if isinstance(given, Data):
        task.demand(op, given, SINK)
        return _constant(given.array)
    type = shared_type(value)
    return _reading(task, op, given, places.place_of(task, type, given, MANY, reading=True), type.element)


def _reading(task: Task, op: Op, handle: Handle, place: Place, element: DType) -> Fetch:
    """The function that fetches a place; records the MMA's asynchronous read. Raises OutOfBounds, UninitializedRead, races."""
    groups = task.block.cluster.products[task.slot]
    places.check_bounds(task, op, handle, place, element, "multiplies")
    places.note(task, op, handle, place, "product", writes=False, component=groups.component, value=groups.batch)
    places.demand_written(task, op, handle, place, element, SINK)
    return lambda: places.fetch(task, handle, place, element)


def _start(task: Task, op: Op, acc: Data, adds: bool, compute: Compute) -> InFlight:
    """Issue an asynchronous MMA as a group of its own. `compute`: the result, given the accumulator's old array.

    Raises AccumulatorInFlight if the accumulator was passed to another MMA already."""
    earlier: Product | None = None
    before: Array | None = None
    if isinstance(acc, InFlight):
        earlier = _consume(task, op, acc)
    else:
        before = acc.array
        if adds:
            task.demand(op, acc, SINK)
    groups = task.block.cluster.products[task.slot]
    product = Product(op, task.slot, groups.batch)

    def move() -> None:
        # MMAs on one accumulator complete in issue order.
        product.value = compute(before if earlier is None else earlier.result())

    product.agent = task.block.agents.start(op, move)
    groups.add(product.agent)
    groups.commit()
    groups.positions.append(task.clock.position)
    return InFlight(product)


def _consume(task: Task, op: Op, acc: InFlight) -> Product:
    """The MMA in flight whose accumulator `op` continues."""
    if acc.taken is not None and acc.taken.kind is not mma.warpgroup_wait:
        raise misused(task, op, acc)
    acc.taken = op
    return acc.product


@rule(mma.warpgroup_wait)
def _warpgroup_wait(task: Task, op: Op, *values: Data) -> tuple[Data, ...] | Data:
    done = _complete(task, int(op.attrs["pendings"]))
    results = tuple(_waited(task, op, value, done) for value in values)
    return results[0] if len(results) == 1 else results


def _complete(task: Task, pendings: int) -> int:
    """Wait for all but the latest `pendings` MMAs. Returns the number of the task's MMAs that are known to be complete."""
    groups, clock = task.block.cluster.products[task.slot], task.clock
    done, one = groups.complete(pendings), task.warps <= WARPGROUP
    join(clock.known if one else clock.each, {groups.component: done})
    if one and done:
        # A complete wgmma was reached by all warps of the warpgroup, so their earlier events precede in time. This does not
        # order the memory accesses of those warps.
        join(clock.before, {clock.slot: groups.positions[done - 1]})
    return max(clock.known.get(groups.component, 0), clock.each.get(groups.component, 0))


def _waited(task: Task, op: Op, value: Data, done: int) -> Data:
    """An accumulator after a wait: a value, or still in flight."""
    if not isinstance(value, InFlight):
        return value
    if value.taken is not None and value.taken.kind is not mma.warpgroup_wait:
        raise misused(task, op, value)
    value.taken = op
    product = value.product
    complete = product.slot == task.slot and product.batch < done
    return Data(product.result()) if complete else InFlight(product)


@rule(mma.warp)
def _warp(task: Task, op: Op, a: Data, b: Data, acc: Data) -> Data:
    for operand in (a, b, acc):
        task.demand(op, operand, SINK)
    left, right, result = (_element(value) for value in op.operands[:3])
    order = k_order(tile(op.uses[0]).layout, a.array.shape, 1, left.bits)
    assert order is not None, "the language accepts operands in the instruction's fragments only"
    return Data(multiply_sync(a.array[:, list(order)], b.array[list(order)], acc.array, left, right, result))


# Lowered stage


@rule(mma.wgmma)
def _wgmma(task: Task, op: Op, a: Data | Handle, b: Handle, acc: Data, use_acc: Data | None) -> Data:
    chains, n, k = fragments.chains(op.attrs["steps"]), int(op.attrs["n"]), int(op.attrs["k"])
    left, right, result = BY_CODE[op.attrs["element"]], BY_CODE[op.attrs["other"]], _element(op.operands[2])
    adds = _adds(task, op, use_acc)
    firsts = [chain.acc for chain in chains]
    fresh = np.array([chain.fresh and not adds for chain in chains])
    if isinstance(a, Handle):
        fetch_a = _described(task, op, a, left, op.attrs["left"], WARPGROUP_ROWS, tuple(chain.left for chain in chains))
    else:
        task.demand(op, a, SINK)
        registers = per_thread(task, a, _count(op.operands[0])).array
        parts = fragments.left_matrices(registers, [chain.left for chain in chains], k, WARPGROUP)
        fetch_a = _constant(parts)
    fetch_b = _described(task, op, b, right, op.attrs["right"], n, tuple(chain.right for chain in chains))

    def compute(before: Array) -> Array:
        old = fragments.accumulator_matrices(before, firsts, n, WARPGROUP)
        old[fresh] = 0
        out = before.copy()
        parts = multiply(fetch_a(), np.swapaxes(fetch_b(), -1, -2), old, left, right, result)
        fragments.put_accumulators(out, firsts, parts, WARPGROUP)
        return out

    whole = acc if isinstance(acc, InFlight) else per_thread(task, acc, _count(op.operands[2]))
    return _start(task, op, whole, adds, compute)


@rule(mma.begin)
def _begin(task: Task, op: Op, x: Data) -> Data:
    return x


def _described(
    task: Task, op: Op, handle: Handle, element: DType, operand: Operand, outer: int, offsets: tuple[tuple[int, ...], ...]
) -> Fetch:  # fmt: skip
    """The function that fetches an operand through matrix descriptors, as (chains, warpgroups, outer, k)."""
    place = operand_place(
        operand,
        outer,
        int(op.attrs["k"]),
        element.itemsize,
        offsets,
        task.warps,
        handle.base,
        task.block.store(SHARED).granule,
    )
    return _reading(task, op, handle, place, element)


def _constant(array: Array) -> Fetch:
    return lambda: array


def _count(value: Value | None) -> int:
    assert value is not None and isinstance(value.type, RegsType)
    return value.type.count


@rule(mma.mma_sync)
def _mma_sync(task: Task, op: Op, a: Data, b: Data, acc: Data) -> Data:
    for operand in (a, b, acc):
        task.demand(op, operand, SINK)
    chains, k = fragments.chains(op.attrs["steps"]), int(op.attrs["k"])
    left, right, result = BY_CODE[op.attrs["element"]], BY_CODE[op.attrs["other"]], _element(op.operands[2])
    x, y, out = (per_thread(task, data, _count(v)).array for data, v in zip((a, b, acc), op.operands, strict=True))
    firsts = [chain.acc for chain in chains]
    old = fragments.accumulator_matrices(out, firsts, COLUMNS, 1)
    rows = fragments.left_matrices(x, [chain.left for chain in chains], k, 1)
    columns = fragments.right_matrices(y, [chain.right for chain in chains], k)
    out = out.copy()
    fragments.put_accumulators(out, firsts, multiply_sync(rows, columns, old, left, right, result), 1)
    return Data(out)
