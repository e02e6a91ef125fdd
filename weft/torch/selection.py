"""Selection as an operator: `topk`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.torch.operators import operator
from weft.torch.shapes import over_leading, rows_of

if TYPE_CHECKING:
    from torch import Tensor


@operator("weft::topk")
def topk(x: Tensor, k: int, *, largest: bool = True) -> tuple[Tensor, Tensor]:
    """`weft.kernels.topk` as an operator. The values are differentiable."""
    values, indices = kernels.topk(rows_of(x), k, largest=largest)
    shape = (*x.shape[:-1], k)
    return values.reshape(shape), indices.reshape(shape)


@topk.register_fake
def _(x: Tensor, k: int, *, largest: bool = True) -> tuple[Tensor, Tensor]:
    import torch

    shape = (*x.shape[:-1], k)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


def _keep(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: Any, output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.shape = inputs[0].shape


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None]:
    (indices,) = ctx.saved_tensors
    return grad.new_zeros(ctx.shape).scatter(-1, indices, grad), None


topk.register_autograd(_backward, setup_context=_keep)
topk.register_vmap(over_leading(topk))
