"""Atomic read-modify-write on global memory."""

from __future__ import annotations

from typing import Any, get_args

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import DType
from weft.language.broadcast import fit
from weft.language.marks import builtin
from weft.language.memory import check_pointer, place_mask, pointer_form
from weft.language.promote import place
from weft.language.tensor import apply, tensor
from weft.ops import memory
from weft.ops.memory import Atomic, MemoryOrder, MemoryScope


@builtin
def atomic_add(pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None) -> tensor:
    """Add `val` to memory at `pointer` where `mask` holds, in one step and once per element; the old values.

    `val` is broadcast to the addresses and converted to their element type: float16, bfloat16, float32, float64 or an integer
    of 32 or 64 bits. `sem` is relaxed, acquire, release or acq_rel (the default), `scope` cta, gpu (the default) or sys.
    Old values of masked-off elements are undefined. Raises language-atomic-type, language-atomic-order, and as `load`.
    """
    return _modify("add", pointer, val, mask, sem, scope)


@builtin
def atomic_max(pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None) -> tensor:
    """Replace memory by the larger of it and `val`; otherwise as `atomic_add`. 32- and 64-bit types."""
    return _modify("max", pointer, val, mask, sem, scope)


@builtin
def atomic_min(pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None) -> tensor:
    """Replace memory by the smaller of it and `val`; otherwise as `atomic_add`. 32- and 64-bit types."""
    return _modify("min", pointer, val, mask, sem, scope)


@builtin
def atomic_and(pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None) -> tensor:
    """Bitwise and with `val`; otherwise as `atomic_add`. 32- and 64-bit integers."""
    return _modify("and", pointer, val, mask, sem, scope)


@builtin
def atomic_or(pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None) -> tensor:
    """Bitwise or with `val`; otherwise as `atomic_add`. 32- and 64-bit integers."""
    return _modify("or", pointer, val, mask, sem, scope)


@builtin
def atomic_xor(pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None) -> tensor:
    """Bitwise exclusive or with `val`; otherwise as `atomic_add`. 32- and 64-bit integers."""
    return _modify("xor", pointer, val, mask, sem, scope)


@builtin
def atomic_xchg(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Replace memory by `val`; otherwise as `atomic_add`. 32- and 64-bit types."""
    return _modify("xchg", pointer, val, mask, sem, scope)


@builtin
def atomic_cas(pointer: tensor, cmp: Any, val: Any, sem: str | None = None, scope: str | None = None) -> tensor:
    """Where memory equals `cmp` bit by bit, replace it by `val`, in one step; the old values. 16-, 32- and 64-bit types."""
    check_pointer("atomic_cas", pointer)
    element: DType = pointer.dtype.element_ty
    if element.bits not in (16, 32, 64):
        raise fail(errors.ATOMIC_TYPE, kind="cas", dtype=element.name, allowed="types of 16, 32 or 64 bits")
    form = pointer_form("atomic_cas", pointer, cmp, val)
    order, reach = _order(sem), _scope(scope)
    values = (place(cmp, element, form), place(val, element, form))
    return apply(memory.atomic_cas, fit(pointer, form), *values, order=order, scope=reach)


def _modify(kind: Atomic, pointer: tensor, val: Any, mask: Any, sem: str | None, scope: str | None) -> tensor:
    what = f"atomic_{kind}"
    check_pointer(what, pointer)
    element: DType = pointer.dtype.element_ty
    _check_type(kind, element)
    form = pointer_form(what, pointer, val, mask)
    order, reach = _order(sem), _scope(scope)
    operands = (fit(pointer, form), place(val, element, form), place_mask(what, mask, form))
    return apply(memory.atomic, *operands, kind=kind, order=order, scope=reach)


def _check_type(kind: Atomic, element: DType) -> None:
    wide = element.bits in (32, 64)
    if kind == "add":
        allowed, fits = "floats of 16 bits or more and integers of 32 or 64 bits", wide or element.bits == 16
        fits = fits and (wide or element.is_floating())
    elif kind in ("max", "min", "xchg"):
        allowed, fits = "types of 32 or 64 bits", wide
    else:
        allowed, fits = "integers of 32 or 64 bits", wide and element.is_int()
    if not fits:
        raise fail(errors.ATOMIC_TYPE, kind=kind, dtype=element.name, allowed=allowed)


def _order(sem: str | None) -> str:
    return _known("sem", sem or "acq_rel", get_args(MemoryOrder))


def _scope(scope: str | None) -> str:
    return _known("scope", scope or "gpu", get_args(MemoryScope))


def _known(field: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise fail(errors.ATOMIC_ORDER, field=field, got=repr(value), known=", ".join(known))
    return value
