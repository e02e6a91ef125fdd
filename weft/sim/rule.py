"""The table of execution rules, one per operation. `weft/sim/rules/F.py` enters the rules of `weft/ops/F.py`.

A rule takes the executing task, the operation and its operands (`Data`, or None for an absent optional operand). It returns the
result, a tuple of several results, or None. A rule that executes regions or waits is a generator: it yields a `Wait` when other
tasks must run first (see `weft.sim.machine.schedule`), and returns the results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir.core import OpDef
from weft.loading import Registry

Rule = Callable[..., Any]
RULES: Registry[OpDef, Rule] = Registry("simulator rule of")


def rule(*kinds: OpDef) -> Callable[[Rule], Rule]:
    """Enter the rule of one or several operations. Each operation has exactly one rule."""

    def enter(function: Rule) -> Rule:
        for kind in kinds:
            RULES.enter(kind, function)
        return function

    return enter
