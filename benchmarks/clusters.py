"""Clusters: softmax of long rows through distributed shared memory against a copy of the same bytes, and barriers."""

from __future__ import annotations

from functools import partial
from typing import Any

import weft
from benchmarks import harness
from benchmarks.copies import UNIT
from benchmarks.report import Goal, Line
from weft import language as gl
from weft.kernels import SoftmaxConfig, chosen_softmax, softmax
from weft.language.nvidia.hopper import cluster

NEEDS_GPU = True
BYTES = 1 << 31
"""Bytes of an input: the rows of a program are so many that the last round of programs does not count."""
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2}
SIZES: tuple[tuple[str, int, tuple[tuple[int, int], ...]], ...] = (
    ("float32", 131072, ((4, 16), (8, 16), (16, 4))),
    ("bfloat16", 131072, ((4, 16), (8, 8), (8, 16), (16, 4))),
    ("bfloat16", 65536, ((2, 16), (4, 8), (4, 16), (8, 8))),
    ("bfloat16", 32768, ((1, 16), (1, 32), (2, 16))),
    ("bfloat16", 16384, ((1, 8), (1, 16))),
)
"""Element type and columns, and configurations besides the chosen one: blocks, and warps of a block."""
ROUNDS = 4000
"""Barriers between two times."""


def rows(quick: bool) -> list[Line]:
    """Softmax of rows of each size, in the chosen configuration and in others."""
    return [line for size in SIZES for line in _rows(harness.CudaClock(), 5 if quick else 20, *size)]


def _rows(clock: harness.Clock, rounds: int, dtype: str, cols: int, others: tuple[tuple[int, int], ...]) -> list[Line]:
    import torch

    kind = getattr(torch, dtype)
    src = torch.randn((BYTES // (cols * kind.itemsize), cols), device="cuda").to(kind)
    dst, copied = torch.empty_like(src), torch.empty_like(src)
    want = torch.softmax(src.double(), dim=1)
    usual, runs = chosen_softmax(cols, dtype), dict[str, Any]()
    for config in dict.fromkeys((usual, *(SoftmaxConfig(*other) for other in others))):
        name = f"{config.num_ctas} blocks of {config.num_warps} warps" + (", chosen" if config == usual else "")
        runs[name] = partial(softmax, src, dst, config=config)

    def close() -> bool:
        return harness.relative_error(dst, want) <= TOLERANCE[dtype]

    def variant(name: str, run: Any, correct: Any = close) -> harness.Variant:
        return harness.Variant(name, run, lambda: dst.fill_(float("nan")), correct)

    variants = [variant(name, run) for name, run in runs.items()]
    variants.append(variant("torch", lambda: torch.softmax(src, dim=1, out=dst)))
    variants.append(variant("copy", lambda: copied.copy_(src), lambda: bool((copied == src).all())))
    times = harness.measure(variants, clock, rounds)
    speed = {name: harness.terabytes_per_second(2 * src.nbytes, time) for name, time in times.items()}
    peers = {name: speed[name] for name in ("torch", "copy") if name in speed}
    size = f"softmax of {src.shape[0]} x {cols} {dtype}"
    goals = {name: (Goal(0.9, "copy"),) if dtype == "float32" or "chosen" in name else () for name in runs}
    return [Line(f"{size}, {name}", speed.get(name), UNIT, peers, goals[name]) for name in runs]


@weft.jit
def spin(out: gl.tensor, n: gl.tensor, kind: gl.constexpr):
    """A chain of `n` barriers."""
    for _ in range(n):
        if kind == "block":
            gl.barrier()
        elif kind == "cluster":
            cluster.barrier()
        else:
            cluster.barrier(relaxed=True)
    gl.store(out, n)


def barriers(quick: bool) -> list[Line]:
    """Nanoseconds of a barrier of a cluster, which is the price in `weft.layout.cost`, relaxed, and of one block."""
    import torch

    clock, out = harness.CudaClock(), torch.zeros(1, dtype=torch.int32, device="cuda")
    found: list[Line] = []
    for blocks, warps in ((2, 4), (8, 4), (16, 4), (2, 16), (8, 16), (16, 16)):
        times = {
            kind: _each(clock, 3 if quick else 10, out, kind, blocks, warps) for kind in ("cluster", "relaxed", "block")
        }
        peers = {kind: times[kind] for kind in ("relaxed", "block")}
        found.append(Line(f"barrier of {blocks} blocks of {warps} warps", times["cluster"], "ns", peers))
    return found


def _each(clock: harness.Clock, rounds: int, out: Any, kind: str, blocks: int, warps: int) -> float:
    """Nanoseconds of one barrier: of many more, less the time of a launch."""
    runs = {
        n: partial(spin[(1,)], out, n, kind, num_ctas=blocks, num_warps=warps) for n in (ROUNDS, 3 * ROUNDS)
    }  # fmt: skip
    best = {n: min(clock.milliseconds(run) for _ in range(rounds)) for n, run in runs.items()}
    return (best[3 * ROUNDS] - best[ROUNDS]) / (2 * ROUNDS) * 1e6


PARTS = {
    "softmax": ("Softmax of rows by clusters", rows),
    "barriers": ("Barriers of clusters", barriers),
}
