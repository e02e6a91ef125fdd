"""A mixture of experts over several GPUs: tokens go to the ranks of their experts (dispatch), and the results come back and are
added up with weights (combine). Each is one kernel.

Where a token goes needs no agreement between ranks: an expert has room for CAPACITY tokens of every rank, and a rank fills its
part in the order of its tokens. So a program counts how many of its earlier tokens have chosen the same expert (a running sum
over a table of tokens by experts), stores the rows to the peers, and signals. Tokens beyond the room go nowhere.

    python examples/experts.py [--plot FILE] [--sim]

It runs on simulated ranks, also where there is a GPU. `weft.kernels.distributed.dispatch` packs the rows that an expert gets
from all ranks one after another, for which the ranks exchange their counts first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import workbench
from workbench import Place

import weft
from weft import language as gl

TOKENS, WIDTH, CHOICES, EXPERTS, CAPACITY = 32, 64, 2, 8, 10
TILE = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
RANKS = gl.BlockedLayout([1], [32], [4], [0])


@weft.jit
def meet(x: gl.symmetric, flag: gl.constexpr, ranks: gl.constexpr):
    every = gl.arange(0, x.world_size, ranks)
    gl.signal(x, every, flag)
    gl.wait_signal(x, every, flag)


@weft.jit
def dispatch(
    x, ids, rows: gl.symmetric, counts: gl.symmetric, places, SLOTS: gl.constexpr, K: gl.constexpr, WIDTH: gl.constexpr,
    EXPERTS: gl.constexpr, CAPACITY: gl.constexpr, layout: gl.constexpr, ranks: gl.constexpr,
):  # fmt: skip
    each: gl.constexpr = EXPERTS // rows.world_size
    slot = gl.arange(0, SLOTS, gl.SliceLayout(1, layout))
    number = gl.arange(0, EXPERTS, gl.SliceLayout(0, layout))
    expert = gl.load(ids + slot)
    chosen = (expert[:, None] == number[None, :]).to(gl.int32)
    # How many earlier tokens have chosen the same expert.
    position = gl.sum((gl.cumsum(chosen, 0) - chosen) * chosen, 1)
    place = (expert % each * rows.world_size + rows.rank) * CAPACITY + position
    there = position < CAPACITY
    gl.store(places + slot, gl.where(there, place, -1))
    # The other ranks are done with the rows of the launch before.
    meet(rows, 0, ranks)
    gl.store(
        counts.peer(number // each) + (counts.rank * each + number % each), gl.minimum(gl.sum(chosen, 0), CAPACITY)
    )
    column = gl.arange(0, WIDTH, gl.SliceLayout(0, layout))[None, :]
    value = gl.load(x + (slot // K)[:, None] * WIDTH + column)
    gl.store(rows.peer(expert // each)[:, None] + place[:, None] * WIDTH + column, value, there[:, None])
    # All rows have come.
    meet(rows, 1, ranks)


@weft.jit
def apply(rows, counts, first, CAPACITY: gl.constexpr, EACH: gl.constexpr, WIDTH: gl.constexpr, layout: gl.constexpr):
    """In place of an expert's layers: expert e multiplies the rows of a rank by e + 1."""
    expert, source = gl.program_id(0), gl.program_id(1)
    line = gl.arange(0, 16, gl.SliceLayout(1, layout))[:, None]
    column = gl.arange(0, WIDTH, gl.SliceLayout(0, layout))[None, :]
    at = ((expert * gl.num_programs(1) + source) * CAPACITY + line) * WIDTH + column
    inside = (line < gl.load(counts + source * EACH + expert)) & (column < WIDTH)
    gl.store(rows + at, gl.load(rows + at, inside, 0.0) * (first + expert + 1), inside)


@weft.jit
def combine(
    rows: gl.symmetric, ids, places, weights, out, TOKENS: gl.constexpr, K: gl.constexpr, WIDTH: gl.constexpr,
    EACH: gl.constexpr, layout: gl.constexpr, ranks: gl.constexpr,
):  # fmt: skip
    token = gl.arange(0, TOKENS, gl.SliceLayout(1, layout))
    column = gl.arange(0, WIDTH, gl.SliceLayout(0, layout))[None, :]
    total = gl.zeros([TOKENS, WIDTH], gl.float32, layout)
    # The experts of the other ranks are done.
    meet(rows, 0, ranks)
    for choice in gl.static_range(K):
        slot = token * K + choice
        place = gl.load(places + slot)
        source = rows.peer(gl.load(ids + slot) // EACH)[:, None] + place[:, None] * WIDTH
        total += gl.load(source + column, (place >= 0)[:, None], 0.0) * gl.load(weights + slot)[:, None]
    gl.store(out + token[:, None] * WIDTH + column, total)
    # The other ranks have read: the next launch may overwrite the rows.
    meet(rows, 1, ranks)


def row(ranks: int) -> dict[str, Any]:
    """One line of the table: all ranks in the simulator, twice in a row."""
    each, shape = EXPERTS // ranks, (2, ranks, TOKENS, CHOICES)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, ranks, TOKENS, WIDTH), dtype=np.float32)
    ids = np.argsort(rng.random((*shape[:-1], EXPERTS)), -1)[..., :CHOICES].astype(np.int32)
    weights = rng.random(shape, dtype=np.float32)

    def on(rank: int) -> tuple[list[Any], list[tuple[np.ndarray, np.ndarray]]]:
        rows = weft.distributed.empty((each * ranks * CAPACITY, WIDTH), np.float32)
        counts = weft.distributed.empty((ranks, each), np.int32)
        shared, table, results, kernels = weft.Symmetric(rows), weft.Symmetric(counts), [], list[Any]()
        for launch in range(2):
            places, out = np.full((TOKENS, CHOICES), -7, np.int32), np.full((TOKENS, WIDTH), np.nan, np.float32)
            own = x[launch, rank], ids[launch, rank], weights[launch, rank]
            sizes = TOKENS * CHOICES, CHOICES, WIDTH, EXPERTS, CAPACITY
            kernels = [dispatch[1](*own[:2], shared, table, places, *sizes, TILE, RANKS)]
            apply[each, ranks](rows, counts, rank * each, CAPACITY, each, WIDTH, TILE)
            kernels.append(combine[1](shared, own[1], places, own[2], out, TOKENS, CHOICES, WIDTH, each, TILE, RANKS))
            results.append((places, out))
        return kernels, results

    found = weft.distributed.simulate(on, ranks=ranks)
    for launch, rank in np.ndindex(2, ranks):
        places, out = found[rank][1][launch]
        factors = (weights[launch, rank] * (ids[launch, rank] + 1) * (places >= 0)).sum(-1, keepdims=True)
        np.testing.assert_allclose(out, x[launch, rank] * factors, rtol=1e-5, atol=1e-5)
    sent = int((ids[0, 0] // each != 0).sum())
    return {
        "ranks": ranks,
        "rows to other ranks": sent,
        "KB through a rank's link": round(2 * sent * WIDTH * 4 / 1000),
        "dropped": int((found[0][1][0][0] < 0).sum()),
        "registers": max(kernel.n_regs for kernel in found[0][0]),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    title = f"{TOKENS} tokens of each rank to {CHOICES} of {EXPERTS} experts and back"
    workbench.report(title, [row(ranks) for ranks in (2, 4)], Place(gpu=False), given.plot, "KB through a rank's link")


if __name__ == "__main__":
    main()
