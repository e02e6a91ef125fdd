"""Matmul: the kernels of the ladder against the same source under Gluon and cuBLAS, and the library against cuBLAS.

    python benchmarks/run.py matmul                      # all parts
    python benchmarks/run.py matmul.ladder matmul.sweep  # some; each is recorded in a file of its own

Each is timed twice: with a flushed L2 cache, and (`graph`) as calls back to back in a CUDA graph.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks import harness, twin
from benchmarks.copies import compilers, line
from benchmarks.harness import Variant
from benchmarks.report import Goal, Line

NEEDS_GPU = True
UNIT = "TFLOP/s"
SIDE = 8192
"""M and N of the tables over K, and the sides of the fp8 matmul."""
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
LONGEST = 16384
TILE = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_buffers": 3, "num_warps": 8}
BUFFERS = ((128, 2), (64, 3), (64, 4))
"""BLOCK_K and num_buffers of the tables over both."""
GROUPS = (1, 2, 4, 6, 8)
SWEEP = (
    *((n, n, n) for n in (256, 512, 1024, 2048)),
    (1, 4096, 4096), (16, 4096, 4096), (64, 4096, 4096), (128, 1024, 8192), (8192, 64, 4096),
    (4096, 11008, 4096), (4096, 4096, 11008), (8192, 1280, 8192), (2048, 32000, 4096),
    (513, 1027, 2049), (2000, 1000, 2000), (4100, 2052, 516),
)  # fmt: skip
"""M, N, K: small, skinny, layers of language models, odd."""
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2, "float8_e4m3fn": 3e-2}
"""Tolerance of an element, relative to the largest of the result."""
CUBLAS = "cuBLAS"
Jobs = dict[str, Callable[[], Any]]
"""The functions that are timed, by `case|who`."""


def ladder(quick: bool) -> list[Line]:
    """Every version at every K: weft, Gluon and cuBLAS."""
    modules = compilers("matmul_ladder")
    lines: list[Line] = []
    for K in LENGTHS[::2] if quick else LENGTHS:
        A, B, C = matrices(SIDE, SIDE, K, "float16")
        jobs: Jobs = {f"|{CUBLAS}": partial(cublas, A, B, C)}
        for who, module in modules.items():
            jobs |= {
                f"{rung}|{who}": partial(function, A, B, C, **TILE, **rest) for rung, function, rest in rungs(module)
            }
        lines += table(f"K={K}", jobs, 2 * SIDE * SIDE * K, quick, outcome(A, B, C), (Goal(1.0, "gluon"),))
    return lines


def rungs(module: Any) -> list[tuple[str, Any, dict[str, Any]]]:
    """Name, entry point and arguments of each version of the ladder."""
    row_major = {"SchedulerImpl": module.PersistentTileScheduler}
    return [
        ("pipelined", module.matmul_pipelined, {}),
        ("persistent", module.persistent_matmul, row_major),
        ("persistent, pipelined", module.persistent_matmul_pipelined, row_major),
    ]


def settings(quick: bool) -> list[Line]:
    """The longest matmul by buffers, schedulers and stolen buffers."""
    A, B, C = matrices(SIDE, SIDE, LONGEST, "float16")
    jobs: Jobs = {f"|{CUBLAS}": partial(cublas, A, B, C)}
    for who, module in compilers("matmul_ladder").items():
        row_major, grouped = module.PersistentTileScheduler, module.GroupedPersistentTileScheduler
        for BLOCK_K, num_buffers in BUFFERS:
            tile = {**TILE, "BLOCK_K": BLOCK_K, "num_buffers": num_buffers}
            name = f"BLOCK_K={BLOCK_K}, {num_buffers} buffers|{who}"
            jobs["pipelined, " + name] = partial(module.matmul_pipelined, A, B, C, **tile)
            jobs["persistent, " + name] = partial(module.persistent_matmul, A, B, C, **tile, SchedulerImpl=row_major)
        for rows in GROUPS:
            run = partial(module.persistent_matmul, A, B, C, **TILE, SchedulerImpl=grouped(rows))
            jobs[f"persistent, groups of {rows}|{who}"] = run
        stolen = {**TILE, "num_buffers": 4}
        for name, scheduler in (("row-major", row_major), ("groups of 8", grouped(8))):
            run = partial(module.persistent_matmul_pipelined, A, B, C, **stolen, SchedulerImpl=scheduler)
            jobs[f"persistent, pipelined, stolen, {name}|{who}"] = run
    return table(f"K={LONGEST}", jobs, 2 * SIDE * SIDE * LONGEST, quick, outcome(A, B, C), (Goal(1.0, "gluon"),))


def library(dtype: str, quick: bool) -> list[Line]:
    """`weft.kernels.matmul` in every variant and in its own choice, at every K; the best of them against cuBLAS."""
    lines: list[Line] = []
    for K in LENGTHS[::2] if quick else LENGTHS:
        A, B, C = matrices(SIDE, SIDE, K, dtype)
        jobs: Jobs = {f"|{CUBLAS}": partial(cublas, A, B, C), **variants(A, B, C)}
        lines += table(f"K={K}", jobs, 2 * SIDE * SIDE * K, quick, outcome(A, B, C))
    return [*best_lines(lines, least=1.0, mean=1.03), *lines]


def variants(A: Any, B: Any, C: Any) -> Jobs:
    """The library's variants with tiles for large problems, its own choice, and the kernels of the example."""
    from weft.kernels import MatmulConfig, matmul

    configs = {
        name.replace("_", " "): MatmulConfig(variant=name)
        for name in ("pipelined", "persistent", "persistent_pipelined", "cooperative")
    }
    configs["ping pong"] = MatmulConfig(variant="ping_pong", block_m=128, block_n=128, stages=6)
    configs["ping pong, wide"] = replace(configs["ping pong"], block_m=64, block_n=256, stages=4)
    ours = {f"{name}|weft": partial(matmul, A, B, C, config=config) for name, config in configs.items()}
    example = twin.load("matmul_warp_specialized")
    return {
        "chosen|weft": partial(matmul, A, B, C),
        **ours,
        "example, cooperative|weft": partial(example.matmul_cooperative, A, B, C),
        "example, ping pong|weft": partial(example.matmul_ping_pong, A, B, C),
    }


