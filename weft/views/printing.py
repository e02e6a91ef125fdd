"""Text of views for `repr` and `str`."""

from __future__ import annotations

from weft.views.data import ViewData
from weft.views.host import HostStorage
from weft.views.modes import SCALAR


def describe(view: ViewData) -> str:
    """`LayoutTensor(float32, ((4, 4):(4, 1)))`, with the element layout of vectors and the address space of GPU memory."""
    dtype = getattr(view.dtype, "name", view.dtype)
    vectors = "" if view.element_layout == SCALAR else f" of {view.element_layout}"
    space = "" if isinstance(view.storage, HostStorage) else f", {view.address_space!r}"
    return f"LayoutTensor({dtype}, {view.layout}{vectors}{space})"


def text(view: ViewData) -> str:
    """The valid elements as NumPy prints them, vectors in brackets; `describe` for memory that the host cannot read."""
    if not isinstance(view.storage, HostStorage):
        return describe(view)
    from weft.views import host_arrays

    return str(host_arrays.elements(view))
