"""The GPU's approximate instructions in place of accurate functions and quotients, for kernels with `fast_math`.

    arith.math %x {fn = exp2}     -->     libdevice.call %x {fn = fast_exp2f}
    arith.div %x, %y              -->     libdevice.call %x, %y {fn = fast_dividef}

Only float32 has such instructions. What rounds by definition (`div_rn`, `sqrt_rn`, libdevice's `sqrt`) stays, and so do sums
and products.
"""

from __future__ import annotations

from collections.abc import Collection

from weft.ir.core import Func, Op
from weft.ir.rebuild import Operands, Rebuilder, Replacement, rebuild
from weft.ir.types import float32
from weft.ops import arith, libdevice


def fast_math(func: Func, listed: Collection[str]) -> Func:
    """The function with the listed operations (names of `libdevice.FAST`) by approximate instructions."""

    def rule(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        name = _name(op)
        if name not in listed or any(value.type.element != float32 for value in op.uses):
            return None
        return out.create(libdevice.call, operands, {"fn": libdevice.FAST[name]}, name=op.results[0].name)

    return rebuild(func, rule)


def _name(op: Op) -> str:
    if op.kind is arith.div:
        return "div"
    if op.kind is arith.math or (op.kind is libdevice.call and op.attrs["fn"] != "sqrt"):
        return op.attrs["fn"]
    return ""
