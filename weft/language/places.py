"""Conversion of the offsets of a view's elements to the tables of one operation: vectorized accesses, indices, masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from math import gcd
from typing import Any

from weft.errors import fail
from weft.errors import thread as errors
from weft.ir.types import DType, Pointer, RegsType, int1, int32, int64
from weft.language import arith
from weft.language.advice import integer_instead
from weft.language.broadcast import VectorForm, constant, fit
from weft.language.promote import convert, place, refuse_unknown
from weft.language.runtime_value import name_of
from weft.language.scalars import is_integer_scalar
from weft.language.tensor import apply, tensor
from weft.language.vector import concat
from weft.ops import regs
from weft.views.storage import Index, Places

ACCESS_BYTES = 16
"""The widest load or store of a thread before sm_100: 128 bits (`ld.global.v4.b32`; PTX ISA, ld)."""
Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Accesses:
    """Accesses of `vec` consecutive elements by one instruction each; `times` of them make up one access of the view.

    Access i is at element `const[i]` plus the run-time strides multiplied by the i-th entries of `factors`.
    """

    const: Numbers
    factors: tuple[Numbers, ...]
    vec: int
    times: int

    @property
    def registers(self) -> tuple[Numbers, ...]:
        """The register numbers of each access."""
        return tuple(tuple(range(i * self.vec, (i + 1) * self.vec)) for i in range(len(self.const)))


def accesses(places: Places, dtype: DType, base: Index, most: int = ACCESS_BYTES) -> Accesses:
    """The accesses of at most `most` bytes for the offsets of a view's elements; a constant base is folded into them."""
    vec = gcd(places.width, most // dtype.itemsize)
    start = base if isinstance(base, int) else 0
    parts = range(0, places.width, vec)
    const = tuple(start + first + part for first in places.const for part in parts)
    times = len(parts)
    return Accesses(const, tuple(_repeated(table, times) for table in places.factors), vec, times)


def separate(base: Index, places: Places, mask: Sequence[Any] | None) -> Iterator[tuple[Index, Places, Any]]:
    """One access at a time, with its run-time strides added to its base."""
    for i, first in enumerate(places.const):
        start = base
        for stride, factors in zip(places.strides, places.factors, strict=True):
            start = start + stride * factors[i]
        yield start, Places((first,), places.width), None if mask is None else (mask[i],)


def predicate(mask: Sequence[Any] | None, times: int = 1) -> tensor | None:
    """A mask as one predicate for all accesses, or one for each; every entry is repeated `times`. None if all are true."""
    if mask is None or all(entry is True for entry in mask):
        return None
    if all(entry is mask[0] for entry in mask):
        return place(mask[0], int1, None)
    conditions = [place(entry, int1, None) for entry in mask]
    return concat(list(chain.from_iterable(repeat(condition, times) for condition in conditions)))


def index32(index: Index) -> tensor:
    """An index as an int32 scalar. Raises thread-index."""
    return constant(index, int32) if isinstance(index, int) else convert(check_index(index), int32)


def check_index(index: Any) -> tensor:
    """Reject anything but an integer of one thread: thread-index, thread-unknown-number."""
    refuse_unknown("an index", index)
    if not isinstance(index, tensor) or not is_integer_scalar(index):
        raise fail(errors.INDEX, got=name_of(index), instead=_instead_of_index(index))
    return index


def _instead_of_index(index: Any) -> str:
    """A replacement of a value that cannot index a view."""
    if isinstance(index, tensor) and not index.is_scalar:
        if isinstance(index.handle.type, RegsType):
            return "index with each element of the vector in turn, as in t[v[0], j]"
        return "index with one integer of each thread, such as gl.thread_idx.x; tiles are read by gl.load(view.tile[64](i))"
    return integer_instead(index) if isinstance(index, tensor) else "index with an integer"


def strides_of(places: Places) -> tuple[tensor, ...]:
    """The run-time strides, converted to one type: int64 if one of them is int64."""
    wide = any(isinstance(stride, tensor) and stride.element.bits > 32 for stride in places.strides)
    dtype = int64 if wide else int32
    return tuple(place(stride, dtype, None) for stride in places.strides)


def stored(value: Any, dtype: DType, count: int) -> tensor:
    """A stored value as `count` registers: a number or scalar is broadcast, a vector has that size. Raises thread-stored."""
    fits = isinstance(value, (tensor, int, float))
    if isinstance(value, tensor) and not value.is_scalar:
        fits = isinstance(value.handle.type, RegsType) and len(value) == count
    if not fits:
        elements = "one element" if count == 1 else f"{count} elements"
        raise fail(errors.STORED, got=name_of(value), elements=elements, dtype=dtype.name)
    return place(value, dtype, VectorForm(count))


def one_register(x: tensor) -> tensor:
    """A scalar as an array of one register, the operand type of memory operations."""
    return fit(x, VectorForm(1))


def loaded(registers: tensor) -> tensor:
    """The loaded registers as the author's value: one element is a scalar."""
    return apply(regs.extract, registers, index=0) if len(registers) == 1 else registers


def advance(pointer: tensor, base: Index) -> tensor:
    """The pointer plus a run-time base, in elements; a constant base is part of the accesses instead."""
    return pointer if isinstance(base, int) else arith.add(pointer, check_index(base))


def is_pointer(x: object) -> bool:
    """True for the address of one element in global memory."""
    return isinstance(x, tensor) and x.is_scalar and isinstance(x.element, Pointer)


def _repeated(table: Numbers, times: int) -> Numbers:
    return tuple(chain.from_iterable(repeat(entry, times) for entry in table))
