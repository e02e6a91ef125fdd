"""Cluster launch control: programs that claim others, and what goes wrong between a request and its response."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.build import Kernel, pointer, run
from weft.errors import hazard
from weft.ir.types import ScalarType, int1, int32, int64
from weft.layout import MBarrierLayout, SwizzledSharedLayout
from weft.ops import arith, clc, cluster, control, mbarrier, memory, program, shared, sync

PLAIN = SwizzledSharedLayout(1, 1, 1, [0])
PAIR = {"num_ctas": 2}


class Asking(Kernel):
    """A kernel with an answer and a barrier in shared memory."""

    def __init__(self, **attrs) -> None:
        super().__init__(("out", pointer(int32)), **attrs)
        cga = [[1 << bit] for bit in range(attrs.get("num_ctas", 1).bit_length() - 1)]
        self.result = self.emit(shared.alloc, element=int64, shape=(2,), layout=PLAIN, tag=1, name="result")
        self.bar = self.emit(
            shared.alloc, element=int64, shape=(1 << len(cga),), layout=MBarrierLayout(cga or None), tag=2, name="bar"
        )
        self.emit(mbarrier.init, self.bar, count=1)
        self.hand_on()

    def ask(self, result=None, multicast: bool = False) -> None:
        self.emit(mbarrier.expect, self.bar, None, bytes=16)
        self.emit(clc.try_cancel, result or self.result, self.bar, multicast=multicast)

    def wait(self, phase) -> None:
        self.emit(mbarrier.wait, self.bar, self.number(phase) if isinstance(phase, int) else phase, None)

    def answer(self) -> tuple:
        """Whether there was one, and its index along x."""
        halves = self.emit(clc.load, self.result)
        return self.emit(clc.is_canceled, *halves), self.emit(clc.program_id, *halves, dim=0)

    def hand_on(self) -> None:
        """The answer's memory may be written again."""
        self.emit(sync.fence_async)
        self.emit(sync.barrier)

    def count(self, at) -> None:
        self.emit(memory.atomic, self.address(self.params[0], at), self.number(1), None, kind="add")


def taking_over(multicast: bool = False, **attrs):
    """Each program counts itself, and then every program that it gets, until none is left."""
    k = Asking(**attrs)
    pid = k.emit(program.program_id, axis=0)
    carried = [ScalarType(int32), ScalarType(int1), ScalarType(int32)]
    with k.region(carried) as condition:
        k.emit(control.condition, condition.args[1], *condition.args)
    with k.region(carried) as body:
        at, _, phase = body.args
        k.count(at)
        if multicast:
            k.emit(cluster.arrive)
            k.emit(cluster.wait)
        k.ask(multicast=multicast)
        k.wait(phase)
        taken, x = k.answer()
        k.hand_on()
        with k.region() as then:
            k.emit(control.yield_, x)
        with k.region() as orelse:
            k.emit(control.yield_, at)
        following = k.emit(control.if_, taken, regions=(then.done, orelse.done))
        k.emit(control.yield_, following, taken, k.emit(arith.xor, phase, k.number(1)))
    true = k.cmp("eq", pid, pid)
    k.emit(control.while_, pid, true, k.number(0), regions=(condition.done, body.done))
    return k.done()


@pytest.mark.parametrize("order", [{}, {"schedule": "early"}, {"seed": 3}], ids=str)
@pytest.mark.parametrize("resident", [1, 2, 3, 8, 40])
def test_each_program_is_done_once(resident, order):
    out = np.zeros(21, np.int32)
    report = run(taking_over(), out, grid=(21,), max_resident=resident, **order)
    assert out.tolist() == [1] * 21
    assert report.programs + report.canceled == 21
    assert report.programs == min(resident, 21)


def test_some_are_left_to_take_over_even_on_a_large_gpu():
    out = np.zeros(21, np.int32)
    report = run(taking_over(), out, grid=(21,))
    assert (report.programs, report.canceled) == (5, 16)
    assert str(report).startswith("5 programs and 16 claimed, ")


@pytest.mark.parametrize("seed", [0, 1])
def test_a_cluster_takes_over_clusters(seed):
    """The first block asks, the answer comes to both; each element is counted by the two blocks of its program."""
    out = np.zeros(9, np.int32)
    report = run(taking_over(multicast=True, **PAIR), out, grid=(9,), seed=seed, max_resident=2)
    assert (report.programs, report.canceled) == (2, 7)
    assert out.tolist() == [1] * 9


def test_programs_of_three_axes_and_those_chosen():
    """Answers name programs of the launch, in its order, along all axes."""
    k = Asking()
    k.ask()
    k.wait(0)
    halves = k.emit(clc.load, k.result)
    for dim in range(3):
        at = k.add(k.number(dim), k.number(1)) if dim else k.number(1)
        k.store(k.params[0], at, k.emit(clc.program_id, *halves, dim=dim))
    k.store(k.params[0], k.number(0), k.emit(arith.cast, k.emit(clc.is_canceled, *halves), dtype=int32))
    out = np.zeros(4, np.int32)
    chosen = [(0, 0, 0), (70000, 3, 5)]
    run(k.done(), out, grid=(70001, 4, 6), programs=chosen)
    assert out.tolist() == [1, 70000, 3, 5]


