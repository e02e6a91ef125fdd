"""Pictures of layouts as SVG: the tensor view as a grid, coloured by warp and lane. One self-contained text, no script.

Nested layouts are drawn from the same parts, in `weft.layout.show.nested_svg`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import prod

from weft.layout.base import TileLayout
from weft.layout.linear.maps import LinearLayout
from weft.layout.show.text import Picture, Place, draw

FONT_SIZE = 11
GLYPH = 0.62 * FONT_SIZE  # advance of a monospaced glyph
CELL_HEIGHT = 26
MARGIN = 12
HEADER = 44
LABELS = 34
SLICE_GAP = 28


def format_svg(layout: TileLayout | LinearLayout, shape: Sequence[int]) -> str:
    """The tensor view of a layout as an SVG document.

    A cell shows the first place that holds the element and the number of further places; its tooltip lists all. Tiles of three
    and more dimensions are drawn slice by slice. Raises LayoutError as `weft.layout.show.draw` does.
    """
    picture = draw(layout, shape)
    columns = picture.shape[-1] if picture.shape else 1
    rows = picture.shape[-2] if len(picture.shape) > 1 else 1
    slices = prod(picture.shape[:-2])
    cell = _cell_width(picture)
    title = f"{layout}, shape {'x'.join(map(str, picture.shape)) or '1'}"
    width = 2 * MARGIN + LABELS + max(columns * cell, len(title) * GLYPH)
    pitch = rows * CELL_HEIGHT + SLICE_GAP
    height = MARGIN + HEADER + slices * pitch
    body = [
        part
        for index in range(slices)
        for part in _slice(picture, index, rows, columns, cell, MARGIN + HEADER + index * pitch)
    ]
    return document(title, width, height, body)


def document(title: str, width: float, height: float, body: Sequence[str]) -> str:
    """A whole SVG document of a title and these elements."""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    font = f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{FONT_SIZE}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
            f"<title>{escape(title)}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<text x="{MARGIN}" y="{MARGIN + FONT_SIZE}" fill="#202020" font-weight="bold">{escape(title)}</text>',
            *body,
            "</svg>\n",
        ]
    )


def _slice(picture: Picture, index: int, rows: int, columns: int, cell: int, top: int) -> Iterator[str]:
    """The grid of one slice, with its indices."""
    left = MARGIN + LABELS
    if len(picture.shape) > 2:
        yield label(
            MARGIN, top - 14, f"[{', '.join(map(str, _slice_index(index, picture.shape[:-2])))}, :, :]", "start"
        )
    for column in range(columns):
        yield label(left + (column + 0.5) * cell, top - 3, str(column), "middle")
    for row in range(rows):
        yield label(left - 5, top + (row + 0.65) * CELL_HEIGHT, str(row), "end")
        for column in range(columns):
            element = (index * rows + row) * columns + column
            yield _cell(picture.cells[element], left + column * cell, top + row * CELL_HEIGHT, cell)


def _cell(places: Sequence[Place], x: int, y: int, width: int) -> str:
    if not places:
        return box(x, y, width, "#eeeeee")
    caption = places[0].label + (f" +{len(places) - 1}" if len(places) > 1 else "")
    tooltip = escape(" | ".join(place.label for place in places))
    text = label(x + width / 2, y + 0.65 * CELL_HEIGHT, caption, "middle", "#101010")
    return f"<g><title>{tooltip}</title>{box(x, y, width, places[0].color)}{text}</g>"


def box(x: float, y: float, width: float, fill: str, height: float = CELL_HEIGHT) -> str:
    """A filled cell."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="#ffffff"/>'


def label(x: float, y: float, text: str, anchor: str, fill: str = "#808080") -> str:
    """A text whose start, middle or end is at x."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'


def _cell_width(picture: Picture) -> int:
    """The width of a cell that fits the longest caption."""
    longest = max((len(cell[0].label) + (4 if len(cell) > 1 else 0) for cell in picture.cells if cell), default=1)
    return round(longest * GLYPH) + 10


def _slice_index(index: int, shape: Sequence[int]) -> list[int]:
    coordinates: list[int] = []
    for size in reversed(shape):
        index, coordinate = divmod(index, size)
        coordinates.append(coordinate)
    return coordinates[::-1]
