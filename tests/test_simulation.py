"""`weft.simulate`: programs, order, residency and progress of simulated launches."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

import weft
from weft import language as gl
from weft import settings, simulation
from weft.errors import LaunchError, hazard


@weft.jit
def mark(out, width):
    pid = gl.program_id(1) * width + gl.program_id(0)
    gl.store(out + pid, pid + 1)


def marked(programs=None) -> list[int]:
    out = np.zeros(8, np.int32)
    with weft.simulate(programs=programs):
        compiled = mark[(4, 2)](out, 4)
    assert compiled.report.programs == np.count_nonzero(out)
    return [int(i) for i in np.flatnonzero(out)]


def test_all_programs_run_unless_some_are_named():
    assert marked() == list(range(8))
    assert marked([2, (1, 1), (3, 1, 0)]) == [2, 5, 7]
    assert marked([]) == []


def test_programs_run_in_the_given_order():
    @weft.jit
    def note(out):
        gl.store(out + gl.atomic_add(out, 1) + 1, gl.program_id(0))

    out = np.zeros(9, np.int32)
    with weft.simulate(programs=[6, 1, 3]):
        note[8](out)
    assert out.tolist() == [3, 6, 1, 3, 0, 0, 0, 0, 0]


@weft.jit
def meet(arrived, order, count):
    gl.atomic_add(arrived, 1)
    while gl.atomic_add(arrived, 0) < count:
        pass
    gl.store(order + gl.atomic_add(order, 1) + 1, gl.program_id(0))


def order_of(seed: int) -> list[int]:
    order = np.zeros(17, np.int32)
    with weft.simulate(seed=seed):
        meet[16](np.zeros(1, np.int32), order, 16)
    assert sorted(order[1:]) == list(range(16))
    return order[1:].tolist()


def test_a_seed_gives_the_same_order_again_and_another_one_another():
    orders = [order_of(seed) for seed in range(6)]
    assert orders == [order_of(seed) for seed in range(6)]
    assert len({tuple(order) for order in orders}) > 1


def test_programs_that_wait_for_more_than_are_resident_never_end():
    def meeting(max_resident):
        with weft.simulate(max_resident=max_resident):
            meet[4](np.zeros(1, np.int32), np.zeros(5, np.int32), 4)

    meeting(4)
    with pytest.raises(hazard.Deadlock) as caught:
        meeting(3)
    (label, _), (writes, writer), (missing, _) = caught.value.related
    assert label == "program (0, 0, 0) waits for arrived[0], which holds 3; so do 2 other programs at this line"
    assert writes == "the kernel may write arrived here"
    assert "atomic_add" in writer.source
    assert missing == "program (3, 0, 0), which has not started, stores arrived[0] here"


def test_a_program_outside_of_the_grid():
    with pytest.raises(LaunchError) as caught:
        marked([(0, 2)])
    assert caught.value.code == "launch-no-such-program"
    assert "program (0, 2, 0) of mark, but the grid is (4, 2, 1)" in caught.value.message


@weft.jit
def arch(out, which: gl.constexpr):
    gl.store(out, which)


def test_the_simulated_gpu_is_chosen():
    out = np.zeros(1, np.int32)
    with weft.simulate(target="sm_100"), weft.simulate(target="cuda:80"):
        assert arch[(1,)](out, 80).request.target == "sm_80"
    assert arch[(1,)](out, 90).request.target == "sm_90a"


def test_overlapping_blocks_of_threads_leave_each_other_alone():
    both, entered, left = threading.Barrier(2), threading.Event(), threading.Event()
    seen = {}

    def first():
        with weft.simulate(target="sm_80"):
            both.wait()
            entered.wait()
            seen["first"] = settings.current().target
        left.set()

    def second():
        both.wait()
        with weft.simulate(target="sm_100a"):
            entered.set()
            left.wait()
            seen["second"] = settings.current().target
        seen["after"] = settings.current().target

    threads = [threading.Thread(target=run) for run in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"first": "sm_80", "second": "sm_100a", "after": "sm_90a"}
    assert settings.current().target == "sm_90a"


def test_blocks_of_tasks_and_generators_may_end_in_any_order():
    async def in_a_task(target, mine, others):
        with weft.simulate(target=target, seed=len(target)):
            mine.set()
            await others.wait()
            return settings.current().target, simulation.current().seed

    async def both():
        one, two = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(in_a_task("sm_80", one, two), in_a_task("sm_100a", two, one))

    def suspended(target, **changes):
        with weft.simulate(target=target), settings.using(**changes):
            yield

    assert asyncio.run(both()) == [("sm_80", 5), ("sm_100a", 7)]
    first, second = suspended("sm_80"), suspended("sm_100a", cache_size=17)
    next(first), next(second)
    first.close()
    assert (settings.current().target, settings.current().cache_size) == ("sm_100a", 17)
    second.close()
    assert settings.current().target == "sm_90a"
    assert simulation.current() == simulation.Simulation()


def test_a_gpu_that_nobody_can_simulate():
    with pytest.raises(LaunchError) as caught, weft.simulate(target="hopper"):
        pass
    assert caught.value.code == "target-unknown"


@pytest.mark.parametrize(
    "wrong",
    [
        {"programs": ["a"]}, {"programs": [(1, 2, 3, 4)]}, {"max_resident": 0}, {"schedule": "soon"},
        {"uninitialized": "zero"},
    ],
)  # fmt: skip
def test_what_simulate_cannot_use(wrong):
    with pytest.raises(LaunchError) as caught, weft.simulate(**wrong):
        pass
    assert caught.value.code == "launch-option-value"


def test_blocks_nest_end_with_errors_and_belong_to_a_thread():
    before = simulation.current()
    seen = []
    with weft.simulate(seed=1):
        with weft.simulate(seed=2):
            assert simulation.current().seed == 2
        with pytest.raises(LaunchError), weft.simulate(seed=3):
            mark[0](None, 4)
        assert simulation.current().seed == 1
        thread = threading.Thread(target=lambda: seen.append(simulation.current()))
        thread.start()
        thread.join()
    assert simulation.current() == before == seen[0]
