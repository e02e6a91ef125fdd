"""Matmul C = A @ B on Blackwell with warp specialization: one producer warp, one MMA warp, four epilogue warps.

Accumulators are in tensor memory, so the epilogue warps load and store a tile while the next one accumulates in the other half
of tensor memory. The source has four variants:

- a static schedule of tiles, or a dynamic one (`clc`, cluster launch control: a program that is done claims the tile of a
  program that has not been launched yet);
- one CTA for each tile of 128x256, or a pair of CTAs for each tile of 256x256 (`two_ctas`): each loads
  half of A and half of B, and their tensor cores read the other half of B from each other's shared memory.

Operands have 16 or 8 bits; BLOCK_K is 128 bytes of them.

    python examples/matmul_blackwell.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import workbench
from workbench import Place

import weft
from weft import language as gl
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    clc,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)
from weft.nvidia.hopper import TensorDescriptor

ROW_BYTES = 128
"""Bytes of the widest swizzle: BLOCK_K of A, and the width of a TMA store of C, in bytes."""
RESPONSES = gl.constexpr(3)
"""Stages for CLC responses: one more than accumulators, so that a request does not wait for an epilogue."""


@weft.aggregate
class PipelineState:
    """The stage of a ring buffer that is next, and the parity of its phase, which flips with each pass over the ring."""

    stage: gl.tensor
    phase: gl.tensor
    stages: gl.constexpr

    def __init__(self, stage, phase, stages):
        self.stage = stage
        self.phase = phase
        self.stages = gl.constexpr(stages)

    @weft.jit
    def start(stages: gl.constexpr):  # noqa: N805
        """Stage 0 of the first pass."""
        return PipelineState(gl.to_tensor(0), gl.to_tensor(0), stages)

    @weft.jit
    def next(self):
        """The next stage."""
        last = self.stage == self.stages - 1
        return PipelineState(gl.where(last, 0, self.stage + 1), self.phase ^ last.to(gl.int32), self.stages)


@weft.aggregate
class StaticScheduler:
    """Static persistent scheduler: each of n programs computes every n-th tile."""

    tile: gl.tensor
    tiles: gl.tensor

    def __init__(self, tile, tiles):
        self.tile = tile
        self.tiles = tiles

    @weft.jit
    def prepare(pairs: gl.constexpr):  # noqa: N805
        """The state that partitions share: none."""

    @weft.jit
    def start(shared, tiles):  # noqa: N805
        """The first tile."""
        return StaticScheduler(gl.program_id(0), tiles)

    @weft.jit
    def valid(self):
        """Whether there is a tile."""
        return self.tile < self.tiles

    @weft.jit
    def request_next(self):
        """No request is needed for the next tile."""

    @weft.jit
    def next(self):
        """The next tile."""
        return StaticScheduler(self.tile + gl.num_programs(0), self.tiles)


@weft.aggregate
class ClcResponses:
    """Ring of CLC responses, with two barriers per stage: the response has landed, and all partitions have read it."""

    results: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    read: gl.shared_memory_descriptor

    def __init__(self, results, ready, read):
        self.results = results
        self.ready = ready
        self.read = read


@weft.aggregate
class ClcScheduler:
    """Dynamic scheduler (cluster launch control): one program per tile; running programs claim the tiles of unlaunched ones."""

    tile: gl.tensor
    claimed: gl.tensor
    state: PipelineState
    responses: ClcResponses

    def __init__(self, tile, claimed, state, responses):
        self.tile = tile
        self.claimed = claimed
        self.state = state
        self.responses = responses

    @weft.jit
    def prepare(pairs: gl.constexpr):  # noqa: N805
        """The ring of responses. Three partitions read each; the first CTA of a pair requests for both, so both arrive."""
        results = gl.allocate_shared_memory(gl.int64, [RESPONSES, 2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
        return ClcResponses(results, barriers(RESPONSES, 1), barriers(RESPONSES, 3, pairs))

    @weft.jit
    def start(shared, tiles):  # noqa: N805
        """The program's own tile."""
        return ClcScheduler(gl.program_id(0), gl.to_tensor(True), PipelineState.start(RESPONSES), shared)

    @weft.jit
    def valid(self):
        """Whether there is a tile."""
        return self.claimed

    @weft.jit
    def request_next(self):
        """Request the tile after this one; only one partition calls this."""
        bar = self.responses.ready.index(self.state.stage)
        mbarrier.wait(self.responses.read.index(self.state.stage), self.state.phase ^ 1)
        mbarrier.expect(bar, 16)
        clc.try_cancel(self.responses.results.index(self.state.stage), bar, multicast=True)

    @weft.jit
    def next(self):
        """The tile that was claimed."""
        mbarrier.wait(self.responses.ready.index(self.state.stage), self.state.phase)
        response = clc.load_result(self.responses.results.index(self.state.stage))
        mbarrier.arrive(self.responses.read.index(self.state.stage), count=1)
        return ClcScheduler(response.program_id(0), response.is_canceled(), self.state.next(), self.responses)


