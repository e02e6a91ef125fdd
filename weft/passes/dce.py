"""Remove dead operations, and dead values that control flow carries.

    %1 = arith.add %0, %0                            -->  (nothing, where %1 has no use)
    control.for carrying %a, used only for itself    -->  control.for without it

Liveness starts from operations whose declared effects do more than read, and from prefetches. Unchanged operations are shared
with the old function, not copied.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.analysis.flow import STRUCTURED, decides, joints, reach, with_ops, with_regions, without
from weft.ir.core import Func, Op, Region, Value, walk
from weft.ops import control


def dce(func: Func) -> Func:
    """The function without dead operations and without dead carried values."""
    live = _Needs(func).live()

    def region(old: Region) -> Region:
        return with_ops(old, [swept(op) for op in old.ops if op in live or op.kind.terminator])

    def swept(op: Op) -> Op:
        if not op.regions:
            return op
        op = with_regions(op, [region(each) for each in op.regions])
        return without(op, lambda value: value not in live) if op.kind in STRUCTURED else op

    body = region(func.body)
    return func if body is func.body else func.with_body(body)


class _Needs:
    """The dependences of operations and values. `owners` maps a value to the operation that defines it, and an argument or
    operation to the one whose region contains it. `sources` maps a phi to the values that edges pass to it."""

    def __init__(self, func: Func) -> None:
        self.ops = walk(func.body)
        self.owners: dict[Op | Value, Op] = {result: op for op in self.ops for result in op.results}
        self.sources: dict[Value, tuple[Value, ...]] = {}
        for op in self.ops:
            for region in op.regions:
                self.owners.update(dict.fromkeys((*region.args, *region.ops), op))
            for joint in joints(op):
                for row in joint.rows:
                    sources = row[: len(joint.sources)]
                    self.sources.update(dict.fromkeys(row[len(joint.sources) :], sources))

    def live(self) -> set[Op | Value]:
        """The live operations and values."""
        return reach((op for op in self.ops if _has_effect(op)), self._needed)

    def _needed(self, one: Op | Value) -> Sequence[Op | Value]:
        owner = self.owners.get(one)
        owners = () if owner is None else (owner,)
        if isinstance(one, Value):
            return (*owners, *self.sources.get(one, ()))
        if one.kind in STRUCTURED:
            return (*owners, *decides(one))
        ends = [value for region in one.regions for value in region.terminator.uses]
        return (*owners, *one.uses, *ends)


def _has_effect(op: Op) -> bool:
    """Whether an operation is live in any case: it does more than read. A `while` may not terminate, a load with a memory order
    synchronises, and what reads without a result is a prefetch, so all of these stay."""
    if op.kind is control.while_:
        return True
    return any(effect.kind != "read" or effect.space == "io" or effect.order or not op.results for effect in op.effects)
