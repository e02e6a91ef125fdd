"""Branches, early returns and conditions."""

# ruff: noqa: F821, SIM222, SIM223 (kernels under test show what Python allows)

from __future__ import annotations

from tests.lang.support import INT, POINTER, jit, ops, read
from weft import language as gl
from weft.ir.core import Func, Op, walk
from weft.ir.types import Pointer, ScalarType, int1, int32, int64
from weft.lang import RuntimeParam

INTS = RuntimeParam(Pointer(int32), divisible=16)
LONG = RuntimeParam(int64)
LAYOUT = gl.BlockedLayout([1], [32], [4], [0])


def stores(func: Func) -> list[Op]:
    return [op for op in walk(func.body) if op.name.endswith(".store")]


def yielded(op: Op, region: int = 0) -> list[object]:
    return list(op.regions[region].terminator.uses)


def test_branches_join_what_differs():
    @jit
    def kernel(out, n, x):
        a = x
        b = 1
        c = 7
        if n > 0:
            a = x + 1
            b = 2
        else:
            a = x
        gl.static_assert(c == 7)
        gl.store(out, a)
        gl.store(out, b)

    (branch,) = ops(read(kernel, out=POINTER, n=INT, x=INT), "control.if")
    assert [v.name for v in branch.results] == ["a", "b"]
    assert [v.type for v in branch.results] == [ScalarType(int32)] * 2


def test_numbers_of_two_kinds_join_in_a_common_type():
    @jit
    def kernel(out, n):
        x = 1 if n > 0 else 2.5
        gl.static_assert(x.dtype == gl.float32)
        flag = True
        if n > 1:
            flag = False
        gl.static_assert(flag.dtype == gl.int1)
        gl.store(out, x)

    assert len(ops(read(kernel, out=POINTER, n=INT), "control.if")) == 2


def test_equal_layouts_spelled_differently_join():
    @jit
    def kernel(out, n):
        x = gl.full([128], 1.0, gl.float32, LAYOUT)
        if n > 0:
            x = gl.full(
                [128],
                2.0,
                gl.float32,
                gl.DistributedLinearLayout([], [[1], [2], [4], [8], [16]], [[32], [64]], [], [128]),
            )
        gl.store(out + gl.arange(0, 128, LAYOUT), x)

    assert len(ops(read(kernel, out=POINTER, n=INT), "control.if")) == 1


def test_early_return_makes_the_rest_the_other_branch():
    @jit
    def kernel(out, n):
        if n == 0:
            return
        gl.store(out, n)
        if n == 1:
            gl.store(out, 1)
            return
        gl.store(out, 2)

    func = read(kernel, out=POINTER, n=INT)
    outer, inner = ops(func, "control.if")
    assert [op.name for op in outer.regions[0].ops] == ["control.yield"]
    assert inner in outer.regions[1].ops
    assert [op.name for op in func.body.ops][-2:] == ["control.if", "control.return"]


def test_a_helper_returns_through_its_branches():
    @jit
    def sign(x):
        if x > 0:
            return 1
        if x < 0:
            return -1
        return 0

    @jit
    def kernel(out, n):
        s = sign(n)
        gl.store(out, s)

    func = read(kernel, out=POINTER, n=INT)
    outer, inner = ops(func, "control.if")
    assert outer.result.name == "s"
    assert yielded(outer, 1) == [inner.result]


def test_a_helper_that_returns_the_same_constant_returns_a_constant():
    @jit
    def pick(out, x):
        if x > 0:
            gl.store(out, x)
            return 64
        return 64

    @jit
    def kernel(out, n):
        size: gl.constexpr = pick(out, n)
        gl.static_assert(size == 64)

    assert len(ops(read(kernel, out=POINTER, n=INT), "control.if")) == 1


def test_a_return_within_a_branch_that_also_falls_through():
    @jit
    def f(x, y):
        if x > 0:
            if y > 0:
                return 1
            x = x + 5
        return x

    @jit
    def kernel(out, n):
        gl.store(out, f(n, n))

    outer, inner = ops(read(kernel, out=POINTER, n=INT), "control.if")
    assert yielded(outer, 0) == [inner.result]
    assert inner.regions[1].ops[-2].name == "arith.add"


def test_conditions_of_constants_choose_and_hide():
    @jit
    def kernel(out, MODE):
        if MODE == "a":
            x = 1
        elif MODE == "b":
            x = 2
        else:
            x = undefined_name
        gl.store(out, x)

    func = read(kernel, out=POINTER, MODE="b")
    assert ops(func, "control.if") == []
    assert ops(func, "arith.constant")[0].attrs["value"] == 2


def test_logic_of_scalars():
    @jit
    def kernel(out, n, m):
        if n > 0 and m > 0 and True:
            gl.store(out, 1)
        if not (0 < n < m) or n:
            gl.store(out, 2)
        gl.static_assert((None or 3) == 3)
        gl.static_assert((0 and n) == 0)
        gl.static_assert(not (n and False))

    func = read(kernel, out=POINTER, n=INT, m=INT)
    first, second = ops(func, "control.if")
    assert first.operands[0].type == second.operands[0].type == ScalarType(int1)
    assert len(ops(func, "arith.and")) == 2
    assert len(ops(func, "arith.or")) == 1
