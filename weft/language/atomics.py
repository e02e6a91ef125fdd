"""Atomic accesses to global memory, and, through views, read-modify-write on shared memory; and polling of global memory."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeGuard, cast, get_args

from weft.errors import fail
from weft.errors import language as errors
from weft.errors import thread as thread_errors
from weft.ir.types import DType, int64
from weft.language.access_order import check_scope, element_inside
from weft.language.advice import one_element
from weft.language.broadcast import fit
from weft.language.casts import check_atomic
from weft.language.context import by_threads
from weft.language.logic import bit_and
from weft.language.marks import builtin
from weft.language.memory import check_pointer, load, pointer_form, store
from weft.language.places import loaded, one_register
from weft.language.promote import place, place_mask
from weft.language.runtime_value import describe
from weft.language.scalars import is_integer_scalar
from weft.language.storages import GlobalStorage, KernelStorage, array_pointer
from weft.language.tensor import apply, tensor
from weft.language.view_tiles import Addresses
from weft.ops import memory
from weft.ops.memory import Atomic, LoadOrder, MemoryOrder, MemoryScope, PollOrder, StoreOrder
from weft.views import LayoutTensor

Address: TypeAlias = tensor | LayoutTensor | array_pointer
"""The address of an atomic operation: a scalar or a tile of pointers, a one-element view, or its `ptr`."""


@builtin
def atomic_add(
    pointer: Address, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Atomically add `val` to memory at `pointer` where `mask` is true, once per element; returns the old values.

    `val` is broadcast to the addresses and converted to their element type: float16, bfloat16, float32, float64 or an integer
    of 32 or 64 bits. `sem` is relaxed, acquire, release or acq_rel (the default); `scope` is cta, cluster, gpu (the default) or
    sys. Old values of masked-off elements are undefined. On Hopper and later, relaxed additions of float16, bfloat16 and
    float32 at neighbouring addresses, whose old values are not used, are instructions of up to 16 bytes (PTX ISA, red).
    Raises language-atomic-type, language-atomic-order, and the errors of `load`.

    A one-element view, as of `t.tile[1, 1](i, j)`, stands for its address, in global or in shared memory, as does a pointer
    such as `t.ptr_at_offset(gl.Coord(i, j))`. Every thread then
    performs an atomic of its own, as at a scalar address in a kernel that is launched with `block=`. Raises
    thread-atomic-view, thread-atomic-shared.
    """
    return _modify("add", pointer, val, mask, sem, scope)


