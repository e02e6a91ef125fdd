"""Tensor memory and what runs in it beside the threads: what goes wrong, in both stages and any order of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.sim.both import ORDERS, compiled_for, results, run_stage, verdict
from weft import language as gl
from weft.errors import Hazard, hazard, tensor_hazard
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    cluster,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_fence,
    tcgen05_mma,
    tma,
)
from weft.nvidia.hopper import TensorDescriptor

M, N = 128, 64
SMEM = gl.NVMMASharedLayout.get_default_for([M, N], gl.float16)
LINE = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
ACC = TensorMemoryLayout([M, M], col_stride=1)
HALF = TensorMemoryLayout([M, N], col_stride=1)


@pytest.fixture(autouse=True)
def blackwell() -> Iterator[None]:
    with weft.simulate(target="sm_100a"):
        yield


def matrix() -> np.ndarray:
    return (np.arange(M * N).reshape(M, N) % 7 - 3).astype(np.float16)


def described(layout: Any = SMEM) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(matrix(), [M, N], layout)


def poisoned(rows: int = M) -> np.ndarray:
    return np.full((rows, M), np.nan, np.float32)


def refused(found: Hazard | None, code: str, *words: str) -> None:
    """The report has a code, both lines, and these words."""
    assert found is not None
    assert found.code == found.rule == code, str(found)
    assert found.first is not None, str(found)
    assert found.second is found.loc
    assert found.fix
    for word in words:
        assert word in str(found), str(found)


@weft.jit
def keep(out, c):
    layout: gl.constexpr = c.type.layout
    i = gl.arange(0, c.shape[0], gl.SliceLayout(1, layout))
    gl.store(out + i[:, None] * 128 + gl.arange(0, c.shape[1], gl.SliceLayout(0, layout))[None, :], c)


@weft.jit
def barriers(count: gl.constexpr):
    bars = mbarrier.allocate_mbarrier(batch=count)
    for i in gl.static_range(count):
        mbarrier.init(bars.index(i), count=1)
    gl.barrier()
    return bars


@weft.jit
def brought(bar, desc, buffer):
    mbarrier.expect(bar, desc.block_type.nbytes)
    tma.async_copy_global_to_shared(desc, [0, 0], bar, buffer)
    mbarrier.wait(bar, 0)


# Accumulators and operands under way


@weft.jit(sync="none")
def multiplied(src, out, fault: gl.constexpr, layout: gl.constexpr, line: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    acc = allocate_tensor_memory(gl.float32, [128, 128], layout)
    bars = barriers(3)
    bar, done, more = bars.index(0), bars.index(1), bars.index(2)
    brought(bar, src, a)
    registers: gl.constexpr = acc.get_reg_layout()
    tcgen05_mma(a, a.permute((1, 0)), acc, use_acc=fault == "fresh")
    tcgen05_mma(a, a.permute((1, 0)), acc, use_acc=True)
    if fault == "read":
        c = acc.load()
    if fault == "overwritten":
        acc.store(gl.full([128, 128], 0.0, gl.float32, registers))
    if fault == "operand":
        a.store(gl.full([128, 64], 1.0, gl.float16, line))
    if fault == "reloaded":
        mbarrier.expect(more, src.block_type.nbytes)
        tma.async_copy_global_to_shared(src, [0, 0], more, a)
    if fault != "uncommitted":
        tcgen05_commit(done, pred=fault != "unsent")
    if fault == "twice":
        tcgen05_commit(done)
    if fault == "later":
        tcgen05_mma(a, a.permute((1, 0)), acc)
    if fault != "exit" and fault != "uncommitted":
        mbarrier.wait(done, 0)
    if fault == "exit" or fault == "uncommitted":
        return
    if fault == "reused after":
        mbarrier.expect(more, src.block_type.nbytes)
        tma.async_copy_global_to_shared(src, [0, 0], more, a)
        mbarrier.wait(more, 0)
        a.store(gl.full([128, 64], 1.0, gl.float16, line))
    if fault != "unfenced":
        tcgen05_fence(before=False)
    keep(out, acc.load())


def arguments(fault: str) -> Any:
    return lambda: (described(), poisoned(), fault, ACC, LINE)


@pytest.mark.parametrize("fault", ["", "reused after"])
def test_what_a_commit_completes_is_free(fault):
    assert verdict(multiplied, arguments(fault)) is None
    (out,) = results(multiplied, arguments(fault), lambda *args: [args[1]])
    x = matrix().astype(np.float32)
    np.testing.assert_array_equal(out, 2 * (x @ x.T))


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("read", "hazard-tensor-in-flight", ["reads", "may still write it", "tcgen05_commit(bar)", "multiplied into it here"]),
        ("overwritten", "hazard-tensor-in-flight", ["writes", "may still write it"]),
        ("later", "hazard-tensor-in-flight", ["reads", "mbarrier.wait("]),
        ("operand", "hazard-tensor-operand-reused", ["writes a", "may still read it", "multiplied it here"]),
        ("reloaded", "hazard-tensor-operand-reused", ["copies into a", "tcgen05_commit(bar)"]),
        ("unfenced", "hazard-tensor-fence-after", ["reads", "tcgen05_fence(before=False)"]),
        ("fresh", "hazard-tensor-uninitialized", ["multiplies", "never written", "use_acc=False"]),
        ("twice", "hazard-too-many-arrivals", ["arrives once"]),
        ("exit", "hazard-tensor-at-exit", ["may still write", "before the kernel ends"]),
        ("uncommitted", "hazard-tensor-at-exit", ["tcgen05_commit(bar)"]),
        ("unsent", "hazard-deadlock", ["waits for phase 0 of bars[1]", "1 of 1 arrivals", "the arrival at", "has not come"]),
    ],
)
def test_products_under_way(fault, code, words):
    refused(verdict(multiplied, arguments(fault)), code, *words)


def test_reports_have_classes_of_their_own():
    for fault, kind in (
        ("read", tensor_hazard.TensorInFlight),
        ("operand", tensor_hazard.TensorOperandReused),
        ("unfenced", tensor_hazard.MissingTensorFence),
        ("exit", tensor_hazard.TensorMemoryInUse),
        ("fresh", hazard.UninitializedRead),
    ):
        assert type(verdict(multiplied, arguments(fault))) is kind


# Threads and products


@weft.jit(sync="none")
def stored(src, out, fault: gl.constexpr, layout: gl.constexpr, half: gl.constexpr, line: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    left = allocate_tensor_memory(src.dtype, [128, 64], half)
    acc = allocate_tensor_memory(gl.float32, [128, 128], layout)
    bars = barriers(2)
    bar, done = bars.index(0), bars.index(1)
    brought(bar, src, a)
    left.store(a.load(left.get_reg_layout()))
    acc.store(gl.full([128, 128], 1.0, gl.float32, acc.get_reg_layout()))
    if fault != "no before":
        tcgen05_fence(before=True)
    if fault != "no barrier":
        gl.barrier()
    if fault == "late before":
        tcgen05_fence(before=True)
    if fault != "no after":
        tcgen05_fence(before=False)
    tcgen05_mma(left, a.permute((1, 0)), acc)
    if fault == "left":
        left.store(gl.full([128, 64], 1.0, gl.float16, left.get_reg_layout()))
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    tcgen05_fence(before=False)
    c = acc.load()
    if fault != "loads race":
        tcgen05_fence(before=True)
        gl.barrier()
        tcgen05_fence(before=False)
    tcgen05_mma(left, a.permute((1, 0)), acc, use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 1)
    keep(out, c)


def stored_arguments(fault: str) -> Any:
    return lambda: (described(), poisoned(), fault, ACC, HALF, LINE)


def test_what_threads_store_and_products_read():
    assert verdict(stored, stored_arguments("")) is None
    (out,) = results(stored, stored_arguments(""), lambda *args: [args[1]])
    x = matrix().astype(np.float32)
    np.testing.assert_array_equal(out, x @ x.T + 1)


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("no barrier", "hazard-tensor-race", ["multiplies", "wrote", "gl.barrier()"]),
        ("no before", "hazard-tensor-fence-before", ["multiplies", "tcgen05_fence(before=True)"]),
        ("no after", "hazard-tensor-fence-after", ["multiplies", "tcgen05_fence(before=False)"]),
        ("left", "hazard-tensor-operand-reused", ["writes", "may still read it"]),
        ("loads race", "hazard-tensor-race", ["multiplies into", "read"]),
    ],
)
def test_threads_and_products(fault, code, words):
    refused(verdict(stored, stored_arguments(fault)), code, *words)


@weft.jit(sync="none")
def written(out, fault: gl.constexpr, smem: gl.constexpr, layout: gl.constexpr, line: gl.constexpr):
    a = gl.allocate_shared_memory(gl.float16, [128, 64], smem)
    acc = allocate_tensor_memory(gl.float32, [128, 128], layout)
    done = barriers(1).index(0)
    a.store(gl.full([128, 64], 1.0, gl.float16, line))
    if fault != "unfenced":
        fence_async_shared()
    if fault != "unordered":
        gl.barrier()
    tcgen05_mma(a, a.permute((1, 0)), acc, use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    tcgen05_fence(before=False)
    keep(out, acc.load())


@pytest.mark.parametrize(
    ("fault", "code"),
    [("", ""), ("unfenced", "hazard-missing-fence"), ("unordered", "hazard-thread-race")],
)
def test_operands_that_threads_write(fault, code):
    found = verdict(written, lambda: (poisoned(), fault, SMEM, ACC, LINE))
    if code:
        refused(found, code, "multiplies a")
    else:
        assert found is None


# Copies


@weft.jit(sync="none")
def copied(src, out, fault: gl.constexpr, layout: gl.constexpr, half: gl.constexpr, line: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    left = allocate_tensor_memory(src.dtype, [128, 64], half)
    acc = allocate_tensor_memory(gl.float32, [128, 128], layout)
    bars = barriers(2)
    bar, done = bars.index(0), bars.index(1)
    brought(bar, src, a)
    tcgen05_copy(a, left)
    if fault == "read":
        c = left.load()
    if fault == "source":
        a.store(gl.full([128, 64], 1.0, gl.float16, line))
    if fault == "exit":
        return
    # Products wait for copies, and copies for products.
    tcgen05_mma(left, a.permute((1, 0)), acc, use_acc=False)
    tcgen05_copy(a, left)
    tcgen05_mma(left, a.permute((1, 0)), acc)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    tcgen05_fence(before=False)
    keep(out, acc.load())


def copied_arguments(fault: str) -> Any:
    return lambda: (described(), poisoned(), fault, ACC, HALF, LINE)


def test_copies_and_products_are_in_order():
    assert verdict(copied, copied_arguments("")) is None
    (out,) = results(copied, copied_arguments(""), lambda *args: [args[1]])
    x = matrix().astype(np.float32)
    np.testing.assert_array_equal(out, 2 * (x @ x.T))


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("read", "hazard-tensor-in-flight", ["reads", "copied into it here"]),
        ("source", "hazard-tensor-operand-reused", ["writes a", "copied from it here"]),
        ("exit", "hazard-tensor-at-exit", ["may still write"]),
    ],
)
def test_copies_under_way(fault, code, words):
    refused(verdict(copied, copied_arguments(fault)), code, *words)


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
    tcgen05_mma(a, a.permute((1, 0)), acc)
    tcgen05_commit(done)
    if fault == "own":
        mbarrier.wait(done, 0)


@weft.jit(sync="none")
def by_two(src, out, fault: gl.constexpr, layout: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    acc = allocate_tensor_memory(gl.float32, [128, 128], layout)
    bars = barriers(3)
    bar, turn, done = bars.index(0), bars.index(1), bars.index(2)
    brought(bar, src, a)
    if fault == "unwritten":
        acc.store(gl.full([128, 128], 0.0, gl.float32, acc.get_reg_layout()))
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
    refused(verdict(by_two, lambda: (described(), poisoned(), fault, ACC)), code, *words)


def test_products_of_two_partitions_in_turn():
    """A commit tells of its own thread's products only; those of the first partition are under way at the end."""
    found = verdict(by_two, lambda: (described(), poisoned(), "", ACC))
    assert found is None, str(found)


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
    c = acc.load()
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
        return TensorDescriptor.from_tensor(x, [256, 64], SPLIT), poisoned(), fault, PAIR, PAIR_LINE

    found = verdict(by_pairs, given, num_ctas=2)
    if code:
        refused(found, code, "block 0")
    else:
        assert found is None, str(found)


