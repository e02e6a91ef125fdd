"""The tiles of one program of a matmul, in an order of `weft.kernels.device.schedulers`."""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.arrivals import first_tile
from weft.kernels.device.schedulers import place


@gl.aggregate
class Schedule:
    """The tiles of one program. In split-K, each split of an output tile is a tile of its own; of a batch, each product has
    tiles of its own, one product behind the other.

    `tiles` is the total number, `rows` and `columns` are the extents of the output in tiles. This program's tiles are `start`,
    `start + step`, ... Rows are walked from `first` on, and then from 0, where a is gathered (`weft.kernels.device.arrivals`).
    """

    start: gl.tensor
    step: gl.tensor
    tiles: gl.tensor
    rows: gl.tensor
    columns: gl.tensor
    first: gl.tensor | None
    order: gl.constexpr
    group: gl.constexpr
    splits: gl.constexpr
    batched: gl.constexpr

    @staticmethod
    @jit
    def make(M, N, batch, plan: gl.constexpr, gathered=None):
        """The schedule of an [M, N] output, or of a batch of them."""
        rows, columns = gl.cdiv(M, plan.rows), gl.cdiv(N, plan.columns)
        tiles = rows * columns * plan.splits
        if plan.batched:
            tiles *= batch[0]
        return Schedule(
            gl.program_id(0),
            gl.num_programs(0),
            tiles,
            rows,
            columns,
            None if gathered is None else first_tile(gathered, plan.rows),
            plan.order,
            plan.group,
            plan.splits,
            plan.batched,
        )

    @jit
    def count(self):
        """The number of this program's tiles."""
        return gl.cdiv(self.tiles - self.start, self.step)

    @jit
    def tile(self, index):
        """Row and column, in tiles, and part of the program's tile number `index`."""
        number = self.start + index * self.step
        return self.place(number)

    @jit
    def place(self, number):
        """Row and column, in tiles, and part of a tile number: the split of K, counted on from product to product of a
        batch."""
        before = 0
        if self.batched:
            each = self.rows * self.columns * self.splits
            product = number // each
            number -= product * each
            before = product * self.splits
        part = number % self.splits
        row, column = place(number // self.splits, self.rows, self.columns, self.order, self.group)
        if self.first is not None:
            row += self.first
            row = gl.where(row < self.rows, row, row - self.rows)
        return row, column, before + part if self.batched else part
