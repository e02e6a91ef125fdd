"""Where views of shared and tensor memory begin within their tiles, known on tile IR.

    %h = shared.slice %tile {start=16, dim=0}                            begins at (16, 0)
    %r = control.if %c {control.yield %tile} {control.yield %h}          begins at (0, 0), some bytes further on

Of a handle a branch or a loop hands on its bytes, or its memory where allocations come together; where a view begins has to
agree, or to be a matter of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.analysis.flow import Edge, Values, inside
from weft.errors import Loc, fail
from weft.errors import compiler as errors
from weft.ir.core import Func, Op, OpDef, Value
from weft.ir.types import SharedType, TensorType
from weft.layout import PaddedSharedLayout, SharedLayout
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.flat import join
from weft.layout.shared.layouts import Pads, padded
from weft.layout.tensor_memory.layouts import COLUMN_BITS
from weft.ops import shared, tensor_memory
from weft.passes.lower.forms import Table

Tiled = SharedType | TensorType


@dataclass(frozen=True, slots=True)
class View:
    """A handle: `start` is the view's first element in its tile, `room` the allocation, or a value that may be in several."""

    start: Table
    room: Value


class Views(Values[View, None]):
    """The view of each handle. Raises CompilationError (lower-handles) where views come together that differ."""

    def __init__(self, func: Func) -> None:
        super().__init__()
        self._loc: Loc | None = None
        self.run(func.body, None)

    def visit(self, op: Op, context: None) -> None:
        """What an operation on a handle does to its start."""
        if op.kind in (shared.alloc, tensor_memory.alloc):
            self.known[op.result] = View((0,) * tiled(op.result).layout.rank, op.result)
        elif op.kind in _VIEWS:
            view = self.known[next(op.uses)]
            self.known[op.result] = View(_VIEWS[op.kind](op, view.start), view.room)

    def handed(self, op: Op, edge: Edge, value: Value, target: Value) -> View | None:
        """Memory that only a region knows is handed on by it."""
        view = self.known.get(value)
        source = None if edge.source is None else op.regions[edge.source]
        self._loc = op.loc if source is None else source.terminator.loc
        if view is None or source is None:
            return view
        made = {*source.args, *(result for each in inside(op) for result in each.results)}
        return View(view.start, target) if view.room in made else view

    def join(self, value: Value, old: View, new: View, number: int) -> View:
        """Starts that differ become bytes."""
        start = old.start
        if start != new.start:
            first, second = (_levelled(value, view.start) for view in (old, new))
            if first != second:
                raise fail(errors.HANDLES, loc=self._loc, type=value.type, first=list(first), second=list(second))
            start = first
        return View(start, old.room if old.room is new.room else value)


def _levelled(handle: Value, start: Table) -> Table:
    """The tile's first element, where that is a matter of steps."""
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
    """Within a tile a later start."""
    dim: int = op.attrs["dim"] - _leading(next(op.uses))
    return tuple([at + op.attrs["start"] if d == dim else at for d, at in enumerate(start)])


def _permuted(op: Op, start: Table) -> Table:
    leading = _leading(next(op.uses))
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


# Places of elements. A step is a byte of shared memory, or a column of tensor memory.


def steps_from(t: Tiled, start: Table) -> int | None:
    """Steps to go on, if elements lie the same from there on as from the tile's first: else None."""
    rank, others = t.layout.rank, 0
    for d, size in enumerate(t.shape[len(t.shape) - rank :]):
        for bit in range(size.bit_length() - 1):
            others |= _place(t, tuple([1 << bit if e == d else 0 for e in range(rank)]))
    return None if _place(t, start) & others else first_step(t, start)


def first_step(t: Tiled, start: Table) -> int | None:
    """The step of an element; None in tensor memory, unless it is in the tile's first lane, at the beginning of a column."""
    place = _place(t, start)
    if isinstance(t, SharedType):
        return padded(place, pads_of(t.layout)) * t.element.itemsize
    linear = t.layout.to_linear(t.alloc_shape)
    beyond, row = divmod(place, linear.in_size("row"))
    block, element = divmod(beyond, linear.in_size("column"))
    column, rest = divmod(element * t.element.bits, COLUMN_BITS)
    return None if row or block or rest else column


def pads_of(layout: SharedLayout) -> Pads:
    """The padding of a layout."""
    return layout.pads if isinstance(layout, PaddedSharedLayout) else ()


def _place(t: Tiled, start: Table) -> int:
    """The bits of an element's place before padding: of its offset, or of its row (lowest) and column; then of its block."""
    columns = t.layout.to_linear(t.alloc_shape).columns
    dims = ("offset", "block") if isinstance(t, SharedType) else ("row", "column", "block")
    return solved(Span(tuple([column for dim in dims for column in columns[dim]])), join(start, t.alloc_shape))
