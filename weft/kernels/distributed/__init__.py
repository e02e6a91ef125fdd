"""Collective operations on symmetric tensors: all-reduce, all-gather and reduce-scatter, each one launch per rank; matmuls that
exchange operands or results while they multiply; and the all-to-all of a mixture of experts.

    from weft.kernels import distributed
    x = weft.Symmetric(symm_mem.empty(n, dtype=torch.bfloat16, device="cuda"))
    distributed.all_reduce(x)

Every rank of the group makes the same calls in the same order. Results that all ranks get are the same bits on all of them. The
programs of a launch signal each other on flags from 0 on.
"""

from weft.kernels.distributed.collectives import all_gather, all_reduce, reduce_scatter
from weft.kernels.distributed.experts import Dispatched, combine, dispatch
from weft.kernels.distributed.norms import all_reduce_rms_norm
from weft.kernels.distributed.products import (
    all_gather_matmul,
    matmul_all_reduce,
    matmul_reduce_scatter,
    work_elements,
)

__all__ = [
    "Dispatched", "all_gather", "all_gather_matmul", "all_reduce",
    "all_reduce_rms_norm", "combine", "dispatch", "matmul_all_reduce", "matmul_reduce_scatter", "reduce_scatter",
    "work_elements",
]  # fmt: skip
