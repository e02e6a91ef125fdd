"""What kernels of single threads are told that are nearly right."""

from __future__ import annotations

import pytest

from tests.lang.support import INT, jit
from tests.lang.test_views import view, wrong
from weft import language as gl


@pytest.mark.parametrize(("start", "shown"), [(0, "total = 0.0"), (-3, "total = -3.0")])
def test_an_integer_that_becomes_a_float_in_a_loop(start, shown):
    @jit
    def kernel(t, n):
        total = start
        for i in range(n):
            total += t[i]
        t[0] = total

    error = wrong(kernel, "lang-carried", t=view(64), n=INT)
    assert error.fix == f"start with a float: {shown} before the loop"


def test_a_run_time_integer_that_becomes_a_float_in_a_loop():
    @jit
    def kernel(t, n):
        total = n
        for i in range(n):
            total += t[i]
        t[0] = total

    assert ".to(gl.float32)" in wrong(kernel, "lang-carried", t=view(64), n=INT).fix


def test_a_size_of_a_layout_is_no_function():
    @jit
    def kernel(t):
        t[0] = t.layout.shape[0]()

    error = wrong(kernel, "lang-not-callable", t=view(64, 64))
    assert error.message == "64 cannot be called"
    assert "drop the parentheses" in error.fix and "tuples of integers" in error.fix


def test_a_layout_with_run_time_numbers():
    @jit
    def opened(t, n):
        gl.LayoutTensor(t.ptr, gl.Layout.row_major(4, n))

    @jit
    def allocated(t, n):
        gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout(n), address_space=gl.AddressSpace.LOCAL)

    error = wrong(opened, "view-unknown-layout", t=view(64), n=INT)
    assert error.message.startswith("layout ((4, n):(n, 1)) has numbers that are known at run time only")
    assert "write UNKNOWN in their places" in error.fix and "shape=(4, n)" in error.fix
    assert "(n:1)" in wrong(allocated, "view-unknown-layout", t=view(64), n=INT).message


@pytest.mark.parametrize("name", ["max", "min"])
def test_the_larger_of_two_numbers(name):
    function = getattr(gl, name)

    @jit
    def kernel(t):
        t[0] = function(t[0], 3.0)

    error = wrong(kernel, "language-extreme", t=view(64))
    assert f"{name}(a, b) without gl, or gl.{name}imum(a, b)" in error.fix
