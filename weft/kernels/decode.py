"""`decode_attention`: few queries against a cache of keys and values; checks of its arrays, and the table of prepared calls."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from weft.errors import attention as errors
from weft.errors import fail
from weft.kernels.arrays import Described, Prepared, address, key_of
from weft.kernels.attend import grouped, no_size
from weft.kernels.attend_options import Options, check_options, check_vector, factors
from weft.kernels.attend_plan import ROWS, SHARED_BYTES, AttentionConfig
from weft.kernels.decode_plan import (
    LATENT,
    LATENT_TILES,
    TILES,
    DecodePlan,
    LatentPlan,
    guesses,
    heads_abreast,
    make_decode_plan,
)
from weft.kernels.device.decode import decode
from weft.kernels.device.decode_latent import decode_latent
from weft.kernels.heads import (
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
from weft.plain import as_number
from weft.runtime import driver
from weft.runtime.arguments import extents
from weft.runtime.compiled import CompiledKernel

QUERIES = 16
"""The most queries of a sequence."""
LAUNCH = {"num_warps": 4, "launch_pdl": True}


@dataclass(frozen=True)
class Decode:
    """A prepared decode attention: its plan, grid, descriptors and numbers. `spans` are the byte ranges of q, k, v and out."""

    plan: DecodePlan
    grid: tuple[int, int, int]
    units: int
    shape: tuple[int, int, int, int]
    dtype: str
    by_length: bool
    spans: tuple[tuple[int, int], ...]
    q: Described
    k: Described
    steps: tuple[Any, Any]
    out: Described
    numbers: tuple[Any, ...]

    @property
    def kernel(self) -> Any:
        """What is launched."""
        return decode_latent if isinstance(self.plan, LatentPlan) else decode

    def arguments(self, q: Any, k: Any, v: Any, out: Any, lse: Any, work: Any, given: Any) -> tuple[Any, ...]:
        """The kernel's arguments."""
        cache_seqlens, block_table, sinks, k_scale, v_scale = given
        if isinstance(self.plan, LatentPlan):
            _, scale, _, *numbers, _, _ = self.numbers
            cached, step = (k, self.steps[0]) if self.plan.gathered else (self.k.of(k), None)
            return (
                self.q.of(q), cached, self.out.of(out), lse, step, cache_seqlens, block_table, *work, scale, *numbers,
                self.plan,
            )  # fmt: skip
        return (
            self.q.of(q), k, v, self.out.of(out), lse, *self.steps, cache_seqlens, block_table, *work, sinks,
            *(x if hasattr(x, "shape") else None for x in (k_scale, v_scale)), *self.numbers, self.plan,
        )  # fmt: skip

    def work(self, like: Any, stream: Any) -> tuple[Any, Any]:
        """Memory for partial results, and the counters of tiles."""
        size = 2 * math.prod(self.grid) * self.plan.shares * self.plan.used * (self.plan.v_size + 1)
        return empty_like(like, (size,), "float32"), zeros_kept(like, self.units * self.plan.shares, stream)


_known: Prepared[Decode] = Prepared()


