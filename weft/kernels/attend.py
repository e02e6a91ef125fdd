"""`attention`: checks of its arrays, the choice of a configuration, and the table of prepared calls."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from weft.errors import attention as errors
from weft.errors import fail
from weft.kernels.arrays import Described, Prepared, address, key_of
from weft.kernels.attend_blocks import EDGE
from weft.kernels.attend_narrow import Turned, check_narrow, narrow_factor, scale_arguments
from weft.kernels.attend_options import Options, check_options, factors, sequences_of
from weft.kernels.attend_plan import (
    LONG,
    LONG_TILES,
    NARROW_TILES,
    ROWS,
    SHARED_BYTES,
    TILES,
    AttentionConfig,
    AttentionPlan,
    Parts,
    TilePlan,
    last_columns,
    make_attention_plan,
)
from weft.kernels.attend_spans import document_spans
from weft.kernels.device.attend import attend
from weft.kernels.device.attend_narrow import TURNED
from weft.kernels.heads import (
    DTYPES,
    NARROW,
    Heads,
    check_alike,
    check_described,
    check_overlap,
    empty_heads,
    heads,
    result_heads,
)
from weft.kernels.machines import machine_of, multiprocessors_of, target_of
from weft.kernels.memory import empty_like, fill, used_on, zeros_kept
from weft.kernels.plan import DTYPES as OUT_TYPES
from weft.nvidia.ragged_tma import ragged_form
from weft.runtime import driver
from weft.runtime.compiled import CompiledKernel

CACHE_BYTES = 32 << 20
"""Bytes of keys and values that the tiles of a band share, of an L2 cache of 50 MiB on Hopper."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A prepared call for arrays of equal shapes, strides, types, devices and alignment. `call` is None if there are no queries
    or no keys. `by_length`: the output that `attention` makes has the heads of a position side by side. `spans` are the byte
    ranges of q, k, v and an output that is given, relative to their addresses."""

    call: Attention | None
    shape: tuple[int, int, int, int]
    dtype: str
    by_length: bool
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Attention:
    """A prepared attention: its plan, grid, descriptors and numbers."""

    plan: AttentionPlan
    programs: int
    q: Described
    k: Described
    v: Described
    out: Described
    numbers: tuple[Any, ...]
    turned: Turned | None

    def arguments(
        self, q: Any, k: Any, v: Any, out: Any, lse: Any, spans: Any, given: Options, stream: Any = None
    ) -> tuple[Any, ...]:
        """The kernel's arguments, for a launch on `stream`."""
        counter = zeros_kept(q, 1, stream) if self.plan.tickets else None
        starts = (given.cu_seqlens_q, given.cu_seqlens_q if given.cu_seqlens_k is None else given.cu_seqlens_k)
        return (
            self.q.of(q), self.k.of(k), self.v.of(v), self.out.of(out), lse, given.prefix, *starts, spans, counter,
            given.alibi, given.sinks, given.score_args, given.mask_args if given.blocks is None else given.blocks.mask_args,
            () if given.blocks is None else given.blocks.arguments(), scale_arguments(given, self.plan, q, k), *self.numbers,
            self.plan,
        )  # fmt: skip


_known: Prepared[_Ready] = Prepared()


