"""Blackwell data-centre GPUs (B200, GB200), with the architecture-specific instructions of `sm_100a`.

Sizes: CUDA C++ Programming Guide, technical specifications per compute capability, column 10.0; tensor memory has 512
columns (PTX ISA manual, "Tensor Memory"). Instructions: the "Target ISA Notes" of each instruction in that manual;
32-byte global accesses are the `.v8.b32` and `.v4.b64` forms of `ld` and `st`. Hopper's wgmma does not exist here.
"""

from __future__ import annotations

from weft.targets.target import Target

SM100 = Target(
    name="sm_100a",
    arch=100,
    max_cluster=16,
    shared_bytes_per_sm=228 * 1024,
    shared_bytes=227 * 1024,
    tensor_memory_columns=512,
    max_access_bits=256,
    has_cp_async=True,
    has_mbarrier=True,
    has_mbarrier_tx=True,
    has_tma=True,
    has_tma_gather=True,
    has_tma_fp4=True,
    has_st_async=True,
    has_cluster=True,
    has_elect=True,
    has_setmaxnreg=True,
    has_programmatic_launch=True,
    has_cluster_launch_control=True,
    has_ldmatrix=True,
    has_stmatrix=True,
    has_mma=True,
    has_mma_fp8=True,
    has_tcgen05=True,
    has_bf16_fma=True,
    has_bf16_arith=True,
    has_bf16_atomics=True,
    has_vector_atomics=True,
    has_multimem=True,
    has_fp8_cvt=True,
    has_fp4_cvt=True,
    has_f32x2=True,
    has_redux=True,
)
