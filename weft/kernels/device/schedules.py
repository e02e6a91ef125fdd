"""Tile schedules: orders of output tiles for reuse in L2.

A launch has a number of tiles and as many programs as are resident at a time; program p computes tiles p, p + programs, ... of
the order. The tiles of one wave run concurrently, so that operands they have in common are read from DRAM once:

    rows         row by row
    grouped      bands of `group` rows of tiles, each band column by column
    serpentine   as grouped, every other band from right to left, so that columns at the turn are still in L2

A wave of P tiles that is g tiles high and P / g wide reads g block rows of a and P / g block columns of b. The total is least
when both have the same number of bytes (`weft.kernels.config.best_group`).
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit


@gl.aggregate
class Schedule:
    """The tiles of one program. In split-K, each split of an output tile is a tile of its own.

    `tiles` is the total number, `rows` and `columns` are the extents of the output in tiles. This program's tiles are `start`,
    `start + step`, ...
    """

    start: gl.tensor
    step: gl.tensor
    tiles: gl.tensor
    rows: gl.tensor
    columns: gl.tensor
    order: gl.constexpr
    group: gl.constexpr
    splits: gl.constexpr

    @staticmethod
    @jit
    def make(M, N, plan: gl.constexpr):
        """The schedule of an [M, N] output."""
        rows, columns = gl.cdiv(M, plan.block_m), gl.cdiv(N, plan.block_n)
        tiles = rows * columns * plan.splits
        return Schedule(gl.program_id(0), gl.num_programs(0), tiles, rows, columns, plan.order, plan.group, plan.splits)

    @jit
    def count(self):
        """The number of this program's tiles."""
        return gl.cdiv(self.tiles - self.start, self.step)

    @jit
    def tile(self, index):
        """Row and column, in tiles, and split of K of the program's tile number `index`."""
        number = self.start + index * self.step
        return self.place(number)

    @jit
    def place(self, number):
        """Row and column, in tiles, and split of K of a tile number."""
        part = number % self.splits
        row, column = place(number // self.splits, self.rows, self.columns, self.order, self.group)
        return row, column, part


@jit
def place(number, rows, columns, order: gl.constexpr, group: gl.constexpr):
    """Row and column of a tile number in an order."""
    if order == "rows":
        return number // columns, number % columns
    band = number // (columns * group)
    first = band * group
    height = min(rows - first, group)
    within = number - first * columns
    column = within // height
    row = first + within - column * height
    if order == "serpentine":
        column = gl.where(band & 1 == 1, columns - 1 - column, column)
    return row, column