def attention(
    q: Any, k: Any, v: Any, *, causal: bool = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, softcap: float | None = None, alibi: Any = None, sinks: Any = None,
    prefix: Any = None, documents: Any = None,
    cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, score_mod: Any = None, mask_mod: Any = None,
    score_args: tuple[Any, ...] = (), mask_args: tuple[Any, ...] = (), return_lse: bool = False, out: Any = None,
    config: AttentionConfig | None = None, stream: Any = None, q_scale: Any = None, k_scale: Any = None, v_scale: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale * q k^T) v for every head; returns `out` [batch, heads, queries, head size of v].

    `q` is [batch, heads, queries, head size], `k` [batch, kv heads, keys, head size] and `v` [batch, kv heads, keys, head size
    of v], as `torch.nn.functional.scaled_dot_product_attention` takes them: arrays of PyTorch, NumPy, CuPy or JAX of float16 or
    bfloat16, whose last dimension is contiguous and whose other strides are positive multiples of 16 bytes, in any order.
    `heads` is a multiple of `kv heads` (grouped queries). Head sizes are 64, 96, 128 and 256, and 192 with 128 for v. Host
    arrays are simulated. `scale` is 1 / sqrt(head size) unless given.

    Which keys a query sees: query i has the position i + keys - queries among the keys, so that the last one stands at the last
    key. With `causal` it sees those up to its position; with `window` (left, right) those at most `left` before and `right`
    behind it, None for any number. The first `prefix` keys, an int32 array [batch], are seen by all queries in spite of
    `causal`. `documents`, an int32 array [batch, length] that never decreases along a row, restricts the queries of a position
    to the keys of the same document. Blocks of keys that no query of a tile sees are not loaded.

    With `cu_seqlens_q`, an int32 array [n + 1], n sequences of variable lengths lie behind one another: `batch` is 1, and
    sequence i has the queries from position cu_seqlens_q[i] to cu_seqlens_q[i + 1] - 1, and likewise keys (`cu_seqlens_k`, or
    the same). The arguments above are about each sequence, and `prefix` has an element for each.

    What happens to scores: with `softcap` they become softcap * tanh(score / softcap); with `alibi`, float32 slopes [heads],
    the slope times the distance of query and key is subtracted. `score_mod(score, batch, head, query, key, *score_args)`, a
    `@weft.jit` function, returns other scores, and `mask_mod(batch, head, query, key, *mask_args)` whether a query sees a key.
    They get a tile of scaled scores in float32 and integers that broadcast with it; `batch` is the sequence where lengths are
    variable. `mask_mod` is asked about every key that is loaded; a `BlockMask` in its place (`block_mask`), without any other
    mask, says in which blocks it leaves nothing, which are not loaded, and in which everything. `sinks`, float32 [heads], are
    scores of one more key for each head, whose value is zero.

    With `return_lse` the result is `(out, lse)`, where lse [batch, heads, queries] is the natural logarithm of the sum of
    exponentials of scores, in float32. A query that sees no key has 0 in `out` and -inf in `lse`, without sinks.

    q, k and v may be float8_e4m3fn, without soft cap, ALiBi, `score_mod` and variable lengths. They are then multiplied by
    `q_scale`, `k_scale` and `v_scale`: numbers, or float32 arrays of one element, of [batch, heads] or, of q and k, of [batch,
    heads, blocks of 128 positions]. Weights are rounded to e4m3, 2^8 times as large, and divided by their sums: as they are
    rounded, or with `return_lse`, `sinks` or head size 256 as they were before; `out` is bfloat16, or float16 if given. A
    kernel before it makes a copy of v, since tensor cores read 8-bit values along the keys.

    Scores, exponentials and sums are float32; weights are rounded to the type of v for the second product. With few queries
    those of several query heads of a group share a tile. The configuration is chosen by head sizes and mask; `config` overrides
    it.

    Raises LaunchError: attention-array, attention-dtypes, attention-devices, attention-shapes, attention-heads, attention-size,
    attention-strides, attention-scale, attention-window, attention-softcap, attention-option, attention-prefix,
    attention-together, attention-scales, attention-sequences, attention-function, attention-block-mask, attention-out,
    attention-out-overlaps, attention-config, attention-config-kind, attention-room, attention-target, kernels-out-needed."""
    options = Options(
        causal, scale, window, softcap, alibi, sinks, prefix, documents, cu_seqlens_q, cu_seqlens_k, score_mod, mask_mod,
        tuple(score_args), tuple(mask_args), return_lse, config, q_scale, k_scale, v_scale,
    )  # fmt: skip
    ready = _ready(q, k, v, out, options)
    if out is None:
        out = empty_heads(q, ready.shape, ready.dtype, ready.by_length)
    lse = empty_like(q, ready.shape[:3], "float32") if return_lse else None
    if ready.call is not None:
        _launch(ready.call, q, k, v, out, lse, options, stream)
    else:
        fill(out, 0)
        if lse is not None:
            fill(lse, -math.inf)
    return (out, lse) if return_lse else out


def _launch(call: Attention, q: Any, k: Any, v: Any, out: Any, lse: Any, options: Options, stream: Any) -> None:
    spans = None if options.documents is None else document_spans(options.documents, q, stream)
    if call.turned is not None:
        values = call.turned.empty(v)
        call.turned.turn(v, values, stream)
        used_on(values, stream)
        v = values
    attend[call.programs](*call.arguments(q, k, v, out, lse, spans, options, stream), num_warps=4, stream=stream)
    if spans is not None:
        used_on(spans, stream)


def compile_attention(q: Any, k: Any, v: Any, *, out: Any = None, **options: Any) -> CompiledKernel:
    """The kernel that `attention` would launch with these options, compiled: its text, registers and shared memory. There is at
    least one query and one key. Raises what `attention` raises, and attention-empty."""
    given = Options(**options)
    ready = _ready(q, k, v, out, given)
    if ready.call is None:
        raise fail(errors.EMPTY, shape=list(ready.shape))
    lse = empty_like(q, ready.shape[:3], "float32") if given.return_lse else None
    spans = None if given.documents is None else empty_like(q, (q.shape[0], 2, q.shape[2]), "int32")
    out = empty_heads(q, ready.shape, ready.dtype, ready.by_length) if out is None else out
    v = v if ready.call.turned is None else ready.call.turned.empty(v)
    return attend.warmup(*ready.call.arguments(q, k, v, out, lse, spans, given), num_warps=4)


def chosen_attention(size: int, v_size: int, parts: Parts, members: int, queries: int) -> tuple[AttentionConfig, int]:
    """The configuration for head sizes of keys and of values and the parts of a kernel, for `members` query heads for each head
    of keys; and how many consecutive queries of a head a consumer's 64 rows are. Raises LaunchError (attention-size)."""
    if (size, v_size) not in TILES:
        raise no_size(size, v_size, TILES)
    config = TILES[size, v_size][parts.bounded]
    if parts.out is not None:
        config = NARROW_TILES[size, v_size][parts.bounded]
        small = parts.key_scales or parts.blocks or parts.exact or parts.documents
        if queries >= LONG and parts.right and not (small or parts.left or parts.mask_mod is not None):
            config = LONG_TILES.get((size, v_size), config)
        if small:
            # Blocks within a scale's, or a mask's; and registers for exact sums, or for bounds from memory.
            config = replace(config, block_n=min(config.block_n, 128))
    if parts.sequences:
        return config, ROWS
    if parts.blocks:
        # A tile's queries are those of a row of the mask.
        width = config.block_n if EDGE % config.block_n == 0 else EDGE // 2
        return replace(config, consumers=EDGE // ROWS, block_n=width), ROWS
    length = ROWS if members == 1 or queries > ROWS // 2 else 1 << (queries - 1).bit_length()
    rows = queries if length == ROWS else members * length
    # Three consumers have no registers left for bounds from memory, or for functions of the caller.
    most = 2 if parts.documents or parts.score_mod is not None or parts.mask_mod is not None else config.consumers
    return replace(config, consumers=min(config.consumers, most, -(-rows // ROWS))), length


def no_size(size: int, v_size: int, among: Iterable[tuple[int, int]]) -> Exception:
    """The error for head sizes that are not among these."""
    known = sorted(among, key=lambda sizes: (abs(sizes[0] - size) + abs(sizes[1] - v_size), sizes))
    return fail(errors.SIZE, size=size, v_size=v_size, known=", ".join(map(_sizes, known)))


def _sizes(sizes: tuple[int, int]) -> str:
    return str(sizes[0]) if sizes[0] == sizes[1] else f"{sizes[0]} with {sizes[1]} for v"


def _ready(q: Any, k: Any, v: Any, out: Any, options: Options) -> _Ready:
    """The prepared call for these arrays. Addresses are checked at each call that passes `out`."""
    given = (q, k, v) if out is None else (q, k, v, out)
    try:
        key = (*map(key_of, given), options.key(key_of), None if q.is_cuda else driver.simulated_target().arch)
    except (AttributeError, TypeError):
        key = None  # Not PyTorch tensors.
    ready = _known.of(key, lambda: _prepare(q, k, v, out, options))
    if out is not None:
        check_overlap(ready.spans, tuple(map(address, given)))
    return ready


def _prepare(q: Any, k: Any, v: Any, out: Any, options: Options) -> _Ready:
    given = query, key, value = heads("q", q), heads("k", k), heads("v", v)
    check_alike(query, key, value, known=(*DTYPES, NARROW))
    (batch, count, queries, size), (_, kv_heads, keys, v_size) = query.shape, value.shape
    left, right = check_options(options, query, key)
    check_narrow(options, query, key)
    result = query
    if query.dtype == NARROW:
        given_type = None if out is None else heads("out", out).dtype
        result = replace(query, dtype=given_type if given_type in DTYPES else "bfloat16")
    parts = options.parts(left, right, None if result is query else OUT_TYPES[result.dtype])
    members = count // kv_heads if kv_heads else 1
    chosen, length = chosen_attention(size, v_size, parts, members, max(queries, 1))
    plan = make_attention_plan(
        query.dtype, size, v_size, chosen if options.config is None else options.config, parts, length
    )
    if parts.blocks and (plan.tile_queries != EDGE or EDGE % plan.block_n):
        field = "block_n" if plan.tile_queries == EDGE else "consumers"
        rule = "a divisor of 128, the keys of a block of the mask" if field == "block_n" else "2 with a block mask"
        raise fail(errors.CONFIG, field=field, value=getattr(plan.config, field), rule=rule)
    if plan.float8 and parts.key_scales and TURNED % plan.block_n:
        rule = "32, 64 or 128 with scales of blocks of keys"
        raise fail(errors.CONFIG, field="block_n", value=plan.block_n, rule=rule)
    if plan.float8 and plan.block_n % 32:
        raise fail(errors.CONFIG, field="block_n", value=plan.block_n, rule="a multiple of 32 for arrays of float8")
    if plan.shared_bytes > SHARED_BYTES:
        raise fail(errors.ROOM, config=plan.config, need=plan.shared_bytes, most=SHARED_BYTES)
    shape = (batch, count, queries, v_size)
    target, by_length = result_heads(result, v_size, out)
    ready = _Ready(None, shape, result.dtype, by_length, tuple(x.span() for x in (*given, target)))
    if 0 in shape or not keys:
        return ready
    for each in (*given, target):
        check_described(each)
    machine = target_of(query.device)
    if not machine.has_wgmma:
        raise fail(errors.TARGET, target=machine.name)
    sequences = sequences_of(options) if parts.sequences else batch
    columns = queries // plan.tile_queries + sequences if parts.sequences else -(-queries // plan.tile_queries)
    rows = kv_heads * -(-members // plan.tile_heads) * (1 if parts.sequences else batch)
    # Keys and values that are in use at a time are those of a sequence.
    in_use = -(-keys // (sequences if parts.sequences else 1)) * (size + v_size) * query.itemsize
    band = max(1, CACHE_BYTES // in_use) * -(-members // plan.tile_heads)
    processors = multiprocessors_of(query.device, machine_of(machine))
    banded = columns
    if parts.sequences or parts.documents or parts.blocks:
        # Tiles do not become shorter from column to column, as with a causal mask alone.
        banded -= last_columns(columns, rows, processors)
    described = _of_sequences if parts.sequences else grouped
    turned = Turned.of(value, plan.o_columns) if plan.float8 else None
    scale, inner = factors(options, size)
    scale *= narrow_factor(options) if plan.float8 else 1.0
    call = Attention(
        plan,
        min(rows * columns, processors),
        described(query, kv_heads, plan.q_box, plan),
        _keys(key, plan.k_block, plan),
        _keys(value if turned is None else turned.described(value), plan.v_block, plan),
        described(target, kv_heads, plan.o_box, plan, plan.out_dtype),
        (scale, inner, sequences, kv_heads, members, queries, keys, band, banded, left or 0, right or 0),
        turned,
    )
    return replace(ready, call=call)


def grouped(x: Heads, kv_heads: int, box: tuple[int, ...], plan: TilePlan, dtype: Any = None) -> Described:
    """The descriptors of queries or results, [batch, kv heads, query heads of each, queries, head size]."""
    (batch, count, queries, size), (by_batch, by_head, by_query, last) = x.shape, x.strides
    members = count // kv_heads
    shape, strides = (batch, kv_heads, members, queries, size), (by_batch, members * by_head, by_head, by_query, last)
    return Described(shape, strides, box, plan.layout(box, dtype))


def _of_sequences(x: Heads, _: int, box: tuple[int, ...], plan: TilePlan, dtype: Any = None) -> Described:
    """The ragged descriptors of heads by positions of sequences."""
    return Described(*ragged_form(x.shape[1:], x.strides[1:], 1), box, plan.layout(box, dtype))


def _keys(x: Heads, block: tuple[int, int], plan: AttentionPlan) -> Described:
    """The descriptors of keys or values."""
    if plan.parts.sequences:
        return _of_sequences(x, 0, (1, 1, 1, *block), plan)
    return Described(x.shape, x.strides, (1, 1, *block), plan.layout((1, 1, *block)))
