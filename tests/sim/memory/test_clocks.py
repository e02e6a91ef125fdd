"""Who knows what: barriers, fences, releases and acquires on clocks alone."""

from __future__ import annotations

from weft.sim.memory.clocks import Clock, Released, join

BULK, COPY, BAR = 10, 11, 12


def test_join_keeps_the_greater_count():
    counts = {0: 3, 1: 1}
    join(counts, {0: 2, 1: 4, 2: 1})
    assert counts == {0: 3, 1: 4, 2: 1}


def test_a_barrier_makes_everything_known_to_all():
    clock = Clock(0)
    event = clock.tick()
    assert clock.open
    assert clock.known.get(0, 0) <= event
    join(clock.each, {COPY: 2})
    join(clock.elected, {BULK: 1})
    clock.barrier()
    assert clock.known == {0: 1, COPY: 2, BULK: 1}
    assert not clock.open


def test_a_release_publishes_what_the_elected_thread_knows():
    clock = Clock(0)
    clock.tick()
    join(clock.each, {COPY: 2})
    join(clock.elected, {BULK: 1})
    assert clock.release().known == {BULK: 1}
    clock.barrier()
    clock.tick()
    assert clock.release().known == {0: 1, COPY: 2, BULK: 1}
    assert clock.release_all().known == {0: 2, COPY: 2, BULK: 1}


def test_acquire_is_transitive():
    first, second, third = Clock(0), Clock(1), Clock(2)
    first.tick()
    first.barrier()
    second.acquire(first.release())
    second.tick()
    second.barrier()
    third.acquire(second.release())
    assert third.known == {0: 1, 1: 1}


def test_a_fence_counts_for_others_only_after_a_barrier():
    clock = Clock(0)
    clock.tick()
    assert clock.unfenced
    clock.fence()
    assert clock.own_fenced == {0: 1}
    assert clock.fenced.get(0, 0) == 0
    clock.barrier()
    assert clock.fenced == {0: 1}
    assert not clock.unfenced


def test_a_fence_orders_what_is_known_at_the_time():
    producer, consumer = Clock(0), Clock(1)
    producer.tick()
    producer.barrier()
    consumer.acquire(producer.release())
    assert consumer.fenced == {}
    consumer.fence()
    assert consumer.fenced == {0: 1}
    producer.tick()
    producer.barrier()
    consumer.acquire(producer.release())
    assert consumer.fenced == {0: 1}
    assert consumer.unfenced


def test_releases_gather():
    gathered = Released()
    gathered.join(Released({0: 3}, {0: 1}))
    gathered.join(Released({0: 2, BAR: 1}, {0: 2}))
    assert gathered.known == {0: 3, BAR: 1}
    assert gathered.fenced == {0: 2}
