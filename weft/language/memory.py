"""Global memory: loads and stores through pointers, masked."""

from __future__ import annotations

from typing import Any, get_args

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import Pointer, int1
from weft.language.broadcast import Form, common_form, constant, fit
from weft.language.marks import builtin
from weft.language.promote import is_number, place
from weft.language.runtime_value import describe, name_of
from weft.language.tensor import apply, apply_many, tensor
from weft.ops import memory
from weft.ops.memory import Eviction

LOAD_CACHE = ("", ".ca", ".cg", ".cs", ".cv")
STORE_CACHE = ("", ".wb", ".cg", ".cs", ".wt")


@builtin
def load(
    pointer: tensor, mask: Any = None, other: Any = None, cache_modifier: str = "", eviction_policy: str = "",
    volatile: bool = False,
) -> tensor:  # fmt: skip
    """The elements at `pointer`, a scalar or a tile of addresses; the result has its shape and layout.

    Where `mask` (int1, broadcast to the tile) is false nothing is read, and the result is `other`, converted to the element
    type, or undefined without it. `cache_modifier`: `.ca .cg .cs .cv`; `eviction_policy`: `evict_first evict_last`.

    Raises CompilationError: language-pointer-needed, language-other-without-mask, language-mask-type, language-tile-at-scalar,
    language-cache-modifier, language-eviction-policy.
    """
    check_pointer("load", pointer)
    if other is not None and mask is None:
        raise fail(errors.OTHER_WITHOUT_MASK)
    _check_policies("load", cache_modifier, LOAD_CACHE, eviction_policy)
    form = pointer_form("load", pointer, mask, other)
    kept = place_mask("load", mask, form)
    rest = None if other is None or kept is None else place(other, pointer.dtype.element_ty, form)
    attrs = {"cache": cache_modifier or "", "eviction": eviction_policy or "", "volatile": bool(volatile)}
    return apply(memory.load, fit(pointer, form), kept, rest, **attrs)


@builtin
def store(pointer: tensor, value: Any, mask: Any = None, cache_modifier: str = "", eviction_policy: str = "") -> None:
    """Write `value`, broadcast to the addresses and converted to their element type, where `mask` (int1) holds.

    Elements that several threads hold are written once. Where other threads of the program load what was stored, write
    `gl.barrier()` between: none is inserted for global memory. `cache_modifier`: `.wb .cg .cs .wt`; `eviction_policy` and
    errors as for `load`.
    """
    check_pointer("store", pointer)
    _check_policies("store", cache_modifier, STORE_CACHE, eviction_policy)
    form = pointer_form("store", pointer, mask, value)
    data = place(value, pointer.dtype.element_ty, form)
    kept = place_mask("store", mask, form)
    attrs = {"cache": cache_modifier or "", "eviction": eviction_policy or ""}
    apply_many(memory.store, (fit(pointer, form), data, kept), **attrs)


def check_pointer(what: str, pointer: object) -> None:
    """Refuse what is no address (language-pointer-needed)."""
    if not isinstance(pointer, tensor) or not isinstance(pointer.element, Pointer):
        raise fail(errors.POINTER_NEEDED, what=what, got=describe(pointer))


def pointer_form(what: str, pointer: tensor, *others: Any) -> Form | None:
    """The common form of an address and what goes with it; at a scalar address all else is scalar (language-tile-at-scalar)."""
    for x in others:
        if pointer.is_scalar and isinstance(x, tensor) and not x.is_scalar:
            raise fail(errors.TILE_AT_SCALAR, what=what, pointer=name_of(pointer), value=name_of(x))
    return common_form(what, (pointer, *others))


def place_mask(what: str, mask: Any, form: Form | None) -> tensor | None:
    """A mask as int1 in the form of the access; None, and True, ask for no mask."""
    if mask is None or mask is True:
        return None
    if isinstance(mask, tensor) and mask.element != int1:
        raise fail(errors.MASK_TYPE, what=what, got=name_of(mask))
    if is_number("a mask", mask):
        return constant(bool(mask), int1, form)
    return fit(mask, form)


def _check_policies(what: str, cache: Any, allowed: tuple[str, ...], eviction: Any) -> None:
    if (cache or "") not in allowed:
        raise fail(errors.CACHE_MODIFIER, what=what, got=repr(cache), known=", ".join(allowed[1:]))
    if (eviction or "") not in get_args(Eviction):
        raise fail(errors.EVICTION_POLICY, got=repr(eviction))
