"""Bad kernels as a user meets them: a kernel of this file, launched, and the report read.

The families have their own files with every row; here each kind of mistake goes the whole way once, from the author's line
to the text that is shown.
"""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.errors.users import LINE, copy, shown, zeros
from weft import language as gl
from weft.errors import CompilationError, ErrorGroup, LaunchError, LayoutError, hazard

PAIRS = gl.BlockedLayout([2], [32], [4], [0])
MATRIX = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])


# Layouts and shapes


def test_a_layout_that_does_not_fit_the_warp():
    @weft.jit
    def kernel(out):
        layout: gl.constexpr = gl.BlockedLayout([1], [16], [4], [0])
        gl.store(out + gl.arange(0, 64, layout), 1.0)

    line = "layout: gl.constexpr = gl.BlockedLayout([1], [16], [4], [0])"
    text = shown(lambda: kernel[1](zeros()), "layout-warp-size", line, LayoutError)
    assert "threads_per_warp [16] multiplies to 16, but a warp has 32 threads" in text


def test_a_layout_that_does_not_fit_num_warps():
    line = "offsets = gl.arange(0, N, layout)"
    text = shown(lambda: copy[1](zeros(), zeros(), 128, LINE, num_warps=8), "layout-num-warps", line, LayoutError)
    assert "4 warps, but the kernel runs with num_warps=8" in text
    assert "launch with num_warps=4" in text


def test_an_order_that_is_no_permutation():
    text = shown(lambda: gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 1]), "layout-order", kind=LayoutError)
    assert "order [1, 1]" in text


def test_a_shape_that_is_no_power_of_two():
    line = "offsets = gl.arange(0, N, layout)"
    text = shown(lambda: copy[1](zeros(), zeros(), 100, LINE), "tile-arange", line)
    assert "100 elements" in text


def test_ranks_that_differ():
    @weft.jit
    def kernel(out):
        column = gl.arange(0, 64, gl.SliceLayout(1, MATRIX))
        total = gl.zeros([64, 32], gl.int32, MATRIX) + column

    line = "total = gl.zeros([64, 32], gl.int32, MATRIX) + column"
    text = shown(lambda: kernel[1](zeros()), "tile-rank-mismatch", line, LayoutError)
    assert "an int32 tile [64, 32]" in text
    assert "'column' (an int32 tile [64])" in text
    assert "x[:, None]" in text


def test_shapes_that_differ():
    @weft.jit
    def kernel(out):
        total = gl.zeros([64], gl.float32, LINE) + gl.zeros([128], gl.float32, LINE)

    line = "total = gl.zeros([64], gl.float32, LINE) + gl.zeros([128], gl.float32, LINE)"
    text = shown(lambda: kernel[1](zeros()), "tile-shape-mismatch", line, LayoutError)
    assert "dimension 0 is 64 in one and 128 in the other" in text


def test_two_layouts_in_one_operation_inside_a_helper():
    @weft.jit
    def add(a, b):
        return a + b

    @weft.jit
    def kernel(out):
        wide = gl.load(out + gl.arange(0, 512, PAIRS))
        add(gl.zeros([512], gl.float32, LINE), wide)

    text = shown(lambda: kernel[1](zeros()), "tile-layout-mismatch", "return a + b", LayoutError)
    assert repr(LINE) in text
    assert repr(PAIRS) in text
    assert f"write gl.convert_layout(wide, gl.{LINE!r}) (cost: 2 KiB through shared memory" in text
    assert f"called from {__file__}:" in text


def test_two_layouts_of_values_without_a_name():
    @weft.jit
    def kernel(x):
        gl.store(x + gl.arange(0, 512, PAIRS), gl.zeros([512], gl.float32, LINE))

    text = shown(lambda: kernel[1](zeros()), "tile-layout-mismatch")
    assert f"write gl.convert_layout(value, gl.{PAIRS!r})" in text


def test_a_conversion_that_is_not_trivial():
    @weft.jit
    def kernel(out):
        value = gl.convert_layout(gl.zeros([512], gl.float32, LINE), PAIRS, assert_trivial=True)

    line = "value = gl.convert_layout(gl.zeros([512], gl.float32, LINE), PAIRS, assert_trivial=True)"
    text = shown(lambda: kernel[1](zeros()), "tile-not-trivial", line, LayoutError)
    assert "is not free (cost: 2 KiB through shared memory" in text


# Control flow and Python


@weft.aggregate
class Pair:
    acc: gl.tensor
    rounds: gl.constexpr


def both_lines(text: str, before: str, after: str) -> None:
    assert text.index(after) < text.index("before the loop:") < text.index(before)


def test_a_layout_that_changes_in_a_loop():
    @weft.jit
    def kernel(out, n):
        pair = Pair(gl.zeros([512], gl.float32, LINE), 3)
        for _ in range(n):
            pair = Pair(gl.convert_layout(pair.acc, PAIRS), 3)

    line = "pair = Pair(gl.convert_layout(pair.acc, PAIRS), 3)"
    text = shown(lambda: kernel[1](zeros(), 4), "lang-carried", line, CompilationError)
    assert f"pair.acc is a float32 tile [512] in {LINE!r} before the loop" in text
    assert f"gl.convert_layout(pair.acc, gl.{LINE!r})" in text
    both_lines(text, "pair = Pair(gl.zeros([512], gl.float32, LINE), 3)", line)


