"""What the edges of control flow hand on: pairs of values of which one becomes the other on the way in, round, or out."""

from __future__ import annotations

from collections.abc import Iterator

from weft.ir.core import Op, Value
from weft.ops import control

Pair = tuple[Value, Value]


def edges(op: Op) -> Iterator[Pair]:
    """The pairs of one operation, in tile IR and in lowered IR; those inside of a loop come before those into it."""
    if op.kind is control.for_:
        (body,) = op.regions
        yield from zip(body.args[1:], body.terminator.uses, strict=True)
        yield from zip(body.args[1:], op.results, strict=True)
        yield from zip(body.args[1:], list(op.uses)[3:], strict=True)
    elif op.kind is control.while_:
        before, after = op.regions
        passed = list(before.terminator.uses)[1:]
        yield from zip(before.args, after.terminator.uses, strict=True)
        yield from zip(after.args, passed, strict=True)
        yield from zip(op.results, passed, strict=True)
        yield from zip(before.args, op.uses, strict=True)
    elif op.kind is control.if_:
        for region in op.regions:
            yield from zip(op.results, region.terminator.uses, strict=True)
    elif op.kind is control.warp_specialize:
        # Only the first partition hands anything on.
        yield from zip(op.results, op.regions[0].terminator.uses, strict=True)
