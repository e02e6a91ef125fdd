"""Views at a breakpoint: what the debugger sees of global, shared and local memory."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import weft
from weft import language as gl

SHARED, LOCAL = gl.AddressSpace.SHARED, gl.AddressSpace.LOCAL


@pytest.fixture
def seen(monkeypatch):
    """The variables of each stop."""
    stops: list[dict] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append({**sys._getframe(1).f_locals}))
    return stops


@weft.aggregate
class Pair:
    left: gl.LayoutTensor
    count: gl.constexpr


@weft.jit
def stop(out, x, masked, n):
    i = gl.thread_idx.x
    shared = gl.stack_allocation[gl.int16, SHARED](gl.Layout((4, 4), (1, 4)))
    mine = gl.stack_allocation[gl.float32, LOCAL](gl.row_major[3]())
    mine[1] = i * 2.0
    shared[1, i] = i.to(gl.int16)
    gl.barrier()
    row = x.tile[1, 4](1, 0)
    own = x.tile[1, 4](i % 2, 1)
    vectors = x.vectorize[1, 4]()
    edge = masked.tile[4, 4](1, gl.block_idx.x)
    opened = gl.LayoutTensor(x.ptr, gl.Layout((2, gl.UNKNOWN), (8, 1)), shape=(2, n))
    pair = Pair(row, 3)
    breakpoint()  # noqa: T100
    out[gl.block_idx.x, i] = (
        mine[1] + shared[1, 0] + own[0, 0] + vectors[0, 0][0] + edge.dim(0) + opened[0, 0] + pair.left[0, 0]
    )


def test_views_at_a_breakpoint(seen):
    x, masked = np.arange(16, dtype=np.float32).reshape(2, 8), np.arange(35, dtype=np.int32).reshape(5, 7)
    before = x.copy()
    stop[2](
        weft.LayoutTensor(np.zeros((2, 2), np.float32)),
        weft.LayoutTensor(x),
        weft.LayoutTensor(masked, masked=True),
        5,
        block=2,
    )
    first, second = seen
    np.testing.assert_array_equal(first["x"], before)
    np.testing.assert_array_equal(first["row"], before[1:, :4])
    np.testing.assert_array_equal(first["own"], np.stack([before[:1, 4:], before[1:, 4:]]))
    np.testing.assert_array_equal(first["vectors"], before)
    np.testing.assert_array_equal(first["opened"], before[:, :5])
    np.testing.assert_array_equal(first["pair"].left, before[1:, :4])
    assert first["shared"].dtype == np.int16 and first["shared"][1, :2].tolist() == [0, 1]
    assert first["shared"].mask.sum() == 14, "never written"
    assert first["mine"].shape == (2, 3) and first["mine"][:, 1].tolist() == [0, 2]
    assert first["mine"].mask.tolist() == [[True, False, True]] * 2
    np.testing.assert_array_equal(first["edge"].compressed(), masked[4, :4])
    np.testing.assert_array_equal(second["edge"].compressed(), masked[4, 4:])


def test_a_view_is_no_access(seen):
    """What the debugger reads is neither a race nor a read of nothing."""

    @weft.jit
    def kernel(x):
        shared = gl.stack_allocation[gl.float32, SHARED](gl.row_major[64]())
        shared[gl.thread_idx.x] = x[gl.thread_idx.x]
        breakpoint()  # noqa: T100
        x[gl.thread_idx.x] = shared[gl.thread_idx.x]

    kernel[1](weft.LayoutTensor(np.zeros(64, np.float32)), block=64)
    assert seen[0]["shared"].tolist() == [0] * 64
