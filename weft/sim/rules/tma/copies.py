"""TMA: bulk tensor copies (PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor"), executed by agents.

A load completes its bytes on an mbarrier (complete_tx). A store or reduction is a bulk group of the task. A block is moved as a
whole; in the lowered stage each element lies where the hardware's box puts it.

A load fills elements outside the tensor. A store or reduction skips them, but writes whole 16-byte chunks: if a row of the
tensor does not end at a multiple of 16 bytes, the rest of its last chunk is written as well (measured on an H200; the PTX ISA
does not document it).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from weft.errors import UserError, hazard
from weft.ir.core import Op, Value
from weft.ir.types import DescriptorType, SharedType
from weft.layout import NVMMASharedLayout
from weft.layout.cluster import copies, part_start, receivers
from weft.layout.linear.maps import LinearLayout
from weft.layout.shared import tma as tma_layout
from weft.layout.shared.tma import FP4_ROW, GRANULE
from weft.ops import tma
from weft.sim.machine.data import Array, Data, Mark, arange
from weft.sim.machine.tasks import Block, Task
from weft.sim.memory import places
from weft.sim.memory.clocks import join
from weft.sim.memory.events import ELECTED, EventMode
from weft.sim.memory.global_access import COMBINE
from weft.sim.memory.heap import BadAddress, GlobalPlace, HeapAccess, ReadOnlyStorage, TensorMap
from weft.sim.memory.matrix_operands import CHUNK, swizzled
from weft.sim.memory.places import Place
from weft.sim.memory.spaces import SHARED, Handle
from weft.sim.memory.tracks import THREADS, Touch, Way
from weft.sim.memory.verdicts import MANY
from weft.sim.numbers.arithmetic import bits_dtype, bits_of, numpy_dtype
from weft.sim.numbers.products import tf32_rounded
from weft.sim.rule import rule
from weft.sim.rules.mbarrier import barrier_at, holds, peer
from weft.sim.rules.tma import descriptors


@lru_cache(maxsize=256)
def _offsets(shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """The offset of each element of a block from its first, given the strides; all in elements."""
    parts = zip(np.ix_(*map(arange, shape)), strides, strict=True)
    return sum((at * np.int64(stride) for at, stride in parts), np.zeros(shape, np.int64))


class Request:
    """The elements of one TMA operation: a block of the tensor at its first coordinates, or elements at given coordinates (one
    array per dimension, which broadcast to a shape).

    `moved`: index of the elements that are moved, which are those inside the tensor and, for stores (`whole_chunks`), those
    behind the last column that share its 16-byte chunk. `inside`: the same without the latter. In a cluster both are limited
    to `mine`, the part of the descriptor's block that the executing block holds. `undefined`: a mark on a load's coordinates,
    which makes its elements undefined."""

    __slots__ = ("access", "inside", "map", "mine", "moved", "op", "shape", "sources", "task", "undefined")

    def __init__(
        self, task: Task, op: Op, desc: Data, first: tuple[int, ...] | list[Array], verb: str, whole_chunks: bool = False,
        mine: Array | None = None, undefined: Mark | None = None,
    ) -> None:  # fmt: skip
        self.task = task
        self.mine = mine
        self.undefined = undefined
        self.inside: Any
        self.moved: Any
        self.op = op
        self.map: TensorMap = desc.array
        self.shape = self.map.block_shape
        if isinstance(first, tuple) and self._rectangle(first, whole_chunks):
            return
        coordinates = _grid(first, self.shape) if isinstance(first, tuple) else first
        if not isinstance(first, tuple):
            self.shape = np.broadcast(*coordinates).shape
        addresses: Array = np.int64(self.map.address)
        for at, stride in zip(coordinates, self.map.strides, strict=True):
            addresses = addresses + at * np.int64(stride)
        addresses = np.broadcast_to(addresses, self.shape)
        self.inside = self.moved = self._within(coordinates, self.map.shape)
        if whole_chunks:
            self.moved = self._with_chunks(coordinates)
        self.access = self._at(addresses[self.moved])
        try:
            self.sources = task.machine.heap.places(self.access)
        except BadAddress:
            raise self._beyond(addresses[self.inside], verb) from None

    def _rectangle(self, first: tuple[int, ...], whole_chunks: bool) -> bool:
        """The fast path, with slices instead of masks: the part inside the tensor is a rectangle, and in bounds of memory."""
        tensor, size = self.map, self.map.element.itemsize
        if self.mine is not None:
            return False
        slices = tuple(
            slice(max(-start, 0), min(extent - start, length))
            for start, extent, length in zip(first, tensor.shape, tensor.block_shape, strict=True)
        )
        partial = tensor.shape[-1] * size % GRANULE and slices[-1].stop < tensor.block_shape[-1]
        if (whole_chunks and partial) or any(part.start >= part.stop for part in slices):
            return False
        address = tensor.address + sum(start * stride for start, stride in zip(first, tensor.strides, strict=True))
        offsets = _offsets(tensor.block_shape, tuple(stride // size for stride in tensor.strides))[slices]
        source = self.task.machine.heap.rectangle(address, offsets, size)
        if source is None or any(stride % size for stride in tensor.strides):
            return False
        self.inside = self.moved = slices
        self.access = self._at(np.int64(address))
        self.sources = [source]
        return True

    def _at(self, addresses: Array) -> HeapAccess:
        return HeapAccess(addresses, self.map.element.itemsize)

    def _within(self, coordinates: Sequence[Array], extents: Sequence[int]) -> Array:
        """Mask of the elements within these extents, limited to `mine`."""
        within: Array = np.bool_(True) if self.mine is None else self.mine
        for at, extent in zip(coordinates, extents, strict=True):
            within = within & (at >= 0) & (at < extent)
        return np.broadcast_to(within, self.shape)

    def _with_chunks(self, coordinates: Sequence[Array]) -> Array:
        """Mask of the elements inside, and of those that share the last chunk of a row; adds advice."""
        size, (*others, columns) = self.map.element.itemsize, self.map.shape
        ending = -(-columns * size // GRANULE) * GRANULE // size
        moved = self._within(coordinates, (*others, ending))
        if np.count_nonzero(moved) > np.count_nonzero(self.inside):
            text = (
                f"TMA writes whole chunks of 16 bytes: columns {columns} to {ending - 1} of {self.map.buffer.name}, which lie "
                "behind the tensor's last, are written too"
            )
            self.task.machine.report.advise("written-behind", text, self.op.loc)
        return moved

    def _beyond(self, inside: Array, verb: str) -> UserError:
        """The error for a request that leaves its array's memory; `inside`: the addresses inside the tensor."""
        name = self.map.buffer.name
        try:
            self.task.machine.heap.places(self._at(inside))
        except BadAddress:
            return self.task.fail(hazard.TENSOR_RANGE, self.op, access=verb, name=name, address=int(inside.min()))
        return self.task.fail(hazard.TENSOR_CHUNK, self.op, columns=self.map.shape[-1], name=name)

    @property
    def bytes(self) -> int:
        """The transaction bytes: all elements of the block (or of `mine`), including those outside the tensor."""
        mine = self.mine
        return (prod(self.shape) if mine is None else int(mine.sum())) * self.map.element.itemsize

    def touch(self, mode: EventMode, way: Way, component: int, value: int, bits: Array | None = None) -> None:
        """Check for races on global memory. The access is complete when `component` has counted past `value`. `bits`: the
        values about to be written."""
        races, threads = self.task.machine.races, THREADS if self.op.by == "several warps" else ELECTED
        for source in () if races is None else self.sources:
            part = None if bits is None or source.which is None else bits[source.which]
            touch = Touch(
                self.task, self.op, way, source, self.access.itemsize, threads, threads, component, value, mode
            )
            races.touch(touch, bits if source.which is None else part)  # pyright: ignore[reportOptionalMemberAccess]

    def read(self) -> Array:
        """The block's bits; elements outside the tensor are zero, or NaN if the descriptor's padding is NaN."""
        element = self.map.element
        fill = numpy_dtype(element).type(np.nan if self.map.padding == "nan" and element.is_floating() else 0)
        found = self.task.machine.heap.read(self.access, self.sources)
        if self.map.rounds:
            found = tf32_rounded(found)
        if found.shape == self.shape:
            return found
        out = np.full(self.shape, bits_of(np.asarray(fill)), bits_dtype(element.itemsize))
        out[self.moved] = found
        return out

    def write(self, bits: Array, sources: list[GlobalPlace]) -> None:
        """Store the elements that are moved. Raises LaunchError (read-only memory)."""
        try:
            self.task.machine.heap.write(self.access, bits, sources)
        except ReadOnlyStorage as error:
            raise self.task.fail(hazard.READ_ONLY, self.op, name=error.segment.buffer.name) from None


