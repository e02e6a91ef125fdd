"""Losses as operators: `cross_entropy` and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.errors import fail
from weft.errors import operators as errors
from weft.torch.operators import operator
from weft.torch.shapes import over_leading

if TYPE_CHECKING:
    from torch import Tensor


def cross_entropy(
    logits: Tensor, labels: Tensor, *, reduction: str = "mean", label_smoothing: float = 0.0, z_loss: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:  # fmt: skip
    """The losses of logits [..., V] and class indices `labels` [...], by the operator `torch.ops.weft.cross_entropy`.

    `reduction` is "none" (a float32 loss for each label, 0 where it is `ignore_index`), "sum", or "mean" over the labels that
    are not ignored, as in `torch.nn.functional.cross_entropy`. `z_loss` times the square of the logarithm of each row's sum
    of powers is part of the loss. Differentiable in logits. Raises LaunchError (operator-reduction).
    """
    if reduction not in ("none", "sum", "mean"):
        raise fail(errors.REDUCTION, got=reduction)
    losses = _cross_entropy(logits, labels, label_smoothing, z_loss, ignore_index)[0]
    if reduction == "none":
        return losses
    total = losses.sum()
    return total if reduction == "sum" else total / (labels != ignore_index).sum()


@operator("weft::cross_entropy")
def _cross_entropy(
    logits: Tensor, labels: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0, ignore_index: int = -100
) -> tuple[Tensor, Tensor]:
    """`weft.kernels.cross_entropy` as an operator: `losses`, which are differentiable, and `lse`, which are not."""
    return kernels.cross_entropy(
        logits, labels, label_smoothing=label_smoothing, z_loss=z_loss, ignore_index=ignore_index
    )


@_cross_entropy.register_fake
def _(
    logits: Tensor, labels: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0, ignore_index: int = -100
) -> tuple[Tensor, Tensor]:
    import torch

    losses, lse = (logits.new_empty(logits.shape[:-1], dtype=torch.float32) for _ in range(2))
    return losses, lse


@operator("weft::cross_entropy_backward")
def cross_entropy_backward(
    grad: Tensor, logits: Tensor, labels: Tensor, lse: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:  # fmt: skip
    """`weft.kernels.cross_entropy_backward` as an operator, with a gradient for each row."""
    return kernels.cross_entropy_backward(
        grad, logits, labels, lse, label_smoothing=label_smoothing, z_loss=z_loss, ignore_index=ignore_index
    )


@cross_entropy_backward.register_fake
def _(grad: Tensor, logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty(logits.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, labels, *ctx.numbers = inputs
    ctx.save_for_backward(logits, labels, output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    logits, labels, lse = ctx.saved_tensors
    return cross_entropy_backward(grad.contiguous(), logits, labels, lse, *ctx.numbers), None, None, None, None


_cross_entropy.register_autograd(_backward, setup_context=_keep)
_cross_entropy.register_vmap(over_leading(_cross_entropy, 0, 1))
