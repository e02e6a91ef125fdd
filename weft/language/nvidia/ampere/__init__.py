"""Since Ampere (sm_80): `cp.async`, mbarriers that count arrivals, and warp-level MMAs."""

from weft.language.nvidia.ampere import async_copy, mbarrier
from weft.language.nvidia.ampere.mma import mma_v2
from weft.language.partitions import named_barrier
from weft.language.policies import CachePolicy, FractionalEvictionPolicy

__all__ = ["CachePolicy", "FractionalEvictionPolicy", "async_copy", "mbarrier", "mma_v2", "named_barrier"]
