"""Chains of launches with `launch_pdl=True`: each may start before the one before ends, and the numbers are a stream's.

What such launches may not do is in `tests/sim/hazards/test_dependent_launches.py`."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import poison
from weft import language as gl
from weft.language.extra.cuda import gdc_launch_dependents, gdc_wait
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma

LINE = gl.BlockedLayout([1], [32], [4], [0])
ROWS = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])


@weft.jit
def normalise(x, gain, y, n, N: gl.constexpr, layout: gl.constexpr):
    """y = gain * x / |x|, by one program. The gain is loaded while the launch before still runs."""
    gdc_launch_dependents()
    at = gl.arange(0, N, layout)
    by = gl.load(gain + at, at < n, 0.0)
    gl.extra.cuda.gdc_wait()
    row = gl.load(x + at, at < n, 0.0)
    gl.store(y + at, by * row * gl.rsqrt(gl.sum(row * row, 0)), at < n)


@weft.jit
def multiply(w, y, x, n, N: gl.constexpr, M: gl.constexpr, layout: gl.constexpr, EARLY: gl.constexpr):
    """x = w @ y, M rows a program. The rows of w are loaded while the launch before still runs."""
    if EARLY:
        gdc_launch_dependents()
    i = gl.program_id(0) * M + gl.arange(0, M, gl.SliceLayout(1, layout))
    j = gl.arange(0, N, gl.SliceLayout(0, layout))
    rows = gl.load(w + i[:, None] * n + j[None, :], (i < n)[:, None] & (j < n)[None, :], 0.0)
    gdc_wait()
    if not EARLY:
        gdc_launch_dependents()
    gl.store(x + i, gl.sum(rows * gl.load(y + j, j < n, 0.0)[None, :], 1), i < n)


def chain(w, gain, x, y, n: int, pairs: int, early: bool, **options: bool) -> None:
    """`pairs` times: normalise, then multiply."""
    for _ in range(pairs):
        normalise[1](x, gain, y, n, 128, LINE, **options)
        multiply[weft.cdiv(n, 8)](w, y, x, n, 128, 8, ROWS, early, **options)


def operands(rng: np.random.Generator, n: int) -> list[np.ndarray]:
    w = rng.standard_normal((n, n), np.float32)
    return [w, rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32), poison(n, np.float32)]


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("n", [1, 77, 100])
def test_a_chain(device, rng, n, early):
    arrays = operands(rng, n)
    found = {}
    for pdl in (False, True):
        w, gain, x, y = map(device.array, arrays)
        chain(w, gain, x, y, n, 5, early, launch_pdl=pdl)
        found[pdl] = device.numpy(x)
    np.testing.assert_array_equal(found[True], found[False])
    w, gain, x, _ = (a.astype(np.float64) for a in arrays)
    for _ in range(5):
        x = w @ (gain * x / np.linalg.norm(x))
    np.testing.assert_allclose(found[True], x, rtol=0, atol=1e-4 * np.abs(x).max())


def test_one_launch_of_a_chain(run, rng):
    w, gain, x, y = operands(rng, 100)
    run(normalise, 1, x, gain, y, 100, 128, LINE, launch_pdl=True)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(y, gain * wide / np.linalg.norm(wide), rtol=1e-5)


@weft.jit
def by_default(out, launch_pdl: gl.constexpr = True):
    gdc_wait()
    gl.store(out, 1 if launch_pdl else 2)


def test_a_kernel_may_declare_the_option(device):
    out = device.array(np.zeros(1, np.int32))
    compiled = by_default[1](out)
    assert device.numpy(out)[0] == 1
    assert compiled.request.options.launch_pdl
    by_default[1](out, False)
    assert device.numpy(out)[0] == 2


@pytest.mark.gpu
def test_a_captured_chain(rng):
    import torch

    arrays = operands(rng, 100)
    w, gain, x, y = (torch.from_numpy(a).cuda() for a in arrays)
    chain(w, gain, x, y, 100, 1, True, launch_pdl=True)
    x.copy_(torch.from_numpy(arrays[2]))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain(w, gain, x, y, 100, 5, True, launch_pdl=True)
    for _ in range(20):
        x.copy_(torch.from_numpy(arrays[2]))
        graph.replay()
    found = x.cpu().numpy()
    x.copy_(torch.from_numpy(arrays[2]))
    chain(w, gain, x, y, 100, 5, True)
    np.testing.assert_array_equal(found, x.cpu().numpy())


@weft.jit
def doubled(x, out, rows, smem: gl.constexpr, layout: gl.constexpr):
    """out = 2 x, through descriptors that the kernel makes before it waits: their memory is allocated between launches."""
    src = tma.make_tensor_descriptor(x, [rows, 32], [32, 1], [16, 32], smem)
    dst = tma.make_tensor_descriptor(out, [rows, 32], [32, 1], [16, 32], smem)
    tile = gl.allocate_shared_memory(gl.float32, [16, 32], smem)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    gdc_launch_dependents()
    gdc_wait()
    at = [gl.program_id(0) * 16, 0]
    tma.async_load(src, at, bar, tile)
    mbarrier.wait(bar, 0)
    tile.store(tile.load(layout) * 2)
    fence_async_shared()
    tma.async_store(dst, at, tile)
    tma.store_wait(0)


def test_a_chain_with_descriptors_of_its_own(device, rng):
    rows = 37
    smem = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32)
    host = rng.standard_normal((rows, 32), np.float32)
    x, y = device.array(host), device.array(poison((rows, 32), np.float32))

    for source, target in [(x, y), (y, x)] * 4:
        doubled[3](source, target, rows, smem, ROWS, launch_pdl=True)
    np.testing.assert_array_equal(device.numpy(x), host * 256)


@weft.jit
def count_blocks(out):
    gdc_launch_dependents()
    gdc_wait()
    gl.atomic_add(out, 1)


@pytest.mark.parametrize("blocks", [1, 2])
def test_programs_that_are_clusters(device, blocks):
    """The attributes of clusters and of dependent launches go together."""
    out = device.array(np.zeros(1, np.int32))
    for _ in range(5):
        count_blocks[7](out, num_ctas=blocks, launch_pdl=True)
    assert device.numpy(out)[0] == 35
