"""Regions prepared for execution: each operation with its rule, and the values that are dead after it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import lru_cache

from weft.analysis.flow import STRUCTURED
from weft.ir.core import Op, Region, Value
from weft.sim.machine.crewed import crewed
from weft.sim.machine.together import together
from weft.sim.rule import RULES, Rule


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One operation, and its rule with the check of `weft.sim.machine.together`. `single`: its result, if it has exactly one.
    `suspends`: its rule is a generator; `parts`: it is a loop or branch, which some threads may leave before others.
    `dead`: the values whose last use this is."""

    rule: Rule
    op: Op
    operands: tuple[Value | None, ...]
    single: Value | None
    results: tuple[Value, ...]
    suspends: bool
    parts: bool
    dead: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """A region's arguments, its steps, and its terminator, whose rule returns the region's results."""

    args: tuple[Value, ...]
    steps: tuple[Step, ...]
    end: Step


def compile_region(region: Region, crews: bool = False) -> Code:
    """Find the rule of each operation and the last use of each value; `crews`: with those of `weft.sim.machine.crews`.

    Raises LookupError for an operation without a rule."""
    *ops, terminator = region.ops
    last: dict[Value, int] = {}
    for number, op in enumerate(ops):
        for value in (*op.results, *op.uses, *(v for inner in op.regions for v in captured(inner))):
            last[value] = number
    own = {*region.args, *(value for op in ops for value in op.results)} - set(terminator.uses)
    dead: list[list[Value]] = [[] for _ in ops]
    for value, number in last.items():
        if value in own:
            dead[number].append(value)
    steps = tuple(_step(op, tuple(values), crews) for op, values in zip(ops, dead, strict=True))
    return Code(region.args, steps, _step(terminator, (), False))


def _step(op: Op, dead: tuple[Value, ...], crews: bool) -> Step:
    if op.kind not in RULES:
        raise LookupError(f"the simulator has no rule for {op.name}")
    rule = RULES[op.kind]
    single = op.results[0] if len(op.results) == 1 else None
    checked, suspends = together(rule, op.kind.needs), inspect.isgeneratorfunction(rule)
    if crews:
        checked, suspends = crewed(op, checked, suspends)
    parts = op.kind in STRUCTURED
    return Step(checked, op, op.operands, single, op.results, suspends, parts, dead)


@lru_cache(maxsize=4096)
def captured(region: Region) -> tuple[Value, ...]:
    """Values of outer regions that a region uses, in order of first use."""
    inside: set[Value] = set()
    outside: dict[Value, None] = {}
    _collect(region, inside, outside)
    return tuple(outside)


def _collect(region: Region, inside: set[Value], outside: dict[Value, None]) -> None:
    inside.update(region.args)
    for op in region.ops:
        outside.update((value, None) for value in op.uses if value not in inside)
        for inner in op.regions:
            _collect(inner, inside, outside)
        inside.update(op.results)
