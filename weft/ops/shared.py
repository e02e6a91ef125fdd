"""Shared memory: the author's tiles and handles to them in tile IR, and arrays of elements in lowered IR.

A handle is a value; the memory that it refers to is state. Creating a handle never fails; an access outside of the allocation
is an error. `scratch` allocates memory of the compiler's own, accessed by the same operations.
"""

from __future__ import annotations

from weft.ir.core import Effect, Value
from weft.ir.define import op, reads, writes
from weft.ir.types import DType, RegsType, SharedArrayType, SharedType, TileType, Type, int32, tile_type
from weft.layout import DistributedLayout, SharedLayout
from weft.layout.base import is_tile_part
from weft.layout.shared.layouts import Pads
from weft.layout.shared.sizes import VECTOR_BYTES
from weft.layout.shared.views import contiguous
from weft.ops.check import barrier, boolean, integer, regs, require, same_form, scalar, shared, shared_array, tile
from weft.ops.memory import Atomic
from weft.ops.regs import Table
from weft.ops.tile import LOWER


@op("shared.alloc", stage="tile", removed_by=LOWER)
def alloc(element: DType, shape: tuple[int, ...], layout: SharedLayout, tag: int, offset: int = -1) -> Type:
    """Allocate tiles of the trailing `layout.rank` dimensions, one for each index of the leading ones. Contents are undefined.

    `tag` is unique, so that value numbering never merges allocations. `allocate_shared` sets `offset`, in bytes within the
    block's shared memory."""
    require(len(shape) >= layout.rank, "a shape of at least {} dimensions, not {}", layout.rank, shape)
    return SharedType(element, shape, layout, shape[len(shape) - layout.rank :])


@op("shared.index", stage="tile", removed_by=LOWER)
def index(handle: Value, index: Value) -> Type:
    """The part at an index along the first dimension, which must be a leading one (a stage)."""
    t = shared(handle)
    scalar(index, int32)
    require(len(t.shape) > t.layout.rank, "{} has no leading dimension", t)
    return SharedType(t.element, t.shape[1:], t.layout, t.alloc_shape)


@op("shared.slice", stage="tile", removed_by=LOWER)
def slice(handle: Value, start: int, length: int, dim: int) -> Type:
    """Elements `start` to `start + length` along a dimension. Within a tile, start is a multiple of the length, rounded up to a
    power of two."""
    t = shared(handle)
    leading = len(t.shape) - t.layout.rank
    require(0 <= dim < len(t.shape), "there is no dimension {}", dim)
    require(dim < leading or is_tile_part(start, length), "no part of a tile: {} elements from {}", length, start)
    require(dim == 0 or dim >= leading or length == t.shape[dim], "tiles of a part along dimension {} of {}", dim, t)
    shape = tuple([length if d == dim else size for d, size in enumerate(t.shape)])
    return SharedType(t.element, shape, t.layout, t.alloc_shape)


@op("shared.permute", stage="tile", removed_by=LOWER)
def permute(handle: Value, order: tuple[int, ...], layout: SharedLayout) -> Type:
    """The same memory with its dimensions in another order: new dimension i is old dimension `order[i]`.

    Leading dimensions are not permuted. `layout` maps each element of the permuted tile to its old offset."""
    t = shared(handle)
    leading = len(t.shape) - t.layout.rank
    require(sorted(order) == list(range(len(t.shape))), "{} is no order of {}", order, t)
    require(order[:leading] == tuple(range(leading)), "leading dimensions stay where they are")
    alloc_shape = tuple([t.alloc_shape[d - leading] for d in order[leading:]])
    return SharedType(t.element, tuple([t.shape[d] for d in order]), layout, alloc_shape)


@op("shared.reshape", stage="tile", removed_by=LOWER)
def reshape(handle: Value, shape: tuple[int, ...], layout: SharedLayout) -> Type:
    """A whole tile's memory in another shape, elements in row-major order; `layout` maps each element to its old offset."""
    t = shared(handle)
    require(t.shape == t.alloc_shape, "only a whole tile is reshaped: {}", t)
    return SharedType(t.element, shape, layout, shape)


