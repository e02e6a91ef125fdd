"""Vectorization of memory accesses: which registers of a tile one instruction loads or stores.

    16 fp16 registers at base + 0 ... 15, base a multiple of 8    -->    2 accesses of 8 elements (16 bytes)

Registers form a vector if their addresses are consecutive, the first address is aligned to the vector's size (as PTX requires
of vector accesses), and the mask is known to be the same for all of them. In most kernels the affine form of the address proves
this. Where it cannot (loaded offsets, quotients and remainders, the author's hints), the value facts of the tile may. The
result is the widest vector of the target that fits every register of the access.

A mask such as `column < n` cuts at most a few vectors of a row. If nothing but it stands against wider vectors, they are
accessed where the mask has them whole, and the elements of those that it cuts one by one, in a branch that few warps take.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from weft.analysis.facts.congruence import MOST, power_of_two_part
from weft.ir.core import Value
from weft.ir.types import TileType, int32
from weft.layout import LinearLayout
from weft.ops import arith, regs
from weft.ops.check import dtype_of, linear_of
from weft.ops.regs import Table
from weft.passes.lower.forms import Affine, Array, Both, Compare, Form, Splat
from weft.passes.lower.placement import register_coordinates, thread_columns, union
from weft.passes.lower.state import Lowering
from weft.passes.lower.widths import Reason, Width

Groups = tuple[Table, ...]
Cuts = Literal["", "ends", "anywhere"]
"""Which vectors a mask may cut: none; those in which it ends; any."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Groups of `vec` registers with consecutive addresses, the lowest address first. The mask may `cut` groups."""

    vec: int
    groups: Groups
    cut: bool = False

    @property
    def leaders(self) -> Table:
        """The register of each group's lowest address."""
        return tuple([group[0] for group in self.groups])


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of an access as values of the source: pointers, and the optional mask."""

    ptr: Value
    mask: Value | None


def vectorize(
    lo: Lowering, tiles: Tiles, address: Form, mask: Form | None, registers: Table, itemsize: int, limit: int = MOST,
    *, cuts: Cuts = "",
) -> Vectors:  # fmt: skip
    """The widest grouping of `registers`, of at most `limit`, for an access of `itemsize` bytes per element. `cuts`: which
    groups the mask may cut, if their first and last registers decide it."""
    found = _widest(lo, tiles, address, mask, registers, itemsize, limit)
    if cuts and mask is not None and found.vec * itemsize < lo.target.max_access_bits // 8:
        wider = _widest(lo, Tiles(tiles.ptr, None), address, None, registers, itemsize, limit)
        if wider.vec > found.vec and _by_ends(mask, wider.groups, cuts):
            found = Vectors(wider.vec, wider.groups, cut=True)
    if lo.widths is not None and limit == MOST:
        wider = 2 * found.vec
        most = wider * itemsize > lo.target.max_access_bits // 8 or not isinstance(tiles.ptr.type, TileType)
        reason = None if most else _reason(lo, tiles, address, mask, registers, itemsize, wider)
        lo.widths.append(Width(lo.loc, found.vec, itemsize, reason))
    return found


def _widest(
    lo: Lowering, tiles: Tiles, address: Form, mask: Form | None, registers: Table, itemsize: int, limit: int
) -> Vectors:
    widest = min(lo.target.max_access_bits // 8 // itemsize, 1 << len(registers).bit_length() - 1, limit)
    single = Vectors(1, tuple([(r,) for r in registers]))
    if widest == 1:
        return single
    found = _by_forms(lo, address, mask, registers, widest) if isinstance(address, Affine) else None
    if found is not None and found.vec == widest:
        return found
    known = _by_facts(lo, tiles, registers, widest, itemsize)
    return max(known or single, found or single, key=lambda vectors: vectors.vec)


def _reason(
    lo: Lowering, tiles: Tiles, address: Form, mask: Form | None, registers: Table, itemsize: int, vec: int
) -> Reason:
    """The reason against vectors of `vec` elements, from the affine form of the address if it has one, else from its facts."""
    if vec > len(registers):
        return "elements"
    if isinstance(address, Affine):
        return _refused(lo, address, mask, registers, vec) or "neighbours"
    linear, known = linear_of(tiles.ptr), lo.facts(addresses=True)[tiles.ptr]
    held = [axis for axis in range(len(known.axes)) if _runs(linear, axis, registers, vec)]
    runs = [axis for axis in held if known.contiguous[axis] >= vec]
    if not runs:
        return "offsets" if held else "neighbours"
    return "mask" if any(known.multiple(axis, vec) % (vec * itemsize) == 0 for axis in runs) else "alignment"


# From affine forms.


def _by_forms(lo: Lowering, address: Affine, mask: Form | None, registers: Table, widest: int) -> Vectors | None:
    vec = widest
    while vec > 1:
        if _refused(lo, address, mask, registers, vec) is None:
            return Vectors(vec, _aligned_groups(address.const, _tables(address), registers, vec))
        vec //= 2
    return None


def _refused(lo: Lowering, address: Affine, mask: Form | None, registers: Table, vec: int) -> Reason | None:
    """Why registers form no vectors of `vec` elements; None if they do."""
    groups = _aligned_groups(address.const, _tables(address), registers, vec)
    if not groups:
        return "stride" if any(len(set(table)) > 1 for table in _tables(address)) else "neighbours"
    if not _base_divides(lo, address, vec):
        return "alignment"
    return None if mask is None or _equal(lo, mask, groups, vec) else "mask"


def _tables(form: Affine) -> Groups:
    return tuple([table for _, table in form.strides])


@cache
def _aligned_groups(const: Table, strides: Groups, registers: Table, vec: int) -> Groups:
    """`registers` split into aligned runs of `vec` consecutive constants, in order of their first registers; empty if they
    cannot be."""
    rows: dict[Table, dict[int, int]] = {}
    for register in registers:
        row = tuple([table[register] for table in strides])
        rows.setdefault(row, {})[const[register]] = register
    groups = [
        tuple([row[start + i] for i in range(vec)])
        for row in rows.values()
        for start in row
        if start % vec == 0 and all(start + i in row for i in range(vec))
    ]
    return tuple(sorted(groups, key=min)) if len(groups) * vec == len(registers) else ()


def _base_divides(lo: Lowering, form: Affine, vec: int) -> bool:
    """True if base and strides are known to be multiples of `vec`."""
    return lo.divisor(form.base) % vec == 0 and all(
        lo.divisor(stride) * min(map(power_of_two_part, table)) % vec == 0 for stride, table in form.strides
    )


def _equal(lo: Lowering, mask: Form, groups: Groups, vec: int) -> bool:
    """True if the mask is known to be constant within each of the aligned groups."""
    if isinstance(mask, Both):
        return _equal(lo, mask.lhs, groups, vec) and _equal(lo, mask.rhs, groups, vec)
    if not isinstance(mask, Compare):
        return isinstance(mask, Splat)
    mask = mask.shared
    if _constant(mask.lhs, groups) and _constant(mask.rhs, groups):
        return True
    if mask.predicate not in ("lt", "ge", "gt", "le"):
        return False
    # If `limit` is a multiple of `vec`, both `n < limit` and `n >= limit` change at multiples of `vec` only.
    counting, limit = (mask.lhs, mask.rhs) if mask.predicate in ("lt", "ge") else (mask.rhs, mask.lhs)
    return (
        _counts_up(counting.const, _tables(counting), groups)
        and _constant(limit, groups)
        and all(limit.const[group[0]] % vec == 0 for group in groups)
        and _base_divides(lo, counting, vec)
        and _base_divides(lo, limit, vec)
    )


def _constant(form: Affine, groups: Groups) -> bool:
    return form.uniform or _all_equal((form.const, *_tables(form)), groups)


@cache
def _all_equal(tables: Groups, groups: Groups) -> bool:
    return all(len({table[r] for r in group}) == 1 for group in groups for table in tables)


@cache
def _counts_up(const: Table, strides: Groups, groups: Groups) -> bool:
    """Whether in each group the constants are consecutive from a multiple of its length, and the stride tables are equal."""
    return _all_equal(strides, groups) and all(
        const[group[0]] % len(group) == 0 and const[r] == const[group[0]] + i
        for group in groups
        for i, r in enumerate(group)
    )


# Masks that cut vectors.


def _by_ends(mask: Form, groups: Groups, cuts: Cuts) -> bool:
    """Whether in each group the mask is that of its first and its last register: comparisons of numbers that count up."""
    if isinstance(mask, Both):
        return _by_ends(mask.lhs, groups, cuts) and _by_ends(mask.rhs, groups, cuts)
    if not isinstance(mask, Compare):
        return isinstance(mask, Splat)
    mask = _compared(mask, groups)
    lhs, rhs = _constant(mask.lhs, groups), _constant(mask.rhs, groups)
    if lhs and rhs:
        return True
    counting = mask.rhs if lhs else mask.lhs
    if not (lhs or rhs) or mask.predicate not in _DECIDES or not _in_order(counting.const, _tables(counting), groups):
        return False
    # Unsigned numbers may wrap within a group, as in `(i - 2).to(gl.uint64) < n`.
    if not dtype_of(counting.base).is_int_signed():
        return False
    return cuts == "anywhere" or _ends(mask, groups)


def _compared(mask: Compare, groups: Groups) -> Compare:
    """The comparison for groups of registers: the shared one if the registers of each group are known to be alike. Otherwise
    each register's own: a shared one changes in steps of its run, and the exact limit lies within one."""
    shared = mask.shared
    if _constant(shared.lhs, groups) and _constant(shared.rhs, groups):
        return shared
    return mask.exactly(tuple(range(mask.count)))


