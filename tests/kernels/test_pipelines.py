"""Pipelines as kernels of models have them: rings of several types in aggregates, and specialised warps in turn."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, poison, random, same
from weft import language as gl
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, named_barrier, tma

ROWS = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])


def described(array, *block):
    dtype = {np.float16: gl.float16, ml_dtypes.bfloat16: gl.bfloat16, np.float32: gl.float32}[array.dtype.type]
    return Described(array, list(block), gl.NVMMASharedLayout.get_default_for(list(block), dtype))


@weft.aggregate
class Ring:
    """Blocks of a tensor on their way through shared memory: where the next one comes in or out, and in which phase."""

    desc: tma.tensor_descriptor
    memory: gl.shared_memory_descriptor
    bars: gl.shared_memory_descriptor
    slot: gl.tensor
    phase: gl.tensor
    stages: gl.constexpr

    @staticmethod
    @weft.jit
    def make(desc, stages: gl.constexpr):
        memory = gl.allocate_shared_memory(desc.dtype, [stages, *desc.block_shape], desc.layout)
        bars = mbarrier.allocate_mbarrier(batch=stages)
        for i in gl.static_range(stages):
            mbarrier.init(bars.index(i), count=1)
        return Ring(desc, memory, bars, 0, 0, stages)

    @weft.jit
    def next(self):
        last = self.slot == self.stages - 1
        slot, phase = gl.where(last, 0, self.slot + 1), self.phase ^ last.to(gl.int32)
        return Ring(self.desc, self.memory, self.bars, slot, phase, self.stages)

    @weft.jit
    def ask(self, row, column, pred):
        mbarrier.expect(self.bars.index(self.slot), self.desc.block_type.nbytes, pred=pred)
        tma.async_load(self.desc, [row, column], self.bars.index(self.slot), self.memory.index(self.slot), pred=pred)
        return self.next()

    @weft.jit
    def take(self, layout: gl.constexpr):
        mbarrier.wait(self.bars.index(self.slot), self.phase)
        return self.memory.index(self.slot).load(layout).to(gl.float32), self.next()


@weft.jit
def attended(q_desc, k_desc, v_desc, b_desc, out, n, stages: gl.constexpr, B: gl.constexpr, layout: gl.constexpr):
    """An online softmax over blocks of n columns, with products element by element in place of those of matrices."""
    row = gl.program_id(0) * B
    q = Ring.make(q_desc, 1)
    q.ask(row, 0, True)
    keys, values, biases = Ring.make(k_desc, stages), Ring.make(v_desc, stages), Ring.make(b_desc, stages)
    more = keys, values, biases
    for s in gl.static_range(stages - 1):
        there = s * B < n
        more = more[0].ask(s * B, 0, there), more[1].ask(s * B, 0, there), more[2].ask(row, s * B, there)
    mine, _ = q.take(layout)
    highest = gl.full([B], float("-inf"), gl.float32, gl.SliceLayout(1, layout))
    total = gl.zeros([B], gl.float32, gl.SliceLayout(1, layout))
    sums = gl.zeros([B, B], gl.float32, layout)
    start = 0
    while start < n:
        ahead = start + (stages - 1) * B
        there = ahead < n
        more = more[0].ask(ahead, 0, there), more[1].ask(ahead, 0, there), more[2].ask(row, ahead, there)
        k, keys = keys.take(layout)
        v, values = values.take(layout)
        b, biases = biases.take(layout)
        score = mine * k + b
        before, highest = highest, gl.maximum(highest, gl.max(score, 1))
        weight, scale = gl.exp(score - highest[:, None]), gl.exp(before - highest)
        total = total * scale + gl.sum(weight, 1)
        sums = sums * scale[:, None] + weight * v
        start += B
    i, j = gl.arange(0, B, gl.SliceLayout(1, layout)), gl.arange(0, B, gl.SliceLayout(0, layout))
    gl.store(out + (row + i)[:, None] * B + j[None, :], sums / total[:, None])


@pytest.mark.parametrize(("stages", "blocks"), [(2, 3), (3, 1), (3, 5)])
def test_three_rings_of_three_types(run, rng, stages, blocks):
    b, rows = 64, 128
    n = blocks * b
    kinds = {"q": (np.float16, (rows, b)), "k": (ml_dtypes.bfloat16, (n, b)), "v": (np.float32, (n, b))}
    given = {name: np.clip(rng.normal(size=shape), -2, 2).astype(kind) for name, (kind, shape) in kinds.items()}
    bias = np.clip(rng.normal(size=(rows, n)), -2, 2).astype(np.float16)
    out = poison(rows * b, np.float32)
    operands = [described(array, b, b) for array in (*given.values(), bias)]
    run(attended, rows // b, *operands, out, n, stages, b, ROWS, exact=False)
    q, k, v = (array.astype(np.float64).reshape(-1, b, b) for array in given.values())
    score = q[:, None] * k[None] + bias.astype(np.float64).reshape(rows // b, b, blocks, b).transpose(0, 2, 1, 3)
    weight = np.exp(score - score.max((1, 3), keepdims=True))
    expected = (weight * v[None]).sum(1) / weight.sum((1, 3))[..., None]
    np.testing.assert_allclose(out.reshape(-1, b, b), expected, rtol=1e-5, atol=1e-6)


# Specialised warps


@weft.jit
def fill(desc, memory, ready, free, blocks, stages: gl.constexpr):
    for i in range(blocks):
        s = i % stages
        mbarrier.wait(free.index(s), ((i // stages) & 1) ^ 1)
        mbarrier.expect(ready.index(s), desc.block_type.nbytes)
        tma.async_copy_global_to_shared(desc, [i * desc.block_shape[0], 0], ready.index(s), memory.index(s))


@weft.jit
def drain(memory, ready, free, blocks, stages: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [gl.num_warps(), 1], [1, 0])
    total = gl.zeros([32, 64], gl.float32, layout)
    for i in range(blocks):
        s = i % stages
        mbarrier.wait(ready.index(s), (i // stages) & 1)
        total += memory.index(s).load(layout)
        fence_async_shared()
        mbarrier.arrive(free.index(s), count=1)
    return total, blocks * 2


@weft.jit
def drain_to(out, memory, ready, free, blocks, stages: gl.constexpr):
    total, _ = drain(memory, ready, free, blocks, stages)
    keep(out, total, gl.BlockedLayout([1, 4], [2, 16], [gl.num_warps(), 1], [1, 0]))


@weft.jit
def keep(out, tile, layout: gl.constexpr):
    i, j = gl.arange(0, 32, gl.SliceLayout(1, layout)), gl.arange(0, 64, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * 64 + j[None, :], tile)


@weft.jit
def channel(desc, stages: gl.constexpr):
    memory = gl.allocate_shared_memory(desc.dtype, [stages, 32, 64], desc.layout)
    ready, free = mbarrier.allocate_mbarrier(batch=stages), mbarrier.allocate_mbarrier(batch=stages)
    for i in gl.static_range(stages):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(free.index(i), count=1)
    return memory, ready, free


@weft.jit
def in_turn(a, b, out, other, blocks, stages: gl.constexpr, warps: gl.constexpr, registers: gl.constexpr):
    """Two parts whose workers share warps; what the first returns goes on through the second."""
    first, second = channel(a, stages), channel(b, stages)
    total, twice = gl.warp_specialize(
        [
            (drain, (*first, blocks, stages)),
            (fill, (a, *first, blocks, stages)),
            (fill, (b, *second, blocks, stages)),
            (drain_to, (other, *second, blocks, stages)),
        ],
        warps,
        registers,
    )
    third = channel(b, stages)
    more, _ = gl.warp_specialize(
        [(drain, (*third, blocks, stages)), (fill, (b, *third, blocks, stages))],
        warps[:1],
        None if registers is None else registers[:1],
    )
    keep(out, total + more * twice, gl.BlockedLayout([1, 4], [2, 16], [gl.num_warps(), 1], [1, 0]))


@pytest.mark.parametrize(
    ("num_warps", "warps", "registers"),
    [(4, (1, 1, 4), (24, 24, 96)), (4, (2, 1, 8), None), (8, (4, 2, 1), (40, 40, 168)), (4, (1, 1, 2), None)],
)
def test_specialised_twice(run, rng, num_warps, warps, registers):
    blocks = 5
    a, b = (random(rng, np.float32, (blocks * 32, 64)) for _ in range(2))
    out, other = poison(2048, np.float32), poison(2048, np.float32)
    run(in_turn, 1, described(a, 32, 64), described(b, 32, 64), out, other, blocks, 2, warps, registers,
        num_warps=num_warps)  # fmt: skip
    sums = [np.zeros(2048, np.float32), np.zeros(2048, np.float32)]
    for i in range(blocks):
        sums = [sums[k] + x.reshape(blocks, -1)[i] for k, x in enumerate((a, b))]
    same(other, sums[1])
    wide = [x.astype(np.float64) for x in sums]
    np.testing.assert_allclose(out, wide[0] + 10 * wide[1], rtol=1e-5, atol=1e-4)


@weft.jit
def write(memory, x, count, layout: gl.constexpr):
    at = gl.arange(0, 128, layout)
    for i in range(count):
        named_barrier.sync(0, 8)
        memory.store(gl.load(x + i * 128 + at))
        named_barrier.arrive(1, 8)


@weft.jit
def turn(memory, out, count):
    at = gl.arange(0, 128, gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    for i in range(count):
        named_barrier.arrive(0, 8)
        named_barrier.sync(1, 8)
        gl.store(out + i * 128 + at, memory.gather(127 - at, 0))


@weft.jit
def turned(x, out, count, layout: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.int32, [128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    gl.warp_specialize([(write, (memory, x, count, layout)), (turn, (memory, out, count))], [4])


def test_a_buffer_between_named_barriers(run, rng):
    x, out = random(rng, np.int32, 5 * 128), poison(5 * 128, np.int32)
    run(turned, 1, x, out, 5, gl.BlockedLayout([1], [32], [4], [0]))
    same(out, np.array(x).reshape(5, 128)[:, ::-1].ravel())
