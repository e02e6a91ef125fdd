"""Value facts: interval, congruence, contiguity and constancy of integers, addresses and tiles of them.

    %o = tile.arange {start = 0, end = 64}        0 to 63, one contiguous run of 64
    %m = arith.mul %o, 4                          0 to 252, a multiple of 4

`facts(func)[value]` has the interval of a value and its residue modulo a power of two (`hull`), and for each axis of a tile the
length of contiguous and of constant runs. `congruence` is the lattice of residues, `scalar` that of intervals, `tile` that of
runs. `rules` has a transfer function for each operation; `infer` evaluates them lazily, to a fixpoint for loops.
"""

from __future__ import annotations

from weft.analysis.facts.infer import ValueFacts
from weft.analysis.facts.tile import Axis, Facts
from weft.ir.core import Func

__all__ = ["Axis", "Facts", "ValueFacts", "facts"]


def facts(func: Func, addresses: bool = False) -> ValueFacts:
    """The facts of a function's values. With `addresses` they assume that int32 sums and products do not overflow, which is
    allowed for the contiguity and alignment of pointers only."""
    return ValueFacts(func, addresses)
