"""`LayoutTensor`: a view of elements in any memory, addressed by a nested layout. `LayoutTensorIter`: its iterators.

The same class serves the host, where it views arrays of any library, and kernels, where run-time sizes and strides are scalars
of the kernel. A view is immutable, and its partitions are views of the same memory.

This module defines the classes and their public methods. The implementations are in the other modules of the package, by
subject; they know a view by its fields (`weft.views.data`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.int_tuple import times
from weft.layout.nested.layouts import Layout
from weft.views import access, arguments, construct, elementwise, iterators, partition, printing, reshaping, transfers
from weft.views.brackets import Axes, Brackets, Complete, Direct, Loading, Size
from weft.views.data import ViewData, set_fields
from weft.views.modes import axes_of, extent, shape_of
from weft.views.partition import ViewType
from weft.views.storage import AddressSpace, Index, Storage

if TYPE_CHECKING:
    from typing_extensions import Self


class LayoutTensor(ViewData):
    """A view of the elements of an array, a pointer or a shared buffer.

    `layout` maps indices to offsets, in elements from the array's first one; by default the view has the array's shape and
    strides. UNKNOWN numbers in it come from the array, or from `shape` and `strides` (one number per flattened mode). `masked`
    views may be partitioned by sizes that do not divide them: parts at the edge are smaller. `name` is the view's name in
    messages; in a kernel its default is the variable's name. Nothing is copied. Raises ViewError (view-open, view-layout,
    view-extent and others).

    Elements are numbers, or vectors after `vectorize`; every size and index counts elements.
    """

    __slots__ = ("_argument",)

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
        set_fields(self, self.FIELDS, construct.fields(array, layout, bool(masked), shape, strides, name))

    @classmethod
    def stack_allocation(
        cls,
        dtype: Any,
        layout: Layout,
        *,
        address_space: AddressSpace = AddressSpace.GENERIC,
        masked: bool = False,
    ) -> Self:
        """A view of new, uninitialised memory: on the host an array, in a kernel shared or thread-private memory.

        Raises ViewError: view-allocation if the address space cannot be allocated, view-unknown-layout for an UNKNOWN number.
        """
        return cls.from_fields(*construct.allocated(dtype, layout, address_space, masked))

    # Properties

    @property
    def ElementType(self) -> Any:  # noqa: N802 as in Mojo
        """The type of its numbers, to convert to: `t.ElementType(0)`, or in a kernel `total: t.ElementType = 0`."""
        return getattr(self.dtype, "type", self.dtype)

    @property
    def element_type(self) -> Any:
        """`ElementType` by its older name."""
        return self.ElementType

    @property
    def shape(self) -> tuple[Any, ...]:
        """Elements along each axis by the layout: ints or UNKNOWN. `t.shape[0]()` is `t.shape[0]`."""
        return tuple(Size(size) if isinstance(size, int) else size for size in shape_of(self))

    @property
    def dim(self) -> Axes:
        """`dim(axis)`: elements along an axis at run time; for a part at the edge of a masked view only the valid ones."""
        return Axes(self, access.dim)

    @property
    def flat_rank(self) -> int:
        """Number of modes of the flattened layout."""
        return self.layout.flat_rank

    def size(self) -> Index:
        """Number of elements, including out-of-bounds ones of a masked view."""
        total: Index = 1
        for axis in axes_of(self):
            total = times(total, extent(axis))
        return total

    def num_elements(self) -> Index:
        """Number of elements, as `size()`."""
        return self.size()

    @property
    def bound_check_required(self) -> bool:
        """Whether elements of the layout may be out of bounds (of a masked view)."""
        return self.limits is not None

    @property
    def type(self) -> ViewType:
        """The static properties, as `tile_type` returns them for tiles."""
        return ViewType(self.dtype, self.layout, self.element_layout, self.address_space, self.masked)

    @property
    def array(self) -> Any:
        """The array that a host view was made over."""
        return getattr(self.storage, "array")  # noqa: B009 only memory of the host has one

    @property
    def ptr(self) -> Any:
        """The address of its first element: an int on the host, a pointer in a kernel."""
        return self.storage.pointer_to(self.offset)

    def peer(self, rank: Index) -> Self:
        """The same view of the shared memory of the block of this rank (distributed shared memory), in a kernel launched with
        `block=` and `num_ctas=`.

        Its elements are loaded, stored and combined atomically one at a time. Barriers of the cluster are the author's; the
        compiler adds one before the first access, so that all blocks have started, and one at the end, so that none has left.
        Raises cluster-view, cluster-missing."""
        return self.replaced(storage=self.storage.peer(rank))

    # Elements

    def __getitem__(self, key: Any) -> Any:
        """`t[i, j]`: an element, by one index per mode of the flattened layout or one per axis, also as a `Coord`.

        A number, or a vector in logical order; a number also takes `[0]`. Raises ViewIndexError (view-index-count,
        view-index, view-index-kind).
        """
        return access.get(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        """`t[i, j] = v`: set an element; one number sets a whole vector."""
        access.put(self, key, value)

    @property
    def load(self) -> Loading[Callable[..., Any]]:
        """`t.load[4](i, j)`: consecutive numbers starting at element (i, j), along the mode with stride 1.

        Indices may be one `Index` or `Coord`; `t.load(gl.Coord(i, j))` is one number. The access must be aligned to its width;
        `t.load(width=4, load_alignment=4)(i, j)` is aligned to 4 bytes only, and splits into accesses of that size.
        Raises ViewError: view-load-vectors, view-load-contiguous, view-vector-aligned, view-alignment.
        """
        return Loading(self, access.loader)

    @property
    def aligned_load(self) -> Loading[Callable[..., Any]]:
        """`t.aligned_load[4](i, j)`: `load`, which is aligned unless `load_alignment` says otherwise."""
        return self.load

    @property
    def load_linear(self) -> Loading[Callable[..., Any]]:
        """`t.load_linear[4](gl.Index(i, j))`: `load`."""
        return self.load

    def load_scalar(self, *indices: Any) -> Any:
        """The number of an element, of a vector its first one: `t[i, j]` in code for views with and without vectors."""
        return access.load_scalar(self, *indices)

    @property
    def store(self) -> Direct[Callable[..., None]]:
        """`t.store(i, j, v)`: write the numbers of v consecutively starting at element (i, j), as `load` reads them.

        `t.store[4](i, j, v)` writes 4 numbers, all of them v if it is one. `t.store(width=4, store_alignment=4)(i, j, v)` is
        aligned to 4 bytes only.
        """
        return Direct(self, access.storer)

    @property
    def aligned_store(self) -> Direct[Callable[..., None]]:
        """`t.aligned_store[4](i, j, v)`: `store`, which is aligned unless `store_alignment` says otherwise."""
        return self.store

    @property
    def store_linear(self) -> Direct[Callable[..., None]]:
        """`t.store_linear(gl.Index(i, j), v)`: `store`."""
        return self.store

    def ptr_at_offset(self, *indices: Any) -> Any:
        """The pointer to the element at a `Coord` or at indices: an int on the host, a pointer in a kernel."""
        return access.pointer_at(self, indices)

    # Parts

    @property
    def tile(self) -> Brackets[Callable[..., LayoutTensor]]:
        """`t.tile[32, 32](i, j)`: the tile of this size at tile coordinates (i, j).

        In a nested layout a tile ends at a mode boundary or lies inside of a mode. At the edge of a view that the size does not
        divide, or of a masked one, a tile is smaller and masked (see `dim`). Raises ViewError: view-tile-nested,
        view-tile-index.
        """
        return Brackets(self, partition.tiles)

    @property
    def tile_with_offset(self) -> Brackets[Callable[..., tuple[LayoutTensor, tuple[Index, ...], Index]]]:
        """`t.tile_with_offset[32, 32](i, j)`: the tile, the element of the view where it begins, and the offset of its first
        number from the view's."""
        return Brackets(self, partition.tiles_with_offset)

    @property
    def tile_type(self) -> Complete[ViewType]:
        """`t.tile_type[32, 32]()`: the static properties of tiles of this size."""
        return Complete(self, partition.tile_type)

    @property
    def tiled_iterator(self) -> Brackets[Callable[..., LayoutTensorIter]]:
        """`t.tiled_iterator(bm, bn, axis=1)(i, j)`: an iterator over tiles along an axis, starting at tile (i, j)."""
        return Brackets(self, _tiled)

    @property
    def slice(self) -> Complete[LayoutTensor]:
        """`t.slice[0:4, :]()`: a part of each axis; an index selects one element of an axis and removes the axis.

        In parentheses `t.slice((0, 4), gl.All)`. Bounds may be run-time values, and the size of the part is one then. Raises
        ViewError (view-slice) for bounds out of range.
        """
        return Complete(self, reshaping.sliced)

    @property
    def split(self) -> Brackets[Callable[..., Any]]:
        """`t.split[n, axis]()`: n equal parts along an axis (default 0) as a tuple; `t.split[n, axis](i)`: the i-th part.

        `t.split(axis=0, split_alignment=1)(n, i)`: the i-th of n parts as even as whole multiples of the alignment allow, of
        which the last may be smaller or empty; n may be a run-time value. Raises ViewError (view-split) if n in brackets does
        not divide the axis.
        """
        return Brackets(self, partition.splits)

    @property
    def vectorize(self) -> Complete[LayoutTensor]:
        """`t.vectorize[1, 4]()`: the same numbers with vectors as elements, here 4 neighbours along axis 1.

        Raises ViewError: view-vector-divides, view-vector-aligned, view-vector-stride.
        """
        return Complete(self, partition.vectorized)

    @property
    def distribute(self) -> Brackets[Callable[[Index], LayoutTensor]]:
        """`t.distribute[threads](id)`: the elements of one thread when a thread layout is repeated over the view.

        `threads` maps coordinates to thread numbers; thread (i, j) gets elements (i, j), (i + rows, j) and so on. Along a
        nested axis, threads that are nested alike divide mode by mode. With `axis` only that axis is divided, by the thread's
        coordinate along it; threads that differ in other coordinates share elements. `swizzle` permutes the offsets of the
        threads' elements, counted in elements. Raises ViewError: view-threads, view-threads-rank, view-threads-masked,
        view-swizzle.
        """
        return Brackets(self, partition.distributor)

    @property
    def distribute_with_offset(
        self,
    ) -> Brackets[Callable[[Index], tuple[LayoutTensor, tuple[Index, ...], Index]]]:
        """`t.distribute_with_offset[threads](id)`: the fragment, the thread's coordinate in the thread layout (nested where it
        divides an axis mode by mode), and the offset of the fragment's first number from the view's."""
        return Brackets(self, partition.distributor_with_offset)

    # Other shapes

    @property
    def reshape(self) -> Complete[LayoutTensor]:
        """`t.reshape[4, 8]()`: the elements, in logical row-major order, in another shape; `t.reshape(layout)`: in a layout.

        A layout is relative to the view's first element. Raises ViewError: view-reshape, view-reshape-count.
        """
        return Complete(self, reshaping.reshaped)

    def coalesce(self) -> LayoutTensor:
        """The elements in logical row-major order along one axis, `t.reshape[t.size()]()`: a nested one if they are not
        evenly spaced. Raises ViewError: view-unknown-size, view-reshape-masked."""
        return reshaping.flattened(self)

    def flatten(self) -> LayoutTensor:
        """As `coalesce`."""
        return reshaping.flattened(self)

    def transpose(self, *order: int) -> LayoutTensor:
        """The view with its axes in another order, by default reversed. Raises ViewError (view-transpose-order)."""
        return reshaping.transposed(self, order)

    def to_layout_tensor(self) -> LayoutTensor:
        """The view itself: `TileTensor` and `LayoutTensor` are one class."""
        return self

    def __call__(self) -> LayoutTensor:
        """The view itself, so that `t.vectorize(1, 4)()` is `t.vectorize[1, 4]()`."""
        return self

    # Whole views

    def fill(self, value: Any) -> LayoutTensor:
        """Set every number. Returns the view itself."""
        transfers.fill(self, value)
        return self

    def arange(self, start: Any = 0, step: Any = 1) -> LayoutTensor:
        """Set numbers to start, start + step, ... in logical row-major order, whatever the strides. Returns the view itself."""
        transfers.arange(self, start, step)
        return self

    def copy_from(self, source: LayoutTensor) -> None:
        """Copy all numbers of a view in any memory, layout or vector width, in logical row-major order.

        Of masked views only valid elements are accessed. Raises ViewError (view-copy-count) if the numbers of elements differ.
        """
        transfers.copy(self, source)

    def copy_from_async(self, source: LayoutTensor) -> None:
        """Issue an asynchronous copy of a global view to this shared one; `async_copy_wait_all()` waits. In kernels only.

        Out-of-bounds elements of a masked source become zero. Raises ViewError: view-async-host, view-async-width.
        """
        transfers.copy_async(self, source)

    # Elementwise arithmetic, in new memory (in a kernel thread-private)

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

    def __floordiv__(self, other: Any) -> LayoutTensor:
        return elementwise.combined(self, other, "floordiv")

    def __rfloordiv__(self, other: Any) -> LayoutTensor:
        return elementwise.combined(self, other, "floordiv", swapped=True)

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

    def __ifloordiv__(self, other: Any) -> Self:
        elementwise.update(self, other, "floordiv")
        return self

    # Functions of each number in its place

    def min(self, other: Any) -> LayoutTensor:
        """The smaller of both numbers at each place, in place; NaNs are ignored. Returns the view itself."""
        elementwise.update(self, other, "min")
        return self

    def max(self, other: Any) -> LayoutTensor:
        """The larger of both numbers at each place, in place; NaNs are ignored. Returns the view itself."""
        elementwise.update(self, other, "max")
        return self

    def abs(self) -> LayoutTensor:
        """Absolute values in place. Returns the view itself."""
        elementwise.change(self, "abs")
        return self

    def recip(self) -> LayoutTensor:
        """Reciprocals in place. Returns the view itself."""
        elementwise.update_swapped(self, 1, "truediv")
        return self

    def exp(self, scale: Any = 1) -> LayoutTensor:
        """The exponential of each number, times `scale`, in place. Returns the view itself."""
        elementwise.change(self, "exp", scale)
        return self

    # As an argument of a kernel

    def __weft_view__(self) -> arguments.ViewArgument:
        """The launch argument of a host view. It is cached, so that a launch does not construct it again."""
        try:
            return self._argument
        except AttributeError:
            object.__setattr__(self, "_argument", arguments.describe(self))
            return self._argument

    @classmethod
    def from_argument(cls, storage: Storage, key: Any, numbers: Sequence[Index], name: str) -> LayoutTensor:
        """The view inside a kernel for an argument with this `ViewArgument.key`; `numbers` are its run-time numbers."""
        return cls.from_fields(*arguments.fields(storage, key, numbers, name))

    # As a Python object

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The numbers in the view's logical shape; a NumPy view of the same memory if the strides allow it."""
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


