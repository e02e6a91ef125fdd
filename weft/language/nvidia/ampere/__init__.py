"""Since Ampere (sm_80): copies to shared memory that threads start and wait for later, and barriers that count arrivals."""

from weft.language.nvidia.ampere import async_copy, mbarrier
from weft.language.partitions import named_barrier

__all__ = ["async_copy", "mbarrier", "named_barrier"]
