"""Rows that TMA gathers and scatters: numbers in both stages, edges, clusters, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import weft
from tests.kernels.harness import run_lowered
from tests.sim.both import results, verdict
from weft import language as gl
from weft import settings
from weft.errors import hazard
from weft.language.nvidia.blackwell import fence_async_shared, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor

RNG = np.random.default_rng(17)
LINE = gl.BlockedLayout([1], [32], [4], [0])


@pytest.fixture(autouse=True)
def blackwell() -> Iterator[None]:
    with settings.using(target="sm_100a"):
        yield


@weft.jit
def moved(src, dst, rows, to_rows, column, to_column, R: gl.constexpr, C: gl.constexpr, layout: gl.constexpr):
    i = gl.arange(0, R, layout)
    smem = gl.allocate_shared_memory(src.dtype, [R, C], src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, R * C * src.dtype.primitive_bitwidth // 8)
    tma.async_gather(src, gl.load(rows + i), column, bar, smem)
    mbarrier.wait(bar, 0)
    tma.async_scatter(dst, gl.load(to_rows + i), to_column, smem)
    tma.store_wait(pendings=0)


def described(x: np.ndarray, columns: int, swizzle: int, padding: str = "zero", **options) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout(swizzle, 8 * x.itemsize, 2, **options)
    return TensorDescriptor.from_tensor(x, [1, columns], layout, padding=padding)


def expected(x, out, rows, to_rows, column, to_column, columns, fill) -> np.ndarray:
    """Row by row, with what is outside filled in and not written."""
    found = out.copy()
    for row, to in zip(rows, to_rows, strict=True):
        for c in range(columns):
            inside = 0 <= row < x.shape[0] and 0 <= column + c < x.shape[1]
            if 0 <= to < out.shape[0] and 0 <= to_column + c < out.shape[1]:
                found[to, to_column + c] = x[row, column + c] if inside else fill
    return found


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "swizzle"),
    [
        (np.float32, 8, 8, 0), (np.float32, 32, 64, 128), (np.float16, 16, 32, 64), (np.float16, 8, 256, 128),
        (np.uint8, 64, 32, 32), (np.int16, 512, 16, 32), (np.uint8, 8, 512, 0), (np.float32, 16, 32, 64),
    ],
)  # fmt: skip
def test_rows_in_any_order(dtype, rows, columns, swizzle):
    x = RNG.integers(0, 200, (rows + 37, columns + 64)).astype(dtype)
    step = 16 // x.itemsize
    picked = RNG.integers(0, x.shape[0], rows).astype(np.int32)
    to = RNG.permutation(x.shape[0])[:rows].astype(np.int32)

    def arguments():
        out = np.full_like(x, 201)
        return (
            described(x, columns, swizzle), described(out, columns, swizzle), picked, to, 0, step, rows, columns, LINE
        )  # fmt: skip

    (found,) = results(moved, arguments, lambda src, dst, *_: [dst.base])
    wanted = np.full_like(x, 201)
    wanted[to, step : step + columns] = x[picked, :columns]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("padding", "fill"), [("zero", 0), ("nan", np.nan)])
@pytest.mark.parametrize(("column", "to_column"), [(0, 0), (-16, 32), (40, 80), (104, 64)])
def test_rows_and_columns_outside(column, to_column, padding, fill):
    x = RNG.normal(size=(20, 100)).astype(np.float32)
    rows = RNG.integers(-4, 24, 16).astype(np.int32)
    to = (RNG.permutation(24)[:16] - 2).astype(np.int32)

    def arguments():
        out = np.full((20, 100), 7, np.float32)
        descriptors = described(x, 32, 128, padding), described(out, 32, 128)
        return (*descriptors, rows, to, column, to_column, 16, 32, LINE)

    (found,) = results(moved, arguments, lambda src, dst, *_: [dst.base])
    wanted = expected(x, np.full((20, 100), 7, np.float32), rows, to, column, to_column, 32, fill)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("column", [-4, -32])
def test_rows_are_not_scattered_before_the_first_column(column):
    x, numbers = np.zeros((20, 64), np.float32), np.arange(16, dtype=np.int32)
    found = verdict(moved, lambda: (
        described(x, 32, 128), described(x.copy(), 32, 128), numbers, numbers, 0, column, 16, 32, LINE
    ))  # fmt: skip
    assert isinstance(found, hazard.OutOfBounds)
    assert found.code == "hazard-scatter-column"
    assert f"from column {column} on" in str(found)


@weft.jit
def early(src, out, rows, BYTES: gl.constexpr, WAIT: gl.constexpr, layout: gl.constexpr, lines: gl.constexpr):
    smem = gl.allocate_shared_memory(src.dtype, [16, 32], src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, BYTES)
    tma.async_gather(src, gl.load(rows + gl.arange(0, 16, lines)), 0, bar, smem)
    if WAIT:
        mbarrier.wait(bar, 0)
    i = gl.arange(0, 16, gl.SliceLayout(1, layout))
    j = gl.arange(0, 32, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * 32 + j[None, :], smem.load(layout))
    mbarrier.wait(bar, 0)


GRID = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])


def reading(size: int, wait: bool):
    x, rows = np.zeros((20, 64), np.float32), np.arange(16, dtype=np.int32)
    return lambda: (described(x, 32, 128), np.zeros((16, 32), np.float32), rows, size, wait, GRID, LINE)


def test_rows_are_read_before_they_have_come():
    found = verdict(early, reading(2048, wait=False))
    assert isinstance(found, hazard.ReadInFlight)
    assert "reads smem while the copy into it that the block started is in flight" in str(found)
    assert verdict(early, reading(2048, wait=True)) is None


@pytest.mark.parametrize(
    ("size", "code"), [(1024, "hazard-transaction-bytes"), (4096, "hazard-transaction-bytes-missing")]
)
def test_all_bytes_of_the_rows_arrive(size, code):
    found = verdict(early, reading(size, wait=True))
    assert found is not None
    assert found.code == code
    assert "complete 2048" in str(found)


@weft.jit(sync="none")
def scattered(dst, rows, FENCE: gl.constexpr, WAIT: gl.constexpr, layout: gl.constexpr, lines: gl.constexpr):
    smem = gl.allocate_shared_memory(dst.dtype, [16, 32], dst.layout)
    smem.store(gl.full([16, 32], 1, gl.float32, layout))
    if FENCE:
        fence_async_shared()
    gl.barrier()
    tma.async_scatter(dst, gl.load(rows + gl.arange(0, 16, lines)), 0, smem)
    if WAIT:
        tma.store_wait(pendings=0)
        gl.barrier()
    smem.store(gl.full([16, 32], 2, gl.float32, layout))
    tma.store_wait(pendings=0)


@pytest.mark.parametrize(
    ("fence", "wait", "kind"),
    [(True, True, type(None)), (False, True, hazard.MissingFence), (True, False, hazard.StoreSourceReused)],
)
def test_rows_that_are_scattered(fence, wait, kind):
    def arguments():
        return (
            described(np.zeros((20, 64), np.float32), 32, 128),
            np.arange(16, dtype=np.int32),
            fence,
            wait,
            GRID,
            LINE,
        )

    assert type(verdict(scattered, arguments)) is kind


@weft.jit
def fetched(src, rows, column, R: gl.constexpr, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(src.dtype, [R, src.block_shape[1]], src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    tma.async_gather(src, gl.load(rows + gl.arange(0, R, layout)), column, bar, smem)


def test_columns_begin_at_multiples_of_16_bytes():
    x, rows = np.zeros((20, 64), np.float32), np.arange(16, dtype=np.int32)
    with pytest.raises(hazard.Misaligned) as caught:
        moved[(1,)](described(x, 32, 128), described(x, 32, 128), rows, rows, 2, 0, 16, 32, LINE)
    assert caught.value.code == "hazard-tensor-coordinate"
    packed = TensorDescriptor.from_tensor(
        np.zeros((20, 128), np.uint8), [1, 64], gl.NVMMASharedLayout(128, 8, 2, fp4_padded=True)
    )
    with pytest.raises(hazard.Misaligned, match="TMA needs a multiple of 64 bytes"):
        fetched[(1,)](packed, rows, 32, 16, LINE)


@weft.jit
def clustered(src, dst, rows, to_rows, column, to_column, R: gl.constexpr, C: gl.constexpr, layout: gl.constexpr):
    i = gl.arange(0, R, layout)
    smem = gl.allocate_shared_memory(src.dtype, [R, C], src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, R * C * src.dtype.primitive_bitwidth // 8 // 2)
    tma.async_gather(src, gl.load(rows + i), column, bar, smem)
    mbarrier.wait(bar, 0)
    tma.async_scatter(dst, gl.load(to_rows + i), to_column, smem)
    tma.store_wait(pendings=0)


def test_each_block_of_a_cluster_gathers_its_rows():
    x = RNG.normal(size=(40, 64)).astype(np.float32)
    rows, to = (RNG.permutation(40)[:32].astype(np.int32) for _ in range(2))
    split = {"cga_layout": [[1, 0]]}
    lines = gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[1]])

    def arguments():
        out = np.full_like(x, 7)
        return (
            described(x, 32, 128, **split), described(out, 32, 128, **split), rows, to, 32, 0, 32, 32, lines
        )  # fmt: skip

    wanted = np.full_like(x, 7)
    wanted[to, :32] = x[rows, 32:]
    given, again = arguments(), arguments()
    compiled = clustered[(1,)](*given, num_ctas=2)
    run_lowered(clustered, compiled, (1,), again, {"num_ctas": 2})
    for _, out, *_ in (given, again):
        np.testing.assert_array_equal(out.base, wanted)
