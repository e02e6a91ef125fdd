"""Views as arguments, the whole way: what kernels know of them, numbers in the simulator, machine code, the disk cache."""

from __future__ import annotations

import re

import numpy as np
import pytest
from rich.console import Console

import weft
from tests.runtime.test_block_launch import caught
from weft import language as gl
from weft import settings
from weft.errors import Hazard
from weft.explain import Explanation, explain_kernel, show
from weft.layout.nested.int_tuple import UNKNOWN
from weft.layout.nested.layouts import Layout
from weft.runtime import MockTensor
from weft.runtime.specialise import Pointer, Scalar, specialise
from weft.tune.key import parts_of
from weft.views import LayoutTensor

pytestmark = pytest.mark.usefixtures("no_gpu")

ROWS = Layout((UNKNOWN, UNKNOWN), (UNKNOWN, 1))


@weft.jit
def add_one(t):
    if gl.global_idx.x < t.dim(0) and gl.global_idx.y < t.dim(1):
        t[gl.global_idx.x, gl.global_idx.y] += 1


@weft.jit
def copy(src, dst):
    if gl.thread_idx.x < src.dim(0) and gl.thread_idx.y < src.dim(1):
        dst[gl.thread_idx.x, gl.thread_idx.y] = src[gl.thread_idx.x, gl.thread_idx.y]


@weft.jit
def beyond(t):
    t[gl.thread_idx.x + 1, 0] = 0.0


def matrix(rows, columns):
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)


@pytest.mark.parametrize("layout", [None, ROWS, Layout((UNKNOWN, 27), (27, 1))], ids=["static", "run time", "rows"])
@pytest.mark.parametrize("block", [(8, 8), (5, 7), 13], ids=str)
def test_every_element_is_met_once(layout, block):
    x = matrix(30, 27)
    rows, columns = block if isinstance(block, tuple) else (block, 1)
    compiled = add_one[weft.cdiv(30, rows), weft.cdiv(27, columns)](LayoutTensor(x, layout), block=block)
    np.testing.assert_array_equal(x, matrix(30, 27) + 1)
    assert compiled.threads == rows * columns
    assert compiled.binary.n_spills == 0


def test_grid_and_block_in_brackets():
    x = matrix(30, 27)
    assert add_one[(4, 4), (8, 8)](LayoutTensor(x)).block == (8, 8, 1)
    np.testing.assert_array_equal(x, matrix(30, 27) + 1)


def test_other_shapes_share_a_kernel_where_the_layout_leaves_them_open():
    for layout, same in ((ROWS, True), (None, False)):
        kernels = [add_one[(4, 4), (8, 8)](LayoutTensor(matrix(*shape), layout)) for shape in ((30, 27), (31, 29))]
        assert (kernels[0].front is kernels[1].front) is same


def test_views_into_arrays():
    x, y = matrix(16, 16), np.zeros((20, 20), np.float32)
    copy[1, (4, 8)](LayoutTensor(x).tile[4, 8](1, 1), LayoutTensor(y[:16, :16]).transpose().tile[4, 8](2, 1))
    expected = np.zeros_like(y)
    expected[8:16, 8:12] = x[4:8, 8:16].T
    np.testing.assert_array_equal(y, expected)


def test_the_last_tile_of_a_masked_view():
    x, y = matrix(10, 7), np.zeros((4, 4), np.float32)
    edge = LayoutTensor(x, masked=True).tile[4, 4](2, 1)
    compiled = copy[(1,), (4, 4)](edge, LayoutTensor(y))
    assert compiled.request.arguments["src"].names == ("limit_0", "limit_1")
    np.testing.assert_array_equal(y[:2, :3], x[8:, 4:])
    assert not y[2:].any()
    assert not y[:, 3].any()


def test_tensors_of_pytorch(torch):
    x = torch.arange(30.0 * 27).reshape(27, 30).T
    add_one[(4, 4), (8, 8)](LayoutTensor(x))
    np.testing.assert_array_equal(x.numpy(), np.arange(30.0 * 27).reshape(27, 30).T + 1)


def test_a_description_is_as_good_as_the_view():
    x = matrix(5, 5)
    argument = LayoutTensor(x).__weft_view__()
    for _ in range(2):
        add_one[1, (5, 5)](argument)
    np.testing.assert_array_equal(x, matrix(5, 5) + 2)


def test_a_view_describes_itself_once_and_keeps_its_array():
    view = LayoutTensor(matrix(5, 5), ROWS)
    argument = view.__weft_view__()
    assert view.__weft_view__() is argument
    assert argument.array is view.array
    assert argument.names == ("size_0", "size_1", "stride_0")


# What is known at compile time


