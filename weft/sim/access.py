"""Checked accesses to global memory, shared by the tile and the lowered forms.

Only active elements are touched and checked. What is wrong with one is found out after the fact, element by element.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.errors import UserError, fail, hazard
from weft.ir.core import Op
from weft.ir.types import DType
from weft.ops.check import pointer_of
from weft.ops.memory import Atomic
from weft.sim import numbers
from weft.sim.data import Array, Data, Mark, union, where, where_marked
from weft.sim.heap import Access, BadAddress, Heap, ReadOnlyStorage
from weft.sim.machine import Block
from weft.sim.numbers import bits_of, numpy_dtype

MASKED_OFF = "the load that gives it is masked off and has no `other`"
MASKED_ATOMIC = "the atomic that gives it is masked off"


class Request:
    """An operation's accesses of `vec` elements each: the active addresses, and where they are (None: everywhere)."""

    __slots__ = ("access", "all", "block", "element", "op", "shape", "where")

    def __init__(self, block: Block, op: Op, ptr: Data, mask: Data | None, vec: int = 1) -> None:
        own = None if mask is None else mask.array
        block.demand(op, mask, "a mask")
        block.demand(op, ptr, "an address", own)
        self.block = block
        self.op = op
        self.element = pointee(op)
        self.all = ptr.array
        self.where = block.under(own)
        if self.where is not None:
            self.all, self.where = np.broadcast_arrays(self.all, self.where)
            if np.all(self.where):
                self.where = None
        self.shape = np.shape(self.all)
        chosen = self.all if self.where is None else self.all[self.where]
        self.access = Access(chosen, self.element.itemsize, vec)
        self._check_wrapped(ptr.wrapped, own)

    def _check_wrapped(self, mark: Mark | None, mask: Array | None) -> None:
        bad = where_marked(mark, self.shape, self.block.under(mask))
        if mark is None or bad is None:
            return
        where = f" ({self.block.where(bad.shape, int(np.argmax(bad)))})" if bad.ndim else ""
        used = () if self.op.loc is None else (("the offset is used by", self.op.loc),)
        raise fail(hazard.WRAPPED, loc=mark.loc or self.op.loc, related=used, program=self.block.pid, where=where)

    @property
    def heap(self) -> Heap:
        """Global memory."""
        return self.block.machine.heap

    def values(self, data: Data) -> Array:
        """The active elements of an operand with an element per access (and `vec` of them along a last axis)."""
        shape = self.shape + ((self.access.vec,) if self.access.vec > 1 else ())
        array = np.broadcast_to(data.array, shape)
        return array if self.where is None else array[self.where]

    def demand(self, data: Data, sink: str) -> None:
        """Refuse undefined elements of a value that active accesses use. Raises UndefinedValue."""
        if data.undefined is None:
            return
        where = self.where[..., None] if self.where is not None and self.access.vec > 1 else self.where
        bad = where_marked(data.undefined, np.shape(data.array), where)
        if bad is not None:
            raise self.block.undefined(self.op, data.undefined, sink, bad)

    def fault(self, verb: str) -> UserError:
        """What is wrong with these addresses: the report of the first bad one."""
        flat = np.ravel(self.all)
        active = np.ones(flat.shape, bool) if self.where is None else np.ravel(self.where)
        width = self.access.width
        inside = np.zeros(flat.shape, bool)
        for segment in self.heap.segments.values():
            inside |= (flat >= segment.start) & (flat + width <= segment.end)
        outside = active & ~inside
        if np.any(outside):
            return self._outside(verb, flat, outside, int(active.sum()))
        first = int(np.argmax(active & (flat & (width - 1) != 0)))
        segment = self.heap.segment_at(int(flat[first]))
        assert segment is not None
        byte = int(flat[first]) - segment.pointer
        return self.block.fail(
            hazard.MISALIGNED, self.op, access=verb, bytes=width, name=segment.buffer.name, byte=byte,
            past=int(flat[first]) % width,
        )  # fmt: skip

    def _outside(self, verb: str, flat: Array, outside: Array, total: int) -> UserError:
        first = int(np.argmax(outside))
        address, size = int(flat[first]), self.element.itemsize
        segment = self.heap.segment_at(address)
        if segment is None:
            return self.block.fail(hazard.NO_BUFFER, self.op, access=verb, address=address)
        low = -((segment.pointer - segment.start) // size)
        extent = (segment.end - segment.pointer) // size
        index = (address - segment.pointer) // size
        place = f"{int(outside.sum())} of the {total} elements accessed here are outside, the first at "
        share = f"; {place}{self.block.where(self.shape, first)}" if self.shape else ""
        return self.block.fail(
            hazard.OUT_OF_BOUNDS, self.op, access=verb, name=segment.buffer.name, index=index, low=low, high=extent - 1,
            share=share, bound=f"at or above {low}" if index < low else f"below {extent}",
        )  # fmt: skip


def pointee(op: Op) -> DType:
    """The type of the elements that the first operand points to."""
    value = op.operands[0]
    assert value is not None
    return pointer_of(value).element_ty


def from_bits(bits: Array, element: DType) -> Array:
    """Memory's bits as values; any bits but 0 are True."""
    return bits != 0 if element.is_bool() else bits.view(numpy_dtype(element))


def load(request: Request, other: Data | None) -> Data:
    """Values at the addresses; elsewhere `other` (which has their shape), or undefined."""
    block = request.block
    block.reads += 1
    block.last_read = request.access
    try:
        values = from_bits(request.heap.read(request.access), request.element)
    except BadAddress:
        raise request.fault("reads") from None
    if request.where is None:
        return Data(values)
    return scattered(request, values, other, MASKED_OFF)


def scattered(request: Request, values: Array, other: Data | None, cause: str) -> Data:
    """Values of the active elements among all: elsewhere `other`, or undefined because of `cause`."""
    where = request.where
    assert where is not None
    shape = where.shape + values.shape[1:]
    out = np.zeros(shape, values.dtype) if other is None else np.array(np.broadcast_to(other.array, shape))
    out[where] = values
    off = ~where[..., None] if len(shape) > where.ndim else ~where
    if other is None:
        return Data(out[()], Mark(off, cause, request.op.loc))
    undefined = other.undefined
    return Data(out[()], undefined and Mark(off & undefined.mask, undefined.cause, undefined.loc))


def store(request: Request, value: Data) -> None:
    """Write the active elements of `value`."""
    request.demand(value, "a store")
    try:
        request.heap.write(request.access, bits_of(request.values(value)))
    except BadAddress:
        raise request.fault("writes") from None
    except ReadOnlyStorage as error:
        raise request.block.fail(hazard.READ_ONLY, request.op, name=error.segment.buffer.name) from None


Change = Callable[[Array, Array], Array]
_ATOMICS: dict[str, Change] = {
    "add": lambda old, value: numbers.through32(np.add, old, value) if old.dtype.kind not in "iu" else old + value,
    "max": numbers.maximum,
    "min": numbers.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": lambda old, value: value,
}


def atomic(request: Request, kind: Atomic, value: Data) -> Data:
    """Combine values into memory, element after element; the old values."""
    request.demand(value, "an atomic")
    new, combine = np.ravel(request.values(value)), _ATOMICS[kind]
    dtype = new.dtype
    return _update(request, lambda old, which: bits_of(combine(old.view(dtype), new[which])))


def compare_and_swap(request: Request, compare: Data, value: Data) -> Data:
    """Replace what equals `compare` bit by bit, element after element; the old values."""
    for operand in (compare, value):
        request.demand(operand, "an atomic")
    expected, new = (np.ravel(bits_of(request.values(operand))) for operand in (compare, value))
    return _update(request, lambda old, which: where(old == expected[which], new[which], old))


def _update(request: Request, change: Change) -> Data:
    block = request.block
    block.reads += 1
    block.last_read = request.access
    try:
        old = from_bits(request.heap.update(request.access, change), request.element)
    except BadAddress:
        raise request.fault("updates") from None
    except ReadOnlyStorage as error:
        raise block.fail(hazard.READ_ONLY, request.op, name=error.segment.buffer.name) from None
    return Data(old) if request.where is None else scattered(request, old, None, MASKED_ATOMIC)


def moved_by(ptr: Data, offset: Data, itemsize: int) -> Data:
    """An address some elements further on; it carries what is wrong with either."""
    distance = np.multiply(offset.array, np.int64(itemsize), dtype=np.int64, casting="unsafe")
    undefined = union(ptr.undefined, offset.undefined)
    return Data(ptr.array + distance, undefined, union(ptr.wrapped, offset.wrapped))
