"""Blocks that wait for one another: locks, chains, and who runs when."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.build import Kernel, pointer, run
from weft.ir.core import Op, walk
from weft.ir.types import ScalarType, int1, int32
from weft.ops import arith, control, memory, program
from weft.sim.machine.spin import deciding


def spin(k: Kernel, busy, carried=()) -> None:
    """`while busy(): pass`."""
    with k.region([v.type for v in carried]) as condition:
        k.emit(control.condition, busy(), *condition.args)
    with k.region([v.type for v in carried]) as body:
        k.emit(control.yield_, *[k.add(arg, k.number(1)) for arg in body.args])
    k.emit(control.while_, *carried, regions=(condition.done, body.done))


def test_lock_by_compare_and_swap():
    """Each program adds to a counter, reading and writing in separate steps under a lock."""
    cells = np.zeros(2, np.int32)
    k = Kernel(("lock", pointer(int32)), ("count", pointer(int32)))
    lock, count = k.params
    zero, one = k.number(0), k.number(1)
    spin(k, lambda: k.cmp("ne", k.emit(memory.atomic_cas, lock, zero, one), zero))
    k.store(count, zero, k.add(k.load(count, zero), one))
    k.emit(memory.atomic, lock, zero, None, kind="xchg")
    run(k.done(), cells[:1], cells[1:], grid=(20,))
    assert cells.tolist() == [0, 20]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_chain_backwards(seed):
    """Program i waits for i + 1; all must be live for the last to free the first."""
    n = 8
    order = np.zeros(n + 1, np.int32)
    flags = np.array([0] * n + [1], np.int32)
    k = Kernel(("flags", pointer(int32)), ("order", pointer(int32)), ("turn", pointer(int32)))
    flag, place, turn = k.params
    pid = k.emit(program.program_id, axis=0)
    spin(k, lambda: k.cmp("eq", k.watch(flag, k.add(pid, k.number(1))), k.number(0)), [k.number(0)])
    now = k.emit(memory.atomic, turn, k.number(1), None, kind="add")
    k.store(place, now, pid)
    k.signal(flag, pid)
    report = run(k.done(), flags, order, np.zeros(1, np.int32), grid=(n,), seed=seed)
    assert report.programs == n
    assert order[:n].tolist() == list(range(n))[::-1]


def test_blocks_run_in_order_and_the_seed_changes_only_turns():
    def order(seed: int) -> list[int]:
        """All wait for the last; then they go on in the order of their turns."""
        n = 6
        turns = np.full(n, -1, np.int32)
        k = Kernel(("go", pointer(int32)), ("turn", pointer(int32)), ("turns", pointer(int32)))
        go, turn, out = k.params
        pid = k.emit(program.program_id, axis=0)
        last = k.cmp("eq", pid, k.number(n - 1))
        k.emit(memory.atomic, go, k.number(1), last, kind="xchg")
        spin(k, lambda: k.cmp("eq", k.watch(go, k.number(0)), k.number(0)))
        k.store(out, k.emit(memory.atomic, turn, k.number(1), None, kind="add"), pid)
        run(k.done(), np.zeros(1, np.int32), np.zeros(1, np.int32), turns, grid=(n,), seed=seed)
        return turns.tolist()

    first = order(0)
    assert sorted(first) == list(range(6))
    assert order(0) == first
    assert order(5) == order(5)
    assert len({tuple(order(seed)) for seed in range(1, 6)}) > 1


def test_a_loop_that_reads_and_moves_on_is_no_deadlock():
    """A search that only reads, in every program at once."""
    table = np.arange(0, 4000, 4, dtype=np.int32)
    found = np.zeros(4, np.int32)
    k = Kernel(("table", pointer(int32)), ("found", pointer(int32)))
    pid = k.emit(program.program_id, axis=0)
    goal = k.mul(k.add(pid, k.number(1)), k.number(800))
    with k.region([ScalarType(int32)]) as condition:
        k.emit(control.condition, k.cmp("lt", k.load(k.params[0], condition.args[0]), goal), condition.args[0])
    with k.region([ScalarType(int32)]) as body:
        k.emit(control.yield_, k.add(body.args[0], k.number(1)))
    at = k.emit(control.while_, k.number(0), regions=(condition.done, body.done))
    k.store(k.params[1], pid, at)
    run(k.done(), table, found, grid=(4,), max_resident=2)
    assert found.tolist() == [200, 400, 600, 800]


def test_what_decides_a_loop():
    k = Kernel(("x", pointer(int32)))
    types = [ScalarType(int32)] * 4 + [ScalarType(int1)]
    with k.region(types) as condition:
        turns, at, stored, unused, go = condition.args
        k.emit(control.condition, go, turns, at, stored, unused)
    with k.region(types[:4]) as body:
        turns, at, stored, unused = body.args
        again = k.cmp("eq", k.load(k.params[0], at), k.number(0))
        k.store(k.params[0], k.number(5), stored)
        k.emit(control.yield_, k.add(turns, k.number(1)), k.add(at, k.number(1)), k.add(stored, at), turns, again)
    inits = [k.number(0)] * 4
    yes = k.emit(arith.constant, value=True, type=ScalarType(int1))
    k.emit(control.while_, *inits, yes, regions=(condition.done, body.done))
    (loop,) = [op for op in walk(k.done().body) if isinstance(op, Op) and op.kind is control.while_]
    assert deciding(loop) == (1, 2, 4)
