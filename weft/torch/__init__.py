"""Operators of PyTorch: `operator` makes them of host functions that launch kernels, and the functions of `weft.kernels` are.

    import weft.torch

    y = weft.torch.softmax(x)             # or torch.ops.weft.softmax(x)
    c = torch.compile(model, fullgraph=True)(x)

    @weft.torch.operator("mylib::scale")
    def scale(x: Tensor, factor: float) -> Tensor:
        out = torch.empty_like(x)
        kernel[grid](x, out, factor)
        return out

Nothing else of weft imports PyTorch. Each family of `weft.kernels` has a file here.
"""

from weft.torch.attention import attention, attention_backward, attention_lse
from weft.torch.decode import append_to_cache, decode_attention
from weft.torch.elementwise import geglu, geglu_backward, rope, swiglu, swiglu_backward
from weft.torch.experts import argmax, count_experts, sample, sort_experts, topk_gating, topk_gating_backward
from weft.torch.losses import cross_entropy, cross_entropy_backward
from weft.torch.norms import (
    add_layer_norm,
    add_rms_norm,
    layer_norm,
    layer_norm_backward,
    layer_norm_quantized,
    rms_norm,
    rms_norm_backward,
    rms_norm_quantized,
)  # fmt: skip
from weft.torch.operators import OPERATORS, Operator, operator
from weft.torch.products import matmul, matmul_out, matmul_scaled, rms_factors
from weft.torch.ranks import (
    all_gather,
    all_gather_matmul,
    all_reduce,
    all_reduce_rms_norm,
    combine,
    dispatch,
    matmul_all_reduce,
    matmul_reduce_scatter,
    reduce_scatter,
)
from weft.torch.rows import log_softmax, log_softmax_backward, softmax, softmax_backward
from weft.torch.scan import cumsum
from weft.torch.selection import topk

__all__ = [
    "OPERATORS", "Operator", "add_layer_norm", "add_rms_norm", "all_gather", "all_gather_matmul", "all_reduce",
    "all_reduce_rms_norm", "append_to_cache", "argmax", "attention", "attention_backward", "attention_lse", "combine",
    "count_experts", "cross_entropy", "cross_entropy_backward", "cumsum", "decode_attention", "dispatch", "geglu",
    "geglu_backward", "layer_norm", "layer_norm_backward", "layer_norm_quantized", "log_softmax", "log_softmax_backward",
    "matmul", "matmul_all_reduce", "matmul_out", "matmul_reduce_scatter", "matmul_scaled", "operator", "reduce_scatter",
    "rms_factors", "rms_norm", "rms_norm_backward", "rms_norm_quantized", "rope", "sample", "softmax", "softmax_backward",
    "sort_experts", "swiglu", "swiglu_backward", "topk", "topk_gating", "topk_gating_backward",
]  # fmt: skip
