"""Attention as an operator: `attention`, with the logarithms of its sums `attention_lse`, and its gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.torch.operators import Operator, operator

if TYPE_CHECKING:
    from torch import Tensor


@operator("weft::attention")
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None, softcap: float | None = None,
    left: int | None = None, right: int | None = None,
) -> Tensor:  # fmt: skip
    """`weft.kernels.attention` as an operator, with the window (left, right). Under `torch.autocast` q, k and v take its type.

    Where a gradient is wanted, it calls `attention_lse`."""
    return kernels.attention(q, k, v, causal=causal, scale=scale, softcap=softcap, window=(left, right))


@operator("weft::attention_lse")
def attention_lse(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None, softcap: float | None = None,
    left: int | None = None, right: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`attention` with the logarithms of the sums of exponentials, float32 [batch, heads, queries]. Both are differentiable.

    Under `torch.use_deterministic_algorithms(True)` gradients are the same bits in every call."""
    return kernels.attention(
        q, k, v, causal=causal, scale=scale, softcap=softcap, window=(left, right), return_lse=True
    )


@operator("weft::attention_backward")
def attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, lse_grad: Tensor | None = None, *,
    causal: bool = False, scale: float | None = None, softcap: float | None = None, left: int | None = None,
    right: int | None = None, deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`weft.kernels.attention_backward` as an operator."""
    return kernels.attention_backward(
        grad, q, k, v, out, lse, causal=causal, scale=scale, softcap=softcap, window=(left, right), lse_grad=lse_grad,
        deterministic=deterministic,
    )  # fmt: skip


@attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Tensor:
    batch, heads, queries, _size = q.shape
    if heads > 1 and q.stride(2) > q.stride(1):
        return q.new_empty((batch, queries, heads, v.shape[-1])).transpose(1, 2)
    return q.new_empty((batch, heads, queries, v.shape[-1]))


@attention_lse.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, **keywords: Any) -> tuple[Tensor, Tensor]:
    import torch

    return attention(q, k, v, **keywords), q.new_empty(q.shape[:-1], dtype=torch.float32)


@attention_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any, **_keywords: Any) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


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


def _backward(ctx: Any, grad: Tensor | None, lse_grad: Tensor | None) -> tuple[Tensor, ...]:
    q, k, v, out, lse = ctx.saved_tensors
    grad = out.new_zeros(out.shape) if grad is None else _readable(grad)
    lse_grad = None if lse_grad is None else lse_grad.contiguous()
    deterministic = _deterministic()
    return attention_backward(grad, q, k, v, out, lse, lse_grad, deterministic=deterministic, **ctx.keywords)


@attention.register_differentiable
def _(q: Tensor, k: Tensor, v: Tensor, **keywords: Any) -> Tensor:
    return attention_lse(q, k, v, **keywords)[0]


attention_lse.register_autograd(_backward, setup_context=_keep)


def _mapped(function: Operator[..., Any], several: bool) -> None:
    """The rule of `torch.vmap`: the mapped dimension and the batch are one batch."""

    @function.register_vmap
    def _(info: Any, in_dims: tuple[Any, ...], *operands: Tensor | None, **keywords: Any) -> tuple[Any, Any]:
        size: int = info.batch_size

        def flat(x: Tensor | None, dim: int | None) -> Tensor | None:
            if x is None:
                return None
            return (x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)

        result: Any = function(*map(flat, operands, in_dims), **keywords)
        if several:
            return tuple(each.unflatten(0, (size, -1)) for each in result), (0,) * len(result)
        return result.unflatten(0, (size, -1)), 0


_mapped(attention, several=False)
_mapped(attention_lse, several=True)
_mapped(attention_backward, several=True)
for _device in ("cpu", "cuda"):
    attention.register_autocast(_device)
    attention_lse.register_autocast(_device)
