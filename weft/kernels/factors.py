"""`rms_factors`: what is left of a normalisation in front of a product, from the sums of squares that a product wrote."""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device.factors import ROWS, WARPS, rms_of_squares
from weft.kernels.memory import empty_like
from weft.kernels.operands import matrix


def rms_factors(squares: Any, columns: int, *, eps: float = 1e-6, stream: Any = None) -> Any:
    """1 / sqrt(mean + eps) of rows of `columns` elements: a float32 array [M], the `scale_a` of a product with these rows.

    `squares` is a float32 array [M, any], whose rows are added in their order; `matmul` writes such (`row_squares`). With the
    weight of the norm multiplied into b along K, `matmul(x, weighted, scale_a=rms_factors(squares, K))` is the product of the
    normalised rows.

    Raises LaunchError: kernels-array, kernels-squares, kernels-out-needed.
    """
    found = matrix("squares", squares)
    if found.dtype != "float32" or columns < 1:
        got = f"a {found.dtype} array {list(found.shape)} and {columns} columns"
        raise fail(errors.SQUARES, got=got)
    out = empty_like(squares, (found.shape[0],), "float32")
    if found.shape[0]:
        grid = -(-found.shape[0] // ROWS)
        numbers = (*found.shape, *found.strides, 1 / columns, eps)
        rms_of_squares[grid](squares, out, *numbers, num_warps=WARPS, stream=stream)
    return out
