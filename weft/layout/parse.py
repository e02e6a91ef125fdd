"""Read layouts as they are printed. The text is parsed as Python, but nothing in it is executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.base import TileLayout
from weft.layout.distributed.layouts import (
    AutoLayout,
    BlockedLayout,
    CoalescedLayout,
    DistributedLinearLayout,
    SliceLayout,
)
from weft.layout.distributed.mma import DotOperandLayout, NVMMADistributedLayout
from weft.layout.shared.layouts import (
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLinearLayout,
    SwizzledSharedLayout,
)
from weft.layout.shared.mbarrier import MBarrierLayout
from weft.layout.tensor_memory.layouts import TensorMemoryLayout, TensorMemoryScalesLayout

CONSTRUCTORS: Mapping[str, type[TileLayout]] = {
    layout.__name__: layout
    for layout in (
        AutoLayout,
        BlockedLayout,
        CoalescedLayout,
        DistributedLinearLayout,
        DotOperandLayout,
        MBarrierLayout,
        NVMMADistributedLayout,
        NVMMASharedLayout,
        PaddedSharedLayout,
        SharedLinearLayout,
        SliceLayout,
        SwizzledSharedLayout,
        TensorMemoryLayout,
        TensorMemoryScalesLayout,
    )
}


def parse_layout(text: str) -> TileLayout:
    """The layout written in `text`: a constructor call over literals and layouts, with or without a module prefix.

    Raises LayoutError if the text is anything else, and any exception of the constructor.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise fail(errors.SHOW_TEXT, text=text, reason=error.msg) from None
    layout = _value(tree, text)
    if not isinstance(layout, TileLayout):
        raise fail(errors.SHOW_TEXT, text=text, reason="it is not a call of a layout's constructor")
    return layout


def parse_shape(text: str) -> tuple[int, ...]:
    """Sizes separated by `x` or commas: `32x8`, `128`, `2,16,16`."""
    parts = re.split(r"\s*[x,]\s*", text.strip().strip("[]()").lower())
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise fail(errors.SHOW_SHAPE_TEXT, text=text)
    return tuple(map(int, parts))


def _value(node: ast.expr, text: str) -> object:
    """A literal or a layout."""
    if not isinstance(node, ast.Call):
        return _literal(node, text)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    constructor = CONSTRUCTORS.get(name)
    if constructor is None:
        raise fail(
            errors.SHOW_TEXT, text=text, reason=f"there is no layout {name!r}; there are {', '.join(CONSTRUCTORS)}"
        )
    arguments = [_value(argument, text) for argument in node.args]
    keywords = {keyword.arg or "**": _value(keyword.value, text) for keyword in node.keywords}
    try:
        return constructor(*arguments, **keywords)
    except TypeError as error:
        raise fail(errors.SHOW_TEXT, text=text, reason=str(error)) from None


def _literal(node: ast.expr, text: str) -> object:
    try:
        return ast.literal_eval(node)
    except (TypeError, ValueError):
        reason = f"{ast.unparse(node)!r} is neither a literal nor a layout"
        raise fail(errors.SHOW_TEXT, text=text, reason=reason) from None
