"""Descriptors of views: made on the host and in kernels, of whole arrays and of parts of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, frozen, poison, random, same
from weft import language as gl
from weft.language.nvidia.hopper import mbarrier, tma
from weft.layout import NVMMASharedLayout
from weft.nvidia.hopper import TensorDescriptor

OWN = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
U = gl.UNKNOWN
BLOCK = [32, 32]


@dataclass(frozen=True)
class Described(Viewed):
    """An array that a kernel gets the descriptor of a view of."""

    part: Callable[[Any], Any] = lambda view: view
    block: tuple[int, ...] = tuple(BLOCK)
    shared: Any = None

    def of(self, array):
        """The descriptor of the view of a copy of the array."""
        return TensorDescriptor.from_view(self.part(super().of(array)), list(self.block), self.shared)


@weft.jit
def fetched(desc, coord, smem):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, desc.block_type.nbytes)
    tma.async_load(desc, coord, bar, smem)
    mbarrier.wait(bar, 0)


@weft.jit
def copy_block(out, desc, row, column):
    smem = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    fetched(desc, [row, column], smem)
    gl.store(out, smem.load(gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])))


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_a_whole_view(run, rng, kind):
    x, out = random(rng, kind, (64, 128)), poison((32, 32), kind)
    run(copy_block, 1, Viewed(out), Described(x), 32, 64)
    same(out, x[32:64, 64:96])


def test_a_tile_of_a_view_is_a_tensor_of_its_own(run, rng):
    x, out = random(rng, np.float32, (64, 128)), poison((32, 32), np.float32)
    run(copy_block, 1, Viewed(out), Described(x, part=lambda view: view.tile[16, 64](3, 1)), 0, 48)
    expected = np.zeros((32, 32), np.float32)
    expected[:16, :16] = x[48:64, 112:128]
    same(out, expected)


def test_a_part_at_the_edge_ends_there(run, rng):
    x, out = random(rng, np.float32, (50, 100)), poison((32, 32), np.float32)
    run(copy_block, 1, Viewed(out), Described(x, masked=True, part=lambda view: view.tile[32, 64](1, 1)), 0, 16)
    expected = np.zeros((32, 32), np.float32)
    expected[:18, :20] = x[32:50, 80:100]
    same(out, expected)


def test_a_transposed_view(run, rng):
    x, out = random(rng, np.float32, 64 * 128), poison((32, 32), np.float32)
    layout = gl.Layout.col_major(128, 64)
    run(copy_block, 1, Viewed(out), Described(x, layout, part=lambda view: view.transpose()), 32, 64)
    same(out, x.reshape(64, 128)[32:64, 64:96])


def test_a_layout_whose_modes_go_on(run, rng):
    x, out = random(rng, np.float32, 64 * 128), poison((32, 32), np.float32)
    layout = gl.Layout(((8, 8), (4, 32)), ((128, 1024), (1, 4)))
    run(copy_block, 1, Viewed(out), Described(x, layout), 32, 64)
    same(out, x.reshape(64, 128)[32:64, 64:96])


def test_a_layout_of_blocks_is_chosen(rng):
    x = random(rng, np.float16, (64, 128))
    desc = TensorDescriptor.from_view(gl.LayoutTensor(x), [32, 64])
    assert desc.layout == NVMMASharedLayout.get_default_for([32, 64], gl.float16)
    assert (desc.shape, desc.strides, desc.block_shape, desc.padding) == ([64, 128], [128, 1], [32, 64], "zero")
    given = NVMMASharedLayout(0, 16, 2)
    assert TensorDescriptor.from_view(gl.LayoutTensor(x), [32, 64], given, "nan").layout is given
    assert TensorDescriptor.from_view(gl.LayoutTensor(x), [32, 64], given, "nan").padding == "nan"


def test_equal_descriptors_share_their_map(rng):
    x = random(rng, np.float16, (64, 128))
    first, second = (TensorDescriptor.from_view(gl.LayoutTensor(x).tile[16, 64](1, 0), [16, 64]) for _ in range(2))
    assert first.tensor_map is second.tensor_map
    assert (
        first.tensor_map is not TensorDescriptor.from_view(gl.LayoutTensor(x).tile[16, 64](0, 0), [16, 64]).tensor_map
    )


# Made in the kernel


@weft.jit
def described_here(out, x, row, column, layout: gl.constexpr):
    desc = tma.make_tensor_descriptor(x, block_shape=[32, 32], layout=layout)
    smem = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    fetched(desc, [row, column], smem)
    gl.store(out, smem.load(gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])))


@pytest.mark.parametrize("layout", [None, gl.Layout((U, U), (U, 1)), gl.Layout((U, 128), (128, 1))], ids=str)
@pytest.mark.parametrize("shared", [None, NVMMASharedLayout(0, 32, 2)], ids=["chosen", "given"])
def test_views_described_in_the_kernel(run, rng, layout, shared):
    x, out = random(rng, np.float32, (50, 128)), poison((32, 32), np.float32)
    run(described_here, 1, Viewed(out), Viewed(x, layout), 32, 112, shared)
    expected = np.zeros((32, 32), np.float32)
    expected[:18, :16] = x[32:50, 112:128]
    same(out, expected)


@weft.jit
def tiles_described_here(out, x, layout: gl.constexpr):
    i, j = gl.program_id(0), gl.program_id(1)
    part = x.tile[64, 64](i, j)
    desc = tma.make_tensor_descriptor(part, block_shape=[32, 32])
    smem = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    fetched(desc, [32, 32], smem)
    gl.store(out.tile[32, 32](i, j), smem.load(layout))


def test_tiles_at_the_edge_described_in_the_kernel(run, rng):
    x, out = frozen(rng.normal(size=(124, 108)).astype(np.float32)), poison((64, 64), np.float32)
    run(tiles_described_here, (2, 2), Viewed(out), Viewed(x, masked=True), OWN)
    padded = np.pad(x, ((0, 4), (0, 20)))
    expected = np.block(
        [[padded[32:64, 32:64], padded[32:64, 96:128]], [padded[96:128, 32:64], padded[96:128, 96:128]]]
    )
    same(out, expected)
