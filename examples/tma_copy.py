"""A copy in one dimension by TMA: one thread issues it, the engine copies, and no element passes through a register.

A program copies XBLOCK elements to shared memory and from there to their destination. Addresses, extents and the handling of
elements beyond the end are in the descriptors. TMA copies boxes of at most 256 elements in each dimension, so a larger block
takes several instructions, which signal one mbarrier.

    python examples/tma_copy.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import workbench
from workbench import Place

import weft
from weft import language as gl
from weft.language.nvidia.hopper import mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor


@weft.jit
def tma_copy(src, dst, XBLOCK: gl.constexpr):
    smem = gl.allocate_shared_memory(src.dtype, [XBLOCK], src.layout)
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    start = gl.program_id(0) * XBLOCK
    # One arrival, and the bytes of the whole block: elements beyond the end count too, and arrive as zeros.
    mbarrier.expect(arrived, src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, [start], arrived, smem)
    mbarrier.wait(arrived, phase=0)
    mbarrier.invalidate(arrived)
    tma.async_copy_shared_to_global(dst, [start], smem)
    # TMA still reads `smem`: the program must not end before.
    tma.store_wait(pendings=0)


def run(src: Any, dst: Any, XBLOCK: int = 8192, num_warps: int = 1) -> Any:
    """Copy a vector; returns the compiled kernel."""
    (numel,) = src.shape
    layout = gl.NVMMASharedLayout.get_default_for([XBLOCK], gl.float32)
    ends = (TensorDescriptor.from_tensor(array, [XBLOCK], layout) for array in (src, dst))
    return tma_copy[(weft.cdiv(numel, XBLOCK),)](*ends, XBLOCK, num_warps=num_warps)


def row(place: Place, XBLOCK: int) -> dict[str, Any]:
    """One line of the table: copy, check, measure."""
    numel = place.size(250_000_000, 100_004)
    src, dst = place.random(numel), place.poisoned(numel)
    compiled = run(src, dst, XBLOCK)
    place.check(dst, src)
    return {
        "XBLOCK": XBLOCK,
        "programs": weft.cdiv(numel, XBLOCK),
        "requests each way": weft.cdiv(XBLOCK, 256),
        "shared bytes": compiled.shared,
        "registers": compiled.n_regs,
        "TB/s": place.throughput(lambda: run(src, dst, XBLOCK), 2 * numel * 4),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, XBLOCK) for XBLOCK in (1024, 2048, 4096, 8192, 16384)]
    workbench.report("1D copy by TMA, one warp a program", rows, given.place, given.plot, "shared bytes")


if __name__ == "__main__":
    main()
