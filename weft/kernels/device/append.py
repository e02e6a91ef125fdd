"""Appending to a cache: new keys, rotated by the angles of their positions, and new values; queries are rotated in place.

A program has one position of a sequence, and some heads of queries, keys or values. Each element of a tile [heads, elements] is
computed with its partner of the rotation, which is loaded by itself.
"""

from __future__ import annotations

from typing import TypeAlias

from weft import language as gl
from weft.kernel import jit

HEADS, WARPS = 8, 4
"""Heads of a program, and warps."""
Pointer: TypeAlias = "gl.tensor | None"
Steps: TypeAlias = "tuple[int, int, int]"
"""From one batch or page, head and position to the next, in elements."""
Angles: TypeAlias = "tuple[gl.tensor, gl.tensor, int, int] | None"
"""Cosines and sines, the distance of their rows in elements, and the number of rows."""


@jit
def row_of(base, steps, first, head, position):
    """Addresses [heads, 1] of heads at a position; all of an array are multiples of 16 bytes."""
    by_first, by_head, by_position = steps
    unit: gl.constexpr = 16 // base.dtype.element_ty.itemsize
    at = first.to(gl.int64) * gl.multiple_of(by_first, unit) + position.to(gl.int64) * gl.multiple_of(by_position, unit)
    return gl.multiple_of(base, 16) + (at + head.to(gl.int64) * gl.multiple_of(by_head, unit))[:, None]


@jit
def moved(
    source, source_steps, target, target_steps, angles, scales, factor, heads, part, batch, token, first, position, place,
    there, SIZE: gl.constexpr, PAIRS: gl.constexpr, INTERLEAVED: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    """Store heads of a new position, rotated if there are angles, at `place` of the target's batch or page `first`."""
    head = part * HEADS + gl.arange(0, HEADS, gl.SliceLayout(1, layout))
    at = gl.arange(0, SIZE, gl.SliceLayout(0, layout))
    inside = ((head < heads) & there)[:, None]
    row = row_of(source, source_steps, batch, head, token)
    x = gl.load(row + at[None, :], mask=inside, other=0.0).to(gl.float32)
    if angles is not None:
        cosines, sines, pitch, rows = angles
        upper = at % 2 == 1 if INTERLEAVED else at >= PAIRS
        partner = at ^ 1 if INTERLEAVED else gl.where(upper, at - PAIRS, at + PAIRS)
        pair = at // 2 if INTERLEAVED else at % PAIRS
        known = (position >= 0) & (position < rows)
        gl.device_assert(known, "append_to_cache: cos has no row for a position", mask=there)
        rotated = (at < 2 * PAIRS) & known & there
        angle = gl.where(known, position, 0).to(gl.int64) * pitch + pair
        cosine = gl.load(cosines + angle, mask=rotated, other=1.0).to(gl.float32)
        sine = gl.load(sines + angle, mask=rotated, other=0.0).to(gl.float32)
        y = gl.load(row + partner[None, :], mask=inside & rotated[None, :], other=0.0).to(gl.float32)
        x = x * cosine[None, :] + y * gl.where(upper, sine, -sine)[None, :]
        # Other threads have read their partners before anything is overwritten.
        gl.barrier()
    if target.dtype.element_ty != source.dtype.element_ty:
        if scales is not None:
            x = x / gl.load(scales + head, mask=head < heads, other=1.0)[:, None]
        x = x * factor
    row = row_of(target, target_steps, first, head, place)
    gl.store(row + at[None, :], x.to(target.dtype.element_ty), mask=inside)


SIZES = [
    "k_factor",
    "v_factor",
    "q_steps",
    "key_steps",
    "value_steps",
    "k_steps",
    "v_steps",
    "heads",
    "kv_heads",
    "tokens",
    "capacity",
    "width",
    "pages",
]


@jit(do_not_specialize=SIZES)
def append(
    q: Pointer, key: gl.tensor, value: gl.tensor, k: gl.tensor, v: gl.tensor, lengths: gl.tensor, table: Pointer,
    angles: Angles, k_scales: Pointer, v_scales: Pointer, k_factor: float, v_factor: float, q_steps: Steps, key_steps: Steps,
    value_steps: Steps, k_steps: Steps, v_steps: Steps, heads: int, kv_heads: int, tokens: int, capacity: int, width: int,
    pages: int,
    PAGE: gl.constexpr, WIDTHS: gl.constexpr, PAIRS: gl.constexpr, INTERLEAVED: gl.constexpr, layouts: gl.constexpr,
) -> None:  # fmt: skip
    """The grid is [sequences * tokens, parts of keys, of values, and of queries]; see the module."""
    batch, token = gl.program_id(0) // tokens, gl.program_id(0) % tokens
    length = gl.load(lengths + batch)
    gl.device_assert(
        (length >= 0) & (length <= capacity),
        "append_to_cache: an element of cache_seqlens is negative or beyond the cache",
    )
    position = length - tokens + token
    there = (position >= 0) & (position < capacity)
    first, place = batch, position
    if PAGE:
        first = gl.load(table + batch.to(gl.int64) * width + position // PAGE, mask=there, other=-1)
        known = (first >= 0) & (first < pages)
        gl.device_assert(known, "append_to_cache: an entry of block_table is no page of the cache", mask=there)
        place = position % PAGE
        there = there & known
    part, parts = gl.program_id(1), gl.cdiv(kv_heads, HEADS)
    if part < parts:
        moved(
            key, key_steps, k, k_steps, angles, k_scales, k_factor, kv_heads, part, batch, token, first, position, place, there,
            WIDTHS[0], PAIRS, INTERLEAVED, layouts[0],
        )  # fmt: skip
    elif part < 2 * parts:
        moved(
            value, value_steps, v, v_steps, None, v_scales, v_factor, kv_heads, part - parts, batch, token, first, position,
            place, there, WIDTHS[1], PAIRS, INTERLEAVED, layouts[1],
        )  # fmt: skip
    elif q is not None:
        moved(
            q, q_steps, q, q_steps, angles, None, 1.0, heads, part - 2 * parts, batch, token, batch, position, token,
            position >= 0, WIDTHS[0], PAIRS, INTERLEAVED, layouts[0],
        )  # fmt: skip
