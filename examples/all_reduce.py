"""All-reduce between GPUs in two kernels: every rank ends with the sum of a tensor over all ranks, the same bits everywhere.

- `one_shot`: each rank reads the tensor of every rank and adds. Two meetings of the ranks and no more, but every rank reads
  world_size times the bytes: for small tensors.
- `two_shot`: each rank adds up its share of the elements and stores it on all ranks. Each byte travels twice, whatever the
  number of ranks: for large tensors.

Programs with the same number on all ranks meet on a flag of that number. Before they meet the first time, a rank may still
write its tensor; before the second time, another rank may still read or write it.

    python examples/all_reduce.py [--plot FILE] [--sim]

It runs on simulated ranks, also where there is a GPU. With several GPUs, call `run` in each process of `torchrun`, with a
`weft.Symmetric` of a tensor of `torch.distributed._symmetric_memory.empty`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import workbench
from workbench import Place

import weft
from weft import language as gl

BLOCK = 1024
LINE = gl.BlockedLayout([4], [32], [4], [0])
RANKS = gl.BlockedLayout([1], [32], [4], [0])


@weft.jit
def meet(x: gl.symmetric, flag, ranks: gl.constexpr):
    every = gl.arange(0, x.world_size, ranks)
    gl.signal(x, every, flag)
    gl.wait_signal(x, every, flag)


@weft.jit
def sum_of_ranks(x: gl.symmetric, at, inside):
    # All loads come first, so that they are on their way together.
    parts = (gl.load(x.peer(0) + at, inside, 0.0),)
    for rank in gl.static_range(1, x.world_size):
        parts += (gl.load(x.peer(rank) + at, inside, 0.0),)
    total = parts[0]
    for rank in gl.static_range(1, x.world_size):
        total += parts[rank]
    return total


@weft.jit
def one_shot(x: gl.symmetric, n, BLOCK: gl.constexpr, layout: gl.constexpr, ranks: gl.constexpr):
    flag = gl.program_id(0)
    at = flag * BLOCK + gl.arange(0, BLOCK, layout)
    meet(x, flag, ranks)
    total = sum_of_ranks(x, at, at < n)
    meet(x, flag, ranks)
    gl.store(x.local + at, total, at < n)


@weft.jit
def two_shot(x: gl.symmetric, n, BLOCK: gl.constexpr, layout: gl.constexpr, ranks: gl.constexpr):
    flag = gl.program_id(0)
    share = gl.cdiv(gl.cdiv(n, x.world_size), 16) * 16
    meet(x, flag, ranks)
    own = flag * BLOCK + gl.arange(0, BLOCK, layout)
    at = x.rank * share + own
    inside = (own < share) & (at < n)
    total = sum_of_ranks(x, at, inside)
    for rank in gl.static_range(x.world_size):
        gl.store(x.peer(rank) + at, total, inside)
    meet(x, flag, ranks)


def run(kernel: Any, shared: weft.Symmetric, n: int) -> Any:
    """Add up a symmetric tensor of `n` elements in place; returns the compiled kernel."""
    return kernel[weft.cdiv(n, BLOCK)](shared, n, BLOCK, LINE, RANKS)


def row(name: str, ranks: int, n: int = 5000) -> dict[str, Any]:
    """One line of the table: all ranks in the simulator, twice in a row."""
    kernel = {"one-shot": one_shot, "two-shot": two_shot}[name]
    given = np.random.default_rng(0).standard_normal((2, ranks, n), dtype=np.float32)

    def on(rank: int) -> tuple[Any, list[np.ndarray]]:
        x = weft.distributed.empty(n, np.float32)
        shared, results, compiled = weft.Symmetric(x), list[np.ndarray](), None
        for launch in range(2):
            x[:] = given[launch, rank]
            compiled = run(kernel, shared, n)
            results.append(x.copy())
        return compiled, results

    found = weft.distributed.simulate(on, ranks=ranks)
    for launch in range(2):
        total = given[launch, 0]
        for rank in range(1, ranks):
            total = total + given[launch, rank]
        for _, results in found:
            np.testing.assert_array_equal(results[launch], total)
    sent = n * 4 * (ranks - 1) * (2 / ranks if name == "two-shot" else 1)
    return {
        "kernel": name,
        "ranks": ranks,
        "meetings": 2,
        "KB through a rank's link": round(sent / 1000),
        "registers": found[0][0].n_regs,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(name, ranks) for name in ("one-shot", "two-shot") for ranks in (2, 4)]
    workbench.report("All-reduce of 5,000 float32", rows, Place(gpu=False), given.plot, "KB through a rank's link")


if __name__ == "__main__":
    main()
