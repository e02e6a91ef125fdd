"""Integers modulo a power of two: what the low bits of a number are known to be.

    arange(0, 64)[::4]        0 modulo 4
    pid * 64 + 5              5 modulo 64
    the constant 12           12 modulo `MOST`

Integers wrap modulo a power of two, so a congruence that holds for the exact number holds for the wrapped one as far as the
type's width. A lattice of finite height: `join` halves the modulus at least once or changes nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

MOST_BITS = 64
MOST = 1 << MOST_BITS
"""The largest modulus: that of a number known in full, for no type is wider."""


def power_of_two_part(value: int) -> int:
    """The largest power of two that divides a value, at most `MOST`.

    >>> power_of_two_part(48), power_of_two_part(0) == MOST
    (16, True)
    """
    return min(value & -value, MOST) if value else MOST


class Congruence(NamedTuple):
    """Numbers that are `residue` modulo `modulus`, a power of two; 0 <= residue < modulus."""

    modulus: int = 1
    residue: int = 0

    @property
    def divisor(self) -> int:
        """The largest power of two known to divide all of them.

        >>> Congruence(16, 4).divisor, Congruence(16, 0).divisor
        (4, 16)
        """
        residue = self.residue
        return residue & -residue if residue else self.modulus

    def modulo(self, modulus: int) -> Congruence:
        """The same numbers, known no further than a modulus."""
        return self if modulus >= self.modulus else Congruence(modulus, self.residue % modulus)

    def join(self, other: Congruence) -> Congruence:
        """What holds of both."""
        return (
            self if self == other else self.modulo(min(other.modulus, power_of_two_part(self.residue - other.residue)))
        )


UNKNOWN = Congruence()


@lru_cache(maxsize=4096)
def exactly(value: int) -> Congruence:
    """One number."""
    return Congruence(MOST, value % MOST)


def multiple_of(divisor: int) -> Congruence:
    """Multiples of a number's power-of-two part."""
    return Congruence(power_of_two_part(divisor), 0)


def add(a: Congruence, b: Congruence) -> Congruence:
    """Sums."""
    modulus = min(b.modulus, a.modulus)
    return UNKNOWN if modulus == 1 else Congruence(modulus, (a.residue + b.residue) % modulus)


def sub(a: Congruence, b: Congruence) -> Congruence:
    """Differences."""
    modulus = min(b.modulus, a.modulus)
    return UNKNOWN if modulus == 1 else Congruence(modulus, (a.residue - b.residue) % modulus)


def mul(a: Congruence, b: Congruence) -> Congruence:
    """Products: (a m + r) (b n + s) = a b m n + a m s + b n r + r s."""
    (m, r), (n, s) = a, b
    modulus = min(m * n, m * (s & -s) if s else MOST, n * (r & -r) if r else MOST, MOST)
    return UNKNOWN if modulus == 1 else Congruence(modulus, r * s % modulus)


def scaled(a: Congruence, factor: int) -> Congruence:
    """Products with a power of two."""
    modulus = min(a.modulus * factor, MOST)
    return Congruence(modulus, a.residue * factor % modulus)


def shifted_right(a: Congruence, bits: int) -> Congruence:
    """Numbers shifted right, that is divided by 2**bits and rounded down."""
    modulus = a.modulus >> bits
    return Congruence(modulus, a.residue >> bits) if modulus > 1 else UNKNOWN


def and_(a: Congruence, b: Congruence) -> Congruence:
    """Bits of both: a zero of one of them decides."""
    zeros = (a.modulus - 1 & ~a.residue) | (b.modulus - 1 & ~b.residue)
    return _of_bits(a, b, zeros, a.residue & b.residue)


def or_(a: Congruence, b: Congruence) -> Congruence:
    """Bits of either: a one of one of them decides."""
    return _of_bits(a, b, a.residue | b.residue, a.residue | b.residue)


def xor(a: Congruence, b: Congruence) -> Congruence:
    """Bits of one of the two."""
    return _of_bits(a, b, 0, a.residue ^ b.residue)


def _of_bits(a: Congruence, b: Congruence, decided: int, bits: int) -> Congruence:
    """Bit by bit: known where both are, or where one of them alone decides; as far as the first bit that is not."""
    known = (a.modulus - 1 & b.modulus - 1) | decided
    modulus = min(~known & -~known, MOST)
    return Congruence(modulus, bits % modulus)
