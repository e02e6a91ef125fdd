"""Parts of attention kernels: the tiles of a program, and the keys that queries see.

Every query sees an interval of keys. With `offset` = keys - queries, which aligns the last query with the last key, query i
sees the keys from i + offset - left to i + offset + right, as far as there are, and the first `prefix` keys; `causal` is right
= 0. Documents bound them further. Intervals move to the right from query to query, so those of a tile's first and last query
say which blocks of keys it visits, and which of them are seen by all of its queries and need no mask.

With variable lengths the sequences lie behind one another along the dimension of positions. A sequence that begins at position
p has its tiles in the columns from p // rows + its number on: at most one of them is behind its end, and no one has to add up
lengths.
"""

from __future__ import annotations

from typing import Any

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.attend_blocks import EDGE
from weft.kernels.device.schedulers import in_two_parts


@gl.aggregate
class Tile:
    """A tile: some queries of query heads that share a head of keys and values.

    `member` is the first query head within its group, `query` the first query; there are `queries` and `keys` in all, in
    sequences of variable lengths from `q_start` and `k_start` on. All queries see `prefix` keys. The tile visits the blocks of
    keys from `end` - 1 down to `first`; behind the last tile of a program `end` is 0."""

    batch: gl.tensor
    head: gl.tensor
    member: gl.tensor
    query: gl.tensor
    first: gl.tensor
    end: gl.tensor
    queries: gl.tensor
    keys: gl.tensor
    prefix: gl.tensor
    q_start: gl.tensor
    k_start: gl.tensor

    @jit
    def numbers(self):
        """What is published, in the order of the fields."""
        some = (self.batch, self.head, self.member, self.query, self.first, self.end, self.queries, self.keys)
        return (*some, self.prefix, self.q_start, self.k_start)

    @jit
    def publish(self, memory, others):
        """Write the tile and the numbers `others` to shared memory: in one store, since several warps would meet before each of
        many."""
        numbers = (*self.numbers(), *others)
        gl.static_assert(len(numbers) <= FIELDS, "a published tile leaves room for few more numbers")
        at = gl.arange(0, FIELDS, gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
        row = gl.zeros_like(at)
        for i in gl.static_range(len(numbers)):
            row = gl.where(at == i, numbers[i], row)
        memory.store(row)


@gl.aggregate
class Inner:
    """The blocks of which all queries of a tile see every key: from `first` to `end` - 1."""

    first: gl.tensor
    end: gl.tensor


NUMBERS, FIELDS = 11, 16
"""Numbers of a published tile, and the room for them and for what is published with them."""


@jit
def published(memory):
    """The tile that another role has written to shared memory.

    Consumers read it where they need it: computed by themselves, or kept, its numbers would take registers that the softmax
    needs."""
    return Tile(*fields_of(memory, 0, NUMBERS))


@jit
def inner_of(memory):
    """The blocks that need no mask of the tile that the scheduler has written to shared memory."""
    return Inner(*fields_of(memory, NUMBERS, 2))


@jit
def fields_of(memory, first: gl.constexpr, count: gl.constexpr):
    """`count` fields of what is published, from number `first` on."""
    numbers = memory.load(gl.BlockedLayout([FIELDS], [32], [gl.num_warps()], [0]))
    return [gl.uniform(numbers[i : i + 1].item()) for i in range(first, first + count)]


@gl.aggregate
class Problem:
    """The extents of an attention, with `members` query heads for each of `kv_heads` heads of keys and values, and its masks.

    Tiles are numbered in bands of `band` heads, whose keys and values fit in L2 together, and within a band from the last
    queries to the first: with a causal mask the longest tiles of a band come first. Behind the first `banded` columns of tiles
    those of all heads are one band. Where tiles differ in length, programs take
    the next one by a ticket from `counter` whenever they have finished one. `starts` are the positions at which the queries and
    the keys of `batch` sequences begin. `listed` are the arguments of a block mask (`BlockMask.arguments`). `spans` are the
    first key of each position's document, and the one behind its last."""

    batch: gl.tensor
    kv_heads: gl.tensor
    members: gl.tensor
    queries: gl.tensor
    keys: gl.tensor
    band: gl.tensor
    banded: gl.tensor
    left: gl.tensor
    right: gl.tensor
    prefix: gl.tensor | None
    q_starts: gl.tensor | None
    k_starts: gl.tensor | None
    spans: gl.tensor | None
    counter: gl.tensor | None
    listed: tuple
    plan: gl.constexpr

    @jit
    def heads(self):
        """Rows of tiles: heads of keys and values of the whole batch, times the tiles of the query heads of each."""
        rows = self.kv_heads * gl.cdiv(self.members, self.plan.tile_heads)
        return rows if self.plan.parts.sequences else self.batch * rows

    @jit
    def columns(self):
        """Tiles along the queries."""
        if self.plan.parts.sequences:
            return self.queries // self.plan.tile_queries + self.batch
        return gl.cdiv(self.queries, self.plan.tile_queries)

    @jit
    def behind(self, number, tiles):
        """The number of the program's next tile. A launch takes as many tickets as there are tiles, since every program takes
        some until one is beyond the last tile; whoever takes the last one sets the counter back for the next launch."""
        if not self.plan.tickets:
            return number + gl.num_programs(0)
        ticket = gl.atomic_add(self.counter, 1, sem="relaxed")
        if ticket == tiles - 1:
            gl.atomic_xchg(self.counter, 0, sem="relaxed")
        return ticket + gl.num_programs(0)

    @jit
    def tile(self, number):
        """The tile of this number; without blocks if it is behind the end of its sequence."""
        plan: gl.constexpr = self.plan
        columns, parts = self.columns(), gl.cdiv(self.members, plan.tile_heads)
        row, column = in_two_parts(number, self.heads(), columns, self.band, self.banded)
        column = columns - 1 - column
        head = row // parts
        member, batch = (row - head * parts) * plan.tile_heads, head // self.kv_heads
        if plan.parts.sequences:
            batch = self.sequence(column)
            q_start, k_start = gl.load(self.q_starts + batch), gl.load(self.k_starts + batch)
            query = (column - (q_start // plan.tile_queries + batch)) * plan.tile_queries
            queries = gl.load(self.q_starts + batch + 1) - q_start
            tile = Tile(
                batch, head, member, query, 0, 0, queries, gl.load(self.k_starts + batch + 1) - k_start, self.bound(batch),
                q_start, k_start,
            )  # fmt: skip
        else:
            query, head = column * plan.tile_queries, head - batch * self.kv_heads
            tile = Tile(batch, head, member, query, 0, 0, self.queries, self.keys, self.bound(batch), 0, 0)
        first, end = self.blocks(tile)
        if plan.parts.sequences:
            end = gl.where(tile.query < tile.queries, end, first)
        return gl.aggregate_replace(tile, first=first, end=end)

    @jit
    def sequence(self, column):
        """The sequence of a column of tiles: the last one whose tiles do not begin behind it."""
        low, high = 0, self.batch
        while high - low > 1:
            # Each lane looks at one of 32 sequences: a search of two would wait for five loads in their place.
            step = gl.cdiv(high - low, 32)
            at = low + gl.arange(0, 32, gl.BlockedLayout([1], [32], [gl.num_warps()], [0])) * step
            begins = gl.load(self.q_starts + at, mask=at < high, other=0) // self.plan.tile_queries + at
            count = gl.sum(((at < high) & (begins <= column)).to(gl.int32), axis=0)
            low, high = low + (count - 1) * step, gl.minimum(low + count * step, high)
        return low

    @jit
    def bound(self, batch):
        """The number of keys that all queries see."""
        return gl.load(self.prefix + batch) if self.plan.parts.prefix else 0

    @jit
    def low(self, tile, query):
        """The first key that a query sees."""
        low = 0
        if self.plan.parts.left:
            low = gl.maximum(query + (tile.keys - tile.queries) - self.left, 0)
        if self.plan.parts.documents:
            low = gl.maximum(gl.load(self.spans + 2 * tile.batch * self.queries + query), low)
        return low

    @jit
    def high(self, tile, query):
        """The key behind the last one that a query sees."""
        high = tile.keys
        if self.plan.parts.right:
            high = gl.minimum(query + (tile.keys - tile.queries) + self.right + 1, high)
        if self.plan.parts.prefix:
            high = gl.minimum(gl.maximum(high, tile.prefix), tile.keys)
        if self.plan.parts.documents:
            high = gl.minimum(gl.load(self.spans + (2 * tile.batch + 1) * self.queries + query), high)
        return high

    @jit
    def blocks(self, tile):
        """The first block of keys that a tile visits, and the block behind the last one. There is always one: where it is all
        masked, results are zero."""
        plan: gl.constexpr = self.plan
        if plan.parts.blocks:
            end = gl.load(self.listed[0] + self.listed_row(tile)) * (EDGE // plan.block_n)
            # A part of the last block may be behind the last key.
            behind = (self.listed_key(tile, end - 1) & ~1) + plan.block_n - self.keys
            return 0, end - gl.maximum(behind, 0) // plan.block_n
        last = gl.maximum(gl.minimum(tile.query + plan.tile_queries, tile.queries) - 1, 0)
        end = gl.cdiv(gl.maximum(self.high(tile, last), 1), plan.block_n)
        return gl.minimum(self.low(tile, gl.minimum(tile.query, last)) // plan.block_n, end - 1), end

    @jit
    def key(self, tile, number):
        """The first key of the block that a tile visits as `number`; of a listed one, its entry."""
        return self.listed_key(tile, number) if self.plan.parts.blocks else number * self.plan.block_n

    @jit
    def listed_row(self, tile):
        """The row of the block mask's lists that is a tile's."""
        head = tile.head * self.members + tile.member
        return tile.batch * self.listed[2] + head * self.listed[3] + tile.query // EDGE

    @jit
    def listed_key(self, tile, number):
        """The first key of the block that a tile visits as `number`, plus 1 if it needs the mask function."""
        each: gl.constexpr = EDGE // self.plan.block_n
        place = gl.cast(self.listed_row(tile), gl.int64) * self.listed[4] + number // each
        entry = gl.load(self.listed[1] + place)
        return entry // 2 * EDGE + number % each * self.plan.block_n | (entry & 1)

    @jit
    def whole(self, tile, queries):
        """The blocks of which `queries` queries, from the tile's first one on, see every key."""
        plan: gl.constexpr = self.plan
        last = gl.maximum(gl.minimum(tile.query + queries, tile.queries) - 1, 0)
        first = gl.cdiv(self.low(tile, last), plan.block_n)
        return Inner(first, gl.maximum(self.high(tile, gl.minimum(tile.query, last)), 0) // plan.block_n)

    @jit
    def rows(self, tile, query):
        """The bounds of a consumer's rows, from `query` on, by documents: for each the first key, and the one behind the last.

        They are loaded once for a tile, while its first scores are computed. With loads for each block that needs a mask
        consumers would wait for L2 before its exponentials."""
        plan: gl.constexpr = self.plan
        if not plan.parts.documents:
            return None
        layout: gl.constexpr = rows_by_lane(blank(plan).layout)
        row = (gl.arange(0, plan.rows, layout) % plan.length)[:, None]
        at = self.spans + 2 * tile.batch * self.queries + gl.minimum(row + query, tile.queries - 1)
        return gl.load(at), gl.load(at + self.queries)

    @jit
    def masked(self, s, tile, query, rows, key):
        """Scores of a consumer's rows, from `query` on and with the bounds `rows`, and of the block at `key`: -inf where a row
        does not see the key."""
        plan: gl.constexpr = self.plan
        split = by_axes(s, plan)
        layout: gl.constexpr = rows_by_lane(split.layout)
        lane, column = lanes(split.layout, plan), columns(split.layout, plan)
        row = (gl.arange(0, plan.rows, layout) % plan.length)[:, None]
        # The block's position is added first: bounds are then computed for each block, and take no registers in between.
        offset, limit = query + (tile.keys - tile.queries) - key, tile.keys - key
        high, low = limit, 0
        if plan.parts.right:
            high = gl.minimum(row + (offset + self.right + 1), limit)
        if plan.parts.prefix:
            high = gl.minimum(gl.maximum(high, tile.prefix - key), limit)
        if plan.parts.left:
            low = row + (offset - self.left)
        if plan.parts.documents:
            low, high = gl.maximum(rows[0] - key, low), gl.minimum(rows[1] - key, high)
        seen = column < along(high - lane)
        if plan.parts.left or plan.parts.documents:
            seen = seen & (column >= along(low - lane))
        return whole_of(gl.where(seen, split, -float("inf")), plan)


# The axes of a block of scores. A column's number is 8 i + 2 j + k, where j is the lane (mod 4), and i and k are registers of
# the row. A computation with numbers of columns that has these axes adds j to a number of the row, and i and k are immediates.
# Numbers of columns along one axis are 2 j plus a number for each register, and ptxas keeps as many registers of them through
# the whole loop, where there is no room for them.


@jit
def by_axes(s, plan: gl.constexpr):
    """Scores [rows, columns] with the axes row, i, j, k."""
    return s.reshape([plan.rows, *plan.axes])


@jit
def blank(plan: gl.constexpr):
    """Scores of zero with these axes: what is wanted of them is their layout."""
    return by_axes(gl.zeros([plan.rows, plan.block_n], gl.float32, plan.s_registers), plan)


@jit
def whole_of(split, plan: gl.constexpr):
    """Scores [rows, columns] again."""
    columns: gl.constexpr = plan.axes[0] * plan.axes[1] * plan.axes[2]
    return gl.convert_layout(split.reshape([plan.rows, columns]), plan.s_registers)


@gl.constexpr_function
def rows_by_lane(layout):
    """The layout of a number for each row."""
    return gl.SliceLayout(1, gl.SliceLayout(1, gl.SliceLayout(3, layout)))


@jit
def lanes(layout: gl.constexpr, plan: gl.constexpr):
    """The parts 2 j of columns, [1, j]."""
    by_lane: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, layout))
    return 2 * gl.arange(0, plan.axes[1], gl.SliceLayout(0, by_lane))[None, :]


@jit
def columns(layout: gl.constexpr, plan: gl.constexpr):
    """The parts 8 i + k of columns, [1, i, 1, k]."""
    by_register: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, layout))
    step: gl.constexpr = plan.axes[1] * plan.axes[2]
    i = step * gl.arange(0, plan.axes[0], gl.SliceLayout(1, by_register))[:, None]
    return (i + gl.arange(0, plan.axes[2], gl.SliceLayout(0, by_register))[None, :])[None, :, None, :]


@jit
def along(x: Any):
    """Numbers of rows and lanes, [rows or 1, j], with all axes."""
    return x[:, None, :, None]
