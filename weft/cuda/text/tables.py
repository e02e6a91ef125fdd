"""Constant index tables as C expressions of the loop index: `4 * r + 2`, `8 * (r / 4) + r % 4`, or a constexpr array.

After unrolling, each entry is a constant; the expression serves readability.
"""

from __future__ import annotations

import re
from functools import lru_cache

from weft.cuda.text.spelling import integer

IndexTable = tuple[int, ...]
MOST_TERMS = 4
"""A table with more bit terms than this is emitted as an array."""


@lru_cache(maxsize=4096)
def expression(table: IndexTable, index: str) -> str | None:
    """The table's entry at `index` as a sum of weighted bits of the index; None if the table has no such form."""
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


def is_wide(table: IndexTable) -> bool:
    """True if an entry, or its difference from the first one (the sum of the terms), is out of the range of `int`."""
    reach = max(max(abs(entry), abs(entry - table[0])) for entry in table)
    return reach >= 1 << 31


def parenthesised(text: str) -> str:
    """The text as a factor of a product."""
    return text if re.fullmatch(r"\w+|\w+\[\w+\]|\w+\([^()]*\)", text) else f"({text})"


def _bit_weights(table: IndexTable) -> list[int] | None:
    """The weight of each bit of the index, if the entries are sums of weighted bits."""
    first = table[0]
    weights = [table[1 << bit] - first for bit in range((len(table) - 1).bit_length())]
    sums = [first]
    for weight in weights:
        sums += [entry + weight for entry in sums]
    return weights if tuple(sums[: len(table)]) == table else None


def _runs(weights: list[int]) -> list[tuple[int, int]]:
    """Ranges of bits whose weights double from bit to bit, highest first: each is one term. Bits of weight 0 have none."""
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
