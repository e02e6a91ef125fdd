"""Which integer values become offsets of addresses, and so may be taken apart as if they never wrapped."""

from __future__ import annotations

from collections.abc import Iterable

from weft.ir.core import Op, Value
from weft.ops import arith, memory, tile

# Operations that hand the value on.
SAME = (arith.cast, tile.expand_dims, tile.broadcast, tile.reshape, tile.permute, tile.convert, tile.hint)
# Operations through which an offset is made: their integer operands are parts of it.
PARTS = (arith.add, arith.sub, arith.mul, arith.shl, tile.splat, *SAME)


def address_parts(ops: Iterable[Op]) -> set[Value]:
    """Values that an offset of `memory.addptr` is computed from, the offsets themselves included, and the same values widened.

    A wrapped one would be a wrong address, which the simulator reports; so nothing that is told from such a value by
    comparing it needs to hold for wrapped ones.
    """
    made = {result: op for op in ops for result in op.results}
    found: set[Value] = set()
    pending = [op.operands[1] for op in made.values() if op.kind is memory.addptr]
    while pending:
        value = pending.pop()
        if value is None or value in found:
            continue
        found.add(value)
        op = made.get(value)
        if op is not None and op.kind in PARTS:
            pending += op.operands
    for result, op in made.items():
        if op.kind in SAME and op.operands[0] in found:
            found.add(result)
    return found
