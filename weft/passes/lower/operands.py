"""Helpers of several lowering rules: checks of the target's features, and optional operands."""

from __future__ import annotations

from weft.errors import compiler as errors
from weft.errors import fail
from weft.ir.core import Op, Value
from weft.passes.lower.state import Lowering


def require(lo: Lowering, op: Op, has: bool, needs: str, since: str) -> None:
    """Reject an operation that the target has no instruction for. Raises CompilationError (lower-target)."""
    if not has:
        raise fail(errors.TARGET, loc=op.loc, what=op.name, needs=needs, target=lo.target.name, since=since)


def optional(lo: Lowering, value: Value | None) -> Value | None:
    """The lowered value of an optional scalar operand."""
    return None if value is None else lo.scalar(value)
