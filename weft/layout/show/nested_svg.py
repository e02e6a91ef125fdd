"""Pictures of nested layouts as SVG: the grid of offsets, coloured by tile or by thread, with the storage underneath.

An *owner* is the tile or thread of an element: a name, and a number that selects the colour. `tiles`, `one_tile` and `threads`
make the functions from (row, column) to owners that the pictures take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import product
from typing import TypeAlias

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.nested.composed import ComposedLayout
from weft.layout.nested.layouts import Layout
from weft.layout.show.nested_text import grid, grid_shape, tile_shape
from weft.layout.show.svg import CELL_HEIGHT, FONT_SIZE, GLYPH, HEADER, LABELS, MARGIN, box, document, label
from weft.layout.show.text import MOST_ELEMENTS, Place

PER_LINE = 16  # of the storage
GAP = 6  # between tiles
PLAIN = "#eeeeee"
INK = "#101010"


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of an element (a thread or a tile): its name, and a number that selects its colour."""

    name: str
    number: int

    @property
    def color(self) -> str:
        """A light colour, `#rrggbb`."""
        return Place(self.name, self.number, 16).color


Owners: TypeAlias = Callable[[int, int], "Owner | None"]


def tiles(rows: int, columns: int, across: int) -> Owners:
    """Elements belong to tiles of rows x columns, `across` of them side by side.

    >>> tiles(2, 2, 4)(2, 5)
    Owner(name='tile (1, 2)', number=6)
    """

    def owner(row: int, column: int) -> Owner:
        place = row // rows, column // columns
        return Owner(f"tile {place}", place[0] * across + place[1])

    return owner


