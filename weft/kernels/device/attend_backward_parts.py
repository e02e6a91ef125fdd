"""Parts of the kernels for gradients of attention: the share of a program, and the keys that queries see."""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.attend_parts import along, by_axes, columns, lanes, rows_by_lane, whole_of
from weft.kernels.device.schedulers import in_bands


@gl.aggregate
class Extents:
    """The extents of the problem: `heads` heads of keys and values in all, `kv_heads` of each of its members, and `members`
    query heads for each; `padded` rows of statistics; the window. Programs are numbered in bands of `band` heads, whose queries
    and gradients fit in L2 together."""

    members: gl.tensor
    kv_heads: gl.tensor
    heads: gl.tensor
    band: gl.tensor
    queries: gl.tensor
    keys: gl.tensor
    padded: gl.tensor
    left: gl.tensor
    right: gl.tensor
    plan: gl.constexpr

    @jit
    def visited(self, key):
        """The first block of queries that see one of the keys from `key` on, and how many there are."""
        plan: gl.constexpr = self.plan
        offset = self.keys - self.queries
        low, high = 0, self.queries
        if plan.right:
            low = gl.minimum(gl.maximum(key - offset - self.right, 0), self.queries)
        if plan.left:
            last = gl.minimum(key + plan.block_n, self.keys) - 1
            high = gl.maximum(gl.minimum(last - offset + self.left + 1, self.queries), low)
        first = low // plan.block_m
        return first, gl.where(high > low, gl.cdiv(high, plan.block_m) - first, 0)

    @jit
    def share(self, number):
        """The share of a program. With a causal mask the first keys are seen by most queries, and those of the first programs.

        In order, programs wait for those before them, and with a causal mask queries see the last keys first of all: there the
        last keys are those of the first programs, which reach their first queries while the others compute theirs."""
        plan: gl.constexpr = self.plan
        columns = gl.cdiv(self.keys, plan.block_n)
        _, row, column = in_bands(number, self.heads, columns, self.band)
        if plan.ordered and plan.right:
            column = columns - 1 - column
        batch = row // self.kv_heads
        key = column * plan.block_n
        first, blocks = self.visited(key)
        return Share(batch, row - batch * self.kv_heads, key, first, blocks, self)


@gl.aggregate
class Share:
    """A program's share of the work: its keys from `key` on, the head of keys and values in the batch, the query heads that
    share it, and the blocks of queries from `first` to `first` + `blocks` - 1 that see one of the keys."""

    batch: gl.tensor
    head: gl.tensor
    key: gl.tensor
    first: gl.tensor
    blocks: gl.tensor
    extents: Extents

    @jit
    def tiles(self):
        """Blocks of queries of all query heads."""
        return self.extents.members * self.blocks

    @jit
    def start(self):
        """The first query of the first block."""
        return self.first * self.extents.plan.block_m

    @jit
    def following(self, member, query):
        """Query head within the group, and first query, of the block behind this one."""
        block_m: gl.constexpr = self.extents.plan.block_m
        query += block_m
        last = query == (self.first + self.blocks) * block_m
        return member + last.to(gl.int32), gl.where(last, self.first * block_m, query)

    @jit
    def line(self, member):
        """The number of a query head within the batch."""
        return (self.batch * self.extents.kv_heads + self.head) * self.extents.members + member


@jit
def mask_needed(share, key, query):
    """Whether one of the queries of a consumer's scores, from `query` on, does not see one of its keys, from `key` on."""
    extents = share.extents
    position = query + extents.keys - extents.queries
    needed = key + extents.plan.rows > extents.keys
    if extents.plan.right:
        needed = needed | (key + extents.plan.rows - 1 > position + extents.right)
    if extents.plan.left:
        needed = needed | (key < position + extents.plan.columns - 1 - extents.left)
    return needed


@jit
def seen(p, share, key, query):
    """Weights of keys by queries, from `key` and `query` on, 0 where the query does not see the key."""
    extents = share.extents
    plan: gl.constexpr = extents.plan
    split = by_axes(p, plan)
    lane, column = lanes(split.layout, plan), columns(split.layout, plan)
    key = (key + gl.arange(0, plan.rows, rows_by_lane(split.layout)))[:, None]
    # From the first query on, the number of the query at whose position the key is.
    there = key - (query + extents.keys - extents.queries)
    keep = (key < extents.keys)[:, None, :, None]
    if plan.right:
        keep = keep & (column >= along(there - extents.right - lane))
    if plan.left:
        keep = keep & (column <= along(there + extents.left - lane))
    return whole_of(gl.where(keep, split, 0.0), plan)
