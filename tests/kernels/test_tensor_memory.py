"""Products into tensor memory, as authors write them: the handle in aggregates, partitions and loops, from both memories."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, poison, random, within
from weft import language as gl
from weft.language.aggregate import aggregate
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    get_tmem_32x32b_reg_layout,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tcgen05_mma_barrier_count,
    tensor_memory_descriptor,
    tma,
)

pytestmark = pytest.mark.usefixtures("blackwell")


def described(array, block, cga=None):
    return Described(array, block, gl.NVMMASharedLayout.get_default_for(block, gl.float16, cga_layout=cga))


def halves(rng, shape):
    """Small numbers, so that sums of products stay within what float16 holds."""
    return np.array(random(rng, np.float16, shape) / np.float16(16))


def product(a, b):
    return a.astype(np.float64) @ b.astype(np.float64)


def check(found, a, b):
    """Sums differ by what float32 rounds away, which a sum near zero shows most: they are compared beside the largest."""
    exact = product(a, b)
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=2e-3, atol=2e-4 * np.abs(exact).max())


@aggregate
class Product:
    """Products into one accumulator, and the barrier that tells of their ends."""

    use_acc: gl.tensor
    acc: tensor_memory_descriptor
    bar: gl.shared_memory_descriptor
    count: gl.tensor
    layout: gl.constexpr

    @staticmethod
    @weft.jit
    def make(rows: gl.constexpr, columns: gl.constexpr):
        acc = allocate_tensor_memory(gl.float32, [rows, columns], TensorMemoryLayout([rows, columns], col_stride=1))
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        layout: gl.constexpr = get_tmem_32x32b_reg_layout(rows, columns, [rows, columns], gl.num_warps())
        return Product(gl.to_tensor(False), acc, bar, gl.to_tensor(0), layout)

    @weft.jit
    def start(self, a, b):
        tcgen05_mma(a, b, self.acc, use_acc=self.use_acc)
        tcgen05_commit(self.bar)
        return Product(gl.to_tensor(True), self.acc, self.bar, self.count + 1, self.layout)

    @weft.jit
    def wait(self):
        mbarrier.wait(self.bar, (self.count - 1) & 1)
        return self

    @weft.jit
    def take(self):
        return self.acc.load(self.layout), Product(gl.to_tensor(False), self.acc, self.bar, self.count, self.layout)


@weft.jit
def request(a_desc, b_desc, row, column, k, bar, a, b):
    mbarrier.expect(bar, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
    tma.async_load(a_desc, [row, k], bar, a)
    tma.async_load(b_desc, [k, column], bar, b)


@weft.jit
def write(c_desc, row, column, c, x):
    c.store(x.to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row, column], c)
    tma.store_wait(0)


@weft.jit
def ring(a_desc, b_desc, c_desc, K, stages: gl.constexpr):
    a = gl.allocate_shared_memory(a_desc.dtype, [stages, *a_desc.block_shape], a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [stages, *b_desc.block_shape], b_desc.layout)
    c = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    bars = mbarrier.allocate_mbarrier(batch=stages)
    for i in gl.static_range(stages):
        mbarrier.init(bars.index(i), count=1)
    rows: gl.constexpr = c_desc.block_shape[0]
    columns: gl.constexpr = c_desc.block_shape[1]
    row, column = gl.program_id(0) * rows, gl.program_id(1) * columns
    product = Product.make(rows, columns)
    # Twice, so that the accumulator begins anew where it ended.
    for again in gl.static_range(2):
        steps = gl.cdiv(K, 64)
        first = again * steps
        for i in range(steps):
            at = (first + i) % stages
            request(a_desc, b_desc, row, column, i * 64, bars.index(at), a.index(at), b.index(at))
            mbarrier.wait(bars.index(at), (first + i) // stages & 1)
            product = product.start(a.index(at), b.index(at)).wait()
        x, product = product.take()
    write(c_desc, row, column, c, x)


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("num_warps", [4, 8])
def test_in_an_aggregate(run, rng, rows, num_warps):
    m, n, k = 136, 88, 200
    a, b, c = halves(rng, (m, k)), halves(rng, (k, n)), poison((m, n), np.float16)
    grid = (-(-m // rows), -(-n // 64))
    args = described(a, [rows, 64]), described(b, [64, 64]), described(c, [rows, 64])
    run(ring, grid, *args, k, 2, num_warps=num_warps)
    check(c, a, b)


@weft.jit
def load(a_desc, b_desc, a, b, ready):
    request(a_desc, b_desc, 0, 0, 0, ready, a, b)


@weft.jit
def multiply(a, b, accs, ready, done):
    mbarrier.wait(ready, 0)
    tcgen05_mma(a, b, accs.index(1), use_acc=False, mbarriers=[done])


@weft.jit
def finish(accs, done, c_desc, c):
    mbarrier.wait(done, 0)
    for i in gl.static_range(2):
        write(c_desc, 0, i * 32, c, accs.index(1).slice(i * 32, 32).load())


@weft.jit
def specialized(a_desc, b_desc, c_desc):
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_shape, b_desc.layout)
    c = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    accs = allocate_tensor_memory(gl.float32, [2, 128, 64], TensorMemoryLayout([128, 64], col_stride=1))
    ready, done = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    mbarrier.init(done, count=1)
    gl.warp_specialize(
        [
            (finish, (accs, done, c_desc, c)),
            (multiply, (a, b, accs, ready, done)),
            (load, (a_desc, b_desc, a, b, ready)),
        ],
        [1, 1],
    )


def test_between_partitions(run, rng):
    a, b, c = halves(rng, (128, 64)), halves(rng, (64, 64)), poison((128, 64), np.float16)
    run(specialized, (1,), described(a, [128, 64]), described(b, [64, 64]), described(c, [128, 32]))
    check(c, a, b)


@weft.jit
def from_tensor_memory(a_desc, b_desc, out, start, multiplies):
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_shape, b_desc.layout)
    ready, done = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    mbarrier.init(done, count=1)
    memory = allocate_tensor_memory(gl.float32, [128, 128], TensorMemoryLayout([128, 128], col_stride=1))
    acc = memory.slice(0, 64)
    left = memory.slice(64, 32)._reinterpret(gl.float16, [128, 64], TensorMemoryLayout([128, 64], col_stride=1))
    acc.store(gl.full([128, 64], start, gl.float32, acc.get_reg_layout()))
    request(a_desc, b_desc, 0, 0, 0, ready, a, b)
    mbarrier.wait(ready, 0)
    left.store(a.load(left.get_reg_layout()))
    tcgen05_mma(left, b, acc, pred=multiplies > 0, mbarriers=[done], mbarrier_preds=[multiplies > 0])
    mbarrier.wait(done, 0, pred=multiplies > 0)
    x = acc.load()
    i, j = gl.arange(0, 128, gl.SliceLayout(1, x.layout)), gl.arange(0, 64, gl.SliceLayout(0, x.layout))
    gl.store(out + i[:, None] * 64 + j[None, :], x)


@pytest.mark.parametrize("multiplies", [0, 1])
def test_from_tensor_memory(run, rng, multiplies):
    a, b, out = halves(rng, (128, 64)), halves(rng, (64, 64)), poison((128, 64), np.float32)
    run(from_tensor_memory, (1,), described(a, [128, 64]), described(b, [64, 64]), out, 1.5, multiplies)
    if multiplies:
        np.testing.assert_allclose(out, 1.5 + product(a, b), rtol=1e-5, atol=1e-5)
    else:
        within(out, np.full(out.shape, 1.5), 0)


@weft.jit
def pairs(a_desc, b_desc, c_desc, K: gl.constexpr):
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_shape, b_desc.layout)
    c = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    layout: gl.constexpr = TensorMemoryLayout([128, 64], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
    acc = allocate_tensor_memory(gl.float32, [256, 64], layout)
    ready, done = mbarrier.allocate_mbarrier(two_ctas=True), mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    mbarrier.init(done, count=tcgen05_mma_barrier_count([a, b], True, True))
    for i in range(K // 64):
        request(a_desc, b_desc, 0, 0, i * 64, ready, a, b)
        mbarrier.wait(ready, i & 1)
        tcgen05_mma(a, b, acc, use_acc=i > 0, multicast=True, mbarriers=[done])
        mbarrier.wait(done, i & 1)
    write(c_desc, 0, 0, c, acc.load())


def test_of_two_blocks(run, rng):
    a, b, c = halves(rng, (200, 192)), halves(rng, (192, 64)), poison((200, 64), np.float16)
    rows, columns = [[1, 0]], [[0, 1]]
    args = described(a, [256, 64], rows), described(b, [64, 64], columns), described(c, [256, 64], rows)
    run(pairs, (1,), *args, 192, num_ctas=2)
    check(c, a, b)


@weft.jit
def columns_from_anywhere(src, out, start: gl.constexpr, length: gl.constexpr, stride: gl.constexpr):
    """Adds 7 to columns that begin between the multiples of their number."""
    memory = allocate_tensor_memory(src.dtype.element_ty, [128, 64], TensorMemoryLayout([128, 32], col_stride=stride))
    layout: gl.constexpr = memory.get_reg_layout()
    at = (
        gl.arange(0, 128, gl.SliceLayout(1, layout))[:, None] * 64
        + gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    )
    memory.store(gl.load(src + at))
    part = memory.slice(start, length)
    part.store(part.load() + 7)
    gl.store(out + at, memory.load(layout))


@pytest.mark.parametrize(
    ("dtype", "stride", "start", "length"),
    [
        (np.float32, 1, 13, 32),
        (np.float32, 1, 31, 2),
        (np.float16, 1, 6, 16),
        (np.float16, 2, 21, 8),
        (np.int8, 1, 20, 8),
    ],
)
def test_columns_from_any_one_on(run, rng, dtype, stride, start, length):
    src = rng.integers(0, 64, (128, 64)).astype(dtype)
    out, expected = poison((128, 64), dtype), src.copy()
    expected[:, start : start + length] += 7
    run(columns_from_anywhere, (1,), src, out, start, length, stride)
    np.testing.assert_array_equal(out, expected)


@weft.jit
def extremes(src, whole, rows, largest: gl.constexpr, magnitudes: gl.constexpr, nan: gl.constexpr):
    """Of the lower half of a tile, whose columns are apart."""
    layout: gl.constexpr = TensorMemoryLayout([128, 32], col_stride=1)
    memory = allocate_tensor_memory(src.dtype.element_ty, [256, 64], layout)
    where: gl.constexpr = memory.get_reg_layout()
    i = gl.arange(0, 256, gl.SliceLayout(1, where))[:, None]
    j = gl.arange(0, 64, gl.SliceLayout(0, where))[None, :]
    memory.store(gl.load(src + i * 64 + j))
    half = memory.slice(128, 128, dim=0)
    if largest:
        x, found = half.load_max(abs=magnitudes, propagate_nan=nan)
    else:
        x, found = half.load_min(abs=magnitudes, propagate_nan=nan)
    gl.static_assert(found.type.layout == gl.SliceLayout(1, x.type.layout))
    i = gl.arange(0, 128, gl.SliceLayout(1, x.type.layout))
    j = gl.arange(0, 64, gl.SliceLayout(0, x.type.layout))
    gl.store(whole + i[:, None] * 64 + j[None, :], x)
    gl.store(rows + i, found)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("magnitudes", [False, True])
@pytest.mark.parametrize("nan", [gl.PropagateNan.NONE, gl.PropagateNan.ALL])
def test_a_load_with_the_extremes_of_its_rows(run, rng, largest, magnitudes, nan):
    src = np.array(random(rng, np.float32, (256, 64)))
    src[[130, 200, 201], [5, 0, 63]] = np.nan
    whole, rows = poison((128, 64), np.float32), poison((128,), np.float32)
    run(extremes, (1,), src, whole, rows, largest, magnitudes, nan)
    x = np.abs(src[128:]) if magnitudes else src[128:]
    names = {(True, False): "fmax", (True, True): "maximum", (False, False): "fmin", (False, True): "minimum"}
    expected = getattr(np, names[largest, nan is gl.PropagateNan.ALL]).reduce(x, 1)
    np.testing.assert_array_equal(whole, src[128:])
    np.testing.assert_array_equal(rows, expected)


def test_extremes_of_integers(run, rng):
    src = rng.integers(-1000, 1000, (256, 64), np.int32)
    whole, rows = poison((128, 64), np.int32), poison((128,), np.int32)
    run(extremes, (1,), src, whole, rows, True, True, gl.PropagateNan.NONE)
    np.testing.assert_array_equal(rows, np.abs(src[128:]).max(1))


@weft.jit
def own_columns(src, out, add: gl.constexpr):
    """A partition's own tile in tensor memory."""
    memory = allocate_tensor_memory(gl.float32, [128, 64], TensorMemoryLayout([128, 64], col_stride=1))
    layout: gl.constexpr = memory.get_reg_layout()
    at = (
        gl.arange(0, 128, gl.SliceLayout(1, layout))[:, None] * 64
        + gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    )
    memory.store(gl.load(src + at) + add)
    gl.store(out + at, memory.load())


