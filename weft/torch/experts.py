"""Choices as operators: `topk_gating` with its gradient, `argmax`, `sample`, `count_experts` and `sort_experts`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.torch.operators import operator
from weft.torch.shapes import over_leading

if TYPE_CHECKING:
    from torch import Tensor


@operator("weft::topk_gating")
def topk_gating(logits: Tensor, k: int, renormalise: bool = True) -> tuple[Tensor, Tensor]:
    """`weft.kernels.topk_gating` as an operator. The weights are differentiable."""
    return kernels.topk_gating(logits, k, renormalise=renormalise)


@topk_gating.register_fake
def _(logits: Tensor, k: int, renormalise: bool = True) -> tuple[Tensor, Tensor]:
    import torch

    shape = (*logits.shape[:-1], k)
    return logits.new_empty(shape, dtype=torch.float32), logits.new_empty(shape, dtype=torch.int32)


@operator("weft::topk_gating_backward")
def topk_gating_backward(
    grad: Tensor, logits: Tensor, weights: Tensor, indices: Tensor, renormalise: bool = True
) -> Tensor:
    """`weft.kernels.topk_gating_backward` as an operator."""
    return kernels.topk_gating_backward(grad, logits, weights, indices, renormalise=renormalise)


@topk_gating_backward.register_fake
def _(grad: Tensor, logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty(logits.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    logits, _, ctx.renormalise = inputs
    ctx.save_for_backward(logits, *output)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    logits, weights, indices = ctx.saved_tensors
    return topk_gating_backward(grad.contiguous(), logits, weights, indices, ctx.renormalise), None, None


topk_gating.register_autograd(_backward, setup_context=_keep)
topk_gating.register_vmap(over_leading(topk_gating))


@operator("weft::argmax")
def argmax(x: Tensor) -> Tensor:
    """`weft.kernels.argmax` as an operator."""
    return kernels.argmax(x).clone()


@argmax.register_fake
def _(x: Tensor) -> Tensor:
    import torch

    return x.new_empty(x.shape[:-1], dtype=torch.int64)


argmax.register_vmap(over_leading(argmax))


@operator("weft::sample")
def sample(
    logits: Tensor, seed: int, offset: int = 0, temperature: float = 1.0, top_p: float = 1.0, min_p: float = 0.0
) -> Tensor:
    """`weft.kernels.sample` as an operator, with the same numbers for all rows."""
    return kernels.sample(logits, seed=seed, offset=offset, temperature=temperature, top_p=top_p, min_p=min_p)


@sample.register_fake
def _(logits: Tensor, *_: Any) -> Tensor:
    import torch

    return logits.new_empty(logits.shape[:-1], dtype=torch.int64)


@operator("weft::count_experts")
def count_experts(ids: Tensor, experts: int) -> Tensor:
    """`weft.kernels.count_experts` as an operator."""
    return kernels.count_experts(ids, experts)


@count_experts.register_fake
def _(ids: Tensor, experts: int) -> Tensor:
    import torch

    return ids.new_empty(experts, dtype=torch.int32)


@operator("weft::sort_experts")
def sort_experts(ids: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`weft.kernels.sort_experts` as an operator: order, places, counts and offsets."""
    order, places, counts, offsets = kernels.sort_experts(ids, experts)
    return order, places, counts, offsets


@sort_experts.register_fake
def _(ids: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    import torch

    sizes = ids.numel(), ids.numel(), experts, experts + 1
    order, places, counts, offsets = (ids.new_empty(size, dtype=torch.int32) for size in sizes)
    return order, places, counts, offsets
