"""Rows gathered and scattered by index: dst[targets[i]] = src[sources[i]], as embeddings and mixtures of experts need it.

TMA on Blackwell takes row numbers, four per instruction: it gathers rows to a tile in shared memory and scatters them from
there, and no element passes through registers. The stores of some columns overlap with the loads of the next.

    python examples/tma_gather.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import workbench
from workbench import Place

import weft
from weft import language as gl
from weft.language.nvidia.blackwell import mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor


@weft.jit
def by_threads_kernel(
    src, dst, sources, targets, n, columns, src_stride, dst_stride,
    ROWS: gl.constexpr, COLUMNS: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    i = gl.program_id(0) * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    source = gl.load(sources + i, mask=i < n, other=0)[:, None]
    target = gl.load(targets + i, mask=i < n, other=0)[:, None]
    for column in range(0, columns, COLUMNS):
        j = (column + gl.arange(0, COLUMNS, gl.SliceLayout(0, layout)))[None, :]
        mask = (i < n)[:, None] & (j < columns)
        gl.store(dst + target * dst_stride + j, gl.load(src + source * src_stride + j, mask=mask), mask=mask)


@weft.jit
def gather(src_desc, rows, step, bars, bufs, pred):
    slot = step % bufs.shape[0]
    mbarrier.expect(bars.index(slot), bufs.shape[1] * src_desc.block_type.nbytes, pred=pred)
    column = step * src_desc.block_type.shape[1]
    tma.async_gather(src_desc, rows, column, bars.index(slot), bufs.index(slot), pred=pred)


@weft.jit
def by_tma_kernel(
    src_desc, dst_desc, sources, targets, n, ROWS: gl.constexpr, num_buffers: gl.constexpr, layout: gl.constexpr
):  # fmt: skip
    COLUMNS: gl.constexpr = src_desc.block_type.shape[1]
    bufs = gl.allocate_shared_memory(src_desc.dtype, [num_buffers, ROWS, COLUMNS], src_desc.layout)
    bars = gl.allocate_shared_memory(gl.int64, [num_buffers, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(num_buffers):
        mbarrier.init(bars.index(slot), count=1)
    # Rows outside of a matrix are read as zeros, and not written.
    i = gl.program_id(0) * ROWS + gl.arange(0, ROWS, layout)
    source = gl.load(sources + i, mask=i < n, other=-1)
    target = gl.load(targets + i, mask=i < n, other=-1)
    steps = gl.cdiv(src_desc.shape[1], COLUMNS)
    for step in gl.static_range(num_buffers - 1):
        gather(src_desc, source, step, bars, bufs, step < steps)
    for step in range(steps):
        mbarrier.wait(bars.index(step % num_buffers), step // num_buffers & 1)
        tma.async_scatter(dst_desc, target, step * COLUMNS, bufs.index(step % num_buffers))
        # The store of the columns before has read its buffer, which is filled next.
        tma.store_wait(pendings=1)
        ahead = step + num_buffers - 1
        gather(src_desc, source, ahead, bars, bufs, ahead < steps)
    tma.store_wait(pendings=0)


def by_threads(src: Any, sources: Any, dst: Any, targets: Any, ROWS: int = 32, COLUMNS: int = 128) -> Any:
    """dst[targets[i]] = src[sources[i]] of matrices with contiguous rows, int32 row numbers; returns the compiled kernel."""
    vec = 16 // src.itemsize
    layout = gl.BlockedLayout(*workbench.lanes_along_rows((ROWS, COLUMNS), 4, vec))
    strides = (workbench.strides(src)[0], workbench.strides(dst)[0])
    n, columns = len(sources), src.shape[1]
    return by_threads_kernel[(weft.cdiv(n, ROWS),)](
        src, dst, sources, targets, n, columns, *strides, ROWS, COLUMNS, layout, num_warps=4
    )


def by_tma(
    src: Any, sources: Any, dst: Any, targets: Any, ROWS: int = 32, COLUMNS: int = 128, num_buffers: int = 3
) -> Any:
    """The same; no two targets may be equal, and no row outside of `src` is read or outside of `dst` written."""
    dtype = getattr(gl, workbench.gl_name(src))
    layout = gl.NVMMASharedLayout.get_default_for([ROWS, COLUMNS], dtype)
    src_desc, dst_desc = (TensorDescriptor.from_tensor(x, [1, COLUMNS], layout) for x in (src, dst))
    n = len(sources)
    return by_tma_kernel[(weft.cdiv(n, ROWS),)](
        src_desc, dst_desc, sources, targets, n, ROWS, num_buffers, gl.BlockedLayout([1], [32], [1], [0]), num_warps=1
    )


RUNS = {"threads": by_threads, "TMA": by_tma}


def row(place: Place, name: str, ROWS: int, COLUMNS: int) -> dict[str, Any]:
    """One line of the table: a permutation of some rows of a larger matrix to some of another; check, measure."""
    n, width, columns = place.size(1 << 16, 77), place.size(1 << 17, 200), place.size(4096, 328)
    src = place.random(width, columns, dtype="float16")
    dst = place.poisoned(n, columns, dtype="float16")
    generator = np.random.default_rng()
    sources = generator.integers(0, width, n).astype(np.int32)
    targets = generator.permutation(n).astype(np.int32)
    on_device = place.array(sources), place.array(targets)

    def run() -> Any:
        return RUNS[name](src, on_device[0], dst, on_device[1], ROWS, COLUMNS)

    compiled = run()
    want = place.numpy(src)[sources]
    np.testing.assert_array_equal(place.numpy(dst)[targets], want)
    return {
        "moved by": name,
        "rows": ROWS,
        "columns": COLUMNS,
        "shared bytes": compiled.shared,
        "registers": compiled.n_regs,
        "TB/s": place.throughput(run, 2 * want.nbytes),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    place = workbench.place_of(simulated=given.sim or not workbench.has_tensor_memory())
    with weft.simulate(target="sm_100a"):
        rows = [row(place, name, *tile) for name in RUNS for tile in ((32, 128), (64, 64))]
    workbench.report("Rows gathered and scattered by index", rows, place, given.plot, "registers")


if __name__ == "__main__":
    main()
