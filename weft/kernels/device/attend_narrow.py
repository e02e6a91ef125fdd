"""Parts of attention on arrays of float8: factors of scores, and values turned for the tensor cores.

Tensor cores read 8-bit operands along the dimension of the sum only, which for the second product is that of keys: values are
turned to [head size, keys] first. Weights leave the first product in an order that the second does not take: of 16 a, 8 b, 2 j
and c in the number of a key, lane j of four has all a, b and c, and should have 4 consecutive keys of each 16. A sum has any
order, so the turned values have their keys in that of the weights' registers.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit

SHIFT = 8.0
"""Weights are 2^8 times as large: from 2^8 down to 2^-9, the least number of e4m3 (OCP 8-bit Floating Point Specification)."""
TURNED = 128
"""Keys of a program that turns values, and of a block of scales."""


@jit
def in_order(weights):
    """Weights of a block, [rows, keys], with keys in the order of `turn_values`: no element changes its register."""
    rows: gl.constexpr = weights.shape[0]
    keys: gl.constexpr = weights.shape[1]
    split = weights.reshape([rows, keys // 16, 2, 4, 2])
    return gl.permute(split, [0, 1, 3, 2, 4]).reshape([rows, keys])


@jit(do_not_specialize=["keys", "heads", "length"])
def turn_values(
    v: gl.tensor, turned: gl.tensor, keys: int, heads: int, length: int, by_batch: int, by_head: int, by_key: int,
    size: gl.constexpr, ones: gl.constexpr,
) -> None:  # fmt: skip
    """`turned` [batch, heads, size + ones, length] from `v` [batch, heads, keys, size], with zeros behind the last key, and the
    number one in the rows behind `size`."""
    straight: gl.constexpr = gl.BlockedLayout([1, 16], [16, 2], [gl.num_warps(), 1], [1, 0])
    along: gl.constexpr = gl.BlockedLayout([1, 16], [4, 8], [gl.num_warps(), 1], [1, 0])
    first, both = gl.program_id(0) * TURNED, gl.program_id(1)
    batch, head = both // heads, both % heads
    place = gl.arange(0, TURNED, gl.SliceLayout(1, straight))
    key = first + place // 16 * 16 + place // 2 % 2 * 8 + place // 4 % 4 * 2 + place % 2
    column = gl.arange(0, size, gl.SliceLayout(0, straight))
    at = gl.cast(batch, gl.int64) * by_batch + gl.cast(head, gl.int64) * by_head
    rows = gl.cast(key, gl.int64) * by_key
    found = gl.load(v + at + rows[:, None] + column[None, :], mask=(key < keys)[:, None], other=0)
    across = gl.convert_layout(gl.permute(found, [1, 0]), along)
    row = gl.arange(0, size, gl.SliceLayout(1, along))
    behind = first + gl.arange(0, TURNED, gl.SliceLayout(0, along))
    start = gl.cast(both, gl.int64) * (size + ones)
    gl.store(turned + (start + row)[:, None] * length + behind[None, :], across)
    if ones:
        row = gl.arange(0, ones, gl.SliceLayout(1, along))
        one = gl.full([ones, TURNED], 1.0, turned.dtype.element_ty, along)
        gl.store(turned + (start + size + row)[:, None] * length + behind[None, :], one)


# Scores of a row are multiplied by a factor of the row. Row maxima are kept as exponents of 2, since the factors of blocks of
# keys may differ.


@jit
def highest(before, s, factor, plan: gl.constexpr):
    """The maxima of rows with those of a block."""
    top = gl.max(s, axis=1)
    return gl.maximum(before, top * factor if plan.float8 else top)


@jit
def weights_of(s, top, factor, plan: gl.constexpr):
    """The weights of a block."""
    if plan.float8:
        return gl.exp2(s * factor[:, None] - (top - SHIFT)[:, None])
    return gl.exp2(s * factor - (top * factor)[:, None])


@jit
def faded(before, top, factor, plan: gl.constexpr):
    """The factor of what was summed with other maxima."""
    return gl.exp2(before - top) if plan.float8 else gl.exp2((before - top) * factor)


@jit
def exponents(top, factor, plan: gl.constexpr):
    """The exponents of 2 by which sums of weights are too small."""
    return top - SHIFT if plan.float8 else top * factor
