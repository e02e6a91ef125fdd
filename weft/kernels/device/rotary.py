"""Rotary embeddings: pairs of elements of a head are rotated by an angle of their token's position.

A tile is [tokens, heads, pairs]: the cosines and sines of a token are loaded once for all its heads in a thread.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit


@jit
def axis(size: gl.constexpr, which: gl.constexpr, layout: gl.constexpr):
    """0 ... size - 1 along one of three axes."""
    if which == 0:
        return gl.arange(0, size, gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
    if which == 1:
        return gl.arange(0, size, gl.SliceLayout(0, gl.SliceLayout(2, layout)))[None, :, None]
    return gl.arange(0, size, gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]


@jit
def angles(
    cosines,
    sines,
    positions,
    token,
    tokens,
    sequence,
    limit,
    pitch,
    pairs,
    sign,
    SIZE: gl.constexpr,
    layout: gl.constexpr,
):
    """Cosines and signed sines [tokens, 1, SIZE] of `pairs` pairs."""
    there = token < tokens
    if positions is not None:
        at = gl.load(positions + token, mask=there, other=0).to(gl.int64)
    else:
        at = (token % sequence).to(gl.int64)
    gl.device_assert((at >= 0) & (at < limit), "rope: a position is negative or not below the number of rows of cos")
    pair = axis(SIZE, 2, layout)
    place = at * pitch + pair
    inside = there & (pair < pairs) & (at >= 0) & (at < limit)
    cosine = gl.load(cosines + place, mask=inside, other=1.0).to(gl.float32)
    return cosine, gl.load(sines + place, mask=inside, other=0.0).to(gl.float32) * sign


@jit(
    do_not_specialize=[
        "tokens",
        "sequence",
        "heads",
        "limit",
        "pitch",
        "pairs",
        "x_token",
        "x_head",
        "out_token",
        "out_head",
    ]
)
def rotate(
    x: gl.tensor, cosines: gl.tensor, sines: gl.tensor, positions: gl.tensor | None, out: gl.tensor, tokens: int, sequence: int,
    heads: int, limit: int, pitch: int, pairs: int, rest: int, x_token: int, x_head: int, out_token: int, out_head: int,
    sign: float, INTERLEAVED: gl.constexpr, UNIT: gl.constexpr, TABLE: gl.constexpr, REST: gl.constexpr, shape: gl.constexpr,
    layout: gl.constexpr,
) -> None:  # fmt: skip
    """`out` = x with its first 2 * `pairs` elements of each head rotated; `rest` elements behind them are copied, in chunks of
    REST, unless that is 0. `layout`: a tile [tokens, heads, elements]; UNIT divides addresses, and TABLE those of cosines."""
    TOKENS: gl.constexpr = shape[0]
    HEADS: gl.constexpr = shape[1]
    WIDE: gl.constexpr = shape[2]
    pairs, pitch = gl.multiple_of(pairs, UNIT), gl.multiple_of(pitch, TABLE)
    token, head = gl.program_id(0) * TOKENS + axis(TOKENS, 0, layout), gl.program_id(1) * HEADS + axis(HEADS, 1, layout)
    source = token.to(gl.int64) * gl.multiple_of(x_token, UNIT) + head.to(gl.int64) * gl.multiple_of(x_head, UNIT)
    target = token.to(gl.int64) * gl.multiple_of(out_token, UNIT) + head.to(gl.int64) * gl.multiple_of(out_head, UNIT)
    there = (token < tokens) & (head < heads)
    kind: gl.constexpr = out.dtype.element_ty
    at = axis(WIDE, 2, layout)
    if INTERLEAVED:
        inside = there & (at < 2 * pairs)
        pair = gl.reshape(
            gl.load(x + source + at, mask=inside, other=0.0).to(gl.float32), [TOKENS, HEADS, WIDE // 2, 2]
        )
        one, other = gl.split(pair)
        place: gl.constexpr = one.layout
        own = gl.program_id(0) * TOKENS + axis(TOKENS, 0, place)
        cosine, sine = angles(
            cosines, sines, positions, own, tokens, sequence, limit, pitch, pairs, sign, WIDE // 2, place
        )
        y = gl.reshape(gl.join(one * cosine - other * sine, one * sine + other * cosine), [TOKENS, HEADS, WIDE])
        gl.store(out + target + at, gl.convert_layout(y, layout, assert_trivial=True).to(kind), mask=inside)
    else:
        inside = there & (at < pairs)
        one = gl.load(x + source + at, mask=inside, other=0.0).to(gl.float32)
        other = gl.load(x + source + (pairs + at), mask=inside, other=0.0).to(gl.float32)
        cosine, sine = angles(
            cosines, sines, positions, token, tokens, sequence, limit, pitch, pairs, sign, WIDE, layout
        )
        gl.store(out + target + at, (one * cosine - other * sine).to(kind), mask=inside)
        gl.store(out + target + (pairs + at), (one * sine + other * cosine).to(kind), mask=inside)
    if REST:
        for first in range(0, rest, WIDE):
            behind = 2 * pairs + first + at
            left = there & (first + at < rest)
            gl.store(out + target + behind, gl.load(x + source + behind, mask=left, other=0.0).to(kind), mask=left)
