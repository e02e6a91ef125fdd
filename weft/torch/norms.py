"""Norms as operators: `rms_norm`, `layer_norm` and their gradients. What the operators return for their gradients, and a sum
that is not there, are not results of the functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.kernels.rows.operands import LARGEST, parameter
from weft.runtime.dtypes import dtype_name
from weft.torch.operators import Operator, operator
from weft.torch.shapes import over_leading

if TYPE_CHECKING:
    import torch
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


@operator("weft::rms_norm_quantized")
def rms_norm_quantized(
    x: Tensor,
    weight: Tensor | None = None,
    residual: Tensor | None = None,
    eps: float = 1e-6,
    *,
    out_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """`rms_norm` with an output of float8_e4m3fn, float8_e5m2 or int8: `out`, `scales` (float32, one for each row: `out` times
    its scale is the norm), and `total` (without elements if there is no residual). It has no gradient."""
    _check_quantized("rms_norm_quantized", out_dtype)
    done = kernels.rms_norm(x, weight, residual=residual, eps=eps, out_dtype=out_dtype)
    return done.out, done.scales, x.new_empty(0) if residual is None else done.total


@rms_norm_quantized.register_fake
def _(
    x: Tensor,
    weight: Tensor | None = None,
    residual: Tensor | None = None,
    eps: float = 1e-6,
    *,
    out_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape, dtype=out_dtype), _statistics(x), _total(x, residual)


@operator("weft::layer_norm_quantized")
def layer_norm_quantized(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, residual: Tensor | None = None, eps: float = 1e-5, *,
    out_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`layer_norm` with an output of 8 bits: results as of `rms_norm_quantized`. It has no gradient."""
    _check_quantized("layer_norm_quantized", out_dtype)
    done = kernels.layer_norm(x, weight, bias, residual=residual, eps=eps, out_dtype=out_dtype)
    return done.out, done.scales, x.new_empty(0) if residual is None else done.total


@layer_norm_quantized.register_fake
def _(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, residual: Tensor | None = None, eps: float = 1e-5, *,
    out_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return x.new_empty(x.shape, dtype=out_dtype), _statistics(x), _total(x, residual)


def _check_quantized(op: str, out_dtype: torch.dtype) -> None:
    """Raises LaunchError (kernels-rows-parameter) for a type without scales."""
    if dtype_name(out_dtype) not in LARGEST:
        raise parameter(op, "out_dtype", out_dtype, f"one of {', '.join(LARGEST)}")


def _declare(norm: Operator[..., Any], gradient: Operator[..., Any], residual_at: int) -> None:
    """Autograd and vmap of a norm. A bias, which only one of them has, stands before the residual; statistics come last."""

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, weight, *bias, residual, _ = inputs
        _, total, *statistics = output
        ctx.save_for_backward(x if residual is None else total, weight, *statistics)
        ctx.types = [None if each is None else each.dtype for each in (x, residual, *bias)]
        ctx.mark_non_differentiable(*statistics, *(() if residual is not None else (total,)))

    def backward(ctx: Any, grad: Tensor, above: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        h, weight, *statistics = ctx.saved_tensors
        kind, of_residual, *of_bias = ctx.types
        added = above.contiguous() if of_residual is not None and above is not None else None
        wanted = [each is not None for each in of_bias]
        dh, dweight, *dbias = gradient(grad.contiguous(), h, weight, *statistics, *wanted, added)
        return (
            dh.to(kind),
            None if weight is None else dweight,
            *(None if each is None else found.to(each) for each, found in zip(of_bias, dbias, strict=True)),
            None if of_residual is None else dh.clone(),
            None,
        )

    norm.register_autograd(backward, setup_context=keep)
    norm.register_vmap(over_leading(norm, 0, residual_at))


_declare(_rms_norm, rms_norm_backward, 2)
_declare(_layer_norm, layer_norm_backward, 3)
rms_norm_quantized.register_vmap(over_leading(rms_norm_quantized, 0, 2))
layer_norm_quantized.register_vmap(over_leading(layer_norm_quantized, 0, 3))


def _total(x: Tensor, residual: Tensor | None) -> Tensor:
    return x.new_empty(0) if residual is None else residual.new_empty(x.shape)


def _statistics(x: Tensor) -> Tensor:
    import torch

    return x.new_empty(x.shape[:-1], dtype=torch.float32)