@builtin
def atomic_max(
    pointer: Address, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Atomic maximum of memory and `val`; otherwise as `atomic_add`. 32- and 64-bit types."""
    return _modify("max", pointer, val, mask, sem, scope)


@builtin
def atomic_min(
    pointer: Address, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Atomic minimum of memory and `val`; otherwise as `atomic_add`. 32- and 64-bit types."""
    return _modify("min", pointer, val, mask, sem, scope)


@builtin
def atomic_and(
    pointer: Address, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Atomic bitwise AND with `val`; otherwise as `atomic_add`. 32- and 64-bit integers."""
    return _modify("and", pointer, val, mask, sem, scope)


@builtin
def atomic_or(pointer: Address, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None) -> tensor:
    """Atomic bitwise OR with `val`; otherwise as `atomic_add`. 32- and 64-bit integers."""
    return _modify("or", pointer, val, mask, sem, scope)


@builtin
def atomic_xor(
    pointer: Address, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Atomic bitwise XOR with `val`; otherwise as `atomic_add`. 32- and 64-bit integers."""
    return _modify("xor", pointer, val, mask, sem, scope)


@builtin
def atomic_xchg(
    pointer: Address, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Atomic exchange of memory and `val`; otherwise as `atomic_add`. 32- and 64-bit types."""
    return _modify("xchg", pointer, val, mask, sem, scope)


@builtin
def atomic_cas(pointer: Address, cmp: Any, val: Any, sem: str | None = None, scope: str | None = None) -> tensor:
    """Atomic compare-and-swap: store `val` where memory equals `cmp` bit by bit. Returns the old values. 16-, 32- and 64-bit
    types."""
    if _is_view(pointer):
        storage, offset, inside = _element("atomic_cas", pointer)
        address, each = storage.address(offset), True
    else:
        check_pointer("atomic_cas", pointer)
        address, each, inside = cast("tensor", pointer), by_threads(), None
    element: DType = address.dtype.element_ty
    if element.bits not in (16, 32, 64):
        raise fail(errors.ATOMIC_TYPE, kind="cas", dtype=element.name, allowed="types of 16, 32 or 64 bits")
    form = pointer_form("atomic_cas", address, cmp, val)
    order, reach = _order(sem), _scope(scope)
    values = (place(cmp, element, form), place(val, element, form))
    if form is None and each:
        own = [None if x is None else one_register(x) for x in (address, *values, inside)]
        return loaded(apply(memory.atomic_cas_regs, *own, order=order, scope=reach))
    return apply(memory.atomic_cas, fit(address, form), *values, order=order, scope=reach)


@builtin
def atomic_load(pointer: Addresses, mask: Any = None, sem: str | None = None, scope: str | None = None) -> tensor:
    """Load memory that other programs write concurrently: `load` with `sem` acquire (the default) or relaxed.

    `scope` is cta, cluster, gpu (the default) or sys. Masked-off elements are undefined. Raises language-atomic-order, and the
    errors of `load`.
    """
    order = _known("sem", sem or "acquire", _strong(LoadOrder))
    return load(pointer, mask, sem=order, scope=_scope(scope))


@builtin
def atomic_store(
    pointer: Addresses, value: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> None:
    """Store to memory that other programs read concurrently: `store` with `sem` release (the default) or relaxed.

    `scope` is cta, cluster, gpu (the default) or sys. Raises language-atomic-order, and the errors of `store`.
    """
    order = _known("sem", sem or "release", _strong(StoreOrder))
    store(pointer, value, mask, sem=order, scope=_scope(scope))


@builtin
def atomic_poll(
    pointer: Address, expected_value: Any, sem: str | None = None, scope: str | None = None, timeout_ns: Any = None
) -> tensor:
    """Wait until memory at `pointer` equals `expected_value`; returns True, or False where `timeout_ns` has passed before.

    `pointer` is the address of an integer of 16, 32 or 64 bits, or a tile of such addresses. One thread per element spins on
    relaxed loads, and the other threads of the program wait for it: that is faster than a loop around `gl.load(sem="acquire")`.
    When it has seen the value, one fence acquires what was published with it. `sem` is acquire (the default) or relaxed,
    `scope` cta, cluster, gpu (the default) or sys. `timeout_ns`, an integer known at compile time or at run time, is measured
    by the global timer; with 0 memory is read once. Where it has passed, the result is False, and nothing is acquired.

    In a kernel that is launched with `block=`, each thread polls a scalar address for itself. A one-element view in global
    memory stands for its address; beyond its bounds the result is False. Wait only for programs that are certain to run: those
    that took a lower ticket from an atomic counter (a program with a lower `program_id` may start later).

    A debug build stops a poll without a timeout after 2 seconds, with a message. PTX ISA, "Release and Acquire Patterns".
    Raises CompilationError: language-pointer-needed, language-atomic-type, language-poll-order, language-poll-timeout, and for
    views thread-atomic-view.
    """
    inside: tensor | None = None
    if each := _is_view(pointer):
        storage, offset, inside = _element("atomic_poll", pointer)
        pointer = storage.address(offset)
    check_pointer("atomic_poll", pointer)
    address = cast("tensor", pointer)
    element: DType = address.dtype.element_ty
    if not element.is_int() or element.bits not in (16, 32, 64):
        raise fail(errors.ATOMIC_TYPE, kind="poll", dtype=element.name, allowed="integers of 16, 32 or 64 bits")
    form = pointer_form("atomic_poll", address, expected_value)
    orders = get_args(PollOrder)
    if (sem or "acquire") not in orders:
        raise fail(errors.POLL_ORDER, got=repr(sem), known=" or ".join(map(repr, orders)))
    attrs = {"order": sem or "acquire", "scope": _scope(scope)}
    timeout = _timeout(timeout_ns)
    expected = place(expected_value, element, form)
    if form is None and (each or by_threads()):
        one, value = one_register(address), one_register(expected)
        return loaded(apply(memory.poll_regs, one, value, inside, timeout, **attrs))
    return apply(memory.poll, fit(address, form), expected, timeout, **attrs)


def _timeout(nanoseconds: Any) -> tensor | None:
    """A timeout as an int64 scalar; None for none. Raises language-poll-timeout."""
    if nanoseconds is None:
        return None
    known = isinstance(nanoseconds, int) and not isinstance(nanoseconds, bool)
    if (known and 0 <= nanoseconds < 1 << 63) or (isinstance(nanoseconds, tensor) and is_integer_scalar(nanoseconds)):
        return place(nanoseconds, int64, None)
    raise fail(errors.POLL_TIMEOUT, got=repr(nanoseconds) if known else describe(nanoseconds))


def _modify(kind: Atomic, pointer: Any, val: Any, mask: Any, sem: str | None, scope: str | None) -> tensor:
    what = f"atomic_{kind}"
    order, reach = _order(sem), _scope(scope)
    if _is_view(pointer):
        check_atomic(kind, pointer.dtype)
        storage, offset, inside = _element(what, pointer)
        on = place_mask(what, mask, None)
        return storage.atomic(kind, offset, val, _both(on, inside), order, reach)
    check_pointer(what, pointer)
    element: DType = pointer.dtype.element_ty
    check_atomic(kind, element)
    form = pointer_form(what, pointer, val, mask)
    if form is None and by_threads():
        return GlobalStorage(pointer).atomic(kind, 0, val, place_mask(what, mask, None), order, reach)
    operands = (fit(pointer, form), place(val, element, form), place_mask(what, mask, form))
    return apply(memory.atomic, *operands, kind=kind, order=order, scope=reach)


def _is_view(x: object) -> TypeGuard[LayoutTensor | array_pointer]:
    return isinstance(getattr(x, "storage", None), KernelStorage)


def _element(what: str, view: LayoutTensor | array_pointer) -> tuple[KernelStorage, Any, tensor | None]:
    """Storage and offset of a one-element view or of a pointer into shared memory, and the predicate that it is in bounds.
    Raises thread-atomic-view for other views."""
    if isinstance(view, array_pointer):
        return view.storage, view.offset, None
    count, storage = view.size(), view.storage
    assert isinstance(storage, KernelStorage)
    if count != 1 or view.element_size != 1:
        many = "a run-time number of" if isinstance(count, tensor) else str(count * view.element_size)
        got, one = f"{view.history}, a view of {many} elements", one_element(view.history, *"ijklmnpq"[: view.rank])
        raise fail(thread_errors.ATOMIC_VIEW, what=f"gl.{what}", got=got, one=one)
    return storage, view.offset, element_inside(view)


def _both(one: tensor | None, other: tensor | None) -> tensor | None:
    if one is None or other is None:
        return one if other is None else other
    return bit_and(one, other)


def _strong(orders: Any) -> tuple[str, ...]:
    """The orders but for none at all."""
    return tuple(order for order in get_args(orders) if order)


def _order(sem: str | None) -> str:
    return _known("sem", sem or "acq_rel", get_args(MemoryOrder))


def _scope(scope: str | None) -> str:
    return check_scope("an atomic", _known("scope", scope or "gpu", get_args(MemoryScope)))


def _known(field: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise fail(errors.ATOMIC_ORDER, field=field, got=repr(value), known=", ".join(known))
    return value
