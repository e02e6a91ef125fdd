"""The storage of views: the interface between `LayoutTensor` and memory, on the host and in kernels.

A view does index arithmetic only; its `Storage` loads and stores. Kinds of memory are registered here: `OPENERS` open objects
that a view may be made over (arrays, kernel pointers, shared-memory handles), `ALLOCATORS` allocate new memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.layouts import Layout
from weft.loading import Registry
from weft.plain import array_of

# An int, or a run-time scalar: any object with + - * // % and comparisons.
Index = Any


class AddressSpace(Enum):
    """The address space: GENERIC is host memory (in a kernel: thread-private memory), the others are GPU memory."""

    GENERIC = "generic"
    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"

    def __repr__(self) -> str:
        return f"AddressSpace.{self.name}"


@dataclass(frozen=True, slots=True)
class Places:
    """The offsets of n accesses of `width` consecutive elements each, relative to a base.

    Access i starts at element `const[i] + sum(strides[k] * factors[k][i])`. Everything except the strides is known at compile
    time.
    """

    const: tuple[int, ...]
    width: int = 1
    strides: tuple[Index, ...] = ()
    factors: tuple[tuple[int, ...], ...] = ()

    @property
    def count(self) -> int:
        """Total number of elements."""
        return len(self.const) * self.width


ONE_PLACE = Places((0,))
"""One access of one element, at the base."""


class Storage(Protocol):
    """A memory of elements of one type. Bases are in elements from its start."""

    @property
    def space(self) -> AddressSpace:
        """The address space."""
        ...

    @property
    def dtype(self) -> Any:
        """The element type, with an `itemsize` in bytes."""
        ...

    def load(self, base: Index, places: Places, mask: Sequence[Any] | None) -> Any:
        """The `places.count` elements in order of accesses; one element acts as a scalar.

        `mask` has a predicate per access (a bool or a run-time one); elements of a masked-off access are undefined.
        """
        ...

    def store(self, base: Index, places: Places, value: Any, mask: Sequence[Any] | None) -> None:
        """Store to the elements that `load` would read: a value of `places.count` elements, or one number for all of them.

        Numbers of another type are cast.
        """
        ...

    def copy_async(
        self, base: Index, places: Places, source: Storage, source_base: Index, source_places: Places,
        mask: Sequence[Any] | None, active: Any = None,
    ) -> None:  # fmt: skip
        """Issue an asynchronous copy into this memory, access i of the source to access i here, of equal widths and counts.

        Masked-off accesses write zeros; where `active` does not hold, nothing is copied.
        """
        ...

    def check(self, indices: Sequence[Index], sizes: Sequence[Index], history: str, where: Sequence[str]) -> None:
        """Check at run time that 0 <= index < size for each pair, of which at least one is a run-time value.

        For the message, `history` is the expression of the view, and `where` describes each index, such as "along axis 1 of".
        """
        ...

    def wide(self, index: Index) -> Index:
        """The index as int64, for products that may exceed 32 bits."""
        ...

    def clamp(self, index: Index, low: int, high: Index) -> Index:
        """The index, clamped to the bounds."""
        ...

    def width(self, value: Any) -> int:
        """The number of numbers in a value to be stored: 1 for a scalar."""
        ...

    def address(self, offset: Index) -> Any:
        """The pointer to an element: an int on the host, a pointer in a kernel."""
        ...

    def pointer_to(self, offset: Index) -> Any:
        """What `ptr` of a view is that begins at an element; unlike `address`, in any memory."""
        ...

    def peer(self, rank: Index) -> Storage:
        """The same memory of another block of the cluster."""
        ...


class Opened(NamedTuple):
    """An object that a view can be made over: its storage, its first element, its layout and its bounds.

    `layout` is None for memory without a shape (a pointer). `extent` is the range of offsets within the object, relative to
    its first element with the end excluded; None if unknown.
    """

    storage: Storage
    offset: Index = 0
    layout: Layout | None = None
    extent: tuple[int, int] | None = None


Opener = Callable[[Any], "Opened | None"]
Allocator = Callable[[Any, int, AddressSpace], "Storage | None"]

HOST_RANK, KERNEL_RANK = 0, 1
"""Keys of host arrays and of kernel memory in the tables below. The highest rank is tried first."""

OPENERS: Registry[int, Opener] = Registry("opener of rank")
"""By rank: each takes an object and returns it opened, or None if it does not recognise it."""

ALLOCATORS: Registry[int, Allocator] = Registry("allocator of rank")
"""By rank: each takes an element type, a number of elements and an address space, and returns memory, or None."""


def open_object(value: Any) -> Opened:
    """The memory behind an object. Raises ViewError (view-open) for an object without memory."""
    for rank in sorted(OPENERS, reverse=True):
        opened = OPENERS[rank](value)
        if opened is not None:
            return opened
    instead = array_of("x", value)
    example = "" if instead is None else f", as in {instead}"
    raise fail(errors.OPEN, got=f"a value of type {type(value).__name__}", example=example)


def allocate(dtype: Any, count: int, space: AddressSpace) -> Storage:
    """New memory. Raises ViewError (view-allocation) if none can be allocated in that address space."""
    for rank in sorted(ALLOCATORS, reverse=True):
        storage = ALLOCATORS[rank](dtype, count, space)
        if storage is not None:
            return storage
    raise fail(errors.ALLOCATION, space=repr(space))
