"""Lowering of hints. What has no rule is a scalar."""

from __future__ import annotations

from weft.ir.core import Op, OpDef
from weft.ops import hints
from weft.passes.lower.forms import Form, Splat
from weft.passes.lower.rules.arith import kept_scalar
from weft.passes.lower.state import Lowering, LowerRule


def axes(lo: Lowering, op: Op) -> None:
    """A tile keeps its form, as value facts include the hint. If all elements are equal, the hint applies to the scalar."""
    if kept_scalar(lo, op):
        return
    (source,) = op.uses
    form: Form = lo.form(source)
    divisible: tuple[int, ...] = op.attrs["divisible"]
    if isinstance(form, Splat) and divisible:
        form = Splat(lo.emit(hints.axes, form.value, divisible=(max(divisible),)), form.count)
    lo.define(op, form)


RULES: dict[OpDef, LowerRule] = {hints.axes: axes}
