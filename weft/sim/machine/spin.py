"""Detection of polling loops: the loop-carried values of a `while` that can change its behaviour.

If an iteration has changed neither memory nor one of these values, every further iteration will repeat it until another task
changes memory: the loop is polling. A counter that reaches neither the condition nor an operation with effects is not among
these values, so a loop that counts its iterations while it polls is recognised, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from weft.ir.core import Op, Region, Value, walk


@lru_cache(maxsize=1024)
def deciding(loop: Op) -> tuple[int, ...]:
    """The indices of the carried values that reach the loop's condition or an operation with effects in the loop."""
    condition, body = loop.regions
    producers = {value: op for region in (condition, body) for op in walk(region) for value in op.results}
    # Phi edges: the condition's arguments come from the body's terminator, the body's from the condition's terminator.
    edges = dict(zip(condition.args, body.terminator.operands, strict=True))
    edges |= dict(zip(body.args, condition.terminator.operands[1:], strict=True))
    reached: set[Value] = set()
    pending = [condition.terminator.operands[0], *_with_effects(condition), *_with_effects(body)]
    while pending:
        value = pending.pop()
        if value is None or value in reached:
            continue
        reached.add(value)
        if value in edges:
            pending.append(edges[value])
        elif value in producers:
            pending += _inputs(producers[value])
    return tuple(number for number, arg in enumerate(condition.args) if arg in reached)


def _with_effects(region: Region) -> Iterator[Value]:
    for op in region.ops:
        if op.effects or any(inner.effects for nested in op.regions for inner in walk(nested)):
            yield from _inputs(op)


def _inputs(op: Op) -> Iterator[Value]:
    yield from op.uses
    for region in op.regions:
        for inner in walk(region):
            yield from inner.uses
