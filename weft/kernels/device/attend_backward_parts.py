"""Parts of the kernels for gradients of attention: the share of a program, the keys that queries see, and their weights.

Scores are keys by queries. Documents are those of keys here: a key is seen by an interval of queries, and a thread has two keys
but many queries."""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.attend_backward_results import PIECE
from weft.kernels.device.attend_parts import along, by_axes, columns, lanes, rows_by_lane, whole_of
from weft.kernels.device.attend_scores import LN_2, LOG2_E
from weft.kernels.device.schedulers import in_two_parts
from weft.language.derivative import derivative
from weft.nvidia.ragged_tma import to_ragged_indices


@gl.aggregate
class Extents:
    """The extents of the problem: `heads` heads of keys and values in all, `kv_heads` of each of its members, and `members`
    query heads for each; `padded` rows of statistics; the window. `banded` columns of programs are numbered in bands of `band`
    heads, whose queries and gradients fit in L2 together, and the others behind them, of all heads."""

    members: gl.tensor
    kv_heads: gl.tensor
    heads: gl.tensor
    band: gl.tensor
    banded: gl.tensor
    queries: gl.tensor
    keys: gl.tensor
    padded: gl.tensor
    left: gl.tensor
    right: gl.tensor
    inner: gl.tensor
    slopes: gl.tensor | None
    prefix: gl.tensor | None
    spans: gl.tensor | None
    q_starts: gl.tensor | None
    k_starts: gl.tensor | None
    sequences: gl.tensor
    score_args: tuple
    mask_args: tuple
    plan: gl.constexpr

    @jit
    def visited(self, batch, key):
        """The first block of queries that see one of the keys from `key` on, and how many there are."""
        plan: gl.constexpr = self.plan
        offset = self.keys - self.queries
        last = gl.minimum(key + plan.block_n, self.keys) - 1
        low, high = 0, self.queries
        if plan.parts.right:
            low = gl.minimum(gl.maximum(key - offset - self.right, 0), self.queries)
        if plan.parts.prefix:
            low = gl.where(key < gl.load(self.prefix + batch), 0, low)
        if plan.parts.left:
            high = gl.minimum(last - offset + self.left + 1, self.queries)
        if plan.parts.documents:
            low = gl.maximum(low, self.document(batch, key, 0))
            high = gl.minimum(high, self.document(batch, last, 1))
        first = low // plan.block_m
        return first, gl.where(high > low, gl.cdiv(high, plan.block_m) - first, 0)

    @jit
    def document(self, batch, key, end: gl.constexpr):
        """The first query of a key's document, or the one behind its last. Of keys that there are not those of the nearest."""
        inside = gl.minimum(gl.maximum(key, 0), self.keys - 1)
        return gl.load(self.spans + (2 * batch + end) * self.keys + inside)

    @jit
    def share(self, number):
        """The share of a program. With a causal mask the first keys are seen by most queries, and those of the first programs.
        Those that few queries see come last."""
        plan: gl.constexpr = self.plan
        columns = gl.cdiv(self.keys, plan.block_n)
        if plan.parts.sequences:
            columns = self.keys // plan.block_n + self.sequences
        row, column = in_two_parts(number, self.heads, columns, self.band, self.banded)
        if plan.parts.sequences:
            batch = sequence_of(self.k_starts, self.sequences, column, plan.block_n)
            q_start, k_start = gl.load(self.q_starts + batch), gl.load(self.k_starts + batch)
            queries, keys = gl.load(self.q_starts + batch + 1) - q_start, gl.load(self.k_starts + batch + 1) - k_start
            own = gl.aggregate_replace(self, queries=queries, keys=keys)
            key = (column - (k_start // plan.block_n + batch)) * plan.block_n
            first, blocks = own.visited(batch, key)
            blocks = gl.where(key < keys, blocks, 0)
            base = (q_start // plan.block_m + batch) * plan.block_m
            return Share(batch, row, key, first, blocks, base, q_start, k_start, own)
        batch, key = row // self.kv_heads, column * plan.block_n
        first, blocks = self.visited(batch, key)
        return Share(batch, row - batch * self.kv_heads, key, first, blocks, 0, 0, 0, self)


@jit
def sequence_of(starts, sequences, column, block: gl.constexpr):
    """The sequence of a column: a sequence that begins at position p has its blocks in the columns from p // block + its number
    on, as in the forward pass."""
    low, high = 0, sequences
    while high - low > 1:
        middle = (low + high) // 2
        behind = gl.load(starts + middle) // block + middle > column
        low, high = gl.where(behind, low, middle), gl.where(behind, middle, high)
    return low


@gl.aggregate
class Share:
    """A program's share of the work: its keys from `key` on, the head of keys and values in the batch, the query heads that
    share it, and the blocks of queries from `first` to `first` + `blocks` - 1 that see one of the keys."""

    batch: gl.tensor
    head: gl.tensor
    key: gl.tensor
    first: gl.tensor
    blocks: gl.tensor
    base: gl.tensor
    q_start: gl.tensor
    k_start: gl.tensor
    extents: Extents

    @jit
    def tiles(self):
        """Blocks of queries of all query heads."""
        return self.extents.members * self.blocks

    @jit
    def start(self):
        """The first query of the block that is visited first.

        In order, programs wait at each block for the one with the keys before theirs. There the last block is the first: with a
        causal mask, or a window, that is not a block which the program before reaches much later."""
        plan: gl.constexpr = self.extents.plan
        return (self.first + self.blocks - 1 if plan.ordered else self.first) * plan.block_m

    @jit
    def following(self, member, query):
        """Query head within the group, and first query, of the block behind this one."""
        plan: gl.constexpr = self.extents.plan
        if plan.block_by_block:
            last = member + 1 == self.extents.members
            return gl.where(last, 0, member + 1), query - gl.where(last, plan.block_m, 0)
        step: gl.constexpr = -plan.block_m if plan.ordered else plan.block_m
        query += step
        last = query == (self.first - 1 if plan.ordered else self.first + self.blocks) * plan.block_m
        return member + last.to(gl.int32), gl.where(last, self.start(), query)

    @jit
    def line(self, member):
        """The number of a query head within the batch."""
        batch = 0 if self.extents.plan.parts.sequences else self.batch
        return (batch * self.extents.kv_heads + self.head) * self.extents.members + member

    @jit
    def row(self, member, query):
        """The row of dQ of a query."""
        return self.line(member) * self.extents.padded + self.base + query

    @jit
    def counter(self, counters, member, query):
        """Where the turns of a block of queries are counted."""
        return counters + self.row(member, query) // self.extents.plan.block_m

    @jit
    def piece(self, member, query, part):
        """The number of a piece of dQ: part number `part` of the first 64 rows, and of those behind them, of a block."""
        pieces: gl.constexpr = self.extents.plan.width // PIECE
        return self.row(member, query) // PIECE * pieces + part

    @jit
    def queries_at(self, member, query, column):
        """The coordinates of queries, or gradients of results."""
        head = self.head * self.extents.members + member
        if self.extents.plan.parts.sequences:
            first, second, position = to_ragged_indices(self.q_start, self.extents.queries, query)
            return [first, second, head, position, column]
        return [self.batch, head, query, column]

    @jit
    def keys_at(self, key, column):
        """The coordinates of keys or values, or their gradients."""
        if self.extents.plan.parts.sequences:
            first, second, position = to_ragged_indices(self.k_start, self.extents.keys, key)
            return [first, second, self.head, position, column]
        return [self.batch, self.head, key, column]


@jit
def weights_of(share, member, key, query, s, logarithms, factor):
    """Weights of a consumer's keys and queries, from `key` and `query` on; and the derivatives of their scores with respect to
    the products of keys and queries: a number where it is the same for all."""
    extents = share.extents
    parts: gl.constexpr = extents.plan.parts
    if parts.softcap:
        # tanh(x), as in the forward pass.
        s = 1.0 - 2.0 / (gl.exp2(s * extents.inner) + 1.0)
    slopes = 1.0 - s * s if parts.softcap else 1.0
    if parts.alibi:
        s = distant(share, member, key, query, s, factor)
    if parts.score_mod is not None:
        natural = s * (factor * LN_2)
        found = parts.score_mod(natural, *indices(share, member, key, query), *extents.score_args)
        gl.static_assert(found.shape == s.shape, "score_mod returns scores of the shape that it is given")
        slopes = slopes * derivative(found, natural)
        s, factor = gl.convert_layout(found, extents.plan.s_registers), LOG2_E
    p = gl.exp2(s * factor - logarithms[None, :])
    if mask_needed(share, key, query):
        p = seen(p, share, key, query)
    if parts.mask_mod is not None:
        p = allowed(p, share, member, key, query)
    return p, slopes


@jit
def gradient_of(p, dp, delta, slopes, plan: gl.constexpr):
    """Gradients of the products of keys and queries."""
    ds = p * (dp - delta[None, :]) * slopes
    if plan.parts.score_mod is not None:
        # Where a key is not seen, the caller's function may have any derivative.
        ds = gl.where(p > 0.0, ds, 0.0)
    return ds.to(plan.dtype)


@jit
def distant(share, member, key, query, s, factor):
    """Scores minus the distance of query and key times the slope of the head."""
    extents = share.extents
    plan: gl.constexpr = extents.plan
    split = by_axes(s, plan)
    slope = gl.load(extents.slopes + share.head * extents.members + member) * (LOG2_E / factor)
    row = gl.arange(0, plan.rows, rows_by_lane(split.layout))
    there = (key - (query + extents.keys - extents.queries) + row)[:, None] - lanes(split.layout, plan)
    away = columns(split.layout, plan).to(gl.float32) - along(there.to(gl.float32))
    return whole_of(split - slope * gl.abs(away), plan)


@jit
def allowed(p, share, member, key, query):
    """Weights, 0 where the caller's function says that the query does not see the key."""
    extents = share.extents
    return gl.where(extents.plan.parts.mask_mod(*indices(share, member, key, query), *extents.mask_args), p, 0.0)


@jit
def indices(share, member, key, query):
    """Batch, query head, query and key of scores; as in the forward pass those of the last query or key instead of those
    behind."""
    extents = share.extents
    plan: gl.constexpr = extents.plan
    row = gl.arange(0, plan.rows, gl.SliceLayout(1, plan.s_registers))[:, None]
    column = gl.arange(0, plan.block_m, gl.SliceLayout(0, plan.s_registers))[None, :]
    head, q = share.head * extents.members + member, gl.minimum(query + column, extents.queries - 1)
    return share.batch, head, q, gl.minimum(key + row, extents.keys - 1)


@jit
def mask_needed(share, key, query):
    """Whether one of the queries of a consumer's scores, from `query` on, does not see one of its keys, from `key` on."""
    extents = share.extents
    plan: gl.constexpr = extents.plan
    position = query + extents.keys - extents.queries
    needed = key + plan.rows > extents.keys
    if plan.parts.right:
        needed = needed | (key + plan.rows - 1 > position + extents.right)
    if plan.parts.left:
        needed = needed | (key < position + plan.block_m - 1 - extents.left)
    if plan.parts.documents:
        last = key + plan.rows - 1
        needed = needed | (extents.document(share.batch, last, 0) > query)
        needed = needed | (extents.document(share.batch, key, 1) < query + plan.block_m)
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
    low, high = 0, plan.block_m
    if plan.parts.right:
        low = there - extents.right
    if plan.parts.prefix:
        low = gl.where(key < gl.load(extents.prefix + share.batch), 0, low)
    if plan.parts.left:
        high = there + extents.left + 1
    if plan.parts.documents:
        low = gl.maximum(low, extents.document(share.batch, key, 0) - query)
        high = gl.minimum(high, extents.document(share.batch, key, 1) - query)
    keep = (key < extents.keys)[:, None, :, None]
    if plan.parts.right or plan.parts.documents:
        keep = keep & (column >= along(low - lane))
    if plan.parts.left or plan.parts.documents:
        keep = keep & (column < along(high - lane))
    return whole_of(gl.where(keep, split, 0.0), plan)
