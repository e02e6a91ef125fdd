"""A product of which one operand is gathered from all ranks while it runs: copy engines bring the rows of other ranks, chunk
by chunk, and set a word for each chunk; the producer waits for the words of the rows that it loads.

A rank begins with the first tile that has its own rows alone, which are there, and goes on with those of the next ranks, in
the order in which they arrive. It waits for chunks in that order only, so that each is waited for once: a later one is seldom
there before an earlier one.
"""

from __future__ import annotations

from typing import TypeAlias

from weft import language as gl
from weft.kernel import jit

Gathered: TypeAlias = "tuple[gl.symmetric, int, int] | None"
"""The words, one for each chunk of each rank's rows; the rows of a rank; and those of a chunk, of which the last may be
shorter."""


@jit
def first_tile(gathered, rows: gl.constexpr):
    """The first tile, of so many rows of the operand, that has none of the rank before this one."""
    words, each, _ = gathered
    return gl.cdiv(words.rank * each, rows) % gl.cdiv(words.world_size * each, rows)


@jit
def turned(number, first, count):
    """The number of a tile along the operand's rows, counted from a first one on."""
    number += first
    return gl.where(number < count, number, number - count)


@jit
def behind_own(gathered, row):
    """The number of chunks that come before a row's, from this rank's first one on."""
    words, each, chunk = gathered
    total = words.world_size * each
    distance = row - words.rank * each
    distance = gl.where(distance < 0, distance + total, distance)
    return distance // each * gl.cdiv(each, chunk) + distance % each // chunk


@jit
def wait_for_rows(gathered, seen, row, rows: gl.constexpr):
    """Wait until so many rows of the operand have arrived, of which `row` is the first; `seen` chunks have been waited for
    before. Returns how many have been now."""
    words, each, chunk = gathered
    chunks = gl.cdiv(each, chunk)
    last = min(row + rows, words.world_size * each) - 1
    before, behind = behind_own(gathered, row), behind_own(gathered, last)
    # A tile that begins before this rank's first row, and ends behind it, has rows of the last chunk.
    needed = gl.where(before <= behind, behind + 1, words.world_size * chunks)
    for number in range(seen, needed):
        source = (words.rank + number // chunks) % words.world_size
        gl.wait_value(words, source * chunks + number % chunks)
    return max(seen, needed)
