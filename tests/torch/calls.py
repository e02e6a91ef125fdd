"""A call of every operator of `weft.torch`, small and with odd sizes: what the tests of all operators run on."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple


class Call(NamedTuple):
    """Arguments of a call, and the same function of PyTorch with its tolerance. `rows` says which arguments have the first
    dimension of the first one, `differentiable` which have gradients (None: all floats)."""

    args: tuple[Any, ...]
    keywords: dict[str, Any]
    reference: Callable[..., Any] | None
    tolerance: float = 1e-5
    rows: tuple[int, ...] = (0,)
    differentiable: tuple[int, ...] | None = None

    def wanting(self, device: str = "cpu") -> list[Any]:
        """Copies of the arguments on a device, of which floats require gradients."""
        chosen = range(len(self.args)) if self.differentiable is None else self.differentiable
        return [
            x if not hasattr(x, "clone") else x.clone().to(device).requires_grad_(i in chosen and x.is_floating_point())
            for i, x in enumerate(self.args)
        ]

    def first(self, count: int) -> list[Any]:
        """The arguments of the first rows alone."""
        return [x[:count] if i in self.rows else x for i, x in enumerate(self.args)]


def matmul(torch: ModuleType) -> Call:
    a, b = torch.randn(17, 40), torch.randn(40, 24)
    return Call((a, b), {}, torch.matmul, tolerance=3e-2)  # float32 operands are multiplied as tf32


def rms_factors(torch: ModuleType) -> Call:
    def reference(squares, columns, eps):
        return (squares.sum(-1) / columns + eps).rsqrt()

    return Call((torch.rand(7, 3), 384), {"eps": 1e-5}, reference)


def matmul_out(torch: ModuleType) -> Call:
    a, b = torch.randn(17, 40).bfloat16(), torch.randn(40, 24).bfloat16()
    return Call((a, b, torch.empty(17, 24, dtype=torch.bfloat16)), {}, None)


def softmax(torch: ModuleType) -> Call:
    return Call((torch.randn(3, 5, 37),), {}, lambda x: x.softmax(-1))


def log_softmax(torch: ModuleType) -> Call:
    return Call((torch.randn(4, 130),), {}, lambda x: x.log_softmax(-1))


def cross_entropy(torch: ModuleType) -> Call:
    def reference(logits, labels, smoothing, z):
        lse = logits.logsumexp(-1)
        losses = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
        return losses + z * lse.square() * (labels != -100), lse.detach()

    labels = torch.tensor([3, 0, -100, 32])
    return Call((torch.randn(4, 33), labels, 0.1, 0.01), {}, reference, rows=(0, 1))


def rope(torch: ModuleType) -> Call:
    def reference(x, cos, sin):
        one, other = x.chunk(2, -1)
        cos, sin = cos[:7, None], sin[:7, None]
        return torch.cat([one * cos - other * sin, one * sin + other * cos], -1)

    angles = torch.randn(9, 8)
    cos, sin = angles.cos(), angles.sin()
    return Call((torch.randn(2, 7, 3, 16), cos, sin), {}, reference, differentiable=(0,))


def swiglu(torch: ModuleType) -> Call:
    return Call((torch.randn(5, 33), torch.randn(5, 33)), {}, lambda x, y: torch.nn.functional.silu(x) * y, rows=(0, 1))


def geglu(torch: ModuleType) -> Call:
    def reference(x):
        gate, up = x.chunk(2, -1)
        return torch.nn.functional.gelu(gate) * up

    return Call((torch.randn(3, 2, 66),), {}, reference)


def topk_gating(torch: ModuleType) -> Call:
    def reference(logits, k):
        found = logits.softmax(-1).topk(k)
        return found.values / found.values.sum(-1, keepdim=True), found.indices.int()

    return Call((torch.randn(5, 12), 3), {}, reference)


def cumsum(torch: ModuleType) -> Call:
    return Call((torch.randn(3, 129),), {}, lambda x: x.cumsum(-1))


def topk(torch: ModuleType) -> Call:
    return Call((torch.randn(4, 3, 33), 5), {"largest": False}, lambda x, k, largest: x.topk(k, largest=largest))


def rms_norm(torch: ModuleType) -> Call:
    def reference(x, weight, residual):
        h = x + residual
        rstd = (h.square().mean(-1) + 1e-6).rsqrt()
        return h * rstd[..., None] * weight, h, rstd.detach()

    return Call((torch.randn(2, 3, 40), torch.randn(40), torch.randn(2, 3, 40)), {}, reference, rows=(0, 2))


def layer_norm(torch: ModuleType) -> Call:
    def reference(x, weight, bias):
        variance, mean = torch.var_mean(x.detach(), -1, correction=0)
        y = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)
        return y, x.new_empty(0), mean, (variance + 1e-5).rsqrt()

    return Call((torch.randn(5, 33), torch.randn(33), torch.randn(33)), {}, reference)


def rms_norm_quantized(torch: ModuleType) -> Call:
    def reference(x, weight, residual, eps, out_dtype):
        h = x + residual
        y = torch.nn.functional.rms_norm(h, h.shape[-1:], weight, eps)
        scales = y.abs().amax(-1) / 127
        return (y / scales[..., None]).round().to(out_dtype), scales, h

    x, weight, residual = torch.randn(2, 3, 40), torch.randn(40), torch.randn(2, 3, 40)
    return Call((x, weight, residual, 1e-6), {"out_dtype": torch.int8}, reference, rows=(0, 2))


def layer_norm_quantized(torch: ModuleType) -> Call:
    def reference(x, weight, bias, out_dtype):
        y = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)
        scales = y.abs().amax(-1) / 127
        return (y / scales[..., None]).round().to(out_dtype), scales, x.new_empty(0)

    return Call((torch.randn(5, 33), torch.randn(33), torch.randn(33)), {"out_dtype": torch.int8}, reference)


def attention(torch: ModuleType) -> Call:
    q, k, v = torch.randn(3, 2, 9, 2, 64).half().transpose(2, 3)
    return Call((q, k, v), {"causal": True}, sdpa(torch), tolerance=3e-3, rows=(0, 1, 2))


def attention_lse(torch: ModuleType) -> Call:
    q, k, v = torch.randn(3, 2, 2, 9, 64).half()
    slopes, sinks, distances = torch.tensor([0.5, 0.1]), torch.tensor([0.3, -1]), torch.arange(9.0)

    def reference(q, k, v, slopes, sinks):
        scores = q.float() @ k.float().mT / 8 - slopes[:, None, None] * (distances[:, None] - distances).abs()
        scores = torch.cat([scores, sinks[None, :, None, None].expand(len(q), -1, 9, 1)], -1)
        return (scores.softmax(-1)[..., :-1] @ v.float()).half(), scores.logsumexp(-1)

    return Call((q, k, v, slopes, sinks), {}, reference, tolerance=3e-3, rows=(0, 1, 2), differentiable=(0, 1, 2, 4))


def decode_attention(torch: ModuleType) -> Call:
    q, (k, v) = torch.randn(2, 4, 1, 64).half(), torch.randn(2, 2, 2, 35, 64).half()
    lengths = torch.tensor([35, 9], dtype=torch.int32)

    def reference(q, k, v, lengths):
        seen = torch.arange(35) < lengths[:, None, None, None]
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)

    return Call((q, k, v, lengths), {}, reference, tolerance=3e-3, rows=(0, 1, 2, 3))


def append_to_cache(torch: ModuleType) -> Call:
    key, value = torch.randn(2, 2, 2, 1, 64).half()
    lengths, q = torch.tensor([35, 9], dtype=torch.int32), torch.randn(2, 4, 1, 64).half()
    cos, sin = torch.randn(2, 40, 32)
    return Call((key, value, *torch.randn(2, 2, 2, 35, 64).half(), lengths, None, q, cos, sin), {}, None)


def sdpa(torch: ModuleType) -> Callable[..., Any]:
    return lambda q, k, v, causal=False: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


CALLS: dict[str, Callable[[ModuleType], Call]] = {
    "weft::attention": attention,
    "weft::attention_lse": attention_lse,
    "weft::decode_attention": decode_attention,
    "weft::append_to_cache": append_to_cache,
    "weft::matmul": matmul,
    "weft::matmul_out": matmul_out,
    "weft::softmax": softmax,
    "weft::log_softmax": log_softmax,
    "weft::cross_entropy": cross_entropy,
    "weft::rope": rope,
    "weft::swiglu": swiglu,
    "weft::geglu": geglu,
    "weft::topk_gating": topk_gating,
    "weft::cumsum": cumsum,
    "weft::topk": topk,
    "weft::rms_factors": rms_factors,
    "weft::rms_norm": rms_norm,
    "weft::layer_norm": layer_norm,
    "weft::rms_norm_quantized": rms_norm_quantized,
    "weft::layer_norm_quantized": layer_norm_quantized,
}


def gradient_calls(torch: ModuleType) -> dict[str, tuple[Any, ...]]:
    """Arguments of the operators that gradients call: what their forward operators return is computed by these."""
    import weft.torch

    x, y, grad, weight = torch.randn(5, 33), torch.randn(5, 33), torch.randn(5, 33), torch.randn(33)
    logits, labels = torch.randn(5, 12), torch.randint(12, (5,))
    heads = torch.randn(4, 1, 2, 9, 64).half()
    weights, indices = weft.torch.topk_gating(logits, 3)
    *_, rstd = torch.ops.weft.rms_norm(x, weight)
    *_, mean, other = torch.ops.weft.layer_norm(x, weight, weight)
    return {
        "weft::attention_backward": (heads[3], *heads[:3], *weft.torch.attention_lse(*heads[:3])),
        "weft::cross_entropy_backward": (torch.randn(5), logits, labels, logits.logsumexp(-1)),
        "weft::geglu_backward": (grad, x, y),
        "weft::layer_norm_backward": (grad, x, weight, mean, other),
        "weft::log_softmax_backward": (grad, x.log_softmax(-1)),
        "weft::rms_norm_backward": (grad, x, weight, rstd),
        "weft::softmax_backward": (grad, x.softmax(-1)),
        "weft::swiglu_backward": (grad, x, y),
        "weft::topk_gating_backward": (weights, logits, weights, indices),
    }


NO_GRADIENT = frozenset(
    {"weft::rms_factors", "weft::decode_attention", "weft::rms_norm_quantized", "weft::layer_norm_quantized"}
)
"""Operators that return tensors and have no backward function."""
INTEGERS = "gives integers, which have no gradients: in test_integers.py"
OF_GRADIENTS = "a gradient, whose numbers the tests of the operator that it belongs to check: in gradient_calls"
BETWEEN_RANKS = "runs on several ranks: in test_ranks.py"
ELSEWHERE = {
    "weft::all_reduce": BETWEEN_RANKS,
    "weft::all_gather": BETWEEN_RANKS,
    "weft::reduce_scatter": BETWEEN_RANKS,
    "weft::all_reduce_rms_norm": BETWEEN_RANKS,
    "weft::all_gather_matmul": BETWEEN_RANKS,
    "weft::matmul_reduce_scatter": BETWEEN_RANKS,
    "weft::matmul_all_reduce": BETWEEN_RANKS,
    "weft::dispatch": BETWEEN_RANKS,
    "weft::combine": BETWEEN_RANKS,
    "weft::matmul_scaled": "needs Blackwell, on whose simulator test_products.py runs it",
    "weft::rms_norm_backward": OF_GRADIENTS,
    "weft::attention_backward": OF_GRADIENTS,
    "weft::cross_entropy_backward": OF_GRADIENTS,
    "weft::swiglu_backward": OF_GRADIENTS,
    "weft::topk_gating_backward": OF_GRADIENTS,
    "weft::argmax": INTEGERS,
    "weft::sample": INTEGERS,
    "weft::count_experts": INTEGERS,
    "weft::sort_experts": INTEGERS,
    "weft::geglu_backward": OF_GRADIENTS,
    "weft::softmax_backward": OF_GRADIENTS,
    "weft::log_softmax_backward": OF_GRADIENTS,
    "weft::layer_norm_backward": OF_GRADIENTS,
}
"""Operators without a call here, and where they are tested."""