def test_facts_of_numbers_and_addresses():
    kind = specialise("add_one", "t", LayoutTensor(np.zeros((32, 18), np.float32)[:, 4:], ROWS))
    assert kind.pointer.dtype == "float32"
    assert kind.numbers == (Scalar("int32", True), Scalar("int32"), Scalar("int32"))
    stand_in = MockTensor("fp32")
    view = LayoutTensor(stand_in, ROWS, shape=(32, 7), strides=(64, 1))
    text = add_one.warmup(view, block=(8, 8), target="sm_90a").asm["ir"]
    assert (
        "%t: ptr<f32> {divisible = 16}, %t.size_0: i32 {divisible = 16, optional = true}, %t.size_1: i32 {opt" in text
    )
    kind = specialise("add_one", "t", view.tile[8, 1](0, 1))
    assert kind.pointer == Pointer("float32", False)
    assert kind.numbers == (Scalar("int32", True),)


def test_numbers_without_facts():
    kernel = weft.jit(add_one.fn, do_not_specialize=["t"])
    view = LayoutTensor(MockTensor("fp32"), ROWS, shape=(32, 16), strides=(64, 1))
    compiled = kernel.warmup(view, block=(8, 8), target="sm_90a")
    assert "divisible = 16" not in compiled.asm["ir"]


def test_large_views_count_in_64_bits():
    for rows, bits in ((2**18, 32), (2**19, 64)):
        for layout in (ROWS, Layout((UNKNOWN, 4096), (4096, 1)), Layout((rows, 4096), (4096, 1))):
            view = LayoutTensor(MockTensor("fp32"), layout, shape=(rows, 4096), strides=(4096, 1))
            text = add_one.warmup(view, block=(8, 8), target="sm_90a").asm["ir"]
            numbers = re.findall(r"%t\.\w+: i(\d+)", text.partition(")")[0])
            assert set(numbers) <= {str(bits)}
            (offset,) = re.findall(r"memory.addptr %t, (%\d+)", text)
            assert f"{offset} = arith.add" in text
            assert re.search(rf"{offset} = arith.add .* : i{bits}\n", text)


def test_numbers_that_nobody_reads_are_not_passed():
    @weft.jit
    def first(t):
        t[0, 0] = 1.0

    x = matrix(3, 5)
    compiled = first[1](LayoutTensor(x, ROWS), block=1)
    assert x[0, 0] == 1.0
    assert "t.stride_0" in compiled.binary.unused


def test_a_stand_in_has_no_elements_to_launch_with():
    view = LayoutTensor(MockTensor("fp32"), Layout((4, 4), (4, 1)))
    assert add_one.warmup(view, block=4, target="sm_90a").asm["cubin"]
    caught(lambda: add_one[1, (4, 4)](view), "launch-mock-argument")


def test_an_explanation_counts_threads(capsys):
    facts = explain_kernel(add_one[1, (4, 4)](LayoutTensor(matrix(4, 4))))
    show(Explanation((facts,)), Console())
    assert "add_one for sm_90a, blocks of (4, 4, 1) threads" in capsys.readouterr().out


# The disk cache


def test_a_kernel_is_found_again_by_its_block_and_its_views(tmp_path):
    def cubin(layout=ROWS, block=(8, 8), strides=(64, 1)):
        kernel = weft.jit(add_one.fn)
        view = LayoutTensor(MockTensor("fp32"), layout, shape=(32, 7), strides=strides)
        compiled = kernel.warmup(view, block=block, target="sm_90a")
        found = "compiled" not in vars(compiled.front)
        assert compiled.asm["cubin"]
        return found

    with settings.using(cache_dir=tmp_path):
        assert [cubin(), cubin()] == [False, True]
        assert [cubin(block=(4, 16)), cubin(block=(4, 16))] == [False, True]
        other = Layout((UNKNOWN, UNKNOWN), (1, UNKNOWN))
        assert [cubin(other, strides=(1, 64)), cubin(other, strides=(1, 64))] == [False, True]
        assert [cubin(strides=(65, 1)), cubin(strides=(65, 1))] == [False, True]
        assert cubin()


# What goes wrong


def test_an_access_outside_is_found_by_the_name_of_the_parameter():
    x = matrix(8, 4)
    with pytest.raises(Hazard, match=r"index 8 along axis 0 of t,"):
        beyond[1](LayoutTensor(x), block=8)


def test_tuning_keys_of_views():
    keys = parts_of("add_one", ["t"], ["t"], frozenset())
    views = [LayoutTensor(matrix(*shape), layout) for shape in ((8, 8), (9, 8)) for layout in (None, ROWS)]
    bound = [{"t": view} for view in views]
    assert len({keys.quick(each) for each in bound}) == len({keys.point(each) for each in bound}) == 4
    again = keys.point({"t": LayoutTensor(matrix(8, 8), ROWS)})
    assert again == keys.point(bound[1])
    assert again.dtypes == (("t", "float32"),)
    assert again.simulated
