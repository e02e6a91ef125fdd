"""Building blocks of matmul kernels: accumulators for Hopper and for Blackwell, operand buffers, tile schedulers.

The kernels of `matmul_ladder.py` take these classes as constexpr arguments, so that one kernel works with several of each. A
class holds the state that the loop carries, and its methods return the next state: aggregates are never modified in place.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import weft
from weft import language as gl
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    get_tmem_reg_layout,
    tcgen05_commit,
    tcgen05_mma,
    tensor_memory_descriptor,
)
from weft.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_accumulator, warpgroup_mma_wait


@weft.constexpr_function
def accumulator_layout(dtype, BLOCK_M, BLOCK_N, num_warps):
    """Warps along M while each gets 16 rows, then along N; the widest instruction that fits."""
    down = 4
    while down < num_warps and 16 * down < BLOCK_M:
        down *= 2
    across = num_warps // down
    return gl.NVMMADistributedLayout(
        version=[3, 0],
        warps_per_cta=[down, across],
        instr_shape=[16, min(BLOCK_N // across, 256), 256 // dtype.primitive_bitwidth],
    )


@weft.aggregate
class WGMMA:
    """The accumulator of asynchronous `wgmma`s, in registers. The next MMA overwrites it if `use_acc` is false."""

    acc: warpgroup_mma_accumulator | gl.tensor
    use_acc: gl.tensor

    def __init__(self, acc, use_acc):
        self.acc = acc
        self.use_acc = use_acc

    @weft.jit
    def initialize(dtype: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, num_warps: gl.constexpr):  # noqa: N805
        """An accumulator of BLOCK_M x BLOCK_N for operands of `dtype`."""
        layout: gl.constexpr = accumulator_layout(dtype, BLOCK_M, BLOCK_N, num_warps)
        return WGMMA(gl.zeros((BLOCK_M, BLOCK_N), dtype=gl.float32, layout=layout), gl.to_tensor(False))

    @weft.jit
    def issue_async_mma(self, a, b):
        """Issue the MMA of a and b."""
        acc = warpgroup_mma(a, b, self.acc, is_async=True, use_acc=self.use_acc)
        return WGMMA(acc, gl.to_tensor(True))

    @weft.jit
    def wait_num_outstanding(self, num_outstanding: gl.constexpr):
        """Wait until at most `num_outstanding` MMAs are in flight."""
        return WGMMA(warpgroup_mma_wait(num_outstanding, deps=(self.acc,)), self.use_acc)

    @weft.jit
    def take_result(self):
        """The result, and the state for the next tile in the same accumulator."""
        return self.acc, WGMMA(self.acc, gl.to_tensor(False))


@weft.aggregate
class MMAv5:
    """The same in tensor memory. MMAs are counted: each completes a phase of `bar`."""

    use_acc: gl.tensor
    acc_tmem: tensor_memory_descriptor
    bar: gl.shared_memory_descriptor
    counter: gl.tensor
    reg_layout: gl.constexpr

    def __init__(self, use_acc, acc_tmem, bar, counter, reg_layout):
        self.use_acc = use_acc
        self.acc_tmem = acc_tmem
        self.bar = bar
        self.counter = counter
        self.reg_layout = gl.constexpr(reg_layout)

    @weft.jit
    def initialize(dtype: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, num_warps: gl.constexpr):  # noqa: N805
        """An accumulator of BLOCK_M x BLOCK_N for operands of any type."""
        layout: gl.constexpr = TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1)
        acc_tmem = allocate_tensor_memory(gl.float32, [BLOCK_M, BLOCK_N], layout)
        bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        mbarrier.init(bar, count=1)
        # A thread holds a row, or parts of both halves of one: the halves can be stored one after the other.
        reg_layout: gl.constexpr = get_tmem_reg_layout(
            gl.float32, [BLOCK_M, BLOCK_N], layout, num_warps, instr_variant="32x32b_splitn"
        )
        return MMAv5(gl.to_tensor(False), acc_tmem, bar, gl.to_tensor(0), reg_layout)

    @weft.jit
    def issue_async_mma(self, a, b):
        """Issue the MMA of a and b."""
        tcgen05_mma(a, b, self.acc_tmem, use_acc=self.use_acc)
        tcgen05_commit(self.bar)
        return MMAv5(gl.to_tensor(True), self.acc_tmem, self.bar, self.counter + 1, self.reg_layout)

    @weft.jit
    def wait_num_outstanding(self, num_outstanding: gl.constexpr):
        """Wait until at most `num_outstanding` MMAs are in flight: 0, or 1 if every wait before was for 0 or 1 as well."""
        mbarrier.wait(self.bar, (self.counter - 1 - num_outstanding) & 1)
        return self

    @weft.jit
    def take_result(self):
        """The result, and the state for the next tile in the same accumulator."""
        fresh = MMAv5(gl.to_tensor(False), self.acc_tmem, self.bar, self.counter, self.reg_layout)
        return self.acc_tmem.load(self.reg_layout), fresh


def select_mma_impl():
    """The accumulator class for the current GPU, or for the simulated one if there is none."""
    return MMAv5 if weft.runtime.driver.active.get_current_target().arch >= 100 else WGMMA


@weft.aggregate
class PersistentTileScheduler:
    """Each program computes a contiguous range of tiles, numbered down the columns of tiles of C."""

    first: gl.tensor
    end: gl.tensor
    tiles_m: gl.tensor

    def __init__(self, first, end, tiles_m):
        self.first = first
        self.end = end
        self.tiles_m = tiles_m

    @weft.jit
    def initialize(M, N, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):  # noqa: N805
        """This program's tiles of an M x N matrix."""
        tiles_m = gl.cdiv(M, BLOCK_M)
        tiles = tiles_m * gl.cdiv(N, BLOCK_N)
        share = gl.cdiv(tiles, gl.num_programs(0))
        first = gl.program_id(0) * share
        return PersistentTileScheduler(first, min(first + share, tiles), tiles_m)

    @weft.jit
    def get_num_tiles(self):
        """The number of tiles; zero or negative if the programs before compute all tiles."""
        return self.end - self.first

    @weft.jit
    def get_tile(self, idx):
        """Row and column of tiles."""
        tile = self.first + idx
        return tile % self.tiles_m, tile // self.tiles_m


