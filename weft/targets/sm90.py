"""Hopper GPUs (H100, H200), with the architecture-specific instructions of `sm_90a`.

Sizes: CUDA C++ Programming Guide, technical specifications per compute capability, column 9.0. Clusters of 16 blocks
need CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED. Instructions: the "Target ISA Notes" of each instruction in the PTX
ISA manual.
"""

from __future__ import annotations

from weft.targets.target import Target

SM90 = Target(
    name="sm_90a",
    arch=90,
    max_cluster=16,
    shared_bytes_per_sm=228 * 1024,
    shared_bytes=227 * 1024,
    has_cp_async=True,
    has_mbarrier=True,
    has_mbarrier_tx=True,
    has_tma=True,
    has_st_async=True,
    has_cluster=True,
    has_elect=True,
    has_setmaxnreg=True,
    has_programmatic_launch=True,
    has_ldmatrix=True,
    has_stmatrix=True,
    has_mma=True,
    has_mma_fp8=True,
    has_wgmma=True,
    has_bf16_fma=True,
    has_bf16_arith=True,
    has_bf16_atomics=True,
    has_vector_atomics=True,
    has_multimem=True,
    has_fp8_cvt=True,
    has_redux=True,
)
