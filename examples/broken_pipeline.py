"""A pipeline with one wait, fence or barrier left out, and the simulator's report for each.

`doubled` doubles a matrix through TMA, with two stages. It is compiled with `sync="none"`, so that all its waits, fences and
barriers are in the source; `fault` leaves one of them out. On a GPU such a mistake can go unnoticed until another
clock, driver or tile shape exposes it. The simulator judges by happens-before, so it reports each, whatever the numbers are.

    python examples/broken_pipeline.py [FAULT]      # with a fault: its whole report
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import workbench
from workbench import Place

import weft
from weft import language as gl
from weft.errors import Hazard
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor


@weft.jit(sync="none")
def doubled(
    src, dst, cols,
    XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, num_buffers: gl.constexpr, layout: gl.constexpr, fault: gl.constexpr,
):  # fmt: skip
    tiles = gl.allocate_shared_memory(src.dtype, [num_buffers, XBLOCK, YBLOCK], src.layout)
    out = gl.allocate_shared_memory(dst.dtype, [XBLOCK, YBLOCK], dst.layout)
    bars = gl.allocate_shared_memory(gl.int64, [num_buffers, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(num_buffers):
        mbarrier.init(bars.index(slot), count=1)
    gl.barrier()
    nbytes: gl.constexpr = src.block_type.nbytes * 2 if fault == "too many bytes" else src.block_type.nbytes
    row = gl.program_id(0) * XBLOCK
    steps = gl.cdiv(cols, YBLOCK)
    for step in gl.static_range(num_buffers - 1):
        mbarrier.expect(bars.index(step), nbytes, pred=step < steps)
        tma.async_copy_global_to_shared(
            src, [row, step * YBLOCK], bars.index(step), tiles.index(step), pred=step < steps
        )
    for step in range(steps):
        ahead = step + num_buffers - 1
        bar = bars.index(ahead % num_buffers)
        mbarrier.expect(bar, nbytes, pred=ahead < steps)
        tma.async_copy_global_to_shared(
            src, [row, ahead * YBLOCK], bar, tiles.index(ahead % num_buffers), pred=ahead < steps
        )
        slot = step % num_buffers
        phase = 0 if fault == "wrong phase" else step // num_buffers & 1
        if fault != "no wait":
            mbarrier.wait(bars.index(slot), phase)
        twice = tiles.index(slot).load(layout) * 2
        if fault != "no store_wait":
            tma.store_wait(pendings=0)
        # `store_wait` orders only the thread that issues the stores; this barrier orders the others after it.
        if fault != "no barrier after store_wait":
            gl.barrier()
        out.store(twice)
        if fault != "no fence":
            fence_async_shared()
        if fault != "no barrier before the store":
            gl.barrier()
        tma.async_copy_shared_to_global(dst, [row, step * YBLOCK], out)
    if fault != "no last store_wait":
        tma.store_wait(pendings=0)


FAULTS = {
    "no wait": "ReadInFlight",
    "wrong phase": "ReadInFlight",
    "no store_wait": "StoreSourceReused",
    "no barrier after store_wait": "ThreadRace",
    "no fence": "MissingFence",
    "no barrier before the store": "ThreadRace",
    "no last store_wait": "StoreUnread",
    "too many bytes": "TransactionBytes",
}
"""The faults, and the class of the report of each (in `weft.errors.hazard`)."""


def run(src: Any, dst: Any, fault: str = "", XBLOCK: int = 32, YBLOCK: int = 64, num_buffers: int = 2) -> Any:
    """dst = 2 src, unless there is a fault; returns the compiled kernel. Raises the fault's Hazard."""
    rows, cols = src.shape
    smem = gl.NVMMASharedLayout.get_default_for([XBLOCK, YBLOCK], gl.float32)
    descriptors = [TensorDescriptor.from_tensor(matrix, [XBLOCK, YBLOCK], smem) for matrix in (src, dst)]
    layout = gl.BlockedLayout(*workbench.lanes_along_rows((XBLOCK, YBLOCK), 4, 4))
    return doubled[(weft.cdiv(rows, XBLOCK),)](*descriptors, cols, XBLOCK, YBLOCK, num_buffers, layout, fault)


def found(fault: str) -> Hazard | None:
    """The hazard that the simulator reports for a fault, or "". Raises AssertionError for a wrong result without one."""
    place = Place(gpu=False)
    src, dst = place.random(70, 300), place.poisoned(70, 300)
    try:
        run(src, dst, fault)
    except Hazard as hazard:
        return hazard
    if not fault:
        place.check(dst, 2 * src)
    return None


def row(fault: str) -> dict[str, Any]:
    """One line of the table: run in the simulator, compare the report with what it must be."""
    hazard = found(fault)
    kind = type(hazard).__name__ if hazard else "nothing"
    assert kind == FAULTS.get(fault, "nothing"), f"{fault or 'no fault'}: {hazard or 'no report'}"
    lines = [loc.line if loc else "" for loc in (hazard.first, hazard.second)] if hazard else ["", ""]
    return {"fault": fault or "none", "found": kind, "earlier line": lines[0], "later line": lines[1]}


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, or one report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("fault", nargs="?", choices=FAULTS, metavar="FAULT", help="; ".join(FAULTS))
    given = parser.parse_args(argv)
    if given.fault:
        if hazard := found(given.fault):
            print(hazard)
        return
    rows = [row(fault) for fault in ("", *FAULTS)]
    workbench.report("One thing left out", rows, Place(gpu=False), None, "")


if __name__ == "__main__":
    main()
