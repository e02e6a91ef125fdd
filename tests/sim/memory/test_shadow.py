"""The last accesses of shared memory on their own: what is kept of them, and what reports call the memory."""

from __future__ import annotations

import pytest

from weft.errors import Loc, hazard
from weft.ir.core import Op
from weft.ir.types import int32
from weft.ops import shared, sync
from weft.sim.memory import shadow
from weft.sim.memory.clocks import Clock
from weft.sim.memory.events import Area, Event
from weft.sim.memory.shadow import Shadow
from weft.sim.memory.spaces import SHARED, Allocation
from weft.sim.memory.store import Store

ALLOC = Op(shared.scratch, (), {"dtype": int32, "count": 64, "tag": 0, "align": 16, "offset": 0}, (), (), None)
SMEM = Allocation(1, 0, 256, "smem", ALLOC, (2, 2), 64)


def op(line: int) -> Op:
    return Op(sync.barrier, (), {}, (), (), Loc("<kernel>", line))


def access(
    known: Shadow, clock: Clock, line: int, writes: bool, first: int, thread: int = 0, memory: Allocation = SMEM
) -> None:
    event = Event(clock.slot, clock.tick(), "generic", writes, clock.slot, op(line), memory)
    known.access(clock, event, Area(slice(first, first + 4), thread))


def made() -> tuple[Shadow, Clock]:
    known = Shadow((0, 0, 0), 1)
    memory = Store(SHARED, 1024, 4, known)
    assert memory.shadow is known
    return known, Clock(0)


def test_events_that_nothing_refers_to_are_dropped(monkeypatch):
    monkeypatch.setattr(shadow, "EVENTS_KEPT", 8)
    known, clock = made()
    access(known, clock, 1, True, 100)
    for _ in range(1000):
        access(known, clock, 2, True, 0)
        access(known, clock, 3, False, 0)
    assert known.count == 2001
    assert len(known._events) <= 8
    with pytest.raises(hazard.ThreadRace) as caught:
        access(known, clock, 4, False, 100, thread=5)
    assert (caught.value.first.line, caught.value.second.line) == (1, 4)


def test_as_many_as_matter_are_kept(monkeypatch):
    monkeypatch.setattr(shadow, "EVENTS_KEPT", 8)
    known, clock = made()
    for number in range(60):
        access(known, clock, number, True, 4 * number)
    for number in range(60):
        with pytest.raises(hazard.ThreadRace) as caught:
            access(known, clock, 99, False, 4 * number, thread=1)
        assert caught.value.first.line == number


@pytest.mark.parametrize(
    ("first", "name"), [(0, "smem[0, 0]"), (17, "smem[0, 1]"), (32, "smem[1, 0]"), (60, "smem[1, 1]")]
)
def test_reports_name_the_tile(first, name):
    known, clock = made()
    access(known, clock, 1, True, first)
    with pytest.raises(hazard.ThreadRace) as caught:
        access(known, clock, 2, True, first, thread=1)
    assert caught.value.buffer == name
    assert f"writes {name}, which other threads" in caught.value.message


def test_reports_name_both_of_two_buffers_in_the_same_bytes():
    known, clock = made()
    access(known, clock, 1, True, 20)
    later = Allocation(2, 64, 128, "other", ALLOC)
    with pytest.raises(hazard.ThreadRace) as caught:
        access(known, clock, 2, True, 20, thread=1, memory=later)
    assert caught.value.buffer == "other"
    assert "writes other (in bytes that were smem[0, 1] before), which" in caught.value.message


def test_what_memory_is_called():
    assert SMEM.part(256) == "smem"
    assert Allocation(1, 0, 16, "", ALLOC).part(0) == "the compiler's scratch memory"
    assert Allocation(1, 128, 64, "x", ALLOC).part(130) == "x"