def one_tile(rows: int, columns: int, place: tuple[int, int]) -> Owners:
    """Owners for one tile, at a coordinate that counts tiles; elements of other tiles have no owner.

    >>> one_tile(2, 2, (1, 0))(3, 1), one_tile(2, 2, (1, 0))(0, 0)
    (Owner(name='tile (1, 0)', number=0), None)
    """

    def owner(row: int, column: int) -> Owner | None:
        return Owner(f"tile {place}", 0) if (row // rows, column // columns) == place else None

    return owner


def threads(layout: Layout) -> Owners:
    """Elements are distributed to the threads of a layout of rank 2, which repeats over the grid.

    >>> threads(Layout.col_major(2, 2))(1, 2)
    Owner(name='T1', number=1)
    """
    rows, columns = grid_shape(layout)

    def owner(row: int, column: int) -> Owner:
        thread = layout(row % rows, column % columns)
        return Owner(f"T{thread}", thread)

    return owner


def format_layout_svg(
    layout: Layout | ComposedLayout,
    owners: Owners | None = None,
    *,
    vectors: tuple[int, int] | None = None,
    storage: bool = False,
    names: bool = False,
    title: str | None = None,
) -> str:
    """The offsets of a layout of rank 1 or 2 as an SVG document, with gaps between the tiles of nested modes.

    `owners` colours the elements (without it nested layouts are coloured by tile); `names` writes an owner's name into its
    cells rather than into tooltips only; `vectors` outlines groups of rows x columns; `storage` draws the linear memory
    underneath, in the same colours. Raises LayoutError as `format_layout` does, also if the storage is too long to draw.
    """
    rows, columns = grid_shape(layout)
    tile = tile_shape(layout)
    if owners is None:
        owners = tiles(*tile, -(-columns // tile[1])) if tile != (rows, columns) else _nobody
    cells = [
        [Cell(offset, owners(i, j), f"({i}, {j}) at {offset}") for j, offset in enumerate(row)]
        for i, row in enumerate(grid(layout))
    ]
    size = _cell_size([cell for row in cells for cell in row], names)
    frame = Frame(MARGIN + LABELS, MARGIN + HEADER, *size, *tile)
    body = [*_grid(cells, frame, names), *_outlines(rows, columns, vectors, frame)]
    bottom = frame.y(rows - 1) + frame.height
    right = frame.x(columns - 1) + frame.width
    if storage:
        memory = _storage([cell for row in cells for cell in row])
        strip = Frame(frame.left, bottom + HEADER, *size, len(memory), PER_LINE)
        body += [label(MARGIN, strip.top - FONT_SIZE, "storage", "start"), *_grid(memory, strip, names, index=False)]
        bottom = strip.y(len(memory) - 1) + strip.height
        right = max(right, strip.x(len(memory[0]) - 1) + strip.width)
    title = str(layout) if title is None else title
    return document(title, max(right, MARGIN + len(title) * GLYPH) + MARGIN, bottom + MARGIN, body)


@dataclass(frozen=True, slots=True)
class Cell:
    """An element of a picture: its offset, its owner, what its tooltip says."""

    offset: int
    owner: Owner | None
    tooltip: str


@dataclass(frozen=True, slots=True)
class Frame:
    """The positions of the cells of a grid, in pixels, with a gap between tiles."""

    left: int
    top: int
    width: int
    height: int
    tile_rows: int
    tile_columns: int

    def x(self, column: int) -> int:
        """The left side of a column."""
        return self.left + column * self.width + column // self.tile_columns * GAP

    def y(self, row: int) -> int:
        """The upper side of a row."""
        return self.top + row * self.height + row // self.tile_rows * GAP


def _nobody(_row: int, _column: int) -> None:
    """No owner at all."""


def _grid(cells: Sequence[Sequence[Cell]], frame: Frame, names: bool, index: bool = True) -> Iterator[str]:
    """The cells, and outside them the index of each row and column."""
    for column in range(len(cells[0]) if index else 0):
        yield label(frame.x(column) + frame.width / 2, frame.top - 3, str(column), "middle")
    for row, line in enumerate(cells):
        if index:
            yield label(frame.left - 5, frame.y(row) + 0.6 * frame.height, str(row), "end")
        for column, cell in enumerate(line):
            yield _cell(cell, frame.x(column), frame.y(row), frame, names)


def _cell(cell: Cell, x: int, y: int, frame: Frame, names: bool) -> str:
    owner = cell.owner
    middle, base = x + frame.width / 2, y + 0.65 * CELL_HEIGHT
    texts = [label(middle, base, str(cell.offset), "middle", INK)]
    if names and owner:
        texts.append(label(middle, base + FONT_SIZE, owner.name, "middle"))
    tooltip = escape(cell.tooltip + (f", {owner.name}" if owner else ""))
    filled = box(x, y, frame.width, owner.color if owner else PLAIN, frame.height)
    return f"<g><title>{tooltip}</title>{filled}{''.join(texts)}</g>"


def _outlines(rows: int, columns: int, vectors: tuple[int, int] | None, frame: Frame) -> Iterator[str]:
    """A line around each vector."""
    if vectors is None:
        return
    for top, left in product(range(0, rows, vectors[0]), range(0, columns, vectors[1])):
        bottom, right = min(top + vectors[0], rows) - 1, min(left + vectors[1], columns) - 1
        x, y = frame.x(left), frame.y(top)
        width, height = frame.x(right) + frame.width - x, frame.y(bottom) + frame.height - y
        place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        yield f'<rect {place} fill="none" stroke="{INK}" stroke-width="1.5"/>'


def _storage(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The memory from offset 0 to the highest one, in lines; offsets without an element have no owner."""
    owners = {cell.offset: cell.owner for cell in cells}
    elements = max(owners) + 1
    if elements > MOST_ELEMENTS:
        raise fail(errors.SHOW_TOO_LARGE, shape=[elements], elements=elements, most=MOST_ELEMENTS)
    memory = [Cell(offset, owners.get(offset), f"offset {offset}") for offset in range(elements)]
    return [memory[start : start + PER_LINE] for start in range(0, len(memory), PER_LINE)]


def _cell_size(cells: Sequence[Cell], names: bool) -> tuple[int, int]:
    """Width and height of a cell that fits every caption."""
    captions = [str(cell.offset) for cell in cells]
    captions += [cell.owner.name for cell in cells if names and cell.owner]
    return round(max(map(len, captions)) * GLYPH) + 10, CELL_HEIGHT + FONT_SIZE * names