def integers(task: Task, op: Op, values: Sequence[Data]) -> list[int]:
    """Coordinates, which must be uniform."""
    for value in values:
        task.demand(op, value, "a coordinate")
    return [int(task.uniform(op, value, "a coordinate").array) for value in values]


def _block(task: Task, op: Op, desc: Data, values: Sequence[Data]) -> tuple[int, ...]:
    """The coordinates of a tiled block's first element.

    In the lowered stage, coordinates are those of the part that the executing block of a cluster holds."""
    shape = desc.array.block_shape
    skipped = part_start(desc.array.layout.cga, shape, task.rank) if task.machine.lowered else (0,) * len(shape)
    first = integers(task, op, values)
    check_column(task, op, desc.array, first[-1])
    return tuple(start - before for start, before in zip(first, skipped, strict=True))


def _grid(first: tuple[int, ...], shape: tuple[int, ...]) -> list[Array]:
    """The coordinates of a block's elements, one array per dimension."""
    return [start + part for start, part in zip(first, np.ix_(*map(arange, shape)), strict=True)]


def descriptor_of(desc: Value | None) -> DescriptorType:
    """The type of a descriptor."""
    assert desc is not None and isinstance(desc.type, DescriptorType)
    return desc.type


def _linear(op: Op) -> LinearLayout:
    """The layout of the descriptor's block, which distributes it over the blocks of a cluster."""
    t = descriptor_of(op.operands[0])
    return t.layout.to_linear(t.block_shape)


