"""Iterators over tiles of memory, or over tiles of a view along an axis: the implementation of `LayoutTensorIter`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.int_tuple import divided, modulo, plus, times
from weft.layout.nested.layouts import Layout
from weft.views import construct, reshaping
from weft.views.access import dim, number, require_axis, widened
from weft.views.brackets import Complete
from weft.views.data import AnyView, ViewData, set_fields
from weft.views.history import called
from weft.views.modes import Axis, Mode, extent, minus, offset_along
from weft.views.partition import check_tile, limits_of, masked_for, tiled_axis, tiles, whole_numbers
from weft.views.storage import Index

if TYPE_CHECKING:
    from typing_extensions import Self

Fields = tuple[Any, ...]


def _reshaped(iterator: TileIterator[Any], *shape: Any) -> Any:
    fields = {name: getattr(iterator, name) for name in iterator.FIELDS}
    fields["first"] = reshaping.reshaped(iterator.first, *shape)
    return type(iterator).from_fields(*fields.values())


class TileIterator(Generic[AnyView]):
    """A position in a sequence of tiles, all of them views of one class."""

    FIELDS = ("first", "steps", "position", "axis", "size", "limit", "circular")
    __slots__ = FIELDS

    first: AnyView
    """Tile number 0."""
    steps: Axis
    """The number of tiles and their stride, as modes."""
    position: Index
    """The number of the current tile."""
    axis: int
    """The axis of the tiles along which it advances; arbitrary for plain memory."""
    size: int
    """Elements from one tile to the next along the axis."""
    limit: Index | None
    """Valid elements of a masked view along the axis, counted from tile 0; None for all."""
    circular: bool
    """Whether it wraps around at the end."""

    @classmethod
    def from_fields(cls, *values: Any) -> Self:
        """The iterator with these values of `FIELDS`."""
        made = object.__new__(cls)
        set_fields(made, cls.FIELDS, values)
        return made

    def named(self, name: str) -> Self:
        """The iterator with a name for messages, taken from a variable; itself if it already has one."""
        first = self.first.named(name)
        return self if first is self.first else self._replaced(first=first)

    def get(self) -> AnyView:
        """The current tile. Raises ViewIndexError (view-iterator-end) past the last tile, unless it is circular."""
        first, position, count = self.first, self.position, extent(self.steps)
        what = called(first.history, "next", None, (position,))
        if isinstance(position, int) and isinstance(count, int):
            if not 0 <= position < count:
                raise fail(errors.ITERATOR_END, view=f"the iterator over {first.history}", index=position, count=count)
        elif not self.circular and not first.masked:
            first.storage.check((position,), (count,), what, ("as the tile of",))
        offset = plus(first.offset, offset_along(self.steps, widened(first, position)))
        return first.replaced(offset=offset, limits=self._limits(), history=what)

    def __getitem__(self, key: Any) -> AnyView:
        """`it[()]`: the current tile."""
        if key != ():
            raise fail(errors.ITERATOR_KEY, key=key)
        return self.get()

    def next(self, count: Index = 1) -> Self:
        """The iterator advanced by `count` tiles; a circular one wraps around at the end."""
        moved = plus(self.position, count)
        return self._at(modulo(moved, extent(self.steps)) if self.circular else moved)

    def next_unsafe(self, count: Index = 1) -> Self:
        """As `next`, without the division for wrapping around. The author guarantees that the end is not reached."""
        return self._at(plus(self.position, count))

    def __add__(self, count: Index) -> Self:
        return self.next(count)

    def __iadd__(self, count: Index) -> Self:
        return self.next(count)

    @property
    def reshape(self) -> Complete[Self]:
        """`it.reshape[layout]()`: an iterator over the same places whose tiles have another layout, as `t.reshape(layout)`."""
        return Complete(self, _reshaped)

    def _at(self, position: Index) -> Self:
        return self._replaced(position=position)

    def _replaced(self, **changes: Any) -> Self:
        return type(self).from_fields(*(changes.get(name, getattr(self, name)) for name in self.FIELDS))

    def _limits(self) -> tuple[Index | None, ...] | None:
        limits = list(limits_of(self.first))
        if self.limit is not None:
            left = minus(self.limit, times(self.position, self.size))
            if isinstance(left, int):
                left = None if left >= self.size else max(left, 0)
            limits[self.axis] = left
        return None if all(limit is None for limit in limits) else tuple(limits)

    def __iter__(self) -> NoReturn:
        raise fail(errors.ITERATOR_FOR)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.first!r}, tile {self.position} of {extent(self.steps)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_fields, tuple(getattr(self, name) for name in self.FIELDS)

    def __copy__(self) -> Self:
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise fail(errors.IMMUTABLE, field=name, what=type(self).__name__)


def over_memory(
    view: type[ViewData],
    array: Any,
    layout: Layout,
    bound: Index | None,
    stride: int | None,
    offset: Index,
    circular: bool,
    name: str | None,
) -> Fields:
    """The fields of an iterator over the memory of an object, whose tiles are views of class `view`."""
    construct.require_known(layout)
    memory = construct.memory_of(array)
    step = layout.size() if stride is None else stride
    end = memory.end if bound is None else bound
    if end is None:
        raise fail(errors.LAYOUT_NEEDED, what=f"a {type(array).__name__}")
    # A circular iterator wraps around to the beginning of the memory, not to its own start.
    position, skipped = (divided(offset, step), modulo(offset, step)) if circular else (0, offset)
    count = _tiles(minus(end, skipped), layout, step)
    first = view.from_fields(*construct.over_memory(memory, plus(memory.offset, skipped), layout, name))
    mode = Mode(count, step, size_known=isinstance(count, int))
    return (first, (mode,), position, 0, 0, None, circular)


def tiled(view: ViewData, sizes: Sequence[Any], axis: Any) -> Callable[..., Fields]:
    """`tiled_iterator` with its sizes given: the fields of the iterator that starts at given tile coordinates."""
    along = require_axis(view, axis)
    what = called(view.history, "tiled_iterator", (*sizes, f"axis={along}")).removesuffix("()")
    numbers = whole_numbers(view, what, sizes)
    view = masked_for(view, numbers)
    size = numbers[along]
    pick = tiles(view, *numbers)
    _, steps = tiled_axis(view, what, along, size)

    def start(*coordinates: Any) -> Fields:
        if len(coordinates) != view.rank:
            raise fail(errors.TILE_RANK, what=what, count=len(coordinates), view=view.history, rank=view.rank)
        position = number(view, coordinates[along])
        if isinstance(position, int):
            check_tile(view, what, along, position, size, steps)
        tile = pick(*(0 if each == along else index for each, index in enumerate(coordinates)))
        limits = tuple(None if each == along else limit for each, limit in enumerate(limits_of(tile)))
        first = tile.replaced(limits=limits if any(limit is not None for limit in limits) else None, history=what)
        limit = dim(view, along) if view.masked else None
        return (first, steps, position, along, size, limit, False)

    return start


def _tiles(elements: Index, layout: Layout, step: int) -> Index:
    """The number of whole tiles in memory."""
    if not isinstance(elements, int):
        return divided(elements, step)
    count = (elements - layout.cosize()) // step + 1
    if count < 1:
        raise fail(errors.ITERATOR_BOUND, bound=elements, size=layout.cosize(), stride=step)
    return count
