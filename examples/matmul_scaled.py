"""Block-scaled matmul C = A @ B.T on Blackwell: each run of 16 or 32 elements along K has its own scale.

Elements have 8 bits (mxfp8) or 4 (mxfp4, nvfp4), scales have 8, and the tensor cores multiply by them. Scales are loaded like
elements, by TMA to shared memory, and `tcgen05_copy` then copies them to tensor memory. An MMA is ordered after the copies
that its thread has issued before, so the kernel needs no wait for them. The rest is as in `matmul_blackwell.py`: this kernel
uses its schedulers and its epilogue warps.

    python examples/matmul_scaled.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import workbench
from matmul_blackwell import (
    ROW_BYTES,
    ClcScheduler,
    PipelineState,
    StaticScheduler,
    barriers,
    describe,
    position,
    result_buffers,
    store_tiles,
)
from workbench import Place

import weft
from weft import language as gl
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma_scaled,
    tensor_memory_descriptor,
    tma,
)
from weft.nvidia.hopper import TensorDescriptor

BLOCK_M = 128


@weft.aggregate
class Operand:
    """Operand A or B: elements and scales in global memory, buffers for blocks of both, and scales in tensor memory."""

    desc: tma.tensor_descriptor
    scales_desc: tma.tensor_descriptor
    bufs: gl.shared_memory_descriptor
    scales_bufs: gl.shared_memory_descriptor
    scales: tensor_memory_descriptor
    kind: gl.constexpr

    def __init__(self, desc, scales_desc, bufs, scales_bufs, scales, kind):
        self.desc = desc
        self.scales_desc = scales_desc
        self.bufs = bufs
        self.scales_bufs = scales_bufs
        self.scales = scales
        self.kind = gl.constexpr(kind)

    @weft.jit
    def allocate(
        desc: "Any",  # noqa: N805, UP037 - Gluon evaluates annotations, and knows no Any
        scales_desc: tma.tensor_descriptor, kind: gl.constexpr,
        scales_layout: gl.constexpr, num_buffers: gl.constexpr,
    ):  # fmt: skip
        """Buffers for the blocks of the descriptors."""
        ROWS: gl.constexpr = desc.block_type.shape[0]
        RUNS: gl.constexpr = 4 * scales_desc.block_type.shape[1]
        bufs = gl.allocate_shared_memory(desc.dtype, [num_buffers, *desc.block_type.shape], desc.layout)
        scales_bufs = gl.allocate_shared_memory(
            scales_desc.dtype, [num_buffers, *scales_desc.block_type.shape], scales_desc.layout
        )
        scales = allocate_tensor_memory(scales_desc.dtype, [ROWS, RUNS], scales_layout)
        return Operand(desc, scales_desc, bufs, scales_bufs, scales, kind)

    @weft.jit
    def nbytes(self):
        """Bytes of one `load`."""
        return self.desc.nbytes_per_cta + self.scales_desc.nbytes_per_cta

    @weft.jit
    def load(self, row, step, bar, stage):
        """Issue the loads of the rows of a tile and of their scales."""
        ROWS: gl.constexpr = self.desc.block_type.shape[0]
        BYTES: gl.constexpr = self.desc.block_type.shape[1]
        WORDS: gl.constexpr = self.scales_desc.block_type.shape[1]
        tma.async_copy_global_to_shared(self.desc, [row * ROWS, step * BYTES], bar, self.bufs.index(stage))
        scales = self.scales_bufs.index(stage)
        tma.async_copy_global_to_shared(self.scales_desc, [row * (ROWS // 128), step * WORDS, 0, 0], bar, scales)

    @weft.jit
    def copy_scales(self, stage):
        """Issue the copies of scales to tensor memory, in blocks of 128 rows, each 32 x 16 bytes: 4 rows by 4 scales."""
        BLOCKS: gl.constexpr = self.scales_desc.block_type.shape[0]
        WORDS: gl.constexpr = self.scales_desc.block_type.shape[1]
        blocks = self.scales_bufs.index(stage).reshape([BLOCKS, WORDS, 32, 4, 4]).permute([0, 3, 2, 1, 4])
        tcgen05_copy(blocks.reshape([BLOCKS * 128, WORDS * 4]), self.scales)


@weft.jit
def load_blocks(a, b, ready, free, shared, tiles_m, tiles_n, steps, Scheduler: gl.constexpr, GROUP: gl.constexpr):
    state = PipelineState.start(a.bufs.shape[0])
    tiles = Scheduler.start(shared, tiles_m * tiles_n)
    while tiles.valid():
        tiles.request_next()
        row, column = position(tiles.tile, tiles_m, tiles_n, GROUP)
        for step in range(steps):
            mbarrier.wait(free.index(state.stage), state.phase ^ 1)
            bar = ready.index(state.stage)
            mbarrier.expect(bar, a.nbytes() + b.nbytes())
            a.load(row, step, bar, state.stage)
            b.load(column, step, bar, state.stage)
            state = state.next()
        tiles = tiles.next()


@weft.jit
def multiply(a, b, accs, ready, free, full, empty, shared, tiles, steps, Scheduler: gl.constexpr):
    state = PipelineState.start(a.bufs.shape[0])
    acc_state = PipelineState.start(accs.shape[0])
    tiles = Scheduler.start(shared, tiles)
    while tiles.valid():
        mbarrier.wait(empty.index(acc_state.stage), acc_state.phase ^ 1)
        acc = accs.index(acc_state.stage)
        for step in range(steps):
            mbarrier.wait(ready.index(state.stage), state.phase)
            # The last MMA may still read scales, but copies and MMAs of a thread are executed in order.
            a.copy_scales(state.stage)
            b.copy_scales(state.stage)
            tcgen05_mma_scaled(
                a.bufs.index(state.stage), b.bufs.index(state.stage).permute([1, 0]), acc, a.scales, b.scales, a.kind, b.kind,
                use_acc=step > 0,
            )  # fmt: skip
            tcgen05_commit(free.index(state.stage))
            state = state.next()
        tcgen05_commit(full.index(acc_state.stage))
        acc_state = acc_state.next()
        tiles = tiles.next()


@weft.jit
def matmul_scaled_kernel(
    a_desc, a_scales_desc, b_desc, b_scales_desc, c_desc,
    acc_layout: gl.constexpr, a_kind: gl.constexpr, b_kind: gl.constexpr,
    Scheduler: gl.constexpr, GROUP: gl.constexpr, num_buffers: gl.constexpr,
):  # fmt: skip
    """C = A @ B.T; a tile of C has as many rows and columns as the blocks of A and B have rows."""
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[0]
    # Two accumulators of 256 columns would leave no room for scales.
    num_accs: gl.constexpr = 2 if BLOCK_N < 256 else 1
    PAIRS: gl.constexpr = acc_layout.two_ctas
    # A CTA of a pair multiplies half of the rows of A by all of B: it needs the scales of those rows, and all scales of B.
    a_scales: gl.constexpr = TensorMemoryScalesLayout(cga_layout=[[1, 0]] if PAIRS else None)
    b_scales: gl.constexpr = TensorMemoryScalesLayout(cga_layout=[[0, 0]] if PAIRS else None)
    a = Operand.allocate(a_desc, a_scales_desc, a_kind, a_scales, num_buffers)
    b = Operand.allocate(b_desc, b_scales_desc, b_kind, b_scales, num_buffers)
    c_bufs = result_buffers(c_desc, BLOCK_N)
    accs = allocate_tensor_memory(gl.float32, [num_accs, BLOCK_M, BLOCK_N], acc_layout)
    ready = barriers(num_buffers, 1, PAIRS)
    free = barriers(num_buffers, 1)
    full = barriers(num_accs, 1)
    empty = barriers(num_accs, 1, PAIRS)
    shared = Scheduler.prepare(PAIRS)
    tiles_m, tiles_n = gl.cdiv(c_desc.shape[0], BLOCK_M), gl.cdiv(c_desc.shape[1], BLOCK_N)
    steps = gl.cdiv(a_desc.shape[1], a_desc.block_type.shape[1])
    gl.warp_specialize(
        [
            (store_tiles, (c_desc, c_bufs, accs, full, empty, shared, tiles_m, tiles_n, Scheduler, GROUP)),
            (load_blocks, (a, b, ready, free, shared, tiles_m, tiles_n, steps, Scheduler, GROUP)),
            (multiply, (a, b, accs, ready, free, full, empty, shared, tiles_m * tiles_n, steps, Scheduler)),
        ],
        [1, 1],
    )


class Quantised(NamedTuple):
    """A matrix [rows, K] on its device: elements (two of 4 bits to a byte), and scales [rows / 128, K / run / 4, 32, 16]."""

    elements: Any
    scales: Any
    kind: str
    run: int
    """Elements per scale."""


def quantised(place: Place, x: Any, name: str) -> tuple[Quantised, Any]:
    """A host matrix quantised to "mxfp8e4m3", "mxfp8e5m2", "mxfp4" or "nvfp4", and the values that it represents."""
    from weft.nvidia.scaled import KINDS, quantise, scale_blocks

    scaled = quantise(x, name)
    blocks = scale_blocks(scaled.scales)
    elements, scales = place.array(scaled.elements), place.array(blocks.reshape(*blocks.shape[:3], 16))
    return Quantised(elements, scales, scaled.element, KINDS[name].run), scaled.values()


def describe_scaled(
    x: Quantised, rows: int, k: int, padded: bool, cga: Any, scales_cga: Any
) -> tuple[TensorDescriptor, TensorDescriptor]:
    """Descriptors of blocks of `rows` rows and `k` elements, and of their scales, with the split over a pair of CTAs."""
    layout = gl.NVMMASharedLayout(ROW_BYTES, 8, 2, fp4_padded=padded, cga_layout=cga)
    words = [rows // 128, k // x.run // 4, 32, 16]
    return (
        TensorDescriptor.from_tensor(x.elements, [rows, k // 2 if x.kind == "e2m1" else k], layout),
        TensorDescriptor.from_tensor(x.scales, words, gl.NVMMASharedLayout(0, 8, 4, cga_layout=scales_cga)),
    )


def matmul_scaled(
    A: Quantised, B: Quantised, C: Any, two_ctas: bool = False, clc: bool = False, num_buffers: int | None = None,
    BLOCK_N: int = 256, GROUP_SIZE_M: int = 8,
) -> Any:  # fmt: skip
    """C = A @ B.T; returns the compiled kernel. 4-bit elements that meet an 8-bit operand are padded to its size."""
    (M, N), blocks = C.shape, 2 if two_ctas else 1
    rows = BLOCK_M * blocks
    BLOCK_K = 2 * ROW_BYTES if A.kind == B.kind == "e2m1" else ROW_BYTES
    down, of_a, of_b = ([[1, 0]], [[1, 0, 0, 0]], [[0, 0, 0, 0]]) if two_ctas else (None, None, None)
    pad_a, pad_b = (x.kind == "e2m1" and A.kind != B.kind for x in (A, B))
    tiles = weft.cdiv(M, rows) * weft.cdiv(N, BLOCK_N)
    programs = tiles if clc else min(workbench.multiprocessors(C) // blocks, tiles)
    return matmul_scaled_kernel[(programs,)](
        *describe_scaled(A, rows, BLOCK_K, pad_a, down, of_a),
        *describe_scaled(B, BLOCK_N, BLOCK_K, pad_b, down, of_b),
        describe(C, [rows, min(ROW_BYTES // C.itemsize, BLOCK_N)], down),
        TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1, cga_layout=down, two_ctas=two_ctas),
        A.kind,
        B.kind,
        ClcScheduler if clc else StaticScheduler,
        GROUP_SIZE_M,
        num_buffers or (5 if two_ctas or BLOCK_N < 256 else 3),
        num_warps=4,
        num_ctas=blocks,
    )


FORMATS = [("mxfp8e4m3", "mxfp8e4m3"), ("mxfp8e4m3", "mxfp4"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4")]
ROWS = [(FORMATS[0], False), *((formats, True) for formats in FORMATS)]


def check(place: Place, C: Any, a: Any, b: Any) -> None:
    """Raise AssertionError unless C, of fp16 or more, is a @ b.T, summed in float32 and rounded once."""
    c, want, terms = place.numpy(C).astype("float64"), a @ b.T, abs(a) @ abs(b).T
    wrong = int((~(abs(c - want) <= 1.01 * 2.0**-11 * abs(want) + 2.0**-20 * terms)).sum())
    assert not wrong, f"{wrong} elements of the product are wrong"


def row(place: Place, formats: tuple[str, str], two_ctas: bool) -> dict[str, Any]:
    """One line of the table: multiply, check, measure."""
    M, N, K = place.size(8192, 300), place.size(8192, 328), place.size(4096, 384)
    (A, a), (B, b) = (
        quantised(place, Place(gpu=False).random(rows, K), name) for rows, name in zip((M, N), formats, strict=True)
    )
    C = place.poisoned(M, N, dtype="float16")
    compiled = matmul_scaled(A, B, C, two_ctas=two_ctas)
    check(place, C, a, b)
    return {
        "A": formats[0],
        "B": formats[1],
        "blocks": 2 if two_ctas else 1,
        "shared bytes": compiled.shared,
        "registers": compiled.n_regs,
        "TFLOP/s": place.arithmetic(lambda: matmul_scaled(A, B, C, two_ctas=two_ctas), 2 * M * N * K),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    place = workbench.place_of(simulated=given.sim or not workbench.has_tensor_memory())
    with weft.simulate(target="sm_100a"):
        rows = [row(place, formats, two_ctas) for formats, two_ctas in ROWS]
    workbench.report("Block-scaled matmul", rows, place, given.plot, "shared bytes")


if __name__ == "__main__":
    main()
