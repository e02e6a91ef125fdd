"""Since Hopper (sm_90a): TMA, and mbarriers that count its bytes. On Hopper only: warpgroup MMAs (`wgmma`)."""

from weft.language.marks import builtin
from weft.language.nvidia.ampere import async_copy, mma_v2
from weft.language.nvidia.checks import demand
from weft.language.nvidia.hopper import cluster, mbarrier, tma
from weft.language.nvidia.hopper.mma import (
    warpgroup_mma,
    warpgroup_mma_accumulator,
    warpgroup_mma_init,
    warpgroup_mma_layout,
    warpgroup_mma_wait,
)
from weft.language.partitions import named_barrier
from weft.language.tensor import apply_many
from weft.ops import sync


@builtin
def fence_async_shared(cluster: bool = False) -> None:
    """A proxy fence: the threads' earlier shared memory accesses precede later accesses of the async proxy (TMA, wgmma).

    It is required between accesses of threads and of the async proxy to the same bytes if one of them is a write. A wait on a
    load's mbarrier needs no fence. Raises async-target.
    """
    demand("fence_async_shared", "TMA")
    apply_many(sync.fence_async, (), cluster=bool(cluster))


__all__ = [
    "async_copy", "cluster", "fence_async_shared", "mbarrier", "mma_v2", "named_barrier", "tma", "warpgroup_mma",
    "warpgroup_mma_accumulator", "warpgroup_mma_init", "warpgroup_mma_layout", "warpgroup_mma_wait",
]  # fmt: skip
