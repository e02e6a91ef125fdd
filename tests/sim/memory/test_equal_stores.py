"""Equal values that several threads store to one element are advice, in whatever way they come to do it; others are a race."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import hazard

LINE = gl.BlockedLayout([1], [32], [4], [0])


@weft.jit
def stores(x, where: gl.constexpr, equal: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if where == "a statement":
        gl.store(x + at // 2, at // 2 if equal else at)
    elif where == "statements":
        gl.store(x + at, at * 0 + 7)
        gl.store(x + (127 - at), at * 0 + (7 if equal else 8))
    elif where == "iterations":
        for i in range(2):
            gl.store(x + (at + i) % 128, at * 0 + (7 if equal else i))
    else:
        gl.store(x + at, at * 0 + (7 if equal else gl.program_id(0)))


@pytest.mark.parametrize("where", ["a statement", "statements", "iterations", "programs"])
def test_tiles(where):
    grid = 2 if where == "programs" else 1
    report = stores[grid](np.zeros(128, np.int32), where, True, LINE).report
    assert where == "a statement" or [advice.rule for advice in report.advice] == ["equal-stores"]
    with pytest.raises(hazard.GlobalRace):
        stores[grid](np.zeros(128, np.int32), where, False, LINE)


@weft.jit
def by_threads(x, where: gl.constexpr, equal: gl.constexpr):
    me = gl.thread_idx.x
    if where == "a statement":
        x[me // 2] = me // 2 if equal else me
    elif where == "statements":
        x[me] = 7
        x[127 - me] = 7 if equal else 8
    elif where == "iterations":
        for i in range(2):
            x[(me + i) % 128] = 7 if equal else i
    else:
        x[me] = 7 if equal else gl.block_idx.x


@pytest.mark.parametrize("where", ["a statement", "statements", "iterations", "programs"])
def test_threads(where):
    grid = 2 if where == "programs" else 1
    report = by_threads[grid](weft.LayoutTensor(np.zeros(128, np.int32)), where, True, block=128).report
    assert [advice.rule for advice in report.advice] == ["equal-stores"]
    with pytest.raises(hazard.GlobalRace):
        by_threads[grid](weft.LayoutTensor(np.zeros(128, np.int32)), where, False, block=128)
