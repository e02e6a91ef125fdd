"""Pictures of layouts, as text and as SVG."""

from weft.layout.show.nested_svg import Owner, format_layout_svg, one_tile, threads, tiles
from weft.layout.show.nested_text import format_layout
from weft.layout.show.svg import format_svg
from weft.layout.show.text import Picture, Place, draw, format_hardware_view, format_tensor_view

__all__ = [
    "Owner",
    "Picture",
    "Place",
    "draw",
    "format_hardware_view",
    "format_layout",
    "format_layout_svg",
    "format_svg",
    "format_tensor_view",
    "one_tile",
    "threads",
    "tiles",
]
