"""The emitted C++ means what the IR means: random programs, compiled for the machine that runs the tests.

Needs a C++ compiler; PTX is not involved, so this covers control flow, parallel assignment, shared loops and permutations.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.passes.programs import interpret, random_program
from weft import targets
from weft.cuda import emit
from weft.passes.lowered.assign_registers import assign_registers

COMPILER = shutil.which("g++") or shutil.which("clang++")
HEAD = """\
#include <cstdio>
#define __device__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(...)
static struct { int x, y, z; } blockIdx;
"""


def host_text(kernels: list[str], n: int) -> str:
    """One program that runs all kernels."""
    spaces = [f"namespace n{i} {{\n{text}\n}}" for i, text in enumerate(kernels)]
    calls = [f'  n{i}::kernel_{i}({n}); puts("--");' for i in range(len(kernels))]
    return "\n".join([HEAD, *spaces, "#line 1", "int main() {", *calls, "}", ""])


def printed(output: str) -> Iterator[list[int]]:
    for part in output.split("--\n")[:-1]:
        yield [int(line.rpartition(" ")[2]) for line in part.splitlines()]


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("shared", [True, False])
def test_random_programs(tmp_path, shared):
    seeds, n = range(60), 2
    funcs = [random_program(seed, f"kernel_{i}") for i, seed in enumerate(seeds)]
    texts = [emit(assign_registers(f) if shared else f, targets.get("sm_90a")) for f in funcs]
    source, program = tmp_path / "kernels.cc", tmp_path / "kernels"
    source.write_text(host_text(texts, n), encoding="utf-8")
    subprocess.run([str(COMPILER), "-std=c++17", "-w", str(source), "-o", str(program)], check=True)
    output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    for seed, func, numbers in zip(seeds, funcs, printed(output), strict=True):
        assert numbers == interpret(func, n), f"seed {seed}"
