"""What orders programs: strong reads whose values decide something. Right protocols pass and wrong ones are found."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.sim.both import verdict
from weft import language as gl
from weft.errors import Hazard, hazard

LINE = gl.BlockedLayout([1], [32], [4], [0])


def zeros(n: int = 1) -> np.ndarray:
    return np.zeros(n, np.int32)


def raced(kernel, arguments, grid=4, **options):
    found = verdict(kernel, arguments, grid=grid, **options)
    assert type(found) is hazard.GlobalRace, found
    return found


def right(kernel, arguments, grid=4, **options):
    assert verdict(kernel, arguments, grid=grid, **options) is None


# What an atomic's result decides


@weft.jit
def zeroed_then_summed(x, sem: gl.constexpr):
    if gl.program_id(0) == 0:
        gl.store(x, 0)
    gl.atomic_add(x, 1, sem=sem)


@pytest.mark.parametrize("sem", ["relaxed", "acq_rel"])
def test_an_atomic_whose_result_decides_nothing_orders_nothing(sem):
    found = raced(zeroed_then_summed, lambda: (zeros(), sem))
    assert "updates x[0], which program (0, 0, 0) wrote" in found.message


@weft.jit
def last_block(partial, count, total, way: gl.constexpr, sem: gl.constexpr):
    me, n = gl.program_id(0), gl.num_programs(0)
    gl.store(partial + me, me)
    old = gl.atomic_add(count, 1, sem=sem)
    if way == "inside":
        if old == n - 1:
            result = 0
            for i in range(n):
                result += gl.load(partial + i)
            gl.store(total, result)
    elif way == "behind":
        last = 0
        if old == n - 1:
            last = 1
        if last == 1:
            gl.store(total, gl.load(partial + (me + 1) % n))
    elif way == "masked":
        value = gl.load(partial + (me + 1) % n, mask=old == n - 1, other=0)
        gl.store(total, value, mask=old == n - 1)
    elif way == "through memory":
        gl.store(count + 1 + me, old)
        gl.barrier()
        if gl.load(count + 1 + me) == n - 1:
            gl.store(total, gl.load(partial + (me + 1) % n))
    elif way == "addressed":
        gl.store(count + 1 + me, gl.load(partial + old * 0 + (me + old) % 1))
    elif way == "elsewhere":
        if old == n - 1:
            gl.store(total, 1)
        gl.load(partial + (me + 1) % n, volatile=True)
    else:
        gl.store(total + me, old + gl.load(partial + (me + 1) % n))


@pytest.mark.parametrize("way", ["inside", "behind", "masked", "through memory"])
def test_the_last_program_reads_what_all_wrote(way):
    right(last_block, lambda: (zeros(4), zeros(5), zeros(4), way, "acq_rel"))
    raced(last_block, lambda: (zeros(4), zeros(5), zeros(4), way, "relaxed"))


@pytest.mark.parametrize("way", ["elsewhere", "value only"])
def test_who_does_not_look_whether_it_is_last(way):
    raced(last_block, lambda: (zeros(4), zeros(5), zeros(4), way, "acq_rel"))


# Grid barriers, locks, tickets


@weft.jit
def grid_barrier(x, out, count, go, sem: gl.constexpr):
    """The last to come opens the gate, the others wait there; all go on."""
    me, n = gl.program_id(0), gl.num_programs(0)
    gl.store(x + me, me)
    if gl.atomic_add(count, 1) == n - 1:
        gl.store(count, 0)
        gl.store(go, 1, sem="release")
    else:
        while gl.load(go, sem=sem) == 0:
            pass
    gl.store(out + me, gl.load(x + (me + 1) % n))


def test_a_grid_barrier():
    right(grid_barrier, lambda: (zeros(4), zeros(4), zeros(), zeros(), "acquire"))
    raced(grid_barrier, lambda: (zeros(4), zeros(4), zeros(), zeros(), "relaxed"))


@weft.jit
def ticket_lock(data, next_ticket, serving, release: gl.constexpr):
    mine = gl.atomic_add(next_ticket, 1, sem="relaxed")
    while gl.load(serving, sem="acquire") != mine:
        pass
    gl.store(data, gl.load(data) + 1)
    gl.store(serving, mine + 1, sem=release)


def test_a_ticket_lock():
    right(ticket_lock, lambda: (zeros(), zeros(), zeros(), "release"))
    raced(ticket_lock, lambda: (zeros(), zeros(), zeros(), "relaxed"))


@weft.jit
def lock(data, held, how: gl.constexpr):
    if how == "cas":
        while gl.atomic_cas(held, 0, 1, sem="acquire") != 0:
            pass
    elif how == "try":
        got = 1
        while got != 0:
            while gl.load(held, sem="relaxed") != 0:
                pass
            got = gl.atomic_xchg(held, 1, sem="acquire")
    else:
        gl.atomic_xchg(held, 1, sem="acquire")
    gl.store(data, gl.load(data) + 1)
    gl.atomic_xchg(held, 0, sem="release")


@pytest.mark.parametrize("how", ["cas", "try"])
def test_a_lock(how):
    right(lock, lambda: (zeros(), zeros(), how))


def test_a_lock_that_nobody_looks_at():
    raced(lock, lambda: (zeros(), zeros(), "none"))


@weft.jit
def polled(x, flag, out, poll: gl.constexpr, then: gl.constexpr):
    """A cheap relaxed poll, and one acquire when it has succeeded."""
    if gl.program_id(0) == 0:
        gl.store(x, 5)
        gl.store(flag, 1, sem="release")
    else:
        while gl.load(flag, sem=poll) == 0:
            pass
        if then:
            gl.load(flag, sem="acquire")
        gl.store(out, gl.load(x))


def test_an_acquire_after_a_relaxed_poll():
    right(polled, lambda: (zeros(), zeros(), zeros(), "relaxed", True), grid=2)
    right(polled, lambda: (zeros(), zeros(), zeros(), "acquire", False), grid=2)
    raced(polled, lambda: (zeros(), zeros(), zeros(), "relaxed", False), grid=2)


@weft.jit
def spun(x, flag, out):
    if gl.program_id(0) == 0:
        gl.store(x, 5)
        gl.atomic_xchg(flag, 1)
    else:
        while gl.load(flag, volatile=True) == 0:
            pass
        gl.store(out, gl.load(x))


def test_a_volatile_load_orders_nothing():
    found = raced(spun, lambda: (zeros(), zeros(), zeros()), grid=2)
    assert 'sem="acquire"' in found.fix
    assert found.related[0][1].line < found.loc.line


@weft.jit
def told_on(x, flags, out, passes: gl.constexpr):
    """Program 1 hears of program 0 and tells program 2, whether it has looked at what it heard or not."""
    me = gl.program_id(0)
    if me == 0:
        gl.store(x, 5)
        gl.store(flags, 1, sem="release")
    elif me == 1:
        if passes == "looked":
            while gl.load(flags, sem="acquire") == 0:
                pass
            gl.store(flags + 1, 1, sem="release")
        elif passes == "the value":
            heard = gl.load(flags, sem="acquire")
            gl.store(flags + 1, heard + 1, sem="release")
        else:
            gl.load(flags, sem="acquire")
            gl.store(flags + 1, 2, sem="release")
    else:
        seen = gl.load(flags + 1, sem="acquire")
        if passes == "looked":
            while seen == 0:
                seen = gl.load(flags + 1, sem="acquire")
        if seen == 2 or passes == "looked":
            gl.store(out, gl.load(x))


def test_what_is_told_on():
    right(told_on, lambda: (zeros(), zeros(2), zeros(), "looked"), grid=3)
    right(told_on, lambda: (zeros(), zeros(2), zeros(), "the value"), grid=3)
    with pytest.raises(hazard.GlobalRace):
        told_on[(3,)](zeros(), zeros(2), zeros(), "nothing")


@weft.jit
def overwritten(x, flag, out, order: gl.constexpr):
    """Program 1 raises the flag too, and has nothing to tell."""
    me = gl.program_id(0)
    if me == 0:
        gl.store(x, 5)
        gl.store(flag, 1, sem="release")
    elif me == 1:
        gl.store(flag, 1, sem=order)
    else:
        while gl.load(flag, sem="acquire") == 0:
            pass
        gl.store(out, gl.load(x))


@pytest.mark.parametrize("order", ["relaxed", "release"])
def test_a_value_tells_of_its_writer_only(order):
    with pytest.raises(hazard.GlobalRace):
        overwritten[(3,)](zeros(), zeros(), zeros(), order)


# Weak accesses beside strong ones


@weft.jit
def mixed(x, first: gl.constexpr, second: gl.constexpr):
    if gl.program_id(0) == 0:
        if first == "store":
            gl.store(x, 1)
        elif first == "load":
            gl.store(x + 1, gl.load(x))
        else:
            gl.store(x, 1, sem="release")
    elif second == "load":
        gl.store(x + 2, gl.load(x, sem="acquire"))
    elif second == "atomic":
        gl.atomic_add(x, 1)
    elif second == "weak load":
        gl.store(x + 2, gl.load(x))
    else:
        gl.store(x, 1, sem="relaxed")


@pytest.mark.parametrize(
    ("first", "second"),
    [("store", "load"), ("store", "store"), ("store", "atomic"), ("load", "store"), ("strong", "weak load")],
)
@pytest.mark.parametrize("programs", [(0, 1), (1, 0)])
def test_a_weak_access_races_with_a_strong_one(first, second, programs):
    with weft.simulate(programs=programs), pytest.raises(hazard.GlobalRace):
        mixed[(2,)](zeros(3), first, second)


@pytest.mark.parametrize("second", ["load", "store", "atomic"])
def test_strong_accesses_do_not_race(second):
    right(mixed, lambda: (zeros(3), "strong", second), grid=2)


def test_a_strong_store_is_called_a_write():
    with pytest.raises(hazard.GlobalRace, match=r"reads x\[0\], which program \(0, 0, 0\) wrote"):
        mixed[(2,)](zeros(3), "strong", "weak load")


# Between the partitions and blocks of a program


@weft.jit
def scoped(x, flag, out, scope: gl.constexpr):
    if gl.program_id(0) == 0:
        gl.store(x, 5)
        gl.store(flag, 1, sem="release", scope=scope)
    else:
        while gl.load(flag, sem="acquire") == 0:
            pass
        gl.store(out, gl.load(x))


@pytest.mark.parametrize("scope", ["cta", "cluster"])
def test_a_scope_that_does_not_reach_the_other_program(scope):
    right(scoped, lambda: (zeros(), zeros(), zeros(), "sys"), grid=2)
    raced(scoped, lambda: (zeros(), zeros(), zeros(), scope), grid=2)


@weft.jit
def met_again(x, out, count, buffers: gl.constexpr):
    """Two meetings of all programs; with one buffer, who is late at the first reads what others write before the second."""
    me, n = gl.program_id(0), gl.num_programs(0)
    for turn in range(2):
        row = turn % buffers * 4
        gl.store(x + row + me, me + turn)
        gl.atomic_add(count, 1)
        while gl.load(count, sem="acquire") < n * (turn + 1):
            pass
        gl.store(out + turn * 4 + me, gl.load(x + row + (me + 1) % n))


def test_who_is_late_is_overtaken_under_some_seed():
    def found(buffers, seed):
        with weft.simulate(seed=seed, keep_going=True):
            return met_again[(4,)](zeros(8), zeros(8), zeros(), buffers).report.hazards

    assert not any(found(2, seed) for seed in range(6))
    assert any(type(each) is hazard.GlobalRace for seed in range(1, 4) for each in found(1, seed))


# One thread speaks for others, or each for itself


@weft.jit
def spoken_for(x, flags, out, before: gl.constexpr, behind: gl.constexpr, reads: gl.constexpr):
    me = gl.thread_idx.x
    if gl.block_idx.x == 0:
        gl.store(x + me, me)
        if before == "barrier":
            gl.barrier()
        elif before == "warp":
            gl.syncwarp()
        if before == "each":
            gl.store(flags + me, 1, sem="release")
        elif me == 0:
            gl.store(flags, 1, sem="release")
    else:
        if behind == "each":
            while gl.load(flags + me * (before == "each"), sem="acquire") == 0:
                pass
        elif me == 0:
            while gl.load(flags, sem="acquire") == 0:
                pass
        if behind == "barrier":
            gl.barrier()
        elif behind == "warp":
            gl.syncwarp()
        if reads == "own":
            gl.store(out + me, gl.load(x + me))
        elif reads == "first":
            if me == 0:
                gl.store(out, gl.load(x))
        else:
            gl.store(out + me, gl.load(x + (me + 1) % gl.block_dim.x))


def hazards_of_threads(block: int, *ways: str) -> list[Hazard]:
    with weft.simulate(keep_going=True):
        return spoken_for[(2,)](zeros(block), zeros(block), zeros(block), *ways, block=block).report.hazards


@pytest.mark.parametrize(
    ("block", "before", "behind", "reads"),
    [
        (64, "barrier", "barrier", "next"),
        (64, "barrier", "each", "next"),
        (32, "warp", "warp", "next"),
        (32, "warp", "each", "next"),
        (64, "each", "each", "own"),
        (16, "each", "each", "own"),
        (64, "", "", "first"),
        (64, "", "barrier", "first"),
    ],
)
def test_threads_that_meet_who_speaks_for_them(block, before, behind, reads):
    assert hazards_of_threads(block, before, behind, reads) == []


@pytest.mark.parametrize(
    ("block", "before", "behind", "reads"),
    [
        (64, "", "barrier", "next"),
        (64, "barrier", "", "next"),
        (64, "barrier", "", "own"),
        (64, "warp", "barrier", "next"),
        (64, "barrier", "warp", "next"),
        (32, "", "warp", "next"),
        (32, "warp", "", "next"),
        (16, "each", "each", "next"),
    ],
)
def test_threads_that_nobody_speaks_for(block, before, behind, reads):
    found = hazards_of_threads(block, before, behind, reads)
    assert [type(each) for each in found] == [hazard.GlobalRace]
    assert "gl.barrier() stands between it and the others" in found[0].fix