@cache
def GroupedPersistentTileScheduler(GROUP_SIZE_M):  # noqa: N802 it makes a class
    """A scheduler that assigns tiles round-robin, in bands of GROUP_SIZE_M rows of tiles, down the columns of a band.

    The tiles of a wave then lie near each other: they read few rows of A and few columns of B."""
    GROUP_SIZE_M = gl.constexpr(GROUP_SIZE_M)

    @weft.aggregate
    class Grouped:
        first: gl.tensor
        tiles_m: gl.tensor
        tiles_n: gl.tensor

        def __init__(self, first, tiles_m, tiles_n):
            self.first = first
            self.tiles_m = tiles_m
            self.tiles_n = tiles_n

        @weft.jit
        def initialize(M, N, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):  # noqa: N805
            return Grouped(gl.program_id(0), gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N))

        @weft.jit
        def get_num_tiles(self):
            return gl.cdiv(self.tiles_m * self.tiles_n - self.first, gl.num_programs(0))

        @weft.jit
        def get_tile(self, idx):
            tile = self.first + idx * gl.num_programs(0)
            in_band = GROUP_SIZE_M * self.tiles_n
            top = tile // in_band * GROUP_SIZE_M
            rows = min(self.tiles_m - top, GROUP_SIZE_M)  # the last band may have fewer rows
            place = tile % in_band
            return top + place % rows, place // rows

    # The name tells classes of different sizes apart, in the compiler and in reports.
    Grouped.__name__ = Grouped.__qualname__ = f"GroupedPersistentTileScheduler({GROUP_SIZE_M.value})"
    return Grouped


@weft.aggregate
class Operands:
    """Rings of buffers for tiles of A and B, and a barrier for each pair; there may be more buffers of B than of A."""

    a_desc: tma.tensor_descriptor
    b_desc: tma.tensor_descriptor
    bars: gl.shared_memory_descriptor
    a_bufs: gl.shared_memory_descriptor
    b_bufs: gl.shared_memory_descriptor
    num_buffers: gl.constexpr
    num_b_buffers: gl.constexpr

    def __init__(self, a_desc, b_desc, bars, a_bufs, b_bufs, num_buffers, num_b_buffers):
        self.a_desc = a_desc
        self.b_desc = b_desc
        self.bars = bars
        self.a_bufs = a_bufs
        self.b_bufs = b_bufs
        self.num_buffers = gl.constexpr(num_buffers)
        self.num_b_buffers = gl.constexpr(num_b_buffers)

    @weft.jit
    def allocate(
        a_desc: "Any",  # noqa: N805, UP037 - Gluon evaluates annotations, and knows no Any
        b_desc: tma.tensor_descriptor, bars: gl.shared_memory_descriptor,
        num_buffers: gl.constexpr, num_b_buffers: gl.constexpr,
    ):  # fmt: skip
        """The buffers for blocks of both descriptors."""
        BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
        BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
        BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
        a_bufs = gl.allocate_shared_memory(a_desc.dtype, [num_buffers, BLOCK_M, BLOCK_K], a_desc.layout)
        b_bufs = gl.allocate_shared_memory(b_desc.dtype, [num_b_buffers, BLOCK_K, BLOCK_N], b_desc.layout)
        return Operands(a_desc, b_desc, bars, a_bufs, b_bufs, num_buffers, num_b_buffers)

    @weft.jit
    def issue_loads(self, producer, off_m, off_n, k, pred=True):
        """Issue the loads of step `producer` if `pred` holds; returns the next step."""
        slot = producer % self.num_buffers
        bar = self.bars.index(slot)
        b_buf = self.b_bufs.index(producer % self.num_b_buffers)
        mbarrier.expect(bar, self.a_desc.block_type.nbytes + self.b_desc.block_type.nbytes, pred=pred)
        tma.async_copy_global_to_shared(self.a_desc, [off_m, k], bar, self.a_bufs.index(slot), pred=pred)
        tma.async_copy_global_to_shared(self.b_desc, [k, off_n], bar, b_buf, pred=pred)
        return producer + 1

    @weft.jit
    def issue_mma(self, consumer, mma):
        """Wait for the operands of step `consumer` and issue its MMA; returns the next step. The MMA before is complete."""
        slot = consumer % self.num_buffers
        mbarrier.wait(self.bars.index(slot), consumer // self.num_buffers & 1)
        mma = mma.wait_num_outstanding(0)
        mma = mma.issue_async_mma(self.a_bufs.index(slot), self.b_bufs.index(consumer % self.num_b_buffers))
        return consumer + 1, mma
