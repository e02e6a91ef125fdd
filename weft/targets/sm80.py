"""Ampere data-centre GPUs (A100).

Sizes: CUDA C++ Programming Guide, technical specifications per compute capability, column 8.0. Instructions: the "Target
ISA Notes" of each instruction in the PTX ISA manual.
"""

from __future__ import annotations

from weft.targets.target import Target

SM80 = Target(
    name="sm_80",
    arch=80,
    shared_bytes_per_sm=164 * 1024,
    shared_bytes=163 * 1024,
    has_cp_async=True,
    has_mbarrier=True,
    has_ldmatrix=True,
    has_mma=True,
    has_bf16_fma=True,
    has_redux=True,
)
