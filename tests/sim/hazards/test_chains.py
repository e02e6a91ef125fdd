"""Orders that go through copies: what was read before they were started may be written once they are known to be complete."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.sim.both import verdict
from weft import language as gl
from weft.errors import hazard
from weft.language.nvidia.hopper import mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor

SMEM = gl.NVMMASharedLayout.get_default_for([64, 32], gl.float32)
LINE = gl.BlockedLayout([1], [32], [1], [0])


@weft.jit
def read(slot, seen, out, fault: gl.constexpr):
    x = slot.load(LINE)
    if fault != "arrives first":
        gl.store(out + gl.arange(0, 32, LINE), x)
    mbarrier.arrive(seen, count=1)
    if fault == "arrives first":
        gl.store(out + gl.arange(0, 32, LINE), slot.load(LINE))


@weft.jit
def bring(desc, buffer, seen, come, fault: gl.constexpr):
    if fault != "does not wait":
        mbarrier.wait(seen, 0)
    mbarrier.expect(come, desc.block_type.nbytes)
    tma.async_load(desc, [0, 0], come, buffer)


@weft.jit
def write(slot, come, layout: gl.constexpr):
    mbarrier.wait(come, 0)
    slot.store(gl.full([32], 1.0, gl.float32, layout))


@weft.jit
def passed_on(desc, out, fault: gl.constexpr):
    """One partition reads a slot, another one hears of that and starts a copy, a third one waits for it and writes the slot."""
    buffer = gl.allocate_shared_memory(gl.float32, desc.block_shape, desc.layout)
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    slot = gl.allocate_shared_memory(gl.float32, [32], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    slot.store(gl.full([32], 0.0, gl.float32, layout))
    seen, come = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(seen, count=1)
    mbarrier.init(come, count=1)
    partitions = [
        (write, (slot, come, layout)),
        (read, (slot, seen, out, fault)),
        (bring, (desc, buffer, seen, come, fault)),
    ]
    gl.warp_specialize(partitions, [1, 1])


@pytest.mark.parametrize("fault", ["", "arrives first", "does not wait"])
def test_reads_before_copies(fault):
    array, out = np.ones((64, 32), np.float32), np.zeros(32, np.float32)
    found = verdict(passed_on, lambda: (TensorDescriptor.from_tensor(array, [64, 32], SMEM), out, fault))
    assert type(found) is (hazard.ThreadRace if fault else type(None)), str(found)
