"""Storages of views in kernels: global memory, shared memory and thread-private (local) memory.

Views (`weft.views`) compute the offsets of elements; a storage emits loads and stores for them, each a single operation with a
table of offsets. Storages are aggregates, so views are carried through loops and branches: a pointer is a run-time leaf, while
the array of shared or local memory is fixed at compile time.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from weft.errors import LayoutError, fail
from weft.errors import cluster as cluster_errors
from weft.errors import thread as errors
from weft.ir.types import DType, LocalType, SharedArrayType, int1, int32, int64
from weft.language import arith
from weft.language.aggregate import aggregate
from weft.language.broadcast import constant
from weft.language.casts import check_dtype
from weft.language.context import active, current
from weft.language.logic import where
from weft.language.places import (
    accesses,
    advance,
    check_index,
    index32,
    is_pointer,
    loaded,
    one_register,
    predicate,
    separate,
    stored,
    strides_of,
)  # fmt: skip
from weft.language.promote import convert, place
from weft.language.runtime_value import RuntimeValue, name_of, represents, wrap
from weft.language.shared_memory import shared_memory_descriptor
from weft.language.tensor import apply, apply_many, tensor
from weft.language.vector import SIMD, concat
from weft.layout import MBarrierLayout, PaddedSharedLayout
from weft.layout.nested.layouts import Layout
from weft.layout.nested.linear import from_linear
from weft.ops import async_copy, cluster, memory, regs, shared, thread
from weft.ops.memory import Atomic
from weft.views import LayoutTensor
from weft.views.modes import axes_of, element_axes
from weft.views.storage import ALLOCATORS, KERNEL_RANK, OPENERS, AddressSpace, Index, Opened, Places, Storage

ARRAYS = ("__array_interface__", "__cuda_array_interface__", "__dlpack__")
"""An array of any library has one of these attributes."""
COPY_BYTES = 4
"""The narrowest `cp.async`, which copies 4, 8 or 16 bytes (PTX ISA, cp.async)."""
LOCAL_BYTES = 512 * 1024
"""The limit of local memory per thread: 512 KB on every compute capability (CUDA C++ Programming Guide, technical
specifications per compute capability)."""


class memory_array(RuntimeValue):
    """A linear array that threads index. `place` is the name of its memory in messages."""

    __slots__ = ()
    place = ""

    @property
    def memory(self) -> SharedArrayType | LocalType:
        """The IR type."""
        type = self.handle.type
        assert isinstance(type, (SharedArrayType, LocalType))
        return type

    def describe(self) -> str:
        """What it is, for messages: `256 float32 of shared memory`."""
        return f"{self.memory.count} {self.memory.element.name} of {self.place}"


@represents(SharedArrayType)
class shared_array(memory_array):
    """An array in shared memory."""

    __slots__ = ()
    place = "shared memory"


@represents(LocalType)
class local_array(memory_array):
    """A thread-private array."""

    __slots__ = ()
    place = "local memory"


class KernelStorage:
    """The common base of a kernel's storages."""

    space = AddressSpace.GENERIC

    @property
    def dtype(self) -> DType:
        """The element type."""
        raise NotImplementedError

    def load(self, base: Index, places: Places, mask: Sequence[Any] | None) -> tensor:
        """The elements, in order of accesses; one of them as a scalar."""
        raise NotImplementedError

    def store(self, base: Index, places: Places, value: Any, mask: Sequence[Any] | None) -> None:
        """Write the elements, in order of accesses; a number or scalar to each of them. Raises thread-stored."""
        raise NotImplementedError

    def _store_each(self, base: Index, places: Places, data: tensor, mask: Sequence[Any] | None) -> None:
        """Store one access at a time, for operations that have no run-time strides."""
        for i, (start, one, on) in enumerate(separate(base, places, mask)):
            self.store(start, one, data[i * places.width : (i + 1) * places.width], on)

    def copy_async(
        self, base: Index, places: Places, source: Storage, source_base: Index, source_places: Places,
        mask: Sequence[Any] | None, active: Any = None,
    ) -> None:  # fmt: skip
        """Start an asynchronous copy from a source's accesses to these. Raises thread-copy unless from global to shared
        memory."""
        raise fail(errors.COPY, bytes=places.width * self.dtype.itemsize, source=source.space, target=self.space)

    def pointer_to(self, offset: Index) -> Any:
        """What `ptr` of a view is that begins at an element."""
        return array_pointer(self, offset)

    def peer(self, rank: Index) -> Storage:
        """The same memory of another block of the cluster. Raises cluster-view unless it is shared."""
        raise fail(cluster_errors.VIEW, space=self.space)

    def check(self, indices: Sequence[Index], sizes: Sequence[Index], history: str, where: Sequence[str]) -> None:
        """Assert `0 <= index < size` for each index; the simulator checks it, and so does a GPU under `debug`."""
        values = [_number(index) for index in indices]
        values += [check_index(size) for size in sizes if not isinstance(size, int)]
        table = tuple(size if isinstance(size, int) else -1 for size in sizes)
        apply_many(thread.bounds, values, sizes=table, view=str(history), where=tuple(where))

    def wide(self, index: Index) -> Index:
        """The index in 64 bits."""
        return index if isinstance(index, int) else convert(check_index(index), int64)

    def clamp(self, index: Index, low: int, high: Index) -> Index:
        """The index clamped to two bounds."""
        return arith.minimum(arith.maximum(index, low), high)

    def width(self, value: Any) -> int:
        """The number of elements of a stored value."""
        return len(value) if isinstance(value, SIMD) else 1

    def outer_product(self, total: tensor, left: tensor, right: tensor) -> tensor:
        """`total` plus the outer product of `left` and `right`, in row-major order."""
        columns = self.width(right)
        of_left = tuple(i // columns for i in range(self.width(total)))
        of_right = tuple(i % columns for i in range(self.width(total)))
        acc, a, b = (stored(x, self.dtype, self.width(x)) for x in (total, left, right))
        if not self.dtype.is_floating():
            return total + apply(regs.gather, a, table=of_left) * apply(regs.gather, b, table=of_right)
        tables = {"a_table": _each(len(a)), "b_table": _each(len(b))}
        return apply(regs.dot, a, b, acc, rows=of_left, columns=of_right, **tables)

    def address(self, offset: Index) -> tensor:
        """The pointer to an element. Raises thread-address: only global memory has pointers."""
        raise fail(errors.ADDRESS, space=self.space)

    def atomic(self, kind: Atomic, offset: Index, value: Any, mask: Any, order: str, scope: str) -> tensor:
        """A per-thread atomic on one element; returns the old value. Raises thread-atomic-view."""
        raise fail(errors.ATOMIC_VIEW, what=f"gl.atomic_{kind}", got=f"an element in {self.space}", one="t.tile[1](i)")


@aggregate
class array_pointer:
    """A pointer into shared or local memory: `p[i]`, `p + i`, and views over it. It has no bounds but those of the memory."""

    storage: Any
    offset: Any

    def __init__(self, storage: Any, offset: Any) -> None:
        self.storage = storage
        self.offset = offset

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.storage.dtype

    def __add__(self, offset: Any) -> array_pointer:
        return array_pointer(self.storage, self.offset + offset)

    def unsafe_offset(self, offset: Any) -> array_pointer:
        """`p + i`."""
        return self + offset

    def write(self, value: Any) -> None:
        """`p[0] = value`."""
        self[0] = value

    def __getitem__(self, index: Any) -> Any:
        return self.storage.load(self.offset + index, _ONE, None)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.storage.store(self.offset + index, _ONE, value, None)


_ONE = Places((0,))


@aggregate
class GlobalStorage(KernelStorage):
    """Global memory at a pointer."""

    pointer: tensor
    space = AddressSpace.GLOBAL

    def __init__(self, pointer: tensor) -> None:
        self.pointer = pointer

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.pointer.dtype.element_ty

    def load(self, base: Index, places: Places, mask: Sequence[Any] | None) -> tensor:
        """The elements, in order of accesses; one of them as a scalar."""
        each = accesses(places, self.dtype, base)
        made = apply(
            memory.load_regs, advance(self.pointer, base), predicate(mask, each.times), None, *strides_of(places),
            offsets=(each.const, *each.factors), registers=each.registers, vec=each.vec, count=places.count,
        )  # fmt: skip
        return loaded(made)

    def store(self, base: Index, places: Places, value: Any, mask: Sequence[Any] | None) -> None:
        """Write the elements, in order of accesses; a number or scalar to each of them. Raises thread-stored."""
        data = stored(value, self.dtype, places.count)
        each = accesses(places, self.dtype, base)
        operands = (advance(self.pointer, base), data, predicate(mask, each.times), *strides_of(places))
        tables = {"offsets": (each.const, *each.factors), "registers": each.registers, "vec": each.vec}
        apply_many(memory.store_regs, operands, **tables)

    def pointer_to(self, offset: Index) -> tensor:
        """The pointer to an element."""
        return self.address(offset)

    def address(self, offset: Index) -> tensor:
        """The pointer to an element."""
        return self.pointer if isinstance(offset, int) and offset == 0 else arith.add(self.pointer, offset)

    def atomic(self, kind: Atomic, offset: Index, value: Any, mask: Any, order: str, scope: str) -> tensor:
        """A per-thread atomic on one element; returns the old value."""
        on = None if mask is None else predicate((mask,))
        operands = (self.address(offset), place(value, self.dtype, None), on)
        registers = [None if x is None else one_register(x) for x in operands]
        return loaded(apply(memory.atomic_regs, *registers, kind=kind, order=order, scope=scope))


@aggregate
class SharedStorage(KernelStorage):
    """A shared array. Only the author's barriers order accesses of different threads."""

    memory: shared_array
    space = AddressSpace.SHARED

    def __init__(self, memory: shared_array) -> None:
        self.memory = memory

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.memory.memory.element

    def load(self, base: Index, places: Places, mask: Sequence[Any] | None) -> tensor:
        """The elements, in order of accesses; one of them as a scalar."""
        if places.strides:
            return concat([self.load(*one) for one in separate(base, places, mask)])
        each = accesses(places, self.dtype, base)
        operands = (self.memory, _from(base), predicate(mask, each.times))
        return loaded(apply(thread.load_shared, *operands, offsets=each.const, vec=each.vec))

    def store(self, base: Index, places: Places, value: Any, mask: Sequence[Any] | None) -> None:
        """Write the elements, in order of accesses; a number or scalar to each of them. Raises thread-stored."""
        data = stored(value, self.dtype, places.count)
        if places.strides:
            self._store_each(base, places, data, mask)
            return
        each = accesses(places, self.dtype, base)
        operands = (self.memory, _from(base), data, predicate(mask, each.times))
        apply_many(thread.store_shared, operands, offsets=each.const, vec=each.vec)

    def copy_async(
        self, base: Index, places: Places, source: Storage, source_base: Index, source_places: Places,
        mask: Sequence[Any] | None, active: Any = None,
    ) -> None:  # fmt: skip
        """Start an asynchronous copy from accesses of global memory to these; zeros are stored where the mask is false, and
        nothing where `active` is."""
        width = places.width * self.dtype.itemsize
        if not isinstance(source, GlobalStorage) or source.dtype != self.dtype or width % COPY_BYTES:
            raise fail(errors.COPY, bytes=width, source=_elements(source), target=_elements(self))
        if places.strides:
            one_each = zip(separate(base, places, mask), separate(source_base, source_places, None), strict=True)
            for (start, place, on), (source_start, source_place, _) in one_each:
                self.copy_async(start, place, source, source_start, source_place, on, active)
            return
        to, of = accesses(places, self.dtype, base), accesses(source_places, self.dtype, source_base)
        pointer, strides = advance(source.pointer, source_base), strides_of(source_places)
        apply_many(
            async_copy.copy, (self.memory, _from(base), pointer, predicate(mask, to.times), active, None, None, *strides),
            offsets=(of.const, *of.factors), places=(0,) * len(to.const), added=to.const, vec=to.vec,
        )  # fmt: skip

    def atomic(self, kind: Atomic, offset: Index, value: Any, mask: Any, order: str, scope: str) -> tensor:
        """A per-thread atomic on one element; returns the old value. Raises thread-atomic-shared."""
        if self.dtype.bits not in (32, 64):
            raise fail(errors.ATOMIC_SHARED, what=f"gl.atomic_{kind}", dtype=self.dtype.name)
        on = None if mask is None else predicate((mask,))
        return apply(thread.atomic_shared, self.memory, index32(offset), place(value, self.dtype, None), on, kind=kind)

    def peer(self, rank: Index) -> Storage:
        """The same array in the shared memory of another block of the cluster. Raises cluster-missing."""
        if current().num_ctas == 1:
            raise fail(cluster_errors.MISSING, what="peer()")
        return PeerStorage(self.memory, index32(rank))


@aggregate
class PeerStorage(KernelStorage):
    """A shared array of the block of rank `rank`. Only the author's barriers order accesses of different threads."""

    memory: shared_array
    rank: tensor
    space = AddressSpace.SHARED

    def __init__(self, memory: shared_array, rank: tensor) -> None:
        self.memory = memory
        self.rank = rank

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.memory.memory.element

    def load(self, base: Index, places: Places, mask: Sequence[Any] | None) -> tensor:
        """The elements, in order of accesses; one of them as a scalar."""
        return concat(
            [
                # Element 0 stands for one that is masked off.
                loaded(
                    apply(cluster.load_at, self.memory, *self._place(at if on is None else where(on, index32(at), 0)))
                )
                for at, on in _elements_of(base, places, mask)
            ]
        )

    def store(self, base: Index, places: Places, value: Any, mask: Sequence[Any] | None) -> None:
        """Write the elements, in order of accesses; a number or scalar to each of them. Raises thread-stored."""
        data = stored(value, self.dtype, places.count)
        for number, (at, on) in enumerate(_elements_of(base, places, mask)):
            element = one_register(apply(regs.extract, data, index=number))
            apply_many(cluster.store_at, (self.memory, *self._place(at), element, None if on is None else _scalar(on)))

    def atomic(self, kind: Atomic, offset: Index, value: Any, mask: Any, order: str, scope: str) -> tensor:
        """A per-thread atomic on one element; returns the old value. Raises thread-atomic-shared."""
        if self.dtype.bits not in (32, 64):
            raise fail(errors.ATOMIC_SHARED, what=f"gl.atomic_{kind}", dtype=self.dtype.name)
        on = None if mask is None else one_register(_scalar(mask))
        element = one_register(place(value, self.dtype, None))
        return loaded(apply(cluster.atomic_at, self.memory, *self._place(offset), element, on, kind=kind))

    def _place(self, index: Index) -> tuple[tensor, tensor]:
        """The index and the rank of one access."""
        return one_register(index32(index)), one_register(self.rank)


def _elements_of(base: Index, places: Places, mask: Sequence[Any] | None) -> Iterator[tuple[Index, Any]]:
    """The index of each element, in order of accesses, and the predicate of its access."""
    for start, one, on in separate(base, places, mask):
        for number in range(one.width):
            yield start + (one.const[0] + number), None if on is None or on[0] is True else on[0]


def _scalar(predicate: Any) -> tensor:
    """A predicate as a run-time value."""
    return constant(int(predicate), int1) if isinstance(predicate, bool) else predicate


@aggregate
class LocalStorage(KernelStorage):
    """A thread-private array. If all indices are compile-time constants it is held in registers."""

    memory: local_array
    space = AddressSpace.LOCAL

    def __init__(self, memory: local_array) -> None:
        self.memory = memory

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.memory.memory.element

    def load(self, base: Index, places: Places, mask: Sequence[Any] | None) -> tensor:
        """The elements, in order of accesses; one of them as a scalar."""
        on = None if isinstance(base, int) else predicate(mask)
        if places.strides or (on is not None and not on.is_scalar):
            return concat([self.load(*one) for one in separate(base, places, mask)])
        if on is not None:
            # A masked-off element has no index in bounds. Its result is unused, so any register serves.
            base = where(on, base, 0)
        offsets = accesses(places, self.dtype, base, self.dtype.itemsize).const
        return loaded(apply(thread.load_local, self.memory, self._index(base), offsets=offsets))

    def store(self, base: Index, places: Places, value: Any, mask: Sequence[Any] | None) -> None:
        """Write the elements, in order of accesses; a number or scalar to each of them. Raises thread-stored."""
        data = stored(value, self.dtype, places.count)
        if places.strides:
            self._store_each(base, places, data, mask)
            return
        each = accesses(places, self.dtype, base, self.dtype.itemsize)
        operands = (self.memory, self._index(base), data, predicate(mask, each.times))
        apply_many(thread.store_local, operands, offsets=each.const)

    def _index(self, base: Index) -> tensor | None:
        """The run-time index of an access; None if its offsets are compile-time constants. Warns of a run-time index."""
        if isinstance(base, int):
            return None
        index, loc = index32(base), current().loc
        if (self.memory.handle, str(loc)) in current().advised:
            return index
        current().advised.add((self.memory.handle, str(loc)))
        advice = fail(errors.LOCAL_INDEX, loc=loc, name=name_of(self.memory))
        assert isinstance(advice, Warning)
        file, line = ("<kernel>", 1) if loc is None else (loc.file, loc.line)
        warnings.warn_explicit(advice, None, file, line)
        return index


def open_memory(value: Any) -> Opened | None:
    """The storage of a view over a pointer or a shared memory buffer; None for anything else.

    Raises CompilationError (thread-opened, thread-shared-part, thread-host-view for an array of the host) and LayoutError
    (thread-shared-layout).
    """
    if isinstance(value, KernelStorage):
        return Opened(value)
    if isinstance(value, array_pointer):
        return Opened(value.storage, value.offset)
    if is_pointer(value):
        return Opened(GlobalStorage(value))
    if isinstance(value, shared_memory_descriptor):
        layout = _layout_of(value)
        memory = wrap(current().builder.emit(thread.shared_of, value.handle))
        return Opened(SharedStorage(memory), 0, layout, (0, layout.size()))
    if isinstance(value, RuntimeValue):
        raise fail(errors.OPENED, got=name_of(value))
    if active() and any(hasattr(value, protocol) for protocol in ARRAYS):
        raise fail(errors.HOST_VIEW, path=f"this {type(value).__name__}")
    return None


def allocate_memory(dtype: Any, count: int, space: AddressSpace) -> Any:
    """Allocate shared or local memory in the kernel under construction; None outside of a kernel and for other memory.

    Raises CompilationError (language-dtype) for anything but a `gl` element type.
    """
    if not active() or space is AddressSpace.GLOBAL:
        return None
    check_dtype(dtype)
    if count < 1:
        raise fail(errors.NO_ELEMENTS, count=count)
    if space is not AddressSpace.SHARED and count * dtype.itemsize > LOCAL_BYTES:
        size = count * dtype.itemsize
        raise fail(errors.LOCAL_BYTES, count=count, dtype=dtype.name, bytes=size, limit=LOCAL_BYTES)
    context = current()
    context.allocations += 1
    emit, tag = context.builder.emit, context.allocations
    if space is AddressSpace.SHARED:
        return SharedStorage(wrap(emit(shared.array, dtype=dtype, count=count, tag=tag)))
    return LocalStorage(wrap(emit(thread.alloc_local, dtype=dtype, count=count, tag=tag)))


def opened(view: LayoutTensor) -> tuple[list[RuntimeValue], tuple[tuple[int, ...], ...]]:
    """The memory and the numbers of a view, and the description of its axes, as `debug.breakpoint` takes them."""
    storage: Any = view.storage
    axes, elements = axes_of(view), element_axes(view)
    numbers: list[Index] = [view.offset]
    numbers += [number for modes in axes for mode in modes for number in (mode.size, mode.stride)]
    numbers += [-1 if limit is None else limit for limit in view.limits or (None,) * len(axes)]
    memory: RuntimeValue = storage.pointer if isinstance(storage, GlobalStorage) else storage.memory
    table = [
        (len(modes), *(int(number) for mode in element for number in (mode.size, mode.stride)))
        for modes, element in zip(axes, elements, strict=True)
    ]
    return [memory, *(constant(n, int64) if isinstance(n, int) else n for n in numbers)], tuple(table)


def _each(count: int) -> tuple[tuple[int, ...], ...]:
    return tuple((i,) for i in range(count))


def _number(index: Index) -> tensor:
    return constant(index, int32) if isinstance(index, int) else check_index(index)


def _from(base: Index) -> tensor:
    """The run-time base of accesses; a constant one is part of their offsets."""
    return index32(0 if isinstance(base, int) else base)


def _elements(storage: Storage) -> str:
    return f"{storage.dtype.name} in {storage.space!r}"


def _layout_of(handle: shared_memory_descriptor) -> Layout:
    """The layout of a buffer as a nested layout."""
    t = handle.memory
    if isinstance(t.layout, MBarrierLayout) or len(t.shape) != t.layout.rank or t.shape != t.alloc_shape:
        raise fail(errors.SHARED_PART, got=name_of(handle))
    linear = t.layout.to_linear(t.shape)
    if isinstance(t.layout, PaddedSharedLayout) or linear.in_size("block") > 1:
        raise fail(errors.SHARED_LAYOUT, got=name_of(handle), layout=t.layout)
    try:
        return from_linear(linear.invert())
    except LayoutError as error:
        raise fail(errors.SHARED_LAYOUT, got=name_of(handle), layout=t.layout) from error


OPENERS.enter(KERNEL_RANK, open_memory)
ALLOCATORS.enter(KERNEL_RANK, allocate_memory)