def _place(task: Task, op: Op, handle: Handle) -> Place:
    """The place of a block in shared memory; in the lowered stage that of its boxes."""
    value = op.operand("handle")
    assert value is not None
    if isinstance(value.type, SharedType):
        return places.place_of(task, value.type, handle, _threads(op), reading=False)
    granule = task.block.store(SHARED).granule
    return _boxes_place(descriptor_of(op.operands[0]), op.attrs["boxes"], handle.base, granule, _threads(op), task.rank)


@lru_cache(maxsize=1024)
def _boxes_place(t: DescriptorType, boxes: tma.Boxes, base: int, granule: int, thread: int, rank: int) -> Place:
    """The place of a descriptor's block whose boxes are at byte offsets from `base`."""
    assert isinstance(t.layout, NVMMASharedLayout)
    split = tma_layout.boxes(t.block_shape, t.layout, t.element.bits, im2col=t.mode == "im2col")
    first = part_start(t.layout.cga, t.block_shape, rank)
    lines = box_lines(split.box, t.layout, t.element.itemsize).reshape(split.box)
    elements, mine = np.zeros(t.block_shape, np.int64), np.zeros(t.block_shape, bool)
    for start, offset in boxes or split.placements:
        corners = zip(first, start, split.box, strict=True)
        inside = tuple(slice(own + at, own + at + size) for own, at, size in corners)
        address = swizzled(base + offset + lines, t.layout.swizzle_byte_width)
        elements[inside], mine[inside] = (address - base) // t.element.itemsize, True
    return places.place_at(base, elements, t.element.itemsize, granule, thread, None if mine.all() else mine)


def box_lines(box: tuple[int, ...], layout: NVMMASharedLayout, itemsize: int) -> Array:
    """The byte offset of each element of a box before swizzling, (lines, columns)."""
    inside = arange(box[-1]) * itemsize
    if layout.fp4_padded:
        inside = inside // (CHUNK // 2) * CHUNK + inside % (CHUNK // 2)
    return arange(prod(box[:-1]))[:, None] * (box[-1] * layout.element_bytes) + inside


def _threads(op: Op) -> int:
    """The thread that issues an operation's requests: the elected one, or threads of several warps."""
    return MANY if op.by == "several warps" else ELECTED


@rule(tma.load)
def _load(task: Task, op: Op, desc: Data, bar: Handle, handle: Handle, pred: Data | None, *coords: Data) -> None:
    if holds(task, op, pred):
        place = _place(task, op, handle)
        undefined, coords = _unmarked(task, coords)
        first = _block(task, op, desc, coords)
        request = Request(task, op, desc, first, "reads", mine=place.mine, undefined=undefined)
        _start_load(task, op, request, bar, handle, place)


