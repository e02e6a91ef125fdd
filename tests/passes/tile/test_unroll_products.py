"""Loops whose MMAs take registers that outlive the iteration: which are unrolled, and what their machine code does."""

from __future__ import annotations

import re
import warnings

import pytest

import weft
from tests.cuda.build import needs_nvrtc
from tests.examples.machine_code import mnemonics, written_in_flight
from weft import language as gl
from weft.errors import PerformanceWarning
from weft.ir.core import walk
from weft.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_layout, warpgroup_mma_wait
from weft.ops import control, mma
from weft.runtime import MockTensor
from weft.runtime.compiled import CompiledKernel

N = 64


@weft.jit
def dequantised(
    a, b, out, steps,
    PENDINGS: gl.constexpr, STEP: gl.constexpr, FIRST: gl.constexpr, MANY: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    """Each product takes bytes that become float16 in registers. FIRST: the wait is at the begin of the iteration."""
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    flat: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    at = gl.arange(0, 64, gl.SliceLayout(1, flat))[:, None] * 64 + gl.arange(0, 64, gl.SliceLayout(0, flat))[None, :]
    wide: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    right = gl.allocate_shared_memory(gl.float16, [64, 64], wide, gl.load(b + at))
    fence_async_shared()
    rows, columns = gl.arange(0, 64, gl.SliceLayout(1, operand)), gl.arange(0, 64, gl.SliceLayout(0, operand))
    part = a + rows[:, None] * 64 + columns[None, :]
    acc = gl.zeros([64, 64], gl.float32, layout)
    for step in range(0, steps, STEP):
        if FIRST:
            acc = warpgroup_mma_wait(PENDINGS, acc)
        for i in gl.static_range(MANY):
            acc = warpgroup_mma(gl.load(part + (step + i) * 4096).to(gl.float16) * 3, right, acc, is_async=True)
        if not FIRST:
            acc = warpgroup_mma_wait(PENDINGS, acc)
    acc = warpgroup_mma_wait(0, acc)
    i, j = gl.arange(0, 64, gl.SliceLayout(1, layout)), gl.arange(0, 64, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * 64 + j[None, :], acc)


def compiled(
    pendings: int = 1, step: int = 1, first: bool = False, many: int = 1, maxnreg: int | None = None, source: str = "int8"
) -> CompiledKernel:  # fmt: skip
    arguments = (MockTensor(source), MockTensor("fp16"), MockTensor("fp32"), "i32", pendings, step, first, many)
    layout = warpgroup_mma_layout(gl.float16, [64, 64], 4)
    return dequantised.warmup(*arguments, layout, num_warps=4, maxnreg=maxnreg, grid=1, target="sm_90a")


def loop(kernel: CompiledKernel) -> str:
    """Products and waits of the first loop with products: `P w1 P w1`."""
    for op in walk(kernel.front.lowered.body):
        if op.kind is control.for_ and mma.wgmma in op.regions[0].kinds:
            names = {mma.wgmma: lambda op: "P", mma.warpgroup_wait: lambda op: f"w{op.attrs['pendings']}"}
            return " ".join(names[each.kind](each) for each in op.regions[0].ops if each.kind in names)
    raise AssertionError("no loop")


@pytest.mark.parametrize(
    ("how", "order"),
    [
        ({}, "P w1 P w1"),
        ({"step": 3}, "P w1 P w1"),
        ({"first": True, "pendings": 0}, "w0 P w0 P"),
        ({"pendings": 0}, "P w0"),
        ({"many": 2}, "P P w1 P P w1"),
    ],
    ids=str,
)
def test_loops_take_turns_between_two_sets_of_registers(how, order):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = compiled(**how)
        assert loop(kernel) == order
    assert ("last iteration of an odd number" in kernel.asm["sync"]) == (order.count("P") > 1)


@pytest.mark.parametrize("how", [{"pendings": 2}, {"pendings": 3, "many": 2}], ids=str)
def test_what_cannot_be_unrolled_by_two_says_so(how):
    with pytest.warns(PerformanceWarning, match="mma-registers-wait") as caught:
        kernel = compiled(**how)
    assert "P w0" in loop(kernel)
    warning = caught[0].message
    assert isinstance(warning, PerformanceWarning) and "warpgroup_mma(" in warning.loc.source
    (line,) = (each for each in kernel.asm["sync"].splitlines() if "wait for MMAs" in each)
    assert "left operand lies in registers" in line and line.startswith(f"{warning.loc.file}:{warning.loc.line}")


@needs_nvrtc
@pytest.mark.parametrize("how", [
    {}, {"source": "float8_e4m3fn"}, {"first": True, "pendings": 0}, {"many": 2}, {"step": 2},
], ids=str)  # fmt: skip
def test_no_register_of_an_operand_is_written_while_it_is_read(how):
    kernel = compiled(**how)
    assert written_in_flight(kernel.asm["sass"]) == []
    assert re.findall(r"C75\d\d", kernel.front.machine_code.log) == []
    assert kernel.n_spills == 0


@needs_nvrtc
@pytest.mark.parametrize("source", ["int8", "float8_e4m3fn"])
def test_operands_are_computed_while_an_mma_runs(source):
    """Between the wait that leaves one MMA in flight and the next MMA stand all conversions of its operand."""
    names = mnemonics(compiled(source=source).asm["sass"])
    text = " ".join("G" if name.startswith("HGMMA") else "W" if "DEPBAR.LE" in name else "c" for name in names)
    assert len(re.findall(r"W(?: c){32,} G", text)) >= 2
