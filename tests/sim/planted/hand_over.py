"""Planted bugs in what one program hands to another within a launch: polls, fences, and TMA on either side."""

from __future__ import annotations

import numpy as np

import weft
from tests.sim.planted.bug import LINE, given, plant
from weft import language as gl

N = 128
NUMBERS = np.arange(N, dtype=np.int32)
ONE = np.zeros(1, np.int32)


def message() -> tuple[tuple, np.ndarray, np.ndarray]:
    """An output, the numbers, room for a message, and a flag."""
    return given(np.full(N, -1, np.int32), NUMBERS, NUMBERS, np.zeros(N, np.int32), ONE, LINE)()


# Polls


@weft.jit
def polls_without_acquire(out, x, box, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))  # EARLIER
        gl.store(flag, 1, sem="release")
    else:
        # BUG: a relaxed poll waits, but what was stored before the flag need not be visible behind it.
        gl.atomic_poll(flag, 1, sem="acquire" if FIXED else "relaxed")
        gl.store(out + at, gl.load(box + at))  # HERE


plant(polls_without_acquire, "hazard-global-race", grid=2, launch=message)


@weft.jit
def polls_within_the_block(out, x, box, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))  # EARLIER
        gl.store(flag, 1, sem="release")
    else:
        # BUG: the scope of the acquire is this block, which the other program is not in.
        gl.atomic_poll(flag, 1, scope="gpu" if FIXED else "cta")
        gl.store(out + at, gl.load(box + at))  # HERE


plant(polls_within_the_block, "hazard-global-race", grid=2, launch=message)


@weft.jit
def forgets_the_timeout(out, x, box, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))  # EARLIER
        gl.store(flag, 1, sem="release")
    else:
        met = gl.atomic_poll(flag, 1, timeout_ns=1_000_000)
        # BUG: when the time is over the poll has acquired nothing, so its result has to be looked at.
        if met or not FIXED:
            gl.store(out + at, gl.load(box + at))  # HERE


plant(forgets_the_timeout, "hazard-global-race", grid=2, launch=message)


@weft.jit
def polls_for_another_value(out, x, box, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))
        gl.store(flag, 2 if FIXED else 1, sem="release")
    else:
        # BUG: the other program never stores a 2.
        gl.atomic_poll(flag, 2)  # HERE
        gl.store(out + at, gl.load(box + at))


plant(polls_for_another_value, "hazard-deadlock", grid=2, launch=message)