def _unmarked(task: Task, coords: tuple[Data, ...]) -> tuple[Mark | None, tuple[Data, ...]]:
    """The mark of a load's elements, which are undefined if any of its coordinates is, and the coordinates without marks.

    A load may start anywhere in or outside of its tensor, so it is harmless if nobody uses its elements: a pipeline may
    prefetch the tile after its last one."""
    cause = next((data.undefined for data in coords if task.has_undefined(data)), None)
    if cause is None:
        return None, coords
    return Mark(np.bool_(True), cause.cause, cause.loc), tuple(Data(data.array, None, data.wrapped) for data in coords)


@rule(tma.load_im2col)
def _load_im2col(task: Task, op: Op, desc: Data, bar: Handle, handle: Handle, pred: Data | None, *coords: Data) -> None:
    if holds(task, op, pred):
        place = _place(task, op, handle)
        undefined, coords = _unmarked(task, coords)
        pixels = _pixels(task, op, desc.array, coords)
        request = Request(task, op, desc, pixels, "reads", mine=place.mine, undefined=undefined)
        _start_load(task, op, request, bar, handle, place)


def check_column(task: Task, op: Op, tensor: TensorMap, column: int) -> None:
    """Check that a request starts at a multiple of 16 bytes along the innermost dimension; otherwise the GPU raises an illegal
    instruction error (measured on an H200)."""
    size, padded = tensor.element.itemsize, isinstance(tensor.layout, NVMMASharedLayout) and tensor.layout.fp4_padded
    granule = FP4_ROW if padded else GRANULE
    if column * size % granule:
        raise task.fail(
            hazard.TENSOR_COORDINATE, op, column=column, name=tensor.buffer.name, byte=column * size, granule=granule,
            step=granule // size,
        )  # fmt: skip


