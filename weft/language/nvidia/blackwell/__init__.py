"""Since Blackwell (sm_100a): tensor memory, `tcgen05` MMAs and cluster launch control; also Hopper's TMA and barriers."""

from weft.language.nvidia.blackwell import clc, float2, tma
from weft.language.nvidia.blackwell.mma import (
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_fence,
    tcgen05_mma,
    tcgen05_mma_barrier_count,
    tcgen05_mma_scaled,
)
from weft.language.nvidia.blackwell.packed import add2, fma2, max2, min2, mul2, sub2
from weft.language.nvidia.blackwell.tensor_memory import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    get_tmem_32x32b_reg_layout,
    get_tmem_reg_layout,
    tensor_memory_descriptor,
    tensor_memory_descriptor_type,
)
from weft.language.nvidia.hopper import (
    CachePolicy,
    FractionalEvictionPolicy,
    async_copy,
    async_store,
    cluster,
    fence_async_global,
    fence_async_shared,
    mbarrier,
    mma_v2,
    named_barrier,
)

__all__ = [
    "CachePolicy", "FractionalEvictionPolicy", "TensorMemoryLayout", "TensorMemoryScalesLayout", "add2",
    "allocate_tensor_memory", "async_copy", "async_store", "clc", "cluster", "fence_async_global", "fence_async_shared",
    "float2", "fma2", "get_tmem_32x32b_reg_layout", "get_tmem_reg_layout", "max2", "mbarrier", "min2", "mma_v2", "mul2",
    "named_barrier", "sub2", "tcgen05_commit", "tcgen05_copy", "tcgen05_fence", "tcgen05_mma", "tcgen05_mma_barrier_count",
    "tcgen05_mma_scaled", "tensor_memory_descriptor", "tensor_memory_descriptor_type", "tma",
]  # fmt: skip
