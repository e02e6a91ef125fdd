"""Points-to analysis of handles to tensor memory: the columns of which allocation each handle may refer to.

    %a = tensor_memory.alloc {shape=(2, 128, 64)}      %a: columns 0 to 128 (32-bit elements)
    %b = tensor_memory.index %a, 1                     %b: columns 64 to 128
    %c = tensor_memory.slice %b {start=32, dim=1}      %c: columns 96 to 128
    %d = tensor_memory.index %a, %i                    %d: columns 0 to 128, start unknown

Ranges are those of `weft.analysis.handles`, in units of 32-bit columns. The analysis does not distinguish lanes: a slice of a
tile's rows refers to all lanes of the columns that the rows occupy.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from weft.analysis.handles import Place, Places, Rule, Tracer, part, same
from weft.ir.core import Func, Op, OpDef, Value
from weft.ir.types import TensorType
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.flat import join
from weft.layout.tensor_memory.layouts import COLUMN, COLUMN_BITS, ROW
from weft.ops import tensor_memory


def tensor_handles(func: Func) -> dict[Value, Places]:
    """The column ranges of every handle to tensor memory of a function in tile IR."""
    return Tracer((TensorType,), _RULES).found(func)


def columns_of(handle: Value) -> int:
    """The number of columns that the tiles of a handle occupy. A slice of a tile counts as the whole tile."""
    t = tensor_type(handle)
    return prod(t.shape[:-2]) * tile_columns(t)


def tile_columns(t: TensorType) -> int:
    """The number of columns of one tile."""
    return t.layout.columns(t.alloc_shape, t.element.bits)


def tensor_type(value: Value) -> TensorType:
    """The type of a handle."""
    assert isinstance(value.type, TensorType)
    return value.type


def _alloc(found: Tracer, op: Op) -> None:
    found.known[op.result] = frozenset([Place(op, 0, columns_of(op.result))])


def _index(found: Tracer, op: Op) -> None:
    handle, index = op.uses
    _tiles(found, op, handle, found.constants.get(index))


def _slice(found: Tracer, op: Op) -> None:
    """A range of tiles is contiguous. A slice of a tile refers to the columns from its first element to its last one."""
    (handle,) = op.uses
    t = tensor_type(handle)
    leading = len(t.shape) - 2
    dim, start = op.attrs["dim"], op.attrs["start"]
    if dim < leading:
        _tiles(found, op, handle, start)
    elif op.result.type == t:
        same(found, op)
    else:
        rows, columns = tensor_type(op.result).shape[-2:]
        first, end = _span(t, (start if dim == leading else 0, start if dim > leading else 0), (rows, columns))
        found.set(op, handle, lambda place: replace(part(place, first, end - first), own=False))


def _tiles(found: Tracer, op: Op, handle: Value, number: int | None) -> None:
    """The result's columns, starting at tile `number` of the first dimension; None is unknown."""
    t = tensor_type(handle)
    step = prod(t.shape[1:-2]) * tile_columns(t)
    offset = None if number is None else number * step
    found.set(op, handle, lambda place: part(place, offset, columns_of(op.result)))


def _reinterpret(found: Tracer, op: Op) -> None:
    """The result starts at one of the handle's columns. It may extend past them, but not past the allocation."""
    (handle,) = op.uses
    column, count = op.attrs["column"], columns_of(op.result)

    def onward(place: Place) -> Place:
        end, first = columns_of(place.alloc.result), place.first + column
        return replace(place, first=first, end=min(first + count, end) if place.exact else end, own=False)

    found.set(op, handle, onward)


def _span(t: TensorType, start: tuple[int, int], shape: tuple[int, int]) -> tuple[int, int]:
    """The first column of a slice of a tile, and one past its last column."""
    linear = t.layout.to_linear(t.alloc_shape)
    within = linear.in_size(COLUMN) - 1
    places = Span((*linear.columns[COLUMN], *linear.columns[ROW], *linear.columns["block"]))
    last = first = solved(places, join(start, t.alloc_shape)) & within
    for d, size in enumerate(shape):
        for bit in range(size.bit_length() - 1):
            last |= solved(places, join([1 << bit if e == d else 0 for e in range(2)], t.alloc_shape)) & within
    bits = t.element.bits
    return first * bits // COLUMN_BITS, -(-(last + 1) * bits // COLUMN_BITS)


_RULES: dict[OpDef, Rule] = {
    tensor_memory.alloc: _alloc,
    tensor_memory.index: _index,
    tensor_memory.slice: _slice,
    tensor_memory.reinterpret: _reinterpret,
}
