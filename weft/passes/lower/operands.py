"""What many rules ask for: a target that can do it, and operands that may be left out."""

from __future__ import annotations

from weft.errors import compiler as errors
from weft.errors import fail
from weft.ir.core import Op, Value
from weft.passes.lower.state import Lowering


def require(lo: Lowering, op: Op, has: bool, needs: str, since: str) -> None:
    """Refuse an operation that the target has no instruction for. Raises CompilationError (lower-target)."""
    if not has:
        raise fail(errors.TARGET, loc=op.loc, what=op.name, needs=needs, target=lo.target.name, since=since)


def optional(lo: Lowering, value: Value | None) -> Value | None:
    """A scalar, or None where it was left out."""
    return None if value is None else lo.scalar(value)
