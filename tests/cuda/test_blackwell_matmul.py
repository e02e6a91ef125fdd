"""Whole matrix products in tensor memory: the machine code of their loops, which decides how fast they are."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.cuda.build import needs_nvrtc
from weft.runtime.nvrtc import CompiledCuda, compile_cuda
from weft.runtime.sass import disassemble

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import matmul_blackwell as example

ARCH = "sm_100a"


@cache
def built(two_ctas: bool, clc: bool) -> tuple[str, CompiledCuda, list[str]]:
    """Text, what NVRTC made of it, and the instructions."""
    A, B, C = np.zeros((256, 64), np.float16), np.zeros((64, 256), np.float16), np.zeros((256, 256), np.float16)
    with weft.simulate(target=ARCH):
        compiled = example.matmul(A, B, C, two_ctas=two_ctas, clc=clc)
    text = compiled.asm["cuda"]
    made = compile_cuda(text, name="matmul_kernel", arch=ARCH)
    return text, made, disassemble(made.cubin).splitlines()


def loop(lines: list[str], name: str) -> list[str]:
    """The instructions of the smallest loop with one of this name."""
    labels = {line[:-1]: i for i, line in enumerate(lines) if line.startswith(".L")}
    jumps = ((i, re.search(r"BRA\S* (?:!?UP\d, )?`\((\.L\w+)\)", line)) for i, line in enumerate(lines))
    bodies = [lines[labels[to[1]] : i + 1] for i, to in jumps if to and labels.get(to[1], i) < i]
    found = [[x for x in body if not x.startswith(".L")] for body in bodies if any(name in x for x in body)]
    return min(found, key=len)


each_kernel = pytest.mark.parametrize("clc", [False, True])
each_number = pytest.mark.parametrize("two_ctas", [False, True])


@needs_nvrtc
@each_kernel
@each_number
def test_whole_kernels_compile(two_ctas, clc):
    """Nothing is spilled, and ptxas has nothing to say. The GPU hands out tiles where it was asked to."""
    _, made, lines = built(two_ctas, clc)
    text = "\n".join(lines)
    assert made.n_spills == 0 and made.n_regs <= 96
    assert not re.search(r"ptxas warning|\(C7\d+\)", made.log) and not re.search(r"\b(LDL|STL)\b", text)
    assert ("UGETNEXTWORKID" in text) == clc
    assert ("UTMALDG.2D.2CTA" in text) == ("UTCHMMA.2CTA" in text) == two_ctas
    assert text.count("LDTM.x64") == 4 and text.count("UTMASTG.2D") == 4


@needs_nvrtc
@each_kernel
@each_number
def test_loops_are_lean(two_ctas, clc):
    """The products and loads of one step, their addresses in uniform registers, issued without a loop over lanes."""
    _, _, lines = built(two_ctas, clc)
    products, loads = loop(lines, "UTCHMMA"), loop(lines, "UTMALDG")
    assert sum("UTCHMMA" in line for line in products) == 4 and len(products) <= 56
    assert sum("UTMALDG" in line for line in loads) == (3 if two_ctas else 5) and len(loads) <= 40
    assert sum("UTCBAR" in line for line in products) == 1
    for line in (*products, *loads):
        assert not re.search(r"R2UR|VOTE|S2UR|LDS|LDC ", line)


@needs_nvrtc
def test_products_and_their_commit_are_one_branch():
    text, _, _ = built(False, False)
    branch = re.search(r"if \(elect_one\(\)\) \{\n((?:(?!\n +\}).)*tcgen05_mma_f16\(.*?)\n +\}", text, re.DOTALL)
    assert branch is not None and "tcgen05_commit(" in branch[1]
