"""The author's shared memory: what goes in comes out, through every kind of layout, part by part and element by element."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.effort import crossed
from tests.kernels.harness import poison, same, values
from tests.kernels.matrices import LAYOUTS, M, N, load_matrix, store_matrix
from weft import language as gl

MEMORY = {
    "plain": gl.SwizzledSharedLayout(1, 1, 1, [1, 0]),
    "swizzled": gl.SwizzledSharedLayout(4, 2, 4, [1, 0]),
    "columns": gl.SwizzledSharedLayout(8, 1, 4, [0, 1]),
    "padded": gl.PaddedSharedLayout.with_identity_for([[32, 4]], [M, N], [1, 0]),
    "padded twice": gl.PaddedSharedLayout.with_identity_for([[16, 2], [128, 16]], [M, N], [0, 1]),
}
WIDTHS = [np.bool_, np.uint8, np.float16, np.float32, np.int64]
each_width = pytest.mark.parametrize("kind", WIDTHS, ids=lambda kind: np.dtype(kind).name)


def memory_layouts(kind):
    """Those above, what TMA would write, and the same for elements of another width, which lie at the same offsets."""
    bits = np.dtype(kind).itemsize * 8
    own = [gl.NVMMASharedLayout(32, bits, 2), gl.NVMMASharedLayout(64, bits, 2, transposed=True)]
    return [*MEMORY.values(), *own, gl.NVMMASharedLayout(32, 16 if bits == 8 else 8, 2)]


@weft.jit
def through(out, x, dtype: gl.constexpr, M: gl.constexpr, N: gl.constexpr, memory: gl.constexpr, a: gl.constexpr,
            b: gl.constexpr):  # fmt: skip
    smem = gl.allocate_shared_memory(dtype, [M, N], memory)
    smem.store(load_matrix(x, M, N, a))
    store_matrix(out, smem.load(b), M, N, b)


@pytest.mark.parametrize(("source", "kind"), crossed(LAYOUTS, WIDTHS))
def test_store_and_load(run, rng, source, kind):
    dtype = {np.bool_: gl.int1, np.uint8: gl.uint8, np.float16: gl.float16, np.float32: gl.float32, np.int64: gl.int64}[
        kind
    ]
    targets = list(LAYOUTS.values())
    for number, memory in enumerate(memory_layouts(kind)):
        x, out = values(rng, kind, M * N), poison(M * N, kind)
        target = targets[(number + list(LAYOUTS).index(source)) % len(targets)]
        run(through, 1, out, x, dtype, M, N, memory, LAYOUTS[source], target, compiles=number % 3 == 0)
        same(out, x)


@weft.jit
def by_matrices(out, turned, x, memory: gl.constexpr, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.float16, [64, 64], memory)
    smem.store(load_matrix(x, 64, 64, layout))
    store_matrix(out, smem.load(layout), 64, 64, layout)
    store_matrix(turned, smem.permute([1, 0]).load(layout), 64, 64, layout)


@pytest.mark.parametrize("width", [0, 32, 64, 128])
@pytest.mark.parametrize("warps", [[4, 1], [2, 2], [1, 4]])
def test_matrix_instructions(run, rng, width, warps):
    """Accumulators in fp16 by stmatrix and ldmatrix, plain and transposed."""
    layout = gl.NVMMADistributedLayout([2, 0], warps, [16, 8])
    x, out, turned = values(rng, np.float16, 4096), poison(4096, np.float16), poison(4096, np.float16)
    made = run(by_matrices, 1, out, turned, x, gl.NVMMASharedLayout(width, 16, 2), layout)
    same(out, x)
    same(turned, x.reshape(64, 64).T.ravel())
    if width:
        assert "load_matrix_" in made.asm["cuda"] and "store_matrix_" in made.asm["cuda"]


@weft.jit
def parts(out, x, stages: gl.constexpr, memory: gl.constexpr, layout: gl.constexpr):
    ring = gl.allocate_shared_memory(gl.float32, [stages, 32, 64], memory)
    for i in range(stages):
        ring.index(i).store(load_matrix(x + i * 2048, 32, 64, layout))
    for i in range(2 * stages):
        stage = ring.index(i % stages)
        half = stage.slice(32, 32, dim=1).permute([1, 0])
        low = stage.slice(0, 32, dim=1)
        low.store(low.load(layout) + half.load(layout))
    for i in range(stages):
        store_matrix(out + i * 2048, ring.index(i).load(layout), 32, 64, layout)


@pytest.mark.parametrize("memory", [MEMORY["plain"], MEMORY["swizzled"], gl.NVMMASharedLayout(128, 32, 2)])
def test_parts_of_a_ring(run, rng, memory):
    stages = 3
    x = values(rng, np.float32, stages * 2048)
    out = poison(stages * 2048, np.float32)
    run(parts, 1, out, x, stages, memory, LAYOUTS["rows"])
    expected = np.array(x).reshape(stages, 32, 64)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(2):
            expected[:, :, :32] += expected[:, :, 32:].transpose(0, 2, 1)
    same(out, expected.ravel())


@weft.jit
def halves_as_words(out, x, memory: gl.constexpr, layout: gl.constexpr):
    """The upper rows of a tile of halves, as a tile of words with the rows of that tile interleaved."""
    smem = gl.allocate_shared_memory(gl.float16, [64, 64], memory)
    smem.store(load_matrix(x, 64, 64, layout))
    part = smem.slice(32, 32)
    gl.static_assert(part.nbytes_per_cta == 4096 and part.type.nbytes_per_cta == 4096)
    store_matrix(out, part.reinterpret(gl.int32, [16, 64]).load(layout), 16, 64, layout)


@pytest.mark.parametrize("memory", [MEMORY["plain"], gl.SwizzledSharedLayout(8, 1, 2, [1, 0])])
def test_a_contiguous_slice_is_reinterpreted(run, rng, memory):
    x, out = values(rng, np.float16, 4096), poison(1024, np.int32)
    run(halves_as_words, 1, out, x, memory, LAYOUTS["rows"])
    halves = np.array(x).reshape(64, 64)[32:]
    if memory.max_phase == 2:
        halves = halves.reshape(32, 4, 2, 8)
        halves[1::2] = halves[1::2, :, ::-1]
    words = halves.copy().reshape(-1).view(np.int32).reshape(16, 64)
    if memory.max_phase == 2:
        words = words.reshape(16, 4, 2, 8)
        words[1::2] = words[1::2, :, ::-1]
    same(out, words.ravel())


@weft.jit
def chosen(out, back, x, index, M: gl.constexpr, N: gl.constexpr, AXIS: gl.constexpr, memory: gl.constexpr,
           layout: gl.constexpr):  # fmt: skip
    smem = gl.allocate_shared_memory(gl.float32, [M, N], memory)
    smem.store(load_matrix(x, M, N, layout))
    at = load_matrix(index, M, N, layout)
    store_matrix(out, smem.gather(at, AXIS), M, N, layout)
    other = gl.allocate_shared_memory(gl.float32, [M, N], memory)
    other.scatter(load_matrix(x, M, N, layout), at, AXIS)
    store_matrix(back, other.load(layout), M, N, layout)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("layout", ["rows", "repeated", "mma"])
def test_gather_and_scatter(run, rng, layout, memory, axis):
    x = values(rng, np.float32, M * N)
    order = np.stack([rng.permutation((M, N)[axis]) for _ in range((N, M)[axis])]).astype(np.int32)
    index = np.ascontiguousarray(order.T if axis == 0 else order)
    out, back = poison(M * N, np.float32), poison(M * N, np.float32)
    run(chosen, 1, out, back, x, index.ravel(), M, N, axis, MEMORY[memory], LAYOUTS[layout], compiles=layout == "rows")
    matrix, put = np.array(x).reshape(M, N), np.empty((M, N), np.float32)
    same(out, np.take_along_axis(matrix, index, axis).ravel())
    np.put_along_axis(put, index, matrix, axis)
    same(back, put.ravel())


@weft.jit
def swapped(out, x, rounds, memory: gl.constexpr, layout: gl.constexpr):
    a = gl.allocate_shared_memory(gl.float32, [32, 64], memory)
    b = gl.allocate_shared_memory(gl.float32, [32, 64], memory)
    a.store(load_matrix(x, 32, 64, layout))
    b.store(load_matrix(x + 2048, 32, 64, layout))
    for _ in range(rounds):
        b.store(a.load(layout) + b.load(layout))
        a, b = b, a
    store_matrix(out, a.load(layout), 32, 64, layout)
    store_matrix(out + 2048, b.load(layout), 32, 64, layout)


@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_buffers_change_places(run, rng, rounds):
    x, out = values(rng, np.float32, 4096), poison(4096, np.float32)
    run(swapped, 1, out, x, rounds, MEMORY["swizzled"], LAYOUTS["rows"])
    a, b = np.array(x).reshape(2, 2048)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(rounds):
            a, b = a + b, a
    same(out, np.concatenate([a, b]))


def test_conflicts_of_a_transpose_are_known_on_the_host():
    """Columns of a plain tile of 32 words a row lie in one bank; XORed by their row, or padded, in as many as there are."""
    rows = gl.distributed_type(gl.float32, [32, 32], gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1]))

    def conflicts(layout):
        return gl.bank_conflicts(rows, gl.shared_memory_descriptor_type(gl.float32, [32, 32], layout, [32, 32]))

    assert conflicts(gl.SwizzledSharedLayout(1, 1, 1, [1, 0])) == 31
    assert conflicts(gl.SwizzledSharedLayout(1, 1, 32, [1, 0])) == 0
    assert conflicts(gl.PaddedSharedLayout.with_identity_for([[32, 1]], [32, 32], [1, 0])) == 0


@weft.jit
def shared_as_bytes(out, x, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.float32, [64], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    offsets = gl.arange(0, 64, layout=layout)
    smem.store(gl.load(x + offsets))
    gl.nvidia.hopper.fence_async_shared()
    gl.store(out + offsets, smem.load(layout))


def test_modules_of_a_vendor_are_part_of_the_language(run, rng):
    x, out = values(rng, np.float32, 64), poison(64, np.float32)
    run(shared_as_bytes, 1, out, x, gl.BlockedLayout([1], [32], [2], [0]), num_warps=2)
    same(out, x)
