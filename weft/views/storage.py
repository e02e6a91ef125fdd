"""Where the elements of a view are: what every memory offers to `LayoutTensor`, on the host and in kernels.

A view does index arithmetic only; its `Storage` reads and writes. Memories enter here by registration: `OPENERS` open
objects that a view may be made over (arrays, kernel pointers, shared handles), `ALLOCATORS` make new memory.
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
    """Which memory: GENERIC is the host's own (in a kernel, a thread's own), the others are the GPU's."""

    GENERIC = "generic"
    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"

    def __repr__(self) -> str:
        return f"AddressSpace.{self.name}"


@dataclass(frozen=True, slots=True)
class Places:
    """Where `n` accesses of `width` consecutive elements each lie, relative to a base.

    Access i starts at element `const[i] + sum(strides[k] * factors[k][i])`. All of it is known at compile time, but for the
    strides.
    """

    const: tuple[int, ...]
    width: int = 1
    strides: tuple[Index, ...] = ()
    factors: tuple[tuple[int, ...], ...] = ()

    @property
    def count(self) -> int:
        """Elements of all accesses together."""
        return len(self.const) * self.width


ONE_PLACE = Places((0,))
"""One access of one element, at the base."""


class Storage(Protocol):
    """A memory of elements of one type. Bases are in elements from its start."""

    @property
    def space(self) -> AddressSpace:
        """Which memory it is."""
        ...

    @property
    def dtype(self) -> Any:
        """The element type, with an `itemsize` in bytes."""
        ...

    def load(self, base: Index, places: Places, mask: Sequence[Any] | None) -> Any:
        """The `places.count` elements in order of accesses; one element acts as a scalar.

        `mask` has a condition per access (a bool or a run-time one); elements of an access that it leaves out are undefined.
        """
        ...

    def store(self, base: Index, places: Places, value: Any, mask: Sequence[Any] | None) -> None:
        """Write what `load` would read: a value of `places.count` elements, or one number for all of them.

        Numbers of another type are converted as a cast does.
        """
        ...

    def copy_async(
        self, base: Index, places: Places, source: Storage, source_base: Index, source_places: Places,
        mask: Sequence[Any] | None,
    ) -> None:  # fmt: skip
        """Begin to copy into this memory, access i of the source to access i here; both have one width and count.

        Accesses that the mask leaves out write zeros.
        """
        ...

    def check(self, indices: Sequence[Index], sizes: Sequence[Index], history: str, where: Sequence[str]) -> None:
        """Each index is at least 0 and less than its size; at least one of the two is known at run time only.

        For the report, `history` is how the author made the view, and `where` says what each index counts there, such as
        "along axis 1 of".
        """
        ...

    def wide(self, index: Index) -> Index:
        """The index in 64 bits: what it is multiplied with may go beyond 32."""
        ...

    def clamp(self, index: Index, low: int, high: Index) -> Index:
        """The index, or the nearer of the two bounds where it lies outside of them."""
        ...

    def width(self, value: Any) -> int:
        """How many numbers a value to be stored has: 1 for a scalar."""
        ...

    def address(self, offset: Index) -> Any:
        """The pointer to an element: an int on the host, a pointer in a kernel."""
        ...


class Opened(NamedTuple):
    """An object that a view can be made over: its memory, where it starts, its own layout, and what may be reached.

    `layout` is None for memory without a shape (a pointer). `extent` is the first and last offset from the start that lie
    in the object, the last excluded; None where that is not known.
    """

    storage: Storage
    offset: Index = 0
    layout: Layout | None = None
    extent: tuple[int, int] | None = None


Opener = Callable[[Any], "Opened | None"]
Allocator = Callable[[Any, int, AddressSpace], "Storage | None"]

HOST_RANK, KERNEL_RANK = 0, 1
"""Where arrays of the host and memory in kernels stand in the tables below. The highest rank is asked first."""

OPENERS: Registry[int, Opener] = Registry("opener of rank")
"""By rank: each gets an object and says what it is, or None if it does not know it."""

ALLOCATORS: Registry[int, Allocator] = Registry("allocator of rank")
"""By rank: each gets an element type, a number of elements and a space, and gives memory, or None."""


def open_object(value: Any) -> Opened:
    """The memory behind an object. Raises ViewError (view-open) for what has none."""
    for rank in sorted(OPENERS, reverse=True):
        opened = OPENERS[rank](value)
        if opened is not None:
            return opened
    instead = array_of("x", value)
    example = "" if instead is None else f", as in {instead}"
    raise fail(errors.OPEN, got=f"a value of type {type(value).__name__}", example=example)


def allocate(dtype: Any, count: int, space: AddressSpace) -> Storage:
    """New memory. Raises ViewError (view-allocation) where there is none of that kind."""
    for rank in sorted(ALLOCATORS, reverse=True):
        storage = ALLOCATORS[rank](dtype, count, space)
        if storage is not None:
            return storage
    raise fail(errors.ALLOCATION, space=repr(space))
