"""Random loops over `range`: bounds, steps, types, exits and nesting, against Python's `range`, at both stages."""

# ruff: noqa: S102 (programs under test are text)

from __future__ import annotations

import random
from collections.abc import Callable
from io import StringIO
from typing import Any

import numpy as np
import pytest

import weft
from tests.stress.programs import kernel_of
from weft import compiler, sim
from weft.runtime.arguments import host_buffer

TRIED = 300
MOST = 40
"""Iterations of a loop that is not left early, at most."""
ROWS = 4
THREADS = 32

HEAD = """
@weft.jit
def helper({names}, zero):
    total = zero
{body}
    return total
"""
OF_BLOCKS = """
@weft.jit
def program(out, bounds):
    gl.store(out, helper({loads}, gl.load(bounds) * 0))
"""
OF_THREADS = """
@weft.jit
def program(out, bounds):
    t = gl.thread_idx.x
    out[t] = helper({loads}, bounds[0, t] * 0)
"""


def bounds_of(pick: random.Random, bits: int) -> tuple[int, int, int]:
    """Bounds and a step with few iterations, often next to the ends of the type."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def near() -> int:
        middle = pick.choice([0, 0, low, high, low // 2, high // 2])
        return min(max(middle + pick.randint(-30, 30), low), high)

    lower, upper = near(), near()
    step = pick.choice([1, -1, 2, -3, 16, -16, high, low, pick.randint(low, high), pick.randint(-40, 40)]) or 5
    if (upper - lower) // step > MOST:
        upper = min(max(lower + step * pick.randint(-2, 12) + pick.randint(-1, 1), low), high)
    return lower, upper, step


class Writer:
    """Writes a function of loops, some of which are left early. `literal`: some bounds are numbers in its text."""

    def __init__(self, pick: random.Random, rows: list[tuple[int, int, int]] | None) -> None:
        self.pick = pick
        self.rows = rows
        self.lines: list[str] = []

    def add(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def bound(self, row: int, column: int) -> str:
        literal = self.rows is not None and self.pick.random() < 0.3
        return str(self.rows[row][column]) if literal and self.rows else f"b{row}{column}"

    def loop(self, indent: int, depth: int) -> None:
        pick, row, name = self.pick, self.pick.randrange(ROWS), f"i{depth}"
        self.add(indent, f"c{depth} = zero")
        self.add(indent, f"for {name} in range({', '.join(self.bound(row, column) for column in range(3))}):")
        self.add(indent + 1, f"c{depth} += 1")
        self.add(indent + 1, f"total = total * 3 + {name}")
        if pick.random() < 0.5:
            self.add(indent + 1, f"if c{depth} >= {pick.randint(1, 5)}:")
            self.add(indent + 2, "return total" if pick.random() < 0.3 else "break")
        if pick.random() < 0.3:
            self.add(indent + 1, f"if ({name} & 3) == 1:")
            self.add(indent + 2, "continue")
        if depth < 1 and pick.random() < 0.4:
            self.loop(indent + 1, depth + 1)
        self.add(indent + 1, "total += 1")
        self.add(indent, f"total = total * 5 + c{depth}")

    def body(self) -> str:
        for _ in range(self.pick.randint(1, 3)):
            self.loop(1, 0)
        return "\n".join(self.lines)


NAMES = [f"b{row}{column}" for row in range(ROWS) for column in range(3)]


def of_python(body: str, rows: list[tuple[int, int, int]], bits: int) -> int:
    """What Python computes with numbers of any size, cut to the type."""
    space: dict[str, Any] = {}
    exec(f"def program({', '.join(NAMES)}, zero=0):\n    total = zero\n{body}\n    return total\n", space)
    exact = space["program"](*[bound for row in rows for bound in row])
    return (exact + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def at_both_stages(kernel: Any, out: np.ndarray, bounds: np.ndarray, block: tuple[int, ...] | None) -> list[np.ndarray]:
    """What the kernel leaves in `out` in tile IR and in lowered IR; threads get views."""
    tile, lowered = out.copy(), out.copy()
    if block is not None:
        compiled = kernel[1](weft.LayoutTensor(tile), weft.LayoutTensor(bounds), block=block)
        return [tile] if compiled is not None else []
    compiled = kernel[1](tile, bounds)
    stages = compiled.front
    values = compiler.given(stages.lowered, {"out": host_buffer(lowered), "bounds": host_buffer(bounds)})
    sim.run(stages.lowered, (1, 1, 1), values, target=stages.target, stdout=StringIO(), progress=False)
    return [tile, lowered]


def wrong_of_block(seed: int) -> str:
    """The kernel, where either stage differs from Python; "" where none does."""
    pick = random.Random(seed)
    bits = pick.choice([32, 32, 64])
    rows = [bounds_of(pick, bits) for _ in range(ROWS)]
    body = Writer(pick, rows if bits == 32 else None).body()
    loads = ", ".join(f"gl.load(bounds + {place})" for place in range(3 * ROWS))
    text = HEAD.format(names=", ".join(NAMES), body=body) + OF_BLOCKS.format(loads=loads)
    bounds = np.array(rows, f"i{bits // 8}").ravel()
    want = of_python(body, rows, bits)
    found = at_both_stages(kernel_of(text), np.zeros(1, bounds.dtype), bounds, None)
    return "" if all(int(each[0]) == want for each in found) else f"{text}\n{rows}: {want}, not {found}"


def wrong_of_threads(seed: int) -> str:
    """As `wrong_of_block`, of a kernel whose threads have bounds of their own."""
    pick = random.Random(seed)
    bits = pick.choice([32, 32, 64])
    rows = [[bounds_of(pick, bits) for _ in range(ROWS)] for _ in range(THREADS)]
    body = Writer(pick, None).body()
    loads = ", ".join(f"bounds[{place}, t]" for place in range(3 * ROWS))
    text = HEAD.format(names=", ".join(NAMES), body=body) + OF_THREADS.format(loads=loads)
    bounds = np.ascontiguousarray(np.array(rows, f"i{bits // 8}").reshape(THREADS, 3 * ROWS).T)
    want = np.array([of_python(body, own, bits) for own in rows], bounds.dtype)
    found = at_both_stages(kernel_of(text), np.zeros(THREADS, bounds.dtype), bounds, (THREADS,))
    return "" if all((each == want).all() for each in found) else f"{text}\n{rows}: {want}, not {found}"


@pytest.mark.stress
@pytest.mark.parametrize("check", [wrong_of_block, wrong_of_threads], ids=["block", "threads"])
def test_loops(check: Callable[[int], str], scale: int, stress_report: Callable[..., None]) -> None:
    tried = TRIED * scale
    found = [(seed, text) for seed in range(tried) if (text := check(seed))]
    stress_report(f"loops over range, {check.__name__}", tried=tried, wrong=len(found))
    assert not found, f"seed {found[0][0]}: {found[0][1]}"
