"""Where machine code departs from the order of the text, and where it does not."""

from __future__ import annotations

import pytest

from tests.cuda.build import needs_nvrtc
from tests.cuda.rules.test_mma import WGMMA, ladder, ladder_descriptors
from tests.passes.lowered.test_hold_waits import attention
from tests.passes.tile.test_unroll_products import compiled as dequantised
from weft.analysis.order import FEW, Instruction, departures
from weft.errors import PerformanceWarning
from weft.ir.core import walk
from weft.ops import arith, mma

WAIT, EXP, ADD, MMA = "WARPGROUP.DEPBAR.LE", "MUFU.EX2", "FADD", "HGMMA.64x64x16.F32"


def lines(kernel) -> tuple[tuple[str, int], tuple[str, int]]:
    """The line of the exponentials in the loop, and that of the wait behind them."""
    ops = [op for op in walk(kernel.front.lowered.body) if op.loc is not None]
    exp = next(op.loc for op in ops if op.kind is arith.math)
    wait = [op.loc for op in ops if op.kind is mma.warpgroup_wait][-1]
    return (exp.file, exp.line), (wait.file, wait.line)


def said(kernel, *names: tuple[str, tuple[str, int] | None]) -> list[str]:
    found = departures(kernel.front.lowered, [Instruction(name, "", line) for name, line in names])
    return [f"{'early' if each.hoisted else 'late'} {each.count} {each.special}" for each in found]


def test_exponentials_that_are_written_before_a_wait():
    kernel = attention(n=64)
    exp, wait = lines(kernel)
    assert said(kernel, (MMA, None), (EXP, exp), (EXP, exp), (WAIT, wait), (MMA, None)) == []
    assert said(kernel, (MMA, None), (EXP, exp), (WAIT, wait), (ADD, exp), (EXP, exp), (MMA, None)) == ["early 2 1"]
    assert said(kernel, (MMA, None), (WAIT, wait), (MMA, None), (EXP, exp)) == [], "of another round"
    assert said(kernel, (MMA, None), (WAIT, wait), (EXP, None)) == [], "of no line"


def test_a_few_instructions_are_no_departure():
    kernel = attention(n=64)
    exp, wait = lines(kernel)
    assert said(kernel, (WAIT, wait), *[(ADD, exp)] * FEW) == []
    assert said(kernel, (WAIT, wait), *[(ADD, exp)] * (FEW + 1)) == [f"early {FEW + 1} 0"]


@needs_nvrtc
def test_a_wait_that_is_not_held(monkeypatch):
    """The machine code of the same text, with and without what holds the wait."""
    assert attention(n=128).asm["order"] == "attend: in the order of the text"
    monkeypatch.setattr("weft.passes.pipeline.hold_waits", lambda func: func)
    text = attention(n=128, ROUNDS=2).asm["order"]
    assert "the wait for MMAs stands before" in text and "of the special function unit" in text


@needs_nvrtc
@pytest.mark.parametrize("buffers", [3, 4])
def test_the_ladder_is_in_the_order_of_its_text(buffers):
    kernel = ladder.matmul_pipelined_kernel.warmup(*ladder_descriptors(), WGMMA, buffers, num_warps=8, target="sm_90a")
    assert kernel.asm["order"] == "matmul_pipelined_kernel: in the order of the text"


@needs_nvrtc
def test_what_ptxas_serialises_is_said():
    with pytest.warns(PerformanceWarning, match="nvrtc-serialised"):
        text = dequantised(maxnreg=80).asm["order"]
    assert "serialized due to insufficient register resources" in text
