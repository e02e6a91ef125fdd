"""Parts of attention kernels: the tiles of a program, and the keys that queries see.

Every query sees an interval of keys. With `offset` = keys - queries, which aligns the last query with the last key, query i
sees the keys from i + offset - left to i + offset + right, as far as there are; `causal` is right = 0. Intervals move to the
right from query to query, so those of a tile's first and last query say which blocks of keys it visits, and which of them are
seen by all of its queries and need no mask.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.schedulers import in_bands


@gl.aggregate
class Tile:
    """A tile: some queries of query heads that share a head of keys and values.

    `member` is the first query head within its group, `query` the first query; there are `queries` and `keys` in all. The tile
    visits the blocks of keys from `end` - 1 down to `first`; behind the last tile of a program `end` is 0."""

    batch: gl.tensor
    head: gl.tensor
    member: gl.tensor
    query: gl.tensor
    first: gl.tensor
    end: gl.tensor
    queries: gl.tensor
    keys: gl.tensor

    @jit
    def publish(self, memory):
        """Write the tile to shared memory."""
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        fields = (self.batch, self.head, self.member, self.query, self.first, self.end, self.queries, self.keys)
        for i in gl.static_range(len(fields)):
            memory.slice(i, 1).store(gl.full([1], fields[i], gl.int32, layout))


FIELDS = 8
"""Numbers of a published tile."""


@jit
def published(memory):
    """The tile that the producer has written to shared memory.

    Consumers read it where they need it: computed by themselves, or kept, its numbers would take registers that the softmax
    needs."""
    numbers = memory.load(gl.BlockedLayout([FIELDS], [32], [gl.num_warps()], [0]))
    fields = [gl.uniform(numbers[i : i + 1].item()) for i in range(FIELDS)]
    return Tile(*fields)


@gl.aggregate
class Problem:
    """The extents of an attention, with `members` query heads for each of `kv_heads` heads of keys and values, and its masks.

    Tiles are numbered in bands of `band` heads, whose keys and values fit in L2 together, and within a band from the last
    queries to the first: with a causal mask the longest tiles come first."""

    batch: gl.tensor
    kv_heads: gl.tensor
    members: gl.tensor
    queries: gl.tensor
    keys: gl.tensor
    band: gl.tensor
    left: gl.tensor
    right: gl.tensor
    plan: gl.constexpr

    @jit
    def heads(self):
        """Rows of tiles: heads of keys and values of the whole batch, times the tiles of the query heads of each."""
        return self.batch * self.kv_heads * gl.cdiv(self.members, self.plan.tile_heads)

    @jit
    def columns(self):
        """Tiles along the queries."""
        return gl.cdiv(self.queries, self.plan.tile_queries)

    @jit
    def number(self, wave):
        """The number of the program's tile of a wave. Every other wave is turned round, so that no program has the longest tile
        of all."""
        place, programs = gl.program_id(0), gl.num_programs(0)
        return wave * programs + gl.where(wave & 1 == 1, programs - 1 - place, place)

    @jit
    def tile(self, number):
        """The tile of this number."""
        plan: gl.constexpr = self.plan
        columns, parts = self.columns(), gl.cdiv(self.members, plan.tile_heads)
        _, row, column = in_bands(number, self.heads(), columns, self.band)
        head = row // parts
        batch = head // self.kv_heads
        member, query = (row - head * parts) * plan.tile_heads, (columns - 1 - column) * plan.tile_queries
        first, end = self.blocks(query, self.queries, self.keys)
        return Tile(batch, head - batch * self.kv_heads, member, query, first, end, self.queries, self.keys)

    @jit
    def low(self, query, queries, keys):
        """The first key that a query sees."""
        return gl.maximum(query + (keys - queries) - self.left, 0) if self.plan.parts.left else 0

    @jit
    def high(self, query, queries, keys):
        """The key behind the last one that a query sees."""
        return gl.minimum(query + (keys - queries) + self.right + 1, keys) if self.plan.parts.right else keys

    @jit
    def blocks(self, query, queries, keys):
        """The first block of keys that a tile visits, and the block behind the last one. There is always one: where it is all
        masked, results are zero."""
        plan: gl.constexpr = self.plan
        last = gl.minimum(query + plan.tile_queries, queries) - 1
        end = gl.cdiv(gl.maximum(self.high(last, queries, keys), 1), plan.block_n)
        return gl.minimum(self.low(query, queries, keys) // plan.block_n, end - 1), end

    @jit
    def whole(self, tile, query):
        """The blocks of which a consumer's queries, from `query` on, see every key: the first, and the one behind the last."""
        plan: gl.constexpr = self.plan
        last = gl.minimum(query + plan.length, tile.queries) - 1
        first = gl.cdiv(self.low(last, tile.queries, tile.keys), plan.block_n)
        return first, gl.maximum(self.high(query, tile.queries, tile.keys), 0) // plan.block_n

    @jit
    def masked(self, s, tile, query, key):
        """Scores of a consumer's rows, from `query` on, and of the block at `key`: -inf where a row does not see the key.

        Columns have three axes where possible: column 8 i + 2 j + k lies in lane j (mod 4), there in register i, k of its row.
        Then j becomes a part of the row's bounds, and i and k are immediates. Columns along one axis are 2 j plus a number for
        each register, which ptxas keeps in as many registers during the whole loop, where there is no room for them."""
        plan: gl.constexpr = self.plan
        if plan.block_n % 64:
            layout: gl.constexpr = gl.SliceLayout(1, plan.s_registers)
            column = gl.arange(0, plan.block_n, gl.SliceLayout(0, plan.s_registers))[None, :]
            return gl.where(self.seen(column, 0, layout, tile, query, key), s, -float("inf"))
        split = s.reshape([plan.rows, plan.block_n // 8, 4, 2])
        by_lane: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, split.layout))
        by_register: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, split.layout))
        lane = 2 * gl.arange(0, 4, gl.SliceLayout(0, by_lane))[None, :]
        i = 8 * gl.arange(0, plan.block_n // 8, gl.SliceLayout(1, by_register))[:, None]
        column = (i + gl.arange(0, 2, gl.SliceLayout(0, by_register))[None, :])[None, :, None, :]
        seen = self.seen(column, lane, gl.SliceLayout(1, by_lane), tile, query, key)
        return gl.convert_layout(gl.where(seen, split, -float("inf")).reshape(s.shape), plan.s_registers)

    @jit
    def seen(self, column, lane, layout: gl.constexpr, tile, query, key):
        """Whether rows see the columns `column` + `lane` of the block at `key`. `layout` is that of a number for each row."""
        plan: gl.constexpr = self.plan
        row = (gl.arange(0, plan.rows, layout) % plan.length)[:, None]
        # The block's position is added first: bounds are then computed for each block, and take no registers in between.
        offset = query + (tile.keys - tile.queries) - key
        high = tile.keys - key - lane
        if plan.parts.right:
            high = gl.minimum(row + (offset + self.right + 1), tile.keys - key) - lane
        seen = column < spread(high, column)
        if plan.parts.left:
            seen = seen & (column >= spread(row + (offset - self.left) - lane, column))
        return seen


@jit
def spread(x, column):
    """Bounds of rows, or of rows and lanes, along the axes of columns."""
    if isinstance(x, gl.tensor) and len(x.shape) == 2 and len(column.shape) == 4:
        return x[:, None, :, None]
    return x
