"""`cp.async`: asynchronous copies from global to shared memory by each thread, without staging registers.

async_copy.async_copy_global_to_shared(smem, pointers, mask=mask)
async_copy.commit_group()
...
async_copy.wait_group(0)
"""

from __future__ import annotations

from typing import Any

from weft.errors import asynchronous as errors
from weft.errors import fail
from weft.language.broadcast import fit
from weft.language.layouts import check_tile
from weft.language.marks import builtin
from weft.language.memory import check_pointer, pointer_form
from weft.language.nvidia.checks import check_own_barrier, check_pendings, demand
from weft.language.policies import AnyPolicy, check_eviction, l2_policy, one_way, policy_attrs
from weft.language.promote import place_mask
from weft.language.runtime_value import name_of
from weft.language.shared_memory import check_buffer, shared_memory_descriptor
from weft.language.tensor import apply_many, tensor
from weft.language.view_tiles import Addresses, addresses, both
from weft.ops import async_copy as ops
from weft.views import LayoutTensor

CACHE = ("", ".ca", ".cg")
LEAST_BYTES = 4


@builtin
def async_copy_global_to_shared(
    smem: shared_memory_descriptor, pointer: Addresses, mask: Any = None, cache_modifier: str = "", eviction_policy: str = "",
    volatile: bool = False, *, cache_policy: AnyPolicy | None = None, zeros: bool = True,
) -> None:  # fmt: skip
    """Start a copy of the elements at a tile of addresses to a buffer of the same shape, with zeros where `mask` is false.

    A copy in which the mask ends keeps its width. One in which it begins is divided into elements, unless `zeros=False`: then
    the elements where `mask` is false are undefined, and what is before the first one is copied with it.

    Each thread copies the elements whose addresses it holds, 4, 8 or 16 bytes at a time. The copy belongs to the group that
    the next `commit_group` closes, and is complete after a `wait_group`. `cache_modifier`: `.ca .cg`;
    `eviction_policy` (in L2): `evict_first evict_last`; `cache_policy` is a `CachePolicy` with `l2` or `l2_prefetch_size`.

    A view in global memory is copied as the tile that `gl.load` loads, with zeros for out-of-bounds elements of a masked view.

    Raises CompilationError: async-target, shared-handle-needed, language-pointer-needed, async-copy-tile, async-copy-cache,
    language-mask-type, language-eviction-policy, language-cache-policy-needed, language-cache-policy-part,
    language-cache-policy-twice; LayoutError (async-copy-bytes) where a thread holds too few elements.
    """
    what = "async_copy_global_to_shared"
    demand(what, "cp.async")
    memory = check_buffer(what, smem)
    if isinstance(pointer, LayoutTensor):
        pointer, inside = addresses(what, pointer, None)
        mask = both(inside, mask)
    check_pointer(what, pointer)
    check_tile(what, pointer)
    if (cache_modifier or "") not in CACHE:
        raise fail(errors.COPY_CACHE, got=repr(cache_modifier))
    check_eviction(eviction_policy)
    one_way(what, cache_policy, cache_modifier, eviction_policy)
    own = policy_attrs(what, cache_policy, ("l2", "l2_prefetch_size"), CACHE)
    form = pointer_form(what, pointer, mask)
    sources = fit(pointer, form)
    if sources.tile.shape != memory.memory.shape or sources.dtype.element_ty != memory.dtype:
        raise fail(errors.COPY_TILE, pointer=name_of(pointer), got=name_of(memory))
    _check_bytes(sources, memory)
    hints = {"cache": cache_modifier or "", "l2": l2_policy(eviction_policy) if eviction_policy else ()} | own
    operands = (memory, sources, place_mask(what, mask, form))
    apply_many(ops.global_to_shared, operands, **hints, volatile=bool(volatile), zeros=bool(zeros))


async_load = async_copy_global_to_shared


@builtin
def commit_group() -> None:
    """Close a group: the copies of each thread since its previous group. It may be empty. Raises async-target."""
    demand("commit_group", "cp.async")
    apply_many(ops.commit, ())


@builtin
def wait_group(num_outstanding: int = 0) -> None:
    """Wait until at most the latest `num_outstanding` groups are incomplete. Raises async-pendings, async-target."""
    demand("wait_group", "cp.async")
    apply_many(ops.wait, (), pendings=check_pendings("wait_group", num_outstanding))


@builtin
def mbarrier_arrive(mbarrier: shared_memory_descriptor, increment_count: bool = True) -> None:
    """Each thread arrives on the barrier when all its earlier copies are complete (`cp.async.mbarrier.arrive`).

    With `increment_count`, these arrivals are in addition to the count of `init`; without (`.noinc`), they are part of it.
    """
    demand("mbarrier_arrive", "mbarriers")
    apply_many(ops.mbarrier_arrive, (check_own_barrier("mbarrier_arrive", mbarrier),), increment=bool(increment_count))


def _check_bytes(addresses: tensor, memory: shared_memory_descriptor) -> None:
    """Reject tiles of which each thread holds less than 4 bytes, the narrowest `cp.async`."""
    size = memory.dtype.itemsize
    held = addresses.tile.registers if addresses.tile.resolved else addresses.numel
    count = min(held, addresses.numel)
    if count * size < LEAST_BYTES:
        elements = "one element" if count == 1 else f"{count} elements"
        least = LEAST_BYTES // size
        raise fail(errors.COPY_BYTES, elements=elements, bits=size * 8, pointer=name_of(addresses), least=least)
