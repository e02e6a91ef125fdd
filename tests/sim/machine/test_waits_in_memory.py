"""Polls in the scheduler: what a deadlock report says of one, and which time-outs are over first."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import Deadlock


@weft.jit
def awaits(flags, wanted: gl.constexpr):
    me = gl.program_id(0)
    if me == 0:
        gl.atomic_poll(flags + 2, wanted)
    else:
        gl.store(flags + 2, 5, sem="release")


def test_a_poll_without_end_is_named_with_its_element_and_both_values():
    with pytest.raises(Deadlock) as caught:
        awaits[2](np.zeros(4, np.int64), 6)
    error = caught.value
    told = {words: str(loc.line) for words, loc in error.related}
    (waiter,) = [words for words in told if "waits" in words]
    assert waiter == "program (0, 0, 0) waits for flags[2] to become 6; it holds 5"
    assert "the kernel may write flags here" in told
    assert error.buffer == "flags[2]" and "flags[2]" in error.fix


def test_nobody_writes_what_a_poll_waits_for():
    with pytest.raises(Deadlock) as caught:
        awaits[1](np.zeros(4, np.int64), 6)
    assert "the kernel may write flags here" in {words for words, _ in caught.value.related}


@weft.jit
def races_the_clock(out, flags, first, second):
    """Two programs wait for each other's flag, which each sets when its time is over."""
    me = gl.program_id(0)
    met = gl.atomic_poll(flags + me, 1, timeout_ns=first if me == 0 else second)
    gl.store(out + me, met)
    gl.store(flags + 1 - me, 1, sem="release")


@pytest.mark.parametrize(("first", "second", "want"), [(10, 20, [0, 1]), (20, 10, [1, 0]), (10, 10, [0, 0])])
@pytest.mark.parametrize("seed", range(3))
def test_the_shortest_time_is_over_first(first, second, want, seed):
    out = np.full(2, -1, np.int32)
    with weft.simulate(seed=seed):
        races_the_clock[2](out, np.zeros(2, np.int32), first, second)
    assert out.tolist() == want


@weft.jit
def no_time(out, flags):
    gl.store(out, gl.atomic_poll(flags, 1, timeout_ns=0))
    gl.store(out + 1, gl.atomic_poll(flags, 1, timeout_ns=-5 * gl.num_programs(0)))


def test_no_time_reads_once_and_lets_nobody_run():
    out = np.full(2, -1, np.int32)
    no_time[1](out, np.zeros(1, np.int32))
    assert out.tolist() == [0, 0]
