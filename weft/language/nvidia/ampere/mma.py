"""Warp-level MMAs (`mma.sync`): operands and accumulator are in registers, and execution is synchronous."""

from __future__ import annotations

from weft.language.context import current
from weft.language.marks import builtin
from weft.language.nvidia.checks import demand
from weft.language.nvidia.products import (
    accumulator_layout,
    check_precision,
    check_shapes,
    check_types,
    common_width,
    element_of,
    fragments,
)  # fmt: skip
from weft.language.tensor import apply, tensor
from weft.layout.distributed.mma import MMA_SYNC, NVMMADistributedLayout
from weft.layout.tensor_cores.mma import plan_sync
from weft.ops import mma as ops


@builtin
def mma_v2(a: tensor, b: tensor, acc: tensor, input_precision: str | None = None) -> tensor:
    """`acc + a @ b` for tiles [M, K] and [K, N] in the accumulator's `DotOperandLayout`s.

    The types are those of `warpgroup_mma`; targets without fp8 MMAs have all others. Both operands have the `k_width` of the
    instruction (1, 2 or 4 for elements of 32, 16 or 8 bits), or both the same wider one, with which a thread loads more
    neighbours along k at once; elements along k are then multiplied in another order. Raises CompilationError: async-target,
    mma-operand, mma-types, mma-precision, mma-shapes, mma-accumulator, mma-accumulator-type; LayoutError:
    mma-operand-layout, mma-accumulator-layout, and layout-mma-* for layouts that no instruction supports.
    """
    what = "mma_v2"
    demand(what, "mma.sync")
    left, right = (element_of(what, number, x, tensor) for number, x in enumerate((a, b)))
    if left.is_fp8():
        demand("mma_v2 of fp8", "products of fp8")
    layout = accumulator_layout(
        what, acc, MMA_SYNC, repr(NVMMADistributedLayout([2, 0], [current().num_warps, 1], [16, 8]))
    )
    check_shapes(what, a, b, acc)
    check_types(what, left, right, acc)
    check_precision(what, left, input_precision)
    k_width = common_width(a, b)
    a, b = (fragments(what, number, x, layout, "", k_width) for number, x in enumerate((a, b)))
    (rows, columns), length = acc.shape, a.shape[1]
    plan_sync(layout, (rows, columns, length), left.bits, a.layout, b.layout)
    return apply(ops.warp, a, b, acc, precision="tf32" if left.is_fp32() else "")
