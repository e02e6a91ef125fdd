"""Attention as an operator: `attention`, and with the logarithms of its sums `attention_lse`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.torch.operators import Operator, operator

if TYPE_CHECKING:
    from torch import Tensor


@operator("weft::attention")
def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None) -> Tensor:
    """`weft.kernels.attention` as an operator; it has no gradient. Under `torch.autocast` all three take its type."""
    return kernels.attention(q, k, v, causal=causal, scale=scale)


@operator("weft::attention_lse")
def attention_lse(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """`attention` with the logarithms of the sums of exponentials, float32 [batch, heads, queries]."""
    return kernels.attention(q, k, v, causal=causal, scale=scale, return_lse=True)


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


def _mapped(function: Operator[..., Any], several: bool) -> None:
    """The rule of `torch.vmap`: the mapped dimension and the batch are one batch."""

    @function.register_vmap
    def _(info: Any, in_dims: tuple[Any, ...], *operands: Tensor, **keywords: Any) -> tuple[Any, Any]:
        size: int = info.batch_size

        def flat(x: Tensor, dim: int | None) -> Tensor:
            return (x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)

        result: Any = function(*map(flat, operands, in_dims), **keywords)
        if several:
            return tuple(each.unflatten(0, (size, -1)) for each in result), (0, 0)
        return result.unflatten(0, (size, -1)), 0


_mapped(attention, several=False)
_mapped(attention_lse, several=True)
for _device in ("cpu", "cuda"):
    attention.register_autocast(_device)
    attention_lse.register_autocast(_device)
