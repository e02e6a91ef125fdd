"""TMA: the copy engine that moves blocks of tensors between global and shared memory (PTX ISA, cp.async.bulk.tensor).

Requests are issued by one elected thread of the partition and carried out in the async proxy. A load completes on an mbarrier
by its bytes; stores and reductions each are a bulk group of the elected thread, complete when their source has been read.
The requests of a load may be spread over `issuers` warps: request i is issued by the elected thread of warp
(`first` + i) % `issuers` of the partition (`weft.passes.sync.spread_requests`).

In the lowered stage handles are arrays and `boxes` lists what the hardware moves in one instruction: how far a box lies from
the block's coordinates, and its byte in shared memory (`weft.layout.shared.tma`).
"""

from __future__ import annotations

from typing import Literal

from weft.ir.core import Attrs, By, Effect, Value
from weft.ir.define import op
from weft.ir.types import DescriptorType, DType, SharedArrayType, Type, int16, int32, int64
from weft.layout import SharedLayout
from weft.ops.check import barrier, boolean, descriptor, pointer_of, regs, require, scalar, shared, tile
from weft.ops.tile import LOWER

Reduction = Literal["add", "min", "max", "and", "or", "xor"]
Padding = Literal["zero", "nan"]
Boxes = tuple[tuple[tuple[int, ...], int], ...]
DESCRIPTOR_BYTES = 128
"""Size and alignment of a descriptor that a kernel makes."""


def _loads(attrs: Attrs) -> tuple[Effect, ...]:
    by: By = "several warps" if attrs.get("issuers", 1) > 1 else "elected"
    return (
        Effect("read", "global", "desc", "async", "mbarrier", by=by),
        Effect("write", "shared", "handle", "async", "mbarrier", by=by),
        Effect("update", "shared", "bar", "async", by=by, remote=bool(attrs.get("shared_by"))),
    )


STORES = (
    Effect("read", "shared", "handle", "async", "bulk", by="elected"),
    Effect("write", "global", "desc", "async", "bulk", by="elected"),
)


def _waits(attrs: Attrs) -> tuple[Effect, ...]:
    return (Effect("sync", "shared", completes="bulk", by="elected", pendings=attrs["pendings"]),)


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
    issuers: int = 1,
    first: int = 0,
    boxes: Boxes = (),
) -> None:
    """Start to copy the block at `coords` (elements, outermost first; int32) to shared memory, where `pred` holds.

    Elements outside of the tensor arrive as zeros, or NaNs if the descriptor says so. The barrier's phase receives the bytes of
    the whole block. `multicast` sends one block to all blocks of the cluster that share it; the one of them in whose number
    the bits in which they differ are `sender` does so. `shared_by` as for `mbarrier.arrive`: two blocks that multiply together
    (`weft.ops.tcgen05`) may share a barrier, and the loads of both arrive there."""
    d = descriptor(desc)
    require(d.mode == "tiled", "a descriptor of mode {} where 'tiled' is needed", d.mode)
    _block(d, handle)
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
def store(desc: Value, handle: Value, *coords: Value, boxes: Boxes = ()) -> None:
    """Start to copy a block from shared memory to the tensor at `coords`; what lies outside of the tensor is not written.

    The hardware writes chunks of 16 bytes: where rows end within one, the rest of it is written too."""
    d = descriptor(desc)
    _block(d, handle)
    _coordinates(coords, len(d.block_shape))


@op("tma.reduce", effects=STORES, needs="block")
def reduce(desc: Value, handle: Value, *coords: Value, kind: Reduction, boxes: Boxes = ()) -> None:
    """As `store`, but each element is combined into the tensor's, in one step."""
    d = descriptor(desc)
    _block(d, handle)
    _coordinates(coords, len(d.block_shape))


GATHERED = 4
"""Rows of a tensor that one request moves."""
GatherSteps = tuple[tuple[int, int, int], ...]
"""Requests for four rows: the first of four registers of rows, what is added to the column, byte in shared memory."""


