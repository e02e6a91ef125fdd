"""The schedule of decode attention: which blocks of keys a program visits.

The blocks of all tiles stand in one row: sequence after sequence, of each one tile after tile. The row is cut into runs. The
first ones, one for each program, are long, and together most of the row; the others are short, and programs take them by
tickets when they are through. So programs that load more slowly have less to do, and all end at about the same time.

Lengths stay on the GPU: each producer adds up the blocks of all sequences, and looks for the tile in which a run begins.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.attend_parts import FIELDS, NUMBERS, Tile

CHUNK = 128
"""Lengths that a producer reads at a time."""
LANES = 32
LONG = 13
"""Sixteenths of all blocks that are in long runs."""
LEAST = 2
"""The least number of blocks in a short run."""


@gl.aggregate
class Cache:
    """The lengths of sequences, None where all are as long as the cache; of a paged cache the table of its pages, with `width`
    entries for each sequence, and the number of pages. There are at most `short` short runs for each program."""

    lengths: gl.tensor | None
    table: gl.tensor | None
    width: gl.tensor
    pages: gl.tensor
    short: gl.tensor
    plan: gl.constexpr

    @jit
    def keys(self, problem, batch, mask):
        """The number of keys of sequences."""
        if self.lengths is None:
            return problem.keys
        keys = gl.load(self.lengths + batch, mask=mask, other=0)
        inside = (keys >= 0) & (keys <= problem.keys)
        gl.device_assert(inside, "decode_attention: an element of cache_seqlens is negative or beyond the cache")
        return gl.minimum(gl.maximum(keys, 0), problem.keys)

    @jit
    def page(self, tile, position):
        """The pages of positions of a sequence; -1 for those without keys."""
        there = (position >= 0) & (position < tile.keys)
        at = tile.batch.to(gl.int64) * self.width + gl.maximum(position, 0) // self.plan.page
        found = gl.load(self.table + at, mask=there, other=-1)
        inside = (found >= 0) & (found < self.pages)
        gl.device_assert(inside, "decode_attention: an entry of block_table is no page of the cache", mask=there)
        return gl.where(inside, found, -1)

    @jit
    def entries(self, tile, last):
        """The pages of the pieces that end with the last one of block `last`, one in each lane, from there backwards. TMA makes
        zeros of what lies on page -1."""
        behind = gl.arange(0, LANES, gl.BlockedLayout([1], [LANES], [1], [0]))
        return self.page(tile, ((last + 1) * self.plan.pieces - 1 - behind) * self.plan.piece)


@gl.aggregate
class Share:
    """What a run has of a tile: part `index` of `count`, of tile number `unit`. Runs from `owner` on have one part each."""

    unit: gl.tensor
    owner: gl.tensor
    index: gl.tensor
    count: gl.tensor

    @jit
    def publish(self, memory):
        """Write it to shared memory, behind the tile."""
        gl.static_assert(NUMBERS + 4 <= FIELDS, "a published tile leaves room for four more numbers")
        layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0])
        numbers = (self.unit, self.owner, self.index, self.count)
        for i in gl.static_range(4):
            memory.slice(NUMBERS + i, 1).store(gl.full([1], numbers[i], gl.int32, layout))

    @jit
    def slot(self, index):
        """The place of a part among the partial results. A run has two: for the tile that it begins in the middle of, and for
        the one that it does not end."""
        return 2 * (self.owner + index) + gl.where(index == 0, 1, 0)


@jit
def share_of(memory):
    """The share that the producer has written to shared memory."""
    numbers = memory.load(gl.BlockedLayout([FIELDS], [LANES], [gl.num_warps()], [0]))
    return Share(*[gl.uniform(numbers[i : i + 1].item()) for i in range(NUMBERS, NUMBERS + 4)])


@jit
def blocks_of(problem, keys):
    """The first block of a sequence that a query sees, and the number of blocks."""
    first, end = problem.blocks(Tile(0, 0, 0, 0, 0, 0, problem.queries, keys, 0, 0, 0))
    return first, end - first


@jit
def chunk_of(cache, problem, first):
    """The numbers of blocks of some sequences, from number `first` on, and which of these there are."""
    batch = first + gl.arange(0, CHUNK, gl.BlockedLayout([CHUNK // LANES], [LANES], [gl.num_warps()], [0]))
    there = batch < problem.batch
    _, count = blocks_of(problem, cache.keys(problem, batch, there))
    return gl.where(there, count, 0), there


@gl.aggregate
class Runs:
    """The row of `total` blocks, cut into a run of `long` blocks for each program, and runs of `short` blocks."""

    total: gl.tensor
    long: gl.tensor
    short: gl.tensor

    @staticmethod
    @jit
    def make(cache, problem):
        """The runs of this problem."""
        tiles, programs = tiles_of(cache, problem), gl.num_programs(0)
        if cache.lengths is None:
            _, count = blocks_of(problem, problem.keys)
            total = problem.batch * count * tiles
        else:
            total = 0
            for chunk in range(gl.cdiv(problem.batch, CHUNK)):
                count, _ = chunk_of(cache, problem, chunk * CHUNK)
                total += gl.sum(count) * tiles
        each = total // programs
        # Short runs of a few blocks altogether would not even out anything.
        long = gl.where(each * (16 - LONG) >= 16 * LEAST, each * LONG // 16, gl.cdiv(total, programs))
        rest = gl.maximum(total - long * programs, 0)
        return Runs(total, long, gl.maximum(gl.cdiv(rest, cache.short * programs), LEAST))

    @jit
    def number(self, block):
        """The run that a block belongs to."""
        border = self.long * gl.num_programs(0)
        return gl.where(block < border, block // self.long, gl.num_programs(0) + (block - border) // self.short)

    @jit
    def first(self, number):
        """The first block of a run, or the one behind the last where there is no such run."""
        programs = gl.num_programs(0)
        behind = self.long * programs + (number - programs) * self.short
        return gl.minimum(gl.where(number < programs, number * self.long, behind), self.total)

    @jit
    def count(self):
        """Runs, with empty long ones."""
        return gl.num_programs(0) + gl.cdiv(gl.maximum(self.total - self.long * gl.num_programs(0), 0), self.short)

    @jit
    def next(self, tickets):
        """The number of the program's next run. There is none behind the last; the program that is the last to learn so leaves
        the tickets zero."""
        ticket = gl.atomic_add(tickets, 1, sem="relaxed")
        if ticket == self.count() - 1:
            gl.atomic_xchg(tickets, 0, sem="relaxed")
        return gl.num_programs(0) + ticket


@jit
def tiles_of(cache, problem):
    """Tiles of a sequence."""
    return problem.kv_heads * gl.cdiv(problem.members, cache.plan.tile_heads)


@gl.aggregate
class Walk:
    """The way through a run, whose blocks are those from `at` to `stop` - 1. Block `at` belongs to sequence `batch`, whose
    blocks begin with number `before`."""

    run: gl.tensor
    at: gl.tensor
    stop: gl.tensor
    batch: gl.tensor
    before: gl.tensor

    @jit
    def part(self, runs, cache, problem):
        """The next part, as tile and share, and the way behind it."""
        plan: gl.constexpr = cache.plan
        parts = gl.cdiv(problem.members, plan.tile_heads)
        keys = cache.keys(problem, self.batch, True)
        low, count = blocks_of(problem, keys)
        tile = (self.at - self.before) // count
        start = self.before + tile * count
        end = gl.minimum(start + count, self.stop)
        owner, tiles = runs.number(start), tiles_of(cache, problem)
        share = Share(self.batch * tiles + tile, owner, self.run - owner, runs.number(start + count - 1) - owner + 1)
        head = tile // parts
        found = Tile(
            self.batch, head, (tile - head * parts) * plan.tile_heads, 0, low + self.at - start, low + end - start,
            problem.queries, keys, 0, 0, 0,
        )  # fmt: skip
        over = end - self.before == tiles * count
        behind = Walk(self.run, end, self.stop, self.batch + over.to(gl.int32), gl.where(over, end, self.before))
        return found, share, behind

    @jit
    def through(self, run, runs, cache, problem):
        """The way through a later run."""
        at, tiles = runs.first(run), tiles_of(cache, problem)
        batch, before = self.batch, self.before
        if cache.lengths is None:
            _, count = blocks_of(problem, problem.keys)
            batch = at // (count * tiles)
            before = batch * count * tiles
        else:
            going = at < runs.total
            while going:
                count, there = chunk_of(cache, problem, batch)
                ends = before + gl.cumsum(count) * tiles
                over = there & (ends <= at)
                passed = gl.sum(over.to(gl.int32))
                before = gl.maximum(before, gl.max(gl.where(over, ends, 0)))
                batch += passed
                going = passed == CHUNK
        return Walk(run, at, runs.first(run + 1), batch, before)
