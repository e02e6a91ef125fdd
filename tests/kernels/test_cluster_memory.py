"""Loads, stores, gathers and scatters of buffers that lie in the shared memory of several blocks of a cluster."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from tests.kernels.harness import poison, random, same
from tests.kernels.test_clusters import blocked, offsets
from weft import language as gl
from weft.errors import hazard
from weft.language.nvidia.hopper import cluster


def spread_out(rows: int, columns: int):
    """Padded, rows over four blocks in an odd order."""
    units = [[0, 1 << bit] for bit in range(columns.bit_length() - 1)]
    units += [[1 << bit, 0] for bit in range(rows.bit_length() - 3)]
    return gl.PaddedSharedLayout([[16, 2]], units, [[rows // 2, 0], [rows // 4, 0]], [rows, columns])


SWIZZLED = [
    gl.SwizzledSharedLayout(4, 2, 4, [1, 0], cga_layout=[[1, 0], [0, 1]]),
    gl.SwizzledSharedLayout(1, 1, 1, [0, 1], cga_layout=[[0, 1], [0, 2]]),
    gl.NVMMASharedLayout(128, 16, 2, cga_layout=[[1, 0], [2, 0]]),
    spread_out(64, 64),
    gl.SwizzledSharedLayout(4, 2, 4, [1, 0], cga_layout=[[0, 0], [1, 0]]),
]
TILES = [[[1, 0], [2, 0]], [[0, 1], [1, 0]], [[0, 0], [0, 1]], [[0, 0], [0, 0]]]


@weft.jit
def through(out, x, shared: gl.constexpr, source: gl.constexpr, target: gl.constexpr):
    i, j = offsets(64, 64, source)
    memory = gl.allocate_shared_memory(x.dtype.element_ty, [64, 64], shared)
    memory.store(gl.load(x + i * 64 + j))
    cluster.barrier()
    a, b = offsets(64, 64, target)
    gl.store(out + a * 64 + b, memory.load(target))


@pytest.mark.parametrize("shared", SWIZZLED)
@pytest.mark.parametrize(("source", "target"), [(0, 1), (1, 0), (2, 3), (3, 2)])
def test_tiles_lie_otherwise_than_buffers(run, rng, shared, source, target):
    x, out = random(rng, np.float16, (64, 64)), poison((64, 64), np.float16)
    run(through, 1, out, x, shared, blocked(TILES[source]), blocked(TILES[target]), num_ctas=4)
    same(out, x)


@weft.jit
def part(out, x, y, layout: gl.constexpr, tile: gl.constexpr, shared: gl.constexpr):
    i, j = offsets(64, 32, layout)
    memory = gl.allocate_shared_memory(gl.int32, [64, 32], shared, value=gl.load(x + i * 32 + j))
    cluster.barrier()
    a, b = offsets(16, 32, tile)
    half = memory.slice(48, 16, dim=0)
    gl.store(out + a * 32 + b, half.load(tile))
    cluster.barrier()
    half.store(gl.load(y + a * 32 + b))
    cluster.barrier()
    gl.store(out + 512 + i * 32 + j, memory.load(layout))


@pytest.mark.parametrize("tile", [[[0, 0], [0, 0]], [[0, 1], [1, 0]]])
def test_slices_that_one_block_holds(run, rng, tile):
    x, y = random(rng, np.int32, (64, 32)), random(rng, np.int32, (16, 32))
    out = poison(512 + 2048, np.int32)
    shared = gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=[[1, 0], [2, 0]])
    run(part, 1, out, x, y, blocked([[1, 0], [2, 0]]), blocked(tile), shared, num_ctas=4)
    same(out[:512].reshape(16, 32), x[48:])
    same(out[512:].reshape(64, 32), np.concatenate([x[:48], y]))


@weft.jit
def chosen(out, x, at, axis: gl.constexpr, layout: gl.constexpr, shared: gl.constexpr, how: gl.constexpr):
    i, j = offsets(64, 32, layout)
    spot = i * 32 + j
    value, index = gl.load(x + spot), gl.load(at + spot)
    memory = gl.allocate_shared_memory(gl.int32, [64, 32], shared)
    if how == "gather":
        memory.store(value)
        cluster.barrier()
        gl.store(out + spot, memory.gather(index, axis=axis))
    else:
        cluster.barrier()
        memory.scatter(value, index, axis=axis)
        cluster.barrier()
        gl.store(out + spot, memory.load(layout))


@pytest.mark.parametrize("how", ["gather", "scatter"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("tile", "shared"), [(0, 0), (1, 1), (3, 3), (2, 4), (1, 4)])
def test_elements_chosen_in_any_block(run, rng, axis, tile, shared, how):
    x, out = random(rng, np.int32, (64, 32)), poison((64, 32), np.int32)
    order = np.stack([rng.permutation(x.shape[axis]) for _ in range(x.shape[1 - axis])], 1 - axis).astype(np.int32)
    memory = SWIZZLED[shared]
    if shared == 3:
        memory = spread_out(64, 32)
    run(chosen, 1, out, x, order, axis, blocked(TILES[tile]), memory, how, num_ctas=4)
    expected = np.take_along_axis(x, order, axis)
    if how == "scatter":
        np.put_along_axis(expected, order, x, axis)
    same(out, expected)


@weft.jit
def forgets(out, x, when: gl.constexpr, shared: gl.constexpr, rows: gl.constexpr, columns: gl.constexpr):
    i, j = offsets(64, 64, rows)
    memory = gl.allocate_shared_memory(gl.float32, [64, 64], shared, value=gl.load(x + i * 64 + j))
    if when != "first":
        cluster.barrier()
    a, b = offsets(64, 64, columns)
    value = memory.load(columns)
    if when != "second":
        cluster.barrier()
    memory.store(gl.load(x + i * 64 + j))
    gl.store(out + a * 64 + b, value)


FORGETS = gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=[[1, 0]]), blocked([[1, 0]]), blocked([[0, 1]])


def test_a_block_writes_what_another_may_still_read():
    x, out = np.zeros((64, 64), np.float32), poison((64, 64), np.float32)
    forgets[1](out, x, "", *FORGETS, num_ctas=2)
    with pytest.raises(hazard.ThreadRace) as caught:
        forgets[1](out, x, "second", *FORGETS, num_ctas=2)
    assert "memory of block 1" in caught.value.message
    assert "call cluster.barrier() between the two lines" in caught.value.fix


def test_blocks_meet_before_one_reaches_into_another_that_may_not_have_started(run, rng):
    x, out = random(rng, np.float32, (64, 64)), poison((64, 64), np.float32)
    compiled = run(forgets, 1, out, x, "first", *FORGETS, num_ctas=2)
    same(out, x)
    (inserted,) = [line for line in compiled.asm["sync"].splitlines() if "cluster barrier, inserted" in line]
    assert "before threads access memory of a block that may not have started" in inserted


def test_the_bytes_of_a_buffer_that_others_read_are_not_reused():
    text = reused.warmup(gl.float32, *FORGETS, num_ctas=2).asm["ir"]
    places = {int(found) for found in re.findall(r"shared.alloc {offset = (\d+)", text)}
    assert len(places) == 2
    assert "before a block exits while others use its memory" in text


@weft.jit
def reused(x, shared: gl.constexpr, rows: gl.constexpr, columns: gl.constexpr):
    i, j = offsets(64, 64, rows)
    a, b = offsets(64, 64, columns)
    memory = gl.allocate_shared_memory(gl.float32, [64, 64], shared, value=gl.load(x + i * 64 + j))
    cluster.barrier()
    gl.store(x + 4096 + a * 64 + b, memory.load(columns))
    other = gl.allocate_shared_memory(gl.float32, [64, 64], shared, value=gl.load(x + i * 64 + j))
    gl.store(x + 8192 + i * 64 + j, other.load(rows))


def test_a_block_exits_while_another_may_still_read_its_memory():
    """weft inserts the barrier that prevents this, unless it is told to insert nothing."""
    x = np.zeros(3 * 4096, np.float32)
    reused[1](x, *FORGETS, num_ctas=2)
    with pytest.raises(hazard.BlockExited) as caught:
        weft.jit(sync="none")(leaves.fn)[1](x, *FORGETS, num_ctas=2)
    assert re.search(r"block (0 uses shared memory of block 1|1 uses shared memory of block 0)", caught.value.message)
    assert caught.value.loc is not None and "memory.load(columns)" in caught.value.loc.source


@weft.jit
def leaves(x, shared: gl.constexpr, rows: gl.constexpr, columns: gl.constexpr):
    i, j = offsets(64, 64, rows)
    a, b = offsets(64, 64, columns)
    memory = gl.allocate_shared_memory(gl.float32, [64, 64], shared, value=gl.load(x + i * 64 + j))
    cluster.barrier()
    gl.store(x + 4096 + a * 64 + b, memory.load(columns))