@weft.jit
def partitions_of_their_own(src, out):
    gl.warp_specialize([(own_columns, (src, out, 1.0)), (own_columns, (src, out + 128 * 64, 2.0))], [4])


def test_allocations_in_partitions(run, rng):
    src, out = random(rng, np.float32, (128, 64)), poison((2, 128, 64), np.float32)
    run(partitions_of_their_own, (1,), src, out)
    np.testing.assert_array_equal(out, np.stack((src + 1, src + 2)))


@weft.jit
def columns_by_turns(src, out, turns, first: gl.constexpr, second: gl.constexpr):
    """Adds 7 to 32 columns, in every other turn from another one on: the two branches give different slices."""
    memory = allocate_tensor_memory(src.dtype.element_ty, [128, 64], TensorMemoryLayout([128, 64], col_stride=1))
    layout: gl.constexpr = memory.get_reg_layout()
    at = (
        gl.arange(0, 128, gl.SliceLayout(1, layout))[:, None] * 64
        + gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    )
    memory.store(gl.load(src + at))
    for i in range(turns):
        if i % 2 != 0:
            part = memory.slice(second, 32)
        else:
            part = memory.slice(first, 32)
        part.store(part.load() + 7)
    gl.store(out + at, memory.load(layout))


@pytest.mark.parametrize(("first", "second"), [(0, 13), (13, 32), (32, 0)])
def test_branches_give_columns_of_a_tile(run, rng, first, second):
    src = rng.integers(0, 64, (128, 64)).astype(np.float32)
    out, expected = poison((128, 64), np.float32), src.copy()
    expected[:, first : first + 32] += 14
    expected[:, second : second + 32] += 7
    run(columns_by_turns, (1,), src, out, 3, first, second)
    np.testing.assert_array_equal(out, expected)
