"""Value facts: what integers, addresses and tiles of them are known to be.

`facts(func)[value]` has the interval and the low bits of a value (`hull`), and along each axis of a tile how far elements count
up or stay the same. `congruence` is the arithmetic of low bits, `scalar` that of numbers, `tile` that of runs along an axis;
`rules` has one for each operation, `infer` finds the facts of a value when they are asked for.
"""

from __future__ import annotations

from weft.analysis.facts.infer import ValueFacts
from weft.analysis.facts.tile import Axis, Facts
from weft.ir.core import Func

__all__ = ["Axis", "Facts", "ValueFacts", "facts"]


def facts(func: Func, addresses: bool = False) -> ValueFacts:
    """Facts about every value of a function; with `addresses`, those that pointers may be judged by."""
    return ValueFacts(func, addresses)
