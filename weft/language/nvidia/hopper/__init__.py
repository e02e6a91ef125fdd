"""Since Hopper (sm_90a): TMA, and mbarriers that count its bytes. On Hopper only: warpgroup MMAs (`wgmma`)."""

from weft.errors import cluster as cluster_errors
from weft.errors import fail
from weft.language.context import current
from weft.language.handles import check_one_tile, check_stored
from weft.language.marks import builtin
from weft.language.nvidia.ampere import async_copy, mma_v2
from weft.language.nvidia.checks import check_own_barrier, demand
from weft.language.nvidia.hopper import cluster, mbarrier, tma
from weft.language.nvidia.hopper.mma import (
    warpgroup_mma,
    warpgroup_mma_accumulator,
    warpgroup_mma_init,
    warpgroup_mma_layout,
    warpgroup_mma_wait,
)
from weft.language.partitions import named_barrier
from weft.language.policies import CachePolicy, FractionalEvictionPolicy
from weft.language.shared_memory import check_buffer, peer_memory, shared_memory_descriptor
from weft.language.tensor import apply_many, tensor
from weft.ops import cluster as cluster_ops
from weft.ops import shared, sync


@builtin
def fence_async_shared(cluster: bool = False) -> None:
    """A proxy fence: the threads' earlier shared memory accesses precede later accesses of the async proxy (TMA, wgmma).

    It is required between accesses of threads and of the async proxy to the same bytes if one of them is a write. A wait on a
    load's mbarrier needs no fence. Raises async-target.
    """
    demand("fence_async_shared", "TMA")
    apply_many(sync.fence_async, (), cluster=bool(cluster))


@builtin
def fence_async_global() -> None:
    """A proxy fence of global memory: accesses that happen before it precede later ones of the async proxy (TMA).

    What threads of this or another program have written in the same launch, and what other programs have stored by TMA, is
    loaded by TMA only behind such a fence: after the write (for a TMA store after `tma.store_wait(0, read_only=False)`) and
    before the release or barrier that hands it on, or after the acquire. Threads need none to read what TMA has stored: its
    completion is one. PTX ISA, "Async proxy" and "fence.proxy". Raises async-target.
    """
    demand("fence_async_global", "TMA")
    apply_many(sync.fence_async_global, ())


@builtin
def async_store(dst: shared_memory_descriptor | peer_memory, value: tensor, mbarrier: shared_memory_descriptor) -> None:
    """Start a store of a tile to shared memory (`st.async`), which completes its bytes on an mbarrier.

    `mbarrier.expect(bar, dst.nbytes_per_cta)` announces the bytes; the buffer holds the values once a wait for the phase has
    returned, and needs no fence. Each thread stores at least 4 contiguous bytes at a time. The kernel must be launched as a
    cluster of two blocks or more: on an H200 the instruction is illegal outside of one.

    Elements that lie in the memory of other blocks of the cluster go there, and signal the mbarrier of that block: of a buffer
    of which each block has a copy, a block sends what it holds of `value` to all of them. What several blocks hold the first of
    them sends, unless they part by their rank (`gl.block_rank_in_cluster`). With `buffer.peer(rank)` each block sends its part
    to the block of that rank.

    Raises async-target, cluster-store, shared-store, shared-several-tiles, async-store-width, cluster-signal, and the errors of
    an invalid barrier or buffer.
    """
    demand("async_store", "mbarriers that count bytes")
    if current().num_ctas == 1:
        raise fail(cluster_errors.STORE, what="async_store")
    memory = check_buffer("async_store", dst.memory if isinstance(dst, peer_memory) else dst)
    check_one_tile("async_store", memory)
    check_stored(value, memory)
    bar = check_own_barrier("async_store", mbarrier)
    if isinstance(dst, peer_memory):
        apply_many(cluster_ops.async_store, (memory, dst.rank, value, bar))
    else:
        apply_many(shared.async_store, (memory, value, bar))


__all__ = [
    "CachePolicy", "FractionalEvictionPolicy", "async_copy", "async_store", "cluster", "fence_async_global",
    "fence_async_shared", "mbarrier", "mma_v2", "named_barrier", "tma", "warpgroup_mma", "warpgroup_mma_accumulator",
    "warpgroup_mma_init", "warpgroup_mma_layout", "warpgroup_mma_wait",
]  # fmt: skip
