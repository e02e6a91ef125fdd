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

from weft.analysis.facts.congruence import MOST, power_of_two_part
from weft.ir.core import Value
from weft.ir.types import TileType
from weft.layout import LinearLayout
from weft.ops.check import linear_of
from weft.ops.regs import Table
from weft.passes.lower.cuts import Cuts, Groups, by_ends, constant_in, in_order, tables_of
from weft.passes.lower.forms import Affine, Array, Both, Compare, Form, Splat
from weft.passes.lower.placement import register_coordinates, thread_columns, union
from weft.passes.lower.state import Lowering
from weft.passes.lower.widths import Reason, Width


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
        if wider.vec > found.vec and by_ends(mask, wider.groups, cuts):
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
            return Vectors(vec, _aligned_groups(address.const, tables_of(address), registers, vec))
        vec //= 2
    return None


def _refused(lo: Lowering, address: Affine, mask: Form | None, registers: Table, vec: int) -> Reason | None:
    """Why registers form no vectors of `vec` elements; None if they do."""
    groups = _aligned_groups(address.const, tables_of(address), registers, vec)
    if not groups:
        return "stride" if any(len(set(table)) > 1 for table in tables_of(address)) else "neighbours"
    if not _base_divides(lo, address, vec):
        return "alignment"
    return None if mask is None or _equal(lo, mask, groups, vec) else "mask"


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
    if constant_in(mask.lhs, groups) and constant_in(mask.rhs, groups):
        return True
    if mask.predicate not in ("lt", "ge", "gt", "le"):
        return False
    # If `limit` is a multiple of `vec`, both `n < limit` and `n >= limit` change at multiples of `vec` only.
    counting, limit = (mask.lhs, mask.rhs) if mask.predicate in ("lt", "ge") else (mask.rhs, mask.lhs)
    return (
        _counts_up(counting.const, tables_of(counting), groups)
        and constant_in(limit, groups)
        and all(limit.const[group[0]] % vec == 0 for group in groups)
        and _base_divides(lo, counting, vec)
        and _base_divides(lo, limit, vec)
    )


def _counts_up(const: Table, strides: Groups, groups: Groups) -> bool:
    """Whether each group counts up from a multiple of its length."""
    return in_order(const, strides, groups) and all(const[group[0]] % len(group) == 0 for group in groups)


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
