"""The lattice of intervals with a congruence modulo a power of two, and the transfer functions of integer operations on it.

    program_id(0)                    0 to 2147483646                  UNKNOWN
    program_id(0) & 7                0 to 7                           UNKNOWN
    (program_id(0) & 7) * 12 + 1     1 to 85                          1 modulo 4

The functions here give the exact result, before it wraps; `Word.wrap` applies a type's wrapping. They are therefore independent
of the width, and tests can check them exhaustively at 4 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from weft.analysis.facts import congruence
from weft.analysis.facts.congruence import UNKNOWN, Congruence, exactly, multiple_of


class Scalar(NamedTuple):
    """The integers from `low` to `high`, inclusive, that are `rest.residue` modulo `rest.modulus`; both bounds are."""

    low: int
    high: int
    rest: Congruence = UNKNOWN

    @property
    def value(self) -> int | None:
        """The number, if the set has exactly one."""
        return self.low if self.low == self.high else None

    @property
    def divisor(self) -> int:
        """The largest power of two known to divide all of them."""
        return self.rest.divisor

    @property
    def nonnegative(self) -> bool:
        """Whether all of them are >= 0."""
        return self.low >= 0

    def join(self, other: Scalar) -> Scalar:
        """The smallest set of this kind that contains both."""
        if self == other:
            return self
        return between(min(self.low, other.low), max(self.high, other.high), self.rest.join(other.rest))

    def within(self, other: Scalar) -> bool:
        """Whether the interval is a subset of the other's."""
        return other.low <= self.low and self.high <= other.high


ZERO = Scalar(0, 0, exactly(0))


@lru_cache(maxsize=4096)
def constant(value: int) -> Scalar:
    """The set of one number."""
    return Scalar(value, value, exactly(value))


def between(low: int, high: int, rest: Congruence = UNKNOWN) -> Scalar:
    """The integers between two bounds with a congruence. The bounds are tightened to numbers that satisfy it.

    >>> between(1, 10, multiple_of(4))
    Scalar(low=4, high=8, rest=Congruence(modulus=4, residue=0))
    """
    if rest.modulus == 1 and low < high:
        return Scalar(low, high, rest)
    first, last = low + (rest.residue - low) % rest.modulus, high - (high - rest.residue) % rest.modulus
    if first > last:  # no number satisfies the congruence: the code is unreachable
        return Scalar(low, high, rest)
    return constant(first) if first == last else Scalar(first, last, rest)


@dataclass(frozen=True, slots=True)
class Word:
    """An integer type of `bits` bits, with values from `low` to `high`; `whole` is the set of all of them. With `assumed`,
    results are assumed not to overflow."""

    bits: int
    signed: bool
    assumed: bool = False

    low: int = field(init=False)
    high: int = field(init=False)
    whole: Scalar = field(init=False)

    def __post_init__(self) -> None:
        low = -(1 << self.bits - 1) if self.signed else 0
        high = low + (1 << self.bits) - 1
        for name, value in (("low", low), ("high", high), ("whole", Scalar(low, high))):
            object.__setattr__(self, name, value)

    def wrap(self, exact: Scalar) -> Scalar:
        """Exact results wrapped to the type."""
        size = 1 << self.bits
        if self.low <= exact.low and exact.high <= self.high:
            return exact
        rest = exact.rest.modulo(size)
        if self.assumed:
            return between(max(exact.low, self.low), min(exact.high, self.high), rest)
        turns = (exact.low - self.low) // size
        if turns == (exact.high - self.low) // size:
            return between(exact.low - turns * size, exact.high - turns * size, rest)
        return between(self.low, self.high, rest)


# Rules: exact results.


def add(a: Scalar, b: Scalar) -> Scalar:
    """Sums."""
    return Scalar(a.low + b.low, a.high + b.high, congruence.add(a.rest, b.rest))


def sub(a: Scalar, b: Scalar) -> Scalar:
    """Differences."""
    return Scalar(a.low - b.high, a.high - b.low, congruence.sub(a.rest, b.rest))


def mul(a: Scalar, b: Scalar) -> Scalar:
    """Products."""
    (p, q, x), (s, t, y) = a, b
    rest = congruence.mul(x, y)
    if p >= 0 and s >= 0:
        return Scalar(p * s, q * t, rest)
    corners = (p * s, p * t, q * s, q * t)
    return Scalar(min(corners), max(corners), rest)


def scaled(a: Scalar, factor: int) -> Scalar:
    """Products with a power of two."""
    return Scalar(a.low * factor, a.high * factor, congruence.scaled(a.rest, factor))


