"""The schedule of decode attention: which blocks of keys a program visits.

Neighbouring programs are a team, which visits some heads of keys side by side. The blocks of all teams stand in one row:
sequence after sequence, of each one group of heads after another. Each team has a run of them, all of one length.

Members of a team with different heads read the same positions at the same time. So they read pages as a whole, in which heads
lie side by side or behind one another: 6 % faster from pages of 16 positions, and 1 to 2 % from a cache without pages (H200).
Where the queries of a head of keys are more than the rows of a tile, further members have the same head, each with some of the
queries: what one of them reads from memory the others find in L2. Programs have three numbers, that of their tile of queries,
of their head in the team, and of the team, since a division takes as long as a few shuffles.

Lengths stay on the GPU: each producer adds up the blocks of all sequences, and looks for the tile in which a run begins.
"""

from __future__ import annotations

from typing import Any

from weft import language as gl
from weft.kernel import jit
from weft.kernels.decode_plan import CHUNK
from weft.kernels.device.attend_parts import NUMBERS, Tile, fields_of

LANES = 32


def zeros_at(places: Any) -> Any:
    """What the simulator reads early."""
    return (places * 0).astype("int32")


@gl.aggregate
class Cache:
    """The lengths of sequences, None where all are as long as the cache; of a paged cache the table of its pages, with `width`
    entries for each sequence, and the number of pages. A sequence has `groups` of heads, which teams visit one after another.

    With `early` numbers are read ahead of `gdc_wait`, when they may be those of before, or change: good for guesses alone."""

    lengths: gl.tensor | None
    table: gl.tensor | None
    width: gl.tensor
    pages: gl.tensor
    groups: gl.tensor
    plan: gl.constexpr
    early: gl.constexpr

    @jit
    def read(self, numbers, at, mask, other):
        """Numbers at places; `other` where `mask` is false."""
        if not self.early:
            return gl.load(numbers + at, mask=mask, other=other)
        # Past L1, which may keep what it has over `gdc_wait`. The simulator reads zeros, since the load would be a race.
        places = (numbers + gl.where(mask, at, 0)).to(gl.int64)
        read: gl.constexpr = "ld.relaxed.gpu.global.u32 $0, [$1];"
        found = gl.inline_asm_elementwise(read, "=r,l", [places], gl.int32, False, 1, sim=zeros_at)
        return gl.where(mask, found, other)

    @jit
    def keys(self, problem, batch, mask):
        """The number of keys of sequences."""
        if self.lengths is None:
            return problem.keys
        keys = self.read(self.lengths, batch, mask, 0)
        if not self.early:
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
        found = self.read(self.table, at, there, -1)
        inside = (found >= 0) & (found < self.pages)
        if not self.early:
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
def member_of():
    """The program's number in its team, and the programs of the team."""
    return gl.program_id(1) * gl.num_programs(0) + gl.program_id(0), gl.num_programs(0) * gl.num_programs(1)


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
    """The numbers of keys and of blocks of CHUNK sequences, from number `first` on; 0 behind the last one."""
    batch = first + gl.arange(0, CHUNK, gl.BlockedLayout([CHUNK // LANES], [LANES], [gl.num_warps()], [0]))
    there = batch < problem.batch
    keys = cache.keys(problem, batch, there)
    _, count = blocks_of(problem, keys)
    return keys, gl.where(there, count, 0)


@gl.aggregate
class Runs:
    """The row of `total` blocks, of which each team has `each`."""

    total: gl.tensor
    each: gl.tensor

    @staticmethod
    @jit
    def make(cache, problem):
        """The runs of this problem, and `chunk_of` the first sequences, where lengths are given."""
        plan: gl.constexpr = cache.plan
        chunk = None
        if cache.lengths is None:
            _, count = blocks_of(problem, problem.keys)
            total = problem.batch * count
        else:
            chunk = chunk_of(cache, problem, 0)
            total = gl.sum(chunk[1])
            for i in range(1, gl.cdiv(problem.batch, CHUNK)):
                total += gl.sum(chunk_of(cache, problem, i * CHUNK)[1])
        total *= cache.groups
        each = gl.cdiv(total, gl.num_programs(2))
        if plan.together > 1:
            # A block that is visited without another one takes the time of both.
            each = gl.where(each > plan.together, gl.cdiv(each, plan.together) * plan.together, each)
        return Runs(total, each), chunk


@gl.aggregate
class Walk:
    """The way through a run, whose blocks are those from `at` to `stop` - 1. Block `at` belongs to sequence `batch`, whose
    blocks begin with number `before`, and which has `keys` keys."""

    runs: Runs
    at: gl.tensor
    stop: gl.tensor
    batch: gl.tensor
    before: gl.tensor
    keys: gl.tensor

    @jit
    def part(self, cache, problem):
        """The next part, as tile and share, and the way behind it."""
        plan: gl.constexpr = cache.plan
        runs = self.runs
        low, count = blocks_of(problem, self.keys)
        group = (self.at - self.before) // count
        start = self.before + group * count
        end = gl.minimum(start + count, self.stop)
        member, members = member_of()
        owner, unit = start // runs.each, (self.batch * cache.groups + group) * members + member
        share = Share(unit, owner, gl.program_id(2) - owner, (start + count - 1) // runs.each - owner + 1)
        head = group * gl.num_programs(1) + gl.program_id(1)
        found = Tile(
            self.batch, head, gl.program_id(0) * plan.tile_heads, 0, low + self.at - start, low + end - start,
            problem.queries, self.keys, 0, 0, 0,
        )  # fmt: skip
        over = end - self.before == cache.groups * count
        batch, before = self.batch + over.to(gl.int32), gl.where(over, end, self.before)
        keys = cache.keys(problem, batch, batch < problem.batch)
        return found, share, Walk(runs, end, self.stop, batch, before, keys)


@jit
def walk_of(cache, problem):
    """The way through the run of this program."""
    runs, chunk = Runs.make(cache, problem)
    at, groups = gl.minimum(gl.program_id(2) * runs.each, runs.total), cache.groups
    batch, before, keys = 0, 0, problem.keys
    if cache.lengths is None:
        _, count = blocks_of(problem, problem.keys)
        batch = at // (count * groups)
        before = batch * count * groups
    else:
        going = at < runs.total
        while going:
            lengths, counts = chunk
            # What is behind the last sequence ends behind `at`, too. No sum waits for another one.
            ends = before + gl.cumsum(counts) * groups
            over, here = ends <= at, (ends > at) & (ends - counts * groups <= at)
            passed, keys = gl.sum(over.to(gl.int32)), gl.sum(gl.where(here, lengths, 0))
            before += gl.sum(gl.where(over, counts, 0)) * groups
            batch += passed
            going = passed == CHUNK
            if going:
                chunk = chunk_of(cache, problem, batch)
    return Walk(runs, at, gl.minimum(at + runs.each, runs.total), batch, before, keys)
