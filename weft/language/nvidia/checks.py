"""Common checks of asynchronous functions: a feature of the target, an mbarrier, a number of pending groups."""

from __future__ import annotations

from typing import Any, Literal

from weft.errors import asynchronous as errors
from weft.errors import cluster as cluster_errors
from weft.errors import fail
from weft.errors import memory as memory_errors
from weft.ir.types import int64
from weft.language.context import current
from weft.language.creation import check_int
from weft.language.runtime_value import name_of
from weft.language.shared_memory import shared_memory_descriptor
from weft.layout import MBarrierLayout, SwizzledSharedLayout
from weft.ops.mbarrier import blocks_sharing

Feature = Literal[
    "cp.async", "mbarriers", "mbarriers that count bytes", "TMA", "rows gathered by TMA", "fp4 spread by TMA", "clusters",
    "cluster launch control", "programmatic dependent launch", "mma.sync", "products of fp8", "wgmma", "tensor memory",
    "multimem",
]  # fmt: skip
_INSTEAD: dict[Feature, str] = {
    "cp.async": "use gl.load and smem.store",
    "mbarriers": "use gl.barrier",
    "mbarriers that count bytes": "let async_copy.mbarrier_arrive arrive on the barrier when copies are complete",
    "clusters": "use gl.barrier, and launch with num_ctas=1",
    "TMA": "load through async_copy.async_copy_global_to_shared, and store with gl.store(pointers, smem.load(layout))",
    "rows gathered by TMA": "copy rows one by one with tma.async_copy_global_to_shared, or use gl.load and gl.store",
    "fp4 spread by TMA": "copy packed bytes, through a descriptor without fp4_padded",
    "cluster launch control": "let each program do several parts, as in range(gl.program_id(0), count, gl.num_programs(0))",
    "programmatic dependent launch": "leave it out: each launch then starts when the one before is complete",
    "multimem": "load from and store to x.peer(rank) for each rank",
    "products of fp8": "convert the operands with .to(gl.float16)",
}
_PRODUCTS: dict[Feature, str] = {
    "tensor memory": "use tcgen05_mma of weft.language.nvidia.blackwell, with the accumulator in tensor memory",
    "wgmma": "use warpgroup_mma of weft.language.nvidia.hopper, with the accumulator in registers",
    "mma.sync": "use mma_v2 of weft.language.nvidia.ampere, with everything in registers",
}
"""MMA features, best first. An error for a missing one suggests another that the target has."""
PENDING_LIMIT = 63
"""A larger number of pending groups is rejected as a probable error, such as a number of bytes."""


def demand(what: str, feature: Feature) -> None:
    """Reject a feature that the kernel's target lacks (async-target)."""
    target = current(what).target
    has: dict[Feature, bool] = {
        "cp.async": target.has_cp_async,
        "mbarriers": target.has_mbarrier,
        "mbarriers that count bytes": target.has_mbarrier_tx,
        "TMA": target.has_tma,
        "clusters": target.has_cluster,
        "mma.sync": target.has_mma,
        "products of fp8": target.has_mma_fp8,
        "wgmma": target.has_wgmma,
        "tensor memory": target.has_tcgen05,
        "rows gathered by TMA": target.has_tma_gather,
        "fp4 spread by TMA": target.has_tma_fp4,
        "cluster launch control": target.has_cluster_launch_control,
        "programmatic dependent launch": target.has_programmatic_launch,
        "multimem": target.has_multimem,
    }
    if not has[feature]:
        product = next((text for way, text in _PRODUCTS.items() if has[way]), "use gl.dot_fma")
        instead = product if feature in _PRODUCTS else _INSTEAD[feature]
        raise fail(errors.TARGET, what=what, feature=feature, target=target.name, instead=instead)


def check_barrier(what: str, x: object) -> shared_memory_descriptor:
    """A single mbarrier. A 64-bit word in memory without a swizzle may be one, as its bytes are those of an `MBarrierLayout`.

    Raises shared-handle-needed, async-barrier-layout, async-barrier-array."""
    if not isinstance(x, shared_memory_descriptor):
        fix = "pass what mbarrier.allocate_mbarrier returns"
        raise fail(memory_errors.SHARED_HANDLE_NEEDED, what=what, want="an mbarrier", got=name_of(x), fix=fix)
    layout = x.layout
    word = isinstance(layout, SwizzledSharedLayout) and (layout.max_phase, layout.rank, x.dtype) == (1, 1, int64)
    if not word and not isinstance(layout, MBarrierLayout):
        raise fail(errors.BARRIER_LAYOUT, what=what, got=name_of(x), layout=layout)
    if x.leading:
        raise fail(errors.BARRIER_ARRAY, what=what, got=name_of(x))
    return x.reinterpret(layout=MBarrierLayout(layout.cga)) if word else x


def check_own_barrier(what: str, x: object, pairs: bool = False) -> shared_memory_descriptor:
    """Checks for an mbarrier that CTAs of a cluster do not share, or with `pairs` that CTA pairs share.

    Raises cluster-signal, and the errors of `check_barrier`."""
    bar = check_barrier(what, x)
    if blocks_sharing(bar.handle) & ~int(pairs):
        raise fail(cluster_errors.SIGNAL, what=what, layout=bar.layout)
    return bar


def check_from_cta(what: str, mask: Any, everywhere: bool = False) -> int:
    """The rank bits in which CTAs differ on whose barriers one of them arrives, from the mask of the other bits.

    Raises cluster-from-cta."""
    if mask is None:
        return 0
    most, number = current().num_ctas - 1, check_int(what, mask)
    if everywhere or not 0 <= number <= most:
        problem = "is given together with everywhere" if everywhere else f"is no mask of CTAs 0 to {most}"
        raise fail(cluster_errors.FROM_CTA, what=what, got=number, problem=problem, most=most)
    return most & ~number


def check_pendings(what: str, pendings: Any) -> int:
    """The number of groups that may remain incomplete, a compile-time constant. Raises async-pendings."""
    number = check_int(what, pendings)
    if not 0 <= number <= PENDING_LIMIT:
        raise fail(errors.PENDINGS, what=what, got=number, most=PENDING_LIMIT)
    return number
