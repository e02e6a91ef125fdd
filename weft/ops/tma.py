"""TMA: asynchronous copies of tensor blocks between global and shared memory (PTX ISA, cp.async.bulk.tensor).

One elected thread of the partition issues the instructions, which access memory in the async proxy. A load completes its bytes
on an mbarrier. Each store or reduction is a bulk group of the elected thread, which waits until its source is read, or until it
is written.
The instructions of a load may be distributed over `issuers` warps: the elected thread of warp (`first` + i) % `issuers` of the
partition issues instruction i (`weft.passes.sync.spread_requests`).

In lowered IR handles are arrays, and `boxes` lists the box of each instruction: its offset from the block's coordinates, and
its byte offset in shared memory (`weft.layout.shared.tma`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from weft.ir.core import Attrs, By, Effect, Value
from weft.ir.define import op
from weft.ir.types import DescriptorType, DType, SharedArrayType, SharedType, Type, int16, int32, int64
from weft.layout import NVMMASharedLayout, SharedLayout
from weft.layout.shared.tma import Reach, reach
from weft.ops.check import barrier, boolean, descriptor, pointer_of, regs, require, scalar, shared, tile
from weft.ops.memory import L2Policy
from weft.ops.tile import LOWER

Reduction = Literal["add", "min", "max", "and", "or", "xor"]
Padding = Literal["zero", "nan"]
Boxes = tuple[tuple[tuple[int, ...], int], ...]
DESCRIPTOR_BYTES = 128
"""The size and alignment in bytes of a descriptor that a kernel makes."""


def _loads(attrs: Attrs) -> tuple[Effect, ...]:
    by: By = "several warps" if attrs.get("issuers", 1) > 1 else "elected"
    return (
        Effect("read", "global", "desc", "async", "mbarrier", by=by),
        Effect("write", "shared", "handle", "async", "mbarrier", by=by, remote=bool(attrs.get("remote"))),
        Effect("update", "shared", "bar", "async", by=by, remote=bool(attrs.get("shared_by"))),
    )


STORES = (
    Effect("read", "shared", "handle", "async", "bulk", by="elected"),
    Effect("write", "global", "desc", "async", "bulk", by="elected"),
)


def _waits(attrs: Attrs) -> tuple[Effect, ...]:
    read = Effect("sync", "shared", completes="bulk", by="elected", pendings=attrs["pendings"])
    return (read, replace(read, space="global")) if attrs.get("writes") else (read,)


@op("tma.load", effects=_loads, needs="block")
def load(
    desc: Value,
    bar: Value,
    handle: Value,
    pred: Value | None,
    *coords: Value,
    multicast: bool = False,
    sender: int = 0,
    shared_by: int = 0,
    remote: bool = False,
    crossing: int = 0,
    issuers: int = 1,
    first: int = 0,
    boxes: Boxes = (),
    l2: L2Policy = (),
) -> None:
    """Start a load of the block at `coords` (elements, outermost first; int32) to shared memory, if `pred` holds.

    Elements out of bounds are zeros, or NaNs if the descriptor says so. The bytes of the whole block complete on the mbarrier.
    With `multicast` one load writes the block to all thread blocks of the cluster that share it; `sender` selects the one
    that issues it, by the rank bits in which they differ. `shared_by` as in `mbarrier.arrive`: the pair of an MMA with
    `.cta_group::2` may share an mbarrier, on which the loads of both complete.

    `remote`: the handle is a slice whose memory may be in the other block of such a pair, while a load signals the mbarrier of
    the block that issues it. In lowered IR bit r of `crossing` says that block r loads to the other block of its pair."""
    d = descriptor(desc)
    require(d.mode == "tiled", "a descriptor of mode {} where 'tiled' is needed", d.mode)
    _block(d, handle, remote)
    _coordinates(coords, len(d.block_shape))
    _common(bar, pred, issuers, first)


@op("tma.load_im2col", effects=_loads, needs="block")
def load_im2col(
    desc: Value,
    bar: Value,
    handle: Value,
    pred: Value | None,
    *coords_and_offsets: Value,
    multicast: bool = False,
    issuers: int = 1,
    first: int = 0,
    boxes: Boxes = (),
    l2: L2Policy = (),
) -> None:
    """As `load`, through an im2col descriptor: coordinates of a rank-n tensor, then n - 2 offsets within the filter (int16)."""
    d = descriptor(desc)
    require(d.mode == "im2col", "a descriptor of mode {} where 'im2col' is needed", d.mode)
    _block(d, handle)
    rank = (len(coords_and_offsets) + 2) // 2
    _coordinates(coords_and_offsets[:rank], rank)
    for offset in coords_and_offsets[rank:]:
        scalar(offset, int16)
    _common(bar, pred, issuers, first)


@op("tma.store", effects=STORES, needs="block")
def store(desc: Value, handle: Value, *coords: Value, boxes: Boxes = (), l2: L2Policy = ()) -> None:
    """Start a store of a block from shared memory to the tensor at `coords`; elements out of bounds are not written.

    The hardware writes chunks of 16 bytes: if a row ends within a chunk, the rest of the chunk is written too."""
    d = descriptor(desc)
    _block(d, handle)
    _coordinates(coords, len(d.block_shape))


@op("tma.reduce", effects=STORES, needs="block")
def reduce(desc: Value, handle: Value, *coords: Value, kind: Reduction, boxes: Boxes = (), l2: L2Policy = ()) -> None:
    """As `store`, but each element is combined with the tensor's atomically."""
    d = descriptor(desc)
    _block(d, handle)
    _coordinates(coords, len(d.block_shape))


