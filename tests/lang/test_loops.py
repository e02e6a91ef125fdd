"""Loops and what they carry."""

# ruff: noqa: B007, B020 (kernels under test show what Python allows)

from __future__ import annotations

from tests.lang.support import INT, POINTER, jit, mistake, ops, read
from weft import language as gl
from weft.ir.core import Func, Op, walk
from weft.ir.types import Pointer, ScalarType, int32, int64
from weft.lang import RuntimeParam

INTS = RuntimeParam(Pointer(int32), divisible=16)
LONG = RuntimeParam(int64)
LAYOUT = gl.BlockedLayout([1], [32], [4], [0])


def stores(func: Func) -> list[Op]:
    return [op for op in walk(func.body) if op.name.endswith(".store")]


def yielded(op: Op, region: int = 0) -> list[object]:
    return list(op.regions[region].terminator.uses)


def test_a_swap_in_a_loop_is_a_parallel_assignment():
    @jit
    def kernel(out, x, y, n):
        a = x
        b = y
        for i in range(n):
            a, b = b, a
        gl.store(out, a)
        gl.store(out + 1, b)

    func = read(kernel, out=INTS, x=INT, y=INT, n=INT)
    (loop,) = ops(func, "control.for")
    _, first, second = loop.regions[0].args
    assert yielded(loop) == [second, first]
    assert [arg.name for arg in loop.regions[0].args] == ["i", "a", "b"]
    assert list(loop.operands[3:]) == list(func.params[1:3])
    assert [op.operands[1] for op in stores(func)] == list(loop.results)


def test_fibonacci_promotes_both_constants():
    @jit
    def kernel(out, n):
        a = 0
        b = 1
        for _ in range(n):
            a, b = b, a + b
        gl.store(out, a)

    func = read(kernel, out=POINTER, n=INT)
    (loop,) = ops(func, "control.for")
    assert [v.type for v in loop.results] == [ScalarType(int32)] * 2
    _, a, b = loop.regions[0].args
    next_a, next_b = yielded(loop)
    assert next_a is b
    (add,) = [op for op in loop.regions[0].ops if op.name == "arith.add"]
    assert next_b is add.result
    assert list(add.operands) == [a, b]


def test_constants_that_do_not_change_stay_constants():
    @jit
    def kernel(out, n):
        step = 4
        total = 0
        for i in range(n):
            step = 4
            gl.static_assert(step == 4)
            total += step
        gl.static_assert(step == 4)
        gl.store(out, total)

    (loop,) = ops(read(kernel, out=POINTER, n=INT), "control.for")
    assert len(loop.results) == 1


def test_nested_loops_promote_in_both():
    @jit
    def kernel(out, n):
        count = 0
        for i in range(n):
            for j in range(i):
                count += 1
        gl.store(out, count)

    outer, inner = ops(read(kernel, out=POINTER, n=INT), "control.for")
    assert len(outer.results) == len(inner.results) == 1
    assert inner.operands[3] is outer.regions[0].args[1]
    assert yielded(outer) == [inner.result]
    assert inner.operands[1] is outer.regions[0].args[0]


def test_a_discarded_attempt_leaves_nothing_behind():
    @jit
    def kernel(out, n):
        count = 0
        for i in range(n):
            gl.store(out + count, i)
            count += 2

    assert len(stores(read(kernel, out=POINTER, n=INT))) == 1


def test_counters_are_int64_where_a_bound_is():
    @jit
    def kernel(out, n, m):
        for i in range(n):
            gl.store(out, i)
        for j in range(m):
            gl.store(out, j)
        for k in range(1 << 40):
            gl.store(out, k)

    loops = ops(read(kernel, out=POINTER, n=INT, m=LONG), "control.for")
    assert [loop.regions[0].args[0].type.element for loop in loops] == [int32, int64, int64]


def test_a_negative_constant_step_counts_down():
    @jit
    def kernel(out, n):
        for i in range(n, 0, -2):
            gl.store(out, i)
        for i in range(0, n, 3):
            gl.store(out, i)
        for i in range(0, n, n):
            gl.store(out, i)

    loops = ops(read(kernel, out=POINTER, n=INT), "control.for")
    assert [loop.attrs["descending"] for loop in loops] == [True, False, None]


def test_constant_bounds_make_a_loop_and_static_range_copies():
    @jit
    def kernel(out):
        for i in range(4):
            gl.store(out, i)
        for i in gl.static_range(3):
            gl.store(out + i, i)

    func = read(kernel, out=POINTER)
    assert len(ops(func, "control.for")) == 1
    assert len(stores(func)) == 1 + 3


def test_break_and_continue_in_unrolled_loops():
    @jit
    def kernel(out):
        for i in gl.static_range(10):
            if i == 1:
                continue
            if i == 4:
                break
            gl.store(out + i, i)
        for x in (1.5, 2.5):
            gl.store(out, x)

    assert len(stores(read(kernel, out=POINTER))) == 3 + 2


def test_a_run_time_break_in_an_unrolled_loop_takes_the_rest_with_it():
    @jit
    def kernel(out, n):
        found = -1
        for i in gl.static_range(3):
            if n == i:
                found = i
                break
        gl.store(out, found)

    func = read(kernel, out=POINTER, n=INT)
    assert len(ops(func, "control.if")) == 3
    assert len(stores(func)) == 4


