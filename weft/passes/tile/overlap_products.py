"""Issue a wgmma before the wait for earlier ones, if that wait only passes the accumulator to it.

    %w = mma.warpgroup_wait %acc {pendings=0}             %p = mma.warpgroup %a, %b, %acc
    %p = mma.warpgroup %a, %b, %w                  -->    mma.warpgroup_wait {pendings=1}

The tensor core executes wgmmas on the same accumulator in order. If the next wgmma is issued before the wait, the tensor core
does not idle in between. Right after it, the wait with one more pending group still ensures that the operands of the earlier
wgmmas may be overwritten. No operation with side effects may be between the two, as it might rely on the wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from weft.ir.core import Func, Op, Region, Value, walk
from weft.ir.rebuild import Operands, Rebuilder, Replacement, rebuild
from weft.ops import mma


def overlap_products(func: Func) -> Func:
    """The function, in tile IR, with such waits moved past the wgmmas; unchanged if there are none."""
    if mma.warpgroup_wait not in func.body.kinds:
        return func
    uses = Counter(value for op in walk(func.body) for value in op.uses)
    behind = {product: wait for product, wait in _pairs(func.body) if _only_hands_on(wait, product, uses)}
    if not behind:
        return func
    moved = frozenset(behind.values())

    # The rule sees new operands but the old operations.
    def rule(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        if op in moved:
            return tuple(value for value in operands if value is not None)
        if op not in behind:
            return None
        results = out.keep(op, operands)
        out.loc = behind[op].loc
        out.emit(mma.warpgroup_wait, pendings=behind[op].attrs["pendings"] + 1, reason=_reason(op))
        return results

    return rebuild(func, rule)


def _reason(product: Op) -> str:
    line = "" if product.loc is None else f" of line {product.loc.line}"
    return f"moved behind the MMA{line}, which accumulates in place"


def _pairs(region: Region) -> Iterator[tuple[Op, Op]]:
    """Each wgmma with the wait that precedes it, if no operation with side effects is in between."""
    wait: Op | None = None
    for op in region.ops:
        for inner in op.regions:
            yield from _pairs(inner)
        if op.kind is mma.warpgroup and wait is not None and not op.attrs["max_imprecise"]:
            yield op, wait
        if op.kind is mma.warpgroup_wait:
            wait = op
        elif not op.kind.pure:
            wait = None


def _only_hands_on(wait: Op, product: Op, uses: Counter[Value]) -> bool:
    """Whether the wgmma's accumulator operand is the only use of the wait's results."""
    acc = product.operand("acc")
    return all(uses[result] == (result is acc) for result in wait.results)
