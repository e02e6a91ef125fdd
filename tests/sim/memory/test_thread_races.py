"""Races between threads of a block: on shared and on global memory, between lines and within one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.build import pointer
from tests.sim.by_threads import Threads, run
from weft.errors import hazard
from weft.ir.core import Func
from weft.ir.types import ScalarType, float32, int32, int64
from weft.ops import arith, control, memory, regs, thread

N = 32


def out() -> np.ndarray:
    return np.zeros(N, np.int32)


def made(block=(8, 4), dtype=int32, count=N) -> tuple[Threads, object]:
    k = Threads(("out", pointer(int32)), block=block)
    return k, k.shared(dtype, count)


def neighbour(k: Threads):
    return k.rem(k.add(k.tid, k.int(1)), N)


@pytest.mark.parametrize("barrier", [True, False])
def test_a_read_of_what_another_thread_wrote(barrier):
    k, smem = made()
    k.at(4).write(smem, k.tid, k.tid)
    if barrier:
        k.at(5).barrier()
    k.at(6).inside("s.tile[2, 2](0, 1)", k.tid, sizes=(N,))
    k.put(k.params[0], k.tid, k.read(smem, neighbour(k)))
    found = out()
    if barrier:
        run(k.done(), found)
        np.testing.assert_array_equal(found, (np.arange(N) + 1) % N)
        return
    with pytest.raises(hazard.ThreadRace) as caught:
        run(k.done(), found)
    error = caught.value
    assert error.code == "hazard-threads-race"
    assert error.message == (
        "program (0, 0, 0): thread (0, 0, 0) reads smem[1] through s.tile[2, 2](0, 1), which thread (1, 0, 0) wrote, and "
        "nothing orders the two threads"
    )
    assert error.fix == "call gl.syncwarp() between the first line and the second line"
    assert (error.first.line, error.second.line) == (4, 6)
    assert error.related[0][0] == "thread (1, 0, 0) wrote it here"
    assert error.partitions == ("thread (1, 0, 0)", "thread (0, 0, 0)")
    assert error.buffer == "smem"


@pytest.mark.parametrize("barrier", [True, False])
def test_a_write_of_what_another_thread_read(barrier):
    """The reader of an element is remembered, though its owner read it as well, later."""
    k, smem = made()
    k.write(smem, k.tid, k.tid)
    k.barrier()
    k.at(7)
    found = k.read(smem, neighbour(k))
    own = k.at(8).read(smem, k.tid)
    if barrier:
        k.barrier()
    k.at(9).write(smem, k.tid, k.add(found, own))
    if barrier:
        run(k.done(), out())
        return
    with pytest.raises(hazard.ThreadRace, match=r"writes smem\[0\], which several threads read") as caught:
        run(k.done(), out())
    assert caught.value.second.line == 9


def test_what_a_thread_does_alone_is_in_order():
    k, smem = made()
    k.write(smem, k.tid, k.tid)
    k.write(smem, k.tid, k.add(k.read(smem, k.tid), k.int(5)))
    k.put(k.params[0], k.tid, k.read(smem, k.tid))
    found = out()
    report = run(k.done(), found)
    np.testing.assert_array_equal(found, np.arange(N) + 5)
    assert report.advice == []


def test_stores_of_two_lines():
    def kernel(second):
        k, smem = made()
        k.at(3).write(smem, k.tid, k.int(7))
        k.at(4).write(smem, neighbour(k), second(k))
        return k.done()

    report = run(kernel(lambda k: k.int(7)), out())
    (advice,) = report.advice
    assert advice.rule == "equal-stores"
    assert "several threads store equal values to the same elements of smem" in advice.message
    assert advice.loc.line == 4
    with pytest.raises(hazard.ThreadRace, match=r"thread \(0, 0, 0\) writes smem\[1\], which thread \(1, 0, 0\) wrote"):
        run(kernel(lambda k: k.tid), out())


@pytest.mark.parametrize("dtype", [int32, int64])
def test_stores_of_one_line(dtype):
    def kernel(value):
        k, smem = made(dtype=dtype)
        k.shared(int32, 1)
        k.at(3).inside("s.distribute[2, 2](lane)", k.tid, sizes=(N,))
        number = k.emit(arith.cast, value(k), dtype=dtype) if dtype != int32 else value(k)
        k.write(smem, k.emit(arith.div, k.tid, k.int(2)), number)
        return k.done()

    report = run(kernel(lambda k: k.emit(arith.div, k.tid, k.int(2))), out())
    (advice,) = report.advice
    assert advice.rule == "equal-stores"
    with pytest.raises(hazard.ThreadRace) as caught:
        run(kernel(lambda k: k.tid), out())
    assert caught.value.code == "hazard-shared-store-race"
    wanted = "thread (0, 0, 0) and thread (1, 0, 0) write smem[0] through s.distribute[2, 2](lane) by one store"
    assert wanted in caught.value.message


def test_one_thread_may_store_an_element_twice():
    k, smem = made()
    k.write(smem, k.tid, k.emit(regs.concat, k.int(1), k.tid), offsets=(0, 0))
    k.put(k.params[0], k.tid, k.read(smem, k.tid))
    found = out()
    assert run(k.done(), found).advice == []
    np.testing.assert_array_equal(found, np.arange(N))


def test_atomics_do_not_race_with_one_another():
    def kernel(barrier):
        k, smem = made()
        k.write(smem, k.tid, k.int(0))
        k.barrier()
        for _ in range(2):
            k.at(5).emit(thread.atomic_shared, smem, k.int(0), k.int(1), None, kind="add")
        if barrier:
            k.barrier()
        k.at(6).put(k.params[0], k.tid, k.read(smem, k.int(0)))
        return k.done()

    found = out()
    run(kernel(True), found)
    assert found.tolist() == [2 * N] * N
    with pytest.raises(hazard.ThreadRace, match=r"reads smem\[0\], which several threads wrote"):
        run(kernel(False), found)


def test_an_atomic_of_another_thread_is_not_forgotten():
    """Thread 1, then thread 0 update a cell; thread 0 reads it."""
    k, smem = made()
    k.write(smem, k.tid, k.int(0))
    k.barrier()
    for number in (1, 0):
        k.emit(thread.atomic_shared, smem, k.int(0), k.int(1), k.cmp("eq", k.tid, k.int(number)), kind="add")
    only = k.cmp("eq", k.tid, k.int(0))
    k.put(k.params[0], k.tid, k.read(smem, k.int(0), only), only)
    with pytest.raises(hazard.ThreadRace, match="several threads"):
        run(k.done(), out())


@pytest.mark.parametrize("barrier", [True, False])
def test_a_loop_needs_a_barrier_at_its_end(barrier):
    """`s[t] = i; barrier; use s[t + 1]` again and again."""
    k, smem = made()
    with k.region([ScalarType(int32)]) as body:
        k.at(5).write(smem, k.tid, k.add(k.tid, body.args[0]))
        k.at(6).barrier()
        k.at(7).put(k.params[0], k.tid, k.read(smem, neighbour(k)))
        if barrier:
            k.at(8).barrier()
        k.emit(control.yield_)
    k.emit(control.for_, k.int(0), k.int(3), k.int(1), descending=False, regions=(body.done,))
    if barrier:
        run(k.done(), out())
        return
    with pytest.raises(hazard.ThreadRace) as caught:
        run(k.done(), out())
    assert (caught.value.first.line, caught.value.second.line) == (7, 5)


def test_the_same_line_against_itself():
    k, smem = made()
    with k.region([ScalarType(int32)]) as body:
        k.at(5).write(smem, k.rem(k.add(k.tid, body.args[0]), N), k.tid)
        k.emit(control.yield_)
    k.emit(control.for_, k.int(0), k.int(2), k.int(1), descending=False, regions=(body.done,))
    with pytest.raises(hazard.ThreadRace) as caught:
        run(k.done(), out())
    assert (
        caught.value.fix
        == "call gl.syncwarp() before this line runs again: all threads of a warp must run the same number of iterations"
    )


def test_inactive_threads_race_with_nobody():
    """The two halves of a branch use elements of their own."""
    k, smem = made()
    low = k.below(k.tid, 16)
    with k.region() as then:
        k.write(smem, k.tid, k.int(1))
        k.put(k.params[0], k.tid, k.read(smem, k.tid))
        k.emit(control.yield_)
    with k.region() as orelse:
        k.write(smem, k.sub(k.int(47), k.tid), k.int(2))
        k.emit(control.yield_)
    k.emit(control.if_, low, regions=(then.done, orelse.done))
    found = out()
    run(k.done(), found)
    assert found.tolist() == [1] * 16 + [0] * 16


def test_without_hazards_nothing_is_checked():
    k, smem = made()
    k.write(smem, k.tid, k.tid)
    k.put(k.params[0], k.tid, k.read(smem, neighbour(k)))
    found = out()
    run(k.done(), found, hazards=False)
    np.testing.assert_array_equal(found, (np.arange(N) + 1) % N)


def test_many_reads_between_barriers():
    """More reads than are kept for later, and a write that clashes with the first of them."""
    k, smem = made()
    k.write(smem, k.tid, k.tid)
    k.barrier()
    k.at(3)
    first = k.read(smem, neighbour(k))
    with k.region([ScalarType(int32)]) as body:
        k.at(4).read(smem, k.tid)
        k.emit(control.yield_)
    k.emit(control.for_, k.int(0), k.int(1500), k.int(1), descending=False, regions=(body.done,))
    k.at(5).write(smem, k.tid, first)
    with pytest.raises(hazard.ThreadRace, match="several threads read"):
        run(k.done(), out())


# Global memory


def globally(barrier: bool, *steps) -> Func:
    k = Threads(("x", pointer(int32)), ("seen", pointer(int32)), block=(8, 4))
    for line, step in enumerate(steps, 10):
        step(k.at(line))
        if barrier:
            k.barrier()
    return k.done()


def writes(shift):
    return lambda k: k.put(k.params[0], k.rem(k.add(k.tid, k.int(shift)), N), k.tid)


def reads(shift):
    return lambda k: k.put(k.params[1], k.tid, k.get(k.params[0], k.rem(k.add(k.tid, k.int(shift)), N)))


def updates(k):
    at = k.one(k.params[0])
    k.emit(memory.atomic_regs, at, k.one(k.tid), None, kind="add", order="relaxed", scope="gpu")


CLASHES = {
    "read after write": (writes(0), reads(1)),
    "write after read": (reads(1), writes(0)),
    "write after two reads": (reads(1), reads(0), writes(0)),
    "write after write": (writes(0), writes(1)),
    "read after atomic": (updates, reads(0)),
}


@pytest.mark.parametrize("name", CLASHES)
def test_global_memory_between_barriers(name):
    steps = CLASHES[name]
    run(globally(True, *steps), out(), out())
    with pytest.raises(hazard.GlobalRace) as caught:
        run(globally(False, *steps), out(), out())
    error = caught.value
    assert error.code == "hazard-global-threads-race"
    assert error.second.line == 10 + len(steps) - 1
    assert "thread (" in error.message
    assert error.fix == "call gl.syncwarp() between the first line and the second line"


def test_a_thread_uses_its_own_elements_of_global_memory():
    assert run(globally(False, writes(0), reads(0), writes(0)), out(), out()).advice == []


def test_stores_of_one_line_to_one_element_of_global_memory():
    report = run(globally(False, lambda k: k.put(k.params[0], k.int(3), k.int(1))), out(), out())
    assert [advice.rule for advice in report.advice] == ["equal-stores"]
    with pytest.raises(hazard.GlobalRace) as caught:
        run(globally(False, lambda k: k.put(k.params[0], k.int(3), k.tid)), out(), out())
    assert caught.value.code == "hazard-global-store-race"


def test_bits_of_floats_decide_whether_stores_are_equal():
    """Zeros of two signs are different stores."""
    k = Threads(block=(2,))
    smem = k.shared(float32, 1)
    sign = k.emit(arith.select, k.below(k.tid, 1), k.number(0.0, float32), k.number(-0.0, float32))
    k.write(smem, k.int(0), sign)
    with pytest.raises(hazard.ThreadRace):
        run(k.done())
