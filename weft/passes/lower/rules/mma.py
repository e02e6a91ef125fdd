"""Lowering of wgmma and mma.sync: the instructions that `weft.layout.tensor_cores.mma` plans, on shared memory and registers.

%d = mma.warpgroup %a, %b, %c    -->    %d = mma.wgmma %a, %b, %c {n=256, k=16, steps=((0, 0, 0, True), ...)}
"""

from __future__ import annotations

from weft.errors import UserError, fail
from weft.errors import compiler as errors
from weft.ir.core import Op, OpDef, Value
from weft.ir.types import DType, ScalarType, SharedType, TileType, int1
from weft.layout import DistributedLayout
from weft.layout.tensor_cores.mma import ProductPlan, plan_product, plan_sync
from weft.layout.tensor_cores.shared_operands import SharedSide
from weft.ops import arith, mma, regs
from weft.passes.lower.forms import Array
from weft.passes.lower.handles import shared_side, view
from weft.passes.lower.state import Lowering, LowerRule

ALONE = (
    "inserted behind this MMA, whose left operand lies in registers: nothing waits for it before they are written again"
)


def _tile(value: Value) -> TileType:
    assert isinstance(value.type, TileType)
    return value.type


def _dtype(value: Value) -> DType:
    assert isinstance(value.type.element, DType)
    return value.type.element


def _shape(a: Value, b: Value) -> tuple[int, int, int]:
    """M, N and K of an MMA."""
    (m, k), (_, n) = (v.type.shape for v in (a, b) if isinstance(v.type, SharedType | TileType))
    return m, n, k


def _side(lo: Lowering, value: Value) -> SharedSide | DistributedLayout:
    """An operand as layout plans take it: shared memory, or a register layout."""
    if isinstance(value.type, TileType):
        return value.type.layout
    return shared_side(lo, value)


def _plan(lo: Lowering, op: Op, a: Value, b: Value, acc: Value) -> ProductPlan:
    """The instructions. Raises LayoutError (layout-mma-*) at the operation's line."""
    right = _side(lo, b)
    assert isinstance(right, SharedSide)
    try:
        return plan_product(_tile(acc).layout, _shape(a, b), _dtype(a).bits, _side(lo, a), right)
    except UserError as error:
        raise error.at(op.loc) from None


def warpgroup(lo: Lowering, op: Op) -> None:
    """One wgmma group. With `max_imprecise` one group for each part along K: the threads wait for each and add it to the
    accumulator themselves.

    Raises CompilationError (lower-target)."""
    a, b, acc, use_acc = op.operands
    assert a is not None and b is not None and acc is not None
    if not lo.target.has_wgmma:
        raise fail(
            errors.TARGET, loc=op.loc, what="warpgroup_mma", needs="wgmma", target=lo.target.name, since="sm_90a"
        )
    plan = _plan(lo, op, a, b, acc)
    left = view(lo, a) if plan.left is not None else lo.array(lo.form(a))
    right, total = view(lo, b), lo.array(lo.form(acc))
    condition = None if use_acc is None else lo.scalar(use_acc)

    def product(into: Value, adds: Value | None, steps: tuple[mma.WgmmaStep, ...]) -> Value:
        return lo.emit(
            mma.wgmma, left, right, into, adds, n=plan.n, k=plan.k, element=_dtype(a).code, other=_dtype(b).code,
            left=plan.left, right=plan.right, steps=steps, name=op.result.name,
        )  # fmt: skip

    count = lo.count(Array(total))
    zeros = lo.emit(regs.splat, lo.emit(arith.constant, value=0, type=ScalarType(_dtype(acc))), count=count)
    if condition is not None and lo.constants.get(condition) is False:
        # The accumulator's old value is ignored, so its registers need not be live before the wgmma.
        total = zeros
    limit: int = op.attrs["max_imprecise"]
    if not limit:
        result = product(total, condition, plan.steps)
        lo.define(
            op, Array(lo.emit(mma.warpgroup_wait, result, pendings=0, reason=ALONE) if op in lo.alone else result)
        )
        return
    fresh: Value = lo.emit(arith.constant, value=False, type=ScalarType(int1))
    if condition is not None:
        total = lo.emit(arith.select, lo.emit(regs.splat, condition, count=count), total, zeros)
    # Hopper's tensor core keeps 13 bits of mantissa of an fp8 accumulator (found on an H200: `weft.sim.numbers.tensor_core`).
    # Each part therefore starts from zero there, and the threads add its result in float32.
    for steps in _parts(plan.steps, limit // plan.k):
        part = lo.emit(mma.warpgroup_wait, product(zeros, fresh, steps), pendings=0)
        total = lo.emit(arith.add, total, part)
    lo.define(op, Array(total))


def _parts(steps: tuple[mma.WgmmaStep, ...], most: int) -> list[tuple[mma.WgmmaStep, ...]]:
    """The steps split into parts along K, with at most `most` instructions per accumulator tile in each."""
    lines: dict[int, list[mma.WgmmaStep]] = {}
    for step in steps:
        lines.setdefault(step[0], []).append(step)
    turns = list(zip(*lines.values(), strict=True))
    return [
        tuple((*place, i == 0) for i, turn in enumerate(turns[start : start + most]) for *place, _ in turn)
        for start in range(0, len(turns), most)
    ]


def warpgroup_wait(lo: Lowering, op: Op) -> None:
    """Accumulators that are complete after the wait and used later become operands and results of the wait, which keeps their
    reads after it. Accumulators still in flight must not be touched, so they pass by."""
    through: list[tuple[Value, Value]] = []
    for value, result in zip(op.uses, op.results, strict=True):
        if result in lo.used and result not in lo.left_in_flight:
            through.append((value, result))
        else:
            lo.forms[result] = lo.form(value)
    arrays = [lo.array(lo.form(value)) for value, _ in through]
    made = lo.create(mma.warpgroup_wait, tuple(arrays), op.attrs)
    for (_, result), new in zip(through, made, strict=True):
        new.name = result.name
        lo.forms[result] = Array(new)


def warp(lo: Lowering, op: Op) -> None:
    """`mma.sync` instructions on registers. Raises CompilationError (lower-target), LayoutError (layout-mma-*)."""
    a, b, acc = op.uses
    needs = lo.target.has_mma_fp8 if _dtype(a).is_fp8() else lo.target.has_mma
    if not needs:
        what = f"mma_v2 of {_dtype(a).name}"
        raise fail(errors.TARGET, loc=op.loc, what=what, needs="mma.sync of it", target=lo.target.name, since="sm_90a")
    left, right = (_tile(v).layout for v in (a, b))
    try:
        plan = plan_sync(_tile(acc).layout, _shape(a, b), _dtype(a).bits, left, right)
    except UserError as error:
        raise error.at(op.loc) from None
    x, y = (lo.array(lo.picked(lo.form(v), order)) for v, order in ((a, plan.left), (b, plan.right)))
    made = lo.emit(
        mma.mma_sync, x, y, lo.array(lo.form(acc)), k=plan.k, element=_dtype(a).code,
        other=_dtype(b).code, steps=plan.steps, name=op.result.name,
    )  # fmt: skip
    lo.define(op, Array(made))


RULES: dict[OpDef, LowerRule] = {
    mma.warpgroup: warpgroup,
    mma.warpgroup_wait: warpgroup_wait,
    mma.warp: warp,
}