@op("tma.gather", effects=_loads, needs="block", stage="tile", removed_by=LOWER)
def gather(desc: Value, bar: Value, handle: Value, pred: Value | None, rows: Value, column: Value) -> None:
    """Start to copy the parts from `column` (int32) on of some rows of a matrix to shared memory, where `pred` holds.

    `rows` is a tile of int32, one for each row of `handle`; the descriptor's block is one row of that. Rows outside of the
    matrix arrive as the descriptor's padding. The barrier's phase receives all bytes of `handle`."""
    _rows(desc, handle, rows, column)
    _common(bar, pred, 1, 0)


@op("tma.scatter", effects=STORES, needs="block", stage="tile", removed_by=LOWER)
def scatter(desc: Value, handle: Value, rows: Value, column: Value) -> None:
    """Start to copy rows of shared memory to rows of a matrix, from `column` on; one bulk group.

    Rows outside of the matrix are not written."""
    _rows(desc, handle, rows, column)


@op("tma.gather4", effects=_loads, needs="block", stage="lowered")
def gather4(
    desc: Value, bar: Value, handle: Value, pred: Value | None, rows: Value, column: Value, *, steps: GatherSteps
) -> None:
    """Requests of `gather`, all by the elected thread, in whose registers `rows` are."""
    _four(rows, steps)
    _common(bar, pred, 1, 0)


@op("tma.scatter4", effects=STORES, needs="block", stage="lowered")
def scatter4(desc: Value, handle: Value, rows: Value, column: Value, *, steps: GatherSteps) -> None:
    """Requests of `scatter`, all by the elected thread, in whose registers `rows` are."""
    _four(rows, steps)


@op("tma.store_wait", effects=_waits, needs="block")
def store_wait(pendings: int) -> None:
    """The elected thread waits until the sources of all but its `pendings` latest stores and reductions have been read."""
    require(pendings >= 0, "at least 0 stores stay pending")


@op("tma.prefetch", effects=(Effect("read", "global", "desc", "async", by="elected"),), stage="lowered", needs="block")
def prefetch(desc: Value) -> None:
    """Have a descriptor at hand before the first request names it."""
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
    """As `make_descriptor`: the first warp forms the descriptor in `room` and puts it at byte `slot` of the block's workspace.

    `again`: an earlier one may lie there, of which stores have to be read first. Loads through it must be complete."""
    require(room.type == SharedArrayType(int32, DESCRIPTOR_BYTES // 4), "{} cannot hold a descriptor", room.type)
    return _made(ptr, shape_and_strides, block_shape, layout)


def _made(ptr: Value, shape_and_strides: tuple[Value, ...], block_shape: tuple[int, ...], layout: SharedLayout) -> Type:
    element: DType = pointer_of(ptr).element_ty
    rank = len(block_shape)
    require(len(shape_and_strides) == 2 * rank, "an extent and a stride for each of {} dimensions", rank)
    _coordinates(shape_and_strides[:rank], rank)
    for stride in shape_and_strides[rank:]:
        scalar(stride, int64)
    return DescriptorType(element, block_shape, layout)


def _rows(desc: Value, handle: Value, rows: Value, column: Value) -> None:
    d, t, r = descriptor(desc), shared(handle), tile(rows)
    scalar(column, int32)
    require((r.element, len(r.shape)) == (int32, 1), "rows are named by one dimension of int32: {}", r)
    require(
        t.shape == t.alloc_shape == (*r.shape, *d.block_shape[1:]) and d.block_shape[0] == 1, "{} copied by {}", t, d
    )
    require((t.element, t.layout) == (d.element, d.layout), "{} copied by {}", t, d)


def _four(rows: Value, steps: GatherSteps) -> None:
    count = regs(rows).count
    require(all(0 <= first <= count - GATHERED for first, *_ in steps), "rows that are not there")


def _block(d: DescriptorType, handle: Value) -> None:
    t = handle.type
    if isinstance(t, SharedArrayType):
        require(t.element == d.element, "{} copied by {}", t, d)
        return
    t = shared(handle)
    require(t.element == d.element, "{} copied by {}", t, d)
    require(t.shape == d.block_shape == t.alloc_shape, "{} copied by {}", t, d)
    require(t.layout == d.layout, "{} copied by {}", t, d)


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
