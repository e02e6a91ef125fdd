"""Warp specialisation end to end: producers, consumers and storers of tiles, and what crosses between partitions."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, poison, same
from weft import language as gl
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, named_barrier, tma


@weft.aggregate
class Pipe:
    """Buffers that one partition fills and another one empties, in turn."""

    memory: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor
    stages: gl.constexpr

    @weft.jit
    def stage(self, i):
        s = i % self.stages
        return self.memory.index(s), self.full.index(s), self.empty.index(s), (i // self.stages) & 1


@weft.jit
def make_pipe(desc, stages: gl.constexpr):
    memory = gl.allocate_shared_memory(desc.dtype, [stages, *desc.block_shape], desc.layout)
    full = mbarrier.allocate_mbarrier(stages)
    empty = mbarrier.allocate_mbarrier(stages)
    for s in gl.static_range(stages):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
    return Pipe(memory, full, empty, stages)


@weft.jit
def load_blocks(desc, pipe, blocks):
    rows: gl.constexpr = desc.block_shape[0]
    for i in range(blocks):
        memory, full, empty, phase = pipe.stage(i)
        mbarrier.wait(empty, phase ^ 1)
        mbarrier.expect(full, desc.block_type.nbytes)
        tma.async_copy_global_to_shared(desc, [i * rows, 0], full, memory)


@weft.jit
def add_blocks(a_pipe, b_pipe, c_pipe, blocks, layout: gl.constexpr):
    for i in range(blocks):
        a_memory, a_full, a_empty, phase = a_pipe.stage(i)
        b_memory, b_full, b_empty, _ = b_pipe.stage(i)
        c_memory, c_full, c_empty, c_phase = c_pipe.stage(i)
        mbarrier.wait(a_full, phase)
        mbarrier.wait(b_full, phase)
        total = a_memory.load(layout) + b_memory.load(layout)
        # TMA writes next what threads have read here.
        fence_async_shared()
        mbarrier.arrive(a_empty, count=1)
        mbarrier.arrive(b_empty, count=1)
        mbarrier.wait(c_empty, c_phase ^ 1)
        c_memory.store(total)
        fence_async_shared()
        mbarrier.arrive(c_full, count=1)


@weft.jit
def store_blocks(desc, pipe, blocks):
    rows: gl.constexpr = desc.block_shape[0]
    for i in range(blocks):
        memory, full, empty, phase = pipe.stage(i)
        mbarrier.wait(full, phase)
        tma.async_copy_shared_to_global(desc, [i * rows, 0], memory)
        tma.store_wait(0)
        mbarrier.arrive(empty, count=1)


@weft.jit
def add(a_desc, b_desc, c_desc, blocks, stages: gl.constexpr, warps: gl.constexpr, registers: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [gl.num_warps(), 1], [1, 0])
    a_pipe = make_pipe(a_desc, stages)
    b_pipe = make_pipe(b_desc, stages)
    c_pipe = make_pipe(c_desc, 2)
    gl.warp_specialize(
        [
            (add_blocks, (a_pipe, b_pipe, c_pipe, blocks, layout)),
            (load_blocks, (a_desc, a_pipe, blocks)),
            (load_blocks, (b_desc, b_pipe, blocks)),
            (store_blocks, (c_desc, c_pipe, blocks)),
        ],
        warps,
        registers,
    )


@pytest.mark.parametrize("registers", [None, (24, 24, 40)])
@pytest.mark.parametrize(("num_warps", "warps", "stages", "rows"), [(4, (1, 1, 1), 3, 250), (8, (1, 4, 2), 2, 97)])
def test_add(run, rng, registers, num_warps, warps, stages, rows):
    """A producer for each operand, consumers, a storer: odd sizes, more blocks than buffers."""
    a, b = rng.normal(size=(2, rows, 64)).astype(np.float32)
    out = poison((rows, 64), np.float32)
    layout = gl.NVMMASharedLayout.get_default_for([32, 64], gl.float32)
    described = [Described(x, [32, 64], layout) for x in (a, b, out)]
    compiled = run(add, 1, *described, -(-rows // 32), stages, warps, registers, num_warps=num_warps)
    same(out, a + b)
    assert compiled.threads % 32 == 0
    assert compiled.threads >= 32 * (num_warps + sum(warps))
    assert ("USETMAXREG" in compiled.asm["sass"]) == (registers is not None)
    assert "C7508" not in compiled.front.machine_code.log


@weft.jit
def double(x, out, n, layout: gl.constexpr):
    at = gl.arange(0, 128, layout)
    value = gl.load(x + at)
    named_barrier.sync(0, gl.num_warps() + 2)
    gl.store(out + at, value * 2.0)
    return value, n + 1


@weft.jit
def repeat(x, out, count):
    at = gl.arange(0, 128, gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    for i in range(count):
        gl.store(out + 128 * i + at, gl.load(x + at) + i)
    named_barrier.arrive(0, 6)


@weft.jit
def combine(x, out, scale, positive):
    at = gl.arange(0, 128, gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    value = gl.load(x + at)
    if positive:
        gl.store(out + at, gl.sum(value, 0) + value * scale)


@weft.jit
def crossing(x, out, n, scales, layout: gl.constexpr):
    scale = gl.load(scales)
    for i in range(n):
        scale += i
    value, m = gl.warp_specialize(
        [
            (double, (x, out, n, layout)),
            (repeat, (x, out + 128, n)),
            (combine, (x, out + 1024, scale, scale > 0)),
        ],
        [2, 4],
    )
    at = gl.arange(0, 128, layout)
    gl.store(out + 2048 + at, value + m)
    gl.warp_specialize([(combine, (x, out + 3072, scale, n > 0)), (combine, (x, out + 4096, m * scale, m > 0))], [2])


def test_scalars_cross(run, rng):
    """Loaded scalars, loop results and conditions reach workers; results of the default partition go on."""
    x = rng.integers(-50, 50, 128).astype(np.float32)
    scales, out, n = np.array([3], np.int32), poison(8192, np.float32), 5
    run(crossing, 1, x, out, n, scales, gl.BlockedLayout([1], [32], [4], [0]))
    scale = 3 + sum(range(n))
    expected = poison(8192, np.float32)
    expected[:128] = x * 2
    expected[128 : 128 * (n + 1)] = (x + np.arange(n)[:, None]).ravel()
    expected[1024 : 1024 + 128] = x.sum() + x * scale
    expected[2048 : 2048 + 128] = x + n + 1
    expected[3072 : 3072 + 128] = x.sum() + x * scale
    expected[4096 : 4096 + 128] = x.sum() + x * (scale * (n + 1))
    same(out, expected)


@weft.jit
def turn(x, out, n):
    rows: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [gl.num_warps(), 1], [1, 0])
    columns: gl.constexpr = gl.BlockedLayout([4, 1], [8, 4], [1, gl.num_warps()], [0, 1])
    for i in range(n):
        here = x + i * 4096 + gl.arange(0, 64, gl.SliceLayout(1, rows))[:, None] * 64
        value = gl.convert_layout(gl.load(here + gl.arange(0, 64, gl.SliceLayout(0, rows))[None, :]), columns)
        there = out + i * 4096 + gl.arange(0, 64, gl.SliceLayout(0, columns))[None, :] * 64
        gl.store(there + gl.arange(0, 64, gl.SliceLayout(1, columns))[:, None], value)


@weft.jit
def turn_side_by_side(x, out, n):
    gl.warp_specialize([(turn, (x, out, n)), (turn, (x + n * 4096, out + n * 4096, n)), (nothing, ())], [2, 1])


@weft.jit
def nothing():
    return


def test_conversions_side_by_side(run, rng):
    """Each partition converts through memory of its own, between barriers of its own."""
    x = rng.normal(size=(6, 64, 64)).astype(np.float32)
    out = poison((6, 64, 64), np.float32)
    run(turn_side_by_side, 1, x, out, 3)
    same(out, x.transpose(0, 2, 1))
