"""Which tile of the output a program computes when: orders of tiles that reuse what the second-level cache holds.

A launch has a number of tiles and as many programs as run at a time; program p takes tiles p, p + programs, ... of the order.
The tiles of one round are computed side by side, and what they read in common is read from memory once:

    rows         row by row
    grouped      bands of `group` rows of tiles, each band column by column
    serpentine   as grouped, every other band from right to left, so that columns at the turn are still in the cache

A round of P tiles that is g tiles high and P / g wide reads g block rows of a and P / g block columns of b; that is least where
both take the same bytes (`weft.kernels.config.best_group`).
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit


@gl.aggregate
class Schedule:
    """The tiles of one program. Where K is split, each part of a tile's sum is a tile of its own.

    `tiles` counts all of them, `rows` and `columns` those of the output; `start` and `step` say which are this program's.
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
        """How many tiles are this program's."""
        return gl.cdiv(self.tiles - self.start, self.step)

    @jit
    def tile(self, index):
        """Row and column of the program's tile number `index`, in tiles, and which part of K is summed."""
        number = self.start + index * self.step
        return self.place(number)

    @jit
    def place(self, number):
        """Row and column of a tile of the order, in tiles, and which part of K is summed."""
        part = number % self.splits
        row, column = place(number // self.splits, self.rows, self.columns, self.order, self.group)
        return row, column, part


@jit
def place(number, rows, columns, order: gl.constexpr, group: gl.constexpr):
    """Row and column of a tile in an order."""
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
