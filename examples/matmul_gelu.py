"""Matmul with an activation: C = gelu(A @ B) in one kernel, with accurate functions and with the GPU's approximate ones.

The epilogue of `matmul_warp_specialized.py`'s cooperative kernel applies the GELU, in its form with tanh, to the accumulator in
registers. CUDA's accurate tanh takes some twenty instructions an element, the hardware's (`fast_math=["tanh"]`) one, with a
relative error of 2^-11, the precision of the float16 that is stored.

    python examples/matmul_gelu.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import workbench
from matmul_parts import GroupedPersistentTileScheduler, accumulator_layout
from matmul_warp_specialized import BLOCK_K, PIECE, left_and_right, multiply, specialised_kernel, store_pair
from workbench import Place

import weft
from weft import language as gl
from weft.language.nvidia.hopper import mbarrier, tma, warpgroup_mma_wait
from weft.nvidia.hopper import TensorDescriptor


@weft.jit
def gelu(x):
    # x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), with the constants moved together.
    half = 0.5 * x
    return half + half * gl.tanh(x * (0.7978845608 + 0.0356774081 * x**2))


@weft.jit
def cooperate(
    c_desc, steps, a_bufs, b_bufs, c_bufs, ready, free, turn, scheduler,
    WHICH: gl.constexpr, num_buffers: gl.constexpr, layout: gl.constexpr, trace: gl.constexpr, log,
):  # fmt: skip
    acc = gl.zeros([64, 256], gl.float32, layout=layout)
    for idx in range(scheduler.get_num_tiles()):
        first = idx * steps
        pid_m, pid_n = scheduler.get_tile(idx)
        acc = multiply(acc, first, steps, a_bufs, b_bufs, ready, free, 64 * WHICH, 64, num_buffers)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(free.index((first + steps - 1) % num_buffers), count=1)
        row = pid_m * 128 + 64 * WHICH
        halves = left_and_right(acc)
        for i in gl.static_range(2):
            store_pair(c_desc, row, pid_n * 256 + 128 * i, gelu(halves[i]), c_bufs)
    tma.store_wait(pendings=0)


KERNELS = {
    "accurate": specialised_kernel,
    "approximate tanh": weft.jit(fast_math=["tanh"])(specialised_kernel.fn),
}


def matmul_gelu(A: Any, B: Any, C: Any, kernel: str = "approximate tanh", num_buffers: int = 4) -> Any:
    """C = gelu(A @ B) of matrices of one 16-bit type with contiguous rows; returns the compiled kernel."""
    dtype = getattr(gl, workbench.dtype_name(A))
    blocks = ((A, [128, BLOCK_K]), (B, [BLOCK_K, 256]), (C, [PIECE, PIECE]))
    descriptors = [
        TensorDescriptor.from_tensor(matrix, block, gl.NVMMASharedLayout.get_default_for(block, dtype))
        for matrix, block in blocks
    ]
    (M, N), layout = C.shape, accumulator_layout(dtype, 64, 256, 4)
    programs = min(workbench.multiprocessors(C), weft.cdiv(M, 128) * weft.cdiv(N, 256))
    constants = (cooperate, 2, GroupedPersistentTileScheduler(16), num_buffers)
    return KERNELS[kernel][(programs,)](*descriptors, *constants, layout, num_warps=4)


def exact(x: np.ndarray) -> np.ndarray:
    """The GELU in float64."""
    x = x.astype(np.float64)
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def row(place: Place, name: str) -> dict[str, Any]:
    """One line of the table: multiply, check, measure."""
    M, N, K = place.size(8192, 300), place.size(8192, 520), place.size(4096, 200)
    A, B = place.random(M, K, dtype="float16"), place.random(K, N, dtype="float16")
    C = place.poisoned(M, N, dtype="float16")
    compiled = matmul_gelu(A, B, C, name)
    rows = slice(0, 256)
    product = place.numpy(A)[rows].astype(np.float32) @ place.numpy(B).astype(np.float32)
    wanted = exact(product)
    error = np.abs(place.numpy(C)[rows].astype(np.float64) - wanted)
    assert (error <= 2e-3 + 2e-3 * np.abs(wanted)).all(), error.max()
    return {
        "kernel": name,
        "instructions": workbench.instructions(compiled),
        "registers": compiled.n_regs,
        "TFLOP/s": place.arithmetic(lambda: matmul_gelu(A, B, C, name), 2 * M * N * K),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, name) for name in KERNELS]
    workbench.report("Matmul with GELU, fp16, warp-specialized", rows, given.place, given.plot, "registers")


if __name__ == "__main__":
    main()