def div(a: Scalar, b: Scalar, word: Word) -> Scalar:
    """Quotients, truncated towards zero. The result of a division by zero is undefined."""
    if b.low <= 0 <= b.high and not (b.rest.residue % b.rest.modulus):
        return word.whole
    divisors = {y for y in (b.low, b.high, -1, 1) if b.low <= y <= b.high and y}
    corners = [_truncated(x, y) for x in (a.low, a.high) for y in divisors]
    if a.low < 0 < a.high:
        corners.append(0)
    power = b.value is not None and b.value > 0 and b.value & (b.value - 1) == 0
    rest = UNKNOWN
    if power and (a.nonnegative or a.divisor >= b.low):
        rest = congruence.shifted_right(a.rest, b.low.bit_length() - 1)
    return between(min(corners), max(corners), rest)


def _truncated(x: int, y: int) -> int:
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def rem(a: Scalar, b: Scalar, word: Word) -> Scalar:
    """Remainders, with the sign of the dividend. The remainder of a division by zero is undefined."""
    if b.low <= 0 <= b.high and not (b.rest.residue % b.rest.modulus):
        return word.whole
    most = max(abs(b.low), abs(b.high)) - 1
    least = min(abs(b.low), abs(b.high)) if (b.low > 0) == (b.high > 0) else 1
    if -least < a.low and a.high < least:
        return a
    if b.value is not None and _truncated(a.low, b.value) == _truncated(a.high, b.value):
        return sub(a, constant(_truncated(a.low, b.value) * b.value))
    low, high = (max(a.low, -most) if a.low < 0 else 0), (min(a.high, most) if a.high > 0 else 0)
    return between(low, high, a.rest.modulo(b.divisor))


def shl(a: Scalar, n: Scalar, word: Word) -> Scalar:
    """Left shifts. PTX `shl` clamps the amount to the width, as an unsigned number: such shifts, and negative ones, give 0."""
    amounts = _inside(n, word)
    if amounts is None:
        return ZERO
    corners = [x << k for x in (a.low, a.high) for k in (amounts.low, amounts.high)]
    one = amounts.value is not None
    rest = congruence.mul(a.rest, exactly(1 << amounts.low)) if one else multiple_of(a.divisor << amounts.low)
    found = between(min(corners), max(corners), rest)
    return found if n.within(Scalar(0, word.bits - 1)) else word.wrap(found).join(ZERO)


def shr(a: Scalar, n: Scalar, word: Word) -> Scalar:
    """Right shifts, which round down. PTX `shr` clamps the amount to the width, as an unsigned number: such shifts, and
    negative ones, give the sign (0 or -1)."""
    amounts = _inside(n, word)
    signs = between(min(a.low, 0) and -1, -1 if a.high < 0 else 0)
    if amounts is None:
        return signs
    corners = [x >> k for x in (a.low, a.high) for k in (amounts.low, amounts.high)]
    rest = congruence.shifted_right(a.rest, amounts.low) if amounts.value is not None else UNKNOWN
    found = between(min(corners), max(corners), rest)
    return found if n.within(Scalar(0, word.bits - 1)) else found.join(signs)


def _inside(n: Scalar, word: Word) -> Scalar | None:
    """The shift amounts below the width; None if there are none."""
    found = between(max(n.low, 0), min(n.high, word.bits - 1), n.rest)
    return None if found.low > found.high or n.high < 0 or n.low >= word.bits else found


def minimum(a: Scalar, b: Scalar) -> Scalar:
    """The smaller ones."""
    if a.high <= b.low or b.high <= a.low:
        return a if a.high <= b.low else b
    return between(min(a.low, b.low), min(a.high, b.high), a.rest.join(b.rest))


def maximum(a: Scalar, b: Scalar) -> Scalar:
    """The larger ones."""
    if a.high <= b.low or b.high <= a.low:
        return b if a.high <= b.low else a
    return between(max(a.low, b.low), max(a.high, b.high), a.rest.join(b.rest))


def absolute(a: Scalar) -> Scalar:
    """Absolute values."""
    if a.low >= 0:
        return a
    negated = sub(constant(0), a)
    return negated if a.high <= 0 else between(0, max(negated.high, a.high), a.rest.join(negated.rest))


def high_half(a: Scalar, b: Scalar, word: Word) -> Scalar:
    """The high halves of products of unsigned numbers."""
    if a.low < 0 or b.low < 0:
        return word.whole
    return between(a.low * b.low >> word.bits, a.high * b.high >> word.bits)


def popcount(x: Scalar, bits: int) -> Scalar:
    """Numbers of set bits, of integers of `bits` bits."""
    if x.value is not None:
        return constant((x.value & (1 << bits) - 1).bit_count())
    width = bits if x.low < 0 else x.high.bit_length()
    known, low_ones = min(x.rest.modulus.bit_length() - 1, width), x.rest.residue.bit_count()
    sign = int(x.high < 0 and known < bits)
    # Only 2**n - 1 has n bits set.
    short = int(x.low >= 0 and x.high & (x.high + 1) != 0)
    return between(max(low_ones + sign, int(x.low > 0)), min(low_ones + width - known, width - short))


