"""Global memory: loads and stores through pointers, masked."""

from __future__ import annotations

from typing import Any, get_args

from weft.errors import fail
from weft.errors import language as errors
from weft.errors import thread as thread_errors
from weft.errors import views as view_errors
from weft.ir.types import Pointer, int1
from weft.language.access_order import access_order, element_address, is_element
from weft.language.advice import address_instead
from weft.language.broadcast import AnyForm, Form, VectorForm, common_form, constant, fit
from weft.language.context import by_threads
from weft.language.marks import builtin
from weft.language.promote import is_number, place
from weft.language.runtime_value import describe, name_of
from weft.language.tensor import apply, apply_many, tensor
from weft.language.view_tiles import Addresses, addresses, both, check_stored
from weft.layout import DistributedLayout
from weft.ops import memory, regs
from weft.ops.memory import Eviction, LoadOrder, StoreOrder
from weft.views import LayoutTensor

LOAD_CACHE = ("", ".ca", ".cg", ".cs", ".cv")
STORE_CACHE = ("", ".wb", ".cg", ".cs", ".wt")


@builtin
def load(
    pointer: Addresses, mask: Any = None, other: Any = None, cache_modifier: str = "", eviction_policy: str = "",
    volatile: bool = False, *, layout: DistributedLayout | None = None, sem: str | None = None, scope: str | None = None,
) -> tensor:  # fmt: skip
    """The elements at `pointer`, a scalar or a tile of addresses; the result has its shape and layout.

    Where `mask` (int1, broadcast to the tile) is false nothing is read, and the result is `other`, converted to the element
    type, or undefined without it. `cache_modifier`: `.ca .cg .cs .cv`; `eviction_policy`: `evict_first evict_last`.

    `sem="acquire"` reads what other programs write at the same time, and orders all that follows behind what the program had
    done that stored the value with `sem="release"`; `sem="relaxed"` reads it and orders nothing, as `volatile=True` does (which
    PTX defines as relaxed, with the scope sys). `scope` says who those others are: cta, cluster, gpu (the default) or sys. Such
    loads are not widened, merged, moved or dropped, and each element is loaded by one thread for all that hold it.

    A view in global memory, as in `gl.load(t.tile[128, 64](i, j))`, is loaded as a tile of its shape in `layout`, or if none
    is given in the one with the widest accesses. Elements beyond the edge of a masked view are `other`, by default 0. With
    `sem` a view of one element stands for its address.

    Raises CompilationError: language-pointer-needed, language-other-without-mask, language-mask-type, language-tile-at-scalar,
    language-cache-modifier, language-eviction-policy, language-access-order,
    language-access-order-with; with views bridge-sizes, bridge-vectors, bridge-space, and with `layout` for anything else
    bridge-layout-of-addresses.
    """
    ordered = access_order("load", sem, scope, get_args(LoadOrder), cache_modifier, volatile)
    if ordered["order"] and is_element(pointer):
        pointer, inside = element_address(pointer)
        mask = both(inside, mask)
        other = _beyond(inside, mask, other)
    elif isinstance(pointer, LayoutTensor):
        pointer, inside = addresses("gl.load", pointer, layout)
        mask = both(inside, mask)
        other = _beyond(inside, mask, other)
    elif layout is not None:
        raise fail(view_errors.BRIDGE_LAYOUT_OF_ADDRESSES, layout=layout, got=describe(pointer))
    check_pointer("load", pointer)
    if other is not None and mask is None:
        raise fail(errors.OTHER_WITHOUT_MASK)
    _check_policies("load", cache_modifier, LOAD_CACHE, eviction_policy)
    form = pointer_form("load", pointer, mask, other)
    kept = place_mask("load", mask, form)
    rest = None if other is None or kept is None else place(other, pointer.dtype.element_ty, form)
    attrs = {"cache": cache_modifier or "", "eviction": eviction_policy or "", "volatile": bool(volatile), **ordered}
    if form is None and by_threads():
        other = None if rest is None else fit(rest, VectorForm(1))
        read = apply(
            memory.load_regs, pointer, kept, other, offsets=((0,),), registers=((0,),), vec=1, count=1, **attrs
        )
        return apply(regs.extract, read, index=0)
    return apply(memory.load, fit(pointer, form), kept, rest, **attrs)