@weft.jit
def barriers(number: gl.constexpr, count: gl.constexpr, two_ctas: gl.constexpr = False):
    bars = mbarrier.allocate_mbarrier(batch=number, two_ctas=two_ctas)
    for i in gl.static_range(number):
        mbarrier.init(bars.index(i), count=count)
    return bars


@weft.jit
def position(tile, tiles_m, tiles_n, GROUP: gl.constexpr):
    # Bands of GROUP rows of tiles, down the columns of a band: tiles of a wave read the same blocks.
    in_band = GROUP * tiles_n
    top = tile // in_band * GROUP
    rows = min(tiles_m - top, GROUP)
    return top + tile % in_band % rows, tile % in_band // rows


@weft.jit
def load_blocks(
    a_desc, b_desc, a_bufs, b_bufs, ready, free, shared, tiles_m, tiles_n, Scheduler: gl.constexpr, GROUP: gl.constexpr
):
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    state = PipelineState.start(a_bufs.shape[0])
    tiles = Scheduler.start(shared, tiles_m * tiles_n)
    while tiles.valid():
        tiles.request_next()
        row, column = position(tiles.tile, tiles_m, tiles_n, GROUP)
        for k in range(0, a_desc.shape[1], BLOCK_K):
            # A buffer that was never filled is free: on a new barrier the phase before phase 0 counts as complete.
            mbarrier.wait(free.index(state.stage), state.phase ^ 1)
            bar = ready.index(state.stage)
            mbarrier.expect(bar, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
            tma.async_copy_global_to_shared(a_desc, [row * BLOCK_M, k], bar, a_bufs.index(state.stage))
            tma.async_copy_global_to_shared(b_desc, [k, column * BLOCK_N], bar, b_bufs.index(state.stage))
            state = state.next()
        tiles = tiles.next()


@weft.jit
def multiply(a_bufs, b_bufs, accs, ready, free, full, empty, shared, tiles, steps, Scheduler: gl.constexpr):
    state = PipelineState.start(a_bufs.shape[0])
    acc_state = PipelineState.start(accs.shape[0])
    tiles = Scheduler.start(shared, tiles)
    while tiles.valid():
        mbarrier.wait(empty.index(acc_state.stage), acc_state.phase ^ 1)
        acc = accs.index(acc_state.stage)
        for k in range(steps):
            mbarrier.wait(ready.index(state.stage), state.phase)
            tcgen05_mma(a_bufs.index(state.stage), b_bufs.index(state.stage), acc, use_acc=k > 0)
            # The buffers are free, in both CTAs of a pair, when the MMA has read them.
            tcgen05_commit(free.index(state.stage))
            state = state.next()
        tcgen05_commit(full.index(acc_state.stage))
        acc_state = acc_state.next()
        tiles = tiles.next()


@weft.jit
def result_buffers(c_desc, BLOCK_N: gl.constexpr):
    # Two, which the pieces of a tile (a power of two of them) use alternately; one if a tile is one piece.
    PIECES: gl.constexpr = BLOCK_N // c_desc.block_type.shape[1]
    return gl.allocate_shared_memory(c_desc.dtype, [min(PIECES, 2), *c_desc.block_type.shape], c_desc.layout)


@weft.jit
def store_tiles(
    c_desc, c_bufs, accs, full, empty, shared, tiles_m, tiles_n, Scheduler: gl.constexpr, GROUP: gl.constexpr
):
    BLOCK_M: gl.constexpr = c_desc.block_type.shape[0]
    PIECE: gl.constexpr = c_desc.block_type.shape[1]
    BLOCK_N: gl.constexpr = accs.shape[2]
    BUFFERS: gl.constexpr = c_bufs.shape[0]
    acc_state = PipelineState.start(accs.shape[0])
    tiles = Scheduler.start(shared, tiles_m * tiles_n)
    while tiles.valid():
        row, column = position(tiles.tile, tiles_m, tiles_n, GROUP)
        mbarrier.wait(full.index(acc_state.stage), acc_state.phase)
        acc = accs.index(acc_state.stage)
        for i in gl.static_range(BLOCK_N // PIECE):
            piece = acc.slice(i * PIECE, PIECE, dim=1).load()
            if i == BLOCK_N // PIECE - 1:
                # The whole accumulator has been loaded to registers: the tile after the next may accumulate in its place.
                mbarrier.arrive(empty.index(acc_state.stage), count=1)
            # A buffer is overwritten only after its last store has read it.
            tma.store_wait(pendings=BUFFERS - 1)
            c_buf = c_bufs.index(i % BUFFERS)
            c_buf.store(piece.to(c_desc.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(c_desc, [row * BLOCK_M, column * BLOCK_N + i * PIECE], c_buf)
        acc_state = acc_state.next()
        tiles = tiles.next()
    tma.store_wait(pendings=0)


@weft.jit
def matmul_kernel(
    a_desc,
    b_desc,
    c_desc,
    acc_layout: gl.constexpr,
    Scheduler: gl.constexpr,
    GROUP: gl.constexpr,
    num_buffers: gl.constexpr,
):
    """C = A @ B; a program computes one tile after another, each of the shape of the accumulator."""
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    PAIRS: gl.constexpr = acc_layout.two_ctas
    dtype: gl.constexpr = a_desc.dtype
    a_bufs = gl.allocate_shared_memory(dtype, [num_buffers, BLOCK_M, BLOCK_K], a_desc.layout)
    b_bufs = gl.allocate_shared_memory(dtype, [num_buffers, BLOCK_K, BLOCK_N], b_desc.layout)
    c_bufs = result_buffers(c_desc, BLOCK_N)
    accs = allocate_tensor_memory(gl.float32, [2, BLOCK_M, BLOCK_N], acc_layout)
    # CTAs of a pair share the barriers on which the first of them waits, since it issues the MMAs of both.
    ready = barriers(num_buffers, 1, PAIRS)
    empty = barriers(2, 1, PAIRS)
    free = barriers(num_buffers, 1)
    full = barriers(2, 1)
    shared = Scheduler.prepare(PAIRS)
    tiles_m, tiles_n = gl.cdiv(c_desc.shape[0], BLOCK_M), gl.cdiv(c_desc.shape[1], BLOCK_N)
    steps = gl.cdiv(a_desc.shape[1], BLOCK_K)
    gl.warp_specialize(
        [
            (store_tiles, (c_desc, c_bufs, accs, full, empty, shared, tiles_m, tiles_n, Scheduler, GROUP)),
            (load_blocks, (a_desc, b_desc, a_bufs, b_bufs, ready, free, shared, tiles_m, tiles_n, Scheduler, GROUP)),
            (multiply, (a_bufs, b_bufs, accs, ready, free, full, empty, shared, tiles_m * tiles_n, steps, Scheduler)),
        ],
        [1, 1],
    )


def describe(matrix: Any, block: Sequence[int], cga: Any) -> TensorDescriptor:
    """A descriptor of a matrix in blocks; `cga` says how the CTAs of a pair split each block."""
    dtype = getattr(gl, workbench.gl_name(matrix))
    layout = gl.NVMMASharedLayout.get_default_for(list(block), dtype, cga_layout=cga)
    return TensorDescriptor.from_tensor(matrix, list(block), layout)


def matmul(
    A: Any, B: Any, C: Any, two_ctas: bool = False, clc: bool = False, num_buffers: int | None = None,
    BLOCK_M: int = 128, BLOCK_N: int = 256, GROUP_SIZE_M: int = 8,
) -> Any:  # fmt: skip
    """C = A @ B of matrices with contiguous rows, A and B of one type of 8 or 16 bits; returns the compiled kernel.

    A CTA has BLOCK_M rows of the accumulator and all of its BLOCK_N columns. There are as many buffers as fit in shared memory:
    in a pair each holds half as much of B."""
    (M, N), blocks = C.shape, 2 if two_ctas else 1
    rows, BLOCK_K = BLOCK_M * blocks, ROW_BYTES // A.itemsize
    down, across = ([[1, 0]], [[0, 1]]) if two_ctas else (None, None)
    tiles = weft.cdiv(M, rows) * weft.cdiv(N, BLOCK_N)
    programs = tiles if clc else min(workbench.multiprocessors(C) // blocks, tiles)
    return matmul_kernel[(programs,)](
        describe(A, [rows, BLOCK_K], down),
        describe(B, [BLOCK_K, BLOCK_N], across),
        describe(C, [rows, min(ROW_BYTES // C.itemsize, BLOCK_N)], down),
        TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1, cga_layout=down, two_ctas=two_ctas),
        ClcScheduler if clc else StaticScheduler,
        GROUP_SIZE_M,
        num_buffers or (6 if two_ctas else 4),
        num_warps=4,
        num_ctas=blocks,
    )


RUNS: dict[str, dict[str, Any]] = {
    "fixed tiles": {},
    "claimed tiles": {"clc": True},
    "fixed tiles, pairs": {"two_ctas": True},
    "claimed tiles, pairs": {"two_ctas": True, "clc": True},
}
ROWS = [*((name, "float16") for name in RUNS), ("claimed tiles, pairs", "float8_e4m3fn")]


def row(place: Place, name: str, dtype: str) -> dict[str, Any]:
    """One line of the table: multiply, check, measure."""
    M, N, K = place.size(8192, 300), place.size(8192, 272), place.size(4096, 208)
    A, B = place.random(M, K, dtype=dtype), place.random(K, N, dtype=dtype)
    C = place.poisoned(M, N, dtype="float16")
    compiled = matmul(A, B, C, **RUNS[name])
    place.check_product(C, A, B)
    return {
        "kernel": name,
        "elements": dtype,
        "shared bytes": compiled.shared,
        "registers": compiled.n_regs,
        "TFLOP/s": place.arithmetic(lambda: matmul(A, B, C, **RUNS[name]), 2 * M * N * K),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    place = workbench.place_of(simulated=given.sim or not workbench.has_tensor_memory())
    with weft.simulate(target="sm_100a"):
        rows = [row(place, name, dtype) for name, dtype in ROWS]
    workbench.report("Matmul in tensor memory", rows, place, given.plot, "shared bytes")


if __name__ == "__main__":
    main()
