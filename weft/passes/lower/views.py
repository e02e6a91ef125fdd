"""Forward analysis of tile IR: the start of each view of shared or tensor memory within its tile.

    %h = shared.slice %tile {start=16, dim=0}                            starts at (16, 0)
    %r = control.if %c {control.yield %tile} {control.yield %h}          starts at (0, 0), at a run-time byte offset

A phi of handles carries a byte offset, or the memory if its sources belong to different allocations. The starts of its sources
must be equal, or differ by a constant number of bytes for all elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.analysis.flow import Edge, Values, inside
from weft.errors import Loc, fail
from weft.errors import compiler as errors
from weft.ir.core import Func, Op, OpDef, Value
from weft.ir.types import SharedType, TensorType
from weft.layout.base import whole_shape
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.flat import join
from weft.layout.shared.layouts import padded
from weft.layout.tensor_memory.layouts import COLUMN_BITS
from weft.ops import shared, tensor_memory
from weft.ops.regs import Table

Tiled = SharedType | TensorType


@dataclass(frozen=True, slots=True)
class View:
    """A view: `start` is its first element in the tile; `room` the allocation, or a phi of several allocations."""

    start: Table
    room: Value


class Views(Values[View, None]):
    """The view of each handle. Raises CompilationError (lower-handles) for a phi whose views are incompatible."""

    def __init__(self, func: Func) -> None:
        super().__init__()
        self._loc: Loc | None = None
        self.run(func.body, None)

    def visit(self, op: Op, context: None) -> None:
        """The transfer function of operations on handles."""
        if op.kind in (shared.alloc, tensor_memory.alloc):
            self.known[op.result] = View((0,) * tiled(op.result).layout.rank, op.result)
        elif op.kind in _VIEWS:
            view = self.known[op.uses[0]]
            self.known[op.result] = View(_VIEWS[op.kind](op, view.start), view.room)

    def handed(self, op: Op, edge: Edge, value: Value, target: Value) -> View | None:
        """A view of memory that is allocated inside the region is passed as the phi's own memory, as it does not dominate the
        target."""
        view = self.known.get(value)
        source = None if edge.source is None else op.regions[edge.source]
        self._loc = op.loc if source is None else source.terminator.loc
        if view is None or source is None:
            return view
        made = {*source.args, *(result for each in inside(op) for result in each.results)}
        return View(view.start, target) if view.room in made else view

    def join(self, value: Value, old: View, new: View, number: int) -> View:
        """Different starts are expressed as byte offsets if possible."""
        start = old.start
        if start != new.start:
            first, second = (_levelled(value, view.start) for view in (old, new))
            if first != second:
                raise fail(errors.HANDLES, loc=self._loc, type=value.type, first=list(first), second=list(second))
            start = first
        return View(start, old.room if old.room is new.room else value)


def _levelled(handle: Value, start: Table) -> Table:
    """The tile's first element, if the start can be expressed as a constant offset; else the start."""
    return start if steps_from(tiled(handle), start) is None else (0,) * len(start)


def tiled(handle: Value) -> Tiled:
    """The type of a handle."""
    assert isinstance(handle.type, Tiled)
    return handle.type


def _leading(handle: Value) -> int:
    t = tiled(handle)
    return len(t.shape) - t.layout.rank


def _same(op: Op, start: Table) -> Table:
    return start


def _sliced(op: Op, start: Table) -> Table:
    """A slice within a tile advances the start."""
    dim: int = op.attrs["dim"] - _leading(op.uses[0])
    return tuple([at + op.attrs["start"] if d == dim else at for d, at in enumerate(start)])


def _permuted(op: Op, start: Table) -> Table:
    leading = _leading(op.uses[0])
    order: Table = op.attrs["order"]
    return tuple([start[d - leading] for d in order[leading:]])


def _first(op: Op, start: Table) -> Table:
    return (0,) * tiled(op.result).layout.rank


_VIEWS: dict[OpDef, Callable[[Op, Table], Table]] = {
    shared.index: _same,
    shared.slice: _sliced,
    shared.permute: _permuted,
    shared.reshape: _first,
    shared.reinterpret: _first,
    tensor_memory.index: _same,
    tensor_memory.slice: _sliced,
    tensor_memory.reinterpret: _first,
}


# Offsets of elements. A step is a byte of shared memory, or a column of tensor memory.


def steps_from(t: Tiled, start: Table) -> int | None:
    """The offset of a start in steps, if the elements from there on have the same relative offsets as from the tile's first
    element; else None."""
    rank, others = t.layout.rank, 0
    for d, size in enumerate(t.shape[len(t.shape) - rank :]):
        for bit in range((size - 1).bit_length()):
            others |= _place(t, tuple([1 << bit if e == d else 0 for e in range(rank)]))
    return None if _place(t, start) & others else first_step(t, start)


def first_step(t: Tiled, start: Table) -> int | None:
    """The offset of an element in steps. In tensor memory it is None unless the element begins a column of the first lane."""
    place = _place(t, start)
    if isinstance(t, SharedType):
        return padded(place, t.layout.pads_of(t.alloc_shape)) * t.element.itemsize
    linear = t.layout.to_linear(t.alloc_shape)
    beyond, row = divmod(place, linear.in_size("row"))
    block, element = divmod(beyond, linear.in_size("column"))
    column, rest = divmod(element * t.element.bits, COLUMN_BITS)
    return None if row or block or rest else column


def _place(t: Tiled, start: Table) -> int:
    """The position of an element before padding, as bits: its offset, or its row (lowest) and column; then its block."""
    columns = t.layout.to_linear(t.alloc_shape).columns
    dims = ("offset", "block") if isinstance(t, SharedType) else ("row", "column", "block")
    return solved(
        Span(tuple([column for dim in dims for column in columns[dim]])), join(start, whole_shape(t.alloc_shape))
    )