@op("shared.reinterpret", stage="tile", removed_by=LOWER)
def reinterpret(handle: Value, element: DType, shape: tuple[int, ...], layout: SharedLayout) -> Type:
    """The bytes from the handle on as another type. They may extend past the handle's; an access there may fail.

    A slice of a tile is contiguous."""
    t = shared(handle)
    part = t.shape[len(t.shape) - t.layout.rank :]
    require(part == t.alloc_shape or contiguous(t.layout, t.alloc_shape, part) > 0, "{} is not contiguous", t)
    require(len(shape) >= layout.rank, "a shape of at least {} dimensions, not {}", layout.rank, shape)
    return SharedType(element, shape, layout, shape[len(shape) - layout.rank :])


@op("shared.load", effects=(reads("handle", "shared"),), stage="tile", removed_by=LOWER)
def load(handle: Value, layout: DistributedLayout) -> Type:
    """Load a tile from shared memory to registers."""
    t = shared(handle)
    require(len(t.shape) == t.layout.rank, "{} holds several tiles", t)
    return tile_type(t.element, t.shape, layout)


@op("shared.store", effects=(writes("handle", "shared"),), stage="tile", removed_by=LOWER)
def store(handle: Value, value: Value) -> None:
    """Store a tile. An element that several threads hold is written once."""
    t, v = shared(handle), tile(value)
    require((t.element, t.shape) == (v.element, v.shape), "{} stored to {}", v, t)


SENDS = (Effect("write", "shared", "handle", completes="mbarrier"), Effect("update", "shared", "bar"))


@op("shared.async_store", effects=SENDS, stage="tile", needs="block", removed_by=LOWER)
def async_store(handle: Value, value: Value, bar: Value) -> None:
    """Start a store of a tile (PTX st.async), whose bytes complete on the mbarrier. Each element is written once."""
    t, v = shared(handle), tile(value)
    barrier(bar)
    require((t.element, t.shape) == (v.element, v.shape), "{} stored to {}", v, t)


@op("shared.gather", effects=(reads("handle", "shared"),), stage="tile", removed_by=LOWER)
def gather(handle: Value, indices: Value, axis: int) -> Type:
    """Element `indices[i]` along `axis`, and i along the others, at each coordinate i of `indices`."""
    t, i = shared(handle), tile(indices)
    integer(indices)
    _along(t, i, axis)
    return TileType(t.element, i.shape, i.linear, i.layout)


@op("shared.scatter", effects=(writes("handle", "shared"),), stage="tile", removed_by=LOWER)
def scatter(handle: Value, value: Value, indices: Value, axis: int) -> None:
    """Write `value[i]` to element `indices[i]` along `axis`, and i along the others."""
    t, v, i = shared(handle), tile(value), tile(indices)
    integer(indices)
    _along(t, i, axis)
    require(v.element == t.element, "{} stored to {}", v, t)
    require(v.shape == i.shape and v.linear == i.linear, "a value per index: {} and {}", v, i)


@op("shared.atomic", effects=(reads("handle", "shared"), writes("handle", "shared")), stage="tile", removed_by=LOWER)
def atomic(handle: Value, value: Value, mask: Value | None, indices: Value, axis: int, kind: Atomic) -> Type:
    """Combine `value[i]` atomically into element `indices[i]` along `axis`, and i along the others, where `mask` holds.

    Returns the old values; that of an element that is masked off is 0."""
    t, v, i = shared(handle), tile(value), tile(indices)
    integer(indices)
    boolean(mask)
    _along(t, i, axis)
    require(v.element == t.element, "{} combined into {}", v, t)
    require(kind in ("add", "max", "min", "xchg") or t.element.is_int(), "atomic {} needs integers", kind)
    same_form(value, mask, indices)
    return value.type


def _along(t: SharedType, indices: TileType, axis: int) -> None:
    require(len(t.shape) == t.layout.rank == len(indices.shape), "{} indexed by {}", t, indices)
    require(0 <= axis < len(t.shape), "there is no dimension {}", axis)
    same = all(d == axis or size == t.shape[d] for d, size in enumerate(indices.shape))
    require(same, "indices of shape {} along axis {} of {}", indices.shape, axis, t)