GATHERED = 4
"""The number of rows that one gather or scatter instruction moves."""
GatherSteps = tuple[tuple[int, int, int], ...]
"""Instructions for four rows: the first of four registers of row indices, the column offset, the byte in shared memory."""


@op("tma.gather", effects=_loads, needs="block", stage="tile", removed_by=LOWER)
def gather(
    desc: Value, bar: Value, handle: Value, pred: Value | None, rows: Value, column: Value, multicast: bool = False,
    shared_by: int = 0, remote: bool = False, l2: L2Policy = (),
) -> None:  # fmt: skip
    """Start a gather of rows of a matrix, from `column` (int32) on, to shared memory, if `pred` holds.

    `rows` is an int32 tile with an index for each row of `handle`; the descriptor's block is one such row. Rows out of bounds
    are filled with the descriptor's padding. All bytes of `handle` complete on the mbarrier. `multicast`,
    `shared_by` and `remote` as in `load`."""
    _rows(desc, handle, rows, column, remote)
    _common(bar, pred, 1, 0)


@op("tma.scatter", effects=STORES, needs="block", stage="tile", removed_by=LOWER)
def scatter(desc: Value, handle: Value, rows: Value, column: Value, l2: L2Policy = ()) -> None:
    """Start a scatter of rows of shared memory to rows of a matrix, from `column` on, as one bulk group.

    Rows out of bounds are not written."""
    _rows(desc, handle, rows, column)


@op("tma.gather4", effects=_loads, needs="block", stage="lowered")
def gather4(
    desc: Value, bar: Value, handle: Value, pred: Value | None, rows: Value, column: Value, *, steps: GatherSteps,
    receivers: int = 0, shared_by: int = 0, remote: bool = False, crossing: int = 0, l2: L2Policy = (),
) -> None:  # fmt: skip
    """The instructions of `gather`, issued by the elected thread, whose registers hold `rows`. They write to all blocks whose
    rank differs from this one's in the bits of `receivers` only, which are clear in this one's. `shared_by`,
    `remote` and `crossing` as in `load`."""
    _four(rows, steps)
    _common(bar, pred, 1, 0)


@op("tma.scatter4", effects=STORES, needs="block", stage="lowered")
def scatter4(desc: Value, handle: Value, rows: Value, column: Value, *, steps: GatherSteps, l2: L2Policy = ()) -> None:
    """The instructions of `scatter`, issued by the elected thread, whose registers hold `rows`."""
    _four(rows, steps)


@op("tma.store_wait", effects=_waits, needs="block")
def store_wait(pendings: int, writes: bool = False) -> None:
    """The elected thread waits until the sources of all but its latest `pendings` stores and reductions have been read.

    With `writes` it waits until they have also been written to global memory, where the elected thread then sees them."""
    require(pendings >= 0, "at least 0 stores stay pending")


@op("tma.prefetch", effects=(Effect("read", "global", "desc", "async", by="elected"),), stage="lowered", needs="block")
def prefetch(desc: Value) -> None:
    """Prefetch a descriptor before its first use (PTX prefetch.tensormap)."""
    descriptor(desc)


@op("tma.make_descriptor", needs="block", stage="tile", removed_by=LOWER)
def make_descriptor(
    ptr: Value, *shape_and_strides: Value, block_shape: tuple[int, ...], layout: SharedLayout, padding: Padding
) -> Type:
    """A descriptor of the tensor at `ptr`: an extent (int32) per dimension of the block, then strides in elements (int64)."""
    return _made(ptr, shape_and_strides, block_shape, layout)


