"""One test per mistake in calls: its code, its line, what the caret points at, and what to write instead."""

from __future__ import annotations

import math

import pytest

from tests.lang.support import INT, POINTER, jit, mistake, pointed
from weft import language as gl
from weft.language.nvidia import hopper


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


def test_host_function():
    @jit
    def kernel(out, n):
        gl.store(out, host_function(n))

    error = mistake(kernel, "lang-host-function", out=POINTER, n=INT)
    assert "@weft.jit" in error.fix
    assert "@weft.constexpr_function" in error.fix


def test_result_dropped():
    @gl.must_use_result
    @jit
    def doubled(x):
        return x * 2

    @jit
    def kernel(out, n):
        doubled(n)
        gl.store(out, n)

    error = mistake(kernel, "lang-result-dropped", out=POINTER, n=INT)
    assert error.fix == "assign it, as in result = doubled(n)"


def test_result_of_a_function_of_a_module_dropped():
    @jit
    def kernel(out, n):
        gl.mbarrier_test_wait(out, n)

    error = mistake(kernel, "lang-result-dropped", out=POINTER, n=INT)
    assert error.fix == "assign it, as in result = gl.mbarrier_test_wait(out, n)"


def test_result_of_a_method_dropped():
    @gl.aggregate
    class Counter:
        count: gl.tensor

        @jit
        @gl.must_use_result
        def next(self):
            return Counter(self.count + 1)

    @jit
    def kernel(out, n):
        counter = Counter(n)
        counter.next()
        gl.store(out, counter.count)

    error = mistake(kernel, "lang-result-dropped", out=POINTER, n=INT)
    assert error.fix == "assign it, as in counter = counter.next()"


def test_not_callable():
    @jit
    def kernel(out, n):
        gl.store(out, n(3))

    mistake(kernel, "lang-not-callable", out=POINTER, n=INT)


CALLS = {
    "gl.BlockedLayout([1], [32], [4], [0], colour=1)": "BlockedLayout got an unexpected keyword argument 'colour'",
    "helper(n)": "got no value for 'size'",
    "helper(n, 1, 2)": "takes 2 arguments, but got 3",
    "helper(n, 1, size=2)": "got 'size' twice",
    "helper(n, 1, colour=2)": "has no parameter 'colour'",
    "gl.store(out, n, maks=n)": "got an unexpected keyword argument 'maks'",
    "gl.arange()": "missing",
    "hopper.warpgroup_mma_layout(gl.float16, [64, 64])": "missing 1 required positional argument: 'num_warps'",
}


@pytest.mark.parametrize("call", CALLS)
def test_call_arguments(call):
    from tests.lang.test_random_programs import kernel_of

    kernel = kernel_of(f"def program(out, n):\n    {call}\n", f"<call {call}>")
    kernel.__weft_jit__.__globals__.update(helper=helper, hopper=hopper)
    error = mistake(kernel, "lang-call-arguments", out=POINTER, n=INT)
    assert CALLS[call] in error.message
    assert error.fix.startswith("it takes (")
    assert pointed(error) == call


def test_math():
    @jit
    def kernel(out, n):
        gl.store(out, math.exp(n))

    assert "gl.exp" in mistake(kernel, "lang-math", out=POINTER, n=INT).fix
