"""Reductions and scans by functions that do not commute, in random layouts: elements meet in increasing order."""

from __future__ import annotations

import random
from collections.abc import Callable
from io import StringIO
from typing import Any

import numpy as np
import pytest

import weft
from weft import compiler, sim
from weft import language as gl
from weft.errors import LayoutError
from weft.runtime.arguments import host_buffer

TRIED = 150


@weft.jit
def matrices(a, b, c, d, e, f, g, h):
    """The product of two 2x2 matrices modulo 2**32."""
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


@weft.jit
def maps(a, b, c, d):
    """`x -> a * x + b`, then `x -> c * x + d`."""
    return a * c, b * c + d


@weft.jit
def left(a, b):
    return a


@weft.jit
def right(a, b):
    return b


@weft.jit
def text(a, n, b, m):
    """Strings in a base, modulo 2**32: their digits, and the base to the power of their length."""
    return a * m + b, n * m


@weft.jit
def extremes(a, n, b, m):
    return gl.minimum(a, b), gl.maximum(n, m)


FUNCTIONS: dict[str, tuple[Any, int]] = {
    "matrices": (matrices, 4), "maps": (maps, 2), "left": (left, 1), "right": (right, 1), "text": (text, 2),
    "extremes": (extremes, 2),
}  # fmt: skip


@weft.jit
def program(
    out, x, combine: gl.constexpr, operands: gl.constexpr, axis: gl.constexpr, M: gl.constexpr, N: gl.constexpr,
    scan: gl.constexpr, reverse: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    row = gl.arange(0, M, gl.SliceLayout(1, layout))
    col = gl.arange(0, N, gl.SliceLayout(0, layout))
    at = row[:, None] * N + col[None, :]
    tiles = ()
    for k in gl.static_range(operands):
        tiles = (*tiles, gl.load(x + k * M * N + at))
    if scan:
        found = gl.associative_scan(tiles, axis, combine, reverse=reverse)
        for k in gl.static_range(operands):
            gl.store(out + k * M * N + at, found[k])
    else:
        found = gl.reduce(tiles, axis, combine)
        place = row if axis == 1 else col
        for k in gl.static_range(operands):
            gl.store(out + k * M * N + place, found[k])


def layout_of(pick: random.Random, shape: tuple[int, int], warps: int) -> gl.BlockedLayout | gl.DistributedLinearLayout:
    """A blocked layout that may repeat along either axis, or the bits of hardware dealt out at random."""
    if pick.random() < 0.6:
        own = [pick.choice([1, 2, 4]), pick.choice([1, 2, 4])]
        rows = pick.choice([1, 2, 4, 8, 16, 32])
        above = pick.choice([w for w in (1, 2, 4, 8) if w <= warps])
        return gl.BlockedLayout(own, [rows, 32 // rows], [above, warps // above], pick.choice([[0, 1], [1, 0]]))
    bits = [(1 << k, 0) for k in range(shape[0].bit_length() - 1)] + [
        (0, 1 << k) for k in range(shape[1].bit_length() - 1)
    ]
    pick.shuffle(bits)
    threads = 5 + warps.bit_length() - 1
    bits = [[0, 0]] * max(threads - len(bits), 0) + [list(bit) for bit in bits]
    pick.shuffle(bits)
    return gl.DistributedLinearLayout(bits[threads:], bits[:5], bits[5:threads], [], list(shape))


def reference(name: str, x: np.ndarray, axis: int, scan: bool, reverse: bool) -> np.ndarray:
    function, _ = FUNCTIONS[name]
    combine = {
        "extremes": lambda a, n, b, m: (np.minimum(a, b), np.maximum(n, m)),
    }.get(name, function.fn)
    lines = np.moveaxis(x, axis + 1, 0)
    lines = lines[::-1] if reverse else lines
    totals = [lines[0]]
    for line in lines[1:]:
        result = combine(*totals[-1], *line)
        totals.append(np.stack(result if isinstance(result, tuple) else (result,)))
    if not scan:
        return totals[-1]
    return np.moveaxis(np.stack(totals[::-1] if reverse else totals), 0, axis + 1)


def wrong(seed: int) -> str:
    """What differs, "refused" for a layout without an order, "" where all is right."""
    pick = random.Random(seed)
    name = pick.choice(list(FUNCTIONS))
    operands = FUNCTIONS[name][1]
    shape = pick.choice([(4, 64), (16, 16), (64, 8), (2, 128), (32, 32), (1, 64)])
    warps = pick.choice([1, 2, 4, 8])
    axis, scan, reverse = pick.randrange(2), pick.random() < 0.4, pick.random() < 0.5
    layout = layout_of(pick, shape, warps)
    x = np.random.default_rng(seed).integers(0, 1 << 32, (operands, *shape), np.uint32)
    full = reference(name, x, axis, scan, scan and reverse)
    want = np.zeros((operands, shape[0] * shape[1]), np.uint32)
    want[:, : full.reshape(operands, -1).shape[1]] = full.reshape(operands, -1)
    out, again = np.zeros_like(want).ravel(), np.zeros_like(want).ravel()
    constants = (FUNCTIONS[name][0], operands, axis, *shape, scan, reverse, layout)
    try:
        compiled = program[1](out, x.ravel(), *constants, num_warps=warps)
    except LayoutError as error:
        if error.code in ("layout-scan", "layout-reduce-order"):
            return "refused"
        raise
    stages = compiled.front
    values = compiler.given(stages.lowered, {"out": host_buffer(again), "x": host_buffer(x.ravel())})
    sim.run(stages.lowered, (1, 1, 1), values, target=stages.target, stdout=StringIO(), progress=False)
    for stage, got in (("tile", out), ("lowered", again)):
        if not np.array_equal(got, want.ravel()):
            return f"{stage}: {name} of {shape} along {axis}, scan={scan}, reverse={reverse}, {warps} warps, {layout}"
    return ""


@pytest.mark.stress
def test_reductions_and_scans(scale: int, stress_report: Callable[..., None]) -> None:
    with np.errstate(over="ignore"):
        found = {seed: wrong(seed) for seed in range(TRIED * scale)}
    bad = {seed: text for seed, text in found.items() if text not in ("", "refused")}
    stress_report("reductions and scans in order", tried=len(found), wrong=len(bad))
    assert not bad, bad
