"""Programs of several blocks: tiles that span them, TMA for each and for all of them, and the barriers between them."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, poison, random, same
from weft import language as gl
from weft.errors import UserError
from weft.language.nvidia.hopper import async_copy, cluster, fence_async_shared, mbarrier, tma

SPLITS = [
    (2, [[1, 0]]), (2, [[0, 1]]), (2, [[0, 0]]), (2, None), (4, [[1, 0], [0, 1]]), (4, [[0, 0], [1, 0]]), (4, [[2, 0], [1, 0]]),
    (8, [[1, 0], [2, 0], [0, 1]]), (16, [[1, 0], [0, 1], [2, 0], [0, 0]]),
]  # fmt: skip


def blocked(cga, order=(1, 0)):
    return gl.BlockedLayout([1, 4], [4, 8], [2, 2], list(order), cga_layout=cga)


@weft.jit
def offsets(ROWS: gl.constexpr, COLUMNS: gl.constexpr, layout: gl.constexpr):
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    return rows[:, None], columns[None, :]


# Tiles in registers


@weft.jit
def scale(out, x, rows, columns, factor, ROWS: gl.constexpr, COLUMNS: gl.constexpr, layout: gl.constexpr):
    i, j = offsets(ROWS, COLUMNS, layout)
    i += gl.program_id(0) * ROWS
    inside = (i < rows) & (j < columns)
    at = i * columns + j
    gl.store(out + at, gl.load(x + at, inside, other=0.0) * factor + gl.num_programs(0), inside)


@pytest.mark.parametrize(("blocks", "cga"), SPLITS)
def test_tile_over_blocks(run, rng, blocks, cga):
    rows, columns = 5 * 64 - 3, 59
    x, out = random(rng, np.float32, (rows, columns)), poison(rows * columns, np.float32)
    run(scale, 5, out, x, rows, columns, 4.0, 64, 64, blocked(cga), num_ctas=blocks)
    same(out.reshape(x.shape), x * np.float32(4) + np.float32(5))


@weft.jit
def sums(out, x, COLUMNS: gl.constexpr, axis: gl.constexpr, layout: gl.constexpr):
    i, j = offsets(64, COLUMNS, layout)
    total = gl.sum(gl.load(x + i * COLUMNS + j), axis)
    at = gl.arange(0, COLUMNS if axis == 0 else 64, gl.SliceLayout(axis, layout))
    gl.store(out + at, gl.associative_scan(total, 0, add) if axis == 2 else total)


@weft.jit
def add(a, b):
    return a + b


@pytest.mark.parametrize(
    ("axis", "blocks", "cga"), [(0, 2, [[0, 1]]), (1, 2, [[1, 0]]), (0, 2, [[0, 0]]), (1, 4, [[2, 0], [1, 0]])]
)
def test_reductions_inside_of_blocks(run, rng, axis, blocks, cga):
    x = rng.integers(-1000, 1000, (64, 32)).astype(np.int32)
    out = poison(32 if axis == 0 else 64, np.int32)
    x.flags.writeable = False
    run(sums, 1, out, x, 32, axis, blocked(cga), num_ctas=blocks)
    same(out, x.sum(axis, dtype=np.int32))


@weft.jit
def turned(out, x, source: gl.constexpr, target: gl.constexpr):
    i, j = offsets(64, 64, source)
    value = gl.load(x + i * 64 + j)
    a, b = offsets(64, 64, target)
    gl.store(out + a * 64 + b, gl.convert_layout(value, target))


@pytest.mark.parametrize(("blocks", "cga"), [(2, [[1, 0]]), (4, [[0, 1], [1, 0]]), (2, [[0, 0]])])
def test_conversions_inside_of_blocks(run, rng, blocks, cga):
    x, out = random(rng, np.float32, (64, 64)), poison(64 * 64, np.float32)
    tall = gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1], cga_layout=cga)
    run(turned, 1, out, x, blocked(cga), tall, num_ctas=blocks)
    same(out.reshape(64, 64), x)


@weft.jit
def count_once(counts, layout: gl.constexpr):
    i = gl.arange(0, 128, layout)
    gl.atomic_add(counts + i, 1)
    gl.atomic_add(counts + 128, 1)
    gl.store(counts + 129, gl.program_id(0) + 7)


@pytest.mark.parametrize(("blocks", "cga"), [(2, [[1]]), (2, [[0]]), (4, [[0], [1]]), (8, None)])
def test_atomics_and_stores_happen_once(run, blocks, cga):
    counts = np.zeros(130, np.int32)
    run(count_once, 1, counts, gl.BlockedLayout([1], [32], [4], [0], cga_layout=cga), num_ctas=blocks)
    np.testing.assert_array_equal(counts, [1] * 129 + [7])


@weft.jit
def coalesced(out, x, N: gl.constexpr):
    i = gl.arange(0, N, gl.CoalescedLayout())
    gl.store(out + i, gl.load(x + i) + 1)


def test_blocks_of_a_coalesced_layout(run, rng):
    x, out = random(rng, np.int32, 4096), poison(4096, np.int32)
    compiled = run(coalesced, 1, out, x, 4096, num_ctas=4)
    same(out, x + np.int32(1))
    assert "cga_layout=[[1], [2]]" in compiled.asm["ir"]


# Shared memory


@weft.jit
def through_memory(out, x, order: gl.constexpr, layout: gl.constexpr, shared: gl.constexpr, other: gl.constexpr):
    i, j = offsets(64, 64, layout)
    memory = gl.allocate_shared_memory(x.dtype.element_ty, [64, 64], shared)
    memory.store(gl.load(x + i * 64 + j))
    a, b = offsets(64, 64, other)
    gl.store(out + a * 64 + b, memory.load(other))
    chosen = gl.full([64, 64], 3, gl.int32, layout) + i - i
    gl.store(out + 64 * 64 + i * 64 + j, memory.gather(chosen, axis=order))


@pytest.mark.parametrize(
    ("axis", "blocks", "cga"),
    [(1, 2, [[1, 0]]), (0, 2, [[0, 1]]), (1, 4, [[2, 0], [1, 0]]), (0, 2, [[0, 0]]), (0, 2, None)],
)
def test_each_block_has_its_part_of_shared_memory(run, rng, axis, blocks, cga):
    x, out = random(rng, np.float16, (64, 64)), poison(2 * 64 * 64, np.float16)
    shared = gl.SwizzledSharedLayout(8, 1, 8, [1, 0], cga_layout=cga)
    other = gl.BlockedLayout([2, 1], [16, 2], [2, 2], [0, 1], cga_layout=cga)
    compiled = run(through_memory, 1, out, x, axis, blocked(cga), shared, other, num_ctas=blocks)
    same(out[: 64 * 64].reshape(64, 64), x)
    same(out[64 * 64 :].reshape(64, 64), np.repeat(np.take(x, [3], axis), 64, axis))
    parts = 1 if cga is None else len({tuple(c) for c in cga} - {(0, 0)}) * 2 or 1
    assert compiled.binary.dynamic_shared == 64 * 64 * 2 // parts


# TMA


@weft.jit
def copy_blocks(y, x, out, layout: gl.constexpr, MULTICAST: gl.constexpr):
    rows: gl.constexpr = x.block_shape[0]
    columns: gl.constexpr = x.block_shape[1]
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    i, j = offsets(rows, columns, layout)
    for step in range(3):
        mbarrier.expect(bar, x.nbytes_per_cta)
        tma.async_copy_global_to_shared(x, [rows // 2, step * columns], bar, memory, multicast=MULTICAST)
        mbarrier.wait(bar, step & 1)
        gl.store(out + (step * rows + i) * columns + j, memory.load(layout))
        if MULTICAST:
            # The first block may not send the next block before all have read this one.
            cluster.barrier()
    memory.store(memory.load(layout) * 2)
    tma.async_copy_shared_to_global(y, [0, columns], memory)
    tma.store_wait(0)


@pytest.mark.parametrize("multicast", [False, True])
@pytest.mark.parametrize(("blocks", "cga"), [split for split in SPLITS if split[1] != [[2, 0], [1, 0]]])
def test_tma_for_each_block(run, rng, blocks, cga, multicast):
    x, y = random(rng, np.float16, (100, 200)), poison(100 * 200, np.float16).reshape(100, 200)
    out = poison(3 * 64 * 64, np.float16)
    shared = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16, cga_layout=cga)
    run(
        copy_blocks, 1, Described(y, [64, 64], shared), Described(x, [64, 64], shared), out, blocked(cga), multicast,
        num_ctas=blocks,
    )  # fmt: skip
    padded = np.zeros((96, 192), np.float16)
    padded[:68, :192] = x[32:, :192]
    expected = padded[:64].reshape(64, 3, 64).transpose(1, 0, 2)
    same(out.reshape(3, 64, 64), expected)
    same(y[:64, 64:128], expected[2] * np.float16(2))


@weft.jit
def add_row_block(out, a, b, layout: gl.constexpr, BLOCKS: gl.constexpr, SHARED: gl.constexpr):
    """Each block of a cluster loads its rows of `a`; all of them get `b`, which one reads for all."""
    rows: gl.constexpr = a.block_shape[0]
    columns: gl.constexpr = a.block_shape[1]
    a_memory = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    b_memory = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    out_memory = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)
    full = mbarrier.allocate_mbarrier()
    empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout(SHARED))
    mbarrier.init(full, count=1)
    mbarrier.init(empty, count=1)
    first = gl.program_id(0) * rows
    for step in range(BLOCKS):
        # The first block, which sends, waits for all to have read what was sent before.
        mbarrier.wait(empty, (step & 1) ^ 1)
        mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_copy_global_to_shared(a, [first, step * columns], full, a_memory)
        tma.async_copy_global_to_shared(b, [0, step * columns], full, b_memory, multicast=True)
        mbarrier.wait(full, step & 1)
        total = a_memory.load(layout) + b_memory.load(layout)
        # Another block's TMA writes next what threads have read here.
        fence_async_shared()
        mbarrier.arrive(empty)
        tma.store_wait(0)
        out_memory.store(total)
        tma.async_copy_shared_to_global(out, [first, step * columns], out_memory)
    tma.store_wait(0)


@pytest.mark.parametrize("bits", [1, 2])
def test_one_operand_for_all_blocks(run, rng, bits):
    blocks, columns, steps = 1 << bits, 64, 4
    rows = 32 * blocks
    split, copies = [[1 << bit, 0] for bit in range(bits)], [[0, 0]] * bits
    a, b = (random(rng, np.float32, (n, steps * columns)) for n in (2 * rows, 1))
    out = poison(a.size, np.float32).reshape(a.shape)
    layout = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=split)
    a_shared = gl.NVMMASharedLayout.get_default_for([rows, columns], gl.float32, cga_layout=split)
    b_shared = gl.NVMMASharedLayout(0, 32, 2, cga_layout=copies)
    run(
        add_row_block, 2, Described(out, [rows, columns], a_shared), Described(a, [rows, columns], a_shared),
        Described(b, [1, columns], b_shared), layout, steps, [[0]] * bits, num_ctas=blocks,
    )  # fmt: skip
    same(out, a + b)


# Blocks that wait for each other


@weft.jit
def exchange(out, x, N: gl.constexpr, mine: gl.constexpr, others: gl.constexpr, SPLIT: gl.constexpr):
    """Blocks write the halves that they hold and read the other ones."""
    i = gl.arange(0, N, mine)
    gl.store(out + i, gl.load(x + i) * 2)
    if SPLIT:
        cluster.arrive()
        cluster.wait()
    else:
        gl.barrier(cluster=True)
    j = gl.arange(0, N, others)
    gl.store(out + N + j, gl.load(out + j) + 1)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("blocks", [2, 4])
def test_data_of_other_blocks_after_the_barrier(run, rng, split, blocks):
    bits = blocks.bit_length() - 1
    x, out = random(rng, np.int32, 1024), poison(2048, np.int32)
    near = gl.BlockedLayout([2], [32], [4], [0], cga_layout=[[1 << bit] for bit in range(bits)])
    # The blocks lie next to each other, and take turns every other element.
    far = gl.DistributedLinearLayout(
        [[1 << bit] for bit in range(bits, 3)], [[8 << bit] for bit in range(5)], [[256], [512]],
        [[1 << bit] for bit in range(bits)], [1024],
    )  # fmt: skip
    run(exchange, 1, out, x, 1024, near, far, split, num_ctas=blocks)
    same(out[:1024], x * np.int32(2))
    same(out[1024:], x * np.int32(2) + np.int32(1))


@weft.jit
def send_blocks(b, full, empty, memory, STEPS: gl.constexpr):
    for step in range(STEPS):
        stage = step % 2
        mbarrier.wait(empty.index(stage), (step // 2 & 1) ^ 1)
        # A block that does not send has to see its own phases one after the other: it expects when the last one is complete.
        mbarrier.wait(full.index(stage), (step // 2 & 1) ^ 1)
        mbarrier.expect(full.index(stage), b.nbytes_per_cta)
        tma.async_copy_global_to_shared(
            b, [0, step * b.block_shape[1]], full.index(stage), memory.index(stage), multicast=True
        )


@weft.jit
def add_up(out, full, empty, memory, STEPS: gl.constexpr, layout: gl.constexpr):
    total = gl.zeros(memory.shape[1:], gl.float32, layout)
    for step in range(STEPS):
        stage = step % 2
        mbarrier.wait(full.index(stage), step // 2 & 1)
        total += memory.index(stage).load(layout)
        fence_async_shared()
        mbarrier.arrive(empty.index(stage))
    i, j = offsets(memory.shape[1], memory.shape[2], layout)
    gl.store(out + i * memory.shape[2] + j, total)


@weft.jit
def specialised_sum(out, b, STEPS: gl.constexpr, layout: gl.constexpr, SHARED: gl.constexpr):
    memory = gl.allocate_shared_memory(b.dtype, [2, *b.block_shape], b.layout)
    full = mbarrier.allocate_mbarrier(2)
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout(SHARED))
    for stage in gl.static_range(2):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    gl.warp_specialize(
        [(add_up, (out, full, empty, memory, STEPS, layout)), (send_blocks, (b, full, empty, memory, STEPS))], [1], [24]
    )


@pytest.mark.parametrize("bits", [1, 2])
def test_a_partition_that_sends_to_all_blocks(run, rng, bits):
    b = rng.integers(-100, 100, (16, 7 * 64)).astype(np.float32)
    out = poison(16 * 64, np.float32)
    shared = gl.NVMMASharedLayout.get_default_for([16, 64], gl.float32, cga_layout=[[0, 0]] * bits)
    layout = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0], cga_layout=[[0, 0]] * bits)
    b.flags.writeable = False
    run(specialised_sum, 1, out, Described(b, [16, 64], shared), 7, layout, [[0]] * bits, num_ctas=1 << bits)
    same(out.reshape(16, 64), b.reshape(16, 7, 64).sum(1, dtype=np.float32))


# Across the threads of a block


@weft.jit
def across(out, x, layout: gl.constexpr, axis: gl.constexpr):
    i, j = offsets(64, 64, layout)
    at = i * 64 + j
    value = gl.load(x + at)
    gl.store(out + at, gl.gather(value, (at * 7 + 3) % 64, axis))
    gl.store(out + 4096 + at, gl.associative_scan(value, axis, add))
    gl.store(out + 8192 + at, gl.atomic_add(out + 8192 + at, value))


@pytest.mark.parametrize(("axis", "blocks", "cga"), [(1, 2, [[1, 0]]), (0, 2, [[0, 1]]), (1, 4, [[2, 0], [1, 0]])])
def test_gathers_scans_and_old_values(run, rng, axis, blocks, cga):
    x, out = rng.integers(-99, 99, (64, 64)).astype(np.int32), np.zeros(3 * 4096, np.int32)
    x.flags.writeable = False
    run(across, 1, out, x, blocked(cga), axis, num_ctas=blocks)
    chosen = (np.arange(4096).reshape(64, 64) * 7 + 3) % 64
    same(out[:4096].reshape(64, 64), np.take_along_axis(x, chosen, axis))
    same(out[4096:8192].reshape(64, 64), np.cumsum(x, axis, dtype=np.int32))
    np.testing.assert_array_equal(out[8192:], 0)


@weft.jit
def counts_of(out, x, layout: gl.constexpr):
    i = gl.arange(0, 512, layout)
    j = gl.arange(0, 64, layout)
    gl.store(out + j, gl.histogram(gl.load(x + i), 64, layout=layout))


@pytest.mark.parametrize("blocks", [2, 8])
def test_each_block_counts_its_copy(run, rng, blocks):
    x, out = rng.integers(0, 64, 512).astype(np.int32), poison(64, np.int32)
    x.flags.writeable = False
    run(counts_of, 1, out, x, gl.BlockedLayout([1], [32], [4], [0]), num_ctas=blocks)
    np.testing.assert_array_equal(out, np.bincount(x, minlength=64))


@weft.jit
def by_cp_async(out, total, x, layout: gl.constexpr, shared: gl.constexpr):
    i, j = offsets(64, 64, layout)
    at = i * 64 + j
    memory = gl.allocate_shared_memory(gl.float32, [64, 64], shared)
    async_copy.async_copy_global_to_shared(memory, x + at, mask=i < 50)
    async_copy.commit_group()
    async_copy.wait_group(0)
    value = memory.load(layout)
    gl.store(out + at, value)
    doubled = gl.allocate_shared_memory(total.dtype, total.block_shape, total.layout)
    doubled.store(value * 2)
    tma.async_atomic_add(total, [0, 0], doubled)
    tma.store_wait(0)


@pytest.mark.parametrize(("blocks", "cga"), [(2, [[1, 0]]), (4, [[0, 0], [1, 0]]), (2, None)])
def test_copies_by_threads_and_sums_by_tma(run, rng, blocks, cga):
    x, out = random(rng, np.float32, (64, 64)), poison(4096, np.float32)
    total = np.ones((64, 64), np.float32)
    shared = gl.SwizzledSharedLayout(4, 1, 8, [1, 0], cga_layout=cga)
    described = Described(total, [64, 64], gl.NVMMASharedLayout.get_default_for([64, 64], gl.float32, cga_layout=cga))
    run(by_cp_async, 1, out, described, x, blocked(cga), shared, num_ctas=blocks)
    expected = np.where(np.arange(64)[:, None] < 50, x, np.float32(0))
    same(out.reshape(64, 64), expected)
    same(total, expected * np.float32(2) + np.float32(1))


def test_a_layout_that_no_block_holds_in_part():
    @weft.jit
    def buffers(out):
        gl.allocate_shared_memory(gl.int32, [256], gl.SwizzledSharedLayout(1, 1, 1, [0], cga_layout=[[128]]))

    @weft.jit
    def tiles(out):
        gl.store(out + gl.arange(0, 256, gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[128]])), 1)

    for kernel in (buffers, tiles):
        with pytest.raises(UserError) as caught:
            kernel[1](np.zeros(256, np.int32), num_ctas=2)
        assert (caught.value.code, "[1], [2], [4]" in caught.value.fix) == ("layout-cga-gaps", True)
