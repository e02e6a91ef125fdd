"""Since Hopper (sm_90a): TMA, the engine that copies blocks of tensors, and barriers that count its bytes.

On Hopper only: matrix products of warpgroups.
"""

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
from weft.ops import program


@builtin
def fence_async_shared(cluster: bool = False) -> None:
    """Order what the block's threads have done in shared memory so far before what TMA does there later.

    Needed between accesses of threads and of TMA to the same bytes, one of them a write; waiting for a load on its barrier
    needs none. Raises async-target.
    """
    demand("fence_async_shared", "TMA")
    apply_many(program.fence_async, (), cluster=bool(cluster))


__all__ = [
    "async_copy", "cluster", "fence_async_shared", "mbarrier", "mma_v2", "named_barrier", "tma", "warpgroup_mma",
    "warpgroup_mma_accumulator", "warpgroup_mma_init", "warpgroup_mma_layout", "warpgroup_mma_wait",
]  # fmt: skip
