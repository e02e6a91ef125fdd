"""The epilogue: pieces of the accumulator tile are scaled, converted, and stored through rotating buffers.

A piece is a part of the tile that consists of a subset of every thread's registers, so that extracting it costs no
instructions. While TMA still stores one piece, the next one is written to another buffer.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.language.nvidia.hopper import fence_async_shared, tma


@jit
def factors(scale, kind: gl.constexpr, first, extent, dim: gl.constexpr, layout: gl.constexpr, size: gl.constexpr):
    """The scale of a tile's rows (`dim` 0) or columns: a number, or a vector that broadcasts over the tile."""
    if kind == "number":
        return scale
    if kind == "one":
        return gl.load(scale)
    at = first + gl.arange(0, size, gl.SliceLayout(1 - dim, layout))
    found = gl.load(scale + at, mask=at < extent, other=0.0)
    return gl.expand_dims(found, 1 - dim)


@jit
def scaled(x, scale_a, scale_b, row, column, M, N, plan: gl.constexpr):
    """An accumulator tile at a row and column of the output, scaled and converted to the output's type."""
    if plan.scale_a or plan.scale_b:
        x = x.to(gl.float32)
    if plan.scale_a:
        x = x * factors(scale_a, plan.scale_a, row, M, 0, x.layout, x.shape[0])
    if plan.scale_b:
        x = x * factors(scale_b, plan.scale_b, column, N, 1, x.layout, x.shape[1])
    return x.to(plan.out.dtype)


@jit
def buffers_of(plan: gl.constexpr):
    """One partition's shared-memory buffers for pieces that TMA stores; None if pieces are stored from registers."""
    if not plan.out.described:
        return None
    return gl.allocate_shared_memory(plan.out.dtype, [plan.buffers, *plan.out.block], plan.out.layout)


@jit
def store_tile(
    out, buffers, acc, row, column, part, scale_a, scale_b, row_stride, column_stride, M, N, plan: gl.constexpr
):
    """Store an accumulator tile at a row and column of the output, or of the split's partial result in split-K."""
    height: gl.constexpr = plan.out.height
    width: gl.constexpr = plan.out.width
    across: gl.constexpr = acc.shape[1] // width
    below = below_of(part, M, N, plan)
    for i in gl.static_range(acc.shape[0] // height * across):
        down: gl.constexpr = i // across * height
        right: gl.constexpr = i % across * width
        piece = acc[down : down + height, right : right + width]
        store_part(
            i, out, buffers, piece, row + down, column + right, below, scale_a, scale_b, row_stride, column_stride, M, N,
            plan,
        )  # fmt: skip


@jit
def below_of(part, M, N, plan: gl.constexpr):
    """The row offset of a split's partial result: partial results are stacked vertically, padded to whole tiles."""
    if plan.splits == 1:
        return 0
    tiles = (
        gl.cdiv(N, plan.block_n) * plan.block_n if plan.out.columns_first else gl.cdiv(M, plan.block_m) * plan.block_m
    )
    return part * tiles


@jit
def store_part(
    i: gl.constexpr, out, buffers, x, row, column, below, scale_a, scale_b, row_stride, column_stride, M, N,
    plan: gl.constexpr,
):  # fmt: skip
    """Store piece `i` of an accumulator tile at a row and column of the output."""
    if plan.out.described:
        # Wait until the TMA store that last used this buffer has read it.
        tma.store_wait(pendings=plan.buffers - 1)
    x = scaled(x, scale_a, scale_b, row, column, M, N, plan)
    if plan.out.described:
        buffer = buffers.index(i % plan.buffers)
        if plan.out.columns_first:
            buffer.permute([1, 0]).store(x)
            fence_async_shared()
            tma.async_copy_shared_to_global(out, [below + column, row], buffer)
        else:
            buffer.store(x)
            fence_async_shared()
            tma.async_copy_shared_to_global(out, [below + row, column], buffer)
    else:
        store_piece(out, x, row, column, row_stride, column_stride, M, N, plan.out)


@jit
def store_piece(out, x, row, column, row_stride, column_stride, M, N, form: gl.constexpr):
    """Store the in-bounds part of a tile from registers."""
    layout: gl.constexpr = form.registers
    x = gl.convert_layout(x, layout)
    if form.unit > 1:
        # With these hints a thread's `unit` elements are one aligned vector store, wholly in or out of bounds.
        out = gl.multiple_of(out, form.unit * form.dtype.itemsize)
        if form.columns_first:
            row_stride, column_stride, M = 1, gl.multiple_of(column_stride, form.unit), gl.multiple_of(M, form.unit)
        else:
            row_stride, column_stride, N = gl.multiple_of(row_stride, form.unit), 1, gl.multiple_of(N, form.unit)
    i = gl.arange(0, x.shape[0], gl.SliceLayout(1, layout))
    j = gl.arange(0, x.shape[1], gl.SliceLayout(0, layout))
    start = out + gl.cast(row, gl.int64) * row_stride + gl.cast(column, gl.int64) * column_stride
    mask = (i < M - row)[:, None] & (j < N - column)[None, :]
    gl.store(start + i[:, None] * row_stride + j[None, :] * column_stride, x, mask=mask)
