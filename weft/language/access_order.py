"""Memory order (`sem`) and scope of accesses to global memory, fences, and the address of a one-element view.

`weft.ops.memory` defines the orders; `weft.language.atomics` lists those of atomics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard, get_args

from weft.errors import asynchronous, fail
from weft.errors import language as errors
from weft.ir.types import int1
from weft.language.context import current
from weft.language.logic import bit_and, compare
from weft.language.marks import builtin
from weft.language.promote import place
from weft.language.storages import GlobalStorage
from weft.language.tensor import apply_many, tensor
from weft.ops import sync
from weft.ops.memory import MemoryScope
from weft.ops.sync import FenceOrder
from weft.views import LayoutTensor

if TYPE_CHECKING:
    from weft.ir.core import Attrs

_FENCES = get_args(FenceOrder)
_PARTNER = {
    "load": "a load with sem='acquire' receives what a store with sem='release' or an atomic has published",
    "store": "a store with sem='release' publishes what a load with sem='acquire' or an atomic receives",
}


def access_order(
    what: str, sem: Any, scope: Any, orders: tuple[str, ...], cache: Any = None, volatile: Any = False
) -> Attrs:
    """The attributes `order` and `scope` of a load or store; `orders` are the legal memory orders.

    Raises CompilationError: language-access-order, language-access-order-with, and async-target for scope cluster on a target
    without clusters."""
    if sem is None or sem == "":
        if scope is not None:
            fix = f"add sem=, or leave scope out: {_PARTNER[what]}"
            raise fail(errors.ACCESS_ORDER_WITH, what=what, given=f"scope={scope!r}", other="no sem", fix=fix)
        return {"order": "", "scope": "gpu"}
    known = [repr(order) for order in orders if order]
    if repr(sem) not in known:
        raise fail(
            errors.ACCESS_ORDER, what=what, field="sem", got=repr(sem), known=" or ".join(known), more=f": {_PARTNER[what]}"
        )  # fmt: skip
    if volatile or cache:
        other = "volatile=True" if volatile else f"cache_modifier={cache!r}"
        raise fail(
            errors.ACCESS_ORDER_WITH, what=what, given=f"sem={sem!r}", other=other, fix=f"leave {other} out: with sem= the "
            "hardware decides where the value comes from",
        )  # fmt: skip
    if scope is not None and scope not in get_args(MemoryScope):
        scopes = ", ".join(map(repr, get_args(MemoryScope)))
        raise fail(errors.ACCESS_ORDER, what=what, field="scope", got=repr(scope), known=scopes, more="")
    return {"order": sem, "scope": check_scope(f"gl.{what}", scope or "gpu")}


def check_scope(what: str, scope: str) -> str:
    """Checks that the target has a scope, and returns it. Raises async-target."""
    if scope == "cluster" and not current().target.has_cluster:
        target, named = current().target.name, f"{what} with scope='cluster'"
        raise fail(asynchronous.TARGET, what=named, feature="clusters", target=target, instead="use scope='gpu'")
    return scope


@builtin
def fence(sem: str = "acq_rel", scope: str = "gpu") -> None:
    """A memory fence (PTX `fence.acq_rel.gpu`): it makes relaxed accesses before and behind it acquire and release.

    A relaxed store or atomic behind the fence releases all accesses of the program before the fence; a relaxed load or atomic
    before it, whose value decides what follows, acquires for all accesses behind it. A loop around relaxed loads with one
    fence behind it is cheaper than one around loads with `sem="acquire"`. `sem="sc"` also puts fences of all threads in
    one order, which two programs need that each store one flag and load the other's. `scope` is cta, cluster, gpu or sys.

    In a kernel that is launched with `block=`, and under conditions that differ between threads, it orders accesses of the
    thread that executes it: other threads of the block need a `gl.barrier()` before (to release) and behind (to acquire); in
    tile kernels weft inserts these. Raises CompilationError: language-access-order, async-target.
    """
    for field, got, known in (("sem", sem, _FENCES), ("scope", scope, get_args(MemoryScope))):
        if got not in known:
            more = "; loads and stores acquire and release by themselves with sem=" if field == "sem" else ""
            words = " or ".join(map(repr, known))
            raise fail(errors.ACCESS_ORDER, what="fence", field=field, got=repr(got), known=words, more=more)
    apply_many(sync.fence, (), order=sem, scope=check_scope("gl.fence", scope))


def is_element(x: object) -> TypeGuard[LayoutTensor]:
    """True for a view of one element in global memory."""
    if not isinstance(x, LayoutTensor) or not isinstance(x.storage, GlobalStorage):
        return False
    count = x.size()
    return isinstance(count, int) and count * x.element_size == 1


def element_address(view: LayoutTensor) -> tuple[tensor, tensor | None]:
    """The address of a one-element view, and the predicate that it is in bounds (None: always)."""
    assert isinstance(view.storage, GlobalStorage)
    return view.storage.address(view.offset), element_inside(view)


def element_inside(view: LayoutTensor) -> tensor | None:
    """The predicate that the element of a masked one-element view is in bounds; None for a view without limits."""
    inside: tensor | None = None
    for limit in view.limits or ():
        if limit is not None:
            here = place(compare("gt", limit, 0), int1, None)
            inside = here if inside is None else bit_and(inside, here)
    return inside
