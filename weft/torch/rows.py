"""Operators along rows: `softmax`, `log_softmax` and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.torch.operators import Operator, operator
from weft.torch.shapes import over_leading, rows_of

if TYPE_CHECKING:
    from torch import Tensor


@operator("weft::softmax")
def softmax(x: Tensor) -> Tensor:
    """`weft.kernels.softmax` as an operator. Differentiable."""
    return kernels.softmax(rows_of(x)).reshape(x.shape)


@operator("weft::log_softmax")
def log_softmax(x: Tensor) -> Tensor:
    """`weft.kernels.log_softmax` as an operator. Differentiable."""
    return kernels.log_softmax(rows_of(x)).reshape(x.shape)


@operator("weft::softmax_backward")
def softmax_backward(grad: Tensor, y: Tensor) -> Tensor:
    """`weft.kernels.softmax_backward` as an operator."""
    return kernels.softmax_backward(grad, y)


@operator("weft::log_softmax_backward")
def log_softmax_backward(grad: Tensor, y: Tensor) -> Tensor:
    """`weft.kernels.log_softmax_backward` as an operator."""
    return kernels.log_softmax_backward(grad, y)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _declare(function: Operator[..., Tensor], gradient: Operator[..., Tensor]) -> None:
    """Fake functions, autograd and vmap of a function of rows whose gradient needs its result alone."""

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return gradient(grad.contiguous(), *ctx.saved_tensors)

    def fake(x: Tensor) -> Tensor:
        return x.new_empty(x.shape)

    def fake_gradient(grad: Tensor, y: Tensor) -> Tensor:
        return y.new_empty(y.shape)

    function.register_fake(fake)
    gradient.register_fake(fake_gradient)
    function.register_autograd(backward, setup_context=_keep)
    function.register_vmap(over_leading(function))
    gradient.register_vmap(over_leading(gradient, 0, 1))


_declare(softmax, softmax_backward)
_declare(log_softmax, log_softmax_backward)