@op("shared.keep_alive", effects=(Effect("sync", "shared", "handle"),), stage="tile", removed_by=LOWER)
def keep_alive(handle: Value) -> None:
    """Keep the allocation alive until here: its bytes are not reused before. It accesses nothing."""
    shared(handle)


# Arrays: the memory of tiles in lowered IR, and shared memory of thread-level code. Access `i` is to element
# `base ^ offsets[i]`, where `base` differs by thread. `pads` (pairs of an interval and a padding) then insert padding
# (`weft.layout.shared.layouts.padded`), and `added[i]`, if given, is added to the result.


@op("shared.array")
def array(dtype: DType, count: int, tag: int, offset: int = -1, align: int = VECTOR_BYTES) -> Type:
    """Allocate `count` elements for the author. Accesses to them are ordered already: by `insert_sync` on tile IR, or by the
    author in thread-level code (`weft.ops.thread`). `tag` is unique, so that value numbering never merges allocations.
    `allocate_shared` sets `offset` (in bytes, a multiple of `align`)."""
    require(count > 0, "an allocation has elements")
    return SharedArrayType(dtype, count)


@op("shared.scratch", stage="lowered")
def scratch(dtype: DType, count: int, tag: int, offset: int = -1, align: int = VECTOR_BYTES) -> Type:
    """Allocate `count` elements for the compiler: for layout conversions, reductions and others. `tag` as in `array`;
    `allocate_scratch` sets `offset` (in bytes, a multiple of `align`) by liveness, and `insert_sync` orders the accesses."""
    require(count > 0, "an allocation has elements")
    return SharedArrayType(dtype, count)


@op("shared.view")
def view(memory: Value, offset: Value, element: DType, count: int) -> Type:
    """A part of an allocation: `count` elements from a byte offset (int32 scalar) on. Bounds are checked at accesses only."""
    shared_array(memory)
    scalar(offset, int32)
    require(count > 0, "a view has elements")
    return SharedArrayType(element, count)


@op("shared.store_regs", effects=(writes("memory", "shared"),), stage="lowered")
def store_regs(
    memory: Value,
    base: Value,
    value: Value,
    mask: Value | None,
    offsets: Table,
    registers: tuple[Table, ...],
    vec: int,
    added: Table = (),
    pads: Pads = (),
) -> None:
    """Store registers; access `i` stores the `vec` registers `registers[i]` to consecutive elements. `mask` is a scalar."""
    scalar(base)
    check_store(memory, value, mask, offsets, added, registers, vec)


def check_store(
    memory: Value,
    value: Value,
    mask: Value | None,
    offsets: Table,
    added: Table,
    registers: tuple[Table, ...],
    vec: int,
) -> None:
    """Check accesses to a memory that store registers."""
    t = shared_array(memory)
    boolean(mask)
    require(regs(value).element == t.element, "{} into {}", value.type, t)
    _accesses(offsets, added, registers, vec)


@op(
    "shared.async_store_regs",
    effects=(Effect("write", "shared", "memory", completes="mbarrier"), SENDS[1]),
    stage="lowered",
)
def async_store_regs(
    memory: Value,
    base: Value,
    value: Value,
    bar: Value,
    mask: Value | None,
    offsets: Table,
    registers: tuple[Table, ...],
    vec: int,
    added: Table = (),
    pads: Pads = (),
) -> None:
    """As `store_regs`, by PTX st.async: each access completes its bytes on the mbarrier when it is performed."""
    scalar(base)
    check_sent(memory, bar, vec)
    check_store(memory, value, mask, offsets, added, registers, vec)


def check_sent(memory: Value, bar: Value, vec: int) -> None:
    """Check what st.async needs besides a store."""
    barrier(bar)
    require(vec * shared_array(memory).element.itemsize in (4, 8, 16), "st.async writes 4, 8 or 16 bytes")


@op("shared.load_regs", effects=(reads("memory", "shared"),), stage="lowered")
def load_regs(
    memory: Value,
    base: Value,
    offsets: Table,
    registers: tuple[Table, ...],
    vec: int,
    added: Table = (),
    pads: Pads = (),
) -> Type:
    """Load registers; `registers` has each register of the result once."""
    scalar(base)
    return load_type(memory, offsets, added, registers, vec)


