"""`weft explain` says why an access to global memory is narrower than 16 bytes, and what is said makes it wider."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import explain
from weft import language as gl
from weft.language.nvidia.ampere import async_copy

WIDE = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
LINE = gl.BlockedLayout([4], [32], [4], [0])


@weft.jit
def rows(src: gl.tensor, dst: gl.tensor, cols: int, limit: int, layout: gl.constexpr, PROMISE: gl.constexpr):
    if PROMISE:
        cols = gl.multiple_of(cols, PROMISE)
        limit = gl.multiple_of(limit, PROMISE)
    row = gl.arange(0, 16, gl.SliceLayout(1, layout))
    col = gl.arange(0, 64, gl.SliceLayout(0, layout))
    at = row[:, None] * cols + col[None, :]
    gl.store(dst + at, gl.load(src + at, mask=col[None, :] < limit, other=0))


@weft.jit(do_not_specialize=["cols"])
def unspecialised(src: gl.tensor, cols: int, layout: gl.constexpr):
    row = gl.arange(0, 16, gl.SliceLayout(1, layout))
    col = gl.arange(0, 64, gl.SliceLayout(0, layout))
    gl.store(src + row[:, None] * cols + col[None, :], gl.zeros([16, 64], gl.float32, layout))


@weft.jit
def line(src: gl.tensor, shift: gl.constexpr, layout: gl.constexpr):
    gl.store(src + shift + gl.arange(0, 512, layout), gl.zeros([512], gl.float32, layout))


@weft.jit
def strided(src: gl.tensor, stride: int, layout: gl.constexpr):
    gl.store(src + gl.arange(0, 512, layout) * stride, gl.zeros([512], gl.float32, layout))


@weft.jit
def indexed(src: gl.tensor, index: gl.tensor, layout: gl.constexpr):
    at = gl.load(index + gl.arange(0, 512, layout))
    gl.store(src + at, gl.zeros([512], gl.float32, layout))


@weft.jit
def chosen(src: gl.tensor, flags: gl.tensor, layout: gl.constexpr):
    at = gl.arange(0, 512, layout)
    gl.store(src + at, gl.zeros([512], gl.float32, layout), mask=gl.load(flags + at) != 0)


@weft.jit
def copied(src: gl.tensor, shared: gl.constexpr, layout: gl.constexpr):
    buffer = gl.allocate_shared_memory(gl.float32, [512], shared)
    async_copy.async_copy_global_to_shared(buffer, src + gl.arange(0, 512, layout))
    async_copy.commit_group()
    async_copy.wait_group(0)


def floats(count: int = 16 * 512 + 16) -> np.ndarray:
    return np.zeros(count, np.float32)


def accesses(kernel, *arguments, grid=(1,), **options) -> list[explain.Note]:
    facts = explain.explain_kernel(kernel[grid](*arguments, **options))
    return [note for note in facts.notes if note.topic == "global access"]


def texts(kernel, *arguments, **options) -> list[str]:
    return [note.text for note in accesses(kernel, *arguments, **options)]


def test_a_wide_access_needs_no_reason():
    assert texts(rows, floats(), floats(), 64, 64, WIDE, 0) == [
        "load: 2 times 16 bytes a thread",
        "store: 2 times 16 bytes a thread",
    ]


def test_the_argument_that_is_not_known_to_be_a_multiple_is_named():
    cols = "the addresses are not known to be multiples of 8 bytes; cols is not known to be a multiple of 4"
    promise = (
        "pass a multiple of 16, for which a launch compiles the kernel anew, or promise it with gl.multiple_of(cols, 4)"
    )
    load, store = accesses(rows, floats(), floats(), 100, 64, WIDE, 0)
    assert load.text == f"load: 8 times 4 bytes a thread, not 16: {cols}: {promise}"
    assert store.text == f"store: 8 times 4 bytes a thread, not 16: {cols}: {promise}"
    assert (load.warning, store.warning) == (True, True)


def test_a_mask_that_ends_anywhere_leaves_accesses_wide():
    assert texts(rows, floats(), floats(), 64, 60, WIDE, 0) == [
        "load: 2 times 16 bytes a thread, elements one by one where the mask cuts them",
        "store: 2 times 16 bytes a thread",
    ]


def test_a_mask_without_order_keeps_accesses_narrow():
    found = texts(chosen, floats(), np.ones(512, np.int8), LINE)
    assert found[-1] == (
        "store: 4 times 4 bytes a thread, not 16: the mask is not known to be equal for 2 neighbours, whatever divides the "
        "arguments"
    )


def test_the_promise_that_is_advised_makes_it_wide():
    assert texts(rows, floats(), floats(), 100, 60, WIDE, 4) == [
        "load: 2 times 16 bytes a thread",
        "store: 2 times 16 bytes a thread",
    ]


def test_an_argument_that_a_launch_does_not_look_at():
    (text,) = texts(unspecialised, floats(), 64, WIDE)
    assert "cols is not known to be a multiple of 4, since it is in do_not_specialize: promise it with gl.mul" in text


def test_an_array_that_starts_in_between():
    (text,) = texts(line, floats()[1:], 0, LINE)
    fix = "pass an array that starts at one, or promise it with gl.multiple_of(src, 16)"
    assert text.endswith(f"; src is not known to be a multiple of 16 bytes: {fix}")


def test_a_constant_that_no_argument_can_mend():
    (note,) = accesses(line, floats(), 1, LINE)
    assert note.text == (
        "store: 4 times 4 bytes a thread, not 16: the addresses are not known to be multiples of 8 bytes, "
        "whatever divides the arguments"
    )
    assert not note.warning


@pytest.mark.parametrize(
    ("layout", "shown"),
    [
        (
            gl.BlockedLayout([1], [32], [4], [0]),
            "no 2 elements of a thread are neighbours in memory: use a layout with 4 cont",
        ),
        (
            gl.BlockedLayout([2], [32], [4], [0]),
            "no 4 elements of a thread are neighbours in memory: use a layout with 4 cont",
        ),
    ],
)
def test_a_layout_with_fewer_neighbours(layout, shown):
    (text,) = texts(line, floats(), 0, layout)
    assert shown in text


def test_a_thread_with_one_element():
    @weft.jit
    def small(src: gl.tensor, layout: gl.constexpr):
        gl.store(src + gl.arange(0, 128, layout), gl.zeros([128], gl.float32, layout))

    (text,) = texts(small, floats(), gl.BlockedLayout([1], [32], [4], [0]))
    assert text == (
        "store: 1 times 4 bytes a thread, not 16: a thread holds 1 element of the tile: "
        "use a layout with 4 contiguous elements a thread"
    )


def test_a_stride_of_the_launch():
    (text,) = texts(strided, floats(), 2, LINE)
    assert "the stride between a thread's elements is known at run time only: pass 1" in text
    assert texts(strided, floats(), 1, LINE) == ["store: 1 times 16 bytes a thread"]


def test_offsets_of_which_nothing_is_known():
    (_, text) = texts(indexed, floats(), np.arange(512, dtype=np.int32), LINE)
    assert text.endswith("promise it with gl.max_contiguous and gl.multiple_of")


def test_copies_are_as_wide_as_both_memories_allow():
    narrow = gl.PaddedSharedLayout.with_identity_for([[2, 2]], [512], [0])
    (text,) = texts(copied, floats(), narrow, LINE)
    what, _, why = text.partition(", not 16: ")
    assert what == "async_copy.global_to_shared: 2 times 8 bytes a thread"
    assert why == "no more of a thread's elements are neighbours in shared memory"


def test_a_view_says_what_its_layout_leaves_open():
    @weft.jit
    def cleared(view: gl.LayoutTensor):
        tile = view.tile[16, 64](0, 0)
        gl.store(tile, gl.zeros([16, 64], gl.float32, WIDE))

    layout = weft.Layout((weft.UNKNOWN, weft.UNKNOWN), (weft.UNKNOWN, 1))
    (text,) = texts(cleared, weft.LayoutTensor(floats(16 * 100).reshape(16, 100), layout))
    assert text.endswith(
        "; view.stride_0 is not known to be a multiple of 4: "
        "give the view view a static layout, or sizes and strides that 16 divides"
    )
