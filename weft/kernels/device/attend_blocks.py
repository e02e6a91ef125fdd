"""The kernel that finds which blocks of keys a mask function leaves to blocks of queries, for `weft.kernels.block_mask`."""

from __future__ import annotations

from typing import Any

from weft import language as gl
from weft.kernel import jit

EDGE = 128
"""Queries and keys of a block."""


@jit(do_not_specialize=["heads", "queries", "keys"])
def find_blocks(
    counts: gl.tensor, lists: gl.tensor, mask_args: Any, heads: int, queries: int, keys: int, mask_mod: gl.constexpr
) -> None:
    """For each head of each batch and each block of queries the blocks of keys that some of its queries see, in ascending order
    in `lists` [batch, heads, blocks of queries, blocks of keys]: twice the number of a block, plus 1 if there is a key that
    some query does not see. `counts` are their numbers. Where no key is seen, block 0 is listed."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [gl.num_warps(), 1], [1, 0])
    row = gl.program_id(0) * EDGE + gl.arange(0, EDGE, gl.SliceLayout(1, layout))
    column = gl.arange(0, EDGE, gl.SliceLayout(0, layout))
    query = gl.minimum(row, queries - 1)[:, None]
    batch, head = gl.program_id(1) // heads, gl.program_id(1) % heads
    width = gl.cdiv(keys, EDGE)
    at = gl.program_id(1) * gl.num_programs(0) + gl.program_id(0)
    listed = lists + gl.cast(at, gl.int64) * width
    ones, zeros = gl.full([EDGE, EDGE], 1, gl.int32, layout), gl.zeros([EDGE, EDGE], gl.int32, layout)
    count = 0
    for block in range(width):
        key = gl.minimum(block * EDGE + column, keys - 1)[None, :]
        seen = gl.where(mask_mod(batch, head, query, key, *mask_args), ones, zeros)
        some, every = gl.max(gl.max(seen, axis=1), axis=0), gl.min(gl.min(seen, axis=1), axis=0)
        if some == 1:
            gl.store(listed + count, 2 * block + 1 - every)
        count += some
    if count == 0:
        gl.store(listed, 1)
    gl.store(counts + at, gl.maximum(count, 1))
