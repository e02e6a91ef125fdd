"""The simulator: executes a function of the IR on NumPy arrays and finds bugs that a GPU hides.

It runs tile IR, and lowered IR by the same rules of the same names. Numbers are those of a GPU bit for bit, up to the bounds
that `weft.ops` states. It decides nothing about layouts and emits no code.
"""

from weft.sim.machine.launch import run
from weft.sim.machine.report import Advice, Report
from weft.sim.memory.heap import Buffer, TensorMap
from weft.sim.rule import RULES
from weft.sim.rules import (
    arith,
    asm,
    async_copy,
    clc,
    cluster,
    control,
    debug,
    descriptors,
    gather,
    mbarrier,
    memory,
    mma,
    program,
    reduce,
    regs,
    shared,
    tcgen05,
    tcgen05_issue,
    tensor_memory,
    thread,
    tile,
    tma,
)

FAMILIES = (
    arith, asm, async_copy, clc, cluster, control, debug, descriptors, gather, mbarrier, memory, mma, program, reduce,
    regs, shared, tcgen05, tcgen05_issue, tensor_memory, thread, tile, tma,
)  # fmt: skip

__all__ = ["FAMILIES", "RULES", "Advice", "Buffer", "Report", "TensorMap", "run"]