def _ends(mask: Compare, groups: Groups) -> bool:
    """Whether a comparison of numbers that count up holds up to one of them; otherwise it holds from one on."""
    return (_DECIDES[mask.predicate] == -1) != _constant(mask.lhs, groups)


_DECIDES = {"lt": -1, "le": -1, "gt": 0, "ge": 0}
"""The place in a group of the register that decides for all of it, where the left side counts up."""
LEAST_RUN = 4
"""Registers of a run for which it pays to ask first whether the mask has it whole."""


def cut_runs(mask: Form, count: int) -> Groups:
    """The longest equal runs of `count` registers that a mask may cut, of at least four; empty if there are none."""
    vec = power_of_two_part(count) if count else 0
    while vec >= LEAST_RUN:
        runs = tuple([tuple(range(start, start + vec)) for start in range(0, count, vec)])
        if not isinstance(mask, Splat) and _by_ends(mask, runs, "anywhere"):
            return runs
        vec //= 2
    return ()


@cache
def _in_order(const: Table, strides: Groups, groups: Groups) -> bool:
    """Whether in each group the constants are consecutive, and the stride tables are equal."""
    return _all_equal(strides, groups) and all(
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
    if (_constant(mask.lhs, groups) and _constant(mask.rhs, groups)) or _ends(mask, groups) != end:
        return None
    first = mask.gathered(tuple([group[0] for group in groups]))
    turned = _constant(mask.lhs, groups)
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
    if _constant(mask.lhs, groups) == whole:
        # The right side counts up, or some is asked for: the other end decides. Either will do if none counts.
        place = -1 - place
    return mask.gathered(tuple([group[place] for group in groups]))


# From value facts of tiles.


def _by_facts(lo: Lowering, tiles: Tiles, registers: Table, widest: int, itemsize: int) -> Vectors | None:
    known = lo.facts(addresses=True)[tiles.ptr]
    mask = None if tiles.mask is None else lo.facts()[tiles.mask]
    linear = linear_of(tiles.ptr)
    best: Vectors | None = None
    for axis in range(len(known.axes)):
        vec = min(widest, known.contiguous[axis], widest if mask is None else mask.constant[axis])
        while vec > (best.vec if best else 1):
            groups = _runs(linear, axis, registers, vec)
            if groups and known.multiple(axis, vec) % (vec * itemsize) == 0:
                best = Vectors(vec, groups)
            vec //= 2
    return best


@cache
def _runs(linear: LinearLayout, axis: int, registers: Table, vec: int) -> Groups:
    """`registers` split into aligned runs of `vec` neighbours along an axis; empty if they cannot be."""
    if any(union(columns) % vec for columns in thread_columns(linear, axis)):
        return ()
    coordinates = register_coordinates(linear)
    rows: dict[Table, dict[int, int]] = {}
    for register in registers:
        at = coordinates[register]
        rest = (*at[:axis], at[axis] // vec, *at[axis + 1 :])
        rows.setdefault(rest, {})[at[axis] % vec] = register
    if any(len(row) != vec for row in rows.values()):
        return ()
    return tuple([tuple([row[i] for i in range(vec)]) for row in rows.values()])


# Operands.


def address_operands(lo: Lowering, address: Form, leaders: Table) -> tuple[Value, tuple[Value, ...], tuple[Table, ...]]:
    """The pointer, strides and offset tables of an access whose vectors start at `leaders`."""
    if isinstance(address, Array):
        picked = lo.picked(address, leaders)
        return lo.array(picked), (), ((0,) * len(leaders),)
    affine = lo.as_affine(address)
    assert affine is not None
    at = affine.gathered(leaders)
    return at.base, tuple(stride for stride, _ in at.strides), (at.const, *(table for _, table in at.strides))
