"""Pictures of nested layouts as text: a grid of offsets, with lines between the tiles of nested modes."""

from __future__ import annotations

from math import prod

from weft.errors import fail
from weft.errors import layout as layout_errors
from weft.errors import nested as errors
from weft.layout.nested import int_tuple
from weft.layout.nested.algebra import require
from weft.layout.nested.composed import ComposedLayout
from weft.layout.nested.layouts import Layout
from weft.layout.show.text import MOST_ELEMENTS


def format_layout(layout: Layout | ComposedLayout) -> str:
    """The layout's name and its offsets: a row per index of the first mode, a column per index of the second.

    A layout of rank 1 is one row. Lines separate the tiles of nested modes.

    >>> print(format_layout(Layout(((2, 2), (2, 2)), ((2, 8), (1, 4)))))
    (((2, 2), (2, 2)):((2, 8), (1, 4)))
             0   1     2   3
       0     0   1 |   4   5
       1     2   3 |   6   7
           --------+--------
       2     8   9 |  12  13
       3    10  11 |  14  15

    Raises LayoutError for other ranks, unknown numbers, and more than a million elements.
    """
    rows, columns = grid_shape(layout)
    tile_rows, tile_columns = tile_shape(layout)
    table = grid(layout)
    width = max(len(str(number)) for number in (columns - 1, rows - 1, *(o for row in table for o in row))) + 2
    margin = " " * (width + 2)

    def line(cells: list[str], between: str) -> str:
        runs = ["".join(cells[start : start + tile_columns]) for start in range(0, columns, tile_columns)]
        return between.join(runs)

    def padded(numbers: list[int]) -> list[str]:
        return [str(number).rjust(width) for number in numbers]

    lines = [str(layout), margin + line(padded([*range(columns)]), "  ")]
    for row, offsets in enumerate(table):
        if row and row % tile_rows == 0:
            lines.append(margin + " " + line(["-" * width] * columns, "-+")[1:])
        lines.append(str(row).rjust(width) + "  " + line(padded(offsets), " |"))
    return "\n".join(lines)


def grid(layout: Layout | ComposedLayout) -> list[list[int]]:
    """The offsets, row by row. Raises as `format_layout` does."""
    rows, columns = grid_shape(layout)
    if rows * columns > MOST_ELEMENTS:
        shape = [rows, columns]
        raise fail(layout_errors.SHOW_TOO_LARGE, shape=shape, elements=prod(shape), most=MOST_ELEMENTS)
    if layout.rank() == 1:
        return [[layout(index) for index in range(columns)]]
    return [[layout(row, column) for column in range(columns)] for row in range(rows)]


def grid_shape(layout: Layout | ComposedLayout) -> tuple[int, int]:
    """Rows and columns of the grid; rank 1 has one row. Raises LayoutError for other ranks and unknown numbers."""
    inner = layout.inner if isinstance(layout, ComposedLayout) else layout
    if layout.rank() not in (1, 2):
        raise fail(errors.GRID, rank=layout.rank(), layout=layout)
    sizes = [mode.size() for mode in require(inner, "format_layout")]
    return (1, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])


def tile_shape(layout: Layout | ComposedLayout) -> tuple[int, int]:
    """Rows and columns of the innermost tiles; a mode that is not nested is a single tile."""
    modes = layout.shape if int_tuple.is_tuple(layout.shape) else (layout.shape,)
    sizes = [int_tuple.product(mode[0] if int_tuple.is_tuple(mode) else mode) for mode in modes]
    return (1, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])
