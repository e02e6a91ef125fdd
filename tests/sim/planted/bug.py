"""Kernels with one planted bug each, as data, and what the simulator has to say about them.

A kernel has a constexpr `FIXED`: without it there is the bug, of which a comment `# BUG: ...` says what is wrong. The line that
a report is to name ends in `# HERE`, that of an earlier access in `# EARLIER` (`# EARLIER, HERE` where either may come first).
These marks stand above the call of `plant` that enters the kernel, and below the one before it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import language as gl
from weft.kernel import JITFunction
from weft.nvidia.hopper import TensorDescriptor

Launch = Callable[[], tuple[tuple[Any, ...], np.ndarray, np.ndarray]]
"""Fresh arguments, the array among them that holds the result, and what the repaired kernel leaves there."""


@dataclass(frozen=True)
class Planted:
    """A kernel, how it is launched, the codes of the reports that its bug may have, and the lines that those may name."""

    kernel: JITFunction
    launch: Launch
    codes: tuple[str, ...]
    grid: int | tuple[int, ...]
    target: str
    lowered: bool
    options: dict[str, Any]
    here: frozenset[int]
    earlier: frozenset[int]

    def __str__(self) -> str:
        return self.kernel.__name__


PLANTED: list[Planted] = []


def plant(
    kernel: Any, *codes: str,
    launch: Launch, grid: int | tuple[int, ...] = 1, target: str = "sm_90a", lowered: bool = True, **options: Any,
) -> None:  # fmt: skip
    """Enter a kernel whose bug is reported under one of the codes. `options` are those of the launch.

    `lowered`: whether lowered IR still has what the bug is about."""
    caller = sys._getframe(1)
    lines = Path(caller.f_code.co_filename).read_text(encoding="utf-8").splitlines()[: caller.f_lineno - 1]
    begin = max((number for number, line in enumerate(lines) if line.startswith("plant(")), default=0)
    name = kernel.__name__
    assert any("# BUG: " in line for line in lines[begin:]), f"{name}: a comment `# BUG: ...` says what is wrong"
    marks = {
        mark: frozenset(n for n in range(begin, len(lines)) if re.search(rf"# .*\b{mark}\b", lines[n]))
        for mark in ("HERE", "EARLIER")
    }
    here, earlier = (frozenset(n + 1 for n in marks[mark]) for mark in ("HERE", "EARLIER"))
    assert here, f"{name}: the line that the report names ends in `# HERE`"
    PLANTED.append(Planted(kernel, launch, codes, grid, target, lowered, options, here, earlier))


# What kernels share: matrices of five tiles of 16 by 32 side by side, which they copy tile by tile.

STEPS = 5
ROWS = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
COLUMNS = gl.BlockedLayout([4, 1], [4, 8], [1, 4], [0, 1])
LINE = gl.BlockedLayout([1], [32], [4], [0])
PLAIN = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
SMEM = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32)


@weft.jit
def tile(number, layout: gl.constexpr):
    """Offsets of a tile that lies by itself, one behind the other."""
    rows = gl.arange(0, 16, gl.SliceLayout(1, layout))
    return number * 512 + rows[:, None] * 32 + gl.arange(0, 32, gl.SliceLayout(0, layout))[None, :]


def wide(steps: int = STEPS) -> np.ndarray:
    """Tiles side by side."""
    return np.arange(16 * 32 * steps, dtype=np.float32).reshape(16, 32 * steps)


def apart(x: np.ndarray) -> np.ndarray:
    """The same tiles one behind the other."""
    return np.ascontiguousarray(x.reshape(16, -1, 32).swapaxes(0, 1))


def described(x: np.ndarray) -> TensorDescriptor:
    """A descriptor of the tiles."""
    return TensorDescriptor.from_tensor(x, [16, 32], SMEM)


def split(*more: Any, steps: int = STEPS, factor: float = 1.0) -> Launch:
    """A descriptor of tiles side by side and an array for the tiles one behind the other, each times a factor."""

    def launch() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
        x, out = wide(steps), np.full((steps, 16, 32), np.nan, np.float32)
        return (described(x), out, *more), out, apart(x) * np.float32(factor)

    return launch


def joined(*more: Any, steps: int = STEPS, factor: float = 1.0) -> Launch:
    """An array of tiles one behind the other, and a descriptor for them side by side, each times a factor."""

    def launch() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
        x, out = wide(steps), np.full((16, 32 * steps), np.nan, np.float32)
        return (apart(x), described(out), *more), out, x * np.float32(factor)

    return launch


def through_global(*more: Any) -> Launch:
    """An array for the result, one tile, and memory for that on its way, first as a descriptor and then as an array."""

    def launch() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
        x, data, out = wide(1), np.zeros((16, 32), np.float32), np.full((16, 32), np.nan, np.float32)
        return (out, x, described(data), data, *more), out, x

    return launch


def given(out: np.ndarray, wanted: Any, *others: Any) -> Launch:
    """Copies of an array for the result, after it other arguments, and what the result is to be."""

    def launch() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
        mine = out.copy()
        more = tuple(other.copy() if isinstance(other, np.ndarray) else other for other in others)
        return (mine, *more), mine, np.asarray(wanted)

    return launch
