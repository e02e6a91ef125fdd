"""Integers modulo a power of two: what the low bits of a number are known to be.

    arange(0, 64)[::4]        0 modulo 4
    pid * 64 + 5              5 modulo 64
    the constant 12           12 modulo `MOST`

Integers wrap modulo a power of two, so a congruence that holds for the exact number holds for the wrapped one as far as the
type's width. A lattice of finite height: `join` halves the modulus at least once or changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_BITS = 64
MOST = 1 << MOST_BITS
"""The largest modulus: that of a number known in full, for no type is wider."""


def power_of_two_part(value: int) -> int:
    """The largest power of two that divides a value, at most `MOST`.

    >>> power_of_two_part(48), power_of_two_part(0) == MOST
    (16, True)
    """
    return min(value & -value, MOST) if value else MOST


@dataclass(frozen=True, slots=True)
class Congruence:
    """Numbers that are `residue` modulo `modulus`, a power of two; 0 <= residue < modulus."""

    modulus: int = 1
    residue: int = 0

    @property
    def divisor(self) -> int:
        """The largest power of two known to divide all of them.

        >>> Congruence(16, 4).divisor, Congruence(16, 0).divisor
        (4, 16)
        """
        return min(self.modulus, power_of_two_part(self.residue))

    def modulo(self, modulus: int) -> Congruence:
        """The same numbers, known no further than a modulus."""
        return self if modulus >= self.modulus else Congruence(modulus, self.residue % modulus)

    def join(self, other: Congruence) -> Congruence:
        """What holds of both."""
        return self.modulo(min(other.modulus, power_of_two_part(self.residue - other.residue)))

    def __add__(self, other: Congruence) -> Congruence:
        modulus = min(self.modulus, other.modulus)
        return Congruence(modulus, (self.residue + other.residue) % modulus)

    def __sub__(self, other: Congruence) -> Congruence:
        modulus = min(self.modulus, other.modulus)
        return Congruence(modulus, (self.residue - other.residue) % modulus)

    def __mul__(self, other: Congruence) -> Congruence:
        # (a m + r) (b n + s) = a b m n + a m s + b n r + r s.
        by_s, by_r = power_of_two_part(other.residue), power_of_two_part(self.residue)
        modulus = min(self.modulus * other.modulus, self.modulus * by_s, other.modulus * by_r, MOST)
        return Congruence(modulus, self.residue * other.residue % modulus)

    def shifted_right(self, bits: int) -> Congruence:
        """Numbers shifted right, that is divided by 2**bits and rounded down."""
        return Congruence(max(self.modulus >> bits, 1), self.residue >> bits) if self.modulus >> bits else UNKNOWN

    def __and__(self, other: Congruence) -> Congruence:
        zeros = (self.modulus - 1 & ~self.residue) | (other.modulus - 1 & ~other.residue)
        return _of_bits(self, other, zeros, self.residue & other.residue)

    def __or__(self, other: Congruence) -> Congruence:
        return _of_bits(self, other, self.residue | other.residue, self.residue | other.residue)

    def __xor__(self, other: Congruence) -> Congruence:
        return _of_bits(self, other, 0, self.residue ^ other.residue)


UNKNOWN = Congruence()


def exactly(value: int) -> Congruence:
    """One number."""
    return Congruence(MOST, value % MOST)


def multiple_of(divisor: int) -> Congruence:
    """Multiples of a number's power-of-two part."""
    return Congruence(power_of_two_part(divisor), 0)


def _of_bits(a: Congruence, b: Congruence, decided: int, bits: int) -> Congruence:
    """Bit by bit: known where both are, or where one of them alone decides; as far as the first bit that is not."""
    known = (a.modulus - 1 & b.modulus - 1) | decided
    modulus = min(~known & -~known, MOST)
    return Congruence(modulus, bits % modulus)
