"""Tensors of any number of dimensions as what `weft.kernels` takes, and shapes without memory for fake functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.operands import Matrix
from weft.runtime.arguments import HOST
from weft.runtime.dtypes import dtype_name

if TYPE_CHECKING:
    from torch import Tensor


def rows_of(x: Tensor) -> Tensor:
    """A tensor [..., N] as [rows, N]: a view where strides allow that, else a copy."""
    return x if x.dim() == 2 else x.flatten(0, -2) if x.dim() > 2 else x.reshape(1, -1)


def shaped(name: str, x: Tensor) -> Matrix:
    """A tensor without memory as a matrix, for the checks of `weft.kernels`. Raises LaunchError (kernels-array)."""
    if x.dim() != 2:
        raise fail(errors.ARRAY, name=name, got=f"an array of shape {list(x.shape)}")
    (rows, columns), (down, right) = x.shape, x.stride()
    device = (x.device.index or 0) if x.device.type == "cuda" else HOST
    return Matrix(dtype_name(x.dtype), (rows, columns), (down, right), 0, device)


def over_leading(function: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of `torch.vmap` for an operator along the last axis, whose first argument alone has the mapped dimension.

    Such an operator takes any number of dimensions, so the mapped one becomes the first."""

    def rule(_: Any, in_dims: tuple[Any, ...], x: Tensor, *args: Any, **keywords: Any) -> tuple[Any, Any]:
        results: Any = function(x.movedim(in_dims[0], 0).contiguous(), *args, **keywords)
        return results, 0 if hasattr(results, "dim") else (0,) * len(results)

    return rule
