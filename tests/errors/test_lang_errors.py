"""One test per mistake in a kernel's text: its code, its line, what the caret points at, and what to write instead."""

# ruff: noqa: B007, F821 (kernels under test are wrong on purpose)

from __future__ import annotations

import pytest

from tests.lang.support import INT, POINTER, group_of, jit, kernel_line, mistake, pointed
from weft import language as gl
from weft.ir.types import int64
from weft.lang import RuntimeParam

LAYOUT = gl.BlockedLayout([1], [32], [4], [0])
OTHER = gl.BlockedLayout([2], [32], [4], [0])
ITEMS = [1, 2, 3]
LONG = RuntimeParam(int64)


def host_function(x):
    return x


@jit
def helper(x, size: gl.constexpr):
    return x * size


@jit
def forever(x):
    return again(x)


@jit
def again(x):
    return forever(x)


@gl.constexpr_function
def broken(n):
    raise KeyError(f"no {n}")


@gl.aggregate
class Mma:
    acc: gl.tensor
    tag: gl.constexpr


def test_unsupported():
    @jit
    def kernel(out, n):
        with n:
            pass

    error = mistake(kernel, "lang-unsupported", out=POINTER, n=INT)
    assert pointed(error).startswith("with n")
    assert "called" not in str(error)


CONSTRUCTS = {
    "lambda": "f = lambda x: x",
    ":=": "if (y := n): pass",
    "try": "try:\n        pass\n    except ValueError: pass",
    "yield": "yield n",
    "global": "global g",
    "del": "y = n; del y",
    "a dictionary": "y = {1: n}",
    "a set": "y = {1, n}",
    "a nested def": "def inner(): pass",
    "a class definition": "class C: pass",
    "import": "import os",
    "raise": "raise ValueError",
    "else of a loop": "for i in range(n): pass\n    else: pass",
    "a dictionary comprehension": "y = {i: i for i in (1, 2)}",
    "more than one counter of range": "for i, j in range(n): pass",
}


@pytest.mark.parametrize("what", CONSTRUCTS)
def test_each_unsupported_construct_is_named(what):
    from tests.lang.test_random_programs import kernel_of

    text = f"def program(out, n):\n    {CONSTRUCTS[what]}\n"
    error = mistake(kernel_of(text, f"<construct {what}>"), "lang-unsupported", out=POINTER, n=INT)
    assert error.message.startswith(what + " is not supported")
    assert error.fix


def test_kernel_return():
    @jit
    def kernel(out, n):
        return n

    assert "'n' (an int32 scalar)" in mistake(kernel, "lang-kernel-return", out=POINTER, n=INT).message


def test_recursion():
    @jit
    def kernel(out, n):
        gl.store(out, forever(n))

    error = mistake(kernel, "lang-recursion", out=POINTER, n=INT)
    assert "kernel -> forever -> again -> forever" in error.message
    assert [loc.function.rpartition(".")[2] for loc in error.loc.chain()] == ["again", "forever", "kernel"]


def test_recursion_on_constants_that_never_ends():
    @jit
    def counting(x, N: gl.constexpr):
        return counting(x + 1, N + 1)

    @jit
    def kernel(out, n):
        gl.store(out, counting(n, 0))

    error = mistake(kernel, "lang-recursion", out=POINTER, n=INT)
    assert "counting calls itself without end: kernel -> counting -> ... -> counting" in error.message
    assert "let a constant argument, which each call changes, decide where it ends" in error.fix
    (callers,) = (line for line in str(error).splitlines() if "called from" in line)
    assert callers.count(" <- ") == 8 and " more) <- " in callers


def test_nesting():
    from tests.lang.test_random_programs import kernel_of

    text = "def program(out, n):\n    x = " + "+".join(["n"] * 600) + "\n"
    mistake(kernel_of(text, "<nesting>"), "lang-nesting", out=POINTER, n=INT)


def test_unroll():
    @jit
    def kernel(out, n):
        for x in n:
            pass

    assert pointed(mistake(kernel, "lang-unroll", out=POINTER, n=INT)) == "n"

    @jit
    def endless(out, n):
        for i in gl.static_range(1 << 40):
            gl.store(out, i)

    error = mistake(endless, "lang-unroll", out=POINTER, n=INT)
    assert "more than 100000 values" in error.message
    assert "use range, which is a loop on the GPU" in error.fix


def test_undefined_name():
    @jit
    def kernel(out, n):
        gl.store(out, n + lenght)

    error = mistake(kernel, "lang-undefined-name", out=POINTER, n=INT)
    assert pointed(error) == "lenght"

    @jit
    def close(out, count):
        gl.store(out, cuont)

    assert "did you mean 'count'?" in mistake(close, "lang-undefined-name", out=POINTER, count=INT).fix


def test_unassigned():
    @jit
    def kernel(out, n):
        gl.store(out, x)
        x = n

    assert pointed(mistake(kernel, "lang-unassigned", out=POINTER, n=INT)) == "x"


def test_one_branch():
    @jit
    def kernel(out, n):
        if n > 0:
            x = n
        gl.store(out, x)

    error = mistake(kernel, "lang-one-branch", out=POINTER, n=INT)
    assert pointed(error) == "x"
    ((label, loc),) = error.related
    assert label == "assigned here"
    assert loc.line == error.loc.line - 1


def test_loop_local():
    @jit
    def kernel(out, n):
        for i in range(n):
            x = i
        gl.store(out, x)

    assert f"line {kernel_line(kernel) + 2}" in mistake(kernel, "lang-loop-local", out=POINTER, n=INT).message


def test_loop_counter():
    @jit
    def kernel(out, n):
        for i in range(n):
            gl.store(out, i)
        gl.store(out, i)

    assert pointed(mistake(kernel, "lang-loop-counter", out=POINTER, n=INT)) == "i"


