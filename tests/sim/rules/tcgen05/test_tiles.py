"""Products and copies of tcgen05 in the simulator: numbers against NumPy, the same in both stages and any order of events."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.sim.both import results
from tests.sim.tensor_kernels import blackwell, brought, close, described, keep, poisoned  # noqa: F401
from weft import language as gl
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    cluster,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma,
    tma,
)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def last(*args: Any) -> list[np.ndarray]:
    return [next(a for a in args if isinstance(a, np.ndarray))]


@weft.jit
def product(ad, bd, out, layout: gl.constexpr, acc_type: gl.constexpr, down: gl.constexpr):
    m: gl.constexpr = ad.block_shape[0]
    n: gl.constexpr = bd.block_shape[0] if down else bd.block_shape[1]
    a = gl.allocate_shared_memory(ad.dtype, ad.block_shape, ad.layout)
    b = gl.allocate_shared_memory(bd.dtype, bd.block_shape, bd.layout)
    acc = allocate_tensor_memory(acc_type, [m, n], layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    brought(bar, ad, a, 0)
    brought(bar, bd, b, 1)
    tcgen05_mma(a, b.permute((1, 0)) if down else b, acc, use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    keep(out, acc.load())


HALF = {gl.float16: np.float16, gl.bfloat16: ml_dtypes.bfloat16}
EIGHT = {gl.float8e4nv: ml_dtypes.float8_e4m3fn, gl.float8e5: ml_dtypes.float8_e5m2}


@pytest.mark.parametrize("element", HALF)
@pytest.mark.parametrize(
    ("m", "n", "k", "block"),
    [(128, 128, 64, 128), (128, 16, 16, 16), (64, 8, 32, 8), (64, 64, 64, 32), (256, 64, 32, 32), (128, 512, 16, 256)],
)
def test_products_of_halves(element, m, n, k, block, rng):
    a, b = (rng.standard_normal(shape).astype(HALF[element]) for shape in ((m, k), (k, n)))
    layout = TensorMemoryLayout([min(m, 128), block], col_stride=1)

    def arguments() -> tuple[Any, ...]:
        return described(a, element), described(b, element), poisoned(m, n), layout, gl.float32, False

    (out,) = results(product, arguments, last)
    close(out, a, b, 16)


def test_sums_in_half_precision(rng):
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((128, 64), (64, 32)))
    layout = TensorMemoryLayout([128, 32], col_stride=2)

    def arguments() -> tuple[Any, ...]:
        return (
            described(a, gl.float16),
            described(b, gl.float16),
            poisoned(128, 32, np.float16),
            layout,
            gl.float16,
            False,
        )

    (out,) = results(product, arguments, last)
    close(out, a, b, 16)


@pytest.mark.parametrize("m", [64, 128])
def test_products_of_floats_are_cut_to_tf32(m, rng):
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, 32), (48, 32)))
    b = np.concatenate((b, b[:16]))

    def arguments() -> tuple[Any, ...]:
        layout = TensorMemoryLayout([m, 64], col_stride=1)
        return described(a, gl.float32), described(b, gl.float32), poisoned(m, 64), layout, gl.float32, True

    (out,) = results(product, arguments, last)
    cut = [(x.view(np.uint32) & 0xFFFFE000).view(np.float32) for x in (a, b.T.copy())]
    close(out, *cut, 8)


@pytest.mark.parametrize(("left", "right"), [(gl.float8e4nv, gl.float8e4nv), (gl.float8e5, gl.float8e4nv)])
def test_products_of_eight_bit_floats(left, right, rng):
    a = rng.standard_normal((128, 64)).astype(EIGHT[left])
    b = rng.standard_normal((32, 64)).astype(EIGHT[right])

    def arguments() -> tuple[Any, ...]:
        layout = TensorMemoryLayout([128, 32], col_stride=1)
        return described(a, left), described(b, right), poisoned(128, 32), layout, gl.float32, True

    (out,) = results(product, arguments, last)
    close(out, a, b.T, 32)


@pytest.mark.parametrize(("left", "right"), [(np.int8, np.int8), (np.uint8, np.int8)])
def test_products_of_integers_are_exact(left, right, rng):
    names = {np.int8: gl.int8, np.uint8: gl.uint8}
    a = rng.integers(np.iinfo(left).min, np.iinfo(left).max, (128, 64), left, True)
    b = rng.integers(np.iinfo(right).min, np.iinfo(right).max, (32, 64), right, True)

    def arguments() -> tuple[Any, ...]:
        layout = TensorMemoryLayout([128, 32], col_stride=1)
        out = poisoned(128, 32, np.int32)
        return described(a, names[left]), described(b, names[right]), out, layout, gl.int32, True

    (out,) = results(product, arguments, last)
    np.testing.assert_array_equal(out, a.astype(np.int64) @ b.T.astype(np.int64))


def test_what_is_not_finite(rng):
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((128, 16), (16, 16)))
    a[3, 5], a[9, 1], b[2, 7] = np.inf, np.nan, -np.inf

    def arguments() -> tuple[Any, ...]:
        layout = TensorMemoryLayout([128, 16], col_stride=1)
        return described(a, gl.float16), described(b, gl.float16), poisoned(128, 16), layout, gl.float32, False

    (out,) = results(product, arguments, last)
    with np.errstate(invalid="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(exact))
    np.testing.assert_array_equal(np.isinf(out), np.isinf(exact))


# Several products, conditions


@weft.jit
def loop(ad, bd, out, steps, skipped):
    k: gl.constexpr = ad.block_shape[1]
    a = gl.allocate_shared_memory(ad.dtype, ad.block_shape, ad.layout)
    b = gl.allocate_shared_memory(bd.dtype, bd.block_shape, bd.layout)
    accs = allocate_tensor_memory(gl.float32, [2, 128, 64], TensorMemoryLayout([128, 64], col_stride=1))
    acc = accs.index(1)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    for i in range(steps):
        mbarrier.expect(bar, ad.block_type.nbytes + bd.block_type.nbytes)
        tma.async_copy_global_to_shared(ad, [0, i * k], bar, a)
        tma.async_copy_global_to_shared(bd, [i * k, 0], bar, b)
        mbarrier.wait(bar, i & 1)
        tcgen05_mma(a, b, acc, use_acc=i > 0, pred=i != skipped)
        tcgen05_commit(done)
        mbarrier.wait(done, i & 1)
    keep(out, acc.slice(32, 32).load())


def test_products_add_up_where_their_conditions_hold(rng):
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((128, 160), (160, 64)))

    def arguments() -> tuple[Any, ...]:
        blocks = described(a, gl.float16, [128, 32]), described(b, gl.float16, [32, 64])
        return *blocks, poisoned(128, 32), 5, 3

    (out,) = results(loop, arguments, last)
    kept = [i for i in range(160) if i // 32 != 3]
    close(out, a[:, kept], b[kept, 32:], 16)


@weft.jit
def from_tensor_memory(x, bd, start, out, both: gl.constexpr):
    n: gl.constexpr = bd.block_shape[1]
    k: gl.constexpr = bd.block_shape[0]
    b = gl.allocate_shared_memory(bd.dtype, bd.block_shape, bd.layout)
    left = allocate_tensor_memory(bd.dtype, [128, k], TensorMemoryLayout([128, k], col_stride=1))
    acc = allocate_tensor_memory(gl.float32, [128, n], TensorMemoryLayout([128, n], col_stride=1))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    brought(bar, bd, b, 0)
    rows: gl.constexpr = left.get_reg_layout()
    i = gl.arange(0, 128, gl.SliceLayout(1, rows))
    left.store(gl.load(x + i[:, None] * k + gl.arange(0, k, gl.SliceLayout(0, rows))[None, :]))
    sums: gl.constexpr = acc.get_reg_layout()
    i = gl.arange(0, 128, gl.SliceLayout(1, sums))
    acc.store(gl.load(start + i[:, None] * n + gl.arange(0, n, gl.SliceLayout(0, sums))[None, :]))
    tcgen05_mma(left, b, acc, mbarriers=[done])
    mbarrier.wait(done, 0)
    if both:
        tcgen05_mma(left, b, acc, mbarriers=[done])
        mbarrier.wait(done, 1)
    keep(out, acc.load())


@pytest.mark.parametrize("both", [False, True])
def test_a_left_operand_in_tensor_memory_and_sums_that_begin_somewhere(both, rng):
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((128, 32), (32, 16)))
    start = rng.standard_normal((128, 16)).astype(np.float32)

    def arguments() -> tuple[Any, ...]:
        return a.copy(), described(b, gl.float16), start.copy(), poisoned(128, 16), both

    (out,) = results(from_tensor_memory, arguments, lambda *args: [args[3]])
    times = 2 if both else 1
    close(out, np.tile(a, times), np.tile(b, (times, 1)), 16, start)


# Copies


@weft.jit
def copied(src, out):
    shape: gl.constexpr = src.block_shape
    source = gl.allocate_shared_memory(src.dtype, shape, src.layout)
    memory = allocate_tensor_memory(src.dtype, shape, TensorMemoryLayout(shape, col_stride=1))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    brought(bar, src, source, 0)
    tcgen05_copy(source, memory)
    tcgen05_commit(bar)
    mbarrier.wait(bar, 1)
    keep(out, memory.load())


@pytest.mark.parametrize(("element", "columns"), [(gl.float32, 32), (gl.float32, 64), (gl.float16, 64)])
def test_copies(element, columns, rng):
    kind = np.float16 if element is gl.float16 else np.float32
    x = rng.standard_normal((128, columns)).astype(kind)
    (out,) = results(copied, lambda: (described(x, element), poisoned(128, columns, kind)), last)
    np.testing.assert_array_equal(out, x)


# Two blocks


@weft.jit
def by_pairs(ad, bd, out, layout: gl.constexpr, m: gl.constexpr, n: gl.constexpr):
    a = gl.allocate_shared_memory(ad.dtype, ad.block_shape, ad.layout)
    b = gl.allocate_shared_memory(bd.dtype, bd.block_shape, bd.layout)
    acc = allocate_tensor_memory(gl.float32, [m, n], layout)
    bar = mbarrier.allocate_mbarrier(two_ctas=True)
    mbarrier.init(bar, count=1)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    cluster.barrier()
    mbarrier.expect(bar, ad.block_type.nbytes_per_cta + bd.block_type.nbytes_per_cta)
    tma.async_copy_global_to_shared(ad, [0, 0], bar, a)
    tma.async_copy_global_to_shared(bd, [0, 0], bar, b)
    mbarrier.wait(bar, 0)
    tcgen05_mma(a, b, acc, use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    keep(out, acc.load())
    cluster.barrier()


@pytest.mark.parametrize(("rows", "n"), [(128, 64), (64, 128), (128, 256)])
def test_two_blocks_multiply_together(rows, n, rng):
    m = 2 * rows
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, 64), (64, n)))
    layout = TensorMemoryLayout([rows, n], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)

    def arguments() -> tuple[Any, ...]:
        descs = described(a, gl.float16, cga_layout=[[1, 0]]), described(b, gl.float16, cga_layout=[[0, 1]])
        return *descs, poisoned(m, n), layout, m, n

    (out,) = results(by_pairs, arguments, last, num_ctas=2)
    close(out, a, b, 16)


def test_a_large_product(rng):
    a, b = (rng.standard_normal((512, 512)).astype(np.float16) for _ in range(2))
    out = poisoned(512, 512)
    tiled[(4, 4)](described(a, gl.float16, [128, 64]), described(b, gl.float16, [64, 128]), out)
    close(out, a, b, 16)


@weft.jit
def tiled(ad, bd, out):
    a = gl.allocate_shared_memory(ad.dtype, ad.block_shape, ad.layout)
    b = gl.allocate_shared_memory(bd.dtype, bd.block_shape, bd.layout)
    acc = allocate_tensor_memory(gl.float32, [128, 128], TensorMemoryLayout([128, 128], col_stride=1))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    row, column = gl.program_id(0) * 128, gl.program_id(1) * 128
    for i in range(8):
        mbarrier.expect(bar, ad.block_type.nbytes + bd.block_type.nbytes)
        tma.async_copy_global_to_shared(ad, [row, i * 64], bar, a)
        tma.async_copy_global_to_shared(bd, [i * 64, column], bar, b)
        mbarrier.wait(bar, i & 1)
        tcgen05_mma(a, b, acc, use_acc=i > 0)
        tcgen05_commit(done)
        mbarrier.wait(done, i & 1)
    c = acc.load()
    layout: gl.constexpr = c.type.layout
    i = row + gl.arange(0, 128, gl.SliceLayout(1, layout))
    j = column + gl.arange(0, 128, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * 512 + j[None, :], c)
