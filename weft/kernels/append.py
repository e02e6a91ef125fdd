"""`append_to_cache`: new keys and values behind those of a cache, with rotary embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from weft import language as gl
from weft.errors import attention as errors
from weft.errors import fail
from weft.kernels.attend_options import check_vector
from weft.kernels.decode import NARROW, cache_scale
from weft.kernels.device.append import HEADS, WARPS, append
from weft.kernels.heads import DIMENSIONS, Heads, check_alike, check_described, heads
from weft.runtime.arguments import array, extents

ANGLES = ("float32", "float16", "bfloat16")


def append_to_cache(
    key: Any, value: Any, k: Any, v: Any, cache_seqlens: Any, *, block_table: Any = None, q: Any = None, cos: Any = None,
    sin: Any = None, interleaved: bool = False, k_scale: Any = None, v_scale: Any = None, stream: Any = None,
) -> None:  # fmt: skip
    """Store the keys and values of new positions in a cache, as `decode_attention` reads it.

    `key` [batch, kv heads, queries, head size] and `value`, likewise, are those of the last positions of each sequence:
    `cache_seqlens`, an int32 array [batch], are the lengths that include them, so that the first one of sequence b gets
    position cache_seqlens[b] - queries. The cache `k`, `v`, with or without `block_table`, is that of `decode_attention`, and
    types, head sizes (multiples of 8) and strides are as free. Positions below 0 are left out. A cache of float8_e4m3fn holds
    keys and values divided by `k_scale` and `v_scale`, as `decode_attention` takes them.

    With `cos` and `sin`, arrays [positions, n] of floats with contiguous rows, keys are rotated on the way by the angles of
    their positions, as by `rope`: pairs of the first 2 n elements, (x[i], x[n + i]), or if `interleaved` (x[2 i], x[2 i + 1]).
    Then `q` [batch, heads, queries, head size], the queries of these positions, is rotated in place, if it is given.

    A length beyond the cache, an entry of `block_table` that is no page and a position without a row of cos stop the simulator
    and debug builds; otherwise nothing outside of the cache is written.

    Raises LaunchError: attention-array, attention-dtypes, attention-devices, attention-shapes, attention-heads,
    attention-strides, attention-option, attention-cache-scale, attention-angles.
    """
    new, other, cache, values = heads("key", key), heads("value", value), heads("k", k), heads("v", v)
    query = new if q is None else heads("q", q)
    check_alike(query, new, other)
    narrow = cache.dtype == values.dtype == NARROW
    wide = [replace(x, dtype=new.dtype) if narrow else x for x in (cache, values)]
    check_alike(new, wide[0], wide[1], paged=block_table is not None)
    scales = [(name, x) for name, x in (("k_scale", k_scale), ("v_scale", v_scale))]
    factors = [1 / cache_scale(name, x, narrow, cache, new) for name, x in scales]
    batch, kv_heads, tokens, size = new.shape
    for first, second, dim in ((new, cache, 1), (other, values, 3), (query, new, 2)):
        if first.shape[dim] != second.shape[dim]:
            raise fail(
                errors.SHAPES, first=first.name, second=second.name, one=list(first.shape), other=list(second.shape),
                what=DIMENSIONS[dim], a=first.shape[dim], b=second.shape[dim],
            )  # fmt: skip
    check_vector("cache_seqlens", cache_seqlens, "int32", (batch,), new, needed=True)
    measured = None if block_table is None else extents(block_table)
    width = int(measured[0][1]) if measured is not None and len(measured[0]) == 2 else 0
    check_vector("block_table", block_table, "int32", (batch, width), new)
    angles, pairs = _angles(cos, sin, q, new)
    if 0 in new.shape or 0 in cache.shape:
        return
    arrays = [new, other, cache, values, *([] if q is None else [query])]
    for each in arrays:
        check_described(each)
    page = cache.shape[2] if block_table is not None else 0
    parts = -(-kv_heads // HEADS)
    grid = batch * tokens, 2 * parts + (0 if q is None else -(-query.shape[1] // HEADS))
    steps = [x.strides[:3] for x in (query, new, other, cache, values)]
    capacity = width * page if page else cache.shape[2]
    numbers = query.shape[1], kv_heads, tokens, capacity, width, cache.shape[0]
    sizes = size, other.shape[3]
    chosen = page, sizes, pairs, bool(interleaved), tuple(map(_layout, sizes))
    by_head = [x if hasattr(x, "shape") else None for _, x in scales]
    given = q, key, value, k, v, cache_seqlens, block_table, angles, *by_head, *factors
    append[grid](*given, *steps, *numbers, *chosen, num_warps=WARPS, stream=stream)


def _layout(size: int) -> Any:
    """Heads by elements of a program, 8 neighbouring ones to a thread."""
    lanes = min(32, size // 8 & -(size // 8))
    return gl.BlockedLayout([1, 8], [32 // lanes, lanes], [WARPS, 1], [1, 0])


def _angles(cos: Any, sin: Any, q: Any, key: Heads) -> tuple[tuple[Any, Any, int, int] | None, int]:
    """Cosines and sines with the distance of their rows and the number of rows; and the number of pairs.

    Raises LaunchError (attention-angles)."""
    if cos is None and sin is None:
        if q is not None:
            raise fail(errors.ANGLES, got="q is given without cos and sin", most=key.shape[3] // 2)
        return None, 0
    found: list[tuple[Any, ...]] = []
    for name, each in (("cos", cos), ("sin", sin)):
        known, measured = array(each), extents(each)
        if known is None or measured is None:
            raise fail(errors.ANGLES, got=f"{name} is a {type(each).__name__}", most=key.shape[3] // 2)
        (shape, strides), good = measured, known.dtype in ANGLES and known.device == key.device
        good = good and len(shape) == 2 and 0 < 2 * shape[1] <= key.shape[3] and (strides[1] == 1 or shape[1] == 1)
        if not good:
            got = f"{name} is a {known.dtype} array of shape {list(shape)} and strides {list(strides)}"
            raise fail(errors.ANGLES, got=got, most=key.shape[3] // 2)
        found.append((known.dtype, *shape, strides[0]))
    if found[0] != found[1]:
        raise fail(errors.ANGLES, got=f"cos is {found[0][0]} {list(found[0][1:3])}, sin {found[1][0]} {list(found[1][1:3])}",
                   most=key.shape[3] // 2)  # fmt: skip
    return (cos, sin, int(found[0][3]), int(found[0][1])), int(found[0][2])