# Places


@weft.jit
def beyond(out, fault: gl.constexpr, half: gl.constexpr, which):
    parts = allocate_tensor_memory(gl.float32, [2, 128, 64], half)
    registers: gl.constexpr = parts.get_reg_layout()
    for i in gl.static_range(2):
        parts.index(i).store(gl.full([128, 64], 1.0, gl.float32, registers))
    keep(out, parts.index(which).load())


@pytest.mark.parametrize("which", [-1, 2, 7])
def test_accesses_outside_of_an_allocation(which):
    found = verdict(beyond, lambda: (poisoned(), "", HALF, which))
    assert isinstance(found, hazard.OutOfBounds)
    refused(found, "hazard-tensor-memory-range", "reads", "parts has columns 0 to 127")


@weft.jit
def unwritten(out, half: gl.constexpr, kept: gl.constexpr):
    part = allocate_tensor_memory(gl.float32, [128, 64], half)
    c = part.load()
    if kept:
        keep(out, c)


@pytest.mark.parametrize("kept", [False, True])
def test_tensor_memory_that_was_never_written(kept):
    found = verdict(unwritten, lambda: (poisoned(), HALF, kept))
    refused(found, "hazard-tensor-uninitialized", "reads part", "never written")
    compiled = compiled_for(unwritten, (poisoned(), HALF, kept), {})
    for stage in ("tile", "lowered"):
        for order in ORDERS:
            args = poisoned(), HALF, kept
            func = getattr(compiled.front, stage)
            if kept:
                with pytest.raises(hazard.UninitializedRead, match="tensor memory"):
                    run_stage(func, unwritten, compiled, args, 1, uninitialized="poison", **order)
            else:
                run_stage(func, unwritten, compiled, args, 1, uninitialized="poison", **order)


@weft.jit
def masked(x, out, half: gl.constexpr, limit, written: gl.constexpr):
    part = allocate_tensor_memory(gl.float16, [128, 64], half)
    registers: gl.constexpr = part.get_reg_layout()
    j = gl.arange(0, 64, gl.SliceLayout(0, registers))[None, :]
    i = gl.arange(0, 128, gl.SliceLayout(1, registers))[:, None]
    part.store(gl.load(x + i * 64 + j, mask=j < limit))
    gl.store(out + i * 128 + j, part.load().to(gl.float32), mask=j < written)


def test_undefined_elements_go_through_tensor_memory():
    assert verdict(masked, lambda: (matrix(), poisoned(), HALF, 33, 33)) is None
    refused(verdict(masked, lambda: (matrix(), poisoned(), HALF, 33, 34)), "hazard-undefined", "a store")
