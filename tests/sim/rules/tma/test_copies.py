"""TMA by the numbers: blocks that hang over the edges, reductions, im2col, descriptors of more than there is."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.pixels import pixels_of
from tests.sim.both import results, verdict
from weft import language as gl
from weft import sim
from weft.errors import hazard
from weft.ir.types import float32
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor
from weft.sim.machine.data import Data
from weft.sim.memory.heap import Heap, segment_of
from weft.sim.rules.tma import copies as rules

RNG = np.random.default_rng(11)


@weft.jit
def moved(src, dst, row, col, to_row, to_col):
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, [row, col], bar, smem)
    mbarrier.wait(bar, 0)
    tma.async_copy_shared_to_global(dst, [to_row, to_col], smem)
    tma.store_wait(pendings=0)


def blocks(x: np.ndarray, row: int, col: int, fill: float) -> np.ndarray:
    """32 x 64 elements from (row, col) on, `fill` outside."""
    wide = np.full((x.shape[0] + 200, x.shape[1] + 200), fill, x.dtype)
    wide[100:-100, 100:-100] = x
    return wide[100 + row : 132 + row, 100 + col : 164 + col]


@weft.jit
def copied(src, dst, XBLOCK: gl.constexpr):
    smem = gl.allocate_shared_memory(src.dtype, [XBLOCK], src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, [0], bar, smem)
    mbarrier.wait(bar, 0)
    tma.async_copy_shared_to_global(dst, [0], smem)
    tma.store_wait(pendings=0)


def test_a_store_writes_the_rest_of_a_chunk_where_there_is_memory():
    """33 elements of 4 bytes end within a chunk: three more are written. The engine cannot do less (measured on an H200)."""
    x, out = RNG.normal(size=33).astype(np.float32), np.full(40, 7, np.float32)
    layout = gl.NVMMASharedLayout(0, 32, 1)
    descriptors = [TensorDescriptor.from_tensor(array, [64], layout) for array in (x, out[:33])]
    report = copied[(1,)](*descriptors, 64, num_warps=1).report
    np.testing.assert_array_equal(out[:33], x)
    np.testing.assert_array_equal(out[33:], [0, 0, 0, 7, 7, 7, 7])
    assert [advice.rule for advice in report.advice] == ["written-behind"]
    assert "columns 33 to 35 of dst" in str(report.advice[0])


@weft.jit
def from_column(src, dst, column):
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    smem.store(gl.full([32, 64], 1, gl.float32, gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])))
    fence_async_shared()
    tma.async_copy_shared_to_global(dst, [0, column], smem)
    tma.store_wait(pendings=0)


@pytest.mark.parametrize("column", [3, -5, 30])
def test_a_request_that_starts_within_16_bytes(column):
    layout = gl.NVMMASharedLayout(128, 32, 2)
    src, dst = (TensorDescriptor.from_tensor(np.zeros((64, 128), np.float32), [32, 64], layout) for _ in range(2))
    with pytest.raises(
        hazard.Misaligned, match=f"starts at column {column} of dst, which is byte {4 * column}"
    ) as caught:
        from_column[(1,)](src, dst, column)
    assert caught.value.code == "hazard-tensor-coordinate"
    assert caught.value.fix == "start blocks at columns that are multiples of 4"


def test_a_chunk_beyond_the_memory():
    x = RNG.normal(size=33).astype(np.float32)
    descriptors = [
        TensorDescriptor.from_tensor(array, [64], gl.NVMMASharedLayout(0, 32, 1)) for array in (x, np.empty_like(x))
    ]
    with pytest.raises(hazard.OutOfBounds, match="the last chunk of a row of 33 elements") as caught:
        copied[(1,)](*descriptors, 64, num_warps=1)
    assert caught.value.code == "hazard-tensor-chunk"


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("swizzle", [0, 128])
@pytest.mark.parametrize(("row", "col"), [(0, 0), (-5, 32), (60, -72), (40, 72), (90, 92)])
def test_blocks_over_the_edges(row, col, swizzle, padding):
    x = RNG.normal(size=(70, 84)).astype(np.float32)
    layout = gl.NVMMASharedLayout(swizzle, 32, 2)

    def arguments():
        out = np.full((70, 84), 7, np.float32)
        descs = (
            TensorDescriptor.from_tensor(x, [32, 64], layout, padding=padding),
            TensorDescriptor.from_tensor(out, [32, 64], layout),
        )
        return (*descs, row, col, 50, 40)

    (out,) = results(moved, arguments, lambda src, dst, *_: [dst.base])
    wanted = np.full((70, 84), 7, np.float32)
    wanted[50:, 40:] = blocks(x, row, col, np.nan if padding == "nan" else 0)[:20, :44]
    np.testing.assert_array_equal(out, wanted)


@weft.jit
def reduced(src, dst, kind: gl.constexpr, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, [0, 0], bar, smem)
    mbarrier.wait(bar, 0)
    if kind == "add":
        tma.async_atomic_add(dst, [8, 0], smem)
    elif kind == "min":
        tma.async_atomic_min(dst, [8, 0], smem)
    elif kind == "max":
        tma.async_atomic_max(dst, [8, 0], smem)
    elif kind == "and":
        tma.async_atomic_and(dst, [8, 0], smem)
    elif kind == "or":
        tma.async_atomic_or(dst, [8, 0], smem)
    else:
        tma.async_atomic_xor(dst, [8, 0], smem)
    tma.store_wait(pendings=0)


REDUCTIONS = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_reductions(kind):
    x, y = RNG.integers(-(2**31), 2**31, (2, 32, 64)).astype(np.int32)
    layout = gl.NVMMASharedLayout(128, 32, 2)

    def arguments():
        return (*(TensorDescriptor.from_tensor(a.copy(), [32, 64], layout) for a in (x, y)), kind, layout)

    (out,) = results(reduced, arguments, lambda src, dst, *_: [dst.base])
    wanted = y.copy()
    wanted[8:] = REDUCTIONS[kind](y[8:], x[:24])
    np.testing.assert_array_equal(out, wanted)


@weft.jit
def overlapping(dst, step, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(dst.dtype, dst.block_shape, dst.layout)
    smem.store(gl.full([32, 64], 1.0, gl.float32, layout) * gl.program_id(0))
    fence_async_shared()
    tma.async_copy_shared_to_global(dst, [gl.program_id(0) * step, 0], smem)
    tma.store_wait(pendings=0)


def test_programs_that_store_the_same_rows():
    smem, rows = gl.NVMMASharedLayout(128, 32, 2), gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])

    def arguments(step):
        return lambda: (TensorDescriptor.from_tensor(np.zeros((64, 64), np.float32), [32, 64], smem), step, rows)

    assert verdict(overlapping, arguments(32), grid=2) is None
    found = verdict(overlapping, arguments(30), grid=2)
    assert type(found) is hazard.GlobalRace
    assert "dst[1920]" in found.message


def test_a_descriptor_of_more_than_there_is():
    layout = gl.NVMMASharedLayout(128, 32, 2)
    x = np.zeros((32, 64), np.float32)
    wrong = TensorDescriptor(x, [64, 64], [64, 1], [32, 64], layout)
    good = TensorDescriptor.from_tensor(np.zeros((64, 64), np.float32), [32, 64], layout)
    with pytest.raises(hazard.OutOfBounds) as caught:
        moved[1](wrong, good, 32, 0, 0, 0)
    assert caught.value.code == "hazard-tensor-range"


@pytest.mark.parametrize(
    ("lower", "upper", "offsets"), [((-1, -1), (-1, -1), (2, 1)), ((0, 0), (0, 0), (0, 0)), ((-1, 0), (1, -2), (1, 2))]
)
@pytest.mark.parametrize("steps", [(1, 1, 1, 1), (1, 2, 2, 1)])
def test_pixels_of_im2col(lower, upper, offsets, steps):
    x = RNG.normal(size=(3, 7, 9, 4)).astype(np.float32)
    tensor = sim.TensorMap(
        sim.Buffer("x", x.reshape(-1).view(np.uint8)), float32, x.shape, x.strides, (64, 4),
        gl.NVMMASharedLayout(0, 32, 2), mode="im2col", lower=lower, upper=upper, steps=steps,
    )  # fmt: skip
    start = (0, lower[0] + 2 * steps[1], lower[1])
    found = read_pixels(tensor, (*start, 0, *offsets))
    np.testing.assert_array_equal(found, pixels_of(x, lower, upper, steps, start, offsets, 64))


def test_a_descriptor_of_too_many_columns_is_no_matter_of_chunks():
    """33 columns end within a chunk, but here the elements inside are already beyond the memory."""
    x = np.zeros((32, 64), np.float32)
    wrong = TensorDescriptor(x, [64, 33], [64, 1], [32, 64], gl.NVMMASharedLayout(128, 32, 2))
    good = TensorDescriptor.from_tensor(np.zeros((64, 64), np.float32), [32, 64], gl.NVMMASharedLayout(128, 32, 2))
    with pytest.raises(hazard.OutOfBounds) as caught:
        moved[1](good, wrong, 0, 0, 32, 0)
    assert caught.value.code == "hazard-tensor-range"


def read_pixels(tensor: sim.TensorMap, numbers: tuple[int, ...]) -> np.ndarray:
    """The block of a request, without shared memory."""
    from dataclasses import replace
    from types import SimpleNamespace

    segment = segment_of(0, tensor.buffer)
    placed = replace(tensor, address=segment.pointer)
    machine = SimpleNamespace(heap=Heap({0: segment}), races=None)
    task = SimpleNamespace(
        machine=machine, demand=lambda op, value, sink: None, uniform=lambda op, value, what: value
    )  # fmt: skip
    values = [Data(np.int32(number)) for number in numbers]
    coordinates = rules._pixels(task, None, placed, values)
    request = rules.Request(task, None, Data(placed), coordinates, "reads")
    return request.read().view(np.float32)