def compare(predicate: str, a: Scalar, b: Scalar) -> Scalar:
    """1 if the comparison holds for all pairs, 0 if it holds for none, else both."""
    swapped = {"gt": "lt", "le": "ge"}.get(predicate)
    if swapped is not None:
        return compare(swapped, b, a)
    if predicate == "lt":
        return _decided(a.high < b.low, a.low >= b.high)
    if predicate == "ge":
        return _decided(a.low >= b.high, a.high < b.low)
    apart = a.high < b.low or b.high < a.low or a.rest.join(b.rest).modulus < min(a.rest.modulus, b.rest.modulus)
    same = a.value is not None and a.value == b.value
    return _decided(same, apart) if predicate == "eq" else _decided(apart, same)


TRUTH = Scalar(0, 1)


def _decided(always: bool, never: bool) -> Scalar:
    return constant(1) if always else constant(0) if never else TRUTH


# Bitwise operations: the exact interval, from the bounds of each half that has one sign (Warren, "Hacker's Delight", 4-3).


def and_(a: Scalar, b: Scalar, word: Word) -> Scalar:
    """Bitwise AND. With a mask of low bits it is a remainder; with a mask of high bits it rounds down to a multiple."""
    mask = b.value
    rest = congruence.and_(a.rest, b.rest)
    if mask is not None and mask >= 0 and mask & (mask + 1) == 0:
        turned = a.low - (a.low & mask)
        return between(0, mask, rest) if a.high - turned > mask else between(a.low - turned, a.high - turned, rest)
    if mask is not None and (mask if word.signed else mask - (1 << word.bits)) == -(mask & -mask):
        return between(a.low & mask, a.high & mask, rest)
    return _bitwise(a, b, word, rest, _least_and, _most_and)


def or_(a: Scalar, b: Scalar, word: Word) -> Scalar:
    """Bitwise OR."""
    return _bitwise(a, b, word, congruence.or_(a.rest, b.rest), _least_or, _most_or)


def xor(a: Scalar, b: Scalar, word: Word) -> Scalar:
    """Bitwise XOR."""
    return _bitwise(a, b, word, congruence.xor(a.rest, b.rest), _least_xor, _most_xor)


Bounds = tuple[int, int]
Bound = Callable[[int, int, int, int, int], int]


def _halves(a: Scalar, size: int) -> list[Bounds]:
    """The negative and the nonnegative numbers, as two intervals of unsigned bit patterns."""
    below = [(a.low + size, min(a.high, -1) + size)] if a.low < 0 else []
    return below + ([(max(a.low, 0), a.high)] if a.high >= 0 else [])


def _bitwise(a: Scalar, b: Scalar, word: Word, rest: Congruence, least: Bound, most: Bound) -> Scalar:
    size, lows, highs = 1 << word.bits, list[int](), list[int]()
    for x in _halves(a, size):
        for y in _halves(b, size):
            within = 1 << max(x[1], y[1]).bit_length()
            low, high = least(*x, *y, within), most(*x, *y, within)
            turn = size if word.signed and low > word.high else 0
            lows.append(low - turn)
            highs.append(high - turn)
    return between(min(lows), max(highs), rest)


def _least_or(a: int, b: int, c: int, d: int, size: int) -> int:
    """The smallest x | y with a <= x <= b and c <= y <= d."""
    bit = size >> 1
    while bit:
        if ~a & c & bit and (a | bit) & -bit <= b:
            a = (a | bit) & -bit
            break
        if a & ~c & bit and (c | bit) & -bit <= d:
            c = (c | bit) & -bit
            break
        bit >>= 1
    return a | c


def _most_or(a: int, b: int, c: int, d: int, size: int) -> int:
    bit = size >> 1
    while bit:
        if b & d & bit:
            if (b - bit) | (bit - 1) >= a:
                return ((b - bit) | (bit - 1)) | d
            if (d - bit) | (bit - 1) >= c:
                return b | ((d - bit) | (bit - 1))
        bit >>= 1
    return b | d


def _least_and(a: int, b: int, c: int, d: int, size: int) -> int:
    return size - 1 - _most_or(size - 1 - b, size - 1 - a, size - 1 - d, size - 1 - c, size)


def _most_and(a: int, b: int, c: int, d: int, size: int) -> int:
    return size - 1 - _least_or(size - 1 - b, size - 1 - a, size - 1 - d, size - 1 - c, size)


def _least_xor(a: int, b: int, c: int, d: int, size: int) -> int:
    bit = size >> 1
    while bit:
        if ~a & c & bit and (a | bit) & -bit <= b:
            a = (a | bit) & -bit
        elif a & ~c & bit and (c | bit) & -bit <= d:
            c = (c | bit) & -bit
        bit >>= 1
    return a ^ c


def _most_xor(a: int, b: int, c: int, d: int, size: int) -> int:
    bit = size >> 1
    while bit:
        if b & d & bit:
            if (b - bit) | (bit - 1) >= a:
                b = (b - bit) | (bit - 1)
            elif (d - bit) | (bit - 1) >= c:
                d = (d - bit) | (bit - 1)
        bit >>= 1
    return b ^ d
