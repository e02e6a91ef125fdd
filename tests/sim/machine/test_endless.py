"""What never ends is bounded, and reported at the author's line."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.language as gl
from weft import settings
from weft.errors import CompilationError, Hazard
from weft.errors.hazard import GlobalRace
from weft.views import LayoutTensor


@weft.jit
def count_for_ever(out):
    i = 0
    while i >= 0:
        i = (i + 1) & 1023
    gl.store(out, i)


@weft.jit
def count_to(out, n):
    i = 0
    while i < n:
        i += 1
    gl.store(out, i)


@weft.jit
def some_threads_for_ever(out, layout: gl.constexpr):
    at = gl.arange(0, 128, layout)
    gl.store(out + at, gl.map_elementwise(spin, at))


@weft.jit
def spin(x):
    while x > 5:
        x = x | 8
    return x


LINE = gl.BlockedLayout([1], [32], [4], [0])


def test_a_loop_in_registers_that_does_not_end():
    with settings.using(max_iterations=2000), pytest.raises(Hazard) as caught:
        count_for_ever[1,](np.zeros(1, np.int32))
    assert caught.value.rule == "hazard-loop-endless"
    assert "2000 iterations" in caught.value.message
    assert "while i >= 0" in str(caught.value)
    assert "WEFT_MAX_ITERATIONS" in caught.value.fix


def test_a_loop_that_ends_before_the_bound():
    out = np.zeros(1, np.int32)
    with settings.using(max_iterations=2000):
        count_to[1,](out, 1990)
    assert out[0] == 1990


def test_a_loop_that_does_not_end_for_some_elements():
    with settings.using(max_iterations=500), pytest.raises(Hazard) as caught:
        some_threads_for_ever[1,](np.zeros(128, np.int32), LINE)
    assert caught.value.rule == "hazard-loop-endless"
    assert "while x > 5" in str(caught.value)


@weft.jit
def wait_for_one_another(flag):
    if gl.thread_idx.x == 0:
        while flag[0] == 0:
            pass
    else:
        flag[0] = 1


def test_threads_of_a_block_that_wait_for_one_another():
    """The other side of the branch goes on meanwhile; what is wrong is that nothing orders the two."""
    with pytest.raises(GlobalRace) as caught:
        wait_for_one_another[1](LayoutTensor(np.zeros(1, np.int32)), block=32)
    assert "while flag[0] == 0" in str(caught.value)
    with weft.simulate(hazards=False):
        wait_for_one_another[1](LayoutTensor(np.zeros(1, np.int32)), block=32)


@weft.jit
def unrolled(out, N: gl.constexpr):
    s = gl.program_id(0)
    for i in gl.static_range(N):
        s = s + i
    gl.store(out, s)


@weft.jit
def listed(out, N: gl.constexpr):
    s = [i + 1 for i in gl.static_range(N)]
    gl.store(out, s[0])


@pytest.mark.parametrize("kernel", [unrolled, listed])
def test_a_constant_loop_that_is_too_long(kernel):
    with pytest.raises(CompilationError) as caught:
        kernel[1,](np.zeros(1, np.int32), 2**20)
    assert caught.value.code == "lang-unroll"
    assert "more than 100000 values" in caught.value.message
    assert "static_range(N)" in str(caught.value) or "s = s + i" in str(caught.value)
    assert "WEFT_MAX_STATEMENTS" in caught.value.fix


@weft.jit
def nested(out, N: gl.constexpr):
    s = gl.program_id(0)
    for i in gl.static_range(N):
        for j in gl.static_range(N):
            s = s + i * j
    gl.store(out, s)


def test_the_bound_of_statements_is_a_setting():
    with settings.using(max_statements=100):
        with pytest.raises(CompilationError) as caught:
            nested[1,](np.zeros(1, np.int32), 20)
        assert caught.value.code == "lang-too-long"
        assert "more than 100 statements" in caught.value.message
        assert "s = s + i * j" in str(caught.value)
        with pytest.raises(CompilationError):
            unrolled[1,](np.zeros(1, np.int32), 200)
        unrolled[1,](np.zeros(1, np.int32), 90)
