"""Tensor maps that a kernel makes on the device: the constraints of TMA, and the reuse of a tensor map's memory.

Each operation that makes a descriptor has one slot for it per block, so in a loop every descriptor replaces the last one. That
is correct if loads through the last one are complete and it is not used any more. The operation itself waits for stores
through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.errors import Loc, Row, UserError, hazard
from weft.ir.core import Op, Value
from weft.ir.types import int32
from weft.layout.shared.tma import GRANULE, MOST_STRIDE_BYTES
from weft.ops import tma
from weft.ops.check import pointer_of
from weft.sim.machine.data import Data, arange
from weft.sim.machine.tasks import Task
from weft.sim.memory import places
from weft.sim.memory.events import ELECTED
from weft.sim.memory.heap import Buffer, Made, TensorMap
from weft.sim.memory.spaces import Handle
from weft.sim.rule import rule


@rule(tma.prefetch)
def _prefetch(task: Task, op: Op, desc: Data) -> None:
    """A prefetch has no effect on values."""


@rule(tma.make_descriptor)
def _make_descriptor(task: Task, op: Op, ptr: Data, *shape_and_strides: Data) -> Data:
    return _made(task, op, op.operands[0], ptr, shape_and_strides)


@rule(tma.write_descriptor)
def _write_descriptor(task: Task, op: Op, room: Handle, ptr: Data, *shape_and_strides: Data) -> Data:
    _fill(task, op, room)
    return _made(task, op, op.operands[1], ptr, shape_and_strides)


@rule(tma.update_descriptor)
def _update_descriptor(task: Task, op: Op, desc: Data, ptr: Data | None, *shape_and_strides: Data) -> Data:
    return _updated(task, op, desc, ptr, shape_and_strides)


@rule(tma.rewrite_descriptor)
def _rewrite_descriptor(
    task: Task, op: Op, room: Handle, desc: Data, ptr: Data | None, *shape_and_strides: Data
) -> Data:
    _fill(task, op, room)
    return _updated(task, op, desc, ptr, shape_and_strides)


def _updated(task: Task, op: Op, desc: Data, ptr: Data | None, shape_and_strides: Sequence[Data]) -> Data:
    """A copy of a descriptor with other fields. The copy reads the descriptor, which must not have been overwritten."""
    before: TensorMap = desc.array
    use(task, op, before)
    numbers = [_size(task, op, data) for data in shape_and_strides]
    shape, strides, changed = list(before.shape), list(before.strides), op.attrs["changed"]
    for dim, extent, stride in zip(changed, numbers, numbers[len(changed) :], strict=False):
        shape[dim], strides[dim] = extent, stride * before.element.itemsize
    made = replace(before, shape=tuple(shape), strides=tuple(strides), maker=op)
    if ptr is not None:
        made.buffer, made.address = _tensor_at(task, op, ptr)
    return _kept(task, op, made)


def _tensor_at(task: Task, op: Op, ptr: Data) -> tuple[Buffer, int]:
    """The memory that the pointer of a descriptor points to, and its address."""
    task.demand(op, ptr, "a descriptor")
    address = int(task.uniform(op, ptr, "the pointer of a descriptor").array)
    segment = task.machine.heap.segment_at(address)
    if segment is None:
        raise task.fail(hazard.NO_BUFFER, op, access="describes", address=address)
    return segment.buffer, address


def _fill(task: Task, op: Op, room: Handle) -> None:
    """The write of a descriptor to shared memory."""
    words = arange(tma.DESCRIPTOR_BYTES // int32.itemsize)
    place = places.some_place(task, room, int32, words, words, ELECTED)
    places.check_bounds(task, op, room, place, int32, "writes")
    places.note(task, op, room, place, "generic", writes=True)


def _made(task: Task, op: Op, base: Value | None, ptr: Data, shape_and_strides: Sequence[Data]) -> Data:
    assert base is not None
    element = pointer_of(base).element_ty
    buffer, address = _tensor_at(task, op, ptr)
    numbers = [_size(task, op, data) for data in shape_and_strides]
    rank = len(numbers) // 2
    made = TensorMap(
        buffer, element, tuple(numbers[:rank]), tuple(n * element.itemsize for n in numbers[rank:]),
        op.attrs["block_shape"], op.attrs["layout"], op.attrs["padding"], address=address, maker=op,
    )  # fmt: skip
    return _kept(task, op, made)


def _kept(task: Task, op: Op, made: TensorMap) -> Data:
    """The descriptor in the operation's slot. Raises BadDescriptor, and DescriptorReplaced if a load through the one that it
    replaces is in flight."""
    _check(task, op, made)
    before = task.block.made.get(op)
    for component, (load, count) in before.loads.items() if before is not None and task.machine.hazards else ():
        if task.clock.known.get(component, 0) <= count:
            raise _replaced(task, op, hazard.DESCRIPTOR_IN_USE, load.loc, "the load was started here")
    task.block.made[op] = Made(made)
    return Data(made)


def _size(task: Task, op: Op, data: Data) -> int:
    """An extent or a stride, which must be uniform."""
    task.demand(op, data, "a descriptor")
    return int(task.uniform(op, data, "the shape of a descriptor").array)


def _check(task: Task, op: Op, tensor: TensorMap) -> None:
    """Check TMA's constraints: 16-byte alignment of the address and of strides, strides below 2**40, non-empty extents (CUDA
    driver API, cuTensorMapEncodeTiled). The stride of a dimension of extent 1 is not used. Raises BadDescriptor."""

    def refused(part: str, value: str, wanted: str, fix: str) -> UserError:
        name = tensor.buffer.name
        return task.fail(hazard.BAD_DESCRIPTOR, op, name=name, part=part, value=value, wanted=wanted, fix=fix)

    past = tensor.address % GRANULE
    if past:
        fix = "begin at an element whose address is one, or copy the tensor first"
        raise refused("address", f"{past} bytes past a multiple of {GRANULE}", f"multiples of {GRANULE} bytes", fix)
    for dim, extent in enumerate(tensor.shape):
        if extent < 1:
            raise refused(f"extent {dim}", str(extent), "at least 1", "do nothing for what is empty, under a condition")
    for dim, (extent, stride) in enumerate(zip(tensor.shape[:-1], tensor.strides[:-1], strict=True)):
        if extent > 1 and (stride % GRANULE or not 0 < stride < MOST_STRIDE_BYTES):
            wanted = f"positive multiples of {GRANULE} below 2**40"
            raise refused(f"stride {dim}", f"{stride} bytes", wanted, f"pad rows to a multiple of {GRANULE} bytes")


def use(task: Task, op: Op, tensor: TensorMap, component: int = -1, count: int = 0) -> None:
    """Record a request through a descriptor: a load, which is complete when `component` has counted past `count`, or a store.

    Raises DescriptorReplaced if the kernel has made another descriptor in the same slot since."""
    if tensor.maker is None or not task.machine.hazards:
        return
    latest = task.block.made[tensor.maker]
    if latest.map is not tensor:
        raise _replaced(task, op, hazard.DESCRIPTOR_REPLACED, tensor.maker.loc, "it was made here")
    if component >= 0:
        latest.loads[component] = op, count


def _replaced(task: Task, op: Op, entry: Row, loc: Loc | None, label: str) -> UserError:
    error = task.fail(entry, op, partition=task.block.partition(task.slot))
    error.related = () if loc is None else ((label, loc),)
    return error
