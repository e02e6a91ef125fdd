"""Pictures of layouts as text: the tile with its owners, or the hardware with its elements.

The tensor view prints one cell per element. In a distributed layout a cell lists the places of the element: `T5:2` for register
2 of thread 5 (thread = warp * 32 + lane), several places joined by `|`; with several blocks `B1:T5:2`. In a shared layout a
cell is the offset in elements, in a tensor memory layout `L5:2`, column 2 of lane 5, where columns count elements. The hardware
view is the inverse: the element of each place. Tiles of three and more dimensions print slice by slice.

Text consists of fragments, each with the place that it shows, so that a terminal or an SVG can colour it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass
from itertools import product
from math import prod

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.base import WARP_SIZE, TileLayout, ints
from weft.layout.distributed.layouts import AutoLayout, CoalescedLayout
from weft.layout.linear.ends import extent, held, in_row_major, inside
from weft.layout.linear.maps import LinearLayout
from weft.layout.shared.layouts import PaddedSharedLayout, Pads, SharedLayout, padded

MOST_ELEMENTS = 1 << 20
OFFSETS_PER_LINE = 16
HUE_STEP = 0.381966  # of the golden angle: neighbouring groups get colours far apart


@dataclass(frozen=True, slots=True)
class Place:
    """A place of an element: its label, and for its colour a group (warp, or row of 32 offsets) and a member of the group."""

    label: str
    group: int
    member: int

    @property
    def color(self) -> str:
        """A light colour, `#rrggbb`: the group gives the hue, the member the shade."""
        rgb = hls_to_rgb(0.55 + self.group * HUE_STEP, 0.68 + 0.22 * self.member / (WARP_SIZE - 1), 0.65)
        return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


Piece = tuple[str, Place | None]
# A line of the hardware view: its title, and the element in each place, if any.
Row = tuple[str, tuple[tuple[Place, int | None], ...]]


@dataclass(frozen=True, slots=True)
class Picture:
    """A tile with the places of each element, row-major, and the lines of its hardware view."""

    shape: tuple[int, ...]
    cells: tuple[tuple[Place, ...], ...]
    rows: tuple[Row, ...]


def draw(layout: TileLayout | LinearLayout, shape: Sequence[int]) -> Picture:
    """The picture of a layout for a tile of this shape.

    Raises LayoutError for layouts that cannot be drawn (AutoLayout, CoalescedLayout, PaddedSharedLayout), for another shape
    than the layout's, and for tiles of more than a million elements.
    """
    shape = ints(shape, "the shape of a tile")
    if prod(shape) > MOST_ELEMENTS:
        raise fail(errors.SHOW_TOO_LARGE, shape=list(shape), elements=prod(shape), most=MOST_ELEMENTS)
    linear = _drawable(layout, shape)
    rows = tuple(_rows(linear, layout.pads_of(shape) if isinstance(layout, SharedLayout) else ()))
    if not linear.is_whole:
        rows = tuple([(title, tuple(_existing(linear, places))) for title, places in rows])
    cells: list[list[Place]] = [[] for _ in range(prod(shape))]
    for _, places in rows:
        for place, element in places:
            if element is not None:
                cells[element].append(place)
    return Picture(shape, tuple(map(tuple, cells)), rows)


def format_tensor_view(layout: TileLayout | LinearLayout, shape: Sequence[int]) -> str:
    """The tile as a bracketed grid, each cell with all places of that element: `T0:0|T32:0`.

    Raises as `draw` does.
    """
    return "".join(text for text, _ in tensor_fragments(draw(layout, shape)))


def format_hardware_view(layout: TileLayout | LinearLayout, shape: Sequence[int]) -> str:
    """One line per thread, with the coordinates in each of its registers; for shared layouts, runs of offsets; for those of
    tensor memory one line per lane, with the coordinates in each of its columns.

    Raises as `draw` does.
    """
    return "".join(text for text, _ in hardware_fragments(draw(layout, shape)))


def tensor_fragments(picture: Picture) -> Iterator[Piece]:
    """The tensor view, cut where the place changes."""
    width = max((len(place.label) for cell in picture.cells for place in cell), default=1)
    # A 1-D tile prints as a column, since its cells are long where a slice repeats elements.
    outer, columns = (picture.shape[:-1], picture.shape[-1]) if len(picture.shape) > 1 else (picture.shape, 1)
    for line in range(len(picture.cells) // columns):
        opening, closing = _brackets(outer, line, inner=outer != picture.shape)
        yield opening, None
        for column in range(columns):
            yield (", " if column else ""), None
            yield from _cell(picture.cells[line * columns + column], width)
        yield closing, None


def hardware_fragments(picture: Picture) -> Iterator[Piece]:
    """The hardware view, cut where the place changes."""
    for index, (title, places) in enumerate(picture.rows):
        yield ("\n" if index else "") + title, None
        for position, (place, element) in enumerate(places):
            yield (", " if position else ""), None
            yield _coordinates(element, picture.shape), place


def _drawable(layout: TileLayout | LinearLayout, shape: tuple[int, ...]) -> LinearLayout:
    if isinstance(layout, AutoLayout | CoalescedLayout):
        raise fail(errors.SHOW_UNRESOLVED, layout=layout)
    if isinstance(layout, PaddedSharedLayout):
        raise fail(errors.SHOW_PADDED, layout=layout)
    if isinstance(layout, TileLayout):
        return layout.to_linear(shape)
    if layout.sizes != shape:
        raise fail(errors.SHOW_SHAPE, own=list(layout.sizes), shape=list(shape))
    return layout


def _rows(linear: LinearLayout, pads: Pads) -> Iterator[Row]:
    if "row" in linear.in_dims:
        return _lane_rows(linear)
    return _offset_rows(linear, pads) if "offset" in linear.in_dims else _register_rows(linear)


def _existing(linear: LinearLayout, places: Iterable[tuple[Place, int | None]]) -> Iterator[tuple[Place, int | None]]:
    """Places with row-major indices of elements in a tile that ends before a power of two; without elements beyond it."""
    for place, element in places:
        yield place, in_row_major(linear, element) if element is not None and inside(linear, element) else None


def _register_rows(linear: LinearLayout) -> Iterator[Row]:
    """One row per thread."""
    blocks, warps, lanes = (linear.table(dim) for dim in ("block", "warp", "lane"))
    table = linear.table("register")
    registers = [table[register] for register in held(linear)]
    width = len(str(len(warps) * len(lanes) - 1))
    for (b, block), (w, warp), (t, lane) in product(enumerate(blocks), enumerate(warps), enumerate(lanes)):
        prefix = f"B{b}:" if len(blocks) > 1 else ""
        thread = f"T{w * len(lanes) + t}"
        places = tuple(
            (Place(f"{prefix}{thread}:{r}", w, t), register ^ lane ^ warp ^ block)
            for r, register in enumerate(registers)
        )
        yield f"{prefix}warp {w} {thread:>{width + 1}}: ", places


def _offset_rows(linear: LinearLayout, pads: Pads) -> Iterator[Row]:
    """Rows of consecutive offsets in memory."""
    blocks, offsets = linear.table("block"), linear.table("offset")[: extent(linear)]
    if pads:
        there = {padded(i, pads): element for i, element in enumerate(offsets) if inside(linear, element)}
        offsets = [there.get(i) for i in range(max(there) + 1)]
    width = len(str(len(offsets) - 1))
    for (b, block), first in product(enumerate(blocks), range(0, len(offsets), OFFSETS_PER_LINE)):
        prefix = f"B{b}:" if len(blocks) > 1 else ""
        run = offsets[first : first + OFFSETS_PER_LINE]
        places = tuple(
            (Place(f"{prefix}{offset}", *divmod(offset, WARP_SIZE)), None if element is None else element ^ block)
            for offset, element in enumerate(run, first)
        )
        yield f"{prefix}{first:>{width}}: ", places


def _lane_rows(linear: LinearLayout) -> Iterator[Row]:
    """One row per lane of tensor memory.

    A free bit of the lane or column index leaves places empty, unless it distinguishes warps: then these places hold copies."""
    blocks, lanes, columns = (linear.table(dim) for dim in ("block", "row", "column"))
    idle = sum(1 << bit for bit, image in enumerate(linear.columns["row"]) if not image) % WARP_SIZE
    gaps = sum(1 << bit for bit, image in enumerate(linear.columns["column"]) if not image)
    width = len(str(len(lanes) - 1))
    for (b, block), (r, lane) in product(enumerate(blocks), enumerate(lanes)):
        prefix = f"B{b}:" if len(blocks) > 1 else ""
        places = tuple(
            (
                Place(f"{prefix}L{r}:{c}", *divmod(r, WARP_SIZE)),
                None if r & idle or c & gaps else block ^ lane ^ column,
            )
            for c, column in enumerate(columns)
        )
        yield f"{prefix}lane {r:>{width}}: ", places


def _cell(places: Sequence[Place], width: int) -> Iterator[Piece]:
    for index, place in enumerate(places):
        yield ("|" if index else ""), None
        yield place.label.rjust(width), place


def _brackets(outer: Sequence[int], line: int, inner: bool) -> tuple[str, str]:
    """The text before and after a line: brackets of the dimensions that begin and end there (`inner`: the line itself
    too), a comma, and the newline, doubled between slices.
    """
    opens = sum(line % prod(outer[d:]) == 0 for d in range(len(outer)))
    closes = sum((line + 1) % prod(outer[d:]) == 0 for d in range(len(outer)))
    before = " " * (len(outer) - opens) + "[" * (opens + inner)
    after = "]" * (closes + inner)
    if closes == len(outer):
        return before, after
    return before, after + (",\n\n" if closes else ",\n")


def _coordinates(element: int | None, shape: Sequence[int]) -> str:
    parts: list[str] = []
    if element is None:
        return "-".rjust(len(_coordinates(0, shape)))
    for size in reversed(shape):
        parts.append(str(element % size).rjust(len(str(size - 1))))
        element //= size
    return f"({', '.join(reversed(parts))})"
