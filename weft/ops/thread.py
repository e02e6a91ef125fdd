"""Thread-level code: thread-local arrays, and individual accesses of threads to shared memory and register fragments.

Most of these operations are the same in tile IR and lowered IR. Each thread has its own value of a divergent scalar or register
array. The author orders thread-level accesses to shared memory by barriers; none are inserted between them. Access `i` of `n`
moves `vec` consecutive elements from element `index + offsets[i]` on, in registers `i * vec` and following, by one instruction.
`mask` is one predicate per access, or one for all.
"""

from __future__ import annotations

from math import prod

from weft.ir.core import Effect, Value
from weft.ir.define import op, reads, writes
from weft.ir.types import DType, LocalType, RegsType, ScalarType, SharedArrayType, TileType, Type, int32, tile_type
from weft.layout import DistributedLayout
from weft.ops.check import TypingError, boolean, integer, regs, require, scalar, shared, shared_array, tile
from weft.ops.memory import Atomic
from weft.ops.regs import Table
from weft.ops.tile import LOWER


@op("thread.alloc_local")
def alloc_local(dtype: DType, count: int, tag: int) -> Type:
    """A thread-local array of `count` elements, undefined until written. `tag` is unique, so that arrays are never merged."""
    require(count > 0, "an array has elements")
    return LocalType(dtype, count)


@op("thread.load_local", effects=(Effect("read", "local", "memory"),), scope="thread")
def load_local(memory: Value, index: Value | None, offsets: Table) -> Type:
    """Load element `index + offsets[i]` to register i; without `index` all offsets are compile-time constants."""
    t = _local(memory)
    _index(index, offsets, t.count)
    return RegsType(t.element, len(offsets))


@op("thread.store_local", effects=(Effect("write", "local", "memory"),))
def store_local(memory: Value, index: Value | None, value: Value, mask: Value | None, offsets: Table) -> None:
    """Store register i to element `index + offsets[i]`."""
    t = _local(memory)
    _index(index, offsets, t.count)
    _mask(mask, len(offsets))
    require(value.type == RegsType(t.element, len(offsets)), "{} into {}", value.type, t)


@op("thread.load_shared", effects=(reads("memory", "shared"),), scope="thread")
def load_shared(memory: Value, index: Value, mask: Value | None, offsets: Table, vec: int) -> Type:
    """Load from shared memory; registers of accesses that are masked off are undefined."""
    t = shared_array(memory)
    _accesses(t, index, mask, offsets, vec)
    return RegsType(t.element, len(offsets) * vec)


@op("thread.store_shared", effects=(writes("memory", "shared"),))
def store_shared(memory: Value, index: Value, value: Value, mask: Value | None, offsets: Table, vec: int) -> None:
    """Store to shared memory; accesses that are masked off store nothing."""
    t = shared_array(memory)
    _accesses(t, index, mask, offsets, vec)
    require(value.type == RegsType(t.element, len(offsets) * vec), "{} into {}", value.type, t)


@op("thread.atomic_shared", effects=(reads("memory", "shared"), writes("memory", "shared")), scope="thread")
def atomic_shared(memory: Value, index: Value, value: Value, mask: Value | None, kind: Atomic) -> Type:
    """Combine a scalar into element `index` atomically; returns the old value, undefined if the scalar `mask` does not hold."""
    t = shared_array(memory)
    _accesses(t, index, mask, (0,), 1)
    scalar(value, t.element)
    require(t.element.bits in (32, 64), "atomics on shared memory are of 32 or 64 bits: {}", t)
    return ScalarType(t.element)


@op("thread.shared_of", stage="tile", removed_by=LOWER)
def shared_of(handle: Value) -> Type:
    """The memory of a whole tile as an array for thread-level accesses, with its elements in order of their offsets."""
    t = shared(handle)
    require(len(t.shape) == t.layout.rank and t.shape == t.alloc_shape, "a whole tile is needed: {}", t)
    return SharedArrayType(t.element, prod(t.shape))


@op("thread.fragment", stage="tile", removed_by=LOWER, scope="thread")
def fragment(x: Value) -> Type:
    """The registers of a tile that each thread holds, in the order of the layout."""
    t = tile(x)
    require(t.resolved, "a fragment of a tile needs its layout")
    return RegsType(t.element, t.registers)


@op("thread.assemble", stage="tile", removed_by=LOWER)
def assemble(x: Value, shape: tuple[int, ...], layout: DistributedLayout) -> Type:
    """The tile whose elements each thread holds in these registers; all threads that hold an element must agree on it."""
    t = regs(x)
    made = tile_type(t.element, shape, layout)
    require(made.resolved and made.registers == t.count, "{} for {}", t, made)
    return made


@op("thread.bounds", effects=(Effect("write", "io"),))
def bounds(*values: Value, sizes: Table, view: str, where: tuple[str, ...] = ()) -> None:
    """A bounds check of indices into a view: in the simulator always, on a GPU in debug builds only.

    Index i of the first `len(sizes)` scalars must be at least 0 and less than `sizes[i]`; a size of -1 stands for the next of
    the scalars that follow. `view` is the author's expression for the view, and `where` says of each index what it counts, such
    as "along axis 1 of"."""
    count = len(sizes)
    require(len(values) == count + sizes.count(-1), "an index per size, and the sizes that are not constants")
    for value in values:
        scalar(value)
        integer(value)


def _local(value: Value) -> LocalType:
    if not isinstance(value.type, LocalType):
        raise TypingError(f"a thread's own array is needed: {value.type}")
    return value.type


def _index(index: Value | None, offsets: Table, count: int) -> None:
    if index is None:
        require(all(0 <= offset < count for offset in offsets), "a place outside of the array")
    else:
        scalar(index, int32)


def _mask(mask: Value | None, count: int) -> None:
    boolean(mask)
    if mask is not None:
        require(not isinstance(mask.type, TileType), "a predicate is a scalar or an array")
        require(not isinstance(mask.type, RegsType) or mask.type.count == count, "one predicate per access")


def _accesses(t: SharedArrayType, index: Value, mask: Value | None, offsets: Table, vec: int) -> None:
    scalar(index, int32)
    _mask(mask, len(offsets))
    require(vec * t.element.itemsize in (1, 2, 4, 8, 16), "no such access width")
