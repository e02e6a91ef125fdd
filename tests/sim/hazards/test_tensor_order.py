"""Products and copies of one thread: which are ordered, and which are so only after a wait for a commit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.sim.both import results, verdict
from tests.sim.tensor_kernels import barriers, blackwell, brought, described, keep, poisoned, refused  # noqa: F401
from weft import language as gl
from weft.errors import hazard
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    cluster,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_fence,
    tcgen05_mma,
    tcgen05_mma_scaled,
    tma,
)
from weft.nvidia.hopper import TensorDescriptor

M, N = 128, 64
WIDE = TensorMemoryLayout([M, M], col_stride=1)
HALVES = TensorMemoryLayout([M, N], col_stride=1)
SCALES = TensorMemoryScalesLayout()
BYTES = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=8, rank=2)


def matrix(rows: int = M) -> np.ndarray:
    return (np.arange(rows * N).reshape(rows, N) % 7 - 3).astype(np.float16)


@weft.jit(sync="none")
def followed(
    src, out, what: gl.constexpr, waits: gl.constexpr, wide: gl.constexpr, halves: gl.constexpr, scales: gl.constexpr,
    rows: gl.constexpr,
):  # fmt: skip
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    b = a.permute((1, 0))
    parts = allocate_tensor_memory(gl.float32, [3, 128, 64], halves)
    acc = parts.index(0)._reinterpret(gl.float32, [128, 128], halves if what == "halves" else wide)
    other = allocate_tensor_memory(gl.float32, [128, 128], wide)
    left = acc._reinterpret(src.dtype, [128, 64], halves)
    bars = barriers(3)
    bar, done, between = bars.index(0), bars.index(1), bars.index(2)
    factors = allocate_tensor_memory(gl.uint8, [128, 4], scales)
    if what == "scales":
        factors.store(gl.full([128, 4], 127, gl.uint8, factors.get_reg_layout()))
        tcgen05_fence(before=True)
        gl.barrier()
    brought(bar, src, a, 0)
    tcgen05_fence(before=False)
    if what == "copied twice" or what == "copied between" or what == "copied first" or what == "multiplied over":
        tcgen05_copy(a, left)
    else:
        tcgen05_mma(a, b, acc, use_acc=False)
    if waits:
        tcgen05_commit(between)
        mbarrier.wait(between, 0)
    if what == "same" or what == "halves":
        tcgen05_mma(a, b, acc)
    if what == "halves":
        tcgen05_mma(a, b.slice(64, 64, 1), acc.slice(64, 64))
    if what == "narrower":
        tcgen05_mma(a, b.slice(0, 64, 1), acc.slice(0, 64))
    if what == "shifted":
        tcgen05_mma(a, b, parts.index(1)._reinterpret(gl.float32, [128, 128], wide), use_acc=False)
    if what == "kind":
        x = a._reinterpret(gl.float8e5, [128, 128], rows)
        tcgen05_mma(x, x.permute((1, 0)), acc, use_acc=False)
    if what == "left" or what == "copied first" or what == "copied between" or what == "multiplied over":
        tcgen05_mma(left, b, other, use_acc=False)
    if what == "scales":
        x = a._reinterpret(gl.float8e5, [128, 128], rows)
        found = acc._reinterpret(gl.uint8, [128, 4], scales)
        tcgen05_mma_scaled(x, x.permute((1, 0)), other, found, factors, "e5m2", "e5m2", use_acc=False)
    if what == "copied over" or what == "copied twice" or what == "copied between":
        tcgen05_copy(a, left)
    if what == "copied between":
        tcgen05_mma(left, b, other)
    if what == "multiplied over":
        tcgen05_mma(a, b, acc, use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    tcgen05_fence(before=False)
    if what == "same" or what == "multiplied over" or what == "halves":
        keep(out, acc.load())
    if what == "copied first" or what == "copied between":
        keep(out, other.load())


def arguments(what: str, waits: bool = False) -> Any:
    return lambda: (
        described(matrix(), gl.float16), poisoned(M, M), what, waits, WIDE, HALVES, SCALES, BYTES
    )  # fmt: skip


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            "narrower",
            ["multiplies into parts", "multiplied into", "shape 128x64 is not ordered after one of shape 128x128"],
        ),
        ("shifted", ["multiplies into parts", "overlap, but start at different columns"]),
        ("kind", ["an MMA of kind f8f6f4 is not ordered after one of kind f16"]),
        ("left", ["multiplies parts", "multiplied into", "accumulator it reads as an operand"]),
        ("scales", ["multiplies parts", "multiplied into", "accumulator it reads as an operand"]),
        ("copied over", ["copies into parts", "multiplied into", "not ordered after MMAs that write there"]),
        ("copied twice", ["copies into parts", "copied into", "copies are not ordered after earlier copies"]),
    ],
)
def test_without_a_wait_nothing_orders_them(what, words):
    found = verdict(followed, arguments(what))
    refused(found, "hazard-tensor-order", "that may be in flight", "tcgen05_commit(bar)", "mbarrier.wait(bar", *words)
    assert type(found) is hazard.TensorOrder
    assert verdict(followed, arguments(what, waits=True)) is None


@pytest.mark.parametrize(
    ("what", "times"), [("same", 2), ("copied first", 1), ("copied between", 2), ("multiplied over", 1)]
)
def test_what_follows_without_a_wait(what, times):
    """The same accumulator, copies that products read, and copies and products over what products have read."""
    assert verdict(followed, arguments(what)) is None
    (out,) = results(followed, arguments(what), lambda *args: [args[1]])
    x = matrix().astype(np.float32)
    np.testing.assert_array_equal(out, times * (x @ x.T))


def test_a_part_that_is_an_instruction_of_its_own_is_the_same_accumulator():
    assert verdict(followed, arguments("halves")) is None
    (out,) = results(followed, arguments("halves"), lambda *args: [args[1]])
    x = matrix().astype(np.float32)
    np.testing.assert_array_equal(out, x @ x.T * np.repeat([2, 3], N))


# Partitions and pairs


@weft.jit
def whole(a, acc, turn, started, done):
    tcgen05_mma(a, a.permute((1, 0)), acc, use_acc=False)
    tcgen05_commit(done)
    tcgen05_fence(before=True)
    gl.barrier()
    mbarrier.arrive(started, count=1)


@weft.jit
def part(a, acc, turn, started, done):
    mbarrier.wait(started, 0)
    mbarrier.wait(turn, 0)
    tcgen05_fence(before=False)
    tcgen05_mma(a, a.permute((1, 0)).slice(0, 64, 1), acc.slice(0, 64))
    tcgen05_commit(done)


@weft.jit(sync="none")
def by_two(src, out, waits: gl.constexpr, layout: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    acc = allocate_tensor_memory(gl.float32, [128, 128], layout)
    bars = barriers(4)
    bar, started, first, second = bars.index(0), bars.index(1), bars.index(2), bars.index(3)
    brought(bar, src, a, 0)
    turn = first if waits else started
    gl.warp_specialize(
        [(whole, (a, acc, turn, started, first)), (part, (a, acc, turn, started, second))], [4], [48]
    )  # fmt: skip
    mbarrier.wait(first, 0)
    mbarrier.wait(second, 0)
    tcgen05_fence(before=False)
    keep(out, acc.load())


def test_products_of_two_partitions():
    """That the first one has been started is enough for the same accumulator only."""
    refused(
        verdict(by_two, lambda: (described(matrix(), gl.float16), poisoned(M, M), False, WIDE)),
        "hazard-tensor-order", "partition 1 multiplies into acc, which partition 0", "in partition 0",
    )  # fmt: skip
    assert verdict(by_two, lambda: (described(matrix(), gl.float16), poisoned(M, M), True, WIDE)) is None


@weft.jit(sync="none")
def by_pairs(src, out, layout: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, [256, 64], src.layout)
    acc = allocate_tensor_memory(gl.float32, [256, 256], layout)
    bar = mbarrier.allocate_mbarrier(two_ctas=True)
    mbarrier.init(bar, count=1)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    cluster.barrier()
    mbarrier.expect(bar, src.block_type.nbytes_per_cta)
    tma.async_copy_global_to_shared(src, [0, 0], bar, a)
    mbarrier.wait(bar, 0)
    for i in gl.static_range(2):
        tcgen05_mma(a, a.permute((1, 0)), acc, use_acc=i > 0)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    tcgen05_fence(before=False)
    keep(out, acc.load())
    cluster.barrier()


@pytest.mark.parametrize("rows", [64, 128])
def test_pairs_add_to_the_same_accumulator(rows):
    """Instructions of 64 rows of each block take half as many columns of tensor memory."""
    layout = TensorMemoryLayout([rows, 256], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
    split = gl.NVMMASharedLayout.get_default_for([256, 64], gl.float16, cga_layout=[[1, 0]])

    def given() -> tuple[Any, ...]:
        return TensorDescriptor.from_tensor(matrix(256), [256, 64], split), poisoned(256, 256), layout

    found = verdict(by_pairs, given, num_ctas=2)
    assert found is None, str(found)
