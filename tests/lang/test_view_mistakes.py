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


def test_an_array_that_is_no_view_is_not_indexed():
    @weft.jit
    def written(out):
        out[gl.thread_idx.x] = 1.0

    @weft.jit
    def read(out):
        gl.store(out, out[gl.thread_idx.x])

    for kernel in (written, read):
        error = refused(kernel, np.zeros(8, np.float32), "language-pointer-index")
        assert "'out' (a pointer<float32>)" in error.message
        assert "weft.LayoutTensor(array)" in error.fix


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

    for kernel, code in ((written, "lang-immutable"), (read, "lang-brackets"), (named, "lang-attribute")):
        error = refused(kernel, weft.LayoutTensor(np.zeros(8, np.float32)), code)
        assert "lacks its last parentheses" in error.message


def test_a_load_without_a_width_is_told_of_it():
    @weft.jit
    def kernel(t):
        t[0] = t.load(0)

    assert ".load[4](i, j)" in refused(kernel, weft.LayoutTensor(np.zeros(8, np.float32)), "view-load-width").fix
