"""Prefix sums as an operator: `cumsum`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.torch.operators import operator
from weft.torch.shapes import over_leading, rows_of

if TYPE_CHECKING:
    from torch import Tensor


@operator("weft::cumsum")
def cumsum(x: Tensor) -> Tensor:
    """`weft.kernels.cumsum` as an operator, along the last axis of any number of dimensions. Differentiable.

    Under `torch.autocast` it takes and returns float32, as `torch.cumsum`.
    """
    return kernels.cumsum(rows_of(x)).reshape(x.shape)


@cumsum.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _backward(ctx: Any, grad: Tensor) -> Tensor:
    """The sums from each element to the end."""
    return cumsum(grad.flip(-1)).flip(-1)


cumsum.register_autograd(_backward)
cumsum.register_vmap(over_leading(cumsum))
for _device in ("cpu", "cuda"):
    cumsum.register_autocast(_device, "float32")
