"""Tokens to experts of other ranks, and their results back: the all-to-all of a mixture of experts.

`dispatch` sorts by expert across ranks: the rows of a rank's experts lie one expert after the other, and within an expert by
the rank that they come from. Where a row goes follows from how many tokens each rank has for each expert, so the ranks exchange
these counts first, and every program computes the table of first rows from them. `combine` fetches the rows back, and adds them
up with weights.

Flags of `dispatch`: program i gets the counts on flag i, and meets its like on flag PROGRAMS + i when all rows are stored.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.experts import numbers
from weft.kernels.device.ranks import meet, signal_flags
from weft.language.extra.cuda import gdc_wait


@jit
def exchange_counts(
    counts: gl.symmetric, own, ids, count, experts, PROGRAMS: gl.constexpr, BINS: gl.constexpr, BIN: gl.constexpr,
    CHUNK: gl.constexpr,
):  # fmt: skip
    """Store the rank's counts of tokens for all experts in its row of `counts`, on every rank, and wait for all other rows.
    Of a single chunk of `ids` the launch that stores the `own` counts may still run, so they are counted here.

    No rank reads the rows of an earlier launch any more: it did so before it met this rank's programs at that launch's end."""
    program, at = gl.program_id(0), gl.arange(0, BINS, BIN)
    if program == 0:
        found = gl.zeros([BINS], gl.int32, BIN)
        if count <= CHUNK:
            number, inside = numbers(ids, 0, count, experts, CHUNK)
            found = gl.histogram(number, BINS, mask=inside, layout=BIN)
        else:
            found = gl.load(own + at, at < experts, 0)
        for rank in gl.static_range(counts.world_size):
            gl.store(counts.peer(rank) + (counts.rank * experts + at), found, at < experts)
            signal_flags(counts, rank, 0, PROGRAMS)
    for rank in gl.static_range(counts.world_size):
        gl.wait_signal(counts, rank, program)


@jit
def first_rows(
    counts: gl.symmetric, own_offsets, offsets, experts, each, capacity, table, BINS: gl.constexpr, BIN: gl.constexpr,
    CHAINED: gl.constexpr,
):  # fmt: skip
    """The table by expert of the first row there for tokens of this rank, less the place of the first of them in the order of
    this rank: a token's row is that plus its place. Program 0 stores the `offsets` of the own experts' rows."""
    at = gl.arange(0, BINS, BIN)
    total, before = gl.zeros([BINS], gl.int32, BIN), gl.zeros([BINS], gl.int32, BIN)
    for rank in gl.static_range(counts.world_size):
        found = gl.load(counts.local + (rank * experts + at), at < experts, 0)
        total += found
        before += gl.where(counts.rank > rank, found, 0)
    upto = gl.cumsum(total, 0)
    # Rows are counted from the first one of the expert's rank.
    table.store(upto - total)
    start = upto - total - table.gather(gl.minimum(at // each * each, BINS - 1), 0)
    if gl.program_id(0) == 0:
        inside = (at // each == counts.rank) & (at < experts)
        gl.store(offsets + (at - counts.rank * each), gl.minimum(start, capacity), inside)
        last = at == counts.rank * each + each - 1
        gl.store(offsets + each + gl.zeros_like(at), gl.minimum(start + total, capacity), last)
    if CHAINED:
        # From here on the sort has ended.
        gdc_wait()
    table.store(start + before - gl.load(own_offsets + at, at < experts, 0))


@jit
def of_tokens(x, ids, token, tokens, at, width, experts, K: gl.constexpr):
    """The first columns of some tokens, and of each of their K slots the expert, -1 where there is none."""
    there, numbers_of_slots = token < tokens, ()
    for slot in gl.static_range(K):
        number = gl.load(ids + (token * K + slot), there, -1)
        numbers_of_slots += (gl.where((number >= 0) & (number < experts), number, -1).to(gl.int32),)
    return gl.load(x + (token.to(gl.int64)[:, None] * width + at), there[:, None] & (at < width)), numbers_of_slots


@jit
def dispatch(
    x, ids, own, own_offsets, own_places, rows: gl.symmetric, counts: gl.symmetric, offsets, places, tokens, width, experts,
    each, capacity, K: gl.constexpr, PROGRAMS: gl.constexpr, TOKENS: gl.constexpr, COLUMNS: gl.constexpr,
    TILE: gl.constexpr, BINS: gl.constexpr, BIN: gl.constexpr, CHUNK: gl.constexpr, CHAINED: gl.constexpr,
):  # fmt: skip
    """Store each token to the ranks of its K experts; `places`: its row there, or -1 where there is no expert or no room.

    Ranks exchange counts while the launch before this one runs, the last of the sort, which computes `own_offsets` and
    `own_places`. It has begun behind everything before it, without programmatic launch, so all else may be read at once. The
    next tokens are loaded while these are stored."""
    program = gl.program_id(0)
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, TILE))[None, :]
    token = program * TOKENS + gl.arange(0, TOKENS, gl.SliceLayout(1, TILE))
    value, found = of_tokens(x, ids, token, tokens, column, width, experts, K)
    exchange_counts(counts, own, ids, tokens * K, experts, PROGRAMS, BINS, BIN, CHUNK)
    table = gl.allocate_shared_memory(gl.int32, [BINS], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    first_rows(counts, own_offsets, offsets, experts, each, capacity, table, BINS, BIN, CHAINED)
    for _ in range(program * TOKENS, tokens, PROGRAMS * TOKENS):
        ranks, targets, goes, own_place = (), (), (), ()
        for slot in gl.static_range(K):
            own_place += (gl.load(own_places + (token * K + slot), token < tokens, 0),)
        for slot in gl.static_range(K):
            known = found[slot] >= 0
            expert = gl.where(known, found[slot], 0)
            target = table.gather(expert, 0) + own_place[slot]
            known = known & (target < capacity)
            gl.store(places + (token * K + slot), gl.where(known, target, -1), token < tokens)
            ranks, targets, goes = (*ranks, expert // each), (*targets, target), (*goes, known)
        for start in range(0, width, COLUMNS):
            at = start + column
            for slot in gl.static_range(K):
                row = rows.peer(ranks[slot])[:, None] + targets[slot].to(gl.int64)[:, None] * width
                gl.store(row + at, value, goes[slot][:, None] & (at < width))
            at += COLUMNS
            more = (token < tokens)[:, None] & (at < width)
            value = gl.load(x + (token.to(gl.int64)[:, None] * width + at), more)
        token += PROGRAMS * TOKENS
        value, found = of_tokens(x, ids, token, tokens, column, width, experts, K)
    meet(rows, PROGRAMS + program)


@jit
def combine(
    rows: gl.symmetric, ids, places, weights, out, tokens, width, each,
    K: gl.constexpr, PROGRAMS: gl.constexpr, TOKENS: gl.constexpr, COLUMNS: gl.constexpr, TILE: gl.constexpr,
):  # fmt: skip
    """out[token] = the sum over its experts of weight * row, in float32."""
    program = gl.program_id(0)
    line = gl.arange(0, TOKENS, gl.SliceLayout(1, TILE))
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, TILE))[None, :]
    meet(rows, program)
    for first in range(program * TOKENS, tokens, PROGRAMS * TOKENS):
        token = first + line
        there = token < tokens
        sources, scales, known = (), (), ()
        for slot in gl.static_range(K):
            place = gl.load(places + (token * K + slot), there, -1)
            expert = gl.load(ids + (token * K + slot), place >= 0, 0).to(gl.int32)
            scales += (gl.load(weights + (token * K + slot), place >= 0, 0).to(gl.float32),)
            sources += (rows.peer(expert // each)[:, None] + place.to(gl.int64)[:, None] * width,)
            known += ((place >= 0)[:, None],)
        for start in range(0, width, COLUMNS):
            at = start + column
            # All loads come first, so that they are on their way together.
            parts = ()
            for slot in gl.static_range(K):
                parts += (gl.load(sources[slot] + at, known[slot] & (at < width), 0),)
            total = gl.zeros([TOKENS, COLUMNS], gl.float32, TILE)
            for slot in gl.static_range(K):
                total += parts[slot].to(gl.float32) * scales[slot][:, None]
            stored = total.to(out.dtype.element_ty)
            gl.store(out + (token.to(gl.int64)[:, None] * width + at), stored, there[:, None] & (at < width))
    meet(rows, program)
