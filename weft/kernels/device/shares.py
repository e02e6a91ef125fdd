"""Tiles that the CTAs of a cluster share: each multiplies a part of K, and they exchange the sums through shared memory.

A CTA adds up slices of the tile's columns, for which all CTAs send it their sums; so the exchange, the epilogue and the
stores are spread over the cluster, no sum passes through global memory, and sums are added in the order of K in every run.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.epilogue import Sums
from weft.kernels.device.rings import barriers_of
from weft.language.nvidia.hopper import async_store, mbarrier


@gl.aggregate
class Shares:
    """The sums that a consumer gets, [its slices * CTAs, rows, columns of a slice], and for each slice the barrier that counts
    their bytes; None unless CTAs share tiles. A program has one tile."""

    got: gl.shared_memory_descriptor | None
    bars: gl.shared_memory_descriptor | None
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(plan: gl.constexpr):
        """Buffers for one consumer."""
        got, bars = None, None
        if plan.shares > 1:
            rows: gl.constexpr = plan.block_m // plan.consumers
            shape: gl.constexpr = [plan.turns * plan.shares, rows, plan.stored]
            got, bars = gl.allocate_shared_memory(plan.acc_type, shape, plan.sums), barriers_of(plan.turns, 1)
        return Shares(got, bars, plan)

    @jit
    def store(self, target, acc, row, column, part, turn):
        """Store a tile: all of it, or of one that CTAs share this CTA's slices of the columns."""
        plan: gl.constexpr = self.plan
        if plan.shares == 1:
            target.store(Sums(acc), plan.rows // plan.consumers, row, column, part, turn)
        else:
            self.send(acc)
            layout: gl.constexpr = acc[:, : plan.stored].layout
            for turn in gl.static_range(plan.turns):
                # Beyond its last slice, or without any, a CTA has sent its sums and is done.
                if (turn + 1) * plan.receivers <= plan.slices and plan.receivers == plan.shares:
                    self.store_slice(turn, target, row, column, part, layout)
                else:
                    rank = gl.block_rank_in_cluster()
                    if rank < min(plan.slices - turn * plan.receivers, plan.receivers):
                        self.store_slice(turn, target, row, column, part, layout)

    @jit
    def send(self, acc):
        """Send each slice of the sums to the CTA that adds it."""
        plan: gl.constexpr = self.plan
        rank = gl.block_rank_in_cluster()
        for i in gl.static_range(plan.slices):
            turn: gl.constexpr = i // plan.receivers
            there = self.got.index(turn * plan.shares + rank).peer(i % plan.receivers)
            async_store(there, acc[:, i * plan.stored : (i + 1) * plan.stored], self.bars.index(turn))

    @jit
    def store_slice(self, turn: gl.constexpr, target, row, column, part, layout: gl.constexpr):
        """Store this CTA's slice number `turn`."""
        plan: gl.constexpr = self.plan
        number = column * plan.slices + turn * plan.receivers + gl.block_rank_in_cluster()
        total = self.added(turn, layout)
        target.store(Sums(total), plan.rows // plan.consumers, row, number, part, turn)

    @jit
    def added(self, turn: gl.constexpr, layout: gl.constexpr):
        """The sums of all CTAs for a slice, added in the order of K."""
        plan: gl.constexpr = self.plan
        bar, first = self.bars.index(turn), self.got.index(turn * plan.shares)
        mbarrier.expect(bar, plan.shares * first.nbytes_per_cta)
        mbarrier.wait(bar, 0, deps=[self.got])
        total = first.load(layout)
        for share in gl.static_range(1, plan.shares):
            total += self.got.index(turn * plan.shares + share).load(layout)
        return total
