"""Give the compiler's own shared memory its byte offsets.

    %s = scratch.alloc {count=1024}    -->    %s = scratch.alloc {count=1024, offset=0}

Allocations that are not alive at the same time share bytes; `insert_sync` keeps their accesses apart. An allocation lives from
its first use to its last in program order; one that is made before a loop and used in it lives through the whole loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import Loc, fail
from weft.errors import lowering as errors
from weft.ir.core import Func, Op, Region, Value
from weft.ir.rebuild import Operands, Rebuilder, Replacement, rebuild
from weft.ir.types import ScratchType
from weft.ops import control, scratch
from weft.targets import Target

ALIGNMENT = 16


@dataclass(slots=True)
class Span:
    """From where to where, in program order, an allocation is alive; `loc` is the line that needs it."""

    first: int
    last: int
    loc: Loc | None


@dataclass(frozen=True, slots=True)
class Placed:
    """An allocation's bytes, when it is alive, and where it lies."""

    bytes: int
    span: Span
    offset: int


def allocate_scratch(func: Func, target: Target) -> Func:
    """Set every allocation's offset, and "shared_bytes" of the function. Raises shared-memory, a bill, when it does not fit."""
    placed = _place(_Spans().of(func))
    if not placed:
        return func.with_attrs(shared_bytes=0)
    total = max(p.offset + p.bytes for p in placed.values())
    if total > target.shared_bytes:
        bill = "; ".join(f"{p.bytes} bytes" + (f" at {p.span.loc}" if p.span.loc else "") for p in placed.values())
        largest = max(placed.values(), key=lambda p: p.bytes)
        raise fail(errors.SHARED_MEMORY, loc=largest.span.loc, total=total, limit=target.shared_bytes, bill=bill)

    def rule(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        if op.kind is not scratch.alloc:
            return None
        attrs: dict[str, Any] = {**op.attrs, "offset": placed[op.result].offset}
        return (out.emit(op.kind, name=op.result.name, **attrs),)

    return rebuild(func, rule, shared_bytes=total)


class _Spans:
    """Counts operations in program order and notes where allocations are used."""

    def __init__(self) -> None:
        self.position = 0
        self.spans: dict[Value, Span] = {}

    def of(self, func: Func) -> dict[Value, Span]:
        """The span of every allocation, in the order of allocation."""
        self._region(func.body)
        return self.spans

    def _region(self, region: Region) -> None:
        for op in region.ops:
            self.position += 1
            if op.kind is scratch.alloc:
                # Alive from its first use on, which comes later.
                self.spans[op.result] = Span(0, 0, op.loc)
            for value in op.uses:
                if value in self.spans:
                    self._use(self.spans[value])
            if op.regions:
                self._inside(op)

    def _use(self, span: Span) -> None:
        span.first = span.first or self.position
        span.last = self.position

    def _inside(self, op: Op) -> None:
        start, outer = self.position, list(self.spans.values())
        for region in op.regions:
            self._region(region)
        if op.kind is control.if_:
            return
        self.position += 1
        for span in outer:
            if span.last > start:
                span.first, span.last = min(span.first, start), self.position


def _place(spans: dict[Value, Span]) -> dict[Value, Placed]:
    """Each at the lowest offset that is free while it is alive, in order of first use."""
    placed: dict[Value, Placed] = {}
    for value, span in sorted(spans.items(), key=lambda item: item[1].first):
        assert isinstance(value.type, ScratchType)
        size = -(-value.type.count * value.type.element.itemsize // ALIGNMENT) * ALIGNMENT
        alive = [p for p in placed.values() if p.span.first <= span.last and span.first <= p.span.last]
        placed[value] = Placed(size, span, _lowest_gap(alive, size))
    return placed


def _lowest_gap(alive: list[Placed], size: int) -> int:
    offset = 0
    for other in sorted(alive, key=lambda p: p.offset):
        if offset + size <= other.offset:
            break
        offset = max(offset, other.offset + other.bytes)
    return offset
