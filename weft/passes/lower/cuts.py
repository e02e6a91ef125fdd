"""Masks that cut vectors: comparisons of numbers that count up along the registers of a vector.

    at < n, registers at 8 ... 15    -->    whole: 15 < n;  some: 8 < n;  end: n - 8

The comparison at one end of a group says whether the whole group is in the mask, the one at the other end whether some of it
is. For a group that the mask cuts, `bounds` gives its first register inside and the first one behind. A mask may be a
conjunction of such comparisons and of those that are the same for a whole group, as of rows. `vectors.py` chooses the groups.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from weft.analysis.facts.congruence import power_of_two_part
from weft.ir.core import Value
from weft.ir.types import int32
from weft.ops import arith, regs
from weft.ops.check import dtype_of
from weft.ops.regs import Table
from weft.passes.lower.forms import Affine, Both, Compare, Form, Splat
from weft.passes.lower.state import Lowering

Groups = tuple[Table, ...]
Cuts = Literal["", "ends", "anywhere"]
"""Which vectors a mask may cut: none; those in which it ends; any."""
LEAST_RUN = 4
"""Registers of a run for which it pays to ask first whether the mask has it whole."""
_DECIDES = {"lt": -1, "le": -1, "gt": 0, "ge": 0}
"""The place in a group of the register that decides for all of it, where the left side counts up."""


def by_ends(mask: Form, groups: Groups, cuts: Cuts) -> bool:
    """Whether in each group the mask is that of its first and its last register: comparisons of numbers that count up."""
    if isinstance(mask, Both):
        return by_ends(mask.lhs, groups, cuts) and by_ends(mask.rhs, groups, cuts)
    if not isinstance(mask, Compare):
        return isinstance(mask, Splat)
    mask = _compared(mask, groups)
    lhs, rhs = constant_in(mask.lhs, groups), constant_in(mask.rhs, groups)
    if lhs and rhs:
        return True
    counting = mask.rhs if lhs else mask.lhs
    if not (lhs or rhs) or mask.predicate not in _DECIDES or not in_order(counting.const, tables_of(counting), groups):
        return False
    # Unsigned numbers may wrap within a group, as in `(i - 2).to(gl.uint64) < n`.
    if not dtype_of(counting.base).is_int_signed():
        return False
    return cuts == "anywhere" or _ends(mask, groups)


def _compared(mask: Compare, groups: Groups) -> Compare:
    """The comparison for groups of registers: the shared one if the registers of each group are known to be alike. Otherwise
    each register's own: a shared one changes in steps of its run, and the exact limit lies within one."""
    if _uncut(mask, groups):
        return mask.shared
    return mask.exactly(tuple(range(mask.count)))


def _ends(mask: Compare, groups: Groups) -> bool:
    """Whether a comparison of numbers that count up holds up to one of them; otherwise it holds from one on."""
    return (_DECIDES[mask.predicate] == -1) != constant_in(mask.lhs, groups)


def cut_runs(mask: Form, count: int) -> Groups:
    """The longest equal runs of `count` registers, of at least four, for which a mask is known to be the same, or else the
    longest that it may cut; empty if there are none."""
    lengths = [1 << bit for bit in range(power_of_two_part(count).bit_length() if count else 0)]
    every = [tuple([tuple(range(i, i + n)) for i in range(0, count, n)]) for n in reversed(lengths) if n >= LEAST_RUN]
    if isinstance(mask, Splat):
        return ()
    whole = [runs for runs in every if _uncut(mask, runs)]
    return next(iter(whole or [runs for runs in every if by_ends(mask, runs, "anywhere")]), ())


def _uncut(mask: Form, groups: Groups) -> bool:
    """Whether the mask is known to be the same for all registers of each group."""
    if isinstance(mask, Both):
        return _uncut(mask.lhs, groups) and _uncut(mask.rhs, groups)
    if not isinstance(mask, Compare):
        return isinstance(mask, Splat)
    shared = mask.shared
    return constant_in(shared.lhs, groups) and constant_in(shared.rhs, groups)


