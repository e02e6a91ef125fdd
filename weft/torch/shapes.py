"""Tensors of any number of dimensions as what `weft.kernels` takes, and shapes without memory for fake functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
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


def shaped(name: str, x: Tensor, batched: bool = False) -> Matrix:
    """A tensor without memory as a matrix, or of a batch one of its matrices, for the checks of `weft.kernels`. Raises
    LaunchError (kernels-array)."""
    if x.dim() < 2 or (x.dim() > 2 and not batched):
        raise fail(errors.ARRAY, name=name, got=f"an array of shape {list(x.shape)}")
    (rows, columns), (down, right) = x.shape[-2:], x.stride()[-2:]
    device = (x.device.index or 0) if x.device.type == "cuda" else HOST
    return Matrix(dtype_name(x.dtype), (rows, columns), (down, right), 0, device)


def over_leading(function: Callable[..., Any], *rows: int) -> Callable[..., Any]:
    """The rule of `torch.vmap` for an operator along the last axis, which takes any number of dimensions before it.

    `rows` are the positions of its arguments that have these dimensions, by default the first. If others are mapped, such as
    weights, the operator is called once for each."""
    along = frozenset(rows or (0,))

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any, **keywords: Any) -> tuple[Any, Any]:
        size: int = info.batch_size

        def placed(value: Any, dim: int | None) -> Any:
            if not hasattr(value, "movedim"):
                return value
            return (value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)).contiguous()

        pairs = list(zip_longest(args, in_dims))
        if _others(pairs, along):
            return _one_each(function, pairs, size, keywords)
        moved = (placed(value, dim) if at in along else value for at, (value, dim) in enumerate(pairs))
        results: Any = function(*moved, **keywords)
        return results, _mapped(results, size)

    return rule


def over_batch(function: Callable[..., Any], rows: Callable[..., Iterable[int]]) -> Callable[..., Any]:
    """The rule of `torch.vmap` for an operator whose arguments at the positions `rows(*args)` begin with a batch: the mapped
    dimension and the batch are one batch. If others are mapped, the operator is called once for each."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any, **keywords: Any) -> tuple[Any, Any]:
        size: int = info.batch_size
        pairs, along = list(zip_longest(args, in_dims)), frozenset(rows(*args))
        if _others(pairs, along):
            return _one_each(function, pairs, size, keywords)

        def flat(value: Any, dim: int | None) -> Any:
            if not hasattr(value, "movedim"):
                return value
            return (value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)).flatten(0, 1)

        moved = (flat(value, dim) if at in along else value for at, (value, dim) in enumerate(pairs))
        results: Any = function(*moved, **keywords)
        if hasattr(results, "dim"):
            return results.unflatten(0, (size, -1)), 0
        # A result that there is none of has no elements.
        return tuple(each.unflatten(0, (size, each.shape[0] // size)) for each in results), (0,) * len(results)

    return rule


def _others(pairs: list[tuple[Any, Any]], along: frozenset[int]) -> bool:
    """Whether arguments are mapped that are not among `along`."""
    return any(dim is not None for at, (_, dim) in enumerate(pairs) if at not in along)


def _one_each(
    function: Callable[..., Any], pairs: list[tuple[Any, Any]], size: int, keywords: dict[str, Any]
) -> tuple[Any, Any]:
    """The results of one call for each element of the mapped dimension."""
    return _stacked(
        [
            function(*(v if dim is None else v.select(dim, at).contiguous() for v, dim in pairs), **keywords)
            for at in range(size)
        ]
    )


def _stacked(results: list[Any]) -> tuple[Any, Any]:
    import torch

    if hasattr(results[0], "dim"):
        return torch.stack(results), 0
    stacked: tuple[Any, ...] = tuple(torch.stack(each) for each in zip(*results, strict=True))
    return stacked, (0,) * len(stacked)


def _mapped(results: Any, size: int) -> Any:
    """Where the mapped dimension is in results: first, but a result without elements stands for none."""
    if hasattr(results, "dim"):
        return 0
    return tuple(None if each.shape == (0,) and size else 0 for each in results)