def fp8(quick: bool) -> list[Line]:
    """8192 x 8192 x 8192 of e4m3 with a bfloat16 result, both operands contiguous along K, as weft and cuBLAS need them."""
    import torch

    from weft.kernels import matmul, matmul_configs

    A, B = (torch.randn((SIDE, SIDE), device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    B = B.T
    C = torch.empty((SIDE, SIDE), device="cuda", dtype=torch.bfloat16)
    one = torch.ones((), device="cuda")
    theirs = partial(torch._scaled_mm, A, B, scale_a=one, scale_b=one, out_dtype=C.dtype, use_fast_accum=True, out=C)  # noqa: SLF001 its name
    jobs: Jobs = {f"|{CUBLAS}": theirs, "chosen|weft": partial(matmul, A, B, C)}
    for config in list(matmul_configs(A, B, C))[: 4 if quick else 16]:
        jobs[f"{described(config)}|weft"] = partial(matmul, A, B, C, config=config)
    lines = table(f"fp8 {SIDE}^3", jobs, 2 * SIDE**3, quick, outcome(A, B, C))
    return [*best_lines(lines, least=0.95, mean=0.95), *lines]


def sweep(quick: bool) -> list[Line]:
    """Sixteen shapes with the choice of `weft.kernels.matmul`, against cuBLAS."""
    from weft.kernels import chosen_config, matmul

    lines: list[Line] = []
    for M, N, K in SWEEP[::3] if quick else SWEEP:
        A, B, C = matrices(M, N, K, "float16")
        jobs: Jobs = {f"|{CUBLAS}": partial(cublas, A, B, C), "chosen|weft": partial(matmul, A, B, C)}
        found = table(f"{M}x{N}x{K}", jobs, 2 * M * N * K, quick, outcome(A, B, C), (Goal(0.8, CUBLAS),))
        lines += [replace(line, note=described(chosen_config(A, B, C))) for line in found]
    return [*means(lines, 0.95), *lines]


# Jobs and lines


def matrices(M: int, N: int, K: int, dtype: str) -> tuple[Any, Any, Any]:
    """Random operands with contiguous rows, and an output."""
    import torch

    kind = getattr(torch, dtype)
    A, B = torch.randn((M, K), device="cuda").to(kind), torch.randn((K, N), device="cuda").to(kind)
    return A, B, torch.empty((M, N), device="cuda", dtype=kind)


def cublas(A: Any, B: Any, C: Any) -> Any:
    """PyTorch's matmul, which cuBLAS computes."""
    import torch

    return torch.matmul(A, B, out=C)


def outcome(A: Any, B: Any, C: Any) -> dict[str, Callable[[], Any]]:
    """Functions that poison an output and compare it with the float32 result."""
    want = A.float() @ B.float()
    allowed = TOLERANCE[twin.load("workbench").dtype_name(A)] * float(want.abs().max()) + 1e-2

    def correct() -> bool:
        # A NaN fails this comparison.
        return bool((C.float() - want).abs().max() <= allowed)

    return {"poison": lambda: C.fill_(float("nan")), "correct": correct}


def table(
    what: str,
    jobs: Jobs,
    operations: int,
    quick: bool,
    outcome: dict[str, Callable[[], Any]],
    goals: tuple[Goal, ...] = (),
) -> list[Line]:
    """Lines of TFLOP/s for each case, by both ways of timing. A job `|who` is a peer of every case."""
    variants = harness.sound(Variant(f"{what}, {name}", run, **outcome) for name, run in jobs.items())
    rounds = 8 if quick else 30
    lines: list[Line] = []
    for suffix, clock, count in (
        ("", harness.CudaClock(), rounds),
        (", graph", harness.GraphClock(), max(rounds // 2, 3)),
    ):
        times = harness.measure(variants, clock, count)
        speeds = {name: operations / milliseconds / 1e9 for name, milliseconds in times.items()}
        lines += _lines(what, suffix, list(jobs), speeds, goals)
    return lines


def _lines(
    what: str, suffix: str, jobs: Sequence[str], speeds: dict[str, float], goals: tuple[Goal, ...]
) -> list[Line]:
    common = {job[1:]: speeds[f"{what}, {job}"] for job in jobs if job.startswith("|") and f"{what}, {job}" in speeds}
    lines: list[Line] = []
    for case in dict.fromkeys(job.rpartition("|")[0] for job in jobs if not job.startswith("|")):
        whose = {job.rpartition("|")[2]: f"{what}, {job}" for job in jobs if job.rpartition("|")[0] == case}
        speed = {who: speeds[name] for who, name in whose.items() if name in speeds}
        lines.append(replace(line(f"{what}, {case}{suffix}", speed | common, goals), unit=UNIT))
    return lines


def best_lines(lines: Iterable[Line], least: float, mean: float) -> list[Line]:
    """The fastest of all cases with a common prefix, by each way of timing, and the mean of their ratios to cuBLAS."""
    groups: dict[tuple[str, bool], list[Line]] = {}
    for found in lines:
        groups.setdefault((found.what.partition(",")[0], found.what.endswith(", graph")), []).append(found)
    best: list[Line] = []
    for (what, graph), cases in groups.items():
        fastest = max(cases, key=lambda case: case.ours or 0.0)
        name = f"{what}, best{', graph' if graph else ''}"
        best.append(replace(fastest, what=name, goals=(Goal(least, CUBLAS),), note=fastest.what.partition(", ")[2]))
    return [*means(best, mean), *best]


def means(lines: Sequence[Line], least: float) -> list[Line]:
    """The geometric means of the ratios to cuBLAS, by each way of timing; empty if a figure is missing."""
    found: list[Line] = []
    for suffix, graph in (("", False), (", graph", True)):
        chosen = [line for line in lines if line.what.endswith(", graph") == graph]
        ratios = [line.ours / line.peers[CUBLAS] for line in chosen if line.ours and line.peers.get(CUBLAS)]
        mean = statistics.geometric_mean(ratios) if ratios and len(ratios) == len(chosen) else None
        note = f"of {len(ratios)} ratios, least {min(ratios):.3f}" if ratios else ""
        found.append(Line(f"geometric mean of ratios to cuBLAS{suffix}", mean, "", {}, (Goal(least),), note))
    return found


def described(config: Any) -> str:
    """A short text for a configuration of the library."""
    tile = f"{config.variant} {config.block_m}x{config.block_n}x{config.block_k}x{config.stages}"
    extras = [
        f"{config.order} {config.group}",
        f"{config.splits} splits",
        "swapped",
        f"clusters of {config.cluster}",
        "packed",
    ]
    extras.append(f"shared by {config.shares}")
    used = (config.group > 0, config.splits > 1, config.swap, config.cluster > 1, config.pack, config.shares > 1)
    return ", ".join([tile, *(extra for extra, wanted in zip(extras, used, strict=True) if wanted)])


PARTS: dict[str, tuple[str, Callable[[bool], list[Line]]]] = {
    "ladder": (f"Matmul {SIDE} x {SIDE} x K, fp16, version by version", ladder),
    "settings": (f"Matmul {SIDE} x {SIDE} x {LONGEST}, fp16, by buffers and schedulers", settings),
    "fp16": (f"Matmul {SIDE} x {SIDE} x K, fp16, kernels of the library", partial(library, "float16")),
    "bf16": (f"Matmul {SIDE} x {SIDE} x K, bf16, kernels of the library", partial(library, "bfloat16")),
    "fp8": (f"Matmul {SIDE} x {SIDE} x {SIDE}, fp8", fp8),
    "sweep": ("Matmul of sixteen shapes, fp16", sweep),
}
"""Title and function of each part."""
