"""A table that is read at random, and streams that are read and written once, with and without cache policies.

out[i] = x[i] * table[index[i]]: without a policy the streams evict the table from L2. With one, they are evicted first, and the
table last.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import weft
from benchmarks import harness
from benchmarks.report import Goal, Line
from weft import language as gl
from weft.language.nvidia.ampere import CachePolicy, FractionalEvictionPolicy

TITLE = "Cache policies: a table in L2 beside streams"
NEEDS_GPU = True
NUMEL = 1 << 26
TABLES = (8, 16, 24, 32)
"""Sizes of the table in MiB."""
BLOCK = 2048
LAYOUT = gl.BlockedLayout([4], [32], [4], [0])
PLAIN = CachePolicy(l1="evict_normal")
ONCE = CachePolicy(l1="no_allocate", l2=FractionalEvictionPolicy("evict_first", 1.0))
KEPT = CachePolicy(l2=FractionalEvictionPolicy("evict_last", 1.0))
JOBS = {"default": (PLAIN, PLAIN), "streams first": (ONCE, PLAIN), "table last": (PLAIN, KEPT), "both": (ONCE, KEPT)}


@weft.jit
def look_up(out, x, index, table, once: gl.constexpr, kept: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    number = gl.load(index + at, cache_policy=once)
    value = gl.load(x + at, cache_policy=once)
    gl.store(out + at, value * gl.load(table + number, cache_policy=kept), cache_policy=once)


def run(quick: bool) -> list[Line]:
    """Terabytes per second of the streams alone."""
    import torch

    x, out = torch.randn(NUMEL, device="cuda"), torch.empty(NUMEL, device="cuda")
    lines: list[Line] = []
    for size in TABLES:
        table = torch.randn(size << 18, device="cuda")
        index = torch.randint(0, table.numel(), (NUMEL,), dtype=torch.int32, device="cuda")
        wanted = x * table[index.long()]

        def job(once: Any, kept: Any, index: Any = index, table: Any = table) -> None:
            look_up[NUMEL // BLOCK](out, x, index, table, once, kept, BLOCK, LAYOUT)

        variants = [
            harness.Variant(name, partial(job, *way), lambda: out.fill_(7.0), lambda wanted=wanted: torch.equal(out, wanted))
            for name, way in JOBS.items()
        ]  # fmt: skip
        found = harness.measure(variants, harness.CudaClock(), 5 if quick else 20)
        speeds = {name: harness.terabytes_per_second(3 * 4 * NUMEL, ms) for name, ms in found.items()}
        # A small table stays in L2 whatever the streams do.
        goals = (Goal(1.05, "default"),) if size >= 24 else ()
        others = {name: speed for name, speed in speeds.items() if name != "both"}
        lines.append(Line(f"table of {size} MiB, both", speeds.get("both"), "TB/s", others, goals))
    return lines
