"""The table of what each operation does. `weft/sim/rules/F.py` enters the rules of `weft/ops/F.py`.

A rule takes the block that executes it, the operation and its operands (`Data`, or None where an optional one is absent) and
returns the result, a tuple of several, or None. A rule that runs regions is a generator: it yields whenever its block should
let others run (see `weft.sim.machine.schedule`) and returns the results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir.core import OpDef
from weft.loading import Registry

Rule = Callable[..., Any]
RULES: Registry[OpDef, Rule] = Registry("simulator rule of")


def rule(*kinds: OpDef) -> Callable[[Rule], Rule]:
    """Enter the meaning of one or several operations. Each has one."""

    def enter(function: Rule) -> Rule:
        for kind in kinds:
            RULES.enter(kind, function)
        return function

    return enter
