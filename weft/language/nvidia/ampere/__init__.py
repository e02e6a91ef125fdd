"""Since Ampere (sm_80): asynchronous copies by threads, barriers that count arrivals, and tensor core products of warps."""

from weft.language.nvidia.ampere import async_copy, mbarrier
from weft.language.nvidia.ampere.mma import mma_v2
from weft.language.partitions import named_barrier

__all__ = ["async_copy", "mbarrier", "mma_v2", "named_barrier"]
