"""Threads that part ways: nested branches and loops, values that each carries, and loops that end at different times."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.sim.build import pointer
from tests.sim.by_threads import Threads, run
from weft.errors import hazard
from weft.ir.core import Value
from weft.ir.types import ScalarType, float32, int1, int32
from weft.ops import arith, control, thread

RNG = np.random.default_rng(10)


def branch(k: Threads, condition: Value, then: Callable[[], object], orelse: Callable[[], object]):
    regions = []
    for side in (then, orelse):
        with k.region() as region:
            found = side()
            k.emit(control.yield_, *([] if found is None else [found]))
        regions.append(region.done)
    return k.emit(control.if_, condition, regions=tuple(regions))


def test_nested_branches():
    out = np.full(45, -1, np.int32)
    k = Threads(("out", pointer(int32)), block=(9, 5))
    x, y = k.places
    found = branch(
        k,
        k.below(x, 4),
        lambda: branch(k, k.below(y, 2), lambda: k.add(x, k.int(100)), lambda: k.add(y, k.int(200))),
        lambda: k.mul(x, y),
    )
    branch(k, k.below(k.tid, 40), lambda: k.put(k.params[0], k.tid, found), lambda: None)
    run(k.done(), out)
    t = np.arange(45)
    x, y = t % 9, t // 9
    want = np.where(x < 4, np.where(y < 2, x + 100, y + 200), x * y)
    np.testing.assert_array_equal(out, np.where(t < 40, want, -1))


def test_loops_of_different_lengths():
    """`for i in range(tid): acc += i`, with a branch and a store of active threads only inside."""
    out, last = np.zeros(40, np.int32), np.full(40, -1, np.int32)
    k = Threads(("out", pointer(int32)), ("last", pointer(int32)), block=(40,))
    with k.region([ScalarType(int32), ScalarType(int32)]) as body:
        i, acc = body.args
        k.put(k.params[1], k.tid, i)
        odd = k.cmp("eq", k.rem(i, 2), k.int(1))
        k.emit(control.yield_, k.add(acc, branch(k, odd, lambda: i, lambda: k.int(0))))
    acc = k.emit(control.for_, k.int(0), k.tid, k.int(1), k.int(0), descending=False, regions=(body.done,))
    k.put(k.params[0], k.tid, acc)
    run(k.done(), out, last)
    np.testing.assert_array_equal(out, [sum(i for i in range(t) if i % 2) for t in range(40)])
    np.testing.assert_array_equal(last, np.arange(40) - 1)


def test_while_loops_that_threads_leave_at_different_times():
    """Steps of the Collatz sequence, from a table in shared memory that each thread reads only while it goes on."""
    out = np.zeros(40, np.int32)
    k = Threads(("out", pointer(int32)), block=(40,))
    smem = k.shared(int32, 40)
    k.write(smem, k.tid, k.add(k.tid, k.int(1)))
    with k.region([ScalarType(int32), ScalarType(int32)]) as condition:
        n, steps = condition.args
        k.emit(control.condition, k.cmp("ne", n, k.int(1)), n, steps)
    with k.region([ScalarType(int32), ScalarType(int32)]) as body:
        n, steps = body.args
        k.read(smem, k.tid)
        odd = k.cmp("eq", k.rem(n, 2), k.int(1))
        after = branch(k, odd, lambda: k.add(k.mul(n, k.int(3)), k.int(1)), lambda: k.emit(arith.div, n, k.int(2)))
        k.emit(control.yield_, after, k.add(steps, k.int(1)))
    start = k.read(smem, k.tid)
    _, steps = k.emit(control.while_, start, k.int(0), regions=(condition.done, body.done))
    k.put(k.params[0], k.tid, steps)
    run(k.done(), out)

    def collatz(n: int) -> int:
        count = 0
        while n != 1:
            n, count = (3 * n + 1 if n % 2 else n // 2), count + 1
        return count

    np.testing.assert_array_equal(out, [collatz(t + 1) for t in range(40)])


def test_binary_search_in_global_memory():
    """A loop that reads memory and ends for each thread by itself; several programs."""
    table = np.sort(RNG.integers(0, 1000, 50)).astype(np.int32)
    keys = RNG.integers(-10, 1010, 90).astype(np.int32)
    out = np.zeros(90, np.int32)
    k = Threads(("table", pointer(int32)), ("keys", pointer(int32)), ("out", pointer(int32)), block=(15, 3))
    at = k.add(k.mul(k.pid(), k.int(45)), k.tid)
    key = k.get(k.params[1], at)
    pair = [ScalarType(int32), ScalarType(int32)]
    with k.region(pair) as condition:
        low, high = condition.args
        k.emit(control.condition, k.cmp("lt", low, high), low, high)
    with k.region(pair) as body:
        low, high = body.args
        middle = k.emit(arith.div, k.add(low, high), k.int(2))
        less = k.cmp("lt", k.get(k.params[0], middle), key)
        low = k.emit(arith.select, less, k.add(middle, k.int(1)), low)
        k.emit(control.yield_, low, k.emit(arith.select, less, high, middle))
    low, _ = k.emit(control.while_, k.int(0), k.int(50), regions=(condition.done, body.done))
    k.put(k.params[2], at, low)
    run(k.done(), table, keys, out, grid=(2,))
    np.testing.assert_array_equal(out, np.searchsorted(table, keys))


def test_an_early_return_as_the_reader_writes_it():
    """`if i >= n: return`, then work under "not returned", with a barrier after it that all threads reach."""
    x, out = RNG.normal(size=33).astype(np.float32), np.zeros(64, np.float32)
    k = Threads(("x", pointer(float32)), ("out", pointer(float32)), ("n", int32), block=(64,))
    gone = k.cmp("ge", k.tid, k.params[2])
    going = k.emit(arith.xor, gone, k.number(1, int1))
    branch(k, going, lambda: k.put(k.params[1], k.tid, k.get(k.params[0], k.tid)), lambda: None)
    run(k.done(), x, out, 33)
    np.testing.assert_array_equal(out, np.r_[x, np.zeros(31, np.float32)])


def test_a_loop_whose_step_is_zero_for_one_thread():
    k = Threads(("out", pointer(int32)), block=(8, 4))
    step = k.sub(k.int(1), k.emit(arith.div, k.tid, k.int(31)))
    with k.region([ScalarType(int32)]) as body:
        k.put(k.params[0], k.tid, body.args[0])
        k.emit(control.yield_)
    k.emit(control.for_, k.int(0), k.int(5), step, descending=None, regions=(body.done,))
    with pytest.raises(hazard.EndlessLoop, match="from 0 to 5 has step 0"):
        run(k.done(), np.zeros(32, np.int32))


def test_a_loop_up_for_some_threads_and_down_for_others():
    out = np.zeros(32, np.int32)
    k = Threads(("out", pointer(int32)), block=(32,))
    with k.region([ScalarType(int32), ScalarType(int32)]) as body:
        k.emit(control.yield_, k.add(body.args[1], body.args[0]))
    step = k.sub(k.int(2), k.emit(arith.mul, k.rem(k.tid, 2), k.int(5)))
    count = k.emit(control.for_, k.tid, k.int(16), step, k.int(0), descending=None, regions=(body.done,))
    k.put(k.params[0], k.tid, count)
    run(k.done(), out)
    np.testing.assert_array_equal(out, [sum(range(t, 16, 2 - t % 2 * 5)) for t in range(32)])


def test_a_loop_down_by_different_steps():
    out = np.zeros(32, np.int32)
    k = Threads(("out", pointer(int32)), block=(32,))
    with k.region([ScalarType(int32), ScalarType(int32)]) as body:
        k.emit(control.yield_, k.add(body.args[1], k.int(1)))
    step = k.sub(k.int(-1), k.tid)
    count = k.emit(control.for_, k.int(40), k.int(0), step, k.int(0), descending=True, regions=(body.done,))
    k.put(k.params[0], k.tid, count)
    run(k.done(), out)
    np.testing.assert_array_equal(out, [len(range(40, 0, -1 - t)) for t in range(32)])


def test_an_array_changed_in_a_divergent_loop():
    """Each thread counts into its own array as often as its number says."""
    out = np.zeros((32, 2), np.int32)
    k = Threads(("out", pointer(int32)), block=(32,))
    mine = k.local(int32, 2)
    for place in (0, 1):
        k.emit(thread.store_local, mine, None, k.one(k.int(0)), None, offsets=(place,))
    with k.region([ScalarType(int32)]) as body:
        slot = k.rem(body.args[0], 2)
        old = k.one(k.emit(thread.load_local, mine, slot, offsets=(0,)))
        k.emit(thread.store_local, mine, slot, k.one(k.add(old, k.int(1))), None, offsets=(0,))
        k.emit(control.yield_)
    k.emit(control.for_, k.int(0), k.tid, k.int(1), descending=False, regions=(body.done,))
    k.put(k.params[0], k.mul(k.tid, k.int(2)), k.emit(thread.load_local, mine, None, offsets=(0, 1)))
    run(k.done(), out)
    t = np.arange(32)
    np.testing.assert_array_equal(out, np.stack([(t + 1) // 2, t // 2], axis=1))


def test_barriers_in_blocks_of_any_size():
    """Sums by halves in shared memory, in a block of 40 threads; useless barriers are advised against."""
    x, out = RNG.integers(0, 99, 40).astype(np.int32), np.zeros(1, np.int32)
    k = Threads(("x", pointer(int32)), ("out", pointer(int32)), block=(40,))
    smem = k.shared(int32, 40)
    k.write(smem, k.tid, k.get(k.params[0], k.tid))
    k.barrier()
    for half in (20, 10, 5):
        active = k.below(k.tid, half)

        def combine(half=half):
            other = k.read(smem, k.add(k.tid, k.int(half)))
            k.write(smem, k.tid, k.add(k.read(smem, k.tid), other))

        branch(k, active, combine, lambda: None)
        k.barrier()
    k.at(9).barrier()

    def total():
        parts = [k.read(smem, k.int(i)) for i in range(5)]
        result = parts[0]
        for part in parts[1:]:
            result = k.add(result, part)
        k.put(k.params[1], k.int(0), result)

    branch(k, k.cmp("eq", k.tid, k.int(0)), total, lambda: None)
    report = run(k.done(), x, out)
    assert out[0] == x.sum()
    assert [(advice.rule, advice.loc.line) for advice in report.advice] == [("redundant-sync", 9)]
