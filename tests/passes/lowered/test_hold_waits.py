"""Waits for MMAs stay behind the arithmetic that is written before them, in lowered IR and in machine code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import weft
from tests.cuda.build import needs_nvrtc
from tests.examples.machine_code import mnemonics
from weft import language as gl
from weft.ir.core import walk
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, warpgroup_mma, warpgroup_mma_wait
from weft.ops import mma, sync
from weft.runtime import MockTensor
from weft.runtime.compiled import CompiledKernel

WIDE = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
EXPONENTIAL, WAIT = "MUFU.EX2", "WARPGROUP.DEPBAR.LE"


@weft.jit
def attend(
    src, out, steps,
    N: gl.constexpr, EARLY: gl.constexpr, ARRIVE: gl.constexpr, REDUCED: gl.constexpr, ROUNDS: gl.constexpr,
):  # fmt: skip
    """`o += p @ v` runs while p of the next block is computed; EARLY waits for it before that."""
    scores: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    sums: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    flat: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    at = gl.arange(0, N, gl.SliceLayout(1, flat))[:, None] * 64 + gl.arange(0, 64, gl.SliceLayout(0, flat))[None, :]
    k = gl.allocate_shared_memory(gl.float16, [N, 64], WIDE, gl.load(src + at))
    v = gl.allocate_shared_memory(gl.float16, [N, 64], WIDE, gl.load(src + at))
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    fence_async_shared()
    o = gl.zeros([64, 64], gl.float32, sums)
    q = k.slice(0, 64)
    zeros = gl.zeros([64, N], gl.float32, scores)
    top = gl.full([64], 0.0, gl.float32, gl.SliceLayout(1, scores))
    p = gl.zeros([64, N], gl.float16, gl.DotOperandLayout(0, sums, 2))
    for _ in range(steps):
        s = warpgroup_mma(q, k.permute([1, 0]), zeros, use_acc=False, is_async=True)
        o = warpgroup_mma(p, v, o, is_async=True)
        s = warpgroup_mma_wait(1, s)
        if ARRIVE:
            mbarrier.arrive(bar, count=1)
        if EARLY:
            o = warpgroup_mma_wait(0, o)
        if REDUCED:
            top = gl.maximum(top, gl.max(s, axis=1))
        weights = gl.exp2(s - top[:, None])
        for _ in gl.static_range(ROUNDS - 1):
            weights = gl.exp2(weights)
        if not EARLY:
            o = warpgroup_mma_wait(0, o)
        p = gl.convert_layout(weights.to(gl.float16), p.layout)
    rows = gl.arange(0, 64, gl.SliceLayout(1, sums))[:, None]
    gl.store(out + rows * 64 + gl.arange(0, 64, gl.SliceLayout(0, sums))[None, :], o)


def attention(n: int = 128, **how: object) -> CompiledKernel:
    arguments = {"EARLY": False, "ARRIVE": False, "REDUCED": True, "ROUNDS": 1, **how}
    arrays = (MockTensor("fp16"), MockTensor("fp32"))
    return attend.warmup(*arrays, 9, n, **arguments, num_warps=4, grid=1, target="sm_90a")


def held(kernel: CompiledKernel) -> list[bool]:
    """For each wait of the kernel, whether a barrier of the schedule stands right before it."""
    found: list[bool] = []
    for region in (kernel.front.lowered.body, *(r for op in walk(kernel.front.lowered.body) for r in op.regions)):
        pairs = zip((None, *region.ops), region.ops, strict=False)
        found += [
            before is not None and before.kind is sync.schedule_barrier
            for before, op in pairs
            if op.kind is mma.warpgroup_wait
        ]
    return found


def between(kernel: CompiledKernel) -> int:
    """The exponentials between the waits of the loop."""
    text = " ".join(name for name in mnemonics(kernel.asm["sass"]) if name in (EXPONENTIAL, WAIT, "BRA"))
    (first,) = re.findall(rf"{WAIT} (?:BRA )*((?:{EXPONENTIAL} (?:BRA )*)*){WAIT}", text)
    return first.count(EXPONENTIAL)


def test_a_barrier_before_waits_behind_arithmetic_only():
    assert held(attention(ROUNDS=1)) == [False, True]
    assert held(attention(EARLY=True)) == [False, False]


def test_the_listing_says_why():
    lines = [line for line in attention().asm["sync"].splitlines() if "schedule_barrier" in line]
    assert len(lines) == 1
    number = int(re.search(r"to keep line (\d+) before the wait for MMAs$", lines[0])[1])
    assert "gl.maximum(top" in Path(__file__).read_text(encoding="utf-8").splitlines()[number - 1]


@needs_nvrtc
@pytest.mark.parametrize("how", [
    {}, {"ARRIVE": True}, {"REDUCED": False}, {"REDUCED": False, "ROUNDS": 2}, {"n": 64, "REDUCED": False},
], ids=str)  # fmt: skip
def test_every_exponential_runs_before_the_wait(how):
    kernel = attention(**how)
    assert between(kernel) == kernel.asm["sass"].count(EXPONENTIAL) == how.get("n", 128) // 2 * how.get("ROUNDS", 1)
    assert kernel.n_spills == 0
    assert re.findall(r"C75\d\d", kernel.front.machine_code.log) == []


@needs_nvrtc
def test_a_wait_that_is_written_early_is_early():
    assert between(attention(EARLY=True)) == 0
