"""The fields of a view: what the modules of this package by subject take, and return with other values.

`LayoutTensor` derives from `ViewData` and adds the methods that authors call, which these modules implement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from weft.layout.nested.int_tuple import product
from weft.layout.nested.layouts import Layout
from weft.views.history import History, Unnamed
from weft.views.storage import AddressSpace, Index, Storage

if TYPE_CHECKING:
    from typing_extensions import Self


class ViewData:
    """The fields of a view, and what follows from them alone. Immutable."""

    FIELDS = ("storage", "offset", "layout", "element_layout", "sizes", "strides", "limits", "masked", "history")
    __slots__ = FIELDS

    storage: Storage
    """The storage."""
    offset: Index
    """The first element's offset in the storage."""
    layout: Layout
    """The layout of elements: ints, and UNKNOWN for run-time numbers."""
    element_layout: Layout
    """The layout of the numbers of one element; always static."""
    sizes: tuple[Index, ...]
    """The size of every mode of the flattened layout."""
    strides: tuple[Index, ...]
    """The stride of every mode of the flattened layout."""
    limits: tuple[Index | None, ...] | None
    """The number of valid elements along each axis of a masked view; None for all."""
    masked: bool
    """Whether partitions may exceed the bounds."""
    history: str
    """The expression by which the author made the view."""

    @classmethod
    def from_fields(cls, *values: Any) -> Self:
        """The view with these values of `FIELDS`."""
        made = object.__new__(cls)
        set_fields(made, cls.FIELDS, values)
        return made

    def replaced(self, **changes: Any) -> Self:
        """A copy of the view with some fields replaced."""
        return type(self).from_fields(*(changes.get(name, getattr(self, name)) for name in self.FIELDS))

    def named(self, name: str) -> Self:
        """The view with a name for messages, taken from a variable; itself if it already has one."""
        return self.replaced(history=History(name)) if isinstance(self.history, Unnamed) else self

    @property
    def dtype(self) -> Any:
        """The type of its numbers: a NumPy dtype on the host, a `gl` dtype in a kernel."""
        return self.storage.dtype

    @property
    def address_space(self) -> AddressSpace:
        """The address space of its memory."""
        return self.storage.space

    @property
    def rank(self) -> int:
        """Number of axes; a nested mode counts as one."""
        return self.layout.rank()

    @property
    def element_size(self) -> int:
        """Numbers in one element."""
        return product(self.element_layout.shape)


AnyView = TypeVar("AnyView", bound=ViewData)
"""Functions that return a view of the class that they were given."""


def set_fields(made: object, names: Sequence[str], values: Sequence[Any]) -> None:
    """Set the fields of a new immutable object."""
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
