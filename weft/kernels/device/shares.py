"""Tiles that the CTAs of a cluster share: each multiplies a part of K, and they exchange the sums through shared memory.

A CTA adds up a slice of the tile's columns, for which all CTAs send it their sums; so the exchange, the epilogue and the
stores are spread over the cluster, no sum passes through global memory, and sums are added in the order of K in every run.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.epilogue import Sums
from weft.language.nvidia.hopper import async_store, mbarrier


@gl.aggregate
class Shares:
    """The sums that a consumer gets, [CTAs, its rows, columns of a slice], and the barrier that counts their bytes; None
    unless CTAs share tiles. A program has one tile."""

    got: gl.shared_memory_descriptor | None
    bar: gl.shared_memory_descriptor | None
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(plan: gl.constexpr):
        """Buffers for one consumer."""
        got, bar = None, None
        if plan.shares > 1:
            rows: gl.constexpr = plan.block_m // plan.consumers
            got = gl.allocate_shared_memory(plan.acc_type, [plan.shares, rows, plan.stored], plan.sums)
            bar = mbarrier.allocate_mbarrier()
            mbarrier.init(bar, count=1)
        return Shares(got, bar, plan)

    @jit
    def store(self, target, acc, row, column, part, turn):
        """Store a tile: all of it, or of one that CTAs share this CTA's slice of the columns."""
        plan: gl.constexpr = self.plan
        rows: gl.constexpr = acc.shape[0]
        if plan.shares == 1:
            target.store(Sums(acc), rows, row, column, part, turn)
        elif plan.receivers == plan.shares:
            self.send(acc)
            target.store(Sums(self.added(acc)), rows, row, self.slice(column), part, turn)
        else:
            self.send(acc)
            if gl.block_rank_in_cluster() < plan.receivers:
                target.store(Sums(self.added(acc)), rows, row, self.slice(column), part, turn)

    @jit
    def slice(self, column):
        """The number of this CTA's slice in a column of tiles."""
        return column * self.plan.receivers + gl.block_rank_in_cluster()

    @jit
    def send(self, acc):
        """Send each slice of the sums to the CTA that adds it."""
        plan: gl.constexpr = self.plan
        here = self.got.index(gl.block_rank_in_cluster())
        for to in gl.static_range(plan.receivers):
            async_store(here.peer(to), acc[:, to * plan.stored : (to + 1) * plan.stored], self.bar)

    @jit
    def added(self, acc):
        """The sums of all CTAs for this one's slice, added in the order of K."""
        plan: gl.constexpr = self.plan
        mbarrier.expect(self.bar, plan.shares * self.got.index(0).nbytes_per_cta)
        layout: gl.constexpr = acc[:, : plan.stored].layout
        mbarrier.wait(self.bar, 0, deps=[self.got])
        total = self.got.index(0).load(layout)
        for share in gl.static_range(1, plan.shares):
            total += self.got.index(share).load(layout)
        return total
