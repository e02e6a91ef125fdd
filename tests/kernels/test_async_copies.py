"""Asynchronous copies: cp.async of odd sizes, TMA of odd tensors, rings of both, and barriers between them."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, Within, poison, same, values
from tests.kernels.matrices import LAYOUTS, load_matrix, store_matrix
from weft import language as gl
from weft.errors import CompilationError, UserError
from weft.language.nvidia.ampere import async_copy
from weft.language.nvidia.hopper import async_store, fence_async_global, fence_async_shared, mbarrier, tma

ROWS = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
SWIZZLED = gl.SwizzledSharedLayout(8, 1, 8, [1, 0])


@weft.jit
def matrix(p, rows, columns, pitch, layout: gl.constexpr):
    """Addresses of a 64 x 64 block, and which lie in the matrix."""
    i, j = gl.arange(0, 64, gl.SliceLayout(1, layout)), gl.arange(0, 64, gl.SliceLayout(0, layout))
    return p + i[:, None] * pitch + j[None, :], (i < rows)[:, None] & (j < columns)[None, :]


# cp.async


@weft.jit
def copied(out, x, rows, columns, pitch, dtype: gl.constexpr, memory: gl.constexpr, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(dtype, [64, 64], memory)
    addresses, mask = matrix(x, rows, columns, pitch, layout)
    async_copy.async_copy_global_to_shared(smem, addresses, mask)
    async_copy.commit_group()
    async_copy.wait_group(0)
    to, _ = matrix(out, 64, 64, 64, layout)
    gl.store(to, smem.load(layout))


@pytest.mark.parametrize(
    ("kind", "rows", "columns", "pitch"),
    [
        (np.float16, 64, 64, 64),
        (np.float16, 37, 48, 80),
        (np.float16, 0, 0, 64),
        (np.float32, 1, 64, 64),
        (np.float32, 63, 63, 67),
        (np.float32, 20, 5, 65),
        (np.int64, 37, 48, 80),
        (np.int64, 63, 1, 67),
    ],
)
def test_copies_of_odd_sizes(run, rng, kind, rows, columns, pitch):
    """Zeros arrive for what lies outside; pairs of halves need a pitch and a number of columns that are known to be even."""
    dtype = {np.float16: gl.float16, np.float32: gl.float32, np.int64: gl.int64}[kind]
    x, out = values(rng, kind, 64 * pitch), poison(4096, kind)
    run(copied, 1, out, x, rows, columns, pitch, dtype, SWIZZLED, ROWS)
    expected = np.zeros((64, 64), kind)
    expected[:rows, :columns] = np.array(x).reshape(64, pitch)[:rows, :columns]
    same(out, expected.ravel())


@weft.jit
def row_from_anywhere(out, x, first, count, masked: gl.constexpr, layout: gl.constexpr):
    """Elements `first` to `first + count` by copies that begin before them, at an aligned address."""
    memory = gl.allocate_shared_memory(out.dtype.element_ty, [512], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    skew = first & 7
    place = gl.arange(0, 512, layout)
    column = place - skew
    inside = (column >= 0) & (column < count)
    async_copy.async_copy_global_to_shared(memory, x + gl.multiple_of(first - skew, 8) + place, inside, zeros=False)
    async_copy.commit_group()
    async_copy.wait_group(0)
    found = memory.load(layout)
    if masked:
        found = gl.where(inside, found, 0.5)
    gl.store(out + place, found)


EIGHT = gl.BlockedLayout([8], [32], [4], [0])


@pytest.mark.parametrize(("first", "count"), [(0, 512), (0, 511), (3, 100), (7, 1), (9, 504), (13, 0), (1000, 24)])
def test_a_row_from_anywhere(run, rng, first, count):
    x, out = values(rng, np.float16, 1024), poison(512, np.float16)
    run(row_from_anywhere, 1, out, x, first, count, True, EIGHT)
    expected = np.full(512, 0.5, np.float16)
    expected[first % 8 :][:count] = np.array(x)[first : first + count]
    same(out, expected)


@weft.jit
def array_from_anywhere(out, x, count, layout: gl.constexpr):
    """All elements of an array that begins at any address, by copies that begin at an aligned one before it."""
    memory = gl.allocate_shared_memory(out.dtype.element_ty, [512], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    skew = (x.to(gl.int64) // 2).to(gl.int32) & 7
    column = gl.arange(0, 512, layout) - skew
    inside = (column >= 0) & (column < count)
    start = gl.multiple_of(x - skew, 16)
    async_copy.async_copy_global_to_shared(memory, start + gl.arange(0, 512, layout), inside, zeros=False)
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(out + column, memory.load(layout), mask=inside)


@pytest.mark.parametrize(("first", "count"), [(0, 512), (3, 100), (7, 1), (9, 500), (13, 0)])
def test_an_array_from_anywhere(run, rng, first, count):
    """What a copy takes along from before the array is no access of it, at both stages."""
    x, out = values(rng, np.float16, 1024), poison(512, np.float16)
    part = Within(x, lambda array: array[first : first + max(count, 1)])
    run(array_from_anywhere, 1, out, part, count, EIGHT)
    same(out[:count], np.array(x)[first : first + count])
    same(out[count:], poison(512, np.float16)[count:])


@weft.jit
def doubled_in_place(x, first, count, zeros: gl.constexpr, layout: gl.constexpr):
    """Each thread copies elements, waits for its own copies, and overwrites them."""
    memory = gl.allocate_shared_memory(x.dtype.element_ty, [1024], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    at = gl.arange(0, 1024, layout)
    inside = at < first + count
    if not zeros:
        inside = inside & (at >= first)
    async_copy.async_copy_global_to_shared(memory, x + at, inside, zeros=zeros)
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(x + at, memory.load(layout) * 2, mask=inside)


@pytest.mark.parametrize("zeros", [True, False])
def test_threads_wait_for_their_own_parts(run, rng, zeros):
    x = rng.standard_normal(1024).astype(np.float16)
    before = np.array(x)
    run(doubled_in_place, 1, x, 3, 998, zeros, EIGHT)
    first = 0 if zeros else 3
    same(x[first:1001], before[first:1001] * 2)
    same(x[1001:], before[1001:])
    same(x[:first], before[:first])


def test_what_is_masked_off_is_undefined_without_zeros(rng):
    x, out = values(rng, np.float16, 1024), poison(512, np.float16)
    with pytest.raises(UserError, match="the copy that writes it is masked off, with `zeros=False`"):
        row_from_anywhere[(1,)](np.array(out), np.array(x), 3, 100, False, EIGHT)


@weft.jit
def ring_of_copies(out, x, blocks, stages: gl.constexpr, memory: gl.constexpr, layout: gl.constexpr):
    """Sums of blocks of 64 x 64, with `stages` - 1 of them in flight."""
    ring = gl.allocate_shared_memory(gl.float32, [stages, 64, 64], memory)
    for i in gl.static_range(stages - 1):
        addresses, mask = matrix(x + i * 4096, gl.where(i < blocks, 64, 0), 64, 64, layout)
        async_copy.async_copy_global_to_shared(ring.index(i), addresses, mask)
        async_copy.commit_group()
    total = gl.zeros([64, 64], gl.float32, layout)
    for i in range(blocks):
        after = i + stages - 1
        addresses, mask = matrix(x + after * 4096, gl.where(after < blocks, 64, 0), 64, 64, layout)
        async_copy.async_copy_global_to_shared(ring.index(after % stages), addresses, mask)
        async_copy.commit_group()
        async_copy.wait_group(stages - 1)
        total += ring.index(i % stages).load(layout)
    to, _ = matrix(out, 64, 64, 64, layout)
    gl.store(to, total)


@pytest.mark.parametrize("blocks", [1, 2, 7])
@pytest.mark.parametrize("stages", [2, 3])
def test_a_ring_of_copies(run, rng, stages, blocks):
    x, out = values(rng, np.float32, blocks * 4096), poison(4096, np.float32)
    run(ring_of_copies, 1, out, x, blocks, stages, gl.SwizzledSharedLayout(4, 1, 8, [1, 0]), ROWS)
    expected = np.zeros(4096, np.float32)
    for block in np.array(x).reshape(blocks, 4096):
        expected += block
    same(out, expected)


# TMA


@weft.jit
def moved(in_desc, out_desc, rows: gl.constexpr, columns: gl.constexpr):
    """A block of the input to the same place of the output, as it is."""
    smem = gl.allocate_shared_memory(in_desc.dtype, [rows, columns], in_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    y, x = gl.program_id(0) * rows, gl.program_id(1) * columns
    mbarrier.expect(bar, in_desc.block_type.nbytes)
    tma.async_copy_global_to_shared(in_desc, [y, x], bar, smem)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    tma.async_copy_shared_to_global(out_desc, [y, x], smem)
    tma.store_wait(0)


@pytest.mark.parametrize("block", [(8, 16), (64, 32), (32, 256), (128, 64)])
@pytest.mark.parametrize("kind", [np.uint8, np.float16, np.float32, np.int64], ids=lambda kind: np.dtype(kind).name)
def test_blocks_of_odd_tensors(run, rng, block, kind):
    """What lies outside of a tensor is not read, and not written but for the rest of a row's last 16 bytes; a block may be
    several boxes."""
    dtype = {np.uint8: gl.uint8, np.float16: gl.float16, np.float32: gl.float32, np.int64: gl.int64}[kind]
    layout = gl.NVMMASharedLayout.get_default_for(list(block), dtype)
    size = np.dtype(kind).itemsize
    if np.prod(block) * size > 200_000:
        block = (block[0] // 2, block[1])
    rows, columns, chunk = block[0] + 5, block[1] + 3, 16 // size
    ending = -(-columns // chunk) * chunk
    pitch = ending + chunk
    x, out = values(rng, kind, rows * pitch).reshape(rows, pitch), poison((rows, pitch), kind)
    kept = out.copy()
    run(moved, (2, 2), Described(x, list(block), layout, columns=columns),
        Described(out, list(block), layout, columns=columns), *block)  # fmt: skip
    kept[:, :columns] = x[:, :columns]
    kept[:, columns:ending] = 0
    same(out.ravel(), kept.ravel())


@weft.jit
def doubled(in_desc, out_desc, count, stages: gl.constexpr, layout: gl.constexpr):
    """A ring of loads; each block goes through registers and out by TMA."""
    ring = gl.allocate_shared_memory(in_desc.dtype, [stages, 64, 64], in_desc.layout)
    result = gl.allocate_shared_memory(in_desc.dtype, [64, 64], in_desc.layout)
    bars = mbarrier.allocate_mbarrier(batch=stages)
    for i in gl.static_range(stages):
        mbarrier.init(bars.index(i), count=1)
    for i in gl.static_range(stages - 1):
        mbarrier.expect(bars.index(i), in_desc.block_type.nbytes, pred=i < count)
        tma.async_copy_global_to_shared(in_desc, [i * 64, 0], bars.index(i), ring.index(i), pred=i < count)
    for i in range(count):
        after = i + stages - 1
        bar, buf = bars.index(after % stages), ring.index(after % stages)
        mbarrier.expect(bar, in_desc.block_type.nbytes, pred=after < count)
        tma.async_copy_global_to_shared(in_desc, [after * 64, 0], bar, buf, pred=after < count)
        mbarrier.wait(bars.index(i % stages), i // stages & 1)
        x = ring.index(i % stages).load(layout)
        tma.store_wait(0)
        result.store(x + x)
        fence_async_shared()
        tma.async_copy_shared_to_global(out_desc, [i * 64, 0], result)
    tma.store_wait(0)
    for i in gl.static_range(stages):
        mbarrier.invalidate(bars.index(i))


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("stages", [2, 3])
def test_a_ring_of_blocks(run, rng, stages, count):
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    rows = 64 * count - 7
    x, out = values(rng, np.float16, rows * 64).reshape(rows, 64), poison((rows, 64), np.float16)
    run(doubled, 1, Described(x, [64, 64], layout), Described(out, [64, 64], layout), count, stages, ROWS)
    with np.errstate(over="ignore", invalid="ignore"):
        same(out.ravel(), (np.array(x) + np.array(x)).ravel())


# st.async


@weft.jit
def sent(out, x, rounds, M: gl.constexpr, N: gl.constexpr, memory: gl.constexpr, layout: gl.constexpr):
    """Each tile goes through shared memory, in two buffers by turns."""
    bars = mbarrier.allocate_mbarrier(batch=2)
    buffers = gl.allocate_shared_memory(x.dtype.element_ty, [2, M, N], memory)
    for i in gl.static_range(2):
        mbarrier.init(bars.index(i), count=1)
    for i in range(rounds):
        bar, buffer = bars.index(i % 2), buffers.index(i % 2)
        mbarrier.expect(bar, buffer.nbytes_per_cta)
        async_store(buffer, load_matrix(x + i * M * N, M, N, layout), bar)
        mbarrier.wait(bar, i // 2 & 1, deps=[buffer])
        store_matrix(out + i * M * N, buffer.load(layout), M, N, layout)


BOTH = [[0, 0]]
"""Each block of a cluster of two has the whole tile."""
IN_BOTH = {
    "rows": gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=BOTH),
    "repeated": gl.BlockedLayout([1, 1], [32, 1], [4, 1], [1, 0], cga_layout=BOTH),
    "mma": gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8], cga_layout=BOTH),
}


@pytest.mark.parametrize("layout", IN_BOTH)
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int64])
def test_asynchronous_stores(run, rng, kind, layout):
    x, out = values(rng, kind, 5 * 32 * 64), poison(5 * 32 * 64, kind)
    memory = gl.SwizzledSharedLayout(8, 1, 4, [1, 0], cga_layout=BOTH)
    made = run(sent, 1, out, x, 5, 32, 64, memory, IN_BOTH[layout], num_ctas=2, compiles=layout != "repeated")
    same(out, x)
    assert "store_shared_async_" in made.asm["cuda"] and "st.async.weak.shared::cluster" in made.asm["cuda"]


def test_asynchronous_stores_of_two_bytes(run, rng):
    x, out = values(rng, np.float16, 2048), poison(2048, np.float16)
    with pytest.raises(CompilationError, match="only 1 are contiguous in shared memory") as caught:
        run(sent, 1, out, x, 1, 32, 64, gl.SwizzledSharedLayout(1, 1, 1, [0, 1], BOTH), IN_BOTH["rows"], num_ctas=2)
    assert caught.value.code == "async-store-width" and "2 neighbours" in str(caught.value)


def test_asynchronous_stores_outside_of_a_cluster(run, rng):
    x, out = values(rng, np.float32, 2048), poison(2048, np.float32)
    with pytest.raises(CompilationError, match="launched without a cluster") as caught:
        run(sent, 1, out, x, 1, 32, 64, gl.SwizzledSharedLayout(1, 1, 1, [1, 0]), LAYOUTS["rows"])
    assert caught.value.code == "cluster-store" and "num_ctas=2 or more" in caught.value.fix


# TMA


@weft.jit
def moved_by_a_word(in_desc, out_desc, words: gl.constexpr):
    """The mbarrier is the second of two plain words of 64 bits; the first is data, and so is a byte laid out as an mbarrier."""
    smem = gl.allocate_shared_memory(in_desc.dtype, in_desc.block_shape, in_desc.layout)
    byte = gl.allocate_shared_memory(gl.int8, [1], mbarrier.MBarrierLayout())
    byte.store(gl.full([1], 1, gl.int8, gl.BlockedLayout([1], [32], [4], [0])))
    pair = gl.allocate_shared_memory(gl.int64, [2, 1], words)
    bar = pair.index(1)
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, in_desc.block_type.nbytes)
    tma.async_copy_global_to_shared(in_desc, [0, 0], bar, smem)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    tma.async_copy_shared_to_global(out_desc, [0, 0], smem)
    tma.store_wait(0)


def test_a_plain_word_as_a_barrier(run, rng):
    x, out = values(rng, np.float16, 64 * 64).reshape(64, 64), poison((64, 64), np.float16)
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    words = gl.SwizzledSharedLayout(1, 1, 1, [0])
    run(moved_by_a_word, 1, Described(x, [64, 64], layout), Described(out, [64, 64], layout), words)
    same(out.ravel(), x.ravel())


@weft.jit
def handed_on(line, out, flag, layout: gl.constexpr):
    """Program 0 writes a line by TMA, which program 1 reads by TMA in the same launch."""
    at = gl.arange(0, 256, layout)
    smem = gl.allocate_shared_memory(line.dtype, line.block_shape, line.layout)
    if gl.program_id(0) == 0:
        smem.store(at * 3)
        fence_async_shared()
        tma.async_copy_shared_to_global(line, [0], smem)
        tma.store_wait(0, read_only=False)
        gl.atomic_xchg(flag, 1, sem="release")
    else:
        while gl.atomic_add(flag, 0, sem="acquire") != 1:
            pass
        fence_async_global()
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        mbarrier.expect(bar, line.block_type.nbytes)
        tma.async_copy_global_to_shared(line, [0], bar, smem)
        mbarrier.wait(bar, 0)
        gl.store(out + at, smem.load(layout))


def test_a_store_for_another_program(run):
    line, out, flag = np.zeros(256, np.int32), poison(256, np.int32), np.zeros(1, np.int32)
    shared = gl.NVMMASharedLayout.get_default_for([256], gl.int32)
    run(handed_on, 2, Described(line, [256], shared), out, flag, gl.BlockedLayout([1], [32], [4], [0]))
    same(out, np.arange(256, dtype=np.int32) * 3)


@weft.jit
def rounded(out, x, R: gl.constexpr, C: gl.constexpr, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(x.dtype, [R, C], x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.nbytes_per_cta)
    tma.async_load(x, [0, 0], bar, smem)
    mbarrier.wait(bar, 0)
    store_matrix(out, smem.load(layout), R, C, layout)


def test_loads_that_round_to_tf32(run, rng):
    """To the nearest number of ten bits of mantissa, ties to even; infinities stay, and so does what is exact."""
    bits = rng.integers(0, 1 << 32, 4096, np.uint64).astype(np.uint32)
    bits[::3] = bits[::3] & ~np.uint32(0x1FFF) | np.uint32(0x1000)
    bits[:4] = np.array([np.inf, -np.inf, 1.0, 0.0], np.float32).view(np.uint32)
    bits[(bits & 0x7F800000 == 0x7F800000) & (bits & 0x7FFFFF != 0)] = 0x3F801000
    x, out = bits.view(np.float32).reshape(64, 64), poison(4096, np.float32)
    run(rounded, 1, out, Described(x, [64, 64], gl.NVMMASharedLayout(128, 32, 2), rounds=True), 64, 64, ROWS)
    wide = x.astype(np.float64)
    _, exponent = np.frexp(wide)
    least = np.maximum(exponent - 11, -126 - 10)
    with np.errstate(invalid="ignore", over="ignore"):
        nearest = np.ldexp(np.rint(np.ldexp(wide, -least)), least).astype(np.float32)
    same(out.reshape(64, 64), np.where(np.isfinite(x), nearest, x))


@weft.jit
def through_slices(out_desc, in_desc, y, x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    """The four blocks of a tile, two by two, loaded to its quarters one by one, and stored after the tile is doubled."""
    smem = gl.allocate_shared_memory(in_desc.dtype, [2 * M, 2 * N], in_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, smem.nbytes_per_cta)
    for i in gl.static_range(2):
        for j in gl.static_range(2):
            part = smem.slice(i * M, M).slice(j * N, N, dim=1)
            tma.async_load(in_desc, [y + i * M, x + j * N], bar, part)
    mbarrier.wait(bar, 0)
    value = smem.load(layout)
    smem.store(value + value)
    fence_async_shared()
    gl.barrier()
    for i in gl.static_range(2):
        for j in gl.static_range(2):
            tma.async_store(out_desc, [y + i * M, x + j * N], smem.slice(j * N, N, dim=1).slice(i * M, M))
    tma.store_wait(0)


@pytest.mark.parametrize(
    ("kind", "block", "swizzle"),
    [(np.float16, [32, 64], 128), (np.float32, [16, 32], 64), (np.float16, [256, 16], 32), (np.int8, [32, 64], 64)],
)
def test_tma_of_slices(run, rng, kind, block, swizzle):
    rows, columns = block
    array = rng.integers(-50, 50, (2 * rows + 5, 2 * columns + 32)).astype(kind)
    out = np.full_like(array, 7)
    layout = gl.NVMMASharedLayout(swizzle, np.dtype(kind).itemsize * 8, 2)
    source, target = (Described(x, block, layout) for x in (array, out))
    run(through_slices, 1, target, source, 5, 16, rows, columns, ROWS)
    wanted = np.full_like(array, 7)
    wanted[5:, 16 : 16 + 2 * columns] = array[5:, 16 : 16 + 2 * columns] * 2
    same(out, wanted)


@weft.jit
def combined(desc, x, KIND: gl.constexpr, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.int32, [64, 64], desc.layout)
    addresses, _ = matrix(x, 64, 64, 64, layout)
    smem.store(gl.load(addresses))
    if KIND == "add":
        tma.async_atomic_add(desc, [0, 0], smem)
    elif KIND == "min":
        tma.async_atomic_min(desc, [0, 0], smem)
    else:
        tma.async_atomic_xor(desc, [0, 0], smem)
    tma.store_wait(0)


@pytest.mark.parametrize("kind", ["add", "min", "xor"])
def test_reductions_of_several_programs(run, rng, kind):
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.int32)
    x = values(rng, np.int32, 4096)
    start = values(rng, np.int32, 50 * 64).reshape(50, 64)
    out = np.array(start)
    run(combined, 3, Described(out, [64, 64], layout), x, kind, ROWS)
    block = np.array(x).reshape(64, 64)[:50]
    with np.errstate(over="ignore"):
        expected = {"add": start + 3 * block, "min": np.minimum(start, block), "xor": start ^ block}[kind]
    same(out.ravel(), expected.ravel())