class LayoutTensorIter(iterators.TileIterator[LayoutTensor]):
    """A position in a sequence of tiles: `it[()]` (or `it.get()`) is the current tile, `it += 1` and `it.next(k)` advance.

    Over an array, a pointer, or a view taken as plain memory, tiles of `layout` start at intervals of `stride` elements (by
    default the size of a tile), beginning at element `offset`; `bound` is the number of elements covered (by default all). A
    `circular` iterator wraps around at the end. An iterator is an immutable value: `it += 1` rebinds the name, and `for` cannot
    iterate over it. `LayoutTensor.tiled_iterator` makes one over the tiles of a view.

    Raises ViewError: view-iterator-bound if there is no whole tile, view-layout, view-open.
    """

    __slots__ = ()

    def __init__(
        self,
        array: Any,
        layout: Layout,
        bound: Index | None = None,
        *,
        stride: int | None = None,
        offset: Index = 0,
        circular: bool = False,
        name: str | None = None,
    ) -> None:
        fields = iterators.over_memory(LayoutTensor, array, layout, bound, stride, offset, circular, name)
        set_fields(self, self.FIELDS, fields)


def _tiled(view: LayoutTensor, *sizes: Any, axis: Any = 0) -> Callable[..., LayoutTensorIter]:
    """`tiled_iterator` with its sizes given."""
    start = iterators.tiled(view, sizes, axis)
    return lambda *coordinates: LayoutTensorIter.from_fields(*start(*coordinates))
