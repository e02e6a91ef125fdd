"""Broadcast of values from one thread to others: by shuffles within a warp, through scratch shared memory across warps.

%v of thread 0    -->    shared.store_regs %scratch, %v (thread 0); shared.load_regs %scratch (all threads)
"""

from __future__ import annotations

from math import prod

from weft.ir.core import Value
from weft.ir.types import DType, RegsType, int32, uint8, uint64
from weft.layout import LinearLayout
from weft.ops import arith, regs, shared, warp
from weft.ops.regs import Table
from weft.passes.lower.placement import flat_table, free_threads, leaders, owned
from weft.passes.lower.state import Lowering


def storable(lo: Lowering, value: Value) -> Value:
    """An array in a type that scratch memory and shuffles support: pointers become uint64, bools uint8."""
    element = value.type.element
    if not isinstance(element, DType):
        return lo.emit(arith.bitcast, value, element=uint64)
    return lo.emit(arith.cast, value, dtype=uint8) if element.is_bool() else value


def restored(lo: Lowering, value: Value, like: Value) -> Value:
    """Undo `storable`."""
    element = like.type.element
    if not isinstance(element, DType):
        return lo.emit(arith.bitcast, value, element=element)
    return lo.emit(arith.cast, value, dtype=element) if element.is_bool() else value


def allocate(lo: Lowering, value: Value, count: int) -> Value:
    """Scratch memory for `count` elements of an array's type."""
    element = value.type.element
    assert isinstance(element, DType)
    return lo.emit(shared.scratch, dtype=element, count=count, tag=lo.tag())


def broadcast_scalar(lo: Lowering, value: Value, used: bool) -> Value:
    """Broadcast thread 0's value, a one-register array, to a scalar of all threads."""
    if not used:
        return lo.emit(regs.extract, value, index=0)
    stored = storable(lo, value)
    memory = allocate(lo, stored, 1)
    zero = lo.constant(0, int32)
    lo.emit(shared.store_regs, memory, zero, stored, lo.first_thread(), offsets=(0,), registers=((0,),), vec=1)
    loaded = lo.emit(shared.load_regs, memory, zero, offsets=(0,), registers=((0,),), vec=1)
    return lo.emit(regs.extract, restored(lo, loaded, value), index=0)


def broadcast_from_owner(lo: Lowering, value: Value, linear: LinearLayout, used: bool) -> Value:
    """Broadcast the elements of a tile from their owners to all threads that hold them."""
    registers = owned(linear)
    lanes, warps = free_threads(linear)
    if used and (warps or not _repeats_whole_lanes(linear)):
        return _through_scratch(lo, value, linear)
    if used and lanes:
        lane = lo.emit(arith.and_, lo.lane(), lo.constant(~lanes, int32))
        value = restored(lo, lo.emit(warp.shuffle_idx, storable(lo, value), lane), value)
    slot = {register: i for i, register in enumerate(registers)}
    return lo.gather(value, tuple([slot[r] for r in leaders(linear)]))


def _repeats_whole_lanes(linear: LinearLayout) -> bool:
    """Whether a lane that owns nothing holds the same elements as the lane whose index has the free bits cleared."""
    mask, _ = free_threads(linear)
    return not any(column for bit, column in enumerate(linear.columns["lane"]) if mask >> bit & 1)


def row_major(lo: Lowering, linear: LinearLayout) -> tuple[Value, Table]:
    """Row-major indices of a tile's elements, in a tile of the next powers of two: the thread's part, and each register's part,
    which are combined by XOR."""
    return lo.of_thread(*(linear.columns[d] for d in ("lane", "warp", "block"))), flat_table(linear)


def store_row_major(lo: Lowering, memory: Value, value: Value, linear: LinearLayout) -> None:
    """Owners store their elements. `value` holds all registers of the tile, or the owned ones only."""
    base, table = row_major(lo, linear)
    registers = owned(linear)
    assert isinstance(value.type, RegsType)
    places = registers if value.type.count == len(table) else tuple(range(len(registers)))
    lo.emit(
        shared.store_regs, memory, base, value, lo.owns(linear),
        offsets=tuple([table[r] for r in registers]), registers=tuple([(r,) for r in places]), vec=1,
    )  # fmt: skip


def load_row_major(lo: Lowering, memory: Value, linear: LinearLayout) -> Value:
    """Load all registers of a tile."""
    base, table = row_major(lo, linear)
    every = tuple([(r,) for r in range(len(table))])
    return lo.emit(shared.load_regs, memory, base, offsets=table, registers=every, vec=1)


def _through_scratch(lo: Lowering, value: Value, linear: LinearLayout) -> Value:
    """Owners store their elements to scratch memory, and every thread loads the elements that it holds."""
    stored = storable(lo, value)
    memory = allocate(lo, stored, prod(linear.out_sizes))
    store_row_major(lo, memory, stored, linear)
    return restored(lo, load_row_major(lo, memory, linear), value)
