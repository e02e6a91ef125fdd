"""Shared memory in which each thread reads what it wrote itself: no barriers there, and barriers wherever that is not so.

Every kernel also runs under the simulator's checker, in both stages, which would report a barrier that is missing.
"""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import poison, same, values
from tests.kernels.matrices import load_matrix, store_matrix
from weft import language as gl
from weft.language.nvidia.ampere import async_copy

M, N = 32, 64
ROWS = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
HALVES = gl.BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0])
COLUMNS = gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1])
BY_LANE = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
REPEATED = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
PLAIN = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
SWIZZLED = gl.SwizzledSharedLayout(4, 1, 8, [1, 0])


def barriers(compiled) -> list[str]:
    """The barriers of a kernel, by what they were inserted for."""
    listing = compiled.asm["sync"]
    return [line.partition("inserted ")[2] for line in listing.splitlines() if "barrier, inserted" in line]


@weft.jit
def kept(out, x, times, memory: gl.constexpr, a: gl.constexpr, b: gl.constexpr):
    """x * 2**times: memory holds what would be in registers."""
    smem = gl.allocate_shared_memory(gl.float32, [M, N], memory)
    smem.store(load_matrix(x, M, N, a))
    for _ in range(times):
        smem.store(gl.convert_layout(smem.load(b) * 2.0, a))
    store_matrix(out, smem.load(b), M, N, b)


@pytest.mark.parametrize("layout", [ROWS, HALVES, COLUMNS], ids=["rows", "halves", "columns"])
@pytest.mark.parametrize(
    "memory", [PLAIN, SWIZZLED, gl.PaddedSharedLayout.with_identity_for([[32, 4]], [M, N], [1, 0])], ids=str
)
def test_what_a_thread_keeps(run, rng, memory, layout):
    x, out = values(rng, np.float32, M * N), poison(M * N, np.float32)
    made = run(kept, 1, out, x, 3, memory, layout, layout)
    with np.errstate(over="ignore", invalid="ignore"):
        same(out, x * np.float32(8))
    # Columns go to row-major memory by matrix instructions, in which lanes write for each other.
    by_matrices = "_matrix_" in made.asm["cuda"]
    assert bool(barriers(made)) == by_matrices


@pytest.mark.parametrize(
    ("a", "b"), [(ROWS, HALVES), (HALVES, COLUMNS), (REPEATED, REPEATED)], ids=["rows", "columns", "repeated"]
)
def test_what_others_hold_too(run, rng, a, b):
    """Other threads read what one wrote: those of another layout, or those that hold the same."""
    x, out = values(rng, np.float32, M * N), poison(M * N, np.float32)
    made = run(kept, 1, out, x, 2, SWIZZLED, a, b)
    with np.errstate(over="ignore", invalid="ignore"):
        same(out, x * np.float32(4))
    assert [why.partition(" of smem")[0] for why in barriers(made) if "smem" in why]


@weft.jit
def copied(out, x, blocks, stages: gl.constexpr, memory: gl.constexpr, layout: gl.constexpr, swapped: gl.constexpr):
    """Sums of blocks through a ring of copies."""
    ring = gl.allocate_shared_memory(gl.float32, [stages, M, N], memory)
    i, j = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    at = x + i[:, None] * N + j[None, :]
    total = gl.zeros([M, N], gl.float32, layout)
    now, then = ring.index(0), ring.index(1)
    async_copy.async_copy_global_to_shared(now, at, mask=blocks > 0)
    async_copy.commit_group()
    for k in range(blocks):
        after = then if swapped else ring.index((k + 1) % stages)
        async_copy.async_copy_global_to_shared(after, at + (k + 1) * (M * N), mask=k + 1 < blocks)
        async_copy.commit_group()
        async_copy.wait_group(1)
        total += (now if swapped else ring.index(k % stages)).load(layout)
        now, then = then, now
    gl.store(out + i[:, None] * N + j[None, :], total)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("memory", "layout"), [(SWIZZLED, ROWS), (PLAIN, BY_LANE)], ids=["vectors", "matrices"])
def test_copies_that_a_thread_waits_for(run, rng, memory, layout, swapped):
    blocks = 5
    x, out = values(rng, np.float32, blocks * M * N), poison(M * N, np.float32)
    made = run(copied, 1, out, x, blocks, 2, memory, layout, swapped)
    expected = np.zeros(M * N, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for block in np.array(x).reshape(blocks, -1):
            expected += block
    same(out, expected)
    assert len(barriers(made)) == (0 if layout is ROWS else 2)
    assert ("load_matrix_" in made.asm["cuda"]) == (layout is BY_LANE)


@weft.jit
def views(out, x, which: gl.constexpr, layout: gl.constexpr, M: gl.constexpr):
    """Handles of the allocation's own type, whose elements lie elsewhere all the same."""
    smem = gl.allocate_shared_memory(gl.float32, [2, M, M], PLAIN)
    smem.index(0).store(load_matrix(x, M, M, layout))
    smem.index(1).store(load_matrix(x + M * M, M, M, layout))
    if which == "turned":
        seen = smem.index(0).permute([1, 0])
    elif which == "turned twice":
        seen = smem.index(0).permute([1, 0]).permute([1, 0])
    elif which == "between":
        rows = smem.index(0)._reinterpret(gl.float32, [4, M // 2, M], PLAIN)
        seen = rows.index(1)._reinterpret(gl.float32, [M, M], PLAIN)
    else:
        seen = smem.index(0).slice(0, M, dim=0)
    store_matrix(out, seen.load(layout), M, M, layout)


@pytest.mark.parametrize(
    ("which", "count"), [("turned", 1), ("turned twice", 0), ("between", 1), ("whole", 0)], ids=lambda value: str(value)
)
def test_views_of_a_buffer(run, rng, which, count):
    x, out = values(rng, np.float32, 2 * 32 * 32), poison(32 * 32, np.float32)
    made = run(views, 1, out, x, which, gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]), 32)
    first = np.array(x)[:1024].reshape(32, 32)
    expected = {"turned": first.T, "between": np.array(x)[512:1536].reshape(32, 32)}.get(which, first)
    same(out, np.ascontiguousarray(expected).ravel())
    assert len(barriers(made)) == count


@weft.jit
def after_a_sum(out, x, a: gl.constexpr, b: gl.constexpr):
    """The sum takes a barrier of its own, after which the buffer may be written."""
    smem = gl.allocate_shared_memory(gl.float32, [M, N], SWIZZLED)
    mine = load_matrix(x, M, N, a)
    smem.store(mine)
    smem.store(mine - gl.max(gl.max(smem.load(b), 0), 0))
    store_matrix(out, smem.load(b), M, N, b)


def test_a_barrier_that_lowering_needs_anyway_is_not_doubled(run, rng):
    x, out = rng.normal(size=M * N).astype(np.float32), poison(M * N, np.float32)
    made = run(after_a_sum, 1, out, x, ROWS, COLUMNS)
    same(out, x - x.max())
    assert sum("shared.store of smem" in why for why in barriers(made)) == 0
    assert sum("shared.load_regs" in why for why in barriers(made)) == 1
    assert len(barriers(made)) == 3
