"""Planted bugs of Blackwell kernels: accumulators in tensor memory, commits, operands loaded again, stolen programs."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from tests.sim.planted.bug import LINE, Launch, plant
from weft import language as gl
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    clc,
    mbarrier,
    tcgen05_commit,
    tcgen05_fence,
    tcgen05_mma,
    tma,
)
from weft.nvidia.hopper import TensorDescriptor

OPERAND = gl.NVMMASharedLayout.get_default_for([128, 32], gl.float16)
ACC = TensorMemoryLayout([128, 128], col_stride=1)


def operands(count: int) -> np.ndarray:
    """Small whole numbers, which float32 adds up without rounding."""
    return (np.arange(count * 128 * 32).reshape(count, 128, 32) % 7 - 3).astype(np.float16)


def squares(count: int, *more: Any, added: bool = True) -> Launch:
    """A descriptor of matrices one below the other, and an array for each one times its transpose, or for their sum."""

    def launch() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
        x = operands(count)
        products = x.astype(np.float32) @ x.astype(np.float32).swapaxes(1, 2)
        wanted = products.sum(0) if added else products
        out = np.full(wanted.shape, np.nan, np.float32)
        return (TensorDescriptor.from_tensor(x.reshape(-1, 32), [128, 32], OPERAND), out, *more), out, wanted

    return launch


@weft.jit
def keep(out, c):
    layout: gl.constexpr = c.type.layout
    columns: gl.constexpr = c.shape[1]
    i = gl.arange(0, 128, gl.SliceLayout(1, layout))
    gl.store(out + i[:, None] * 128 + gl.arange(0, columns, gl.SliceLayout(0, layout))[None, :], c)


@weft.jit
def bars_of(count: gl.constexpr):
    bars = mbarrier.allocate_mbarrier(batch=count)
    for i in gl.static_range(count):
        mbarrier.init(bars.index(i), count=1)
    return bars


@weft.jit
def waits_for_the_first(src, out, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    acc = allocate_tensor_memory(gl.float32, [128, 128], layout)
    bars = bars_of(2)
    full, done = bars.index(0), bars.index(1)
    for step in range(steps):
        mbarrier.expect(full, src.block_type.nbytes)
        tma.async_load(src, [step * 128, 0], full, a)  # HERE
        mbarrier.wait(full, step & 1)
        tcgen05_mma(a, a.permute((1, 0)), acc, use_acc=step > 0)  # EARLIER
        tcgen05_commit(done)
        # BUG: from the second step on phase 0 is complete before the product is.
        mbarrier.wait(done, step & 1 if FIXED else 0)
    keep(out, acc.load())


plant(
    waits_for_the_first, "hazard-tensor-operand-reused", launch=squares(3, 3, ACC), target="sm_100a"
)  # fmt: skip


@weft.jit
def commits_too_early(src, out, layout: gl.constexpr, FIXED: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)
    acc = allocate_tensor_memory(gl.float32, [128, 128], layout)
    bars = bars_of(2)
    full, done = bars.index(0), bars.index(1)
    mbarrier.expect(full, 2 * src.block_type.nbytes)
    for i in gl.static_range(2):
        tma.async_load(src, [i * 128, 0], full, a.index(i))
    mbarrier.wait(full, 0)
    for i in gl.static_range(2):
        # BUG: a commit is for the products before it, and the second one's is never made.
        if not FIXED and i == 1:
            tcgen05_commit(done)
        tcgen05_mma(a.index(i), a.index(i).permute((1, 0)), acc, use_acc=i > 0)  # EARLIER
    if FIXED:
        tcgen05_commit(done)
    mbarrier.wait(done, 0)
    keep(out, acc.load())  # HERE


plant(commits_too_early, "hazard-tensor-in-flight", launch=squares(2, ACC), target="sm_100a")


@weft.jit
def invalidated_before_a_commit_arrives(src, out, layout: gl.constexpr, FIXED: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)
    acc = allocate_tensor_memory(gl.float32, [128, 128], layout)
    bars = bars_of(4)
    full = bars.index(0)
    mbarrier.expect(full, 2 * src.block_type.nbytes)
    for i in gl.static_range(2):
        tma.async_load(src, [i * 128, 0], full, a.index(i))
    mbarrier.wait(full, 0)
    for i in gl.static_range(2):
        tcgen05_mma(a.index(i), a.index(i).permute((1, 0)), acc, use_acc=i > 0)
        tcgen05_commit(bars.index(1 + i))
    # The second commit is complete: so are the operations before the first.
    mbarrier.wait(bars.index(2), 0)
    if not FIXED:
        # BUG: nobody waits for this commit, nor for one behind it.
        tcgen05_mma(a.index(0), a.index(0).permute((1, 0)), acc, use_acc=False)
        tcgen05_commit(bars.index(3))  # EARLIER
    mbarrier.invalidate(bars.index(1))
    mbarrier.invalidate(bars.index(3))  # HERE
    keep(out, acc.load())


plant(invalidated_before_a_commit_arrives, "hazard-barrier-invalidated-early", launch=squares(2, ACC), target="sm_100a")


@weft.jit
def commit_to_another(src, out, layout: gl.constexpr, FIXED: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    acc = allocate_tensor_memory(gl.float32, [128, 128], layout)
    bars = bars_of(2)
    full, done = bars.index(0), bars.index(1)
    mbarrier.expect(full, src.block_type.nbytes)
    tma.async_load(src, [0, 0], full, a)
    mbarrier.wait(full, 0)
    tcgen05_mma(a, a.permute((1, 0)), acc, use_acc=False)
    # BUG: the commit signals the barrier of the load.
    tcgen05_commit(done if FIXED else full)
    mbarrier.wait(done, 0)  # HERE
    keep(out, acc.load())


plant(commit_to_another, "hazard-deadlock", launch=squares(1, ACC), target="sm_100a")


# An epilogue beside the products: two accumulators, in turn.


@weft.jit
def multiply(src, accs, a, full, done, free, steps, FIXED: gl.constexpr):
    for step in range(steps):
        slot = step % 2 if FIXED else 0
        mbarrier.expect(full, src.block_type.nbytes)
        tma.async_load(src, [step * 128, 0], full, a)
        mbarrier.wait(full, step & 1)
        mbarrier.wait(free.index(step % 2), (step // 2 & 1) ^ 1)
        tcgen05_fence(before=False)
        # BUG: the barriers of the accumulators are two, but only the first accumulator is used.
        tcgen05_mma(a, a.permute((1, 0)), accs.index(slot), use_acc=False)  # EARLIER, HERE
        tcgen05_commit(done.index(step % 2))
        mbarrier.wait(done.index(step % 2), step // 2 & 1)


@weft.jit
def epilogue(out, accs, done, free, steps, FIXED: gl.constexpr):
    for step in range(steps):
        slot = step % 2 if FIXED else 0
        mbarrier.wait(done.index(step % 2), step // 2 & 1)
        tcgen05_fence(before=False)
        c = accs.index(slot).load()  # EARLIER, HERE
        tcgen05_fence(before=True)
        mbarrier.arrive(free.index(step % 2), count=1)
        keep(out + step * 16384, c)


@weft.jit
def one_accumulator_for_two(src, out, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    accs = allocate_tensor_memory(gl.float32, [2, 128, 128], layout)
    full, done, free = bars_of(1).index(0), bars_of(2), bars_of(2)
    gl.warp_specialize(
        [(epilogue, (out, accs, done, free, steps, FIXED)), (multiply, (src, accs, a, full, done, free, steps, FIXED))],
        [1],
    )


plant(
    one_accumulator_for_two, "hazard-tensor-race", "hazard-tensor-in-flight",
    launch=squares(3, 3, ACC, added=False), target="sm_100a",
)  # fmt: skip


@weft.jit
def sums_of_the_last_tile(src, out, tiles, layout: gl.constexpr, FIXED: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    acc = allocate_tensor_memory(gl.float32, [128, 128], layout)  # EARLIER
    bars = bars_of(2)
    full, done = bars.index(0), bars.index(1)
    for tile in range(tiles):
        mbarrier.expect(full, src.block_type.nbytes)
        tma.async_load(src, [tile * 128, 0], full, a)
        mbarrier.wait(full, tile & 1)
        # BUG: a tile's first product has nothing to add to.
        tcgen05_mma(a, a.permute((1, 0)), acc, use_acc=not FIXED)  # HERE
        tcgen05_commit(done)
        mbarrier.wait(done, tile & 1)
        keep(out + tile * 16384, acc.load())


# Lowered IR allocates all tensor memory of a kernel at once, at the line of the kernel itself.
plant(
    sums_of_the_last_tile, "hazard-tensor-uninitialized", lowered=False,
    launch=squares(2, 2, ACC, added=False), target="sm_100a",
)  # fmt: skip

# Programs that take over others

ANSWER = gl.SwizzledSharedLayout(1, 1, 1, [0])


def numbered() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
    out = np.full((12, 128), -1, np.int32)
    return (out, LINE, ANSWER), out, np.broadcast_to(np.arange(12)[:, None], (12, 128))


@weft.jit
def answer_unwaited(out, layout: gl.constexpr, answer_layout: gl.constexpr, FIXED: gl.constexpr):
    answer = gl.allocate_shared_memory(gl.int64, [2], answer_layout)
    bar = bars_of(1).index(0)
    part = gl.program_id(0)
    busy = part >= 0
    phase = 0
    while busy:
        mbarrier.expect(bar, 16)
        clc.try_cancel(answer, bar)  # EARLIER
        gl.store(out + part * 128 + gl.arange(0, 128, layout), part)
        # BUG: the phase is not flipped, so that from the second request on no thread waits for the response.
        mbarrier.wait(bar, phase)
        if FIXED:
            phase ^= 1
        found = clc.load_result(answer)  # HERE
        busy = found.is_canceled()
        if busy:
            part = found.program_id(0)


plant(answer_unwaited, "clc-in-flight", launch=numbered, grid=12, target="sm_100a")


@weft.jit
def answer_dropped(out, layout: gl.constexpr, answer_layout: gl.constexpr, FIXED: gl.constexpr):
    answer = gl.allocate_shared_memory(gl.int64, [2], answer_layout)
    bar = bars_of(1).index(0)
    part = gl.program_id(0)
    busy = part >= 0
    phase = 0
    while busy:
        mbarrier.expect(bar, 16)
        clc.try_cancel(answer, bar)  # EARLIER, HERE
        gl.store(out + part * 128 + gl.arange(0, 128, layout), part)
        mbarrier.wait(bar, phase)
        phase ^= 1
        # BUG: a program that leaves after a request does not do the work that it has taken over.
        if not FIXED and part > 5:
            return
        found = clc.load_result(answer)
        busy = found.is_canceled()
        if busy:
            part = found.program_id(0)


plant(answer_dropped, "clc-lost", launch=numbered, grid=12, target="sm_100a")
