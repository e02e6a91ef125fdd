"""One test per mistake in conditions, loops and branches: its code, its line, and what to write instead."""

# ruff: noqa: B007, RET503, RUF005 (kernels under test are wrong on purpose)

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
    assert [e.fix.split()[1] for e in errors] == ["&", "|", "x", "(a"]


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
    assert error.fix == "convert the int32 one with .to(gl.int64)"
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
    assert f"gl.convert_layout(mma.acc, gl.{LAYOUT!r})" in error.fix
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
    assert "gl.full([128], 0, gl.float32, gl.BlockedLayout([1], [32], [4], [0]))" in error.fix


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
    line = kernel_line(pick)
    assert f"pick returns an int32 scalar in line {line + 3}, but an int64 scalar in line {line + 4}" in error.message
    assert pointed(error) == "return x"
    assert error.loc.caller is not None


def test_returns_of_a_loop_and_after_it():
    @jit
    def find(x, y):
        for i in range(x):
            if i == y:
                return i
        return x > 3, y

    @jit
    def kernel(out, n, m):
        gl.store(out, find(n, m))
        gl.store(out, find_or_nothing(n))

    @jit
    def find_or_nothing(x):
        for i in range(x):
            if i * i > x:
                return i

    group = group_of(kernel, out=POINTER, n=INT, m=INT)
    pair, nothing = group.errors
    assert pair.code == nothing.code == "lang-returns"
    line = kernel_line(find)
    assert f"returns 'result' (an int32 scalar) in line {line + 4}, but a tuple" in pair.message
    assert f"in line {line + 5}: its result differs" in pair.message
    assert dict(pair.related)["in the other branch"].line == line + 5
    line = kernel_line(find_or_nothing)
    assert f"returns an int32 scalar in line {line + 4}, but None at its end" in nothing.message


def test_two_returns_of_a_loop():
    @jit
    def find(x, layout):
        while True:
            if x == 3:
                return x, x
            x += 1
            if x == 8:
                return gl.arange(0, 128, layout), x

    @jit
    def kernel(out, n):
        gl.store(out, find(n, LAYOUT)[1])

    error = mistake(kernel, "lang-returns", out=POINTER, n=INT)
    line = kernel_line(find)
    assert f"in line {line + 4}, but an int32 tile [128] in line {line + 7}: its result[0] differs" in error.message


def test_return_in_loop():
    @jit
    def slot(slots, n):
        for i in range(n):
            if i * i > n:
                return slots.index(i % 2)
        return slots.index(0)

    @jit
    def kernel(out, n):
        slots = gl.allocate_shared_memory(gl.float32, [2, 128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
        gl.store(out + gl.arange(0, 128, LAYOUT), slot(slots, n).load(LAYOUT))

    error = mistake(kernel, "lang-return-in-loop", out=POINTER, n=INT)
    assert pointed(error) == "return slots.index(i % 2)"
    assert f"only in this iteration of the loop of line {kernel_line(slot) + 2}" in error.message


def test_memory_that_a_round_has_chosen_is_gone_after_the_loop():
    @jit
    def kernel(out, n):
        slots = gl.allocate_shared_memory(gl.float32, [2, 128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
        while True:
            slot = slots.index(n % 2)
            slot.store(gl.zeros([128], gl.float32, LAYOUT))
            n -= 1
            if n < 0:
                break
        gl.store(out + gl.arange(0, 128, LAYOUT), slot.load(LAYOUT))

    assert pointed(mistake(kernel, "lang-return-in-loop", out=POINTER, n=INT)) == "slot"


def test_a_loop_that_a_break_may_leave_has_no_counter_before_its_first_round():
    @jit
    def kernel(out, n):
        for i in range(n):
            gl.store(out + i, i)
        for i in range(n):
            if i * i > n:
                break
        gl.store(out, i)

    error = mistake(kernel, "lang-loop-local", out=POINTER, n=INT)
    assert f"only in the loop of line {kernel_line(kernel) + 4}" in error.message


def test_a_loop_whose_break_never_comes_is_endless():
    @jit
    def kernel(out, n, FLAG):
        while True:
            gl.store(out, n)
            if FLAG:
                break
            if n > 0:
                continue

    mistake(kernel, "lang-endless-loop", out=POINTER, n=INT, FLAG=False)


def test_a_value_that_only_the_break_has():
    @jit
    def kernel(out, n):
        while True:
            if n > 100:
                last = n
                break
            n += n
        gl.store(out, last)

    error = mistake(kernel, "lang-one-branch", out=POINTER, n=INT)
    assert pointed(error) == "last"


def test_a_mistake_before_a_break_is_the_only_one():
    @jit
    def kernel(out, n):
        while True:
            n = undefined_name + 1  # noqa: F821
            if n > 3:
                break
        gl.store(out, n)

    mistake(kernel, "lang-undefined-name", out=POINTER, n=INT)


def test_else_of_a_loop():
    @jit
    def kernel(out, n):
        for i in range(n):
            if i == 3:
                break
        else:
            gl.store(out, n)

    assert "else of a loop" in mistake(kernel, "lang-unsupported", out=POINTER, n=INT).message
