"""Operators along rows: `softmax`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.torch.operators import operator
from weft.torch.shapes import over_leading, rows_of

if TYPE_CHECKING:
    from torch import Tensor


@operator("weft::softmax")
def softmax(x: Tensor) -> Tensor:
    """`weft.kernels.softmax` as an operator, along the last axis of any number of dimensions. Differentiable."""
    return kernels.softmax(rows_of(x)).reshape(x.shape)


@softmax.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _backward(ctx: Any, grad: Tensor) -> Tensor:
    import torch

    (y,) = ctx.saved_tensors
    return torch.ops.aten._softmax_backward_data(grad, y, -1, y.dtype)


softmax.register_autograd(_backward, setup_context=_keep)
softmax.register_vmap(over_leading(softmax))
