"""Attention as an operator: `attention`, with the logarithms of its sums `attention_lse`, and its gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.torch.operators import operator
from weft.torch.shapes import over_batch

if TYPE_CHECKING:
    from torch import Tensor


@operator("weft::attention")
def attention(
    q: Tensor, k: Tensor, v: Tensor, alibi: Tensor | None = None, sinks: Tensor | None = None, *, causal: bool = False,
    scale: float | None = None, softcap: float | None = None, left: int | None = None, right: int | None = None,
) -> Tensor:  # fmt: skip
    """`weft.kernels.attention` as an operator, with the window (left, right). Under `torch.autocast` q, k and v take its type.

    Where a gradient is wanted, it calls `attention_lse`."""
    return kernels.attention(
        q, k, v, causal=causal, scale=scale, softcap=softcap, window=(left, right), alibi=alibi, sinks=sinks
    )


@operator("weft::attention_lse")
def attention_lse(
    q: Tensor, k: Tensor, v: Tensor, alibi: Tensor | None = None, sinks: Tensor | None = None, *, causal: bool = False,
    scale: float | None = None, softcap: float | None = None, left: int | None = None, right: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`attention` with the logarithms of the sums of exponentials, float32 [batch, heads, queries]. Both are differentiable
    with respect to q, k, v and sinks; slopes have no gradient.

    Under `torch.use_deterministic_algorithms(True)` gradients are the same bits in every call."""
    return kernels.attention(
        q, k, v, causal=causal, scale=scale, softcap=softcap, window=(left, right), alibi=alibi, sinks=sinks,
        return_lse=True,
    )  # fmt: skip


@operator("weft::attention_backward")
def attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, lse_grad: Tensor | None = None,
    alibi: Tensor | None = None, sinks: Tensor | None = None, *, causal: bool = False, scale: float | None = None,
    softcap: float | None = None, left: int | None = None, right: int | None = None, deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """`weft.kernels.attention_backward` as an operator; without sinks the fourth result has no elements."""
    found = kernels.attention_backward(
        grad, q, k, v, out, lse, causal=causal, scale=scale, softcap=softcap, window=(left, right), alibi=alibi, sinks=sinks,
        lse_grad=lse_grad, deterministic=deterministic,
    )  # fmt: skip
    return found[0], found[1], found[2], found[3] if sinks is not None else lse.new_empty(0)


@attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any, **_keywords: Any) -> Tensor:
    batch, heads, queries, _size = q.shape
    if heads > 1 and q.stride(2) > q.stride(1):
        return q.new_empty((batch, queries, heads, v.shape[-1])).transpose(1, 2)
    return q.new_empty((batch, heads, queries, v.shape[-1]))


@attention_lse.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *others: Any, **keywords: Any) -> tuple[Tensor, Tensor]:
    import torch

    return attention(q, k, v, *others, **keywords), q.new_empty(q.shape[:-1], dtype=torch.float32)


@attention_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, lse_grad: Tensor | None = None,
    alibi: Tensor | None = None, sinks: Tensor | None = None, **_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    of_sinks = lse.new_empty(0 if sinks is None else sinks.shape)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), of_sinks


def _keep(
    ctx: Any, inputs: tuple[Tensor, ...], keyword_only_inputs: dict[str, Any], output: tuple[Tensor, ...]
) -> None:
    ctx.save_for_backward(*inputs, *output)
    ctx.keywords = keyword_only_inputs
    ctx.set_materialize_grads(False)  # The gradient of lse is seldom wanted, and zeros would be read.


def _readable(grad: Tensor) -> Tensor:
    """A gradient that TMA can read: sums and the like give one without strides."""
    aligned = all(stride > 0 and stride % 8 == 0 for stride in grad.stride()[:-1])
    return grad if aligned and grad.stride(-1) == 1 else grad.clone(memory_format=_contiguous())


def _contiguous() -> Any:
    import torch

    return torch.contiguous_format


def _deterministic() -> bool:
    import torch

    return torch.are_deterministic_algorithms_enabled()


def _backward(ctx: Any, grad: Tensor | None, lse_grad: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, alibi, sinks, out, lse = ctx.saved_tensors
    grad = out.new_zeros(out.shape) if grad is None else _readable(grad)
    lse_grad = None if lse_grad is None else lse_grad.contiguous()
    deterministic = _deterministic()
    given = (grad, q, k, v, out, lse, lse_grad, alibi, sinks)
    dq, dk, dv, of_sinks = attention_backward(*given, deterministic=deterministic, **ctx.keywords)
    return dq, dk, dv, None, None if sinks is None else of_sinks


@attention.register_differentiable
def _(
    q: Tensor, k: Tensor, v: Tensor, alibi: Tensor | None = None, sinks: Tensor | None = None, **keywords: Any
) -> Tensor:
    return attention_lse(q, k, v, alibi, sinks, **keywords)[0]


attention_lse.register_autograd(_backward, setup_context=_keep)


def _batched(*args: Any) -> range:
    """The arguments of `attention_backward` that begin with a batch. Gradients of sinks are those of a batch, so that with
    sinks every sample needs a call."""
    return range(0 if len(args) > 8 and args[8] is not None else 7)


for _function in (attention, attention_lse):
    _function.register_vmap(over_batch(_function, lambda *_: range(3)))
attention_backward.register_vmap(over_batch(attention_backward, _batched))
for _device in ("cpu", "cuda"):
    attention.register_autocast(_device, only=("q", "k", "v"))
    attention_lse.register_autocast(_device, only=("q", "k", "v"))
