"""Shared memory that the compiler took, one byte array per block, with a note of which bytes were ever given a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.errors import Loc, UserError, hazard
from weft.ir.core import Op, Value
from weft.ir.types import RegsType, ScratchType
from weft.ops import scratch
from weft.sim.data import Array, Data, Mark, arange, marked, where
from weft.sim.machine import Block
from weft.sim.numbers import numpy_dtype
from weft.sim.regs import per_thread
from weft.sim.rules import rule

NEVER_WRITTEN = "the scratch memory it was read from was never written"


@dataclass(slots=True, eq=False)
class Allocation:
    """Elements of shared memory and whether each is undefined, with the reason of the last undefined store."""

    values: Array
    undefined: Array
    cause: str = NEVER_WRITTEN
    loc: Loc | None = None

    def mark(self, index: Array) -> Mark | None:
        """The undefined elements among those read."""
        return marked(self.undefined[index], self.cause, self.loc)


@rule(scratch.alloc)
def _alloc(block: Block, op: Op) -> Any:
    """A view of the block's bytes at the offset; before offsets are assigned, memory of its own per tag."""
    type = op.result.type
    assert isinstance(type, ScratchType)
    dtype, offset = numpy_dtype(type.element), int(op.attrs["offset"])
    key = offset if offset >= 0 else ("tag", op.attrs["tag"])
    if (key, type) not in block.shared:
        block.shared[key, type] = _allocate(block, type, dtype, offset)
    return block.shared[key, type]


def _allocate(block: Block, type: ScratchType, dtype: np.dtype[Any], offset: int) -> Allocation:
    if offset < 0:
        return Allocation(np.zeros(type.count, dtype), np.ones(type.count, bool))
    if "bytes" not in block.shared:
        size = int(block.machine.func.attrs["shared_bytes"])
        block.shared["bytes"] = (np.zeros(size, np.uint8), np.ones(size, bool))
    memory, undefined = block.shared["bytes"]
    end = offset + type.count * dtype.itemsize
    # One flag per byte; an element's flag is that of its first byte.
    return Allocation(memory[offset:end].view(dtype), undefined[offset : end : dtype.itemsize])


def _index(block: Block, op: Op, memory: Allocation, base: Data, shape: tuple[int, int]) -> Array:
    """Elements that accesses reach, (threads, n, vec)."""
    block.demand(op, base, "an address")
    n, vec = shape
    offsets = np.array(op.attrs["offsets"], np.int64)
    first = np.broadcast_to(base.array.astype(np.int64) ^ offsets, (block.machine.threads, n))
    return first[..., None] + arange(vec)


def _check(block: Block, op: Op, memory: Allocation, index: Array) -> None:
    outside = (index < 0) | (index >= memory.values.size)
    if np.any(outside):
        raise _outside(block, op, memory, int(index[outside][0]))


def _outside(block: Block, op: Op, memory: Allocation, index: int) -> UserError:
    return block.fail(hazard.SCRATCH_RANGE, op, index=index, count=memory.values.size)


def _mask(block: Block, mask: Data | None, shape: tuple[int, ...]) -> Array:
    under = block.under(None if mask is None else mask.array)
    if under is None:
        return np.ones(shape, bool)
    aligned = under[..., None] if len(shape) > 2 and np.ndim(under) else under
    return np.broadcast_to(aligned, shape)


def _put(memory: Allocation, index: Array, value: Data, values: Array, undefined: Array | None) -> None:
    memory.values[index] = values
    memory.undefined[index] = False if undefined is None else undefined
    if value.undefined is not None:
        memory.cause, memory.loc = value.undefined.cause, value.undefined.loc


@rule(scratch.store)
def _store(block: Block, op: Op, memory: Any, base: Data, value: Data, mask: Data | None) -> None:
    block.demand(op, mask, "a mask")
    registers = np.array(op.attrs["registers"])
    index = _index(block, op, memory, base, (len(registers), op.attrs["vec"]))
    active = _mask(block, mask, index.shape)
    _check(block, op, memory, index[active])
    count = _count(op.operands[2])
    undefined = None
    if value.undefined is not None:
        full = np.broadcast_to(value.undefined.mask, (block.machine.threads, count))
        undefined = full[:, registers][active]
    _put(memory, index[active], value, per_thread(block, value, count).array[:, registers][active], undefined)


def _count(value: Value | None) -> int:
    assert value is not None and isinstance(value.type, RegsType)
    return value.type.count


@rule(scratch.load)
def _load(block: Block, op: Op, memory: Any, base: Data) -> Data:
    registers = np.array(op.attrs["registers"])
    index = _index(block, op, memory, base, (len(registers), op.attrs["vec"]))
    return _read(block, op, memory, index.reshape(len(index), -1)[:, np.argsort(registers.ravel())])


@rule(scratch.load_at)
def _load_at(block: Block, op: Op, memory: Any, index: Data) -> Data:
    block.demand(op, index, "an address")
    return _read(block, op, memory, index.array.astype(np.int64))


def _read(block: Block, op: Op, memory: Allocation, index: Array) -> Data:
    """Elements (threads, count); what inactive threads would read does not matter."""
    active = _mask(block, None, index.shape)
    _check(block, op, memory, index[active])
    inside = where(active, index, 0)
    return Data(memory.values[inside], memory.mark(inside))


@rule(scratch.add_at)
def _add_at(block: Block, op: Op, memory: Any, index: Data, value: Data, mask: Data | None) -> None:
    own = None if mask is None else mask.array
    block.demand(op, mask, "a mask")
    block.demand(op, index, "an address", own)
    block.demand(op, value, "an atomic", own)
    active = _mask(block, mask, index.array.shape)
    cells = index.array[active].astype(np.int64)
    _check(block, op, memory, cells)
    np.add.at(memory.values, cells, value.array[active])
