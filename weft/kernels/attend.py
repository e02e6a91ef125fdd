"""`attention`: checks of its arrays, the choice of a configuration, and the table of prepared calls."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from weft.errors import attention as errors
from weft.errors import fail
from weft.kernels.arrays import Described
from weft.kernels.attend_plan import (
    ROWS,
    SHARED_BYTES,
    TILES,
    AttentionConfig,
    AttentionPlan,
    Parts,
    make_attention_plan,
)
from weft.kernels.device.attend import attend
from weft.kernels.heads import Heads, check_alike, check_described, check_out, heads
from weft.kernels.machines import machine_of, multiprocessors_of, target_of
from weft.kernels.memory import empty_like, fill
from weft.plain import as_number
from weft.runtime import driver
from weft.runtime.compiled import CompiledKernel

LOG2_E = 1.4426950408889634
CACHE_BYTES = 32 << 20
"""Bytes of keys and values that the tiles of a band share, of an L2 cache of 50 MiB on Hopper."""
_READY = 1024
"""The table of prepared calls is cleared at this size."""
_known: dict[tuple[Any, ...], _Ready] = {}


@dataclass(frozen=True, slots=True)
class _Ready:
    """A prepared call for arrays of equal shapes, strides, types, devices and alignment. `call` is None if there are no queries
    or no keys. `by_length`: the output that `attention` makes has the heads of a position side by side."""

    call: Attention | None
    shape: tuple[int, int, int, int]
    dtype: str
    by_length: bool


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

    def arguments(self, q: Any, k: Any, v: Any, out: Any, lse: Any) -> tuple[Any, ...]:
        """The kernel's arguments."""
        return self.q.of(q), self.k.of(k), self.v.of(v), self.out.of(out), lse, *self.numbers, self.plan

    def run(self, q: Any, k: Any, v: Any, out: Any, lse: Any, stream: Any) -> CompiledKernel:
        """Launch the kernel; returns it compiled."""
        return attend[self.programs](*self.arguments(q, k, v, out, lse), num_warps=4, stream=stream)


