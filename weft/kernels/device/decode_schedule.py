"""The schedule of decode attention: which blocks of keys a program visits.

The blocks of all tiles stand in one row: sequence after sequence, of each one tile after tile. Each program has a run of them,
all of one length.

Where the queries of a head of keys are more than the rows of a tile, neighbouring programs have the same runs, each with some
of the queries: what one of them reads from memory the others find in L2.

Lengths stay on the GPU: each producer adds up the blocks of all sequences, and looks for the tile in which a run begins.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.attend_parts import NUMBERS, Tile, fields_of

CHUNK = 128
"""Lengths that a producer reads at a time."""
LANES = 32


@gl.aggregate
class Cache:
    """The lengths of sequences, None where all are as long as the cache; of a paged cache the table of its pages, with `width`
    entries for each sequence, and the number of pages."""

    lengths: gl.tensor | None
    table: gl.tensor | None
    width: gl.tensor
    pages: gl.tensor
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
        """The pages of positions of a sequence, or without pages its number; -1 for those without keys."""
        there = (position >= 0) & (position < tile.keys)
        if self.plan.page == 0:
            return gl.where(there, tile.batch, -1)
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
    def publish(self, memory, tile):
        """Write tile and share to shared memory."""
        tile.publish(memory, (self.unit, self.owner, self.index, self.count))

    @jit
    def slot(self, index):
        """The place of a part among the partial results. A run has two: for the tile that it begins in the middle of, and for
        the one that it does not end."""
        return 2 * (self.owner + index) + gl.where(index == 0, 1, 0)


@jit
def team_of(problem, plan: gl.constexpr):
    """The programs of a team, which share the query heads of a head of keys."""
    return 1 if plan.alone else gl.cdiv(problem.members, plan.tile_heads)


@jit
def share_of(memory):
    """The share that the producer has written to shared memory."""
    return Share(*fields_of(memory, NUMBERS, 4))


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
    """The row of `total` blocks, of which each team has `each`. A team has `members` programs, each with its part of the
    queries."""

    total: gl.tensor
    each: gl.tensor
    members: gl.tensor

    @staticmethod
    @jit
    def make(cache, problem):
        """The runs of this problem."""
        members = team_of(problem, cache.plan)
        if cache.lengths is None:
            _, count = blocks_of(problem, problem.keys)
            total = problem.batch * count * problem.kv_heads
        else:
            total = 0
            for chunk in range(gl.cdiv(problem.batch, CHUNK)):
                count, _ = chunk_of(cache, problem, chunk * CHUNK)
                total += gl.sum(count) * problem.kv_heads
        return Runs(total, gl.cdiv(total, gl.num_programs(0) // members), members)

    @jit
    def team(self):
        """The program's team, which is the number of its run."""
        return gl.program_id(0) // self.members

    @jit
    def member(self):
        """The program's number in its team."""
        return gl.program_id(0) % self.members


@gl.aggregate
class Walk:
    """The way through a run, whose blocks are those from `at` to `stop` - 1. Block `at` belongs to sequence `batch`, whose
    blocks begin with number `before`."""

    runs: Runs
    at: gl.tensor
    stop: gl.tensor
    batch: gl.tensor
    before: gl.tensor

    @jit
    def part(self, cache, problem):
        """The next part, as tile and share, and the way behind it."""
        plan: gl.constexpr = cache.plan
        runs = self.runs
        keys = cache.keys(problem, self.batch, True)
        low, count = blocks_of(problem, keys)
        tile = (self.at - self.before) // count
        start = self.before + tile * count
        end = gl.minimum(start + count, self.stop)
        owner, unit = start // runs.each, (self.batch * problem.kv_heads + tile) * runs.members + runs.member()
        share = Share(unit, owner, runs.team() - owner, (start + count - 1) // runs.each - owner + 1)
        found = Tile(
            self.batch, tile, runs.member() * plan.tile_heads, 0, low + self.at - start, low + end - start,
            problem.queries, keys, 0, 0, 0,
        )  # fmt: skip
        over = end - self.before == problem.kv_heads * count
        behind = Walk(runs, end, self.stop, self.batch + over.to(gl.int32), gl.where(over, end, self.before))
        return found, share, behind


@jit
def walk_of(cache, problem):
    """The way through the run of this program."""
    runs = Runs.make(cache, problem)
    at, tiles = gl.minimum(runs.team() * runs.each, runs.total), problem.kv_heads
    batch, before = 0, 0
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
    return Walk(runs, at, gl.minimum(at + runs.each, runs.total), batch, before)
