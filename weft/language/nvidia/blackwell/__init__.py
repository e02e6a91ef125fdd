"""Since Blackwell (sm_100a): so far what Hopper has of copies and barriers, and products of warps."""

from weft.language.nvidia.hopper import async_copy, cluster, fence_async_shared, mbarrier, mma_v2, named_barrier, tma

__all__ = ["async_copy", "cluster", "fence_async_shared", "mbarrier", "mma_v2", "named_barrier", "tma"]
