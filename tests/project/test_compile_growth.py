"""The front half of the compiler takes time in proportion to a kernel's operations.

Counted are calls of functions, Python's and C's, which no busy machine changes.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable

import pytest

from tests.effort import calls
from weft import cuda, targets
from weft import language as gl
from weft.ir.types import Pointer, int32
from weft.lang import ConstexprParam, RuntimeParam, build_kernel
from weft.layout import BlockedLayout
from weft.passes import pipeline

TARGET = targets.get("sm_90a")
SMALL, FACTOR = 200, 4
"""Statements of the smaller kernel, and how many times as many the larger one has."""
SLACK = 1.1
PARAMS = {
    "out": RuntimeParam(Pointer(int32), 16),
    "n": RuntimeParam(int32, 16),
    "layout": ConstexprParam(BlockedLayout([4], [32], [4], [0])),
}


def chain(n: int) -> list[str]:
    return ["s = n", *(f"s = s * {i % 7 + 2} + n" for i in range(n)), "gl.store(out, s)"]


def many_values(n: int) -> list[str]:
    """Half of the statements make values that the other half uses: as many are live."""
    made = [f"v{i} = n * {i + 3}" for i in range(n // 2)]
    return [*made, "s = n", *(f"s = s + v{i}" for i in range(n // 2)), "gl.store(out, s)"]


def branches(n: int) -> list[str]:
    return [
        "s = n",
        *(line for i in range(n // 2) for line in (f"if s > {i}:", "    s = s * 3 + n")),
        "gl.store(out, s)",
    ]


def loops(n: int) -> list[str]:
    return [
        "s = n",
        *(line for i in range(n // 2) for line in (f"for i{i} in range(n):", f"    s = s * 3 + i{i}")),
        "gl.store(out, s)",
    ]


def tiles(n: int) -> list[str]:
    return [
        "t = gl.arange(0, 512, layout)",
        "a = t + 1",
        *(f"a = a * t + {i % 5}" for i in range(n)),
        "gl.store(out + t, a)",
    ]


def accesses(n: int) -> list[str]:
    return ["t = out + gl.arange(0, 512, layout)", *(f"gl.store(t + {i}, gl.load(t + {i + 1}))" for i in range(n))]


def unrolled(n: int) -> list[str]:
    return ["s = n", f"for i in gl.static_range({n}):", "    s = s * 3 + i", "gl.store(out, s)"]


def front_half(make: Callable[[int], list[str]], n: int) -> Callable[[], str]:
    lines = ["def kernel(out, n, layout):\n", *(f"    {line}\n" for line in make(n))]
    name = f"<{make.__name__} of {n}>"
    linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    space = {"gl": gl}
    exec(compile("".join(lines), name, "exec"), space)  # noqa: S102 - the kernel under test is text

    def run() -> str:
        func = build_kernel(space["kernel"], PARAMS, num_warps=4, target=TARGET).func
        return cuda.emit(pipeline.lower_pipeline(pipeline.tile_pipeline(func, TARGET), TARGET), TARGET)

    return run


@pytest.mark.parametrize(
    "make", [chain, many_values, branches, loops, tiles, accesses, unrolled], ids=lambda f: f.__name__
)
def test_work_grows_in_proportion_to_operations(make):
    small, large = calls(front_half(make, SMALL)), calls(front_half(make, SMALL * FACTOR))
    assert large <= SLACK * FACTOR * small, f"{small} calls for {SMALL} statements, {large} for {FACTOR} times as many"