def test_a_type_that_changes_in_a_loop():
    @weft.jit
    def kernel(out, n):
        acc = gl.load(out)
        for _ in range(n):
            acc = acc.to(gl.float64) + 1

    text = shown(lambda: kernel[1](zeros(), 4), "lang-carried", "acc = acc.to(gl.float64) + 1", CompilationError)
    assert "acc is a float32 scalar before the loop" in text
    both_lines(text, "acc = gl.load(out)", "acc = acc.to(gl.float64) + 1")


def test_a_constexpr_field_that_changes_in_a_loop():
    @weft.jit
    def kernel(out, n):
        pair = Pair(gl.zeros([512], gl.float32, LINE), 3)
        for _ in range(n):
            pair = Pair(pair.acc, pair.rounds + 1)

    line = "pair = Pair(pair.acc, pair.rounds + 1)"
    text = shown(lambda: kernel[1](zeros(), 4), "lang-carried", line, CompilationError)
    assert "pair.rounds is 3 before the loop" in text
    assert "but 4 at the end of its body" in text
    both_lines(text, "pair = Pair(gl.zeros([512], gl.float32, LINE), 3)", line)


def test_unsupported_python():
    @weft.jit
    def kernel(out):
        table = {"a": 1}

    text = shown(lambda: kernel[1](zeros()), "lang-unsupported", 'table = {"a": 1}', CompilationError)
    assert "a dictionary is not supported" in text
    assert "use separate variables" in text


def test_several_mistakes_are_reported_together():
    @weft.jit
    def kernel(out, n):
        out.fill(0)
        gl.store(out, lenght)  # noqa: F821

    with pytest.raises(ErrorGroup) as caught:
        kernel[1](zeros(), 4)
    assert [error.code for error in caught.value.errors] == ["lang-attribute", "lang-undefined-name"]


def test_a_constexpr_that_is_not_one():
    @weft.jit
    def kernel(out, n):
        gl.store(out + gl.arange(0, n, LINE), 1.0)

    line = "gl.store(out + gl.arange(0, n, LINE), 1.0)"
    text = shown(lambda: kernel[1](zeros(), 128), "language-constexpr-needed", line, CompilationError)
    assert "annotate the parameter that it comes from as gl.constexpr" in text


def test_an_unknown_keyword():
    @weft.jit
    def kernel(out):
        gl.load(out, maks=True)

    text = shown(lambda: kernel[1](zeros()), "lang-call-arguments", "gl.load(out, maks=True)", CompilationError)
    assert "mask=None" in text
    text = shown(lambda: copy[1](zeros(), zeros(), 128, LINE, num_warp=4), "launch-unknown-keyword", kind=LaunchError)
    assert "did you mean num_warps?" in text


def test_numpy_in_a_kernel():
    @weft.jit
    def kernel(out):
        gl.store(out, np.exp(gl.load(out)))

    line = "gl.store(out, np.exp(gl.load(out)))"
    assert "write gl.exp(...)" in shown(lambda: kernel[1](zeros()), "lang-host-function", line, CompilationError)


def test_a_function_of_the_language_called_as_a_method():
    @weft.jit
    def kernel(out):
        gl.store(out, gl.load(out).sqrt())

    line = "gl.store(out, gl.load(out).sqrt())"
    assert "write gl.sqrt(...)" in shown(lambda: kernel[1](zeros()), "lang-attribute", line, CompilationError)


def test_products_and_transposes_under_other_names():
    @weft.jit
    def kernel(out):
        gl.dot(out, out)

    text = shown(lambda: kernel[1](zeros()), "lang-attribute", "gl.dot(out, out)", CompilationError)
    assert "warpgroup_mma of weft.language.nvidia.hopper, mma_v2 of" in text

    @weft.jit
    def turned(out):
        smem = gl.allocate_shared_memory(gl.float32, [16, 8], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
        smem.T.index(0)

    text = shown(lambda: turned[1](zeros()), "lang-attribute", "smem.T.index(0)", CompilationError)
    assert ".permute([1, 0]) is the transpose" in text


@pytest.mark.parametrize("value", [3, len, copy])
def test_a_kernel_of_what_is_no_function(value):
    text = shown(lambda: weft.jit(value), "launch-no-function", kind=LaunchError)
    assert repr(value) in text and "directly above def" in text


def test_a_promise_of_contiguity_that_does_not_hold():
    @weft.jit
    def kernel(src, dst, stride):
        offsets = gl.max_contiguous(gl.arange(0, 128, LINE) * stride, 128)
        gl.store(dst + gl.arange(0, 128, LINE), gl.load(src + offsets))

    line = "offsets = gl.max_contiguous(gl.arange(0, 128, LINE) * stride, 128)"
    text = shown(lambda: kernel[1](zeros(), zeros(), 2), "hazard-hint", line, hazard.BrokenPromise)
    assert "the element at index 1 is 2" in text


def test_a_kernel_without_source_says_where_it_looked():
    space = {"weft": weft, "gl": gl}
    exec("@weft.jit\ndef kernel(out):\n    gl.store(out, 1.0)\n", space)  # noqa: S102
    text = shown(lambda: space["kernel"][1](zeros()), "lang-no-source", kind=CompilationError)
    assert "the source of kernel cannot be read from <string>" in text
    assert "put the kernel into a file" in text
