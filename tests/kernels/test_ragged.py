"""Slices of unequal numbers of rows through ragged descriptors: what lies behind a slice is neither read nor written."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.conftest import Device
from tests.kernels.harness import POISON, bits, poison, random, same
from weft import language as gl
from weft.errors import LaunchError, UserError, hazard
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor
from weft.nvidia.ragged_tma import (
    async_atomic_add_ragged,
    async_load_ragged,
    async_store_ragged,
    create_ragged_descriptor,
)

ROWS = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
SIZES = [5, 0, 16, 33, 1, 20]


@weft.jit
def move(src, dst, starts, sizes, how: gl.constexpr, smem: gl.constexpr, BLOCK: gl.constexpr):
    """Each program moves a slice, block by block."""
    group = gl.program_id(0)
    start, size = gl.load(starts + group), gl.load(sizes + group)
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape[2:], smem)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    phase = 0
    for row in range(0, size, BLOCK):
        mbarrier.expect(bar, src.block_type.nbytes)
        async_load_ragged(src, start, size, [row, 0], bar, buffer)
        mbarrier.wait(bar, phase)
        if how == "store":
            async_store_ragged(dst, start, size, [row, 0], buffer)
        else:
            async_atomic_add_ragged(dst, start, size, [row, 0], buffer)
        tma.store_wait(0)
        phase ^= 1


def slices(device: Device) -> tuple[np.ndarray, np.ndarray]:
    sizes = np.array(SIZES, np.int32)
    return device.array(np.cumsum(sizes, dtype=np.int32) - sizes), device.array(sizes)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("width", [32, 24])
def test_slices_are_moved(device, rng, dtype, width):
    total, kind = sum(SIZES), gl.float32 if dtype == np.float32 else gl.float16
    x, out = random(rng, dtype, (total, width)), poison((total + 4, width), dtype)
    src, dst = device.array(x), device.array(out)
    smem = gl.NVMMASharedLayout.get_default_for([16, 32], kind)
    described = [create_ragged_descriptor(a, [16, 32]) for a in (src, dst)]
    move[len(SIZES)](*described, *slices(device), "store", smem, 16)
    found = device.numpy(dst)
    same(found[:total], x)
    assert (bits(found[total:]).view(np.uint8) == POISON).all()
    move[len(SIZES)](*described, *slices(device), "add", smem, 16)
    same(device.numpy(dst)[:total], x + x)


@weft.jit
def ends(src, out, start, size, row, layout: gl.constexpr, smem: gl.constexpr):
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape[2:], smem)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    async_load_ragged(src, start, size, [row, 0], bar, buffer)
    mbarrier.wait(bar, 0)
    at = (
        gl.arange(0, 16, gl.SliceLayout(1, layout))[:, None] * 32 + gl.arange(0, 32, gl.SliceLayout(0, layout))[None, :]
    )
    gl.store(out + at, buffer.load(layout))


@pytest.mark.parametrize(("start", "size", "row"), [(0, 3, 0), (7, 16, 0), (7, 20, 16), (39, 1, 0), (10, 30, 32)])
def test_rows_behind_a_slice_are_zero(device, rng, start, size, row):
    x = random(rng, np.float32, (40, 32))
    out = device.array(poison((16, 32), np.float32))
    smem = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32)
    ends[1](create_ragged_descriptor(device.array(x), [16, 32]), out, start, size, row, ROWS, smem)
    wanted = np.zeros((16, 32), np.float32)
    part = x[start : start + size][row : row + 16]
    wanted[: len(part)] = part
    same(device.numpy(out), wanted)


@weft.jit
def planes(src, dst, start, size, smem: gl.constexpr):
    """The middle dimension is ragged."""
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape[2:], smem)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    async_load_ragged(src, start, size, [0, 0, 0], bar, buffer, ragged_dim=1)
    mbarrier.wait(bar, 0)
    async_store_ragged(dst, start, size, [0, 0, 0], buffer, 1)
    tma.store_wait(0)


def test_a_ragged_dimension_in_the_middle(device, rng):
    x, out = random(rng, np.float32, (2, 20, 16)), np.zeros((2, 20, 16), np.float32)
    smem = gl.NVMMASharedLayout.get_default_for([2, 8, 16], gl.float32)
    src, dst = device.array(x), device.array(out)
    planes[1](*(create_ragged_descriptor(a, [2, 8, 16], -2) for a in (src, dst)), 9, 5, smem)
    out[:, 9:14] = x[:, 9:14]
    same(device.numpy(dst), out)


@weft.jit
def fill(whole, ragged, starts, sizes, fixed: gl.constexpr, layout: gl.constexpr, smem: gl.constexpr):
    """Each program fills its slice with its number, through TMA."""
    group = gl.program_id(0)
    buffer = gl.allocate_shared_memory(gl.float32, [16, 32], smem)
    buffer.store(gl.full([16, 32], 1.0, gl.float32, layout) * group)
    fence_async_shared()
    start = gl.load(starts + group)
    if fixed:
        async_store_ragged(ragged, start, gl.load(sizes + group), [0, 0], buffer)
    else:
        tma.async_store(whole, [start, 0], buffer)
    tma.store_wait(0)


def test_a_block_behind_a_slice_overwrites_the_next_one():
    """Without a ragged descriptor programs race; with one each writes its own rows."""
    starts, sizes = np.array([0, 10], np.int32), np.array([10, 6], np.int32)
    out = np.zeros((16, 32), np.float32)
    smem = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32)
    arguments = (
        TensorDescriptor.from_tensor(out, [16, 32], smem),
        create_ragged_descriptor(out, [16, 32]),
        starts,
        sizes,
    )
    with pytest.raises(hazard.GlobalRace):
        fill[2](*arguments, False, ROWS, smem)
    fill[2](*arguments, True, ROWS, smem)
    same(out[:, 0], np.repeat(np.arange(2, dtype=np.float32), sizes))


def test_a_slice_beyond_the_array_is_reported():
    x = np.zeros((40, 32), np.float32)
    smem = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32)
    with pytest.raises(hazard.OutOfBounds):
        ends[1](create_ragged_descriptor(x, [16, 32]), np.zeros((16, 32), np.float32), 30, 11, 0, ROWS, smem)


@pytest.mark.parametrize(
    ("code", "shape", "block", "dim"),
    [
        ("ragged-rank", (64,), [64], 0),
        ("ragged-rank", (2, 2, 8, 16), [1, 1, 8, 16], 0),
        ("ragged-rank", (64, 32), [1, 16, 32], 0),
        ("ragged-dim", (64, 32), [16, 32], 1),
        ("ragged-dim", (64, 32), [16, 32], -1),
        ("ragged-dim", (64, 32), [16, 32], 2),
        ("descriptor-stride", (64, 30), [16, 32], 0),
    ],
)
def test_mistakes_with_ragged_descriptors(code, shape, block, dim):
    with pytest.raises(LaunchError) as found:
        create_ragged_descriptor(np.zeros(shape, np.float16), block, dim)
    assert found.value.code.startswith(code)


def test_too_many_rows():
    x = np.lib.stride_tricks.as_strided(np.zeros(16, np.float32), ((1 << 30) + 1, 16), (64, 4))
    with pytest.raises(LaunchError) as found:
        create_ragged_descriptor(x, [16, 16])
    assert found.value.code == "ragged-rows"


@weft.jit
def plain(src, smem: gl.constexpr):
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape, smem)
    async_store_ragged(src, 0, 3, [0, 0], buffer)


def test_a_plain_descriptor_is_refused():
    smem = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32)
    whole = TensorDescriptor.from_tensor(np.zeros((40, 32), np.float32), [16, 32], smem)
    with pytest.raises(UserError, match="two dimensions more"):
        plain[1](whole, smem)