@builtin
def store(
    pointer: Addresses, value: Any, mask: Any = None, cache_modifier: str = "", eviction_policy: str = "", *,
    sem: str | None = None, scope: str | None = None,
) -> None:  # fmt: skip
    """Write `value`, broadcast to the addresses and converted to their element type, where `mask` (int1) holds.

    Elements that several threads hold are written once; a scalar is written by each thread in a kernel that is launched with
    `block=`. Where other threads of the program load what was stored, write `gl.barrier()` between: none is inserted for
    global memory. `cache_modifier`: `.wb .cg .cs .wt`; `eviction_policy` and errors as for `load`.

    `sem="release"` publishes with the value all that the program did before: who loads the value with `sem="acquire"` comes
    after that. `sem="relaxed"` writes what other programs read at the same time, and publishes nothing else. `scope` as for
    `load`. Such stores are not widened or moved.

    To a view in global memory goes a tile of its shape, or one value for all elements; nothing is written beyond the edge of a
    masked view. With `sem` a view of one element stands for its address. Raises bridge-shapes besides.
    """
    ordered = access_order("store", sem, scope, get_args(StoreOrder), cache_modifier)
    if ordered["order"] and is_element(pointer):
        pointer, inside = element_address(pointer)
        mask = both(inside, mask)
    elif isinstance(pointer, LayoutTensor):
        pointer, inside = addresses("gl.store", pointer, check_stored(pointer, value))
        mask = both(inside, mask)
    check_pointer("store", pointer)
    _check_policies("store", cache_modifier, STORE_CACHE, eviction_policy)
    form = pointer_form("store", pointer, mask, value)
    data = place(value, pointer.dtype.element_ty, form)
    kept = place_mask("store", mask, form)
    attrs = {"cache": cache_modifier or "", "eviction": eviction_policy or "", **ordered}
    if form is None and by_threads():
        operands = (pointer, fit(data, VectorForm(1)), kept)
        apply_many(memory.store_regs, operands, offsets=((0,),), registers=((0,),), vec=1, **attrs)
    else:
        apply_many(memory.store, (fit(pointer, form), data, kept), **attrs)


def _beyond(inside: tensor | None, mask: Any, other: Any) -> Any:
    """What the elements of a view that are not read become: beyond its edge zero, where the author says nothing."""
    if mask is None or mask is True:
        return None
    return 0 if other is None and inside is not None else other


def check_pointer(what: str, pointer: object) -> None:
    """Refuse what is no address (language-pointer-needed)."""
    if not isinstance(pointer, tensor) or not isinstance(pointer.element, Pointer):
        raise fail(errors.POINTER_NEEDED, what=what, got=describe(pointer), instead=address_instead(what, pointer))


def pointer_form(what: str, pointer: tensor, *others: Any) -> Form | None:
    """The common form of an address and what goes with it; at a scalar address all else is scalar (language-tile-at-scalar).

    Raises thread-vector-address for several addresses of one thread."""
    for x in others:
        if pointer.is_scalar and isinstance(x, tensor) and not x.is_scalar:
            raise fail(errors.TILE_AT_SCALAR, what=what, pointer=name_of(pointer), value=name_of(x))
    form = common_form(what, (pointer, *others))
    if isinstance(form, VectorForm):
        raise fail(thread_errors.VECTOR_ADDRESS, what=what, pointer=name_of(pointer))
    return form


def place_mask(what: str, mask: Any, form: AnyForm) -> tensor | None:
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
