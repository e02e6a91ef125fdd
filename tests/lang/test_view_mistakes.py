"""Mistakes that stand next to views: arrays that are none, and methods that have not been called to the end."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import UserError


def refused(kernel, argument, code):
    """The error of a launch of eight threads."""
    with pytest.raises(UserError) as caught:
        kernel[1](argument, block=8)
    assert caught.value.code == code, str(caught.value)
    return caught.value


def test_an_array_that_is_no_view_takes_one_integer():
    @weft.jit
    def written(out):
        out[gl.thread_idx.x, 0] = 1.0

    @weft.jit
    def read(out):
        gl.store(out, gl.sum(out[0:8]))

    @weft.jit
    def fraction(out):
        out[1.5] += 1

    for kernel, key in ((written, "index, 0"), (read, "0:8"), (fraction, "1.5")):
        error = refused(kernel, np.zeros(8, np.float32), "language-pointer-index")
        assert error.message.startswith("'out' (a pointer<float32>) is indexed by one integer, not by ")
        assert key in error.message or key.startswith("index")
        assert "weft.LayoutTensor(array)" in error.fix


def test_only_a_pointer_is_moved():
    @weft.jit
    def kernel(out):
        out[0] = out[1].unsafe_offset(2)

    assert (
        "unsafe_offset needs a pointer" in refused(kernel, np.zeros(8, np.float32), "language-pointer-needed").message
    )


def test_an_alignment_is_a_power_of_two_of_whole_numbers():
    @weft.jit
    def narrow(t):
        t.store(0, t.load(width=4, load_alignment=2)(0))

    @weft.jit
    def odd(t):
        t.store(width=2, store_alignment=12)(0, 1.0)

    for kernel, nbytes in ((narrow, 2), (odd, 12)):
        error = refused(kernel, weft.LayoutTensor(np.zeros(8, np.float32)), "view-alignment")
        assert f"an alignment of {nbytes} bytes" in error.message and "4 bytes of a float32" in error.fix


def test_a_method_without_its_last_parentheses_is_called_so():
    @weft.jit
    def written(t):
        t.vectorize[1][0] = 1.0

    @weft.jit
    def read(t):
        t[0] = t.tile[4][0]

    @weft.jit
    def named(t):
        t.tile.fill(0)

    @weft.jit
    def added(t):
        t[0] = t.load[1] + 1

    @weft.jit
    def layout(t):
        gl.stack_allocation[gl.float32](gl.row_major[4])

    codes = ("lang-immutable", "lang-brackets", "lang-attribute", "lang-operator", "view-layout")
    for kernel, code in zip((written, read, named, added, layout), codes, strict=True):
        error = refused(kernel, weft.LayoutTensor(np.zeros(8, np.float32)), code)
        assert "lacks its last parentheses" in error.message
        assert error.fix.startswith("write them")


def test_a_function_goes_by_its_name():
    @weft.jit
    def kernel(t):
        t[0] = gl.warp.sum + 1

    assert (
        "between the function warp_sum and 1"
        in refused(kernel, weft.LayoutTensor(np.zeros(8, np.float32)), "lang-operator").message
    )


def test_a_load_without_a_width_is_told_of_it():
    @weft.jit
    def kernel(t):
        t[0] = t.load(0)

    assert ".load[4](i, j)" in refused(kernel, weft.LayoutTensor(np.zeros(8, np.float32)), "view-load-width").fix
