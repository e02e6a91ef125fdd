"""Memory that kernels open and allocate: what it is called, and what is no memory of a kernel."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lang.support import POINTER, jit
from tests.lang.test_views import view, wrong
from weft import language as gl
from weft.layout.nested.layouts import Layout

row_major = Layout.row_major

ARRAY = np.zeros(4, np.float32)


def test_an_array_of_the_host_is_not_opened_in_a_kernel():
    @jit
    def kernel(t):
        gl.LayoutTensor(ARRAY)[0] = 1.0

    error = wrong(kernel, "thread-host-view", t=view(64))
    assert "ndarray" in error.message
    assert not ARRAY.any()


def test_new_memory_in_a_kernel_has_a_type_of_the_language():
    @jit
    def kernel(t):
        gl.LayoutTensor.stack_allocation(np.float32, row_major(4))

    wrong(kernel, "language-dtype", t=view(64))


def test_sizes_that_only_the_run_time_knows():
    @jit
    def compared(t):
        if gl.thread_idx.x < t.shape[0]:
            t[0] = 1.0

    @jit
    def counted(t):
        for i in range(t.shape[0]):
            t[i] = 1.0

    @jit
    def indexed(t):
        t[t.shape[0] - 1] = 1.0

    for kernel, what in ((compared, "<"), (counted, "range"), (indexed, "an index")):
        error = wrong(kernel, "thread-unknown-number", t=view(Layout(gl.UNKNOWN, 1), names=("n",)))
        assert what in error.message
        assert "t.dim(axis)" in error.fix


@pytest.mark.parametrize("space", [gl.AddressSpace.SHARED, gl.AddressSpace.LOCAL])
def test_memory_is_called_as_its_variable(space):
    @jit
    def kernel(p):
        square = gl.LayoutTensor.stack_allocation(gl.float32, row_major(4, 4), address_space=space).fill(0)
        other = square
        line = gl.LayoutTensor(p, row_major(64))
        it = gl.LayoutTensorIter(p, row_major(16), 64)
        gl.static_assert(str(other.history) == "square")
        gl.static_assert(str(square.tile[2, 2](1, 0).history) == "square.tile[2, 2](1, 0)")
        gl.static_assert(str(line.history) == "line")
        gl.static_assert(str(it.next(2)[()].history) == "it.next(2)")
        gl.static_assert(str(gl.LayoutTensor(p, row_major(64), name="x").history) == "x")
        other[0]

    error = wrong(kernel, "view-index-count", p=POINTER)
    assert error.message.startswith("square takes 2 indices and got 1")
