"""The simulator: executes an IR function on NumPy arrays, and reports bugs that a GPU hides (races, missing fences, deadlocks).

It executes tile IR and lowered IR with one table of rules. Results equal those of a GPU bit for bit, up to the error bounds
that `weft.ops` states. It chooses no layouts and emits no code.
"""

from weft.sim.machine.launch import run
from weft.sim.machine.report import Advice, Report
from weft.sim.memory.heap import Buffer, Pad, TensorMap
from weft.sim.rule import RULES
from weft.sim.rules import (
    arith,
    asm,
    async_copy,
    clc,
    cluster,
    control,
    debug,
    elements,
    hints,
    libdevice,
    mbarrier,
    memory,
    mma,
    nvshmem,
    program,
    regs,
    shared,
    sync,
    tcgen05,
    tensor_memory,
    thread,
    tile,
    tma,
    warp,
)

FAMILIES = (
    arith, asm, async_copy, clc, cluster, control, debug, elements, hints, libdevice, mbarrier, memory, mma, nvshmem, program,
    regs, shared, sync, tcgen05, tensor_memory, thread, tile, tma, warp,
)  # fmt: skip

__all__ = ["FAMILIES", "RULES", "Advice", "Buffer", "Pad", "Report", "TensorMap", "run"]
