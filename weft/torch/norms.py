"""Norms as operators: `rms_norm`, `layer_norm` and their gradients. What the operators return for their gradients, and a sum
that is not there, are not results of the functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.torch.operators import operator
from weft.torch.shapes import over_leading

if TYPE_CHECKING:
    from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight along the last axis: the first result of the operator `torch.ops.weft.rms_norm`.

    Differentiable in x and weight."""
    return _rms_norm(x, weight, None, eps)[0]


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """`rms_norm` of h = x + residual, and h: the first two results of the operator `torch.ops.weft.rms_norm`.

    Differentiable in x, residual and weight, through both results."""
    return _rms_norm(x, weight, residual, eps)[:2]


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias along the last axis: the first result of the operator
    `torch.ops.weft.layer_norm`.

    Differentiable in x, weight and bias."""
    return _layer_norm(x, weight, bias, None, eps)[0]


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """`layer_norm` of h = x + residual, and h: the first two results of the operator `torch.ops.weft.layer_norm`.

    Differentiable in x, residual, weight and bias, through both results."""
    return _layer_norm(x, weight, bias, residual, eps)[:2]


@operator("weft::rms_norm")
def _rms_norm(
    x: Tensor, weight: Tensor | None = None, residual: Tensor | None = None, eps: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """`weft.kernels.rms_norm` as an operator: `out`, `total` (without elements if there is no residual) and `rstd`.

    `out` and `total` are differentiable."""
    done = kernels.rms_norm(x, weight, residual=residual, eps=eps, statistics=True)
    return done.out, x.new_empty(0) if residual is None else done.total, done.rstd


@_rms_norm.register_fake
def _(
    x: Tensor, weight: Tensor | None = None, residual: Tensor | None = None, eps: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), _total(x, residual), _statistics(x)


@operator("weft::rms_norm_backward")
def rms_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor | None, rstd: Tensor, added: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`weft.kernels.rms_norm_backward` as an operator; without a weight its gradient has no elements."""
    dx, dweight = kernels.rms_norm_backward(grad, x, weight, rstd, added=added)
    return dx, x.new_empty(0) if weight is None else dweight


@rms_norm_backward.register_fake
def _(
    grad: Tensor, x: Tensor, weight: Tensor | None, rstd: Tensor, added: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(0) if weight is None else weight.new_empty(weight.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, residual, _ = inputs
    _, total, rstd = output
    ctx.save_for_backward(x if residual is None else total, weight, rstd)
    ctx.types = x.dtype, None if residual is None else residual.dtype
    ctx.mark_non_differentiable(rstd, *(() if residual is not None else (total,)))


def _backward(ctx: Any, grad: Tensor, above: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    h, weight, rstd = ctx.saved_tensors
    kind, of_residual = ctx.types
    added = above.contiguous() if of_residual is not None and above is not None else None
    dh, dweight = rms_norm_backward(grad.contiguous(), h, weight, rstd, added)
    return dh.to(kind), None if weight is None else dweight, None if of_residual is None else dh.clone(), None


_rms_norm.register_autograd(_backward, setup_context=_keep)
_rms_norm.register_vmap(over_leading(_rms_norm, 0, 2))


@operator("weft::layer_norm")
def _layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`weft.kernels.layer_norm` as an operator: `out`, `total` (without elements if there is no residual), `mean` and `rstd`.

    `out` and `total` are differentiable."""
    done = kernels.layer_norm(x, weight, bias, residual=residual, eps=eps, statistics=True)
    return done.out, x.new_empty(0) if residual is None else done.total, done.mean, done.rstd


@_layer_norm.register_fake
def _(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), _total(x, residual), _statistics(x), _statistics(x)


@operator("weft::layer_norm_backward")
def layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    bias: bool = True,
    added: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`weft.kernels.layer_norm_backward` as an operator; gradients that there are none of have no elements."""
    dx, dweight, dbias = kernels.layer_norm_backward(grad, x, weight, mean, rstd, bias=bias, added=added)
    return dx, x.new_empty(0) if weight is None else dweight, dbias if bias else x.new_empty(0)


@layer_norm_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    bias: bool = True,
    added: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    like = x if weight is None else weight
    dweight = x.new_empty(0) if weight is None else weight.new_empty(weight.shape)
    return x.new_empty(x.shape), dweight, like.new_empty(x.shape[-1]) if bias else x.new_empty(0)


def _keep_layer(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, residual, _ = inputs
    _, total, mean, rstd = output
    ctx.save_for_backward(x if residual is None else total, weight, mean, rstd)
    ctx.types = x.dtype, None if residual is None else residual.dtype, None if bias is None else bias.dtype
    ctx.mark_non_differentiable(mean, rstd, *(() if residual is not None else (total,)))


def _backward_layer(ctx: Any, grad: Tensor, above: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    h, weight, mean, rstd = ctx.saved_tensors
    kind, of_residual, of_bias = ctx.types
    added = above.contiguous() if of_residual is not None and above is not None else None
    dh, dweight, dbias = layer_norm_backward(grad.contiguous(), h, weight, mean, rstd, of_bias is not None, added)
    return (
        dh.to(kind),
        None if weight is None else dweight,
        None if of_bias is None else dbias.to(of_bias),
        None if of_residual is None else dh.clone(),
        None,
    )


_layer_norm.register_autograd(_backward_layer, setup_context=_keep_layer)
_layer_norm.register_vmap(over_leading(_layer_norm, 0, 3))


def _total(x: Tensor, residual: Tensor | None) -> Tensor:
    return x.new_empty(0) if residual is None else residual.new_empty(x.shape)


def _statistics(x: Tensor) -> Tensor:
    import torch

    return x.new_empty(x.shape[:-1], dtype=torch.float32)
