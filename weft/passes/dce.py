"""Remove what nobody needs: operations, and values that control flow carries.

    %1 = arith.add %0, %0                            -->  (nothing, where %1 has no use)
    control.for carrying %a, used only for itself    -->  control.for without it

What an operation does is read from its declared effects: one that at most reads can go. What stays as it is, is shared with
the old function, not copied.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.core import Func, Op, Region, Value
from weft.ops import control

# Operations whose results are what their regions yield.
_YIELD_RESULTS = (control.if_, control.warp_specialize)
Live = set[Value]
Slots = set[int]


def dce(func: Func) -> Func:
    """The function without dead operations and without dead carried values."""
    body = _region(func.body, set(), None)
    return func if body is func.body else func.with_body(body)


def _region(region: Region, live: Live, slots: Slots | None) -> Region:
    """The live part of a region. `slots` numbers the operands of its terminator that are needed (None: all)."""
    kept: list[Op] = []
    for op in reversed(region.ops):
        if not (op.kind.terminator or _has_effect(op) or any(r in live for r in op.results)):
            continue
        if op.kind.terminator:
            new = op if slots is None else _terminator(op, slots)
        else:
            new = _op(op, live)
        live.update(new.uses)
        kept.append(new)
    if len(kept) == len(region.ops) and all(new is old for new, old in zip(reversed(kept), region.ops, strict=True)):
        return region
    return Region(region.args, tuple(reversed(kept)))


def _op(op: Op, live: Live) -> Op:
    if not op.regions:
        return op
    if op.kind is control.for_:
        return _for(op, live)
    if op.kind is control.while_:
        return _while(op, live)
    slots = _needed(op.results, live) if op.kind in _YIELD_RESULTS else None
    # Workers yield nothing at all.
    regions = [_region(region, live, slots if region.terminator.operands else None) for region in op.regions]
    return _remade(op, op.operands, op.results if slots is None else _pick(op.results, slots), regions)


def _for(op: Op, live: Live) -> Op:
    """What is carried is needed when its result is, or when a needed operation of the body uses it.

    What one walk of the body finds live is live in the next one too, so that all add to the same set."""
    (body,) = op.regions
    slots = _needed(op.results, live) | _needed(body.args[1:], live)
    while True:
        region = _region(body, live, slots)
        more = _needed(body.args[1:], live) - slots
        if not more:
            break
        slots |= more
    region = _with_args(region, (body.args[0], *_pick(body.args[1:], slots)))
    return _remade(op, (*op.operands[:3], *_pick(op.operands[3:], slots)), _pick(op.results, slots), [region])


def _while(op: Op, live: Live) -> Op:
    """`carried` are needed values that enter the condition, `passed` those that it passes on to the body and the results."""
    before, after = op.regions
    passed, carried = _needed(op.results, live) | _needed(after.args, live), _needed(before.args, live)
    while True:
        # The condition itself is the first operand of its terminator.
        regions = _region(before, live, {0, *(i + 1 for i in passed)}), _region(after, live, carried)
        more = _needed(after.args, live) - passed, _needed(before.args, live) - carried
        if not any(more):
            break
        passed, carried = passed | more[0], carried | more[1]
    condition, body = regions
    new = _with_args(condition, _pick(before.args, carried)), _with_args(body, _pick(after.args, passed))
    return _remade(op, _pick(op.operands, carried), _pick(op.results, passed), new)


def _needed(values: Sequence[Value], live: Live) -> Slots:
    return {i for i, value in enumerate(values) if value in live}


def _pick(values: tuple[Value | None, ...], slots: Slots) -> tuple[Value, ...]:
    return tuple(value for i, value in enumerate(values) if i in slots and value is not None)


def _terminator(op: Op, slots: Slots) -> Op:
    if len(slots) == len(op.operands):
        return op
    return Op(op.kind, _pick(op.operands, slots), op.attrs, (), (), op.loc)


def _with_args(region: Region, args: tuple[Value, ...]) -> Region:
    return region if args == region.args else Region(args, region.ops)


def _remade(op: Op, operands: tuple[Value | None, ...], results: tuple[Value, ...], regions: Sequence[Region]) -> Op:
    same = all(new is old for new, old in zip(regions, op.regions, strict=True))
    if same and len(operands) == len(op.operands) and len(results) == len(op.results):
        return op
    return Op(op.kind, operands, op.attrs, results, tuple(regions), op.loc)


def _has_effect(op: Op) -> bool:
    """True when the operation does more than read. A `while` may never end, and an ordered load orders: they stay."""
    if op.kind is control.while_ or op.attrs.get("volatile") or op.attrs.get("order"):
        return True
    if any(effect.kind != "read" or effect.space == "io" for effect in op.kind.effects):
        return True
    return any(_has_effect(inner) for region in op.regions for inner in region.ops)
