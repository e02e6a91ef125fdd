"""Programs that wait for programs which have not started: advice where all fit, and a deadlock that names both where not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import Deadlock

PROGRAMS = 8


@weft.jit
def chain(x, flags, counter, TICKET: gl.constexpr, UP: gl.constexpr, POLL: gl.constexpr):
    """Program `me` waits for the one below, or above, it."""
    me = gl.atomic_add(counter, 1, sem="relaxed") if TICKET else gl.program_id(0)
    if (me + 1 < gl.num_programs(0)) if UP else (me > 0):
        awaited = flags + (me + 1 if UP else me - 1)
        if POLL:
            gl.atomic_poll(awaited, 1)  # polls
        else:
            while gl.load(awaited, sem="acquire") != 1:  # spins
                pass
    gl.store(x + me, me)
    gl.store(flags + me, 1, sem="release")  # stores


def line_of(words: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {words}"))


def launched(ticket: bool, up: bool, poll: bool, **how) -> list:
    """The advice of a launch, whose results are right."""
    x, flags = np.zeros(PROGRAMS, np.int32), np.zeros(PROGRAMS + 1, np.int32)
    with weft.simulate(**how):
        compiled = chain[PROGRAMS](x, flags, np.zeros(1, np.int32), ticket, up, poll)
    assert x.tolist() == list(range(PROGRAMS))
    return compiled.report.advice


@pytest.mark.parametrize("poll", [False, True])
@pytest.mark.parametrize(("up", "order"), [(True, "grid"), (False, "reverse")])
def test_a_wait_for_a_program_that_had_not_started_is_advised_against(poll, up, order):
    (advice,) = launched(False, up, poll, order=order)
    assert advice.rule == "waits-for-later-program" and advice.loc.line == line_of("polls" if poll else "spins")
    assert f"stores at line {line_of('stores')}, and that program had not started" in advice.message
    assert "gl.atomic_add(counter, 1)" in advice.message


@pytest.mark.parametrize("poll", [False, True])
@pytest.mark.parametrize(
    "how", [{"order": "reverse"}, *({"seed": s, "max_resident": 1 + s} for s in range(5))], ids=str
)
def test_tickets_are_safe_in_any_order_with_any_number_of_residents(poll, how):
    assert launched(True, False, poll, **how) == []


@pytest.mark.parametrize("poll", [False, True])
def test_a_deadlock_for_want_of_room_names_the_program_that_waits_and_the_one_that_would_store(poll):
    with pytest.raises(Deadlock) as caught:
        launched(False, True, poll, max_resident=3)
    error = caught.value
    assert "3 programs wait" in error.message and "5 more cannot start while 3 are resident" in error.message
    told = {words: loc.line for words, loc in error.related}
    assert told["program (3, 0, 0), which has not started, stores flags[3] here"] == line_of("stores")
    first = next(words for words in told if words.startswith("program (0, 0, 0) waits for flags[1]"))
    assert told[first] == line_of("polls" if poll else "spins")
    assert "number = gl.atomic_add(counter, 1)" in error.fix


@weft.jit
def nobody(flags):
    gl.atomic_poll(flags + gl.program_id(0), 1)


def test_a_deadlock_that_no_program_would_end_names_none():
    with weft.simulate(max_resident=2), pytest.raises(Deadlock) as caught:
        nobody[4](np.zeros(4, np.int32))
    assert "has not started" not in "".join(words for words, _ in caught.value.related)
    assert "flags[0]" in str(caught.value)
