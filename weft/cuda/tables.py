"""Constant index tables as C expressions of the loop index: `4 * r + 2`, `8 * (r / 4) + r % 4`, or a constexpr array.

After unrolling each is a constant; the expression is for the reader.
"""

from __future__ import annotations

import re
from functools import lru_cache

from weft.cuda.spelling import integer

Table = tuple[int, ...]
MOST_TERMS = 4
"""A table of more bit terms than this reads better as an array."""


@lru_cache(maxsize=4096)
def expression(table: Table, index: str) -> str | None:
    """The table's entry at `index` (which runs over the table) as a sum of bits of the index; None where it is no such sum."""
    weights = _bit_weights(table)
    if weights is None:
        return None
    index, wide = parenthesised(index), is_wide(table)
    terms = [_term(index, low, high, len(weights), weights[low], wide) for low, high in _runs(weights)]
    if len(terms) > MOST_TERMS:
        return None
    if table[0] or not terms:
        terms.append(integer(table[0], wide))
    return " + ".join(terms)


def is_wide(table: Table) -> bool:
    """True when C's `int` does not hold every entry, or every distance from the first one, which the terms add up to."""
    reach = max(max(abs(entry), abs(entry - table[0])) for entry in table)
    return reach >= 1 << 31


def parenthesised(text: str) -> str:
    """The text as a factor of a product."""
    return text if re.fullmatch(r"\w+|\w+\[\w+\]|\w+\([^()]*\)", text) else f"({text})"


def _bit_weights(table: Table) -> list[int] | None:
    """What each bit of the index adds to the entry, if the entries are such sums."""
    first = table[0]
    weights = [table[1 << bit] - first for bit in range((len(table) - 1).bit_length())]
    sums = [first]
    for weight in weights:
        sums += [entry + weight for entry in sums]
    return weights if tuple(sums[: len(table)]) == table else None


def _runs(weights: list[int]) -> list[tuple[int, int]]:
    """Ranges of bits whose weights double from bit to bit, highest first: each is one term. Bits of no weight have none."""
    runs: list[tuple[int, int]] = []
    low = 0
    while low < len(weights):
        high = low + 1
        while high < len(weights) and weights[high] == weights[low] << (high - low) != 0:
            high += 1
        if weights[low]:
            runs.append((low, high))
        low = high
    return runs[::-1]


def _term(index: str, low: int, high: int, bits: int, weight: int, wide: bool) -> str:
    part = index if low == 0 else f"{index} / {1 << low}"
    if high < bits:
        part = f"{part} % {1 << (high - low)}"
    if weight == 1:
        return part
    if part != index:
        part = f"({part})"
    return f"-{part}" if weight == -1 else f"{integer(weight, wide)} * {part}"