def test_attribute():
    @jit
    def kernel(out, n):
        gl.stor(out, n)

    error = mistake(kernel, "lang-attribute", out=POINTER, n=INT)
    assert "module weft.language has no attribute 'stor'" in error.message
    assert "did you mean 'store'?" in error.fix
    assert pointed(error) == "gl.stor"

    @jit
    def of_another_vendor(out, n):
        gl.amd.cdna3.buffer_store(out, n)

    error = mistake(of_another_vendor, "lang-attribute", out=POINTER, n=INT)
    assert "weft compiles for NVIDIA's GPUs, whose own functions are in gl.nvidia" in error.fix

    @jit
    def field(out, n):
        mma = Mma(n, 0)
        mma.accu = n

    assert "acc, tag" in mistake(field, "lang-attribute", out=POINTER, n=INT).fix


def test_not_constexpr():
    @jit
    def kernel(out, n):
        size: gl.constexpr = n * 2
        gl.store(out, size)

    error = mistake(kernel, "lang-not-constexpr", out=POINTER, n=INT)
    assert error.message.startswith("'size' must be known")

    @jit
    def argument(out, n):
        gl.store(out, helper(n, n))

    error = mistake(argument, "lang-not-constexpr", out=POINTER, n=INT)
    assert "argument 'size' of helper" in error.message
    assert pointed(error) == "helper(n, n)"


def test_unpack():
    @jit
    def kernel(out, n):
        a, b = (n, n, n)

    assert "3 values for 2 names" in mistake(kernel, "lang-unpack", out=POINTER, n=INT).message


def test_not_a_sequence():
    @jit
    def kernel(out, n):
        a, b = n

    mistake(kernel, "lang-not-a-sequence", out=POINTER, n=INT)


def test_immutable():
    @jit
    def kernel(out, n):
        t = gl.arange(0, 128, LAYOUT)
        t[0] = n

    assert "gl.where" in mistake(kernel, "lang-immutable", out=POINTER, n=INT).fix

    @jit
    def append(out, n):
        ITEMS.append(4)

    assert "xs + [x]" in mistake(append, "lang-immutable", out=POINTER, n=INT).fix
    assert ITEMS == [1, 2, 3]


def test_index():
    @jit
    def kernel(out, n):
        gl.store(out, ITEMS[n])

    assert pointed(mistake(kernel, "lang-index", out=POINTER, n=INT)) == "ITEMS[n]"


def test_operator():
    @jit
    def kernel(out, n):
        gl.store(out, n + 1 + (ITEMS - 1))

    error = mistake(kernel, "lang-operator", out=POINTER, n=INT)
    assert pointed(error) == "ITEMS - 1"


def test_raised():
    @jit
    def kernel(out, n, SIZE):
        gl.store(out, n + 64 // SIZE)

    error = mistake(kernel, "lang-raised", out=POINTER, n=INT, SIZE=0)
    assert "ZeroDivisionError" in error.message
    assert pointed(error) == "64 // SIZE"

    @jit
    def within(out, n):
        gl.store(out, broken(3))

    error = mistake(within, "lang-raised", out=POINTER, n=INT)
    assert "KeyError at compile time: 'no 3'" in error.message
    assert isinstance(error.__cause__, KeyError)


def test_assertion():
    @jit
    def kernel(out, n, SIZE):
        assert SIZE % 2 == 0, f"SIZE is {SIZE}"

    assert "SIZE is 3" in mistake(kernel, "lang-assertion", out=POINTER, n=INT, SIZE=3).message


def test_internal():
    from weft.ops.check import TypingError

    def failing():
        raise TypingError("operands differ")

    failing.__weft_builtin__ = True

    @jit
    def kernel(out, n):
        failing()

    error = mistake(kernel, "lang-internal", out=POINTER, n=INT)
    assert "operands differ" in error.message


def test_mistakes_of_the_language_get_their_line():
    @jit
    def add(x, y):
        return x + y

    @jit
    def kernel(out, n):
        a = gl.arange(0, 128, LAYOUT)
        b = gl.arange(0, 128, OTHER)
        gl.store(out + a, add(a, b))

    error = mistake(kernel, "tile-layout-mismatch", out=POINTER, n=INT)
    assert pointed(error) == "x + y"
    assert error.loc.caller.source.strip() == "gl.store(out + a, add(a, b))"
    assert "called from" in str(error)


def test_several_mistakes_are_reported_together_and_once():
    @jit
    def kernel(out, n):
        total = 0
        for i in range(n):
            total += i
            x = missing_one + i
            gl.store(out, x)
        y = missing_two
        gl.store(out, y + total)
        gl.store(out, host_function(y))
        gl.store(out, host_function(n))

    errors = group_of(kernel, out=POINTER, n=INT).errors
    assert [e.code for e in errors] == ["lang-undefined-name", "lang-undefined-name", "lang-host-function"]
    assert [pointed(e) for e in errors] == ["missing_one", "missing_two", "host_function(n)"]


def test_too_many_mistakes_end_the_reading():
    from tests.lang.test_random_programs import kernel_of

    text = "def program(out, n):\n" + "".join(f"    x{i} = nothing{i}\n" for i in range(30))
    assert len(group_of(kernel_of(text, "<many>"), out=POINTER, n=INT).errors) == 10


def test_mistakes_about_sources():
    """Where the text cannot be had; what provokes each is in tests/lang/test_source.py."""
    from weft.errors import source

    codes = {source.NO_SOURCE.code, source.SOURCE_CHANGED.code, source.LAMBDA.code}
    assert codes == {"lang-no-source", "lang-source-changed", "lang-lambda-kernel"}
