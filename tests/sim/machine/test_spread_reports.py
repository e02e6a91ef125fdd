"""Reports on barriers at which each warp arrives for itself: they count as the author does."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.sim.both import compiled_for, run_stage
from weft import language as gl
from weft.errors import hazard
from weft.ir.core import walk
from weft.language.nvidia.hopper import mbarrier
from weft.ops import mbarrier as ops

LINE = gl.BlockedLayout([1], [32], [4], [0])
ONE_WARP = gl.BlockedLayout([1], [32], [1], [0])


@weft.jit
def give(steps, number, ready, free, layout: gl.constexpr):
    for step in range(steps):
        mbarrier.wait(free, step & 1 ^ 1)
        number.store(gl.full([32], 0.0, gl.float32, layout))
        mbarrier.arrive(ready, count=1)


@weft.jit
def take(out, steps, number, ready, free, me: gl.constexpr, layout: gl.constexpr):
    for step in range(steps):
        mbarrier.wait(ready, step & 1)
        gl.store(out + me * 32 + gl.arange(0, 32, layout), number.load(layout))
        mbarrier.arrive(free, count=1)


@weft.jit
def shared_out(out, steps, layout: gl.constexpr, worker: gl.constexpr):
    number = gl.allocate_shared_memory(gl.float32, [32], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    ready = mbarrier.allocate_mbarrier()
    free = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    mbarrier.init(free, count=2)
    gl.warp_specialize(
        [
            (take, (out, steps, number, ready, free, 0, layout)),
            (take, (out, 3, number, ready, free, 1, layout)),
            (give, (3, number, ready, free, worker)),
        ],
        [4, 1],
    )


@pytest.mark.parametrize("stage", ["tile", "lowered"])
def test_a_phase_lacks_arrivals_of_the_author(stage):
    arguments = np.zeros(64, np.float32), 1, LINE, ONE_WARP
    compiled = compiled_for(shared_out, arguments, {})
    func = getattr(compiled.front, stage)
    counts = sorted(op.attrs["count"] for op in walk(func.body) if op.kind is ops.init)
    assert counts == [1, 8], "the barrier counts warps"
    with pytest.raises(hazard.Deadlock) as caught:
        run_stage(func, shared_out, compiled, arguments, 1)
    labels = [label for label, _ in caught.value.related]
    assert any("phase 1 of free, which lacks 1 of 2 arrivals; the arrival at " in label for label in labels)
