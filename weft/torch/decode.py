"""Decode attention and its cache as operators. They have no gradients: nobody trains on a cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import kernels
from weft.torch.attention import attention
from weft.torch.operators import operator
from weft.torch.shapes import over_batch

if TYPE_CHECKING:
    from torch import Tensor


@operator("weft::decode_attention")
def decode_attention(
    q: Tensor, k: Tensor, v: Tensor | None = None, cache_seqlens: Tensor | None = None, block_table: Tensor | None = None,
    sinks: Tensor | None = None, k_scale: Tensor | None = None, v_scale: Tensor | None = None, *, scale: float | None = None,
    window: int | None = None, softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """`weft.kernels.decode_attention` as an operator; `window` is the number of keys before a query that it sees.

    Lengths and pages are tensors, so that one graph of `torch.compile` or CUDA serves all of them."""
    return kernels.decode_attention(
        q, k, v, cache_seqlens, block_table=block_table, scale=scale, window=None if window is None else (window, None),
        softcap=softcap, sinks=sinks, k_scale=k_scale, v_scale=v_scale,
    )  # fmt: skip


@decode_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor | None = None, *_: Any, **_keywords: Any) -> Tensor:
    return attention(q, k, k[..., :512] if v is None else v)


def _sequences(
    _q: Tensor,
    _k: Tensor,
    _v: Tensor | None = None,
    _lengths: Tensor | None = None,
    table: Tensor | None = None,
    *_: Any,
) -> tuple[int, ...]:
    """The positions of arguments that have something for each sequence: with pages, all sequences share `k` and `v`."""
    return (0, 1, 2, 3) if table is None else (0, 3, 4)


decode_attention.register_vmap(over_batch(decode_attention, _sequences))


@operator("weft::append_to_cache", mutates_args=("k", "v", "q"))
def append_to_cache(
    key: Tensor, value: Tensor, k: Tensor, v: Tensor, cache_seqlens: Tensor, block_table: Tensor | None = None,
    q: Tensor | None = None, cos: Tensor | None = None, sin: Tensor | None = None, k_scale: Tensor | None = None,
    v_scale: Tensor | None = None, *, interleaved: bool = False,
) -> None:  # fmt: skip
    """`weft.kernels.append_to_cache` as an operator, which writes to `k` and `v`, and to `q` if it is given."""
    kernels.append_to_cache(
        key, value, k, v, cache_seqlens, block_table=block_table, q=q, cos=cos, sin=sin, interleaved=interleaved,
        k_scale=k_scale, v_scale=v_scale,
    )  # fmt: skip


@append_to_cache.register_fake
def _(*_: Any, **_keywords: Any) -> None:
    return None
