"""Lowered IR: registers per thread, exchange within warps, scratch memory, and vector accesses."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.build import Kernel, pointer, run
from weft.errors import hazard
from weft.ir.types import ScalarType, float16, float32, int1, int32
from weft.ops import arith, control, elements, memory, program, regs, shared, sync, warp
from weft.sim.numbers import arithmetic as numbers

RNG = np.random.default_rng(5)


def lowered(*params, num_warps=4, **attrs) -> Kernel:
    return Kernel(*params, num_warps=num_warps, stage="lowered", **{"shared_bytes": 0, **attrs})


def thread(k: Kernel):
    """warp * 32 + lane."""
    return k.add(k.mul(k.emit(program.warp_id), k.number(32)), k.emit(program.lane_id))


def per_thread_address(k: Kernel, ptr, count: int):
    return k.emit(memory.addptr, ptr, k.mul(thread(k), k.number(count)))


def load(k: Kernel, ptr, count: int, vec: int = 1, mask=None, other=None):
    """`count` consecutive elements a thread, `vec` at a time, the registers of each access in order."""
    starts = tuple(range(0, count, vec))
    groups = tuple(tuple(range(i, i + vec)) for i in starts)
    return k.emit(
        memory.load_regs,
        per_thread_address(k, ptr, count),
        mask,
        other,
        offsets=(starts,),
        registers=groups,
        vec=vec,
        count=count,
    )


def store(k: Kernel, ptr, value, vec: int = 1, mask=None):
    starts = tuple(range(0, value.type.count, vec))
    groups = tuple(tuple(range(i, i + vec)) for i in starts)
    address = per_thread_address(k, ptr, value.type.count)
    k.emit(memory.store_regs, address, value, mask, offsets=(starts,), registers=groups, vec=vec)


@pytest.mark.parametrize("vec", [1, 2, 4])
def test_copy_by_vectors(vec):
    x = RNG.normal(size=512).astype(np.float32)
    out = np.zeros_like(x)
    k = lowered(("x", pointer(float32)), ("out", pointer(float32)))
    store(k, k.params[1], load(k, k.params[0], 4, vec), vec)
    run(k.done(), x, out)
    np.testing.assert_array_equal(out, x)


def test_strides_tables_and_register_order():
    """One access a row of a column-major array: registers in reverse order."""
    x = np.arange(128 * 4, dtype=np.int32)
    out = np.zeros_like(x)
    k = lowered(("x", pointer(int32)), ("out", pointer(int32)), ("stride", int32))
    at = k.emit(memory.addptr, k.params[0], thread(k))
    loaded = k.emit(
        memory.load_regs, at, None, None, k.params[2],
        offsets=((0, 0, 0, 0), (0, 1, 2, 3)), registers=((3,), (2,), (1,), (0,)), vec=1, count=4,
    )  # fmt: skip
    store(k, k.params[1], loaded, 4)
    run(k.done(), x, out, 128)
    np.testing.assert_array_equal(out.reshape(128, 4), x.reshape(4, 128).T[:, ::-1])


def test_masks_other_and_undefined():
    x = np.arange(256, dtype=np.int32)
    out = np.full(256, -1, np.int32)
    k = lowered(("x", pointer(int32)), ("out", pointer(int32)))
    mask = k.cmp("lt", thread(k), k.number(100))
    filled = k.emit(regs.splat, k.number(9), count=2)
    store(k, k.params[1], load(k, k.params[0], 2, 2, mask, filled), 2)
    run(k.done(), x[:200].copy(), out)
    np.testing.assert_array_equal(out, np.where(np.arange(256) < 200, x, 9))
    k = lowered(("x", pointer(int32)), ("out", pointer(int32)))
    mask = k.cmp("lt", thread(k), k.number(100))
    loaded = load(k, k.params[0], 2, 2, mask)
    store(k, k.params[1], loaded, 2, mask)
    store(k, k.params[1], loaded, 2)
    with pytest.raises(hazard.UndefinedValue, match="thread 100"):
        run(k.done(), x, out)


def test_vectors_must_be_aligned_and_inside():
    k = lowered(("x", pointer(int32)), ("out", pointer(int32)))
    shifted = k.emit(memory.addptr, k.params[0], k.number(1))
    store(k, k.params[1], load(k, shifted, 4, 4), 4)
    x = np.zeros(513, np.int32)
    with pytest.raises(hazard.Misaligned, match="reads 16 bytes of x at byte 4"):
        run(k.done(), x, np.zeros(512, np.int32))
    k = lowered(("x", pointer(int32)), ("out", pointer(int32)))
    store(k, k.params[1], load(k, k.params[0], 4, 4), 4)
    with pytest.raises(hazard.OutOfBounds, match="thread 127"):
        run(k.done(), np.zeros(510, np.int32), np.zeros(512, np.int32))


def test_register_tables():
    out = np.zeros((128, 8), np.int32)
    k = lowered(("out", pointer(int32)))
    lane = k.emit(program.lane_id)
    base = k.emit(regs.affine, lane, k.number(10), offsets=((0, 1), (0, 3)))
    flipped = k.emit(regs.gather, base, table=(1, 0))
    xored = k.emit(regs.xor, lane, offsets=(0, 5))
    all_ = k.emit(regs.concat, base, flipped, xored, k.emit(regs.extract, base, index=1), k.number(7))
    store(k, k.params[0], all_, 4)
    run(k.done(), out)
    n = np.arange(128) % 32
    np.testing.assert_array_equal(out, np.stack([n, n + 31, n + 31, n, n, n ^ 5, n + 31, 0 * n + 7], axis=1))


def test_shuffles():
    out = np.zeros((64, 2), np.int32)
    k = lowered(("out", pointer(int32)), num_warps=2)
    mine = thread(k)
    across = k.emit(warp.shuffle_xor, mine, mask=12)
    named = k.emit(warp.shuffle_idx, mine, k.add(k.emit(program.lane_id), k.number(33)))
    store(k, k.params[0], k.emit(regs.concat, across, named), 2)
    run(k.done(), out)
    n = np.arange(64)
    np.testing.assert_array_equal(out, np.stack([n ^ 12, n // 32 * 32 + (n + 1) % 32], axis=1))


@pytest.mark.parametrize("offset", [-1, 64])
def test_transpose_through_scratch(offset):
    """Thread t writes two halves at 2t; after the barrier it reads at t and t + 64."""
    out = np.zeros((64, 2), np.float16)
    k = lowered(("out", pointer(float16)), num_warps=2, shared_bytes=1024)
    memory_ = k.emit(shared.scratch, dtype=float16, count=128, tag=3, offset=offset)
    mine = thread(k)
    values = k.emit(arith.cast, k.emit(regs.affine, k.mul(mine, k.number(2)), offsets=((0, 1),)), dtype=float16)
    k.emit(shared.store_regs, memory_, k.mul(mine, k.number(2)), values, None, offsets=(0,), registers=((0, 1),), vec=2)
    k.emit(sync.barrier)
    store(k, k.params[0], k.emit(shared.load_regs, memory_, mine, offsets=(0, 64), registers=((1,), (0,)), vec=1), 2)
    run(k.done(), out)
    n = np.arange(64)
    np.testing.assert_array_equal(out, np.stack([n + 64, n], axis=1).astype(np.float16))


def test_scratch_that_was_never_written():
    out = np.zeros((32, 1), np.int32)
    k = lowered(("out", pointer(int32)), num_warps=1, shared_bytes=256)
    memory_ = k.emit(shared.scratch, dtype=int32, count=32, tag=0, offset=0)
    lane = k.emit(program.lane_id)
    mask = k.cmp("ne", lane, k.number(17))
    k.emit(
        shared.store_regs,
        memory_,
        lane,
        k.emit(regs.splat, lane, count=1),
        mask,
        offsets=(0,),
        registers=((0,),),
        vec=1,
    )
    store(k, k.params[0], k.emit(shared.load_regs, memory_, lane, offsets=(0,), registers=((0,),), vec=1))
    with pytest.raises(hazard.UndefinedValue, match=r"thread 17.*never written"):
        run(k.done(), out)


def test_counting_in_scratch():
    index = RNG.integers(0, 8, (128, 2)).astype(np.int32)
    out = np.zeros((128, 1), np.int32)
    k = lowered(("x", pointer(int32)), ("out", pointer(int32)), shared_bytes=32)
    memory_ = k.emit(shared.scratch, dtype=int32, count=8, tag=0, offset=0)
    slot = k.emit(arith.and_, thread(k), k.number(7))
    zero = k.emit(regs.splat, k.number(0), count=1)
    k.emit(shared.store_regs, memory_, slot, zero, None, offsets=(0,), registers=((0,),), vec=1)
    loaded = load(k, k.params[0], 2, 2)
    small = k.cmp("lt", loaded, k.number(6, loaded))
    k.emit(sync.barrier)
    k.emit(shared.atomic_at, memory_, loaded, k.number(1, loaded), small, kind="add")
    k.emit(sync.barrier)
    store(k, k.params[1], k.emit(shared.load_at, memory_, k.emit(regs.splat, slot, count=1)))
    run(k.done(), index, out)
    counts = np.bincount(index.ravel(), minlength=8) * (np.arange(8) < 6)
    np.testing.assert_array_equal(out[:, 0], counts[np.arange(128) % 8])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_matrices(matrices, transposed):
    """8 x 8 matrices of 16 bits, written by lanes as fragments and read back as such or transposed (PTX, ldmatrix)."""
    x = RNG.normal(size=(32, matrices * 2)).astype(np.float16)
    out = np.zeros_like(x)
    k = lowered(("x", pointer(float16)), ("out", pointer(float16)), num_warps=1, shared_bytes=1024)
    memory_ = k.emit(shared.scratch, dtype=float16, count=64 * matrices, tag=0, offset=0)
    row = k.mul(thread(k), k.number(8))
    inside = k.emit(arith.and_, row, k.number(64 * matrices - 1))
    form = {"offsets": (0,), "registers": (tuple(range(2 * matrices)),), "matrices": matrices}
    k.emit(shared.store_matrix, memory_, inside, load(k, k.params[0], 2 * matrices), None, transposed=False, **form)
    k.emit(sync.barrier)
    store(k, k.params[1], k.emit(shared.load_matrix, memory_, inside, transposed=transposed, **form))
    run(k.done(), x, out)
    lane = np.arange(32)
    stored = np.zeros((matrices, 8, 8), np.float16)
    wanted = np.zeros_like(x)
    for m in range(matrices):
        for word in range(2):
            stored[m, lane // 4, lane % 4 * 2 + word] = x[:, 2 * m + word]
    for m in range(matrices):
        for word in range(2):
            rows, columns = lane // 4, lane % 4 * 2 + word
            wanted[:, 2 * m + word] = stored[m, columns, rows] if transposed else stored[m, rows, columns]
    np.testing.assert_array_equal(out, wanted)


def test_dot_of_registers():
    a, b, c = RNG.normal(size=(3, 128, 4)).astype(np.float32)
    out = np.zeros((128, 4), np.float32)
    k = lowered(*[(name, pointer(float32)) for name in "abco"])
    parts = [load(k, p, 4, 4) for p in k.params[:3]]
    tables = {"rows": (0, 0, 1, 1), "columns": (0, 1, 0, 1), "a_table": ((0, 1), (2, 3)), "b_table": ((0, 2), (1, 3))}
    store(k, k.params[3], k.emit(regs.dot, *parts, **tables), 4)
    run(k.done(), a, b, c, out)
    expected = c.copy()
    for step in range(2):
        left, right = a[:, [0, 0, 2, 2]], b[:, [0, 1, 0, 1]]
        left, right = (left, right) if step == 0 else (a[:, [1, 1, 3, 3]], b[:, [2, 3, 2, 3]])
        expected = numbers.fma(left, right, expected)
    np.testing.assert_array_equal(out, expected)


def test_atomics_of_registers():
    cells = np.zeros(2, np.int32)
    old = np.zeros((32, 2), np.int32)
    k = lowered(("cells", pointer(int32)), ("old", pointer(int32)), num_warps=1)
    where = k.emit(regs.affine, k.number(0), offsets=((0, 1),))
    at = k.emit(memory.addptr, k.emit(regs.splat, k.params[0], count=2), where)
    mine = k.emit(regs.splat, k.emit(program.lane_id), count=2)
    mask = k.cmp("lt", mine, k.number(10, mine))
    got = k.emit(memory.atomic_regs, at, mine, mask, kind="add", order="relaxed", scope="gpu")
    got = k.emit(arith.select, mask, got, k.number(-1, got))
    store(k, k.params[1], got, 2)
    swap = k.emit(memory.atomic_cas_regs, at, k.number(45, mine), k.number(1, mine), mask, order="relaxed", scope="gpu")
    assert swap.type == mine.type
    run(k.done(), cells, old)
    assert cells.tolist() == [1, 1]
    before = np.concatenate([np.cumsum(np.arange(10)) - np.arange(10), np.full(22, -1)])
    np.testing.assert_array_equal(old, np.stack([before, before], axis=1))


def test_threads_that_part_ways():
    """`if lane % 2: x = 10 * lane else: x = -1`, then a loop as long as each lane's number."""
    out = np.zeros((32, 2), np.int32)
    k = lowered(("out", pointer(int32)), num_warps=1)
    lane = k.emit(program.lane_id)
    odd = k.cmp("eq", k.emit(arith.rem, lane, k.number(2)), k.number(1))
    with k.region() as then:
        k.emit(control.yield_, k.mul(lane, k.number(10)))
    with k.region() as orelse:
        k.emit(control.yield_, k.number(-1))
    first = k.emit(control.if_, odd, regions=(then.done, orelse.done))
    with k.region([ScalarType(int32), ScalarType(int32)]) as body:
        k.emit(control.yield_, k.add(body.args[1], body.args[0]))
    second = k.emit(control.for_, k.number(0), lane, k.number(1), k.number(0), descending=False, regions=(body.done,))
    store(k, k.params[0], k.emit(regs.concat, first, second), 2)
    run(k.done(), out)
    n = np.arange(32)
    np.testing.assert_array_equal(out, np.stack([np.where(n % 2, 10 * n, -1), n * (n - 1) // 2], axis=1))


def test_functions_of_registers():
    """A mapped function sees arrays of registers beside scalars of its thread."""
    out = np.zeros((32, 4), np.int32)
    k = lowered(("out", pointer(int32)), num_warps=1)
    lane = k.emit(program.lane_id)
    values = k.emit(regs.affine, lane, offsets=((0, 1, 2, 3),))
    with k.region([ScalarType(int32), ScalarType(int32)]) as body:
        low, high = body.args
        k.emit(control.yield_, k.add(high, lane), k.add(low, k.number(100)))
    store(k, k.params[0], k.emit(elements.map_elements, values, pack=2, regions=(body.done,)), 4)
    run(k.done(), out)
    n = np.arange(32)
    np.testing.assert_array_equal(out, np.stack([2 * n + 1, n + 100, 2 * n + 3, n + 102], axis=1))


def test_a_bool_through_scratch():
    out = np.zeros((32, 1), bool)
    k = lowered(("out", pointer(int1)), num_warps=1, shared_bytes=64)
    memory_ = k.emit(shared.scratch, dtype=int1, count=32, tag=0, offset=0)
    lane = k.emit(program.lane_id)
    flag = k.emit(regs.splat, k.cmp("lt", lane, k.number(5)), count=1)
    k.emit(shared.store_regs, memory_, lane, flag, None, offsets=(0,), registers=((0,),), vec=1)
    k.emit(sync.barrier)
    back = k.emit(
        shared.load_regs, memory_, k.emit(arith.xor, lane, k.number(31)), offsets=(0,), registers=((0,),), vec=1
    )
    store(k, k.params[0], back)
    run(k.done(), out)
    np.testing.assert_array_equal(out[:, 0], np.arange(32)[::-1] < 5)
