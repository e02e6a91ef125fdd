"""Masked loads from and stores to global memory, through pointers or views."""

from __future__ import annotations

from typing import Any, get_args

from weft.errors import fail
from weft.errors import language as errors
from weft.errors import thread as thread_errors
from weft.errors import views as view_errors
from weft.ir.types import Pointer
from weft.language.access_order import access_order, element_address, is_element
from weft.language.advice import address_instead
from weft.language.broadcast import TileForm, VectorForm, common_form, fit
from weft.language.context import by_threads
from weft.language.marks import builtin
from weft.language.policies import AnyPolicy, Part, check_eviction, check_one, one_way, policy_attrs
from weft.language.promote import place, place_mask
from weft.language.runtime_value import describe, name_of
from weft.language.tensor import apply, apply_many, tensor
from weft.language.view_tiles import Addresses, addresses, both, check_stored
from weft.layout import DistributedLayout
from weft.ops import memory, regs
from weft.ops.memory import LoadOrder, StoreOrder
from weft.views import LayoutTensor

LOAD_CACHE = ("", ".ca", ".cg", ".cs", ".cv")
STORE_CACHE = ("", ".wb", ".cg", ".cs", ".wt")


@builtin
def load(
    pointer: Addresses, mask: Any = None, other: Any = None, cache_modifier: str = "", eviction_policy: str = "",
    volatile: bool = False, *, layout: DistributedLayout | None = None, sem: str | None = None, scope: str | None = None,
    cache_policy: AnyPolicy | None = None,
) -> tensor:  # fmt: skip
    """Load the elements at `pointer`, a scalar or a tile of addresses; the result has its shape and layout.

    Where `mask` (int1, broadcast to the tile) is false, no memory is read; the element is `other`, converted to the element
    type, or undefined if `other` is not given. `cache_modifier`: `.ca .cg .cs .cv`; `eviction_policy` (in L1):
    `evict_first evict_last`; `cache_policy` is a `CachePolicy`, with eviction priorities in L2, too.

    `sem="acquire"` synchronizes with the program that stored the value with `sem="release"`: its earlier accesses are visible
    to all later accesses of this program. `sem="relaxed"` reads a value that other programs write concurrently, without
    ordering; so does `volatile=True`, which PTX defines as relaxed with scope sys. `scope` is cta, cluster, gpu (the default)
    or sys. Ordered loads are never widened, merged, moved or eliminated, and one thread loads an element for all threads that
    hold it.

    A view in global memory, as in `gl.load(t.tile[128, 64](i, j))`, is loaded as a tile of its shape in `layout`; without
    `layout`, in the one with the widest accesses. Out-of-bounds elements of a masked view are `other`, by default 0. With
    `sem`, a one-element view stands for its address.

    Raises CompilationError: language-pointer-needed, language-other-without-mask, language-mask-type, language-tile-at-scalar,
    language-cache-modifier, language-eviction-policy, cuda-cache-and-eviction, language-cache-policy-needed, language-cache-
    policy-part, language-cache-policy-twice, language-access-order, language-access-order-with; with views bridge-sizes,
    bridge-vectors, bridge-space, and with `layout` for anything else bridge-layout-of-addresses.
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
    parts: tuple[Part, ...] = ("l2_prefetch_size",) if volatile else ("l1", "l2", "l2_prefetch_size")
    modifiers = LOAD_CACHE if not ordered["order"] else ()
    hints = _hints("load", cache_modifier, LOAD_CACHE, eviction_policy) | policy_attrs(
        "gl.load", cache_policy, parts, modifiers
    )
    one_way("gl.load", cache_policy, cache_modifier, eviction_policy)
    form = pointer_form("load", pointer, mask, other)
    kept = place_mask("load", mask, form)
    rest = None if other is None or kept is None else place(other, pointer.dtype.element_ty, form)
    attrs = {**hints, "volatile": bool(volatile), **ordered}
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
    sem: str | None = None, scope: str | None = None, cache_policy: AnyPolicy | None = None,
) -> None:  # fmt: skip
    """Store `value`, broadcast to the addresses and converted to their element type, where `mask` (int1) is true.

    An element that several threads hold is stored once. A scalar is stored by every thread in a kernel launched with `block=`.
    If other threads of the program load a stored element, a `gl.barrier()` is required in between: the compiler inserts none
    for global memory. `cache_modifier`: `.wb .cg .cs .wt`; `eviction_policy`, `cache_policy` and errors as for `load`.

    `sem="release"` makes all earlier accesses of the program visible to a program that loads the value with `sem="acquire"`.
    `sem="relaxed"` writes a value that other programs read concurrently, without ordering. `scope` as for `load`. Ordered
    stores are never widened or moved.

    A view in global memory takes a tile of its shape, or one value for all elements. Out-of-bounds elements of a masked view
    are not written. With `sem`, a one-element view stands for its address. Also raises bridge-shapes.
    """
    ordered = access_order("store", sem, scope, get_args(StoreOrder), cache_modifier)
    if ordered["order"] and is_element(pointer):
        pointer, inside = element_address(pointer)
        mask = both(inside, mask)
    elif isinstance(pointer, LayoutTensor):
        pointer, inside = addresses("gl.store", pointer, check_stored(pointer, value))
        mask = both(inside, mask)
    check_pointer("store", pointer)
    modifiers = STORE_CACHE if not ordered["order"] else ()
    hints = _hints("store", cache_modifier, STORE_CACHE, eviction_policy) | policy_attrs(
        "gl.store", cache_policy, ("l1", "l2"), modifiers
    )
    one_way("gl.store", cache_policy, cache_modifier, eviction_policy)
    form = pointer_form("store", pointer, mask, value)
    data = place(value, pointer.dtype.element_ty, form)
    kept = place_mask("store", mask, form)
    attrs = {**hints, **ordered}
    if form is None and by_threads():
        operands = (pointer, fit(data, VectorForm(1)), kept)
        apply_many(memory.store_regs, operands, offsets=((0,),), registers=((0,),), vec=1, **attrs)
    else:
        apply_many(memory.store, (fit(pointer, form), data, kept), **attrs)


def _beyond(inside: tensor | None, mask: Any, other: Any) -> Any:
    """The value of elements that are not loaded: out-of-bounds elements of a view are zero by default."""
    if mask is None or mask is True:
        return None
    return 0 if other is None and inside is not None else other


def check_pointer(what: str, pointer: object) -> None:
    """Reject anything but an address (language-pointer-needed)."""
    if not isinstance(pointer, tensor) or not isinstance(pointer.element, Pointer):
        raise fail(errors.POINTER_NEEDED, what=what, got=describe(pointer), instead=address_instead(what, pointer))


def pointer_form(what: str, pointer: tensor, *others: Any) -> TileForm | None:
    """The common form of an address and the other operands, all of which are scalar at a scalar address.

    Raises language-tile-at-scalar, and thread-vector-address for a vector of addresses."""
    for x in others:
        if pointer.is_scalar and isinstance(x, tensor) and not x.is_scalar:
            raise fail(errors.TILE_AT_SCALAR, what=what, pointer=name_of(pointer), value=name_of(x))
    form = common_form(what, (pointer, *others))
    if isinstance(form, VectorForm):
        raise fail(thread_errors.VECTOR_ADDRESS, what=what, pointer=name_of(pointer))
    return form


def _hints(what: str, cache: Any, allowed: tuple[str, ...], eviction: Any) -> dict[str, Any]:
    """The attributes of a cache modifier and an eviction policy."""
    if (cache or "") not in allowed:
        raise fail(errors.CACHE_MODIFIER, what=what, got=repr(cache), known=", ".join(allowed[1:]))
    check_eviction(eviction)
    check_one(cache, eviction)
    return {"cache": cache or "", "eviction": eviction or ""}
