"""Why `matmul` chooses a configuration: the modelled parts of the choice and of the runner-up, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.kernels.config import MatmulConfig
from weft.kernels.model import Cycles, Problem

SOURCES = {
    "model": "the fastest by the model",
    "table": "a row of the tuned table",
    "measured": "measured on this GPU by `weft tune matmul`",
}
"""What made a choice."""
_SHOWN = ("variant", "stages", "splits", "swap", "consumers", "cluster", "shares", "pack")


@dataclass(frozen=True, slots=True)
class Modelled:
    """A configuration and its modelled `cycles`, by part."""

    config: MatmulConfig
    cycles: Cycles


@dataclass(frozen=True, slots=True)
class Explanation:
    """The choice for a product of `m` x `n` x `k`. Its text is a table of the modelled parts in cycles of a multiprocessor.

    `source` is "model", "table" (of tuned shapes) or "measured" (by `weft tune matmul`). `runner_up` is the model's best other
    configuration; None if there is none. `chosen` and `runner_up` have a `config` and its `cycles`. Of these, `tensor` (MMAs),
    `shared` (shared memory that they read) and `loads` (by TMA, or copied by warps) run side by side, so that the slowest
    counts most. `steps` (what blocks along K take besides) are added, and beside that run `cache` (reads of L2 by all
    multiprocessors) and `memory` (every byte once from DRAM). Then come `ends` (pipeline fill and epilogue), `reduction` (of
    parts of K), `packing` and `launches` (of further kernels); `lag` is how far the slowest program falls behind, relative to
    the rest, `waves` the number of tiles that a program computes one after the other, `blend` how far parts side by side hide
    one another (the exponent of the norm that combines them), and `total` the modelled time."""

    problem: Problem
    source: str
    chosen: Modelled
    runner_up: Modelled | None

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(found: Explanation) -> Iterator[str]:
    problem, both = found.problem, [found.chosen, *([found.runner_up] if found.runner_up else [])]
    yield f"{problem.m} x {problem.n} x {problem.k}, {problem.dtype}: {SOURCES[found.source]}"
    rows = [("", ["chosen", "runner-up"][: len(both)])]
    rows.append(("tile", [_tile(one.config) for one in both]))
    for name in _SHOWN:
        values = [str(getattr(one.config, name)) for one in both]
        if name in ("variant", "stages") or set(values) - {str(getattr(MatmulConfig(), name))}:
            rows.append((name, values))
    for name, title in _NAMES.items():
        values = [getattr(one.cycles, name) for one in both]
        if any(values):
            rows.append((title, [_number(value, name) for value in values]))
    rows.append(("total, cycles", [_number(one.cycles.total, "total") for one in both]))
    wide = [max(len(values[i]) for _, values in rows) for i in range(len(both))]
    for name, values in rows:
        columns = (value.rjust(width) for value, width in zip(values, wide, strict=True))
        yield f"{name:26}  {'  '.join(columns)}".rstrip()


_NAMES = {
    "tensor": "| tensor cores", "shared": "| shared memory", "loads": "| loads", "steps": "| steps along K",
    "cache": "| reads of L2", "memory": "| reads of DRAM",
    "ends": "fill and epilogue", "reduction": "sums of parts of K", "packing": "packing", "launches": "further launches",
    "lag": "lag of the slowest program", "waves": "waves",
}  # fmt: skip
"""Names of the parts; | marks those that run side by side."""


def _tile(config: MatmulConfig) -> str:
    return f"{config.block_m}x{config.block_n}x{config.block_k}"


def _number(value: float, name: str) -> str:
    return f"{value:.0%}" if name == "lag" else f"{value:,.0f}"
