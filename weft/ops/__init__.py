"""The operations of the IR: strict primitives, one family per file. Importing this package fills `weft.ir.define.OPS`."""

from weft.ops import (
    arith,
    asm,
    async_copy,
    clc,
    cluster,
    control,
    debug,
    mbarrier,
    memory,
    mma,
    program,
    reduce,
    regs,
    scratch,
    shared,
    tcgen05,
    tensor_memory,
    thread,
    tile,
    tma,
)

__all__ = [
    "arith", "asm", "async_copy", "clc", "cluster", "control", "debug", "mbarrier", "memory", "mma", "program",
    "reduce", "regs", "scratch", "shared", "tcgen05", "tensor_memory", "thread", "tile", "tma",
]  # fmt: skip
