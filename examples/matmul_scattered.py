"""Matmul with reduce-scatter between GPUs in one kernel: C = the sum over all ranks of A @ B, and rank r gets its rows of C.

Every rank has a part of K. It multiplies the tiles that other ranks own first, and stores each to its owner as soon as it is
done, with a signal; so while a tile travels, the next one is multiplied. The tiles of its own come last: what the others have
sent is then there, and is added. `serial` multiplies all tiles before it sends any, for comparison.

Each program notes when it begins, sends and has received what, by a counter that all ranks share: on one GPU or in the
simulator a common clock. The table counts how many tiles were multiplied between the first that was sent and the last.

    python examples/matmul_scattered.py [--plot FILE] [--sim]

`weft.kernels.distributed.matmul_reduce_scatter` does the same on tensor cores, with the products of `weft.kernels.matmul`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import workbench
from workbench import Place

import weft
from weft import language as gl

TILE, N, K = 16, 32, 64
TILES = 4
"""Tiles of rows that each rank owns."""
LAYOUT = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
MULTIPLIED = gl.constexpr(1)
SENT = gl.constexpr(2)
ADDED = gl.constexpr(3)
EVENTS = " ms+"
"""The letters of these events."""


@weft.jit
def note(clock: gl.symmetric, log, event: gl.constexpr):
    """Enter an event in the log of this rank, at the time of rank 0's counter."""
    now = gl.atomic_add(clock.peer(0), 1, sem="relaxed", scope="sys")
    gl.store(log + now, event)


@weft.jit
def product(a, b, row, K: gl.constexpr, N: gl.constexpr, TILE: gl.constexpr, layout: gl.constexpr):
    """A tile of rows of A @ B."""
    left: gl.constexpr = gl.DotOperandLayout(0, layout, 0)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, 0)
    i = row + gl.arange(0, TILE, gl.SliceLayout(1, left))[:, None]
    k = gl.arange(0, K, gl.SliceLayout(0, left))[None, :]
    below = gl.arange(0, K, gl.SliceLayout(1, right))[:, None]
    j = gl.arange(0, N, gl.SliceLayout(0, right))[None, :]
    return gl.dot_fma(gl.load(a + i * K + k), gl.load(b + below * N + j), gl.zeros([TILE, N], gl.float32, layout))


@weft.jit
def scattered(
    a, b, out, work: gl.symmetric, clock: gl.symmetric, log, TILES: gl.constexpr, TILE: gl.constexpr, N: gl.constexpr,
    K: gl.constexpr, layout: gl.constexpr, OVERLAP: gl.constexpr,
):  # fmt: skip
    """`work` has room for a tile of every rank and number."""
    i = gl.arange(0, TILE, gl.SliceLayout(1, layout))[:, None]
    at = i * N + gl.arange(0, N, gl.SliceLayout(0, layout))[None, :]
    # Another rank may still read what this one is about to overwrite, from the launch before.
    for rank in gl.static_range(work.world_size):
        gl.signal(work, rank, TILES)
    for rank in gl.static_range(work.world_size):
        gl.wait_signal(work, rank, TILES)
    parts = ()
    for hop in gl.static_range(1, work.world_size):
        owner = (work.rank + hop) % work.world_size
        for tile in gl.static_range(TILES):
            parts += (product(a, b, (owner * TILES + tile) * TILE, K, N, TILE, layout),)
            note(clock, log, MULTIPLIED)
            if OVERLAP:
                send(work, clock, log, parts[-1], owner, tile, at, TILES, TILE, N)
    if not OVERLAP:
        for hop in gl.static_range(1, work.world_size):
            for tile in gl.static_range(TILES):
                owner = (work.rank + hop) % work.world_size
                send(work, clock, log, parts[(hop - 1) * TILES + tile], owner, tile, at, TILES, TILE, N)
    for tile in gl.static_range(TILES):
        total = product(a, b, (work.rank * TILES + tile) * TILE, K, N, TILE, layout)
        note(clock, log, MULTIPLIED)
        for hop in gl.static_range(1, work.world_size):
            sender = (work.rank + hop) % work.world_size
            gl.wait_signal(work, sender, tile)
            total += gl.load(work.local + ((sender * TILES + tile) * TILE * N + at))
        gl.store(out + (tile * TILE * N + at), total)
        note(clock, log, ADDED)


@weft.jit
def send(
    work: gl.symmetric, clock: gl.symmetric, log, value, owner, tile: gl.constexpr, at, TILES: gl.constexpr,
    TILE: gl.constexpr, N: gl.constexpr,
):  # fmt: skip
    """Store a tile to its owner, and signal it."""
    gl.store(work.peer(owner) + ((work.rank * TILES + tile) * TILE * N + at), value)
    gl.signal(work, owner, tile)
    note(clock, log, SENT)


def run(ranks: int, overlap: bool, seed: int = 0) -> list[tuple[Any, str]]:
    """All ranks in the simulator; returns the compiled kernel and the timeline of each."""
    given = np.random.default_rng(0)
    a = given.standard_normal((ranks, ranks * TILES * TILE, K), dtype=np.float32)
    b = given.standard_normal((ranks, K, N), dtype=np.float32)
    wanted = np.einsum("rik,rkj->ij", a.astype(np.float64), b.astype(np.float64))

    def on(rank: int) -> tuple[Any, str]:
        out = np.full((TILES * TILE, N), np.nan, np.float32)
        work = weft.Symmetric(weft.distributed.empty(ranks * TILES * TILE * N, np.float32))
        clock = weft.Symmetric(weft.distributed.empty(1, np.int32))
        log = np.zeros(ranks * 3 * ranks * TILES, np.int32)
        compiled = scattered[1](a[rank], b[rank], out, work, clock, log, TILES, TILE, N, K, LAYOUT, overlap)
        rows = wanted[rank * TILES * TILE : (rank + 1) * TILES * TILE]
        np.testing.assert_allclose(out, rows, rtol=1e-3, atol=1e-3)
        return compiled, "".join(EVENTS[int(event)] for event in log).rstrip()

    return weft.distributed.simulate(on, ranks=ranks, seed=seed)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows: list[dict[str, Any]] = []
    for name, overlap in (("serial", False), ("overlapped", True)):
        for ranks in (2, 3):
            found = run(ranks, overlap)
            line = found[0][1].replace(" ", "")
            between = line[line.index("s") : line.rindex("s")].count("m")
            rows.append({"kernel": name, "ranks": ranks, "tiles multiplied while sending": between, "timeline": line})
    workbench.report("Matmul with reduce-scatter", rows, Place(gpu=False), given.plot, "tiles multiplied while sending")


if __name__ == "__main__":
    main()
