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
from weft.ir.core import Func, Op, Value
from weft.ir.define import OpDef
from weft.ir.types import SharedType, TensorType
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.flat import join
from weft.layout.tensor_memory.layouts import COLUMN_BITS
from weft.ops import shared, tensor_memory
from weft.passes.lower.forms import Table


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
            self.known[op.result] = View((0,) * _rank(op.result), op.result)
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
    """The tile's first element, where that is a matter of bytes, or of columns."""
    t = handle.type
    assert isinstance(t, SharedType | TensorType)
    levels = shared_levels(t, start) if isinstance(t, SharedType) else columns_from(t, start) is not None
    return (0,) * len(start) if levels else start


def _rank(handle: Value) -> int:
    t = handle.type
    assert isinstance(t, SharedType | TensorType)
    return t.layout.rank if isinstance(t, SharedType) else 2


def _leading(handle: Value) -> int:
    t = handle.type
    assert isinstance(t, SharedType | TensorType)
    return len(t.shape) - _rank(handle)


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
    return (0,) * _rank(op.result)


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


# Places of elements


def shared_place(t: SharedType, start: Table) -> tuple[int, int]:
    """The offset in elements, before padding, of a view's first element, and the union of those of the others from it."""
    linear = t.layout.to_linear(t.alloc_shape)
    places = Span((*linear.columns["offset"], *linear.columns["block"]))
    rank = t.layout.rank
    others = 0
    for d, size in enumerate(t.shape[len(t.shape) - rank :]):
        for bit in range(size.bit_length() - 1):
            others |= solved(places, join([1 << bit if e == d else 0 for e in range(rank)], t.alloc_shape))
    return solved(places, join(start, t.alloc_shape)), others


def shared_levels(t: SharedType, start: Table) -> bool:
    """Whether elements lie the same from a view's first one on as from the tile's."""
    place, others = shared_place(t, start)
    return not place & others


def columns_from(t: TensorType, start: Table) -> int | None:
    """How many columns to go on, if elements lie the same from there on as from the tile's first: else None."""
    others = 0
    for d, size in enumerate(t.shape[-2:]):
        for bit in range(size.bit_length() - 1):
            others |= _tensor_place(t, (1 << bit, 0) if d == 0 else (0, 1 << bit))
    return None if _tensor_place(t, start) & others else first_column(t, start)


def first_column(t: TensorType, start: Table) -> int | None:
    """The column of a start that is in the first lane of the tile, and at the beginning of a column: else None."""
    linear = t.layout.to_linear(t.alloc_shape)
    beyond, row = divmod(_tensor_place(t, start), linear.in_size("row"))
    block, element = divmod(beyond, linear.in_size("column"))
    column, rest = divmod(element * t.element.bits, COLUMN_BITS)
    return None if row or block or rest else column


def _tensor_place(t: TensorType, start: Table) -> int:
    """The bits of the row, of the column and of the block of an element, the row's lowest."""
    columns = t.layout.to_linear(t.alloc_shape).columns
    return solved(Span((*columns["row"], *columns["column"], *columns["block"])), join(start, t.alloc_shape))
