"""Lowered stage: shared memory, the author's and what the compiler takes for conversions, reductions and the like.

The author's allocations have their byte offsets already, `allocate_scratch` sets those of the compiler's own by liveness, and
`insert_sync` then places barriers on the physical ranges.
Access `i` goes to element `base ^ offsets[i]`, where `base` is each thread's own. `pads` (pairs of an interval and a padding)
then spread elements out (see `weft.layout.padding`), and `added[i]`, if given, is added to that place.
"""

from __future__ import annotations

from weft.ir.core import Value
from weft.ir.define import op, reads, writes
from weft.ir.types import DType, RegsType, ScratchType, Type, int32
from weft.layout.padding import Pads
from weft.layout.shared_size import VECTOR_BYTES
from weft.ops.check import boolean, integer, regs, require, scalar
from weft.ops.check import scratch as memory_of
from weft.ops.regs import Table


@op("scratch.alloc")
def alloc(
    dtype: DType, count: int, tag: int, offset: int = -1, align: int = VECTOR_BYTES, ordered: bool = False
) -> Type:
    """`count` elements of shared memory. `tag` keeps allocations apart, so that they are never merged; `offset` (in bytes, a
    multiple of `align`) is set by `allocate_scratch`. `ordered`: the author's, whose accesses are in order already: tile IR
    brought them in order, or, where threads share memory (`weft.ops.thread`), the author did; `allocate_shared` places it."""
    require(count > 0, "an allocation has elements")
    return ScratchType(dtype, count)


@op("scratch.view")
def view(scratch: Value, offset: Value, element: DType, count: int) -> Type:
    """Part of an allocation: `count` elements from a byte on (int32 scalar). Nothing is checked before it is accessed."""
    memory_of(scratch)
    scalar(offset, int32)
    require(count > 0, "a view has elements")
    return ScratchType(element, count)


@op("scratch.store", effects=(writes("scratch", "shared"),), stage="lowered")
def store(
    scratch: Value,
    base: Value,
    value: Value,
    mask: Value | None,
    offsets: Table,
    registers: tuple[Table, ...],
    vec: int,
    added: Table = (),
    pads: Pads = (),
) -> None:
    """Write registers; access `i` writes the `vec` registers `registers[i]` to consecutive elements. `mask` is a scalar."""
    t = memory_of(scratch)
    scalar(base)
    boolean(mask)
    require(regs(value).element == t.element, "{} into {}", value.type, t)
    _accesses(offsets, added, registers, vec)


@op("scratch.load", effects=(reads("scratch", "shared"),), stage="lowered", scope="thread")
def load(
    scratch: Value,
    base: Value,
    offsets: Table,
    registers: tuple[Table, ...],
    vec: int,
    added: Table = (),
    pads: Pads = (),
) -> Type:
    """Read registers; `registers` names each register of the result once."""
    t = memory_of(scratch)
    scalar(base)
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


@op("scratch.load_matrix", effects=(reads("scratch", "shared"),), stage="lowered", needs="warp", scope="thread")
def load_matrix(
    scratch: Value, base: Value, offsets: Table, registers: tuple[Table, ...], matrices: int, transposed: bool,
    added: Table = (), pads: Pads = (),
) -> Type:  # fmt: skip
    """Read matrices of 8 rows of 16 bytes (PTX ldmatrix), `matrices` (1, 2 or 4) per instruction.

    Lane l's place in access i is where row l % 8 of matrix l // 8 lies; `registers[i]` are the elements of its 32-bit word
    of each matrix: word l % 4 of row l // 4, or with `transposed` column l // 4 of rows 2 * (l % 4) and one more (16-bit
    elements only).
    """
    t = memory_of(scratch)
    scalar(base)
    _matrices(t, matrices, transposed)
    _accesses(offsets, added, registers, matrices * 4 // t.element.itemsize)
    return RegsType(t.element, _read_once(registers))


@op("scratch.store_matrix", effects=(writes("scratch", "shared"),), stage="lowered", needs="warp")
def store_matrix(
    scratch: Value, base: Value, value: Value, mask: Value | None, offsets: Table, registers: tuple[Table, ...],
    matrices: int, transposed: bool, added: Table = (), pads: Pads = (),
) -> None:  # fmt: skip
    """Write matrices of 8 rows of 16 bytes (PTX stmatrix), as `load_matrix` reads them. `mask` is a scalar of each warp."""
    t = memory_of(scratch)
    scalar(base)
    boolean(mask)
    require(regs(value).element == t.element, "{} into {}", value.type, t)
    _matrices(t, matrices, transposed)
    _accesses(offsets, added, registers, matrices * 4 // t.element.itemsize)


def _matrices(t: ScratchType, matrices: int, transposed: bool) -> None:
    require(matrices in (1, 2, 4), "an instruction moves 1, 2 or 4 matrices")
    require(t.element.itemsize == 2 or (t.element.itemsize <= 4 and not transposed), "no matrices of {}", t.element)


@op("scratch.load_at", effects=(reads("scratch", "shared"),), stage="lowered", scope="thread")
def load_at(scratch: Value, index: Value, pads: Pads = ()) -> Type:
    """Read element `index[i]` into register `i`."""
    integer(index)
    return RegsType(memory_of(scratch).element, regs(index).count)


@op("scratch.store_at", effects=(writes("scratch", "shared"),), stage="lowered")
def store_at(scratch: Value, index: Value, value: Value, mask: Value | None, pads: Pads = ()) -> None:
    """Write register `i` to element `index[i]`. `mask` is a scalar."""
    integer(index)
    boolean(mask)
    require(regs(index).count == regs(value).count, "an index per value")
    require(value.type.element == memory_of(scratch).element, "{} into {}", value.type, scratch.type)


@op("scratch.add_at", effects=(reads("scratch", "shared"), writes("scratch", "shared")), stage="lowered")
def add_at(scratch: Value, index: Value, value: Value, mask: Value | None) -> None:
    """Add `value[i]` to element `index[i]`, atomically among the block's threads, where `mask[i]` holds. int32 only."""
    integer(index)
    boolean(mask)
    require(regs(index).count == regs(value).count, "an index per value")
    require(memory_of(scratch).element.code == "i32", "add_at counts in int32")
