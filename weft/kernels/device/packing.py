"""Packing: copies of operands into memory that TMA can read, contiguous along one dimension with aligned rows."""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.language.extra.cuda import gdc_launch_dependents

WARPS = 4
TILE = 64
"""Rows and columns of a program's tile."""


@jit
def pack(
    source: gl.tensor, target: gl.tensor, rows: int, columns: int, row_stride: int, column_stride: int, across: int,
    turn: gl.constexpr[bool], steps: tuple[int, int] | None = None,
) -> None:  # fmt: skip
    """target[i, j] = source[i, j] for a target with a pitch of `across` elements. `turn`: the source's columns are contiguous,
    so lanes read along columns and the tile is transposed through shared memory. Of a batch, the matrices of source and target
    are `steps` elements apart."""
    if steps is not None:
        batch = gl.cast(gl.program_id(1), gl.int64)
        source += batch * steps[0]
        target += batch * steps[1]
    pack_tile(gl.program_id(0), source, target, rows, columns, row_stride, column_stride, across, turn)


@jit
def pack_both(
    a: gl.tensor, a_target: gl.tensor, a_rows: int, a_columns: int, a_row_stride: int, a_column_stride: int,
    a_across: int, a_turn: gl.constexpr[bool],
    b: gl.tensor, b_target: gl.tensor, b_rows: int, b_columns: int, b_row_stride: int, b_column_stride: int,
    b_across: int, b_turn: gl.constexpr[bool],
) -> None:  # fmt: skip
    """`pack` for two operands in one launch."""
    number = gl.program_id(0)
    tiles = gl.cdiv(a_rows, TILE) * gl.cdiv(a_columns, TILE)
    if number < tiles:
        pack_tile(number, a, a_target, a_rows, a_columns, a_row_stride, a_column_stride, a_across, a_turn)
    else:
        pack_tile(number - tiles, b, b_target, b_rows, b_columns, b_row_stride, b_column_stride, b_across, b_turn)


@jit
def pack_tile(number, source, target, rows, columns, row_stride, column_stride, across, turn: gl.constexpr):
    """Copy one tile; see `pack`."""
    wide: gl.constexpr = gl.BlockedLayout([2, 1], [1, 32], [WARPS, 1], [1, 0])
    tall: gl.constexpr = gl.BlockedLayout([1, 2], [32, 1], [1, WARPS], [0, 1])
    reads: gl.constexpr = tall if turn else wide
    # The matmul may start; it waits for the copies.
    gdc_launch_dependents()
    tiles = gl.cdiv(columns, TILE)
    start_row, start_column = number // tiles * TILE, number % tiles * TILE
    i = start_row + gl.arange(0, TILE, gl.SliceLayout(1, reads))
    j = start_column + gl.arange(0, TILE, gl.SliceLayout(0, reads))
    mask = (i < rows)[:, None] & (j < columns)[None, :]
    places = gl.cast(i, gl.int64)[:, None] * row_stride + gl.cast(j, gl.int64)[None, :] * column_stride
    x = gl.convert_layout(gl.load(source + places, mask=mask, other=0), wide)
    i = start_row + gl.arange(0, TILE, gl.SliceLayout(1, wide))
    j = start_column + gl.arange(0, TILE, gl.SliceLayout(0, wide))
    mask = (i < rows)[:, None] & (j < columns)[None, :]
    gl.store(target + gl.cast(i, gl.int64)[:, None] * across + j[None, :], x, mask=mask)