# What goes wrong


def refused(kind, code: str, k: Kernel, grid: int = 4, **options) -> str:
    """The message of the hazard that a kernel meets, whenever answers come; programs start in the order of the grid."""
    func, found = k.done(), set()
    for order in ({}, {"schedule": "early"}, {"seed": 1}):
        with pytest.raises(kind) as caught:
            run(
                func, np.zeros(grid, np.int32), grid=(grid,), **{"max_resident": 1, "order": "grid", **order, **options}
            )
        assert caught.value.code == code
        found.add(str(caught.value))
    (message,) = found
    return message


def test_an_answer_is_read_before_it_has_come():
    k = Asking()
    k.at(3).ask()
    k.at(4).answer()
    message = refused(hazard.AnswerInFlight, "clc-in-flight", k)
    assert "the block reads result while the response that the block requested is in flight" in message
    assert "<kernel>:3" in message
    assert "<kernel>:4" in message


def test_the_memory_of_an_answer_is_asked_for_twice():
    k = Asking()
    k.emit(mbarrier.expect, k.bar, None, bytes=32)
    for _ in range(2):
        k.emit(clc.try_cancel, k.result, k.bar)
    message = refused(hazard.AnswerInFlight, "clc-in-flight", k)
    assert "the block requests a response in result while" in message


def test_an_answer_is_overwritten_while_threads_may_read_it():
    """What the elected thread does next is not ordered after what others read, before they have met."""
    k = Asking()
    k.ask()
    k.wait(0)
    k.answer()
    k.emit(sync.fence_async)
    k.ask()
    message = refused(hazard.ThreadRace, "hazard-thread-race", k)
    assert "the block requests a response in result, which other threads of the block read" in message


def test_an_answer_is_overwritten_without_a_fence():
    k = Asking()
    k.ask()
    k.wait(0)
    k.answer()
    k.emit(sync.barrier)
    k.ask()
    assert "requests a response in result through the async proxy" in refused(
        hazard.MissingFence, "hazard-missing-fence", k
    )


def asking_again(wait: bool) -> Kernel:
    """A kernel that requests twice; with `wait` it knows the first response, which is none if no program is left."""
    k = Asking()
    other = k.emit(shared.alloc, element=int64, shape=(2,), layout=PLAIN, tag=3, name="other")
    if wait:
        k.at(7).ask()
        k.wait(0)
        k.answer()
        k.hand_on()
        k.at(9).ask()
    else:
        k.emit(mbarrier.expect, k.bar, None, bytes=32)
        for result in (k.result, other):
            k.emit(clc.try_cancel, result, k.bar)
        k.wait(0)
    return k


def test_nobody_asks_again_after_none_was_left():
    message = refused(hazard.LaunchControlMisuse, "clc-after-none", asking_again(wait=True), grid=1)
    assert "the block requests another program after a response has said that none is left" in message
    assert "<kernel>:7" in message
    assert "<kernel>:9" in message


def test_two_requests_may_be_under_way():
    report = run(asking_again(wait=False).done(), np.zeros(1, np.int32))
    assert (report.programs, report.canceled) == (1, 0)


@pytest.mark.parametrize("waited", [False, True])
def test_a_program_is_taken_over_and_forgotten(waited):
    k = Asking()
    k.ask()
    if waited:
        k.wait(0)
    message = refused(hazard.LaunchControlMisuse, "clc-lost", k)
    assert (
        "program (0, 0, 0) has claimed program (1, 0, 0), which will not be launched, but at its end no thread"
        in message
    )


def test_the_next_answer_comes_over_one_that_nobody_has_read():
    k = Asking()
    k.ask()
    k.wait(0)
    k.hand_on()
    k.ask()
    assert "but when the next one is requested no thread" in refused(hazard.LaunchControlMisuse, "clc-lost", k)


def test_an_answer_at_no_multiple_of_16_bytes():
    k = Asking()
    results = k.emit(shared.alloc, element=int64, shape=(4,), layout=PLAIN, tag=3, name="r")
    part = k.emit(shared.slice, results, start=1, length=1, dim=0)
    k.ask(k.emit(shared.reinterpret, part, element=int64, shape=(2,), layout=PLAIN))
    message = refused(hazard.LaunchControlMisuse, "clc-alignment", k)
    assert "a response is written to byte 8 of r" in message


def test_the_program_of_an_answer_that_names_none_is_undefined():
    k = Asking()
    k.ask()
    k.wait(0)
    _, x = k.answer()
    k.store(k.params[0], k.number(0), x)
    assert "the response names no program" in refused(hazard.UndefinedValue, "hazard-undefined", k, grid=1)


def test_other_blocks_of_a_cluster_get_no_answer_without_multicast():
    k = Asking(**PAIR)
    k.ask()
    k.wait(0)
    with pytest.raises(hazard.TransactionBytes, match="expects 16 bytes, but copies complete 0"):
        run(k.done(), np.zeros(4, np.int32), grid=(4,), max_resident=1)
