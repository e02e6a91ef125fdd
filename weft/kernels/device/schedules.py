"""The tiles of one program of a matmul, in an order of `weft.kernels.device.schedulers`."""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.schedulers import place


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
        rows, columns = gl.cdiv(M, plan.block_m), gl.cdiv(N, plan.columns)
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
