"""What the simulator runs, the compiler compiles: refusals of later stages come before a simulated launch."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

import weft
from weft import compiler, cuda
from weft import language as gl
from weft.errors import UserError
from weft.language.nvidia.ampere import async_copy

LINE = gl.BlockedLayout([1], [32], [4], [0])


@weft.jit
def copies(x, out, first: gl.constexpr, layout: gl.constexpr):
    i = gl.arange(0, 128, layout)
    smem = gl.allocate_shared_memory(gl.float16, [128], gl.SwizzledSharedLayout(2, 1, 1, [0]))
    async_copy.async_copy_global_to_shared(smem, x + first + i)
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(out + i, smem.load(layout))


def test_copies_of_two_bytes_are_refused_before_the_launch():
    """How wide a copy is depends on what is known of its addresses, which lowering asks."""
    x, out = np.arange(256, dtype=np.float16), np.full(128, -1, np.float16)
    wide = gl.BlockedLayout([2], [32], [2], [0])
    copies[1](x, out, 2, wide, num_warps=2)
    assert np.array_equal(out, x[2:130])
    out[:] = -1
    with pytest.raises(UserError) as caught:
        copies[1](x, out, 3, wide, num_warps=2)
    assert caught.value.code == "async-copy-width" and caught.value.loc is not None
    assert (out == -1).all()


@weft.jit
def halved(x, out, layout: gl.constexpr):
    i = gl.arange(0, 128, layout)
    gl.store(out + i, gl.load(x + i).to(gl.float8e4nv).to(gl.float32))


def test_conversions_that_a_target_lacks_are_refused_before_the_launch():
    x, out = np.ones(128, np.float32), np.zeros(128, np.float32)
    with weft.simulate(target="sm_80"), pytest.raises(UserError) as caught:
        halved[1](x, out, LINE)
    assert caught.value.code == "cuda-float8" and not out.any()


@weft.jit
def raised(x, out, by: gl.constexpr, layout: gl.constexpr):
    i = gl.arange(0, 128, layout)
    gl.store(out + i, gl.load(x + i) + by)


def test_few_kernels_hold_lowered_ir(monkeypatch):
    """Of a process with thousands of kernels the last ones do; of others it is the same when somebody asks."""
    monkeypatch.setattr(compiler, "KEPT", 2)
    monkeypatch.setattr(compiler, "_lowered", deque())
    x, out = np.ones(128, np.float32), np.zeros(128, np.float32)
    made = [raised[1](x, out, by, LINE) for by in (101, 102, 103, 104)]
    assert ["lowered" in vars(each.front) for each in made] == [False, False, True, True]
    text = made[0].asm["cuda"]
    assert made[0].front.lowered is not made[1].front.lowered
    assert cuda.emit(made[0].front.lowered, made[0].front.target) == text
    assert ["lowered" in vars(each.front) for each in made] == [True, True, False, False]
