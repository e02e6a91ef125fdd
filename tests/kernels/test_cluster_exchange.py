"""Operations on tiles whose elements lie in several blocks of a cluster: the blocks exchange them through shared memory."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import poison, random, same
from tests.kernels.test_clusters import blocked, count_once, offsets, sums, turned
from weft import language as gl

MOVES = [
    (2, [[1, 0]], [[0, 1]]), (2, [[1, 0]], [[0, 0]]), (2, [[0, 0]], [[1, 0]]), (4, [[1, 0], [0, 1]], [[0, 1], [0, 2]]),
    (4, [[1, 0], [2, 0]], [[2, 0], [1, 0]]), (16, [[1, 0], [0, 1], [2, 0], [0, 0]], [[0, 0], [0, 1], [0, 2], [0, 4]]),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64])
@pytest.mark.parametrize(("blocks", "source", "target"), MOVES)
def test_conversions_between_blocks(run, rng, dtype, blocks, source, target):
    x, out = random(rng, dtype, (64, 64)), poison(64 * 64, dtype)
    tall = gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1], cga_layout=target)
    compiled = run(turned, 1, out, x, blocked(source), tall, num_ctas=blocks)
    same(out.reshape(64, 64), x)
    assert ("ld.shared::cluster" in compiled.asm["cuda"]) == (source != [[0, 0]])


@weft.jit
def rotated(out, x, steps, source: gl.constexpr, target: gl.constexpr):
    i, j = offsets(64, 64, source)
    value = gl.load(x + i * 64 + j)
    for step in range(steps):
        other = gl.convert_layout(value, target)
        if step > 1:
            other += 1
        value = gl.convert_layout(other * 2, source)
    gl.store(out + i * 64 + j, value)


def test_scratch_memory_is_used_again(run, rng):
    """Each exchange waits for the readers of the last one."""
    x, out = rng.integers(-9, 9, (64, 64)).astype(np.int32), poison((64, 64), np.int32)
    run(rotated, 1, out, x, 4, blocked([[1, 0], [0, 1]]), blocked([[0, 2], [0, 1]]), num_ctas=4)
    expected = x
    for step in range(4):
        expected = 2 * (expected + (step > 1))
    same(out, expected)


ODD = gl.DistributedLinearLayout(
    [[0, 1], [32, 0]], [[0, 2], [0, 4], [0, 8], [0, 16], [1, 0]], [[2, 0], [4, 0]], [[9, 0], [16, 0]], [64, 32]
)
"""A block basis that moves by 9 rows, of which a register has none."""
ODD_COVERED = gl.DistributedLinearLayout(
    [[0, 1], [32, 0]], [[0, 2], [0, 4], [0, 8], [0, 16], [1, 0]], [[2, 0], [4, 0]], [[8, 1], [16, 0]], [64, 32]
)
SPLITS = [
    (0, 2, blocked([[1, 0]])), (1, 2, blocked([[0, 1]])), (0, 4, blocked([[2, 0], [1, 0]])),
    (1, 4, blocked([[1, 0], [0, 1]])), (0, 16, blocked([[1, 0], [0, 1], [0, 0], [2, 0]])), (0, 4, ODD), (1, 4, ODD),
    (0, 4, ODD_COVERED), (1, 4, ODD_COVERED),
]  # fmt: skip


@pytest.mark.parametrize(("axis", "blocks", "layout"), SPLITS)
def test_sums_over_blocks(run, rng, axis, blocks, layout):
    x = rng.integers(-1000, 1000, (64, 32)).astype(np.int32)
    out = poison(32 if axis == 0 else 64, np.int32)
    run(sums, 1, out, x, 32, axis, layout, num_ctas=blocks)
    same(out, x.sum(axis, dtype=np.int32))


@weft.jit
def affine(a, b, c, d):
    """The composition of x -> a * x + b and x -> c * x + d."""
    return a * c, b * c + d


@weft.jit
def composed(out, x, y, axis: gl.constexpr, layout: gl.constexpr, how: gl.constexpr):
    i, j = offsets(64, 32, layout)
    at = i * 32 + j
    a, b = gl.load(x + at), gl.load(y + at)
    if how == "reduce":
        _, total = gl.reduce((a, b), axis, affine)
        gl.store(out + gl.arange(0, 32 if axis == 0 else 64, gl.SliceLayout(axis, layout)), total)
    else:
        _, prefix = gl.associative_scan((a, b), axis, affine, reverse=how == "reverse")
        gl.store(out + at, prefix)


def prefixes(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """All prefixes along the first axis."""
    rows, total = [], (a[0], b[0])
    for c, d in zip(a[1:], b[1:], strict=True):
        rows.append(total[1])
        total = total[0] * c, total[1] * c + d
    return np.stack([*rows, total[1]])


@pytest.mark.parametrize("how", ["reduce", "scan", "reverse"])
@pytest.mark.parametrize(("axis", "blocks", "layout"), SPLITS[:5])
def test_functions_that_do_not_commute(run, rng, axis, blocks, layout, how):
    x, y = (rng.integers(-3, 4, (64, 32)).astype(np.int32) for _ in range(2))
    turn = (lambda z: z.T) if axis else (lambda z: z)
    a, b = turn(x), turn(y)
    expected = prefixes(a[::-1], b[::-1])[::-1] if how == "reverse" else prefixes(a, b)
    expected = expected[-1] if how == "reduce" else np.ascontiguousarray(turn(expected))
    out = poison(expected.shape, np.int32)
    run(composed, 1, out, x, y, axis, layout, how, num_ctas=blocks)
    same(out, expected)


@weft.jit
def whole(out, x, layout: gl.constexpr):
    i = gl.arange(0, 1024, layout)
    value = gl.load(x + i)
    gl.store(out, gl.sum(value, 0))
    gl.store(out + 1, gl.argmax(value, 0))


@pytest.mark.parametrize("cga", [[[1], [2]], [[0], [1]]])
def test_scalars_of_all_blocks(run, rng, cga):
    x, out = rng.permutation(1024).astype(np.int32), poison(2, np.int32)
    run(whole, 1, out, x, gl.BlockedLayout([2], [32], [4], [0], cga_layout=cga), num_ctas=4)
    same(out, np.array([x.sum(), x.argmax()], np.int32))


@weft.jit
def picked(out, x, at, axis: gl.constexpr, layout: gl.constexpr, other: gl.constexpr):
    i, j = offsets(64, 32, layout)
    a, b = offsets(64, 32, other)
    index = gl.load(at + a * 32 + b)
    gl.store(out + a * 32 + b, gl.gather(gl.load(x + i * 32 + j), index, axis=axis))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("layout", "other"), [([[1, 0], [2, 0]], [[0, 1], [1, 0]]), ([[0, 0], [0, 1]], [[1, 0], [0, 0]])]
)
def test_gathers_of_elements_of_other_blocks(run, rng, axis, layout, other):
    x, out = random(rng, np.float16, (64, 32)), poison((64, 32), np.float16)
    at = rng.integers(0, x.shape[axis], (64, 32)).astype(np.int32)
    run(picked, 1, out, x, at, axis, blocked(layout), blocked(other), num_ctas=4)
    same(out, np.take_along_axis(x, at, axis))


@weft.jit
def ordered(out, x, axis: gl.constexpr, layout: gl.constexpr):
    i, j = offsets(64, 32, layout)
    gl.store(out + i * 32 + j, gl.sort(gl.load(x + i * 32 + j), axis))


@pytest.mark.parametrize("axis", [0, 1])
def test_sorts_across_blocks(run, rng, axis):
    x, out = rng.integers(-99, 99, (64, 32)).astype(np.int32), poison((64, 32), np.int32)
    run(ordered, 1, out, x, axis, blocked([[1, 0], [0, 1]]), num_ctas=4)
    same(out, np.sort(x, axis))


@weft.jit
def counted(out, x, layout: gl.constexpr, other: gl.constexpr):
    i = gl.arange(0, 1024, layout)
    value = gl.load(x + i)
    counts = gl.histogram(value, 128, mask=value != 5, layout=other)
    gl.store(out + gl.arange(0, 128, other), counts)


@pytest.mark.parametrize("cga", [[[1], [2]], [[0], [1]]])
@pytest.mark.parametrize("other", [[[0], [0]], [[2], [1]]])
def test_histograms_of_all_blocks(run, rng, cga, other):
    x, out = rng.integers(-4, 140, 1024).astype(np.int32), poison(128, np.int32)
    line = [gl.BlockedLayout([1], [32], [4], [0], cga_layout=c) for c in (cga, other)]
    run(counted, 1, out, x, *line, num_ctas=4)
    expected = np.bincount(x[(x >= 0) & (x < 128)], minlength=128).astype(np.int32)
    expected[5] = 0
    same(out, expected)


@weft.jit
def tickets(out, counts, layout: gl.constexpr):
    i = gl.arange(0, 128, layout)
    first = gl.atomic_add(counts + i, 1)
    ticket = gl.atomic_add(counts + 128, 1)
    old = gl.atomic_cas(counts + 129, 0, ticket + 7)
    gl.store(out + i, 10 * first + ticket)
    gl.store(out + 128, gl.atomic_xchg(counts + 129, old + 1))


@pytest.mark.parametrize("cga", [[[0], [0]], [[1], [0]], [[1], [2]]])
def test_every_block_learns_the_old_values_of_an_atomic(run, cga):
    counts, out = np.arange(130, dtype=np.int32), poison(129, np.int32)
    counts[129] = 0
    run(tickets, 1, out, counts, gl.BlockedLayout([1], [32], [4], [0], cga_layout=cga), num_ctas=4)
    same(out, np.array([*(10 * n + 128 for n in range(128)), 135], np.int32))
    same(counts, np.array([*range(1, 130), 1], np.int32))


def test_atomics_without_a_result_exchange_nothing():
    compiled = count_once.warmup(gl.int32, gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[0]]), num_ctas=2)
    assert "cluster.convert" not in compiled.asm["ir"]


# Warp specialization: only the warps of a partition meet


@weft.jit
def convert_and_sum(out, x, source: gl.constexpr, target: gl.constexpr):
    i, j = offsets(64, 64, source)
    value = gl.load(x + i * 64 + j)
    a, b = offsets(64, 64, target)
    for _ in range(3):
        gl.store(out + a * 64 + b, gl.convert_layout(value, target))
    gl.store(out + 64 * 64 + gl.arange(0, 64, gl.SliceLayout(1, source)), gl.sum(value, 1))


@weft.jit
def halves_meet(out, first: gl.constexpr, line: gl.constexpr):
    i = gl.arange(0, 128, line)
    gl.store(out + first + i, i)
    gl.barrier(cluster=True)
    gl.store(out + 256 + first + i, gl.load(out + first + (127 - i)))


@weft.jit
def leave(out):
    gl.store(out + 64 * 65, 1)


@weft.jit
def specialised(out, x, source: gl.constexpr, target: gl.constexpr, WORKER: gl.constexpr):
    busy = (convert_and_sum, (out, x, source, target))
    if WORKER:
        gl.warp_specialize([(leave, (out,)), busy], [4])
    else:
        gl.warp_specialize([busy, (leave, (out,))], [4])
    gl.store(out + 64 * 65 + 1, gl.atomic_add(out + 64 * 65, 1))


@pytest.mark.parametrize("worker", [False, True])
def test_partitions_exchange_tiles(run, rng, worker):
    x, out = rng.integers(-9, 9, (64, 64)).astype(np.int32), poison(64 * 65 + 2, np.int32)
    run(specialised, 1, out, x, blocked([[0, 1], [0, 2]]), blocked([[0, 1], [1, 0]]), worker, num_ctas=4)
    same(out[: 64 * 64].reshape(64, 64), x)
    same(out[64 * 64 : 64 * 65], x.sum(1, dtype=np.int32))
    same(out[64 * 65 :], np.array([2, 1], np.int32))


@weft.jit
def meet_by_partition(out, line: gl.constexpr):
    gl.warp_specialize([(halves_meet, (out, 0, line)), (halves_meet, (out, 128, line))], [4])


@pytest.mark.parametrize("blocks", [2, 4])
def test_partitions_meet_those_of_the_other_blocks(run, blocks):
    """Without the barrier, an element may be read before another block's partition has written it."""
    out = poison(512, np.int32)
    cga = [[0 if bit == 1 else 1] for bit in range(blocks.bit_length() - 1)]
    run(meet_by_partition, 1, out, gl.BlockedLayout([1], [32], [4], [0], cga_layout=cga), num_ctas=blocks)
    same(out[256:], np.concatenate([np.arange(128)[::-1]] * 2).astype(np.int32))


@weft.jit
def meet_in_a_loop(out, n, line: gl.constexpr):
    # Elements go to the place of their mirror image round by round; workers follow neither the loop nor the branch.
    i = gl.arange(0, 256, line)
    gl.store(out + i, i)
    for _ in range(n):
        gl.barrier(cluster=True)
        mirrored = gl.load(out + (255 - i))
        if n > 1:
            gl.barrier(cluster=True)
        gl.store(out + i, mirrored + 1)
    gl.barrier(cluster=True)
    gl.warp_specialize([(halves_meet, (out + 256, 0, line)), (halves_meet, (out + 256, 128, line))], [4])


def test_barriers_in_loops_beside_workers(run):
    out = poison(256 + 512, np.int32)
    run(meet_in_a_loop, 1, out, 3, gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[1]]), num_ctas=2)
    same(out[:256], np.arange(256, dtype=np.int32)[::-1] + 3)