@cache
def in_order(const: Table, strides: Groups, groups: Groups) -> bool:
    """Whether in each group the constants are consecutive, and the stride tables are equal."""
    return all_equal(strides, groups) and all(
        const[r] == const[group[0]] + i for group in groups for i, r in enumerate(group)
    )


def whole_and_some(lo: Lowering, mask: Form, groups: Groups) -> tuple[Value, Value]:
    """Two predicates of each group: whether the mask has all its registers, and whether it may have some."""
    return lo.array(at_ends(mask, groups, whole=True)), lo.array(at_ends(mask, groups, whole=False))


def bounds(lo: Lowering, mask: Form, groups: Groups) -> tuple[Value | None, Value | None]:
    """`bound`: where the mask begins and where it ends in each group that it cuts."""
    return bound(lo, mask, groups, end=False), bound(lo, mask, groups, end=True)


def bound(lo: Lowering, mask: Form, groups: Groups, *, end: bool) -> Value | None:
    """In each group that the mask cuts, the number of its first register in the mask, or (`end`) that behind its last one: an
    array of int32. None if the mask has no such bound."""
    if isinstance(mask, Both):
        lhs, rhs = bound(lo, mask.lhs, groups, end=end), bound(lo, mask.rhs, groups, end=end)
        if lhs is None or rhs is None:
            return rhs if lhs is None else lhs
        return lo.emit(arith.minimum if end else arith.maximum, lhs, rhs)
    if not isinstance(mask, Compare):
        return None
    mask = _compared(mask, groups)
    if (constant_in(mask.lhs, groups) and constant_in(mask.rhs, groups)) or _ends(mask, groups) != end:
        return None
    first = mask.gathered(tuple([group[0] for group in groups]))
    turned = constant_in(mask.lhs, groups)
    limit, start = (first.lhs, first.rhs) if turned else (first.rhs, first.lhs)
    at: Value = lo.emit(arith.sub, lo.array(limit), lo.array(start))
    if mask.predicate in (("le", "gt") if not turned else ("ge", "lt")):
        at = lo.emit(arith.add, at, lo.emit(regs.splat, lo.constant(1, dtype_of(at)), count=len(groups)))
    if dtype_of(at) != int32:
        at = lo.emit(arith.cast, at, dtype=int32)
    # Of groups that this comparison does not cut, the difference may wrap.
    outer = lo.emit(regs.splat, lo.constant(len(groups[0]) if end else 0, int32), count=len(groups))
    return lo.emit(arith.select, lo.array(at_ends(mask, groups, whole=True)), outer, at)


def at_ends(mask: Form, groups: Groups, *, whole: bool) -> Form:
    """One predicate of each group: whether all its registers are in the mask (`whole`), or whether some may be."""
    if isinstance(mask, Both):
        lhs, rhs = at_ends(mask.lhs, groups, whole=whole), at_ends(mask.rhs, groups, whole=whole)
        assert not isinstance(lhs, Affine) and not isinstance(rhs, Affine)
        return Both(lhs, rhs, len(groups))
    if isinstance(mask, Splat):
        return Splat(mask.value, len(groups))
    assert isinstance(mask, Compare)
    mask = _compared(mask, groups)
    place = _DECIDES.get(mask.predicate, 0)
    if constant_in(mask.lhs, groups) == whole:
        # The right side counts up, or some is asked for: the other end decides. Either will do if none counts.
        place = -1 - place
    return mask.gathered(tuple([group[place] for group in groups]))


def tables_of(form: Affine) -> Groups:
    """The factor of each stride in each register."""
    return tuple([table for _, table in form.strides])


def constant_in(form: Affine, groups: Groups) -> bool:
    """Whether the registers of each group hold the same number."""
    return form.uniform or all_equal((form.const, *tables_of(form)), groups)


@cache
def all_equal(tables: Groups, groups: Groups) -> bool:
    """Whether the entries of each group are equal, in each table."""
    return all(len({table[r] for r in group}) == 1 for group in groups for table in tables)
