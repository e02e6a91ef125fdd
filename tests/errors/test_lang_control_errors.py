"""One test per mistake in conditions, loops and branches: its code, its line, and what to write instead."""

# ruff: noqa: B007, RUF005 (kernels under test are wrong on purpose)

from __future__ import annotations

from tests.lang.support import INT, POINTER, group_of, jit, kernel_line, mistake, pointed
from weft import language as gl
from weft.ir.types import int64
from weft.lang import RuntimeParam

LAYOUT = gl.BlockedLayout([1], [32], [4], [0])
OTHER = gl.BlockedLayout([2], [32], [4], [0])
LONG = RuntimeParam(int64)


@gl.aggregate
class Mma:
    acc: gl.tensor
    tag: gl.constexpr


def test_tile_condition():
    @jit
    def kernel(out, n):
        t = gl.arange(0, 128, LAYOUT)
        if t > n:
            gl.store(out, n)
        x = 1 if t > 3 else 2

    group = group_of(kernel, out=POINTER, n=INT)
    assert [e.code for e in group.errors] == ["lang-tile-condition"] * 2
    assert "gl.where" in group.errors[1].fix


def test_tile_logic():
    @jit
    def kernel(out, n):
        t = gl.arange(0, 128, LAYOUT)
        a = (t > 0) and (t < n)
        b = (t > 0) or n
        c = not t
        d = 0 < t < n

    errors = group_of(kernel, out=POINTER, n=INT).errors
    assert [e.code for e in errors] == ["lang-tile-logic"] * 4
    assert [e.fix.split()[1] for e in errors] == ["&", "|", "~", "(a"]


def test_truth():
    @jit
    def kernel(out, n):
        if Mma(n, 0):
            pass

    mistake(kernel, "lang-truth", out=POINTER, n=INT)


def test_range():
    @jit
    def kernel(out, n):
        for i in range(n / 2):
            pass

    assert "its stop is a float32 scalar" in mistake(kernel, "lang-range", out=POINTER, n=INT).message


def test_range_arguments():
    @jit
    def kernel(out, n):
        for i in range(0, n, 1, 2):
            pass

    mistake(kernel, "lang-range-arguments", out=POINTER, n=INT)


def test_range_step():
    @jit
    def kernel(out, n):
        for i in range(0, n, 0):
            pass

    mistake(kernel, "lang-range-step", out=POINTER, n=INT)


def test_endless_loop():
    @jit
    def kernel(out, n):
        while True:
            gl.store(out, n)

    assert pointed(mistake(kernel, "lang-endless-loop", out=POINTER, n=INT)) == "True"


def test_carried_dtype():
    @jit
    def kernel(out, n, m):
        total = n
        for i in range(n):
            total = total + m
        gl.store(out, total)

    error = mistake(kernel, "lang-carried", out=POINTER, n=INT, m=LONG)
    assert "total is an int32 scalar before the loop" in error.message
    assert "but an int64 scalar at the end" in error.message
    assert ".to(gl.int32)" in error.fix
    line = kernel_line(kernel)
    assert error.loc.line == line + 4
    assert dict(error.related)["before the loop"].line == line + 2


def test_carried_number():
    @jit
    def kernel(out, n, m):
        total = 0
        while total < m:
            total = total + m
        gl.store(out, total)

    error = mistake(kernel, "lang-carried", out=POINTER, n=INT, m=LONG)
    assert "total is an int32 scalar before" in error.message


def test_carried_layout_names_the_field():
    @jit
    def kernel(out, n):
        mma = Mma(gl.zeros([128], gl.float32, LAYOUT), 0)
        for i in range(n):
            mma = Mma(gl.convert_layout(mma.acc + 1.0, OTHER), 0)
        gl.store(out + gl.arange(0, 128, OTHER), mma.acc)

    error = mistake(kernel, "lang-carried", out=POINTER, n=INT)
    assert error.message.startswith("mma.acc is a float32 tile [128] in BlockedLayout([1]")
    assert f"gl.convert_layout(mma.acc, {LAYOUT!r})" in error.fix
    assert pointed(error).startswith("mma = Mma(gl.convert")


def test_carried_number_that_becomes_a_tile():
    @jit
    def kernel(out, n):
        acc = 0
        for i in range(n):
            acc += gl.full([128], 1.0, gl.float32, LAYOUT)
        gl.store(out + gl.arange(0, 128, LAYOUT), acc)

    error = mistake(kernel, "lang-carried", out=POINTER, n=INT)
    assert "acc is 0 before the loop" in error.message
    assert "gl.full([128], value, gl.float32, layout)" in error.fix


def test_carried_structure():
    @jit
    def kernel(out, n):
        pair = (n, n)
        for i in range(n):
            pair = pair + (i,)
        gl.store(out, pair[0])

    mistake(kernel, "lang-carried", out=POINTER, n=INT)


def test_branches():
    @jit
    def kernel(out, n, m):
        x = n
        if n > 0:
            x = m
        gl.store(out, x)

    error = mistake(kernel, "lang-branches", out=POINTER, n=INT, m=LONG)
    assert "x is an int64 scalar after one branch" in error.message
    assert error.loc.line == kernel_line(kernel) + 4
    assert dict(error.related)["in the other branch"].line == kernel_line(kernel) + 2


def test_returns():
    @jit
    def pick(x, y):
        if x > 0:
            return x
        return y

    @jit
    def kernel(out, n, m):
        gl.store(out, pick(n, m))

    error = mistake(kernel, "lang-returns", out=POINTER, n=INT, m=LONG)
    assert "pick returns an int32 scalar in one branch" in error.message
    assert error.loc.caller is not None
