"""Tiles of a matmul on Hopper, one after another in a program, as the kernels that multiply between ranks compute them: a warp
loads blocks of the operands by TMA, and two consumers, of a warpgroup each, multiply half of a tile's rows each.

All walk the same tiles in the same order and count blocks, `step`, through all of them, so that a tile's first blocks are
loaded while the tile before it is finished. The consumers wait for operands only, never for each other. Which tiles these are,
and what becomes of them, is the callers' business.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

CONSUMERS = gl.constexpr(2)


@gl.aggregate
class Blocks:
    """A ring of blocks of A and B in shared memory, with a barrier for each slot that is loaded, and one that is read."""

    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    free: gl.shared_memory_descriptor
    stages: gl.constexpr

    @staticmethod
    @jit
    def make(a_desc, b_desc, stages: gl.constexpr):
        """An empty ring."""
        a = gl.allocate_shared_memory(a_desc.dtype, [stages, *a_desc.block_type.shape], a_desc.layout)
        b = gl.allocate_shared_memory(b_desc.dtype, [stages, *b_desc.block_type.shape], b_desc.layout)
        ready = mbarrier.allocate_mbarrier(batch=stages)
        free = mbarrier.allocate_mbarrier(batch=stages)
        for slot in gl.static_range(stages):
            mbarrier.init(ready.index(slot), count=1)
            mbarrier.init(free.index(slot), count=CONSUMERS)
        return Blocks(a, b, ready, free, stages)

    @jit
    def load(self, a_desc, b_desc, row, column, step):
        """Load the blocks of a tile; returns the next step."""
        for k in range(0, a_desc.shape[1], a_desc.block_type.shape[1]):
            slot = step % self.stages
            mbarrier.wait(self.free.index(slot), (step // self.stages & 1) ^ 1)
            bar = self.ready.index(slot)
            mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            tma.async_load(a_desc, [row, k], bar, self.a.index(slot))
            tma.async_load(b_desc, [k, column], bar, self.b.index(slot))
            step += 1
        return step

    @jit
    def sums(self):
        """Zeros for the sums of a consumer's half of a tile."""
        shape: gl.constexpr = [self.a.shape[1] // CONSUMERS, self.b.shape[2]]
        layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, shape[1], 16])
        return gl.zeros(shape, gl.float32, layout)

    @jit
    def multiply(self, half: gl.constexpr, sums, steps, step):
        """The mainloop of `steps` blocks along K of a consumer's half of a tile; returns the accumulator and the next step."""
        rows: gl.constexpr = sums.shape[0]
        for k in range(steps):
            slot = step % self.stages
            mbarrier.wait(self.ready.index(slot), step // self.stages & 1)
            a = self.a.index(slot).slice(half * rows, rows, dim=0)
            sums = warpgroup_mma(a, self.b.index(slot), sums, is_async=True)
            sums = warpgroup_mma_wait(1, deps=(sums,))
            # The MMA before this one has read its operands.
            mbarrier.arrive(self.free.index((step + self.stages - 1) % self.stages), count=1, pred=k > 0)
            step += 1
        sums = warpgroup_mma_wait(0, deps=(sums,))
        mbarrier.arrive(self.free.index((step + self.stages - 1) % self.stages), count=1, pred=steps > 0)
        return sums, step


@jit
def grouped(tile, rows, columns, GROUP: gl.constexpr):
    """Row and column of a tile in a grid of tiles, of which GROUP rows are walked column by column: tiles that follow each
    other share operands in the L2 cache."""
    first = tile // (GROUP * columns) * GROUP
    size = min(rows - first, GROUP)
    inside = tile - first * columns
    return first + inside % size, inside // size


@jit
def first_of(hop, size, program, PROGRAMS: gl.constexpr):
    """The first item of a program in the `hop`-th of several lists of `size` items: programs have every PROGRAMS-th item of all
    lists put together."""
    return (program + PROGRAMS - hop * size % PROGRAMS) % PROGRAMS
