"""Lowering rules: one file, or folder, for each file of `weft.ops` that has some, with the same name."""

from __future__ import annotations

from weft.ir.core import OpDef
from weft.passes.lower.rules import (
    arith,
    asm,
    async_copy,
    clc,
    cluster,
    control,
    debug,
    elements,
    hints,
    mbarrier,
    memory,
    mma,
    nvshmem,
    shared,
    sync,
    tcgen05,
    tensor_memory,
    thread,
    tile,
    tma,
)
from weft.passes.lower.state import LowerRule

FAMILIES = (
    arith, asm, async_copy, clc, cluster, control, debug, elements, hints, mbarrier, memory, mma, nvshmem, shared, sync,
    tcgen05, tensor_memory, thread, tile, tma,
)  # fmt: skip
RULES: dict[OpDef, LowerRule] = {op: rule for family in FAMILIES for op, rule in family.RULES.items()}
