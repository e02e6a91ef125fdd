"""Tensor memory of several partitions and of two blocks: what goes wrong, in both stages and any order of events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.sim.both import results, verdict
from tests.sim.tensor_kernels import barriers, blackwell, brought, described, keep, poisoned, refused  # noqa: F401
from weft import language as gl
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    cluster,
    mbarrier,
    tcgen05_commit,
    tcgen05_fence,
    tcgen05_mma,
    tma,
)
from weft.nvidia.hopper import TensorDescriptor

M, N = 128, 64
ACC = TensorMemoryLayout([M, M], col_stride=1)


def matrix() -> np.ndarray:
    return (np.arange(M * N).reshape(M, N) % 7 - 3).astype(np.float16)


# Partitions


@weft.jit
def first(a, acc, turn, done, fault: gl.constexpr):
    tcgen05_mma(a, a.permute((1, 0)), acc, use_acc=False)
    if fault != "no before":
        tcgen05_fence(before=True)
    gl.barrier()
    mbarrier.arrive(turn, count=1)


@weft.jit
def second(a, acc, turn, done, fault: gl.constexpr):
    if fault != "unordered":
        mbarrier.wait(turn, 0)
    if fault != "no after":
        tcgen05_fence(before=False)
    tcgen05_mma(a, a.permute((1, 0)), acc, use_acc=fault != "unordered")
    tcgen05_commit(done)


@weft.jit(sync="none")
def by_two(src, out, fault: gl.constexpr, layout: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    acc = allocate_tensor_memory(gl.float32, [128, 128], layout)
    bars = barriers(3)
    bar, turn, done = bars.index(0), bars.index(1), bars.index(2)
    brought(bar, src, a, 0)
    gl.warp_specialize([(first, (a, acc, turn, done, fault)), (second, (a, acc, turn, done, fault))], [4], [48])
    mbarrier.wait(done, 0)
    tcgen05_fence(before=False)
    keep(out, acc.load())


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("unordered", "hazard-tensor-race", ["multiplies into", "partition 0", "partition 1"]),
        ("no before", "hazard-tensor-fence-before", ["partition 1"]),
        ("no after", "hazard-tensor-fence-after", ["partition 1"]),
    ],
)
def test_products_of_two_partitions(fault, code, words):
    refused(verdict(by_two, lambda: (described(matrix(), gl.float16), poisoned(M, M), fault, ACC)), code, *words)


def test_products_of_two_partitions_in_turn():
    """The second one's knows that the first one's has been started, and so comes after it, also in the end."""
    assert verdict(by_two, lambda: (described(matrix(), gl.float16), poisoned(M, M), "", ACC)) is None
    (out,) = results(
        by_two, lambda: (described(matrix(), gl.float16), poisoned(M, M), "", ACC), lambda *args: [args[1]]
    )
    x = matrix().astype(np.float32)
    np.testing.assert_array_equal(out, 2 * (x @ x.T))


# Blocks


@weft.jit(sync="none")
def by_pairs(src, out, fault: gl.constexpr, layout: gl.constexpr, line: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, [256, 64], src.layout)
    b = gl.allocate_shared_memory(src.dtype, [256, 64], src.layout)
    acc = allocate_tensor_memory(gl.float32, [256, 256], layout)
    bar = mbarrier.allocate_mbarrier(two_ctas=True)
    mbarrier.init(bar, count=1)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    cluster.barrier()
    mbarrier.expect(bar, 2 * src.block_type.nbytes_per_cta)
    tma.async_copy_global_to_shared(src, [0, 0], bar, a)
    tma.async_copy_global_to_shared(src, [0, 0], bar, b)
    mbarrier.wait(bar, 0)
    tcgen05_mma(a, b.permute((1, 0)), acc, use_acc=False)
    tcgen05_commit(done)
    if fault == "reused":
        cluster.barrier()
        b.store(gl.full([256, 64], 1.0, gl.float16, line))
    if fault == "read":
        cluster.barrier()
        tcgen05_fence(before=False)
    else:
        mbarrier.wait(done, 0)
        tcgen05_fence(before=False)
    keep(out, acc.load())
    cluster.barrier()


PAIR = TensorMemoryLayout([128, 256], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
SPLIT = gl.NVMMASharedLayout.get_default_for([256, 64], gl.float16, cga_layout=[[1, 0]])
PAIR_LINE = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0], cga_layout=[[1, 0]])


@pytest.mark.parametrize(
    ("fault", "code"),
    [("", ""), ("reused", "hazard-tensor-operand-reused"), ("read", "hazard-tensor-in-flight")],
)
def test_memory_of_both_blocks(fault, code):
    x = np.concatenate((matrix(), matrix()))

    def given() -> tuple[Any, ...]:
        return (
            TensorDescriptor.from_tensor(x, [256, 64], SPLIT),
            np.zeros((256, 256), np.float32),
            fault,
            PAIR,
            PAIR_LINE,
        )

    found = verdict(by_pairs, given, num_ctas=2)
    if code:
        refused(found, code, "block 0")
    else:
        assert found is None, str(found)
