"""What `break`, `continue` and `return` make of a loop on the GPU."""

# ruff: noqa: SIM102 (kernels under test show what Python allows)

from __future__ import annotations

import pytest

from tests.lang.support import INT, POINTER, jit, ops, read
from weft import language as gl
from weft.ir.core import Func, Op, walk
from weft.ir.types import ScalarType, int1, int32, uint32

LAYOUT = gl.BlockedLayout([1], [32], [4], [0])
LINE = gl.SwizzledSharedLayout(1, 1, 1, [0])


def stores(func: Func) -> list[Op]:
    return [op for op in walk(func.body) if op.name.endswith(".store")]


def test_a_break_makes_a_while_that_carries_counter_and_flag():
    @jit
    def kernel(out, n):
        total = 0
        for i in range(n, 0, -1):
            if i == 3:
                break
            total += i
        gl.store(out, total)

    func = read(kernel, out=POINTER, n=INT)
    (loop,) = ops(func, "control.for", "control.while")
    assert [(arg.name, arg.type) for arg in loop.regions[0].args] == [
        ("i", ScalarType(int32)),
        ("total", ScalarType(int32)),
        ("going", ScalarType(int1)),
    ]
    assert [op.attrs["predicate"] for op in loop.regions[0].ops if op.name == "arith.cmp"] == ["gt"]


@pytest.mark.parametrize("step", ["-2", "n"])
def test_a_break_out_of_a_loop_that_may_step_over_its_end_counts_what_is_left(step):
    @jit
    def kernel(out, n, STEP):
        for i in range(n, 0, n if STEP == "n" else -2):
            if i == 3:
                break
            gl.store(out, i)

    func = read(kernel, out=POINTER, n=INT, STEP=step)
    (trips,) = ops(func, "control.trips")
    (loop,) = ops(func, "control.for", "control.while")
    assert [(arg.name, arg.type) for arg in loop.regions[0].args] == [
        ("i", ScalarType(int32)),
        ("left", ScalarType(uint32)),
        ("going", ScalarType(int1)),
    ]
    assert list(loop.uses)[1] is trips.result


def test_constant_bounds_that_no_step_leaves_need_no_count():
    @jit
    def kernel(out):
        for i in range(10, 0, -3):
            if i == 4:
                break
            gl.store(out, i)
        for i in range(2147483640, 2147483647, 16):
            if i == 4:
                break
            gl.store(out, i)

    assert [len(loop.regions[0].args) for loop in ops(read(kernel, out=POINTER), "control.while")] == [3, 4]


def test_continue_leaves_a_for_as_it_is():
    @jit
    def kernel(out, n):
        for i in range(n):
            if i == 3:
                continue
            gl.store(out + i, i)

    func = read(kernel, out=POINTER, n=INT)
    (loop,) = ops(func, "control.for", "control.while")
    assert (loop.name, loop.results) == ("control.for", ())
    (branch,) = ops(func, "control.if")
    assert (len(branch.regions[0].ops), branch.results) == (1, ())


def test_a_break_that_constants_rule_out_is_not_there():
    @jit
    def kernel(out, n, FLAG):
        for i in range(n):
            gl.store(out, i)
            if FLAG:
                break

    assert len(ops(read(kernel, out=POINTER, n=INT, FLAG=False), "control.for")) == 1
    assert len(ops(read(kernel, out=POINTER, n=INT, FLAG=True), "control.while")) == 1


def test_a_flag_that_the_first_reading_took_for_constant():
    @jit
    def kernel(out, n):
        first = True
        for i in range(n):
            gl.store(out, i)
            if not first:
                break
            first = False

    (loop,) = ops(read(kernel, out=POINTER, n=INT), "control.while")
    assert [value.name for value in loop.results] == ["", "first", "going"]


def test_what_follows_branches_with_jumps_is_read_once():
    @jit
    def kernel(out, n):
        for i in range(n):
            if i > 3:
                if n == 9:
                    continue
            if i > 5:
                if n == 8:
                    break
            elif n == 7:
                gl.store(out, 0)
            if i > 6:
                if n == 6:
                    return
            gl.store(out, i)

    assert len(stores(read(kernel, out=POINTER, n=INT))) == 2


def test_a_return_in_a_kernel_takes_the_rest_with_it():
    @jit
    def kernel(out, n):
        for i in range(n):
            for j in range(i):
                if j == 3:
                    return
            gl.store(out, i)
        gl.store(out + 1, n)

    func = read(kernel, out=POINTER, n=INT)
    outer, inner = ops(func, "control.while")
    assert [value.name for value in (outer.results[-1], inner.results[-1])] == ["returned", "returned"]
    last = func.body.ops[-2]
    assert (last.name, last.operands) == ("control.if", (outer.results[-1],))
    assert [op.name for op in last.regions[0].ops] == ["control.yield"]


def test_constants_and_memory_from_before_the_loop_are_returned_as_they_are():
    @jit
    def pick(out, slots, n):
        for i in range(n):
            gl.store(out, i)
            if i == 3:
                return slots, 64, None
        return slots, 64, None

    @jit
    def kernel(out, n):
        mine, size, nothing = pick(out, gl.allocate_shared_memory(gl.float32, [128], LINE), n)
        gl.static_assert(size == 64)
        gl.static_assert(nothing is None)
        mine.store(gl.zeros([128], gl.float32, LAYOUT))

    (loop,) = ops(read(kernel, out=POINTER, n=INT), "control.while")
    assert [value.name for value in loop.results] == ["", "returned"]


def test_numbers_returned_take_a_common_type():
    @jit
    def kernel(out, n):
        gl.static_assert(pick_float(n).dtype == gl.float32)

    @jit
    def pick_float(n):
        for i in range(n):
            if i == 3:
                return 1
            if i == 4:
                return 2.5
        return 7

    (loop,) = ops(read(kernel, out=POINTER, n=INT), "control.while")
    assert str(loop.results[-1].type) == "f32"


def test_an_endless_loop_returns_and_nothing_follows():
    @jit
    def halve(n):
        while True:
            if n % 2 != 0:
                return n
            n = n // 2

    @jit
    def kernel(out, n):
        gl.store(out, halve(n))

    func = read(kernel, out=POINTER, n=INT)
    assert ops(func, "control.while")[0] in func.body.ops
    assert [op.name for op in func.body.ops if op.name == "control.if"] == []


def test_a_round_that_surely_runs_gives_names_their_values():
    @jit
    def kernel(x, out, n):
        while True:
            value = gl.load(x + n)
            n += 1
            if value > 3:
                break
        for i in range(8):
            if i == n:
                break
        gl.store(out + i, value)

    func = read(kernel, x=POINTER, out=POINTER, n=INT)
    first, second = ops(func, "control.while")
    assert [value.name for value in first.results] == ["n", "going", "value"]
    assert [value.name for value in second.results] == ["", "going", "i"]


def test_a_condition_with_effects_stands_behind_the_flag():
    @jit
    def kernel(x, out, n):
        while gl.load(x + n) > 0:
            n += 1
            if n == 9:
                break
        gl.store(out, n)

    (loop,) = ops(read(kernel, x=POINTER, out=POINTER, n=INT), "control.while")
    asked, last = loop.regions[0].ops
    assert (asked.name, asked.operands) == ("control.if", (loop.regions[0].args[-1],))
    assert last.operands[0] is asked.result
