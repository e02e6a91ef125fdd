"""The pass from tile IR to lowered IR.

    %o = tile.arange {start=0, end=512} : tile<512xi32, BlockedLayout([4], [32], [4], [0])>
    %p = memory.addptr (tile.splat %in), %o
    %v = memory.load %p
-->
    %t = lane * 4 + warp * 128
    %v = memory.load_regs (memory.addptr %in, %t) {offsets=((0,),), registers=((0, 1, 2, 3),), vec=4}

Each family of operations has its rules in `rules/`, in the file of its name. An operation without a rule is elementwise.
"""

from __future__ import annotations

from weft.ir.core import Func
from weft.passes.lower.rules import RULES
from weft.passes.lower.rules.arith import elementwise
from weft.passes.lower.rules.tensor_memory import reserve
from weft.passes.lower.state import Lowering
from weft.passes.lower.widths import Width
from weft.targets import Target


def lower_tiles(func: Func, target: Target, widths: list[Width] | None = None) -> Func:
    """Replace tiles by register arrays and per-thread scalars, and memory operations by instructions of the target.

    The vector width of each global memory access, and the reason why it is not wider, is appended to `widths`.
    """
    lowering = Lowering(func, target, RULES, elementwise)
    lowering.widths = widths
    reserve(lowering)
    return lowering.run()