@op("tma.write_descriptor", effects=(Effect("write", "shared", "room", by="elected"),), needs="block", stage="lowered")
def write_descriptor(
    room: Value, ptr: Value, *shape_and_strides: Value, block_shape: tuple[int, ...], layout: SharedLayout, padding: Padding,
    slot: int, again: bool,
) -> Type:  # fmt: skip
    """As `make_descriptor`: the first warp builds the descriptor in `room` and copies it to byte `slot` of the workspace.

    `again`: an earlier descriptor may be there, so the sources of stores through it must have been read. Loads through it must
    be complete."""
    require(room.type == SharedArrayType(int32, DESCRIPTOR_BYTES // 4), "{} cannot hold a descriptor", room.type)
    return _made(ptr, shape_and_strides, block_shape, layout)


@op("tma.update_descriptor", needs="block", stage="tile", removed_by=LOWER)
def update_descriptor(desc: Value, ptr: Value | None, *shape_and_strides: Value, changed: tuple[int, ...] = ()) -> Type:
    """The descriptor of another tensor: at `ptr`, if there is one, and with other extents (int32), then strides in elements
    (int64), in the dimensions `changed`, which ascend. Everything else is that of `desc`."""
    return _updated(desc, ptr, shape_and_strides, changed)


@op(
    "tma.rewrite_descriptor",
    effects=(Effect("write", "shared", "room", by="elected"),),
    needs="block",
    stage="lowered",
)
def rewrite_descriptor(
    room: Value,
    desc: Value,
    ptr: Value | None,
    *shape_and_strides: Value,
    changed: tuple[int, ...],
    slot: int,
    again: bool,
) -> Type:
    """As `update_descriptor`: the first warp copies the descriptor to `room`, replaces fields, and copies it to byte `slot` of
    the workspace. `room` and `again` as in `write_descriptor`."""
    require(room.type == SharedArrayType(int32, DESCRIPTOR_BYTES // 4), "{} cannot hold a descriptor", room.type)
    return _updated(desc, ptr, shape_and_strides, changed)


def _updated(desc: Value, ptr: Value | None, shape_and_strides: tuple[Value, ...], changed: tuple[int, ...]) -> Type:
    d, count = descriptor(desc), len(changed)
    require(d.mode == "tiled", "a descriptor of mode {} where 'tiled' is needed", d.mode)
    require(ptr is None or pointer_of(ptr).element_ty == d.element, "an address of elements of another type")
    require(len(shape_and_strides) == 2 * count, "an extent and a stride for each of {} dimensions", count)
    require(list(changed) == sorted({*changed} & {*range(len(d.block_shape))}), "dimensions that are not there")
    _coordinates(shape_and_strides[:count], count)
    for stride in shape_and_strides[count:]:
        scalar(stride, int64)
    return d


def _made(ptr: Value, shape_and_strides: tuple[Value, ...], block_shape: tuple[int, ...], layout: SharedLayout) -> Type:
    element: DType = pointer_of(ptr).element_ty
    rank = len(block_shape)
    require(len(shape_and_strides) == 2 * rank, "an extent and a stride for each of {} dimensions", rank)
    _coordinates(shape_and_strides[:rank], rank)
    for stride in shape_and_strides[rank:]:
        scalar(stride, int64)
    return DescriptorType(element, block_shape, layout)


def _rows(desc: Value, handle: Value, rows: Value, column: Value, remote: bool = False) -> None:
    d, t, r = descriptor(desc), shared(handle), tile(rows)
    scalar(column, int32)
    require((r.element, len(r.shape)) == (int32, 1), "rows are named by one dimension of int32: {}", r)
    require(t.shape == (*r.shape, *d.block_shape[1:]) and d.block_shape[0] == 1, "{} copied by {}", t, d)
    require((t.element, t.layout) == (d.element, d.layout), "{} copied by {}", t, d)
    _part(t, remote)


def _four(rows: Value, steps: GatherSteps) -> None:
    count = regs(rows).count
    require(all(0 <= first <= count - GATHERED for first, *_ in steps), "rows that are not there")


def _block(d: DescriptorType, handle: Value, remote: bool = False) -> None:
    t = handle.type
    if isinstance(t, SharedArrayType):
        require(t.element == d.element, "{} copied by {}", t, d)
        return
    t = shared(handle)
    require((t.element, t.shape, t.layout) == (d.element, d.block_shape, d.layout), "{} copied by {}", t, d)
    _part(t, remote)


def _part(t: SharedType, remote: bool) -> None:
    where = reached(t)
    require(where == ("pair" if remote else "own"), "a part of a tile in {}: {}", where, t)


def reached(t: SharedType) -> Reach:
    """Where the memory of a buffer lies that TMA accesses, if the buffer is a slice; a whole tile is in each block's own."""
    if t.shape == t.alloc_shape:
        return "own"
    if not isinstance(t.layout, NVMMASharedLayout):
        return "no box"
    return reach(t.shape, t.layout, t.element.bits, t.alloc_shape)


def _coordinates(coords: tuple[Value, ...], rank: int) -> None:
    require(len(coords) == rank, "{} coordinates, not {}", rank, len(coords))
    for coordinate in coords:
        scalar(coordinate, int32)


def _common(bar: Value, pred: Value | None, issuers: int, first: int) -> None:
    require(0 <= first < issuers, "warp {} of {} that issue requests", first, issuers)
    barrier(bar)
    if pred is not None:
        scalar(pred)
        boolean(pred)
