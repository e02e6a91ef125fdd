"""The pass from tile IR to lowered IR.

    %o = tile.arange {start=0, end=512} : tile<512xi32, BlockedLayout([4], [32], [4], [0])>
    %p = memory.addptr (tile.splat %in), %o
    %v = memory.load %p
-->
    %t = lane * 4 + warp * 128
    %v = memory.load_regs (memory.addptr %in, %t) {offsets=((0,),), registers=((0, 1, 2, 3),), vec=4}

Each family of operations has its rules in a module of this folder. An operation without a rule is elementwise.
"""

from __future__ import annotations

from weft.ir.core import Func, OpDef
from weft.passes.lower import (
    across,
    async_ops,
    clc,
    control,
    convert,
    debug,
    elementwise,
    gather,
    handles,
    memory,
    mma,
    reductions,
    shape,
    shared,
    tcgen05,
    tensor_memory,
    thread,
)
from weft.passes.lower.state import Lowering, LowerRule
from weft.passes.lower.vectors import Width
from weft.targets import Target

RULES: dict[OpDef, LowerRule] = {
    **elementwise.RULES, **shape.RULES, **memory.RULES, **convert.RULES, **control.RULES,
    **across.RULES, **reductions.RULES, **debug.RULES, **handles.RULES, **shared.RULES, **async_ops.RULES, **mma.RULES,
    **thread.RULES, **tensor_memory.RULES, **tcgen05.RULES, **clc.RULES, **gather.RULES,
}  # fmt: skip


def lower_tiles(func: Func, target: Target, widths: list[Width] | None = None) -> Func:
    """Replace tiles by register arrays and per-thread scalars, and memory operations by instructions of the target.

    The vector width of each global memory access, and the reason why it is not wider, is appended to `widths`.
    """
    lowering = Lowering(func, target, RULES, elementwise.elementwise)
    lowering.widths = widths
    tensor_memory.reserve(lowering)
    return lowering.run()
