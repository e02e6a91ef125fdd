"""The lattice of integers modulo a power of two: the known low bits of a number.

    arange(0, 64)[::4]        0 modulo 4
    pid * 64 + 5              5 modulo 64
    the constant 12           12 modulo `MOST`

Integers wrap modulo a power of two, so a congruence of the exact number also holds for the wrapped one, up to the modulus of
the type's width. The lattice has finite height: `join` either changes nothing or at least halves the modulus.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

MOST_BITS = 64
MOST = 1 << MOST_BITS
"""The largest modulus, that of a constant. No integer type is wider."""


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
        """The congruence weakened to a smaller modulus."""
        return self if modulus >= self.modulus else Congruence(modulus, self.residue % modulus)

    def join(self, other: Congruence) -> Congruence:
        """The strongest congruence that both imply."""
        return (
            self if self == other else self.modulo(min(other.modulus, power_of_two_part(self.residue - other.residue)))
        )


UNKNOWN = Congruence()


@lru_cache(maxsize=4096)
def exactly(value: int) -> Congruence:
    """The congruence of a constant."""
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
    """Bitwise AND: a known 0 of one operand decides the bit."""
    zeros = (a.modulus - 1 & ~a.residue) | (b.modulus - 1 & ~b.residue)
    return _of_bits(a, b, zeros, a.residue & b.residue)


def or_(a: Congruence, b: Congruence) -> Congruence:
    """Bitwise OR: a known 1 of one operand decides the bit."""
    return _of_bits(a, b, a.residue | b.residue, a.residue | b.residue)


def xor(a: Congruence, b: Congruence) -> Congruence:
    """Bitwise XOR: a bit is known where both operands' bits are."""
    return _of_bits(a, b, 0, a.residue ^ b.residue)


def _of_bits(a: Congruence, b: Congruence, decided: int, bits: int) -> Congruence:
    """The congruence of known low bits. A bit is known if both operands' bits are, or if it is `decided` by one of them; the
    modulus ends at the lowest unknown bit."""
    known = (a.modulus - 1 & b.modulus - 1) | decided
    modulus = min(~known & -~known, MOST)
    return Congruence(modulus, bits % modulus)
