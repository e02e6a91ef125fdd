"""All-reduce, residual and RMSNorm between GPUs in one kernel and in two, as between the products of a model that several GPUs
share. Every rank ends with h = the sum of x over all ranks + residual, and out = h / sqrt(mean(h * h) + eps) * weight.

- `fused`: each program reads a row of every rank, adds the residual, and normalises the row in registers. The sum itself is
  never stored.
- `all_reduce` and `norm`: the sum goes to memory and comes back, in a second launch.

Both read the rows of all ranks, as small batches do; large ones share the sums between the ranks first
(`weft.kernels.distributed.all_reduce_rms_norm` does either).

    python examples/all_reduce_norm.py [--plot FILE] [--sim]

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

ROWS, D, BLOCK, EPS = 6, 200, 256, 1e-6
LINE = gl.BlockedLayout([2], [32], [4], [0])
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
def normalise(total, residual, weight, out, row, column, d, eps):
    inside = column < d
    h = total + gl.load(residual + row * d + column, inside, 0.0)
    gl.store(residual + row * d + column, h, inside)
    scale = gl.rsqrt(gl.sum(h * h) / d + eps)
    gl.store(out + row * d + column, h * scale * gl.load(weight + column, inside, 0.0), inside)


@weft.jit
def fused(
    x: gl.symmetric, residual, weight, out, d, eps, BLOCK: gl.constexpr, layout: gl.constexpr, ranks: gl.constexpr
):
    row, column = gl.program_id(0), gl.arange(0, BLOCK, layout)
    # The other ranks have written their rows.
    meet(x, row, ranks)
    total = sum_of_ranks(x, row * d + column, column < d)
    normalise(total, residual, weight, out, row, column, d, eps)
    # The other ranks have read this rank's row, which the next launch may overwrite.
    meet(x, row, ranks)


@weft.jit
def all_reduce(x: gl.symmetric, d, BLOCK: gl.constexpr, layout: gl.constexpr, ranks: gl.constexpr):
    row, column = gl.program_id(0), gl.arange(0, BLOCK, layout)
    meet(x, row, ranks)
    total = sum_of_ranks(x, row * d + column, column < d)
    meet(x, row, ranks)
    gl.store(x.local + row * d + column, total, column < d)


@weft.jit
def norm(x, residual, weight, out, d, eps, BLOCK: gl.constexpr, layout: gl.constexpr):
    row, column = gl.program_id(0), gl.arange(0, BLOCK, layout)
    normalise(gl.load(x + row * d + column, column < d, 0.0), residual, weight, out, row, column, d, eps)


def run(name: str, x: weft.Symmetric, residual: Any, weight: Any, out: Any) -> list[Any]:
    """Normalise the sum of `x` over all ranks and the residual; returns the compiled kernels."""
    if name == "fused":
        return [fused[ROWS](x, residual, weight, out, D, EPS, BLOCK, LINE, RANKS)]
    reduced = all_reduce[ROWS](x, D, BLOCK, LINE, RANKS)
    return [reduced, norm[ROWS](x.tensor, residual, weight, out, D, EPS, BLOCK, LINE)]


def row(name: str, ranks: int) -> dict[str, Any]:
    """One line of the table: all ranks in the simulator, twice in a row."""
    rng = np.random.default_rng(0)
    given = rng.standard_normal((2, ranks, ROWS, D), dtype=np.float32)
    weight = rng.standard_normal(D, dtype=np.float32)

    def on(rank: int) -> tuple[list[Any], list[tuple[np.ndarray, np.ndarray]]]:
        x, residual = weft.distributed.empty((ROWS, D), np.float32), np.ones((ROWS, D), np.float32)
        shared, results, kernels = weft.Symmetric(x), list[tuple[np.ndarray, np.ndarray]](), list[Any]()
        for launch in range(2):
            x[:] = given[launch, rank]
            out = np.full((ROWS, D), np.nan, np.float32)
            kernels = run(name, shared, residual, weight, out)
            results.append((residual.copy(), out))
        return kernels, results

    found = weft.distributed.simulate(on, ranks=ranks)
    h = np.ones((ROWS, D))
    for launch in range(2):
        h = h + given[launch].astype(np.float64).sum(0)
        wanted = h / np.sqrt((h * h).mean(-1, keepdims=True) + EPS) * weight
        for _, results in found:
            np.testing.assert_allclose(results[launch][0], h, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(results[launch][1], wanted, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(results[launch][1], found[0][1][launch][1])
    kernels = found[0][0]
    own = ROWS * D * 4 * (4 if name == "fused" else 6)
    return {
        "kernel": name,
        "ranks": ranks,
        "launches": len(kernels),
        "KB of a rank's own memory": round(own / 1000),
        "registers": max(kernel.n_regs for kernel in kernels),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(name, ranks) for name in ("fused", "apart") for ranks in (2, 4)]
    title = f"All-reduce, residual and RMSNorm of {ROWS} rows of {D} float32"
    workbench.report(title, rows, Place(gpu=False), given.plot, "KB of a rank's own memory")


if __name__ == "__main__":
    main()
