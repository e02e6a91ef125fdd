"""The forms in which a tile's elements are represented during lowering.

    tile.splat %s               Splat(%s, n)                      one scalar
    tile.arange                 Affine(lane * 4, (0, 1, 2, 3))    one base per thread, constants per register
    arith.cmp of two Affines    Compare                           computed only for the registers that need it
    memory.load                 Array(%registers)                 n registers

An `Affine` of 32-bit integers is split into base and constants as if it never overflowed when it is used as an address. If its
exact value is needed after a widening cast, `exact` emits it. Constants are wrapped to the type only beyond the range that
differences of addresses can have (`bounded`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.ir.core import Value
from weft.ops.arith import Predicate
from weft.ops.regs import Table

Exact = Callable[[Table], Value]
"""Emits the exact values of the registers that a table names, as an array."""


@dataclass(frozen=True, slots=True)
class Array:
    """`value` is a register array."""

    value: Value


@dataclass(frozen=True, slots=True)
class Splat:
    """Every register holds the scalar `value`."""

    value: Value
    count: int


@dataclass(frozen=True, slots=True)
class Affine:
    """Register r holds `base + const[r] + sum(stride * table[r])`. They are integers, or a pointer plus offsets in elements."""

    base: Value
    const: Table
    strides: tuple[tuple[Value, Table], ...] = ()
    exact: Exact | None = None

    @property
    def count(self) -> int:
        """Registers."""
        return len(self.const)

    @property
    def uniform(self) -> bool:
        """True when all registers hold the base."""
        return not any(self.const) and not self.strides

    def gathered(self, table: Table) -> Affine:
        """The same value with registers permuted, repeated or dropped: register i is the old `table[i]`."""
        exact = self.exact
        return Affine(
            self.base,
            tuple([self.const[r] for r in table]),
            tuple([(stride, tuple([column[r] for r in table])) for stride, column in self.strides]),
            None if exact is None else lambda registers: exact(tuple([table[r] for r in registers])),
        )


@dataclass(frozen=True, slots=True)
class Compare:
    """`lhs predicate rhs`, register by register, not emitted yet.

    Register r is known to have the same result as register `alike[r]`: a limit that is a multiple of 8 gives one result to
    each aligned run of 8 columns."""

    predicate: Predicate
    lhs: Affine
    rhs: Affine
    alike: Table

    @property
    def count(self) -> int:
        """Registers."""
        return len(self.alike)

    @property
    def shared(self) -> Compare:
        """The same comparison, evaluated once for all registers that are alike."""
        return self.exactly(self.alike)

    def gathered(self, table: Table) -> Compare:
        """The same comparison with registers permuted, repeated or dropped; those that are alike share one."""
        return self.exactly(tuple([self.alike[r] for r in table]))

    def exactly(self, table: Table) -> Compare:
        """The comparisons of the registers in a table, each evaluated for itself."""
        return Compare(self.predicate, self.lhs.gathered(table), self.rhs.gathered(table), tuple(range(len(table))))


@dataclass(frozen=True, slots=True)
class Both:
    """`lhs and rhs` of two masks, not emitted yet."""

    lhs: Mask
    rhs: Mask
    count: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The address of a handle's first tile. `Lowering.start` has the start of a view within that tile.

    `room`: the shared memory array, usually an allocation; None for tensor memory, where all columns are one allocation.
    `begin`: an int32 scalar, a byte offset in the array or a tensor memory address (lane << 16 | column)."""

    room: Value | None
    begin: Value


Mask = Array | Splat | Compare | Both
Form = Array | Splat | Affine | Compare | Both


def sum_strides(
    lhs: tuple[tuple[Value, Table], ...], rhs: tuple[tuple[Value, Table], ...], sign: int = 1
) -> tuple[tuple[Value, Table], ...]:
    """The terms of `lhs + sign * rhs`, one per stride, without terms whose table is all zero."""
    terms = dict(lhs)
    for stride, table in rhs:
        before = terms.get(stride, (0,) * len(table))
        terms[stride] = tuple([a + sign * b for a, b in zip(before, table, strict=True)])
    return tuple((stride, table) for stride, table in terms.items() if any(table))


def bounded(table: Table, bits: int) -> Table:
    """Constants wrapped to integers of `bits` bits, if one of them is out of the range of differences of two such integers.

    >>> bounded((3, 1 << 31), 32), bounded((3, 5 << 31), 32)
    ((3, 2147483648), (3, -2147483648))
    """
    limit = 1 << min(bits, 63)
    if -limit < min(table) and max(table) < limit:
        return table
    half = 1 << bits - 1
    return tuple([(entry + half & 2 * half - 1) - half for entry in table])
