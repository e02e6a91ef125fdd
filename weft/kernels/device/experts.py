"""Counts of numbers below a bound, and a stable counting sort by them: the order of tokens by expert.

Three launches, without atomics, so that results are the same each time; where there is one chunk, the last of them alone.
`count_chunks` counts the numbers of each chunk,
`add_chunks` adds up each number's counts over the chunks, `place_chunks` sorts a chunk by number and position in registers, and
stores each element behind those of smaller numbers, of earlier chunks, and of earlier positions.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.language.extra.cuda import gdc_launch_dependents

LANES = 32


@gl.constexpr_function
def line(size: int, warps: int):
    """A vector over the threads of a program, neighbours in one thread."""
    return gl.BlockedLayout([max(1, size // (LANES * warps))], [LANES], [warps], [0])


@jit
def numbers(ids, first, count, bound, CHUNK: gl.constexpr):
    """The numbers of a chunk, and which of them count; others are reported by the simulator and debug builds."""
    at = gl.arange(0, CHUNK, line(CHUNK, gl.num_warps()))
    there = first + at < count
    number = gl.load(ids + first + at, mask=there, other=0)
    inside = (number >= 0) & (number < bound)
    gl.device_assert(inside | ~there, "an expert's number is negative or not below the number of experts")
    return number.to(gl.int32), there & inside


@jit(do_not_specialize=["count", "bound"])
def count_chunks(
    ids: gl.tensor, counts: gl.tensor, count: int, bound: int, CHUNK: gl.constexpr, BINS: gl.constexpr
) -> None:
    """`counts` [chunks, bound]: how often each number is in each chunk."""
    chunk = gl.program_id(0)
    number, inside = numbers(ids, chunk.to(gl.int64) * CHUNK, count, bound, CHUNK)
    found = gl.histogram(number, BINS, mask=inside, layout=line(BINS, gl.num_warps()))
    at = gl.arange(0, BINS, line(BINS, gl.num_warps()))
    gl.store(counts + chunk.to(gl.int64) * bound + at, found, mask=at < bound)


@jit(do_not_specialize=["chunks", "bound"])
def add_chunks(
    counts: gl.tensor, before: gl.tensor | None, totals: gl.tensor, chunks: int, bound: int, ROWS: gl.constexpr,
    layout: gl.constexpr,
) -> None:  # fmt: skip
    """`before` [chunks, bound]: how often each number is in earlier chunks; `totals` [bound]. A program has 32 numbers."""
    column = gl.program_id(0) * LANES + gl.arange(0, LANES, gl.SliceLayout(0, layout))
    row = gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
    total = gl.zeros([LANES], gl.int32, gl.SliceLayout(0, layout))
    for first in range(0, chunks, ROWS):
        at = (first + row).to(gl.int64) * bound + column[None, :]
        inside = (first + row < chunks) & (column[None, :] < bound)
        found = gl.load(counts + at, mask=inside, other=0)
        if before is not None:
            upto = gl.cumsum(found, 0) - found + total[None, :]
            gl.store(before + at, upto, mask=inside)
        total += gl.sum(found, axis=0)
    gl.store(totals + column, total, mask=column < bound)


@jit(do_not_specialize=["count", "bound"])
def place_chunks(
    ids: gl.tensor, before: gl.tensor | None, totals: gl.tensor, offsets: gl.tensor, order: gl.tensor, places: gl.tensor,
    count: int, bound: int, CHUNK: gl.constexpr, BINS: gl.constexpr, CHAINED: gl.constexpr,
) -> None:  # fmt: skip
    """`order`: positions of elements in the sorted order; `places`: where each element has gone; `offsets` [bound + 1]. Without
    `before` there is one chunk, whose counts are stored to `totals`."""
    if CHAINED:
        # A launch behind this one that waits for it may begin meanwhile.
        gdc_launch_dependents()
    chunk = gl.program_id(0)
    start = chunk.to(gl.int64) * CHUNK
    number, inside = numbers(ids, start, count, bound, CHUNK)
    bins = line(BINS, gl.num_warps())
    at = gl.arange(0, BINS, bins)
    own = gl.histogram(number, BINS, mask=inside, layout=bins)
    if before is None:
        total = own
        gl.store(totals + at, own, mask=at < bound)
    else:
        total = gl.load(totals + at, mask=at < bound, other=0)
    upto = gl.cumsum(total, 0)
    if chunk == 0:
        gl.store(offsets + 1 + at, upto, mask=at < bound)
        gl.store(offsets + at, at, mask=at == 0)
    # Where an element of each number goes, less its place in the sorted chunk.
    shift = gl.zeros_like(own)
    if before is not None:
        earlier = gl.load(before + chunk.to(gl.int64) * bound + at, mask=at < bound, other=0)
        shift = upto - total + earlier - (gl.cumsum(own, 0) - own)
    position = gl.arange(0, CHUNK, line(CHUNK, gl.num_warps()))
    # What does not count comes last.
    keys = gl.sort(gl.where(inside, number, BINS) * CHUNK + position)
    which, source = keys // CHUNK, keys % CHUNK
    target = gl.gather(shift, gl.minimum(which, BINS - 1), 0) + position
    gl.store(order + target, (start + source).to(order.dtype.element_ty), mask=which < BINS)
    gl.store(places + start + source, target, mask=which < BINS)