def load_type(memory: Value, offsets: Table, added: Table, registers: tuple[Table, ...], vec: int) -> Type:
    """The registers that accesses to a memory load."""
    t = shared_array(memory)
    _accesses(offsets, added, registers, vec)
    return RegsType(t.element, _read_once(registers))


def _accesses(offsets: Table, added: Table, registers: tuple[Table, ...], each: int) -> None:
    count = len(offsets)
    require(len(registers) == count and all(len(group) == each for group in registers), "an offset per access")
    require(len(added) in (0, count), "an added offset per access, or none")


def _read_once(registers: tuple[Table, ...]) -> int:
    count = sum(map(len, registers))
    require(sorted(r for group in registers for r in group) == list(range(count)), "each register is read once")
    return count


@op("shared.load_matrix", effects=(reads("memory", "shared"),), stage="lowered", needs="warp", scope="thread")
def load_matrix(
    memory: Value, base: Value, offsets: Table, registers: tuple[Table, ...], matrices: int, transposed: bool,
    added: Table = (), pads: Pads = (),
) -> Type:  # fmt: skip
    """Read matrices of 8 rows of 16 bytes (PTX ldmatrix), `matrices` (1, 2 or 4) per instruction.

    In access i lane l gives the address of row l % 8 of matrix l // 8. `registers[i]` are the elements of the lane's 32-bit
    word of each matrix: word l % 4 of row l // 4, or with `transposed` column l // 4 of rows 2 * (l % 4) and 2 * (l % 4) + 1
    (16-bit elements only).
    """
    t = shared_array(memory)
    scalar(base)
    _matrices(t, matrices, transposed)
    _accesses(offsets, added, registers, matrices * 4 // t.element.itemsize)
    return RegsType(t.element, _read_once(registers))


@op("shared.store_matrix", effects=(writes("memory", "shared"),), stage="lowered", needs="warp")
def store_matrix(
    memory: Value, base: Value, value: Value, mask: Value | None, offsets: Table, registers: tuple[Table, ...],
    matrices: int, transposed: bool, added: Table = (), pads: Pads = (),
) -> None:  # fmt: skip
    """Store matrices of 8 rows of 16 bytes (PTX stmatrix), as `load_matrix` loads them. `mask` is a warp-uniform scalar."""
    t = shared_array(memory)
    scalar(base)
    boolean(mask)
    require(regs(value).element == t.element, "{} into {}", value.type, t)
    _matrices(t, matrices, transposed)
    _accesses(offsets, added, registers, matrices * 4 // t.element.itemsize)


def _matrices(t: SharedArrayType, matrices: int, transposed: bool) -> None:
    require(matrices in (1, 2, 4), "an instruction moves 1, 2 or 4 matrices")
    require(t.element.itemsize == 2 or (t.element.itemsize <= 4 and not transposed), "no matrices of {}", t.element)


@op("shared.load_at", effects=(reads("memory", "shared"),), stage="lowered", scope="thread")
def load_at(memory: Value, index: Value, pads: Pads = ()) -> Type:
    """Read element `index[i]` into register `i`."""
    integer(index)
    return RegsType(shared_array(memory).element, regs(index).count)


@op("shared.store_at", effects=(writes("memory", "shared"),), stage="lowered")
def store_at(memory: Value, index: Value, value: Value, mask: Value | None, pads: Pads = ()) -> None:
    """Write register `i` to element `index[i]`. `mask` is a scalar."""
    integer(index)
    boolean(mask)
    require(regs(index).count == regs(value).count, "an index per value")
    require(value.type.element == shared_array(memory).element, "{} into {}", value.type, memory.type)


@op(
    "shared.atomic_at", effects=(reads("memory", "shared"), writes("memory", "shared")), stage="lowered", scope="thread"
)
def atomic_at(memory: Value, index: Value, value: Value, mask: Value | None, kind: Atomic, pads: Pads = ()) -> Type:
    """Combine `value[i]` into element `index[i]`, atomically among the block's threads, where `mask[i]` holds; returns the old
    values, 0 where it does not."""
    integer(index)
    boolean(mask)
    require(regs(index).count == regs(value).count, "an index per value")
    require(value.type.element == shared_array(memory).element, "{} into {}", value.type, memory.type)
    return value.type
