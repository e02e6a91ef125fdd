"""Lowering of tcgen05 MMAs and copies to the instructions that `weft.layout` plans, on shared memory and addresses.

    tcgen05.mma %a, %b, %acc, %use    -->    tcgen05.issue %a, %b, %address, %use {steps=((0, 0, 0, True, ...), ...)}

With `.cta_group::2` the first block of each pair issues the instructions for both.
"""

from __future__ import annotations

from weft.analysis.tensor_handles import tensor_type
from weft.errors import fail, tensor_cores
from weft.ir.core import Op, OpDef, Value
from weft.ir.types import DType, SharedType, TensorType
from weft.layout.base import Unreadable
from weft.layout.tensor_cores.shared_operands import SharedSide
from weft.layout.tensor_cores.tcgen05 import MmaPlan, Scaled, plan_mma
from weft.layout.tensor_cores.tcgen05_copies import plan_copy
from weft.layout.tensor_memory.load_store import TensorSide
from weft.ops import tcgen05
from weft.passes.lower.blocks import in_first, where
from weft.passes.lower.handles import address_of, shared_side, tensor_side, type_of, view
from weft.passes.lower.operands import optional
from weft.passes.lower.rules.tensor_memory import require_tcgen05
from weft.passes.lower.state import Lowering, LowerRule


def _first_of_two(lo: Lowering) -> Value | None:
    """The predicate of the first block of each pair with `.cta_group::2`; None if each block issues its own instructions."""
    return in_first(lo, 1) if lo.two_ctas else None


def _code(value: Value) -> str:
    assert isinstance(value.type.element, DType)
    return value.type.element.code


def _side(lo: Lowering, value: Value) -> SharedSide | TensorSide:
    return tensor_side(lo, value) if isinstance(value.type, TensorType) else shared_side(lo, value)


def _memory(lo: Lowering, value: Value) -> Value:
    """An operand as instructions take it: shared memory, or a tensor memory address."""
    return view(lo, value) if isinstance(value.type, SharedType) else address_of(lo, value)


def _plan(lo: Lowering, op: Op, a: Value, b: Value, acc: Value, scaled: Scaled | None) -> MmaPlan:
    """The instructions. Raises LayoutError (tcgen05-layouts)."""
    types = _code(a), _code(b), _code(acc)
    found = plan_mma(_side(lo, a), shared_side(lo, b), tensor_side(lo, acc), types, scaled, lo.two_ctas)
    if isinstance(found, Unreadable):
        raise fail(
            tensor_cores.TCGEN05_LAYOUTS, loc=op.loc, what=op.name, left=a.type, right=b.type, acc=acc.type,
            reason=found.reason, fix=found.fix,
        )  # fmt: skip
    return found


def _issue(
    lo: Lowering, op: Op, operands: tuple[Value | None, ...], scales: tuple[Value, Value] | None, scaled: Scaled | None
) -> None:
    a, b, acc, use_acc, pred = operands
    assert a is not None and b is not None and acc is not None
    plan = _plan(lo, op, a, b, acc, scaled)
    at_scales = (None, None) if scales is None else tuple([address_of(lo, scale) for scale in scales])
    with where(lo, _first_of_two(lo)):
        lo.emit(
            tcgen05.issue, _memory(lo, a), view(lo, b), address_of(lo, acc), *at_scales, optional(lo, use_acc),
            optional(lo, pred), kind=plan.kind, left=plan.left, right=plan.right, steps=plan.steps,
            reuse=plan.reuse, two_ctas=lo.two_ctas,
        )  # fmt: skip


def mma(lo: Lowering, op: Op) -> None:
    """All instructions of an MMA, issued by one thread. Raises CompilationError (lower-target)."""
    require_tcgen05(lo, op)
    _issue(lo, op, op.operands, None, None)


def mma_scaled(lo: Lowering, op: Op) -> None:
    """A block-scaled MMA. Raises CompilationError (lower-target)."""
    require_tcgen05(lo, op)
    a, b, acc, a_scale, b_scale, use_acc, pred = op.operands
    assert a_scale is not None and b_scale is not None
    formats = op.attrs["a_type"], op.attrs["b_type"]
    scaled = Scaled(*formats, tensor_side(lo, a_scale), tensor_side(lo, b_scale), _code(a_scale))
    _issue(lo, op, (a, b, acc, use_acc, pred), (a_scale, b_scale), scaled)


def copy(lo: Lowering, op: Op) -> None:
    """All instructions of a `tcgen05.cp`. Raises CompilationError (lower-target), LayoutError (tcgen05-copy-layouts)."""
    require_tcgen05(lo, op)
    src, dst = op.uses
    s, d = type_of(src), tensor_type(dst)
    found = plan_copy(shared_side(lo, src), tensor_side(lo, dst), s.element.bits)
    if isinstance(found, Unreadable):
        raise fail(
            tensor_cores.TCGEN05_COPY_LAYOUTS, loc=op.loc, src=s, src_layout=s.layout, dst=d, dst_layout=d.layout,
            reason=found.reason, fix=found.fix,
        )  # fmt: skip
    with where(lo, _first_of_two(lo)):
        lo.emit(
            tcgen05.copy_shared, view(lo, src), address_of(lo, dst),
            shape=found.shape, operand=found.operand, steps=found.steps, two_ctas=lo.two_ctas,
        )  # fmt: skip


def commit(lo: Lowering, op: Op) -> None:
    """Commit on the mbarrier's memory, in the block that issued the operations. Raises CompilationError (lower-target)."""
    require_tcgen05(lo, op)
    bar, pred = op.operands
    with where(lo, _first_of_two(lo)):
        lo.emit(op.kind, view(lo, bar), optional(lo, pred), **op.attrs)


def fence(lo: Lowering, op: Op) -> None:
    """The fence stays as it is. Raises CompilationError (lower-target)."""
    require_tcgen05(lo, op)
    lo.emit(op.kind, **op.attrs)


RULES: dict[OpDef, LowerRule] = {
    tcgen05.mma: mma,
    tcgen05.mma_scaled: mma_scaled,
    tcgen05.copy: copy,
    tcgen05.commit: commit,
    tcgen05.fence: fence,
}
