"""Tensor memory and what runs in it beside the threads: what goes wrong, in both stages and any order of events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.sim.both import ORDERS, compiled_for, results, run_stage, verdict
from tests.sim.tensor_kernels import barriers, blackwell, brought, described, keep, poisoned, refused  # noqa: F401
from weft import language as gl
from weft.errors import hazard
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_fence,
    tcgen05_mma,
    tma,
)

M, N = 128, 64
SMEM = gl.NVMMASharedLayout.get_default_for([M, N], gl.float16)
LINE = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
ACC = TensorMemoryLayout([M, M], col_stride=1)
HALF = TensorMemoryLayout([M, N], col_stride=1)


def matrix() -> np.ndarray:
    return (np.arange(M * N).reshape(M, N) % 7 - 3).astype(np.float16)


# Accumulators and operands in flight


@weft.jit(sync="none")
def multiplied(src, out, fault: gl.constexpr, layout: gl.constexpr, line: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    acc = allocate_tensor_memory(gl.float32, [128, 128], layout)
    bars = barriers(3)
    bar, done, more = bars.index(0), bars.index(1), bars.index(2)
    brought(bar, src, a, 0)
    registers: gl.constexpr = acc.get_reg_layout()
    tcgen05_mma(a, a.permute((1, 0)), acc, use_acc=fault == "fresh")
    tcgen05_mma(a, a.permute((1, 0)), acc, use_acc=True)
    if fault == "read":
        keep(out, acc.load())
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
    return lambda: (described(matrix(), gl.float16), poisoned(M, M), fault, ACC, LINE)


@pytest.mark.parametrize("fault", ["", "reused after"])
def test_what_a_commit_completes_is_free(fault):
    assert verdict(multiplied, arguments(fault)) is None
    (out,) = results(multiplied, arguments(fault), lambda *args: [args[1]])
    x = matrix().astype(np.float32)
    np.testing.assert_array_equal(out, 2 * (x @ x.T))


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (
            "read",
            "hazard-tensor-in-flight",
            ["reads", "may still write it", "tcgen05_commit(bar)", "multiplied into it here"],
        ),
        ("overwritten", "hazard-tensor-in-flight", ["writes", "may still write it"]),
        ("later", "hazard-tensor-in-flight", ["reads", "mbarrier.wait("]),
        ("operand", "hazard-tensor-operand-reused", ["writes a", "may still read it", "multiplied it here"]),
        ("reloaded", "hazard-tensor-operand-reused", ["copies into a", "tcgen05_commit(bar)"]),
        ("unfenced", "hazard-tensor-fence-after", ["reads", "tcgen05_fence(before=False)"]),
        ("fresh", "hazard-tensor-uninitialized", ["multiplies", "never written", "use_acc=False"]),
        ("twice", "hazard-too-many-arrivals", ["arrives once"]),
        ("exit", "hazard-tensor-at-exit", ["may still write", "before the kernel ends"]),
        ("uncommitted", "hazard-tensor-at-exit", ["tcgen05_commit(bar)"]),
        (
            "unsent",
            "hazard-deadlock",
            ["waits for phase 0 of bars[1]", "1 of 1 arrivals", "the arrival at", "has not come"],
        ),
    ],
)
def test_products_under_way(fault, code, words):
    refused(verdict(multiplied, arguments(fault)), code, *words)


def test_reports_have_classes_of_their_own():
    for fault, kind in (
        ("read", hazard.TensorInFlight),
        ("operand", hazard.TensorOperandReused),
        ("unfenced", hazard.MissingTensorFence),
        ("exit", hazard.TensorMemoryInUse),
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
    brought(bar, src, a, 0)
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
    return lambda: (described(matrix(), gl.float16), poisoned(M, M), fault, ACC, HALF, LINE)


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
    found = verdict(written, lambda: (poisoned(M, M), fault, SMEM, ACC, LINE))
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
    brought(bar, src, a, 0)
    tcgen05_copy(a, left)
    if fault == "read":
        keep(out, left.load().to(gl.float32))
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
    return lambda: (described(matrix(), gl.float16), poisoned(M, M), fault, ACC, HALF, LINE)


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
    found = verdict(beyond, lambda: (poisoned(M, N), "", HALF, which))
    assert isinstance(found, hazard.OutOfBounds)
    refused(found, "hazard-tensor-memory-range", "reads", "parts has columns 0 to 127")


@weft.jit
def unwritten(out, half: gl.constexpr, columns):
    part = allocate_tensor_memory(gl.float32, [128, 64], half)
    c = part.load()
    layout: gl.constexpr = c.type.layout
    i = gl.arange(0, 128, gl.SliceLayout(1, layout))[:, None]
    j = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    gl.store(out + i * 128 + j, c, mask=j < columns)


def test_tensor_memory_that_was_never_written():
    found = verdict(unwritten, lambda: (poisoned(M, M), HALF, 0))
    refused(found, "hazard-tensor-uninitialized", "reads", "never written")
    compiled = compiled_for(unwritten, (poisoned(M, M), HALF, 0), {})
    for stage in ("tile", "lowered"):
        for order in ORDERS:
            func = getattr(compiled.front, stage)
            run_stage(func, unwritten, compiled, (poisoned(M, M), HALF, 0), 1, uninitialized="poison", **order)
            with pytest.raises(hazard.UninitializedRead, match="tensor memory"):
                run_stage(func, unwritten, compiled, (poisoned(M, M), HALF, 5), 1, uninitialized="poison", **order)


@weft.jit
def masked(x, out, half: gl.constexpr, limit, written: gl.constexpr):
    part = allocate_tensor_memory(gl.float16, [128, 64], half)
    registers: gl.constexpr = part.get_reg_layout()
    j = gl.arange(0, 64, gl.SliceLayout(0, registers))[None, :]
    i = gl.arange(0, 128, gl.SliceLayout(1, registers))[:, None]
    part.store(gl.load(x + i * 64 + j, mask=j < limit))
    gl.store(out + i * 128 + j, part.load().to(gl.float32), mask=j < written)


def test_undefined_elements_go_through_tensor_memory():
    assert verdict(masked, lambda: (matrix(), poisoned(M, M), HALF, 33, 33)) is None
    refused(verdict(masked, lambda: (matrix(), poisoned(M, M), HALF, 33, 34)), "hazard-undefined", "a store")
