"""Ready-to-call kernels, written in weft: matmul on the tensor cores of Hopper and Blackwell, the rows of a model (norms,
softmax), the top k of rows, prefix sums.

    from weft.kernels import matmul
    c = matmul(a, b)                      # configuration chosen by shapes, strides and types
    c = matmul(a, b, variant="ping_pong")
    c = matmul(a8, b8.T, scale_a=s, scale_b=t, out_dtype=torch.bfloat16)
    c = matmul(a, w, bias=bias, activation="gelu", residual=x)
    c = matmul_scaled(a4, b4.T, a_scales, b_scales, format="nvfp4")
    values, indices = topk(x, 8)
    s = cumsum(x)                         # prefix sums along the last axis, in one pass
    y = softmax(x)                        # rows of up to 524,288 elements
    o = attention(q, k, v, causal=True)   # [batch, heads, length, head size]
    y = rms_norm(x, weight)               # as layer_norm, with gradients, residuals and 8-bit outputs

Start reading at `weft.kernels.multiply` (host), then `weft.kernels.device.specialised` (Hopper) or `tensor_memory` (Blackwell).
"""

from weft.kernels import schedulers
from weft.kernels.append import append_to_cache
from weft.kernels.attend import attention, compile_attention
from weft.kernels.attend_backward import attention_backward
from weft.kernels.attend_blocks import BlockMask, block_mask
from weft.kernels.attend_plan import AttentionConfig
from weft.kernels.config import ORDERS, VARIANTS, MatmulConfig
from weft.kernels.decode import compile_decode, decode_attention
from weft.kernels.explanation import Explanation
from weft.kernels.factors import rms_factors
from weft.kernels.multiply import chosen_config, compile_matmul, matmul, matmul_configs
from weft.kernels.rows.experts import Sorted, count_experts, sort_experts
from weft.kernels.rows.gated import geglu, geglu_backward, swiglu, swiglu_backward
from weft.kernels.rows.gating import argmax, topk_gating, topk_gating_backward
from weft.kernels.rows.losses import cross_entropy, cross_entropy_backward
from weft.kernels.rows.norms import Normalised, layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from weft.kernels.rows.plan import RowConfig
from weft.kernels.rows.rotary import rope
from weft.kernels.rows.sampling import sample
from weft.kernels.rowwise import (
    SoftmaxConfig,
    chosen_softmax,
    log_softmax,
    log_softmax_backward,
    softmax,
    softmax_backward,
)
from weft.kernels.scaled import compile_scaled, matmul_scaled
from weft.kernels.scan import cumsum
from weft.kernels.schedulers import Schedule
from weft.kernels.selection import topk
from weft.kernels.tuning import tune_matmul

__all__ = [
    "ORDERS", "VARIANTS", "AttentionConfig", "BlockMask", "Explanation", "MatmulConfig", "Normalised", "RowConfig",
    "Schedule", "SoftmaxConfig", "Sorted", "append_to_cache", "argmax", "attention", "attention_backward", "block_mask",
    "chosen_config", "chosen_softmax", "compile_attention", "compile_decode", "compile_matmul", "compile_scaled",
    "count_experts", "cross_entropy", "cross_entropy_backward", "cumsum", "decode_attention", "geglu", "geglu_backward",
    "layer_norm", "layer_norm_backward", "log_softmax", "log_softmax_backward", "matmul", "matmul_configs", "matmul_scaled",
    "rms_factors", "rms_norm", "rms_norm_backward", "rope", "sample", "schedulers", "softmax", "softmax_backward",
    "sort_experts", "swiglu", "swiglu_backward", "topk", "topk_gating", "topk_gating_backward", "tune_matmul",
]  # fmt: skip
