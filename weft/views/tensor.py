"""`LayoutTensor`: a view of elements in any memory, as a nested layout says where they lie.

The same class serves the host, where it views arrays of any library, and kernels, where the numbers that only the run time
knows are scalars of the kernel. A view is a value: nothing of it changes, and partitions of it are views of the same memory.
What it does is written in the modules beside this one, by subject; here is what a view is, and the names that authors use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.int_tuple import product, times
from weft.layout.nested.layouts import Layout
from weft.views import access, arguments, construct, elementwise, partition, printing, reshaping, transfers
from weft.views.brackets import Axes, Brackets, complete
from weft.views.history import History, Unnamed
from weft.views.iterators import LayoutTensorIter, tiled
from weft.views.modes import axes_of, extent, static_extent
from weft.views.partition import ViewType
from weft.views.storage import AddressSpace, Index, Storage

if TYPE_CHECKING:
    from typing_extensions import Self


class LayoutTensor:
    """A view of the elements of an array, a pointer or a shared buffer.

    `layout` says where the elements lie, from the array's first element on, in elements; without one the view has the array's
    own shape and strides. UNKNOWN numbers in it come from the array, or from `shape` and `strides` (one number per flattened
    mode). `masked` views may be partitioned by sizes that do not divide them: parts at the edge are smaller.
    `name` is how messages call the view; in a kernel without one, as the variable that it is assigned to. Nothing is copied.
    Raises ViewError (view-open, view-layout, view-extent and others).

    Elements are numbers, or after `vectorize` vectors of them; every size and index counts elements.
    """

    FIELDS = ("storage", "offset", "layout", "element_layout", "sizes", "strides", "limits", "masked", "history")
    __slots__ = (*FIELDS, "_argument")

    storage: Storage
    """The memory."""
    offset: Index
    """The first element's place in it."""
    layout: Layout
    """Where elements lie: ints, and UNKNOWN for what only the run time knows."""
    element_layout: Layout
    """Where the numbers of one element lie; all known."""
    sizes: tuple[Index, ...]
    """The size of every mode of the flattened layout."""
    strides: tuple[Index, ...]
    """The stride of every mode of the flattened layout."""
    limits: tuple[Index | None, ...] | None
    """Of a masked view, how many elements along each axis are there; None for all."""
    masked: bool
    """Whether partitions may reach beyond the edge."""
    history: str
    """How the author made the view."""
    _argument: arguments.ViewArgument

    def __init__(
        self,
        array: Any,
        layout: Layout | None = None,
        masked: bool = False,
        *,
        shape: Sequence[Index] | None = None,
        strides: Sequence[Index] | None = None,
        name: str | None = None,
    ) -> None:
        _set(self, construct.fields(array, layout, bool(masked), shape, strides, name))

    @classmethod
    def from_fields(cls, *values: Any) -> LayoutTensor:
        """The view with these values of `FIELDS`."""
        made = object.__new__(cls)
        _set(made, values)
        return made

    def replaced(self, **changes: Any) -> LayoutTensor:
        """The same view with other values of some fields."""
        return type(self).from_fields(*(changes.get(name, getattr(self, name)) for name in self.FIELDS))

    def named(self, name: str) -> LayoutTensor:
        """The same view as messages call it by a variable that holds it; itself if it has a name."""
        return self.replaced(history=History(name)) if isinstance(self.history, Unnamed) else self

    @classmethod
    def stack_allocation(
        cls,
        dtype: Any,
        layout: Layout,
        *,
        address_space: AddressSpace = AddressSpace.GENERIC,
        masked: bool = False,
    ) -> LayoutTensor:
        """A view of new memory, undefined until written: on the host an array, in a kernel shared or a thread's own memory.

        Raises ViewError (view-allocation) where the space cannot be allocated, (view-unknown-layout) for an UNKNOWN number.
        """
        return cls.from_fields(*construct.allocated(dtype, layout, address_space, masked))

    # What it is

    @property
    def dtype(self) -> Any:
        """The type of its numbers: a NumPy dtype on the host, a `gl` dtype in a kernel."""
        return self.storage.dtype

    @property
    def address_space(self) -> AddressSpace:
        """Which memory it is in."""
        return self.storage.space

    @property
    def rank(self) -> int:
        """Number of axes; a nested mode is one."""
        return self.layout.rank()

    @property
    def shape(self) -> tuple[Any, ...]:
        """Elements along each axis as the layout has them: ints, or UNKNOWN."""
        return tuple(static_extent(axis) for axis in axes_of(self))

    @property
    def dim(self) -> Axes:
        """`dim(axis)`: elements along an axis at run time; of a part at the edge of a masked view those that are there."""
        return Axes(self, access.dim)

    @property
    def element_size(self) -> int:
        """Numbers in one element."""
        return product(self.element_layout.shape)

    def size(self) -> Index:
        """Number of elements, those outside of a masked view included."""
        total: Index = 1
        for axis in axes_of(self):
            total = times(total, extent(axis))
        return total

    @property
    def bound_check_required(self) -> bool:
        """Whether elements of the layout may lie beyond the edge of a masked view."""
        return self.limits is not None

    @property
    def type(self) -> ViewType:
        """What is known of it at compile time, as `tile_type` gives it for tiles."""
        return ViewType(self.dtype, self.layout, self.element_layout, self.address_space, self.masked)

    @property
    def array(self) -> Any:
        """The array that a host view was made over."""
        return getattr(self.storage, "array")  # noqa: B009 only memory of the host has one

    @property
    def ptr(self) -> Any:
        """The address of its first element: an int on the host, a pointer in a kernel."""
        return self.storage.address(self.offset)

    # Elements

    def __getitem__(self, key: Any) -> Any:
        """`t[i, j]`: an element, by one index per mode of the flattened layout.

        A number, or a vector in logical order; a number also takes `[0]`. Raises ViewIndexError (view-index-count,
        view-index, view-index-kind).
        """
        return access.get(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        """`t[i, j] = v`: set an element; one number sets a whole vector."""
        access.put(self, key, value)

    @property
    def load(self) -> Brackets[Callable[..., Any]]:
        """`t.load[4](i, j)`: numbers one after another from element (i, j) on, along the axis whose stride is 1.

        Raises ViewError: view-load-nested, view-load-vectors, view-load-contiguous, view-vector-aligned.
        """
        return Brackets(self, access.loader)

    def store(self, *arguments: Any) -> None:
        """`t.store(i, j, v)`: write the numbers of v one after another from element (i, j) on, as `load` reads them."""
        access.store(self, arguments)

    # Parts

    @property
    def tile(self) -> Brackets[Callable[..., LayoutTensor]]:
        """`t.tile[32, 32](i, j)`: the tile of this size at tile coordinates (i, j).

        Of a nested layout a tile must end where one of its own tiles does; its layout then is a plain one. At the edge of a
        masked view it is smaller (see `dim`). Raises ViewError: view-tile-divides, view-tile-nested, view-tile-index.
        """
        return Brackets(self, partition.tiles)

    @property
    def tile_type(self) -> Brackets[Callable[[], ViewType]]:
        """`t.tile_type[32, 32]()`: what is known at compile time of tiles of this size."""
        return Brackets(self, complete(partition.tile_type))

    @property
    def tiled_iterator(self) -> Brackets[Callable[..., LayoutTensorIter]]:
        """`t.tiled_iterator(bm, bn, axis=1)(i, j)`: an iterator over tiles along an axis, from tile (i, j) on."""
        return Brackets(self, tiled)

    @property
    def slice(self) -> Brackets[Callable[[], LayoutTensor]]:
        """`t.slice[0:4, :]()`: part of each axis; an index takes one element of an axis, which is no axis then.

        Raises ViewError (view-slice) for bounds that are not known or lie outside.
        """
        return Brackets(self, complete(reshaping.sliced))

    @property
    def split(self) -> Brackets[Callable[..., Any]]:
        """`t.split[n, axis]()`: n equal parts along an axis (0 if none is given) as a tuple; `t.split[n, axis](i)`: the i-th.

        Raises ViewError (view-split) where n does not divide the axis.
        """
        return Brackets(self, partition.splits)

    @property
    def vectorize(self) -> Brackets[Callable[[], LayoutTensor]]:
        """`t.vectorize[1, 4]()`: the same numbers as elements that are vectors, 4 neighbours along axis 1.

        Raises ViewError: view-vector-divides, view-vector-aligned, view-vector-stride.
        """
        return Brackets(self, complete(partition.vectorized))

    @property
    def distribute(self) -> Brackets[Callable[[Index], LayoutTensor]]:
        """`t.distribute[threads](id)`: the elements of one thread, when a layout of threads is repeated over the view.

        `threads` maps coordinates to thread numbers; thread (i, j) gets elements (i, j), (i + rows, j) and so on. With
        `axis` only that axis is divided, by the thread's coordinate along it, and threads that differ in others share
        elements. `swizzle` permutes where in memory the threads' elements lie, counted in elements. Raises ViewError:
        view-threads, view-threads-rank, view-swizzle.
        """
        return Brackets(self, partition.distributor)

    # Other shapes

    @property
    def reshape(self) -> Brackets[Callable[[], LayoutTensor]]:
        """`t.reshape[4, 8]()`: the elements in logical row-major order in another shape, or under a `Layout` of its own.

        A layout counts from the view's first element. Raises ViewError: view-reshape, view-reshape-count.
        """
        return Brackets(self, complete(reshaping.reshaped))

    def transpose(self, *order: int) -> LayoutTensor:
        """The view with its axes in another order, by default reversed. Raises ViewError (view-transpose-order)."""
        return reshaping.transposed(self, order)

    # Whole views

    def fill(self, value: Any) -> LayoutTensor:
        """Set every number; gives the view itself."""
        transfers.fill(self, value)
        return self

    def arange(self, start: Any = 0, step: Any = 1) -> LayoutTensor:
        """Set numbers to start, start + step, ... in logical row-major order, whatever the strides; gives the view itself."""
        transfers.arange(self, start, step)
        return self

    def copy_from(self, source: LayoutTensor) -> None:
        """Copy all numbers of a view in any memory, layout or vector width, in logical row-major order.

        Of masked views only what is inside is touched. Raises ViewError (view-copy-count) for views of other counts.
        """
        transfers.copy(self, source)

    def copy_from_async(self, source: LayoutTensor) -> None:
        """Begin to copy a global view to this shared one; `async_copy_wait_all()` waits. In kernels only.

        Elements outside of a masked source become zero. Raises ViewError: view-async-host, view-async-width.
        """
        transfers.copy_async(self, source)

    # Arithmetic: element by element, in new memory (in a kernel the thread's own)

    def __add__(self, other: Any) -> LayoutTensor:
        return elementwise.combined(self, other, "add")

    def __radd__(self, other: Any) -> LayoutTensor:
        return elementwise.combined(self, other, "add", swapped=True)

    def __sub__(self, other: Any) -> LayoutTensor:
        return elementwise.combined(self, other, "sub")

    def __rsub__(self, other: Any) -> LayoutTensor:
        return elementwise.combined(self, other, "sub", swapped=True)

    def __mul__(self, other: Any) -> LayoutTensor:
        return elementwise.combined(self, other, "mul")

    def __rmul__(self, other: Any) -> LayoutTensor:
        return elementwise.combined(self, other, "mul", swapped=True)

    def __truediv__(self, other: Any) -> LayoutTensor:
        return elementwise.combined(self, other, "truediv")

    def __rtruediv__(self, other: Any) -> LayoutTensor:
        return elementwise.combined(self, other, "truediv", swapped=True)

    def __iadd__(self, other: Any) -> Self:
        elementwise.update(self, other, "add")
        return self

    def __isub__(self, other: Any) -> Self:
        elementwise.update(self, other, "sub")
        return self

    def __imul__(self, other: Any) -> Self:
        elementwise.update(self, other, "mul")
        return self

    def __itruediv__(self, other: Any) -> Self:
        elementwise.update(self, other, "truediv")
        return self

    # As an argument of a kernel

    def __weft_view__(self) -> arguments.ViewArgument:
        """What a launch needs of a host view; the same object each time, since launches have no time to make another."""
        try:
            return self._argument
        except AttributeError:
            object.__setattr__(self, "_argument", arguments.describe(self))
            return self._argument

    @classmethod
    def from_argument(cls, storage: Storage, key: Any, numbers: Sequence[Index], name: str) -> LayoutTensor:
        """The view inside of a kernel, of an argument with this `ViewArgument.key`; `numbers` are its run-time numbers."""
        return cls.from_fields(*arguments.fields(storage, key, numbers, name))

    # As a Python object

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The numbers in the view's logical shape; a NumPy view of the same memory where strides allow."""
        from weft.views import host_arrays

        return host_arrays.numbers(self, dtype, copy)

    def __repr__(self) -> str:
        return printing.describe(self)

    def __str__(self) -> str:
        return printing.text(self)

    def __iter__(self) -> NoReturn:
        raise fail(errors.ITERATION, view=self.history)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_fields, tuple(getattr(self, name) for name in self.FIELDS)

    def __copy__(self) -> Self:
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise fail(errors.IMMUTABLE, field=name, what="LayoutTensor")


def _set(view: LayoutTensor, values: Sequence[Any]) -> None:
    for name, value in zip(LayoutTensor.FIELDS, values, strict=True):
        object.__setattr__(view, name, value)
