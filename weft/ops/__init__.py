"""The operations of the IR: strict primitives, one family a file. Importing this package fills `weft.ir.define.OPS`."""

from weft.ops import (
    arith,
    asm,
    async_copy,
    cluster,
    control,
    debug,
    globals,
    mbarrier,
    memory,
    mma,
    program,
    reduce,
    regs,
    scratch,
    shared,
    thread,
    tile,
    tma,
)

__all__ = [
    "arith", "asm", "async_copy", "cluster", "control", "debug", "globals", "mbarrier", "memory", "mma", "program", "reduce",
    "regs", "scratch", "shared", "thread", "tile", "tma",
]  # fmt: skip
