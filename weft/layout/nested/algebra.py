"""The algebra of nested layouts: coalesce, composition, complement, inverses.

A layout is a function from indices to offsets, so layouts compose, and some have inverses. Composition is the tool behind
tiling: a tile is itself a layout, of indices into the tensor. Not every pair composes to a layout. Such a pair raises an
error that names the two modes that disagree, where an integer division would silently give another function.

`coalesce`, `transpose`, `sublayout` and `filter_layout` accept layouts with UNKNOWN numbers; functions that depend on values
raise LayoutError for them, and for empty layouts. Semantics are CuTe's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from weft.errors import fail
from weft.errors import nested as errors
from weft.layout.nested import int_tuple
from weft.layout.nested.int_tuple import IntTuple
from weft.layout.nested.layouts import Layout, make_layout

# A layout, a size (that many neighbours), None (a mode left alone), or a tuple of tilers, one per mode.
Tiler: TypeAlias = Any
Mode: TypeAlias = tuple[Any, Any]


def coalesce(layout: Layout, profile: IntTuple = 1, keep_rank: bool = False) -> Layout:
    """The same function of an index with as few modes as possible. It has one flat level and no modes of size 1.

    With a tuple as `profile` each mode for which it has an entry is coalesced on its own; `keep_rank` does so for all modes.

    >>> coalesce(Layout((2, (1, 6)), (1, (6, 2))))
    (12:1)
    >>> coalesce(Layout(((2, 4), (3, 5)), ((1, 2), (8, 50))), keep_rank=True)
    ((8, (3, 5)):(1, (8, 50)))
    """
    if keep_rank and int_tuple.is_tuple(layout.shape):
        profile = (1,) * layout.rank()
    if int_tuple.is_tuple(profile):
        return by_mode(coalesce, layout, profile)
    return from_modes([mode for mode in merged(layout) if not _is_int(mode[0], 1)] or [(1, 0)])


def filter_layout(layout: Layout) -> Layout:
    """The same offsets once each: without the modes of stride 0 (and of size 1), coalesced.

    >>> filter_layout(Layout((4, 2, 3), (1, 0, 4)))
    (12:1)
    """
    return coalesce(from_modes([mode for mode in flat_modes(layout) if not _is_int(mode[1], 0)] or [(1, 0)]))


def transpose(layout: Layout, order: Sequence[int] | None = None) -> Layout:
    """The modes in the given order, by default reversed.

    >>> transpose(Layout((4, 8), (8, 1)))
    ((8, 4):(1, 8))
    """
    modes = [*layout]
    order = range(len(modes))[::-1] if order is None else order
    if sorted(order) != [*range(len(modes))]:
        raise fail(errors.ORDER, order=tuple(order), rank=len(modes), what=layout, last=len(modes) - 1)
    return make_layout(*(modes[mode] for mode in order)) if int_tuple.is_tuple(layout.shape) else layout


def is_row_major(layout: Layout) -> bool:
    """Whether these are the strides of `Layout.row_major`: compact, the last mode fastest.

    >>> is_row_major(Layout.row_major(3, 2, 3)), is_row_major(Layout.col_major(3, 3))
    (True, False)
    """
    return layout == Layout.row_major(layout.shape)


def flatten(layout: Layout | IntTuple) -> Any:
    """A layout with all its modes at top level; of a tuple its numbers, as `int_tuple.flatten`.

    >>> flatten(Layout(((2, 2), 3), ((1, 6), 2))), flatten(((2, 2), 3))
    (((2, 2, 3):(1, 6, 2)), (2, 2, 3))
    """
    if not isinstance(layout, Layout):
        return int_tuple.flatten(layout)
    return Layout(layout.flat_shape, layout.flat_stride)


def expand_modes_alike(a: Layout, b: Layout) -> tuple[Layout, Layout]:
    """Both layouts with modes of one common shape: a plain mode opposite a nested one is nested likewise.

    >>> expand_modes_alike(Layout((4, 6), (6, 1)), Layout(((2, 2), 6), ((1, 2), 4)))
    ((((2, 2), 6):((6, 12), 1)), (((2, 2), 6):((1, 2), 4)))

    Raises LayoutError for modes of different sizes.
    """
    shape, first, second = _alike((a, b), (a.shape, a.stride), (b.shape, b.stride))
    return Layout(shape, first), Layout(shape, second)


def _alike(whole: tuple[Layout, Layout], one: Mode, other: Mode) -> tuple[IntTuple, IntTuple, IntTuple]:
    """The common shape of two modes, and the strides of each in it."""
    (shape, stride), (opposite, others) = one, other
    nested = int_tuple.is_tuple(shape), int_tuple.is_tuple(opposite)
    if all(nested) and len(shape) == len(opposite):
        parts = [
            _alike(whole, *pair)
            for pair in zip(zip(shape, stride, strict=True), zip(opposite, others, strict=True), strict=True)
        ]
        return tuple(part[0] for part in parts), tuple(part[1] for part in parts), tuple(part[2] for part in parts)
    if all(nested) or int_tuple.product(shape) != int_tuple.product(opposite):
        a, b = whole
        raise fail(errors.ALIKE, a=a, b=b, one=int_tuple.show(shape), other=int_tuple.show(opposite))
    if nested[0]:
        return shape, stride, int_tuple.prefix_product(shape, others)
    return opposite, int_tuple.prefix_product(opposite, stride), others


def sublayout(layout: Layout, *modes: int) -> Layout:
    """The layout of some modes only, in the order given.

    >>> sublayout(Layout((2, 3, 4), (12, 4, 1)), 0, 2)
    ((2, 4):(12, 1))
    """
    return make_layout(*(layout[mode] for mode in modes))


def make_ordered_layout(shape: IntTuple, order: Sequence[int]) -> Layout:
    """The compact layout in which the mode of order 0 runs fastest. Within a nested mode the first mode runs fastest.

    >>> make_ordered_layout((2, 3, 4), (2, 0, 1))
    ((2, 3, 4):(12, 1, 3))
    """
    whole = Layout(shape)
    modes = [*whole]
    if sorted(order) != [*range(len(modes))]:
        raise fail(errors.ORDER, order=tuple(order), rank=len(modes), what=int_tuple.show(shape), last=len(modes) - 1)
    fastest_first = sorted(range(len(modes)), key=order.__getitem__)
    compact = Layout(tuple(modes[mode].shape for mode in fastest_first))
    ordered = transpose(compact, order)
    return ordered if int_tuple.is_tuple(whole.shape) else whole


def composition(layout: Layout, tiler: Tiler) -> Layout:
    """The layout R with R(i) = layout(tiler(i)): the elements of `layout` that `tiler` names, in its order and shape.

    A mode of the tiler may become several modes. A tuple of tilers composes mode by mode and leaves further modes unchanged; an
    int n means `Layout(n)`, None the whole mode. An index beyond the layout continues in its last mode.

    >>> composition(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1)))
    (((2, 2), 3):((24, 2), 8))
    >>> composition(Layout((8, 16), (16, 1)), (Layout(4, 2), 8))
    ((4, 8):(32, 1))

    Raises LayoutError if no layout is that function: a mode of the tiler steps unevenly over a mode of the layout, or modes of
    the tiler overlap so that their sum carries into the next mode.
    """
    if tiler is None:
        return layout
    if int_tuple.is_tuple(tiler):
        return by_mode(composition, layout, tiler)
    inner = require(as_layout(tiler), "composition")
    outer = merged(require(layout, "composition"))
    # The sum of coordinates in each mode of the outer layout when all modes of the inner one are at their last index.
    ends = [0] * len(outer)
    steps = tuple(stride for _, stride in outer)

    def place(size: int, step: int) -> list[Mode]:
        pieces = _pieces(layout, inner, outer, size, step)
        for count, digits in pieces:
            for mode, digit in enumerate(digits):
                ends[mode] += digit * (count - 1)
        return [(count, int_tuple.inner_product(digits, steps)) for count, digits in pieces]

    parts = int_tuple.transform(place, inner.shape, inner.stride)
    for (size, stride), end in zip(outer[:-1], ends[:-1], strict=True):
        if end >= size:
            raise fail(errors.CARRY, outer=layout, inner=inner, mode=Layout(size, stride))
    return Layout(int_tuple.transform(_sizes, parts), int_tuple.transform(_steps, parts))


def complement(layout: Layout, cotarget: IntTuple = 1) -> Layout:
    """The layout of the offsets below `cotarget` (a size, or a shape) that repeat `layout` without overlap, in rising order.

    Together, `make_layout(layout, complement(layout, n))` reaches every offset below n once (rounded up to whole repetitions),
    but for gaps into which no repetition fits, such as those of padded rows.

    >>> complement(Layout((2, 2), (1, 6)), 24)
    ((3, 2):(2, 12))
    >>> complement(Layout((8, 8), (9, 1)), 256)
    (4:72)

    Raises LayoutError if modes overlap.
    """
    return _complement(require(layout, "complement"), cotarget, whole=False)


def whole_complement(layout: Layout, cotarget: IntTuple = 1) -> Layout:
    """The `complement` if it leaves no gaps; otherwise raises LayoutError: a mode's stride is not a multiple of the span of the
    modes below it."""
    return _complement(layout, cotarget, whole=True)


def _complement(layout: Layout, cotarget: IntTuple, whole: bool) -> Layout:
    found: list[Mode] = []
    span = 1
    for step, size in sorted((step, size) for size, step in flat_modes(layout)):
        if step == 0 or size == 1:
            continue
        if step < span or (whole and step % span):
            raise fail(errors.COMPLEMENT, layout=layout, size=size, step=step, span=span)
        found.append((step // span, span))
        span = size * step
    found.append((int_tuple.ceil_div(int_tuple.product(cotarget), span), span))
    return coalesce(from_modes(found))


def right_inverse(layout: Layout) -> Layout:
    """The longest layout R with layout(R(i)) = i for every i below its size: the indices of the offsets 0, 1, 2, ...

    >>> right_inverse(Layout((4, 8), (8, 1)))
    ((8, 4):(4, 1))
    """
    require(layout, "right_inverse")
    places = int_tuple.flatten(int_tuple.prefix_product(layout.shape))
    sources = sorted(zip(layout.flat_stride, (-size for size in layout.flat_shape), places, strict=True))
    found: list[Mode] = []
    reached = 1
    for step, negative_size, place in sources:
        if step == reached and negative_size != -1:
            found.append((-negative_size, place))
            reached *= -negative_size
    return coalesce(from_modes(found or [(1, 0)]))


def left_inverse(layout: Layout) -> Layout:
    """The layout L with L(layout(i)) = i for every index i: the element at an offset.

    >>> left_inverse(Layout((4, 2), (2, 8)))
    ((2, 8):(8, 1))

    Raises LayoutError if several elements share an offset, or the `complement` of `layout` leaves gaps.
    """
    for size, step in flat_modes(require(layout, "left_inverse")):
        if step == 0 and size > 1:
            raise fail(errors.INJECTIVE, layout=layout, size=size)
    return right_inverse(make_layout(layout, whole_complement(layout)))


def upcast(layout: Layout, count: int) -> Layout:
    """The layout in units of `count` neighbouring offsets: from narrow elements to wide ones of `count` of them.

    >>> upcast(Layout((4, 8), (8, 1)), 4)
    ((4, 2):(2, 1))

    A mode whose stride is a multiple of `count` may have an UNKNOWN size. Raises LayoutError if a mode does not consist of
    whole groups.
    """
    if 0 in layout.flat_shape:
        require(layout, "upcast")

    def wide(size: Any, step: Any) -> Mode:
        if int_tuple.is_known(step) and step % count == 0:
            return size, step // count
        if not int_tuple.is_known((size, step)):
            raise fail(errors.UNKNOWN, operation="upcast", layout=layout)
        group = count // abs(step)
        if count % abs(step) or size % group:
            raise fail(errors.UPCAST, layout=layout, size=size, step=step, count=count)
        return size // group, 1 if step > 0 else -1

    return _each_leaf(wide, layout)


def downcast(layout: Layout, count: int) -> Layout:
    """The layout in units `count` times smaller: each element becomes `count` neighbours, in the mode of stride 1.

    >>> downcast(Layout((4, 2), (2, 1)), 4)
    ((4, 8):(8, 1))

    A layout without a mode of stride 1 has only the first of each `count` neighbours.
    """
    require(layout, "downcast")
    runs = [size for size, step in flat_modes(layout) if step == 1]
    longest = [max(runs)] if runs else []

    def narrow(size: int, step: int) -> Mode:
        if step == 1 and size in longest:
            longest.clear()
            return size * count, 1
        return size, step * count

    return _each_leaf(narrow, layout)


# Used by the other modules of the algebra


def by_mode(function: Callable[[Layout, Any], Layout], layout: Layout, tiler: tuple[Any, ...]) -> Layout:
    """The function of each mode with its tiler; modes beyond the tiler stay. Raises LayoutError for a tiler too long."""
    modes = [*layout]
    if len(tiler) > len(modes):
        raise fail(errors.TILER, count=len(tiler), layout=layout, rank=len(modes))
    return make_layout(*map(function, modes, tiler), *modes[len(tiler) :])


def as_layout(tiler: Layout | int) -> Layout:
    """A tiler that is not a tuple, as a layout."""
    return tiler if isinstance(tiler, Layout) else Layout(tiler)


def require(layout: Layout, operation: str) -> Layout:
    """The layout, if its numbers are all known and it has elements; raises LayoutError otherwise."""
    if not layout.all_dims_known:
        raise fail(errors.UNKNOWN, operation=operation, layout=layout)
    if 0 in layout.flat_shape:
        raise fail(errors.EMPTY, operation=operation, layout=layout)
    return layout


def flat_modes(layout: Layout) -> Iterable[Mode]:
    """Size and stride of each flattened mode."""
    return zip(layout.flat_shape, layout.flat_stride, strict=True)


def from_modes(modes: Sequence[Mode]) -> Layout:
    """The flat layout of these sizes and strides; one mode is a plain number."""
    if len(modes) == 1:
        return Layout(*modes[0])
    return Layout(tuple(size for size, _ in modes), tuple(step for _, step in modes))


def merged(layout: Layout) -> list[Mode]:
    """The flattened modes with contiguous neighbours merged, without those of size 1 except at the end.

    The last mode is kept, since an index beyond the layout continues in it.
    """
    modes: list[Mode] = []
    for size, step in flat_modes(layout):
        if modes and _is_int(modes[-1][0], 1):
            modes.pop()
        previous = modes[-1] if modes else None
        if previous and _continues(previous, step):
            modes[-1] = (int_tuple.times(previous[0], size), previous[1])
        else:
            modes.append((size, step))
    return modes or [(1, 0)]


def _continues(mode: Mode, step: Any) -> bool:
    """Whether a mode of stride `step` continues where `mode` ends. False if the numbers are unknown."""
    return all(type(number) is int for number in (*mode, step)) and mode[0] * mode[1] == step


def _sizes(modes: list[Mode]) -> IntTuple:
    return from_modes(modes).shape


def _steps(modes: list[Mode]) -> IntTuple:
    return from_modes(modes).stride


def _pieces(
    layout: Layout, inner: Layout, outer: Sequence[Mode], size: int, step: int
) -> list[tuple[int, tuple[int, ...]]]:
    """A mode of the inner layout, cut where it crosses from one mode of the outer one to the next.

    Each piece has its size, and its step as coordinates of the outer modes. Raises LayoutError if a crossing is within a step,
    or if the pieces' coordinates add up past the end of an outer mode.
    """
    pieces: list[tuple[int, tuple[int, ...]]] = []
    ends = [0] * len(outer)
    rest, stride = size, step
    while True:
        digits = _digits(outer, stride)
        # The number of steps until the coordinate in one of the modes is past its end.
        room = [(extent - 1) // digit + 1 for (extent, _), digit in zip(outer[:-1], digits, strict=False) if digit]
        count = min(rest, *room) if room else rest
        pieces.append((count, digits))
        ends = [end + digit * (count - 1) for end, digit in zip(ends, digits, strict=True)]
        past = [mode for mode, end in zip(outer[:-1], ends, strict=False) if end >= mode[0]]
        if past or rest % count:
            crossed = past[0] if past else next(mode for mode, digit in zip(outer, digits, strict=True) if digit)
            raise fail(errors.DIVIDE, outer=layout, inner=inner, size=size, step=step, mode=Layout(*crossed))
        if count == rest:
            return pieces
        rest //= count
        stride *= count


def _digits(outer: Sequence[Mode], index: int) -> tuple[int, ...]:
    """An index as coordinates of the outer modes; the last one takes the rest."""
    digits: list[int] = []
    for extent, _ in outer[:-1]:
        index, digit = divmod(index, extent)
        digits.append(digit)
    return (*digits, index)


def _each_leaf(function: Callable[[Any, Any], Mode], layout: Layout) -> Layout:
    modes = [function(size, step) for size, step in flat_modes(layout)]
    flat = zip(*modes, strict=True)
    return Layout(*(int_tuple.unflatten(numbers, layout.shape) for numbers in flat)) if modes else layout


def _is_int(value: Any, number: int) -> bool:
    return type(value) is int and value == number
