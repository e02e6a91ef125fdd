"""Kernels that the operators of these tests launch."""

from __future__ import annotations

import weft
from weft import language as gl

BLOCK = 128
LINE = gl.BlockedLayout([1], [32], [4], [0])


@weft.jit
def scale_kernel(x, y, n, factor):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, LINE)
    gl.store(y + at, gl.load(x + at, mask=at < n) * factor, mask=at < n)


@weft.jit
def accumulate_kernel(x, total, n):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, LINE)
    inside = at < n
    gl.store(total + at, gl.load(total + at, mask=inside) + gl.load(x + at, mask=inside), mask=inside)


def launch_scale(x, y, factor):
    """A host function's launch: y = x * factor."""
    scale_kernel[(weft.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), factor)