def decode_attention(
    q: Any, k: Any, v: Any = None, cache_seqlens: Any = None, *, block_table: Any = None, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, softcap: float | None = None, sinks: Any = None,
    k_scale: Any = None, v_scale: Any = None, return_lse: bool = False, out: Any = None, config: AttentionConfig | None = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale * q k^T) v of the last positions of sequences against a cache; returns `out` [batch, heads, queries, head
    size of v].

    `q` is [batch, heads, queries, head size], 1 to 16 queries of each sequence. Without `block_table` the cache is `k` [batch,
    kv heads, capacity, head size] and `v` [batch, kv heads, capacity, head size of v]. With it, an int32 array [batch, n], the
    cache has pages: `k` is [pages, kv heads, page size, head size], `v` likewise, and positions i * page size and following of
    sequence b lie in page block_table[b, i]. Entries behind a sequence's end are not read. Pages have any size. A cache whose
    heads lie side by side, [..., page size, kv heads, head size], is passed with these axes swapped: strides are as free as
    those of `attention`, and so are head sizes, float16 and bfloat16, and the numbers of heads.

    Without `v` the cache is latent, as in multi-head latent attention: `k` has one head of 576 elements, and the first 512 of
    them are the value. It takes no window, softcap or sinks.

    `k` and `v` may be float8_e4m3fn: then `k_scale` and `v_scale`, numbers or float32 arrays [kv heads], are the factors of
    their elements, 1 by default. They are converted to the type of q.

    `cache_seqlens`, an int32 array [batch] on the device of q, are the lengths of sequences, with the queries' own positions,
    whose keys and values the cache has already; without it all are as long as the cache. Nothing waits for them on the host, so
    that a CUDA graph serves all lengths. A length that is negative or beyond the cache, and an entry of `block_table` that is
    no page, stop the simulator and debug builds; otherwise nothing outside of the cache is read.

    Queries are the last positions: query i sees the keys up to position length - queries + i, with `window` (left, right) those
    at most `left` before it. `scale`, `softcap`, `sinks`, `return_lse` and `config`, with one consumer, are those of
    `attention`. What the cache holds behind a sequence's end is of no account, even if it is NaN.

    Multiprocessors load equal parts of all keys and values, in one launch; results of parts are combined in float32, in an
    order that depends on lengths and shapes only.

    Raises LaunchError: attention-array, attention-dtypes, attention-devices, attention-shapes, attention-heads,
    attention-size, attention-strides, attention-queries, attention-latent, attention-cache-scale, attention-scale,
    attention-window, attention-softcap, attention-option, attention-out, attention-out-overlaps, attention-config,
    attention-config-kind, attention-room, attention-target, kernels-out-needed.
    """
    options = _options(scale, window, softcap, sinks, return_lse, config)
    ready = _ready(q, k, v, cache_seqlens, block_table, out, options, (k_scale, v_scale))
    if out is None:
        out = empty_heads(q, ready.shape, ready.dtype, ready.by_length)
    lse = empty_like(q, ready.shape[:3], "float32") if return_lse else None
    if all(ready.grid):
        work = ready.work(q, stream)
        given = cache_seqlens, block_table, sinks, k_scale, v_scale
        ready.kernel[ready.grid](*ready.arguments(q, k, v, out, lse, work, given), **LAUNCH, stream=stream)
        used_on(work[0], stream)
    else:
        fill(out, 0)
        if lse is not None:
            fill(lse, -math.inf)
    return (out, lse) if return_lse else out


def compile_decode(
    q: Any,
    k: Any,
    v: Any = None,
    cache_seqlens: Any = None,
    *,
    block_table: Any = None,
    out: Any = None,
    **options: Any,
) -> CompiledKernel:
    """The kernel that `decode_attention` would launch with these options, compiled: its text, registers and shared memory.
    Raises what `decode_attention` raises, and attention-empty."""
    given = _options(*(options.get(name) for name in ("scale", "window", "softcap", "sinks", "return_lse", "config")))
    scales = options.get("k_scale"), options.get("v_scale")
    ready = _ready(q, k, v, cache_seqlens, block_table, out, given, scales)
    if not all(ready.grid):
        raise fail(errors.EMPTY, shape=list(ready.shape))
    lse = empty_like(q, ready.shape[:3], "float32") if given.return_lse else None
    out = empty_heads(q, ready.shape, ready.dtype, ready.by_length) if out is None else out
    arrays = cache_seqlens, block_table, given.sinks, *scales
    return ready.kernel.warmup(*ready.arguments(q, k, v, out, lse, ready.work(q, None), arrays), **LAUNCH)


def _options(scale: Any, window: Any, softcap: Any, sinks: Any, return_lse: Any, config: Any) -> Options:
    return Options(
        causal=True,
        scale=scale,
        window=window,
        softcap=softcap,
        sinks=sinks,
        return_lse=bool(return_lse),
        config=config,
    )


def _ready(
    q: Any, k: Any, v: Any, cache_seqlens: Any, block_table: Any, out: Any, options: Options, scales: tuple[Any, Any]
) -> Decode:
    """The prepared call for these arrays. Addresses are checked at each call that passes `out`."""
    latent, v = v is None, k if v is None else v
    given = (q, k, v) if out is None else (q, k, v, out)
    try:
        arrays = tuple(None if x is None else key_of(x) for x in (*given, cache_seqlens, block_table))
        factors = tuple(key_of(x) if hasattr(x, "shape") else x for x in scales)
        where = None if q.is_cuda else driver.simulated_target().arch
        key = arrays, len(given), latent, factors, options.key(key_of), where
    except (AttributeError, TypeError):
        key = None  # Not PyTorch tensors.
    ready = _known.of(
        key, lambda: _prepare(q, k, None if latent else v, cache_seqlens, block_table, out, options, scales)
    )
    if out is not None:
        check_overlap(ready.spans, tuple(map(address, given)))
    return ready


def _prepare(
    q: Any, k: Any, v: Any, cache_seqlens: Any, block_table: Any, out: Any, options: Options, scales: tuple[Any, Any]
) -> Decode:
    query, key = heads("q", q), heads("k", k)
    value = _values(query, key, options) if v is None else heads("v", v)
    given = query, key, value
    paged = block_table is not None
    narrow = v is not None and key.dtype == value.dtype == NARROW
    wide = [replace(x, dtype=query.dtype) if narrow else x for x in (key, value)]
    check_alike(query, wide[0], wide[1], paged)
    k_scale, v_scale = (
        cache_scale(name, x, narrow, key, query) for name, x in zip(("k_scale", "v_scale"), scales, strict=True)
    )
    (batch, count, queries, size), (extent, kv_heads, page, v_size) = query.shape, value.shape
    if not 1 <= queries <= QUERIES:
        raise fail(errors.QUERIES, got=queries, most=QUERIES)
    left, right = check_options(options, query, key)
    check_vector("cache_seqlens", cache_seqlens, "int32", (batch,), query)
    width = _width(block_table)
    check_vector("block_table", block_table, "int32", (batch, width), query)
    keys = width * page if paged else page
    config = _config(size, v_size, v is None, options.config)
    members = count // kv_heads if kv_heads else 1
    parts = options.parts(left, right if queries > 1 else None)
    length = 1 << (queries - 1).bit_length()
    kind = parts, length, page if paged else 0, max(members, 1), narrow
    plan = make_decode_plan(query.dtype, size, v_size, config, *kind)
    while options.config is None and plan.shared_bytes > SHARED_BYTES:
        # Many queries of a sequence take room of a slot.
        config = replace(config, stages=config.stages - 1)
        plan = make_decode_plan(query.dtype, size, v_size, config, *kind)
    if plan.shared_bytes > SHARED_BYTES:
        raise fail(errors.ROOM, config=plan.config, need=plan.shared_bytes, most=SHARED_BYTES)
    shape = (batch, count, queries, v_size)
    target, by_length = result_heads(query, v_size, out)
    nothing = 0 in shape or not keys or not extent
    if not nothing:
        for each in (*given, target):
            check_described(each)
        machine = target_of(query.device)
        if not machine.has_wgmma:
            raise fail(errors.TARGET, target=machine.name)
    tiles = -(-members // plan.tile_heads)
    units = batch * kv_heads * tiles
    abreast, teams = 1, 0
    if not nothing:
        most = multiprocessors_of(query.device, machine_of(target_of(query.device)))
        blocks = batch * -(-keys // plan.block_n)
        abreast = heads_abreast(kv_heads, blocks, tiles, most)
        teams = max(1, min(most // (tiles * abreast), kv_heads // abreast * blocks))
    return Decode(
        plan, (tiles, abreast, teams), units, shape, query.dtype, by_length, tuple(x.span() for x in (*given, target)),
        grouped(query, kv_heads, plan.q_box, plan), _cached(key, plan), (key.strides[:3], value.strides[:3]),
        grouped(target, kv_heads, plan.o_box, plan),
        (
            v_scale, *_factors(options, size, k_scale), batch, kv_heads, members, queries, keys, width, extent,
            kv_heads // abreast, int(guesses(batch, keys, plan)), left or 0,
        ),
    )  # fmt: skip


def cache_scale(name: str, scale: Any, narrow: bool, k: Heads, q: Heads) -> float:
    """The factor of all keys or values. Raises LaunchError: attention-cache-scale, attention-option."""
    if scale is None:
        return 1.0
    if hasattr(scale, "shape") and narrow:
        check_vector(name, scale, "float32", (k.shape[1],), q)
        return 1.0
    number = as_number(scale)
    if not narrow or number is None or isinstance(number, complex) or not number > 0:
        got = repr(scale) if narrow else f"given, and the cache is {k.dtype}"
        raise fail(errors.CACHE_SCALE, name=name, got=got)
    return float(number)


def _factors(options: Options, size: int, k_scale: float) -> tuple[float, float]:
    """As `factors`, with the factor of the keys."""
    scale, inner = factors(options, size)
    return (scale * k_scale, inner) if options.softcap is None else (scale, inner * k_scale)


def _width(block_table: Any) -> int:
    """Entries of each sequence."""
    measured = None if block_table is None else extents(block_table)
    return int(measured[0][1]) if measured is not None and len(measured[0]) == 2 else 0


def _values(q: Heads, k: Heads, options: Options) -> Heads:
    """The values in a latent cache. Raises LaunchError (attention-latent)."""
    size, v_size = LATENT
    got = [
        f"the option {name} is given" for name in ("window", "softcap", "sinks") if getattr(options, name) is not None
    ]
    if k.shape[1] != 1:
        got = [f"k has {k.shape[1]} heads"]
    if not q.shape[3] == k.shape[3] == size:
        got = [f"q and k have head sizes {q.shape[3]} and {k.shape[3]}"]
    if got:
        raise fail(errors.LATENT, size=size, v_size=v_size, got=got[0])
    return replace(k, shape=(*k.shape[:3], v_size))


def _config(size: int, v_size: int, latent: bool, config: AttentionConfig | None) -> AttentionConfig:
    """The configuration. Raises LaunchError: attention-size, attention-config."""
    if not latent and (size, v_size) not in TILES:
        raise no_size(size, v_size, TILES)
    chosen = LATENT_TILES if latent else TILES[size, v_size]
    if config is not None and config.consumers != chosen.consumers:
        rule = f"{chosen.consumers} for decode_attention{' without v' if latent else ''}"
        raise fail(errors.CONFIG, field="consumers", value=config.consumers, rule=rule)
    if config is not None and not latent and config.block_n % ROWS:
        rule = f"a multiple of {ROWS} for decode_attention"
        raise fail(errors.CONFIG, field="block_n", value=config.block_n, rule=rule)
    return chosen if config is None else config


def _cached(x: Heads, plan: DecodePlan) -> Described:
    """The descriptors of a latent cache, in tiles of a block."""
    if not isinstance(plan, LatentPlan) or plan.gathered:
        return Described(x.shape, x.strides, (), None)
    block = plan.block_n, x.shape[3]
    box = (1, 1, plan.piece, plan.layout(block).swizzle_byte_width // x.itemsize)
    return Described(x.shape, x.strides, box, plan.layout(box))
