"""Construction of views over existing or newly allocated memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.errors import fail
from weft.errors import nested as nested_errors
from weft.errors import views as errors
from weft.layout.nested.composed import OFFSET_BITS
from weft.layout.nested.int_tuple import UNKNOWN, show, times
from weft.layout.nested.layouts import Layout
from weft.views.brackets import UNFINISHED, is_unfinished
from weft.views.data import ViewData
from weft.views.history import root
from weft.views.modes import SCALAR
from weft.views.storage import AddressSpace, Index, Opened, Storage, allocate, open_object

Fields = tuple[Any, ...]


def fields(
    array: Any,
    layout: Any,
    masked: bool,
    shape: Sequence[Index] | None,
    strides: Sequence[Index] | None,
    name: str | None,
) -> Fields:
    """The fields of a view over an object. Raises the errors of `LayoutTensor`."""
    opened = open_object(array)
    if layout is None:
        if opened.layout is None:
            raise fail(errors.LAYOUT_NEEDED, what=f"a {type(array).__name__}")
        layout = opened.layout
    check_layout(layout)
    _require_static(layout)
    sizes = _numbers("shape", layout, layout.flat_shape, shape, opened)
    steps = _numbers("strides", layout, layout.flat_stride, strides, opened, sizes)
    _check_extent(layout, sizes, steps, opened)
    return (opened.storage, opened.offset, layout, SCALAR, sizes, steps, None, masked, root(name, "view"))


class Memory(NamedTuple):
    """Memory without a shape: from `offset`, with `end` elements if known."""

    storage: Storage
    offset: Index
    end: Index | None


def memory_of(value: Any) -> Memory:
    """The memory of an object or view, from its first element."""
    if isinstance(value, ViewData):
        return Memory(value.storage, value.offset, value.layout.cosize())
    opened = open_object(value)
    return Memory(opened.storage, opened.offset, None if opened.extent is None else opened.extent[1])


def over_memory(memory: Memory, offset: Index, layout: Any, name: str | None) -> Fields:
    """The fields of a view of shapeless memory at an offset."""
    history = root(name, "memory")
    return (memory.storage, offset, layout, SCALAR, layout.flat_shape, layout.flat_stride, None, False, history)


def check_layout(layout: Any) -> None:
    """Raises ViewError (view-layout) unless the argument is a nested layout."""
    if not isinstance(layout, Layout):
        instead = "write weft.Layout.row_major(rows, columns), weft.Layout.col_major(...) or weft.Layout(shape, stride)"
        if is_unfinished(layout):
            raise fail(errors.LAYOUT, got=UNFINISHED, instead="write them: row_major[4, 4](), or row_major(4, 4)")
        raise fail(errors.LAYOUT, got=repr(layout), instead=instead)


def _require_static(layout: Layout) -> None:
    """Raises ViewError (view-unknown-layout) for a layout with run-time numbers instead of UNKNOWN."""
    if not all(isinstance(number, int) or number is UNKNOWN for number in (*layout.flat_shape, *layout.flat_stride)):
        shape = show(layout.flat_shape)
        instead = f"write UNKNOWN in their places, and pass them: LayoutTensor(pointer, layout, shape={shape})"
        raise fail(
            errors.UNKNOWN_LAYOUT, layout=layout, what="a view's layout is known at compile time", instead=instead
        )


def require_known(layout: Any) -> None:
    """Raises ViewError: view-layout, view-unknown-layout for a layout with UNKNOWN in it."""
    check_layout(layout)
    if not layout.all_dims_known:
        what = "new memory and tiles of memory need all of them"
        instead = "write a layout of known sizes and strides: of numbers, and of parameters annotated gl.constexpr"
        raise fail(errors.UNKNOWN_LAYOUT, layout=layout, what=what, instead=instead)


def _numbers(
    argument: str,
    layout: Layout,
    static: Sequence[Any],
    given: Sequence[Index] | None,
    opened: Opened,
    sizes: Sequence[Index] = (),
) -> tuple[Index, ...]:
    """The sizes or strides of a layout; UNKNOWN ones are taken from the arguments, or else from the array."""
    if given is not None:
        return _agreed(argument, layout, static, tuple(given))
    if all(number is not UNKNOWN for number in static):
        return tuple(static)
    own = opened.layout
    if own is not None and own.flat_rank == len(static) and own.rank() == layout.rank():
        source = own.flat_shape if argument == "shape" else own.flat_stride
        return tuple(number if known is UNKNOWN else known for known, number in zip(static, source, strict=True))
    if argument == "strides":
        compact = _compact(static, sizes)
        if compact is not None:
            return compact
    raise fail(
        errors.UNKNOWN_NUMBER,
        what="a size" if argument == "shape" else "a stride",
        layout=layout,
        source="the array, which has other modes," if own is not None else "a pointer",
        argument=argument,
    )


def _agreed(argument: str, layout: Layout, static: Sequence[Any], given: tuple[Index, ...]) -> tuple[Index, ...]:
    if len(given) != len(static):
        raise fail(
            errors.NUMBER_COUNT, argument=argument, given=given, count=len(given), layout=layout, modes=len(static)
        )
    for known, number in zip(static, given, strict=True):
        if known is not UNKNOWN and isinstance(number, int) and number != known:
            raise fail(errors.NUMBER_DIFFERS, argument=argument, given=given, number=number, layout=layout, known=known)
    return tuple(number if known is UNKNOWN else known for known, number in zip(static, given, strict=True))


def _compact(static: Sequence[Any], sizes: Sequence[Index]) -> tuple[Index, ...] | None:
    """Compact strides, row-major or column-major depending on which end has the static stride 1; None for neither."""
    order = list(range(len(static)))
    if _is_one(static[-1]):
        order.reverse()
    elif not _is_one(static[0]):
        return None
    strides: dict[int, Index] = {}
    stride: Index = 1
    for mode in order:
        strides[mode] = stride if static[mode] is UNKNOWN else static[mode]
        stride = times(strides[mode], sizes[mode])
    return tuple(strides[mode] for mode in range(len(static)))


def _is_one(stride: Any) -> bool:
    return isinstance(stride, int) and stride == 1


def _check_extent(layout: Layout, sizes: Sequence[Index], strides: Sequence[Index], opened: Opened) -> None:
    """Check that the view stays within its object, as far as this is known. Raises ViewError (view-extent).

    Raises LayoutError (strided-offsets) for offsets beyond `OFFSET_BITS` bits.
    """
    numbers = (*sizes, *strides)
    if not all(isinstance(number, int) for number in numbers) or 0 in sizes:
        return
    reach = [(size - 1) * stride for size, stride in zip(sizes, strides, strict=True)]
    low, high = sum(min(each, 0) for each in reach), sum(max(each, 0) for each in reach)
    if low < -(1 << OFFSET_BITS) or high >> OFFSET_BITS:
        raise fail(nested_errors.OFFSETS, layout=layout, low=low, high=high, bits=OFFSET_BITS)
    if opened.extent is None:
        return
    first, end = opened.extent
    if low < first or high >= end:
        raise fail(errors.EXTENT, layout=layout, low=low, high=high, first=first, last=end - 1)


def allocated(dtype: Any, layout: Any, space: AddressSpace, masked: bool) -> Fields:
    """The fields of a view of new memory."""
    require_known(layout)
    storage = allocate(dtype, layout.cosize(), space)
    history = root(None, f"{space.name.lower()} memory")
    return (storage, 0, layout, SCALAR, layout.flat_shape, layout.flat_stride, None, masked, history)
