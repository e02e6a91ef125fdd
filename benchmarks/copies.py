"""Copies: in one dimension by layout and block size, in two by strides, and between row-major and column-major."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from benchmarks import harness, twin
from benchmarks.harness import Jobs
from benchmarks.report import Goal, Line

TITLE = "Copies"
NEEDS_GPU = True
UNIT = "TB/s"
LAYOUTS = (1, 2, 4, 8, 16)
BLOCKS = (1024, 2048, 4096, 8192, 16384)
XBLOCK = 2048
NUMEL = 2 << 30
WIDTHS = {1: 32, 2: 64, 4: 128, 8: 128, 16: 128}
SIDE = 32 * 1024
BEST = (Goal(1.03, "gluon"), Goal(0.95, "torch"))


def run(quick: bool) -> list[Line]:
    """Every copy; `quick` takes fewer rounds and omits the table of block sizes."""
    clock = harness.CudaClock()
    rounds = 8 if quick else 30
    lines = [*one_dimension(clock, rounds, () if quick else BLOCKS), *machine_code()]
    for part in (two_dimensions, opposite):
        lines += part(clock, rounds)
    return lines


def compilers(name: str) -> dict[str, ModuleType]:
    """The example's module, and its twin under Gluon if Triton is installed."""
    return {"weft": twin.load(name), **({"gluon": twin.load_gluon(name)} if twin.has_gluon() else {})}


def one_dimension(clock: harness.Clock, rounds: int, blocks: tuple[int, ...]) -> list[Line]:
    """8 GiB of float32 for each R, and the best of a table over block sizes."""
    import torch

    src = torch.randn(NUMEL, device="cuda")
    dst = torch.empty_like(src)
    modules = compilers("copy_1d")

    def jobs(points: list[tuple[int, int]]) -> Jobs:
        return {
            f"XBLOCK={block} R={R}": {
                who: partial(module.run, src, dst, NUMEL, block, R) for who, module in modules.items()
            }
            for block, R in points
        }

    def race(points: list[tuple[int, int]], rounds: int) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
        all_jobs: Jobs = {"torch": {"torch": lambda: dst.copy_(src)}} | jobs(points)
        found = harness.race(all_jobs, clock, rounds, nbytes=2 * NUMEL * 4, **outcome(dst, src))
        return found, found.pop("torch")

    found, torch_speed = race([(XBLOCK, R) for R in LAYOUTS], rounds)
    lines = [line(f"1D 8 GiB, {case}", speed, (Goal(1.0, "gluon"),)) for case, speed in found.items()]
    if not blocks:
        return [best("1D 8 GiB, best of all", found, torch_speed, BEST), *lines]
    found, torch_speed = race(list(itertools.product(blocks, LAYOUTS)), max(rounds // 3, 3))
    return [
        best("1D 8 GiB, best of all", found, torch_speed, BEST),
        *lines,
        *(line(f"1D 8 GiB, table, {case}", speed) for case, speed in found.items()),
    ]


def line(what: str, speed: dict[str, float], goals: tuple[Goal, ...] = (), note: str = "") -> Line:
    """A line with the speed of each compiler; weft's is empty if its result was wrong."""
    peers = {who: value for who, value in speed.items() if who != "weft"}
    return Line(what, speed.get("weft"), UNIT, peers, goals, note)


def best(what: str, table: dict[str, dict[str, float]], torch_speed: dict[str, float], goals: tuple[Goal, ...]) -> Line:
    """Each compiler's best point of a table, and torch."""
    speeds, notes = dict(torch_speed), list[str]()
    for who in dict.fromkeys(who for speed in table.values() for who in speed):
        case = max((case for case in table if who in table[case]), key=lambda case: table[case][who])
        speeds[who] = table[case][who]
        notes.append(f"{who} at {case}")
    return line(what, speeds, goals, "; ".join(notes))


def machine_code() -> list[Line]:
    """The widest global access in the code for each R."""
    import torch

    workbench = twin.load("workbench")
    module = twin.load("copy_1d")
    src = torch.randn(XBLOCK, device="cuda")
    lines: list[Line] = []
    for R in LAYOUTS:
        accesses = workbench.accesses(module.run(src, torch.empty_like(src), XBLOCK, XBLOCK, R))
        width = max((int(bits) for bits in re.findall(r"[A-Z]\.(\d+)", accesses)), default=None)
        lines.append(Line(f"R={R}, widest access", width, "bits", {}, (Goal(WIDTHS[R]),), accesses))
    return lines


def two_dimensions(clock: harness.Clock, rounds: int) -> list[Line]:
    """8 GiB row-major and transposed, each with the layout that suits it, and every other row of 8 GiB."""
    import torch

    modules = compilers("copy_2d")
    base = torch.randn((SIDE, 2 * SIDE), device="cuda")
    lines: list[Line] = []
    cases: tuple[tuple[str, Any, Any, str, int, int], ...] = (
        ("2D 8 GiB, contiguous", base, torch.empty_like(base), "along_rows", 1, 2048),
        ("2D 8 GiB, transposed", base.T, torch.empty_like(base).T, "along_columns", 2048, 1),
        ("2D 4 GiB, every other row", base[::2], torch.empty_like(base[::2]), "along_rows", 1, 2048),
    )
    for what, src, dst, layout, rows, cols in cases:
        jobs: dict[str, Callable[[], Any]] = {
            who: partial(module.run, src, dst, getattr(module, layout)(), rows, cols) for who, module in modules.items()
        }
        jobs["torch"] = partial(dst.copy_, src)
        speed = harness.race({what: jobs}, clock, rounds, nbytes=2 * src.numel() * 4, **outcome(dst, src))[what]
        lines.append(line(what, speed, (Goal(1.0, "gluon"),)))
    return lines


def opposite(clock: harness.Clock, rounds: int) -> list[Line]:
    """4 GiB from rows to columns in tiles of 128x128."""
    import torch

    modules = compilers("copy_opposite")
    src = torch.randn((SIDE, SIDE), device="cuda")
    dst = torch.empty((SIDE, SIDE), device="cuda").T
    jobs: Jobs = {"torch": {"torch": lambda: dst.copy_(src)}}
    for vec, num_warps in ((1, 4), (4, 4), (1, 8), (4, 8)):
        jobs[f"vec={vec} warps={num_warps}"] = {
            who: partial(
                module.run,
                src,
                dst,
                module.layout_for(src, num_warps, vec),
                module.layout_for(dst, num_warps, vec),
                num_warps=num_warps,
            )
            for who, module in modules.items()
        }
    found = harness.race(jobs, clock, rounds, nbytes=2 * src.numel() * 4, **outcome(dst, src))
    torch_speed = found.pop("torch")
    goals = {"vec=1 warps=4": (Goal(1.05, "gluon"),)}
    return [
        line(f"2D 4 GiB, opposite, {case}", speed | torch_speed, goals.get(case, ())) for case, speed in found.items()
    ]


def outcome(dst: Any, want: Any) -> dict[str, Callable[[], Any]]:
    """How `harness.race` spoils an output and compares it, bit for bit."""
    import torch

    return {"poison": lambda: dst.fill_(float("nan")), "correct": lambda: torch.equal(dst, want)}
