"""mbarriers by themselves: arrivals, bytes, phases, and what goes wrong with them."""

from __future__ import annotations

import pytest

from weft.errors import Loc, hazard
from weft.ir.core import Op
from weft.ops import mbarrier
from weft.sim.machine.barriers import Agent, Barrier
from weft.sim.memory.clocks import Clock, Released

COMPONENT = 9


def op(line: int) -> Op:
    return Op(mbarrier.arrive, (), {}, (), (), Loc("<kernel>", line))


def make(count: int = 1, share: int = 1) -> Barrier:
    return Barrier((0, 0, 0), "bar", COMPONENT, count, op(1), lambda slot: f"partition {slot}", lambda: share)


def flight(log: list[str], name: str) -> Agent:
    return Agent(op(50), lambda: log.append(name))


def test_arrivals_complete_phases():
    bar, clock = make(2), Clock(0)
    assert bar.awaited(op(5), clock, 1, 0) == -1, "before phase 0 parity 1 counts as complete"
    assert bar.passed(-1)
    clock.tick()
    clock.barrier()
    bar.arrive(op(2), clock, 1, clock.release())
    assert not bar.passed(0)
    bar.arrive(op(3), clock, 1, clock.release())
    assert bar.passed(0)
    assert (bar.completed, bar.pending) == (1, 2)


def test_a_waiter_learns_what_was_released():
    bar, producer, consumer = make(), Clock(0), Clock(1)
    producer.tick()
    producer.barrier()
    bar.arrive(op(2), producer, 1, producer.release())
    bar.learn(consumer, 0)
    assert consumer.known == {0: 1, COMPONENT: 1}


def test_copies_are_late():
    log: list[str] = []
    bar, clock = make(), Clock(0)
    bar.expect(op(2), clock, 100)
    bar.bring(op(3), clock, 60, flight(log, "a"))
    assert not bar.passed(0)
    bar.bring(op(4), clock, 40, flight(log, "b"))
    assert log == []
    assert bar.passed(0)
    assert log == ["a", "b"]


def test_bytes_may_be_expected_after_they_are_brought():
    log: list[str] = []
    bar, clock = make(), Clock(0)
    bar.bring(op(3), clock, 60, flight(log, "a"))
    bar.expect(op(2), clock, 60)
    assert bar.passed(0)


def test_too_many_arrivals():
    bar, clock = make(2), Clock(0)
    bar.arrive(op(2), clock, 1, Released())
    with pytest.raises(hazard.TooManyArrivals) as caught:
        bar.arrive(op(3), clock, 2, Released())
    assert caught.value.code == "hazard-too-many-arrivals"
    assert (
        "arrives 2 times at bar, 1 more than phase 0 takes: it has received 1 of its 2 arrivals" in caught.value.message
    )
    assert [loc.line for _, loc in caught.value.related] == [2]


def test_an_arrival_that_does_not_wait_for_copies():
    """Whether the phase is complete by then depends on how fast they are."""
    bar, clock, other = make(), Clock(0), Clock(1)
    bar.expect(op(2), clock, 8)
    bar.bring(op(3), clock, 8, flight([], "a"))
    with pytest.raises(hazard.TooManyArrivals):
        bar.arrive(op(4), clock, 1, Released())
    assert bar.passed(0)
    bar.learn(other, 0)
    with pytest.raises(hazard.TooManyArrivals):
        bar.arrive(op(5), clock, 1, Released())
    bar.arrive(op(6), other, 1, Released())
    assert bar.completed == 2


def test_too_many_and_too_few_bytes():
    bar, clock = make(), Clock(0)
    bar.expect(op(2), clock, 100)
    bar.bring(op(3), clock, 60, flight([], "a"))
    starved = bar.starved(op(7))
    assert starved is not None
    assert starved.code == "hazard-transaction-bytes-missing"
    assert "expects 100 bytes, but copies complete 60" in starved.message
    with pytest.raises(hazard.TransactionBytes) as caught:
        bar.bring(op(4), clock, 60, flight([], "b"))
    assert caught.value.code == "hazard-transaction-bytes"
    assert "complete 120 bytes in phase 0 of bar, which expects 100" in caught.value.message