def test_while_carries_and_tests():
    @jit
    def kernel(out, n):
        i = 0
        while i < n:
            i = i * 2 + 1
        gl.store(out, i)

    (loop,) = ops(read(kernel, out=POINTER, n=INT), "control.while")
    assert [op.name for op in loop.regions[0].ops] == ["arith.cmp", "control.condition"]
    assert loop.result.type == ScalarType(int32)


def test_a_while_that_starts_false_is_not_there():
    @jit
    def kernel(out):
        i = 0
        while i > 0:
            i -= 1
        gl.store(out, i)

    assert ops(read(kernel, out=POINTER), "control.while") == []


def test_while_with_a_constant_start_is_a_loop():
    @jit
    def kernel(out):
        i = 0
        while i < 10:
            i += 1
        gl.store(out, i)

    assert len(ops(read(kernel, out=POINTER), "control.while")) == 1


def test_tiles_are_carried():
    @jit
    def kernel(x, out, n):
        offsets = gl.arange(0, 128, LAYOUT)
        acc = gl.zeros([128], gl.float32, LAYOUT)
        for i in range(n):
            acc += gl.load(x + i * 128 + offsets)
        gl.store(out + offsets, acc)

    (loop,) = ops(read(kernel, x=POINTER, out=POINTER, n=INT), "control.for")
    assert [v.name for v in loop.results] == ["acc"]


def test_a_name_reused_with_another_type_is_fine_when_nobody_reads_the_old_one():
    @jit
    def kernel(x, out, n):
        t = gl.arange(0, 128, LAYOUT)
        gl.store(out + t, 0.0)
        for i in range(n):
            t = gl.arange(0, 256, LAYOUT)
            gl.store(out + t, 1.0)

    (loop,) = ops(read(kernel, x=POINTER, out=POINTER, n=INT), "control.for")
    assert loop.results == ()


def test_a_constant_condition_becomes_a_branch_when_it_changes():
    @jit
    def kernel(out, n):
        first = True
        x = n
        for i in range(n):
            if first:
                x = x + 1
            else:
                x = x - i
            first = False
        gl.store(out, x)

    func = read(kernel, out=POINTER, n=INT)
    (loop,) = ops(func, "control.for")
    assert sorted(v.name for v in loop.results) == ["first", "x"]
    (branch,) = ops(func, "control.if")
    assert branch.operands[0] in loop.regions[0].args


def test_an_inner_counter_named_as_an_outer_constant():
    @jit
    def kernel(out, n):
        k = 64
        for i in range(n):
            for k in range(k, n):
                gl.store(out, k)
            k = 64
            gl.static_assert(k == 64)

    assert len(ops(read(kernel, out=POINTER, n=INT), "control.for")) == 2


def test_a_number_at_the_end_takes_the_type_at_the_start():
    @jit
    def kernel(out, n):
        first = n == 0
        x = n.to(gl.float32)
        for i in range(n):
            first = False
            x = 1
        gl.store(out, x)

    (loop,) = ops(read(kernel, out=POINTER, n=INT), "control.for")
    assert sorted(str(v.type) for v in loop.results) == ["f32", "i1"]


def test_a_tile_without_a_layout_takes_the_one_that_the_body_gives_it():
    @jit
    def kernel(x, out, n):
        total = gl.zeros([128], gl.float32)
        for i in range(n):
            for j in range(i):
                total = total + gl.load(x + gl.arange(0, 128, LAYOUT) * j)
        gl.store(out + gl.arange(0, 128, LAYOUT), total)

    func = read(kernel, x=POINTER, out=POINTER, n=INT)
    outer, inner = ops(func, "control.for")
    assert [v.type.layout for v in (*outer.results, *inner.results, *inner.regions[0].args[1:])] == [LAYOUT] * 3
    (given,) = ops(func, "tile.set_layout")
    assert given in func.body.ops


def test_a_tile_that_loses_its_layout_in_the_body_keeps_it():
    @jit
    def kernel(out, n):
        total = gl.zeros([128], gl.float32, LAYOUT)
        for i in range(n):
            total = gl.full([128], i, gl.float32)
        gl.store(out + gl.arange(0, 128, LAYOUT), total)

    func = read(kernel, out=POINTER, n=INT)
    (loop,) = ops(func, "control.for")
    (given,) = ops(func, "tile.set_layout")
    assert loop.regions[0].terminator.operands == given.results
    assert given.results[0].type.layout == LAYOUT


def test_branches_agree_on_the_layout_that_one_of_them_knows():
    @jit
    def kernel(out, n):
        if n > 0:
            total = gl.zeros([128], gl.float32)
        else:
            total = gl.full([128], n, gl.float32, LAYOUT)
        gl.store(out + gl.arange(0, 128, LAYOUT), total)

    (branch,) = ops(read(kernel, out=POINTER, n=INT), "control.if")
    assert branch.results[0].type.layout == LAYOUT


def test_an_open_layout_does_not_make_shapes_equal():
    @jit
    def kernel(out, n):
        total = gl.zeros([128], gl.float32)
        for i in range(n):
            total = gl.full([256], i, gl.float32, LAYOUT)
        gl.store(out + gl.arange(0, 256, LAYOUT), total)

    error = mistake(kernel, "lang-carried", out=POINTER, n=INT)
    assert "total is a float32 tile [128] before the loop" in str(error)
    assert "but a float32 tile [256] at the end of its body" in str(error)
