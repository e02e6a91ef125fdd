"""Ready-to-call kernels, written in weft: matmul on the tensor cores of Hopper and Blackwell, softmax by clusters, the top k of
rows, prefix sums.

    from weft.kernels import matmul
    c = matmul(a, b)                      # configuration chosen by shapes, strides and types
    c = matmul(a, b, variant="ping_pong")
    c = matmul(a8, b8.T, scale_a=s, scale_b=t, out_dtype=torch.bfloat16)
    c = matmul_scaled(a4, b4.T, a_scales, b_scales, format="nvfp4")
    values, indices = topk(x, 8)
    s = cumsum(x)                         # prefix sums along the last axis, in one pass
    y = softmax(x)                        # rows of up to 524,288 elements

Start reading at `weft.kernels.multiply` (host), then `weft.kernels.device.specialised` (Hopper) or `tensor_memory` (Blackwell).
"""

from weft.kernels import schedulers
from weft.kernels.config import ORDERS, VARIANTS, MatmulConfig
from weft.kernels.explanation import Explanation
from weft.kernels.multiply import chosen_config, compile_matmul, matmul, matmul_configs
from weft.kernels.rowwise import SoftmaxConfig, chosen_softmax, softmax
from weft.kernels.scaled import compile_scaled, matmul_scaled
from weft.kernels.scan import cumsum
from weft.kernels.schedulers import Schedule
from weft.kernels.selection import topk

__all__ = [
    "ORDERS", "VARIANTS", "Explanation", "MatmulConfig", "Schedule", "SoftmaxConfig", "chosen_config", "chosen_softmax",
    "compile_matmul", "compile_scaled", "cumsum", "matmul", "matmul_configs", "matmul_scaled", "schedulers", "softmax", "topk",
]  # fmt: skip
