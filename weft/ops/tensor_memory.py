"""Tensor memory: 128 lanes by 512 columns of 32 bits in each SM, which holds the accumulators of tcgen05 MMAs.

    %acc = tensor_memory.alloc {shape=(128, 256), ...}    columns, for as long as the kernel runs
    %x = tensor_memory.load %acc                          a tile in registers; a warp can access 32 lanes only

Handles are values; the memory that they refer to is state. Creating a handle never fails. In lowered IR an address is an int32
scalar, lane << 16 | column. The kernel allocates all of its columns at its entry and deallocates them before it returns.
(PTX ISA, "Tensor Memory", tcgen05.alloc, tcgen05.ld and tcgen05.st.)
"""

from __future__ import annotations

from weft.ir.core import Effect, Value
from weft.ir.define import op
from weft.ir.types import DType, RegsType, ScalarType, SharedArrayType, TensorType, Type, int32, tile_type, uint32
from weft.layout import DistributedLayout
from weft.layout.tensor_memory.layouts import TensorLayout
from weft.layout.tensor_memory.load_store import Variant
from weft.ops.check import boolean, regs, require, scalar, tensor_memory, tile
from weft.ops.regs import Table
from weft.ops.tile import LOWER

LOADS = Effect("read", "tensor", "handle")
STORES = Effect("write", "tensor", "handle")


@op("tensor_memory.alloc", stage="tile", removed_by=LOWER)
def alloc(element: DType, shape: tuple[int, ...], layout: TensorLayout, tag: int, column: int = -1) -> Type:
    """Allocate columns for tiles of the trailing two dimensions, one per index of the leading ones. Contents are undefined.

    `tag` is unique, so that value numbering never merges allocations. `allocate_tensor_memory` sets `column`, within the
    kernel's columns."""
    require(len(shape) >= 2, "a shape of at least two dimensions, not {}", shape)
    return TensorType(element, shape, layout, shape[-2:])


@op("tensor_memory.index", stage="tile", removed_by=LOWER)
def index(handle: Value, index: Value) -> Type:
    """The part at an index along the first of more than two dimensions."""
    t = tensor_memory(handle)
    scalar(index, int32)
    require(len(t.shape) > 2, "{} has no leading dimension", t)
    return TensorType(t.element, t.shape[1:], t.layout, t.alloc_shape)


@op("tensor_memory.slice", stage="tile", removed_by=LOWER)
def slice(handle: Value, start: int, length: int, dim: int) -> Type:
    """Elements `start` to `start + length` along a dimension. Within a tile, length is a power of two that divides start."""
    t = tensor_memory(handle)
    leading = len(t.shape) - 2
    require(0 <= dim < len(t.shape), "there is no dimension {}", dim)
    aligned = length > 0 and length & (length - 1) == 0 and start % length == 0
    require(dim < leading or aligned, "a part of a tile is a power of two long and starts at a multiple of that")
    require(dim == 0 or dim >= leading or length == t.shape[dim], "tiles of a part along dimension {} of {}", dim, t)
    shape = tuple([length if d == dim else size for d, size in enumerate(t.shape)])
    return TensorType(t.element, shape, t.layout, t.alloc_shape)


@op("tensor_memory.reinterpret", stage="tile", removed_by=LOWER)
def reinterpret(
    handle: Value, element: DType, shape: tuple[int, ...], layout: TensorLayout, column: int = 0
) -> Type:  # fmt: skip
    """The columns as another type, from `column` past the handle's first one on. They may extend past the handle's; an access
    there may fail."""
    tensor_memory(handle)
    require(column >= 0, "a column of the handle, not {}", column)
    require(len(shape) >= 2, "a shape of at least two dimensions, not {}", shape)
    return TensorType(element, shape, layout, shape[-2:])


@op("tensor_memory.load", effects=(LOADS,), needs="block", stage="tile", removed_by=LOWER)
def load(handle: Value, layout: DistributedLayout) -> Type:
    """Load a tile from tensor memory to registers; the operation waits for completion (tcgen05.wait::ld)."""
    t = tensor_memory(handle)
    require(len(t.shape) == 2, "{} holds several tiles", t)
    return tile_type(t.element, t.shape, layout)


@op("tensor_memory.store", effects=(STORES,), needs="block", stage="tile", removed_by=LOWER)
def store(handle: Value, value: Value, pred: Value | None) -> None:
    """Store a tile if the scalar `pred` holds; the operation waits for completion (tcgen05.wait::st)."""
    t, v = tensor_memory(handle), tile(value)
    require((t.element, t.shape) == (v.element, v.shape), "{} stored to {}", v, t)
    _predicate(pred)


# Lowered IR


@op(
    "tensor_memory.reserve",
    effects=(Effect("sync", "threads"), Effect("write", "shared", "room")),
    needs="block",
    stage="lowered",
)
def reserve(room: Value, columns: int, two_ctas: bool) -> Type:
    """Allocate the block's columns (in both blocks of a pair with `two_ctas`) and relinquish the permit; returns their address.

    The first warp allocates, and passes the address to the others through shared memory, `room`. All threads synchronise."""
    require(room.type == SharedArrayType(uint32, 1), "{} cannot hold an address", room.type)
    require(32 <= columns <= 512 and columns & (columns - 1) == 0, "{} columns cannot be had", columns)
    return ScalarType(int32)


@op("tensor_memory.release", effects=(Effect("sync", "threads"),), needs="block", stage="lowered")
def release(address: Value, columns: int, two_ctas: bool) -> None:
    """Deallocate the columns, by the first warp after a barrier of all threads."""
    scalar(address, int32)


@op(
    "tensor_memory.load_regs",
    effects=(Effect("read", "tensor", "address"),),
    needs="block",
    stage="lowered",
    scope="thread",
)
def load_regs(
    address: Value, element: DType, variant: Variant, repeat: int, offsets: Table, registers: tuple[Table, ...],
    packed: bool = False, split: int = 0,
) -> Type:  # fmt: skip
    """Load registers; the operation waits for completion.

    `address` is that of the warp's 32 lanes (a warp-uniform int32 scalar). Instruction i loads from `offsets[i]` past it, and
    its words fill `registers[i]`, the elements of a word from the lowest. With `packed` each word has two 16-bit elements of
    neighbouring columns. `split` is the number of columns between the halves of 16x32bx2."""
    scalar(address, int32)
    _accesses(offsets, registers)
    return RegsType(element, _count(registers))


@op("tensor_memory.store_regs", effects=(Effect("write", "tensor", "address"),), needs="block", stage="lowered")
def store_regs(
    address: Value, value: Value, pred: Value | None, variant: Variant, repeat: int, offsets: Table,
    registers: tuple[Table, ...], packed: bool = False, split: int = 0,
) -> None:  # fmt: skip
    """Store registers as `load_regs` loads them, if `pred` holds."""
    scalar(address, int32)
    _predicate(pred)
    _accesses(offsets, registers)
    require(max(map(max, registers)) < regs(value).count, "registers that are not there")


def _accesses(offsets: Table, registers: tuple[Table, ...]) -> None:
    require(len(offsets) == len(registers), "an offset per instruction")


def _count(registers: tuple[Table, ...]) -> int:
    count = sum(map(len, registers))
    require(sorted(r for group in registers for r in group) == list(range(count)), "each register is read once")
    return count


def _predicate(pred: Value | None) -> None:
    if pred is not None:
        scalar(pred)
        boolean(pred)
