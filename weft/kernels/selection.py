"""`topk`: the largest or smallest elements of rows, with their positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from weft import language as gl
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device import selection
from weft.kernels.machines import machine_of, multiprocessors_of, target_of
from weft.kernels.memory import empty_like, used_on
from weft.kernels.selection_plan import CHUNK, Selection
from weft.runtime.arguments import array, extents
from weft.runtime.dtypes import ITEMSIZE

MOST = 512
"""The largest k: twice as many 64-bit keys fill the registers of a warp."""
SUPPORTED = {
    dtype.name: dtype for dtype in (gl.float32, gl.float16, gl.bfloat16, gl.int32, gl.int16, gl.int8, gl.uint8)
}  # fmt: skip
RESIDENT = 24
"""Programs, of one warp, that a multiprocessor runs at a time."""
MERGED = 4096
"""Most keys of all parts of a row that one program merges."""


class Rows(NamedTuple):
    """An array as rows along its last axis; strides in elements."""

    dtype: str
    rows: int
    columns: int
    row_stride: int
    column_stride: int
    pointer: int
    device: int
    outer: tuple[int, ...]


def topk(x: Any, k: int, *, largest: bool = True, stream: Any = None) -> tuple[Any, Any]:
    """The `k` largest elements along the last axis in descending order, or the smallest in ascending order, and their
    positions.

    `x` is an array of PyTorch, NumPy, CuPy or JAX of any number of dimensions, of float32, float16, bfloat16 or an integer of
    at most 32 bits (not uint32); `k` is 1 to 512. Returns the values, in the type of `x`, and int64 positions, both with the
    last axis of length `k`. With `k=1` the positions are argmax (argmin). Host arrays are simulated.

    NaN counts as larger than any number, as in `torch.topk`, and -0 as 0. Of equal elements those at lower positions come
    first. Rows of 1,024 elements and more are read once, at the speed of memory for small `k`; few long rows are split among
    programs, whose results a second launch merges.

    Raises LaunchError: kernels-topk-array, kernels-topk-dtype, kernels-topk-k, kernels-out-needed.
    """
    rows = _rows(x)
    if rows.dtype not in SUPPORTED:
        raise fail(errors.TOPK_DTYPE, got=rows.dtype, known=", ".join(SUPPORTED))
    if type(k) is not int or not 1 <= k <= min(MOST, rows.columns):
        raise fail(errors.TOPK_K, k=repr(k), columns=rows.columns, most=MOST)
    values = empty_like(x, (*rows.outer, k), rows.dtype)
    indices = empty_like(x, (*rows.outer, k), "int64")
    if rows.rows:
        _launch(x, rows, _plan(rows, k, largest), values, indices, stream)
    return values, indices


def _launch(x: Any, rows: Rows, plan: Selection, values: Any, indices: Any, stream: Any) -> None:
    numbers = (rows.columns, rows.row_stride, rows.column_stride)
    place = (*numbers, rows.pointer // ITEMSIZE[rows.dtype] % plan.unit, plan)
    options: dict[str, Any] = {"num_warps": 1, "stream": stream}
    if rows.columns < CHUNK:
        selection.select_short[rows.rows](x, values, indices, None, *numbers, plan, **options)
    elif plan.parts == 1:
        selection.select[rows.rows](x, values, indices, None, *place, **options)
    else:
        keys = empty_like(x, (rows.rows, plan.keys), "int64")
        selection.select[rows.rows, plan.parts](x, None, None, keys, *place, **options)
        whole = replace(plan, parts=1, chunk=max(selection.MERGE_WARPS * 32, 1 << (plan.keys - 1).bit_length()))
        selection.merge[rows.rows](keys, values, indices, whole, num_warps=selection.MERGE_WARPS, stream=stream)
        used_on(keys, stream)


def _plan(rows: Rows, k: int, largest: bool) -> Selection:
    """Vectors of 16 bytes where elements are contiguous, and parts that fill the GPU."""
    itemsize, short = ITEMSIZE[rows.dtype], rows.columns < CHUNK
    unit = min(8, 16 // itemsize)
    aligned = all(n * itemsize % 16 == 0 for n in (rows.row_stride, rows.columns)) and rows.pointer % 16 == 0
    if rows.column_stride != 1 or rows.columns < CHUNK + 2 * unit:
        unit, aligned = unit if aligned and rows.column_stride == 1 else 1, True
    chunk = max(32, 1 << (rows.columns - 1).bit_length()) if short else CHUNK
    plan = Selection(k, bool(largest), SUPPORTED[rows.dtype], "float" in rows.dtype, chunk, unit, not aligned)
    wanted = RESIDENT * multiprocessors_of(rows.device, machine_of(target_of(rows.device))) // rows.rows
    # A part of eight chunks pays for its first ones, which are full of better elements.
    parts = 1 if short else max(1, min(wanted, rows.columns // (8 * CHUNK), MERGED // plan.size))
    return replace(plan, parts=parts, keys=parts * plan.size)


def _rows(x: Any) -> Rows:
    """Raises LaunchError (kernels-topk-array) for what is no array, or one whose rows do not lie at one distance."""
    found = array(x)
    measured = None if found is None else extents(x)
    if found is None or measured is None or not measured[0]:
        raise fail(errors.TOPK_ARRAY, got=f"a {type(x).__name__}" if found is None else "an array without a last axis")
    shape, strides = ([int(n) for n in each] for each in measured)
    count, step = 1, 0
    for size, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if size == 1:
            continue
        if count > 1 and stride != count * step:
            raise fail(errors.TOPK_ARRAY, got=f"an array of shape {shape} with strides {strides}")
        count, step = count * size, step or stride
    return Rows(found.dtype, count, shape[-1], step, strides[-1], found.pointer, found.device, tuple(shape[:-1]))
