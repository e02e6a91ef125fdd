"""The rules of numbers, against every number of a narrow type: none claims what does not hold, and few could claim more.

A domain has every interval and every remainder modulo a power of two. Three bits are tried with all pairs of domains, four bits
with all pairs whose second is one number, as divisors and masks and amounts of shifts are, and with pairs drawn at random.
"""

from __future__ import annotations

import itertools
import random

import pytest

from weft.analysis.facts import scalar
from weft.analysis.facts.congruence import UNKNOWN, Congruence
from weft.analysis.facts.scalar import Scalar, Word, between, constant


def truncated(x, y):
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def shifted_left(x, n, word):
    return x << n if 0 <= n < word.bits else 0


def shifted_right(x, n, word):
    return x >> n if 0 <= n < word.bits else -(x < 0)


RULES = {
    "add": (lambda a, b, w: scalar.add(a, b), lambda x, y, w: x + y),
    "sub": (lambda a, b, w: scalar.sub(a, b), lambda x, y, w: x - y),
    "mul": (lambda a, b, w: scalar.mul(a, b), lambda x, y, w: x * y),
    "div": (scalar.div, lambda x, y, w: truncated(x, y) if y else None),
    "rem": (scalar.rem, lambda x, y, w: x - truncated(x, y) * y if y else None),
    "shl": (scalar.shl, shifted_left),
    "shr": (scalar.shr, shifted_right),
    "min": (lambda a, b, w: scalar.minimum(a, b), lambda x, y, w: min(x, y)),
    "max": (lambda a, b, w: scalar.maximum(a, b), lambda x, y, w: max(x, y)),
    "and": (scalar.and_, lambda x, y, w: x & y),
    "or": (scalar.or_, lambda x, y, w: x | y),
    "xor": (scalar.xor, lambda x, y, w: x ^ y),
    "high half": (scalar.high_half, lambda x, y, w: x * y >> w.bits if x >= 0 and y >= 0 else None),
}
OPTIMAL = {
    "mul": 0.55, "div": 0.8, "rem": 0.75, "shl": 0.65, "and": 0.95, "or": 0.95, "xor": 0.95, "high half": 0.5, "add": 0.97,
    "sub": 0.97, "shr": 0.95,
}  # fmt: skip
"""The least share of pairs of which a rule says all that interval and remainder can say; 1 where it is not listed. Products
that wrap are what lowers it: which part of a type they leave out depends on the factors."""
WITH_ONE_NUMBER = {"mul": 0.63, "rem": 0.9, "div": 0.95, "high half": 0.92}
WORDS = [Word(3, signed=True), Word(3, signed=False)]
FOUR = [Word(4, signed=True), Word(4, signed=False)]


def numbers(domain: Scalar) -> list[int]:
    rest = domain.rest
    return [x for x in range(domain.low, domain.high + 1) if x % rest.modulus == rest.residue]


def domains(word: Word) -> list[Scalar]:
    found = set()
    for low, high in itertools.combinations_with_replacement(range(word.low, word.high + 1), 2):
        for bits in range(word.bits):
            for residue in range(1 << bits):
                domain = between(low, high, Congruence(1 << bits, residue))
                if numbers(domain):
                    found.add(domain)
    return sorted(found, key=lambda d: (d.low, d.high, d.rest.modulus, d.rest.residue))


def tightest(values: set[int], word: Word) -> Scalar:
    """All that interval and remainder can say of these numbers."""
    modulus = 1
    while modulus < 1 << word.bits and len({x % (2 * modulus) for x in values}) == 1:
        modulus *= 2
    rest = Congruence(modulus, min(values) % modulus) if modulus > 1 else UNKNOWN
    return constant(min(values)) if len(values) == 1 else between(min(values), max(values), rest)


def wrapped(x: int, word: Word) -> int:
    return (x - word.low) % (1 << word.bits) + word.low


def judged(name: str, word: Word, pairs) -> float:
    """Asserts that the rule holds for the pairs; the share of those of which it says all that can be said."""
    rule, function = RULES[name]
    tried = optimal = 0
    for a, b in pairs:
        exact = {function(x, y, word) for x in numbers(a) for y in numbers(b)}
        found = word.wrap(rule(a, b, word))
        assert word.low <= found.low and found.high <= word.high
        values = {wrapped(x, word) for x in exact if x is not None}
        for x in values:
            assert found.low <= x <= found.high and x % found.rest.modulus == found.rest.residue, (a, b, found, x)
        if None not in exact:
            tried += 1
            optimal += found == tightest(values, word)
    return optimal / tried


@pytest.mark.parametrize("word", WORDS, ids=str)
@pytest.mark.parametrize("name", RULES)
def test_every_pair_of_three_bits(name, word):
    every = domains(word)
    share = judged(name, word, itertools.product(every, every))
    assert share >= OPTIMAL.get(name, 1), (
        f"{name} says all it could of {share:.3f}: tighten it, or enter that in OPTIMAL"
    )


@pytest.mark.parametrize("word", FOUR, ids=str)
@pytest.mark.parametrize("name", RULES)
def test_every_domain_of_four_bits_with_each_number(name, word):
    ones = [constant(x) for x in range(word.low, word.high + 1) if x or name not in ("div", "rem")]
    share = judged(name, word, itertools.product(domains(word), ones))
    least = WITH_ONE_NUMBER.get(name, 1)
    assert share >= least, f"{name} says all it could of {share:.3f}: tighten it, or enter that in WITH_ONE_NUMBER"


@pytest.mark.parametrize("word", FOUR, ids=str)
@pytest.mark.parametrize("name", RULES)
def test_random_pairs_of_four_bits(name, word):
    every, draw = domains(word), random.Random(name)
    judged(name, word, [(draw.choice(every), draw.choice(every)) for _ in range(3000)])


@pytest.mark.parametrize("word", WORDS, ids=str)
def test_comparisons_are_decided_where_they_can_be(word):
    compare = {
        "lt": int.__lt__,
        "le": int.__le__,
        "gt": int.__gt__,
        "ge": int.__ge__,
        "eq": int.__eq__,
        "ne": int.__ne__,
    }
    for a, b in itertools.product(domains(word), repeat=2):
        for predicate, function in compare.items():
            values = {int(function(x, y)) for x in numbers(a) for y in numbers(b)}
            found = scalar.compare(predicate, a, b)
            assert values <= set(numbers(found))
            if predicate not in ("eq", "ne"):
                assert values == set(numbers(found)), (a, predicate, b)


@pytest.mark.parametrize("word", [*WORDS, *FOUR], ids=str)
def test_set_bits_are_counted(word):
    """Every number that may come is in the facts of the count, and often they say no more than that."""
    every, tight = domains(word), 0
    for a in every:
        values = {(x & (1 << word.bits) - 1).bit_count() for x in numbers(a)}
        found = scalar.popcount(a, word.bits)
        assert values <= set(numbers(found)) <= set(range(word.bits + 1)), (a, found)
        tight += (min(values), max(values)) == (found.low, found.high)
    assert tight >= 0.6 * len(every)


@pytest.mark.parametrize("word", WORDS, ids=str)
def test_joins_and_signs(word):
    every = domains(word)
    for a in every:
        assert {abs(x) for x in numbers(a)} <= set(numbers(scalar.absolute(a)))
        assert numbers(a) == numbers(between(a.low, a.high, a.rest))
    for a, b in itertools.product(every, repeat=2):
        assert a.join(b) == tightest({*numbers(a), *numbers(b)}, Word(64, signed=True)), (a, b)