def test_a_completion_that_does_not_come_after_a_wait():
    """The waiter of phase 0 may look again only when phase 1 is complete, and see the same parity as before phase 0."""
    bar, waiter, arriver = make(), Clock(0), Clock(1)
    at = waiter.tick()
    assert bar.awaited(op(5), waiter, 0, at) == 0
    bar.arrive(op(2), arriver, 1, arriver.release())
    bar.learn(waiter, 0)
    with pytest.raises(hazard.PhaseAliasing) as caught:
        bar.arrive(op(3), arriver, 1, arriver.release())
    assert caught.value.code == "hazard-phase-aliasing"
    assert "phase 1 of bar may complete before all threads of partition 0 have seen phase 0" in caught.value.message


def test_a_completion_after_a_wait():
    bar, waiter, arriver = make(), Clock(0), Clock(1)
    bar.awaited(op(5), waiter, 0, waiter.tick())
    bar.arrive(op(2), arriver, 1, arriver.release())
    bar.learn(waiter, 0)
    waiter.barrier()
    arriver.acquire(waiter.release())
    bar.arrive(op(3), arriver, 1, arriver.release())
    assert bar.completed == 2


def test_a_waiter_that_comes_too_late():
    bar, waiter, arriver = make(), Clock(0), Clock(1)
    for line in (2, 3):
        bar.arrive(op(line), arriver, 1, arriver.release())
    with pytest.raises(hazard.PhaseAliasing):
        bar.awaited(op(5), waiter, 0, waiter.tick())


@pytest.mark.parametrize(
    ("known", "parity", "phase"), [(0, 1, -1), (0, 0, 0), (1, 0, 0), (1, 1, 1), (2, 1, 1), (2, 0, 2)]
)
def test_a_parity_means_the_last_phase_or_the_next(known, parity, phase):
    bar, clock = make(), Clock(0)
    for _ in range(known):
        bar.arrive(op(2), clock, 1, clock.release())
        bar.learn(clock, bar.completed - 1)
    assert bar.awaited(op(5), clock, parity, clock.tick()) == phase


def test_after_invalidate():
    bar = make()
    bar.invalidate(op(4), Clock(0))
    with pytest.raises(hazard.BarrierInvalidated) as caught:
        bar.usable(op(5), 0)
    assert caught.value.code == "hazard-barrier-invalidated"
    busy, clock = make(), Clock(0)
    busy.bring(op(3), clock, 8, flight([], "a"))
    with pytest.raises(hazard.BarrierInvalidated) as caught:
        busy.invalidate(op(4), clock)
    assert caught.value.code == "hazard-barrier-invalidated-early"


def test_a_commit_has_arrived_when_its_operations_are_known_to_be_complete():
    bar, clock, pipe = make(2), Clock(0), 77
    bar.arrive_behind(op(3), clock, {pipe: 4}, flight([], "commit"))
    with pytest.raises(hazard.BarrierInvalidated) as caught:
        bar.invalidate(op(4), clock)
    assert caught.value.code == "hazard-barrier-invalidated-early"
    clock.known[pipe] = 4  # A later commit has been waited for.
    bar.invalidate(op(4), clock)
    assert bar.invalidated is not None


def test_what_a_phase_lacks():
    bar, clock, here, there = make(2), Clock(0), op(2), op(3)
    for arrival in (here, there, here):
        bar.arrive(arrival, clock, 1, clock.release())
    assert bar.missing(1, []) == "phase 1 of bar, which lacks 1 of 2 arrivals; the arrival at <kernel>:3 has not come"


def test_reports_count_as_the_author_does():
    """Each warp of four arrives for itself where the author has one arrival of two."""
    bar, clock = make(8, share=4), Clock(0)
    bar.arrive(op(2), clock, 4, clock.release())
    assert "lacks 1 of 2 arrivals" in bar.missing(0, [])
    with pytest.raises(hazard.TooManyArrivals) as caught:
        bar.arrive(op(3), clock, 8, clock.release())
    words = "arrives 2 times at bar, 1 more than phase 0 takes: it has received 1 of its 2 arrivals"
    assert words in str(caught.value)


def test_what_a_first_phase_lacks():
    bar, clock = make(2), Clock(0)
    assert bar.missing(0, []) == "phase 0 of bar, which lacks 2 of 2 arrivals; nothing in the kernel arrives at it"
    bar.bring(op(4), clock, 64, flight([], "a"))
    bar.arrive(op(2), clock, 1, clock.release())
    unexpected = "lacks 1 of 2 arrivals and an expect of the 64 bytes that copies complete beyond those expected"
    assert bar.missing(0, [op(2), op(3)]).endswith(
        f"{unexpected}; the arrival at <kernel>:2 or <kernel>:3 has not come"
    )
    assert bar.missing(0, bar.arrivals).endswith(f"{unexpected}; it has had one at <kernel>:2")