def attention(
    q: Any, k: Any, v: Any, *, causal: bool = False, scale: float | None = None, return_lse: bool = False, out: Any = None,
    config: AttentionConfig | None = None, stream: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale * q k^T) v for every head; returns `out` [batch, heads, queries, head size of v].

    `q` is [batch, heads, queries, head size], `k` [batch, kv heads, keys, head size] and `v` [batch, kv heads, keys, head size
    of v], as `torch.nn.functional.scaled_dot_product_attention` takes them: arrays of PyTorch, NumPy or CuPy of float16 or
    bfloat16, whose last dimension is contiguous and whose other strides are positive multiples of 16 bytes, in any order.
    `heads` is a multiple of `kv heads` (grouped queries). Head sizes are 64, 96, 128 and 256, and 192 with 128 for v. Host
    arrays are simulated.

    With `causal` the last query sees all keys, and each query before it one less (aligned at the bottom right); blocks of keys
    that no query of a tile sees are not loaded. `scale` is 1 / sqrt(head size) unless given. With `return_lse` the result is
    `(out, lse)`, where lse [batch, heads, queries] is the natural logarithm of the sum of exponentials of the scaled scores, in
    float32. A query that sees no key has 0 in `out` and -inf in `lse`.

    Scores, exponentials and sums are float32; weights are rounded to the type of v for the second product. With few queries
    those of several query heads of a group share a tile. The configuration is chosen by head sizes and mask; `config` overrides
    it.

    Raises LaunchError: attention-array, attention-dtypes, attention-devices, attention-shapes, attention-heads, attention-size,
    attention-strides, attention-scale, attention-out, attention-out-overlaps, attention-config-kind, attention-room,
    attention-target, kernels-out-needed.
    """
    ready = _ready(q, k, v, out, causal, scale, return_lse, config)
    if out is None:
        out = _empty(q, ready)
    lse = empty_like(q, ready.shape[:3], "float32") if return_lse else None
    if ready.call is not None:
        ready.call.run(q, k, v, out, lse, stream)
    else:
        fill(out, 0)
        if lse is not None:
            fill(lse, -math.inf)
    return (out, lse) if return_lse else out


def compile_attention(
    q: Any, k: Any, v: Any, *, causal: bool = False, scale: float | None = None, return_lse: bool = False, out: Any = None,
    config: AttentionConfig | None = None,
) -> CompiledKernel:  # fmt: skip
    """The kernel that `attention` would launch, compiled: its text, registers and shared memory. There is at least one query
    and one key. Raises what `attention` raises, and attention-empty."""
    ready = _ready(q, k, v, out, causal, scale, return_lse, config)
    if ready.call is None:
        raise fail(errors.EMPTY, shape=list(ready.shape))
    lse = empty_like(q, ready.shape[:3], "float32") if return_lse else None
    return attend.warmup(*ready.call.arguments(q, k, v, _empty(q, ready) if out is None else out, lse), num_warps=4)


def chosen_attention(size: int, v_size: int, masked: bool, members: int, queries: int) -> tuple[AttentionConfig, int]:
    """The configuration for head sizes of keys and of values, with a mask or without, for `members` query heads for each head
    of keys; and how many consecutive queries of a head a consumer's 64 rows are. Raises LaunchError (attention-size)."""
    if (size, v_size) not in TILES:
        known = sorted(TILES, key=lambda sizes: (abs(sizes[0] - size) + abs(sizes[1] - v_size), sizes))
        raise fail(errors.SIZE, size=size, v_size=v_size, known=", ".join(map(_sizes, known)))
    config = TILES[size, v_size][masked]
    length = ROWS if members == 1 or queries > ROWS // 2 else 1 << (queries - 1).bit_length()
    rows = queries if length == ROWS else members * length
    return replace(config, consumers=min(config.consumers, -(-rows // ROWS))), length


def _sizes(sizes: tuple[int, int]) -> str:
    return str(sizes[0]) if sizes[0] == sizes[1] else f"{sizes[0]} with {sizes[1]} for v"


def _empty(q: Any, ready: _Ready) -> Any:
    """An output in the memory order of q: heads of one position side by side, or positions of one head."""
    batch, count, queries, size = ready.shape
    if ready.by_length:
        return empty_like(q, (batch, queries, count, size), ready.dtype).swapaxes(1, 2)
    return empty_like(q, ready.shape, ready.dtype)


def _ready(q: Any, k: Any, v: Any, out: Any, causal: Any, scale: Any, lse: Any, config: Any) -> _Ready:
    """The prepared call for these arrays. Addresses are checked at each call that passes `out`."""
    try:
        key = (
            *((x.dtype, x.shape, x.stride(), x.data_ptr() & 15, x.get_device()) for x in (q, k, v)), causal, scale, lse, config,
            None if q.is_cuda else driver.simulated_target().arch,
        )  # fmt: skip
        ready = _known.get(key) if out is None else None
    except (AttributeError, TypeError):
        # Not PyTorch tensors, or an unhashable argument.
        return _prepare(q, k, v, out, causal, scale, lse, config)
    if ready is None:
        ready = _prepare(q, k, v, out, causal, scale, lse, config)
        if out is None:
            if len(_known) >= _READY:
                _known.clear()
            _known[key] = ready
    return ready


def _prepare(q: Any, k: Any, v: Any, out: Any, causal: Any, scale: Any, lse: Any, config: Any) -> _Ready:
    given = query, key, value = heads("q", q), heads("k", k), heads("v", v)
    check_alike(query, key, value)
    (batch, count, queries, size), (_, kv_heads, keys, v_size) = query.shape, value.shape
    members = count // kv_heads if kv_heads else 1
    chosen, length = chosen_attention(size, v_size, bool(causal), members, max(queries, 1))
    if config is not None:
        chosen = _checked(config)
    plan = make_attention_plan(query.dtype, size, v_size, chosen, Parts(right=bool(causal), lse=bool(lse)), length)
    _check_room(plan)
    factor = _scale(scale, size)
    shape = (batch, count, queries, v_size)
    by_length = query.strides[2] > query.strides[1] and count > 1
    strides = (count * queries * v_size, *((v_size, count * v_size) if by_length else (queries * v_size, v_size)), 1)
    target = Heads("out", query.dtype, shape, strides, 0, query.device) if out is None else heads("out", out)
    if out is not None:
        check_out(target, shape, given)
    ready = _Ready(None, shape, query.dtype, by_length)
    if 0 in shape or not keys:
        return ready
    for each in (*given, target):
        check_described(each)
    machine = target_of(query.device)
    if not machine.has_wgmma:
        raise fail(errors.TARGET, target=machine.name)
    columns = -(-queries // plan.tile_queries)
    parts = -(-members // plan.tile_heads)
    band = max(1, CACHE_BYTES // (keys * (size + v_size) * query.itemsize)) * parts
    tiles = batch * kv_heads * parts * columns
    call = Attention(
        plan,
        min(tiles, multiprocessors_of(query.device, machine_of(machine))),
        _grouped(query, kv_heads, plan.q_box, plan),
        Described(key.shape, key.strides, (1, 1, *plan.k_block), plan.layout((1, 1, *plan.k_block))),
        Described(value.shape, value.strides, (1, 1, *plan.v_block), plan.layout((1, 1, *plan.v_block))),
        _grouped(target, kv_heads, plan.o_box, plan),
        (factor, batch, kv_heads, members, queries, keys, band, 0, 0),
    )
    return replace(ready, call=call)


def _grouped(x: Heads, kv_heads: int, box: tuple[int, ...], plan: AttentionPlan) -> Described:
    """The descriptors of queries or results, [batch, kv heads, query heads of each, queries, head size]."""
    (batch, count, queries, size), (by_batch, by_head, by_query, last) = x.shape, x.strides
    members = count // kv_heads
    shape, strides = (batch, kv_heads, members, queries, size), (by_batch, members * by_head, by_head, by_query, last)
    return Described(shape, strides, box, plan.layout(box))


def _checked(config: Any) -> AttentionConfig:
    """Raises LaunchError (attention-config-kind)."""
    if not isinstance(config, AttentionConfig):
        raise fail(errors.CONFIG_KIND, got=repr(config))
    return config


def _check_room(plan: AttentionPlan) -> None:
    """Raises LaunchError (attention-room)."""
    if plan.shared_bytes > SHARED_BYTES:
        raise fail(errors.ROOM, config=plan.config, need=plan.shared_bytes, most=SHARED_BYTES)


def _scale(scale: Any, size: int) -> float:
    """The factor of scores in exponents of 2. Raises LaunchError (attention-scale)."""
    number = 1 / math.sqrt(size) if scale is None else as_number(scale)
    if number is None or isinstance(number, complex) or not 0 < number < math.inf:
        raise fail(errors.SCALE, got=repr(scale))
    return float(number) * LOG2_E
