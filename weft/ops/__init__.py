"""The operations of the IR: strict primitives, one family per file. Importing this package fills `weft.ir.define.OPS`."""

from weft.ops import (
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

__all__ = [
    "arith", "asm", "async_copy", "clc", "cluster", "control", "debug", "elements", "hints", "libdevice", "mbarrier",
    "memory", "mma", "nvshmem", "program", "regs", "shared", "sync", "tcgen05", "tensor_memory", "thread", "tile", "tma",
    "warp",
]  # fmt: skip