def _pixels(task: Task, op: Op, tensor: TensorMap, values: Sequence[Data]) -> list[Array]:
    """The coordinates of an im2col block of pixels by channels. Pixels traverse the bounding box of each image, the last
    spatial dimension fastest, and continue in the next image; then the im2col offsets are added to all of them (PTX ISA,
    "im2col mode")."""
    rank = len(tensor.shape)
    numbers = integers(task, op, values)
    image, *at, channel = numbers[:rank]
    check_column(task, op, tensor, channel)
    offsets, steps = numbers[rank:], tensor.steps or (1,) * rank
    extents = [
        -(-(extent + upper - lower) // step)
        for extent, lower, upper, step in zip(tensor.shape[1:-1], tensor.lower, tensor.upper, steps[1:-1], strict=True)
    ]
    first = image
    for place, lower, step, extent in zip(at, tensor.lower, steps[1:-1], extents, strict=True):
        first = first * extent + (place - lower) // step
    number: Array = first + arange(tensor.block_shape[0])
    spatial: list[Array] = []
    for offset, lower, step, extent in reversed(list(zip(offsets, tensor.lower, steps[1:-1], extents, strict=True))):
        spatial.insert(0, (number % extent * step + lower + offset)[:, None])
        number = number // extent
    return [number[:, None], *spatial, channel + arange(tensor.block_shape[1]) * steps[-1]]


def _start_load(task: Task, op: Op, request: Request, bar: Handle, handle: Handle, place: Place) -> None:
    """Load to the executing block. With "multicast", one of the blocks that hold the same data issues the load for all."""
    shared = receivers(_linear(op), task.machine.blocks) if op.attrs["multicast"] else 0
    if not task.sends(op, shared):
        return
    bring(task, op, request, bar, handle, place, shared)


def bring(task: Task, op: Op, request: Request, bar: Handle, handle: Handle, place: Place, sharing: int) -> None:
    """Start a load to all blocks whose rank differs from the task's in the bits `sharing` only."""
    places.check_bounds(task, op, handle, place, request.map.element, "copies into")
    crossing = _crossing(task, op, handle)
    for rank in range(task.machine.blocks):
        if rank & ~sharing == task.rank & ~sharing:
            _bring(task, op, request, bar, handle, place, rank, peer(task, op, rank ^ crossing))


def _crossing(task: Task, op: Op, handle: Handle) -> int:
    """1 if the task's block loads its part of a slice to the memory of the other block of its pair, 0 if to its own."""
    if not op.attrs.get("remote"):
        return 0
    if task.machine.lowered:
        return int(op.attrs["crossing"]) >> task.rank & 1
    value = op.operand("handle")
    assert value is not None and isinstance(value.type, SharedType)
    t = value.type
    assert isinstance(t.layout, NVMMASharedLayout)
    part = tma_layout.Slice(t.alloc_shape, handle.start)
    return tma_layout.crossing(t.shape, t.layout, t.element.bits, part, task.machine.blocks).blocks >> task.rank & 1


def _bring(
    task: Task, op: Op, request: Request, bar: Handle, handle: Handle, place: Place, rank: int, block: Block
) -> None:
    """Start a load to the memory of a block, for the block of this rank: it signals that one's mbarrier, or the one which that
    one shares."""
    element = request.map.element
    first = peer(task, op, rank & ~int(op.attrs.get("shared_by", 0)))
    barrier = barrier_at(task, op, bar, _threads(op), first)
    if rank == task.rank:
        descriptors.use(task, op, request.map, barrier.component, barrier.completed)
        if request.undefined is None:
            request.touch("load", "read", barrier.component, barrier.completed)
    places.note(
        task, op, handle, place, "load", writes=True, component=barrier.component, value=barrier.completed, block=block
    )  # fmt: skip

    def move() -> None:
        places.put(task, handle, place, element, place.written, place.chosen(request.read()), block)
        if request.undefined is not None:
            places.mark(task, handle, place, element, place.written, request.undefined, block)

    barrier.bring(op, task.clock, request.bytes, task.block.agents.start(op, move))


@rule(tma.store)
def _store(task: Task, op: Op, desc: Data, handle: Handle, *coords: Data) -> None:
    _store_block(task, op, desc, handle, coords, None)


@rule(tma.reduce)
def _reduce(task: Task, op: Op, desc: Data, handle: Handle, *coords: Data) -> None:
    _store_block(task, op, desc, handle, coords, op.attrs["kind"])


def _store_block(task: Task, op: Op, desc: Data, handle: Handle, coords: Sequence[Data], kind: str | None) -> None:
    if not task.acts(op, copies(_linear(op), task.machine.blocks)):
        return
    place = _place(task, op, handle)
    request = Request(
        task, op, desc, _block(task, op, desc, coords), "writes" if kind is None else "updates", whole_chunks=True,
        mine=place.mine,
    )  # fmt: skip
    start_store(task, op, request, handle, place, kind)


def start_store(task: Task, op: Op, request: Request, handle: Handle, place: Place, kind: str | None) -> None:
    """Start a store from shared memory as one bulk group; with a `kind`, a reduction into the tensor."""
    element = request.map.element
    descriptors.use(task, op, request.map)
    places.check_bounds(task, op, handle, place, element, "copies from")
    groups = task.block.cluster.bulk[task.slot]
    places.note(task, op, handle, place, "store", writes=False, component=groups.component, value=groups.batch)
    now = places.fetch(task, handle, place, element)
    _, undefined = places.marked_values(task, op, handle, place, element, now)
    if undefined is not None:
        inside = np.zeros(now.shape, bool)
        inside[request.inside] = True
        task.demand(op, Data(now, undefined), "a TMA store", inside)
    way = "write" if kind is None else "atomic"
    request.touch("store", way, groups.written, groups.batch, bits_of(now[request.moved]))

    def move() -> None:
        values = places.fetch(task, handle, place, element)[request.moved]
        if kind is not None:
            old: Any = task.machine.heap.read(request.access, request.sources)
            before = old != 0 if element.is_bool() else old.view(numpy_dtype(element))
            values = COMBINE[kind](before, values)
        request.write(bits_of(values), request.sources)

    groups.add(task.block.agents.start(op, move, handle.memory.part(handle.base)))
    groups.commit()


@rule(tma.store_wait)
def _store_wait(task: Task, op: Op) -> None:
    groups = task.block.cluster.bulk[task.slot]
    done = groups.complete(int(op.attrs["pendings"]))
    join(task.clock.elected, {groups.component: done} | ({groups.written: done} if op.attrs["writes"] else {}))
