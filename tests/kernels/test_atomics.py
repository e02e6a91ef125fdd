"""Atomics: every kind and type, masks, contention, old values, orders and scopes; each element exactly once."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.kernels.harness import NUMPY, frozen, poison, random, same, values
from weft import language as gl

LINE = gl.BlockedLayout([2], [32], [4], [0])
WHOLE = (gl.int32, gl.uint32, gl.int64, gl.uint64)


@weft.jit
def modify(memory, old, x, n, function: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    inside = at < n
    value = gl.load(x + at, mask=inside)
    gl.store(old + at, function(memory + at, value, mask=inside), mask=inside)


def wrapped_sum(a, b):
    with np.errstate(over="ignore"):
        return a + b


BITS = {gl.atomic_and: np.bitwise_and, gl.atomic_or: np.bitwise_or, gl.atomic_xor: np.bitwise_xor}
NUMBERS = {
    gl.atomic_add: wrapped_sum,
    gl.atomic_max: np.maximum,
    gl.atomic_min: np.minimum,
    gl.atomic_xchg: lambda a, b: b,
}
KINDS = {**BITS, **NUMBERS}


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
@pytest.mark.parametrize("function", KINDS, ids=lambda f: f.__name__)
def test_integers(run, rng, function, dtype):
    n = 250
    memory, x = values(rng, NUMPY[dtype], 256), values(rng, NUMPY[dtype], 256)
    changed, old = memory.copy(), poison(256, NUMPY[dtype])
    run(modify, 1, changed, old, x, n, function, 256, LINE)
    same(changed, np.where(np.arange(256) < n, KINDS[function](memory, x), memory))
    same(old, np.where(np.arange(256) < n, memory, poison(256, NUMPY[dtype])))


FLOATS = [
    (gl.atomic_add, d) for d in (gl.float16, gl.bfloat16, gl.float32, gl.float64)
] + [(f, d) for f in (gl.atomic_max, gl.atomic_min, gl.atomic_xchg) for d in (gl.float32, gl.float64)]  # fmt: skip


@pytest.mark.parametrize(("function", "dtype"), FLOATS, ids=lambda v: getattr(v, "__name__", str(v)))
def test_floats(run, rng, function, dtype):
    kind = NUMPY[dtype]
    memory, x = (frozen(rng.integers(-64, 65, 256).astype(kind) / kind(4)) for _ in range(2))
    changed, old = memory.copy(), poison(256, kind)
    run(modify, 1, changed, old, x, 256, function, 256, LINE)
    # The sum of zeros has a sign that no one promises.
    same(changed + kind(0), np.asarray(NUMBERS[function](memory, x) + kind(0)))
    same(old, memory.copy())


@weft.jit
def accumulate(memory, x, n, bins, sem: gl.constexpr, scope: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    value = gl.load(x + at, mask=at < n)
    gl.atomic_add(memory + at % bins, value, mask=at < n, sem=sem, scope=scope)


@pytest.mark.parametrize("sem", [None, "relaxed", "acquire", "release", "acq_rel"])
@pytest.mark.parametrize("scope", [None, "gpu", "sys"])
def test_contended_sums_in_every_order_and_scope(run, rng, sem, scope):
    n, bins = 3000, 7
    x, memory = random(rng, np.int32, n), np.zeros(bins, np.int32)
    run(accumulate, weft.cdiv(n, 512), memory, x, n, bins, sem, scope, 512, LINE, compiles=scope == "gpu")
    want = np.zeros(bins, np.int64)
    np.add.at(want, np.arange(n) % bins, x)
    same(memory, want.astype(np.int32))


def test_contended_sums_within_a_block(run, rng):
    x, memory = random(rng, np.uint64, 512), np.zeros(3, np.uint64)
    run(accumulate, 1, memory, x, 500, 3, "relaxed", "cta", 512, LINE)
    want = [sum(x[i:500:3].tolist()) & ((1 << 64) - 1) for i in range(3)]
    same(memory, np.array(want, np.uint64))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_contended_float_sums_of_whole_numbers_are_exact(run, rng, kind):
    x, memory = frozen(rng.integers(-2, 3, 2000).astype(kind)), np.zeros(5, kind)
    run(accumulate, 4, memory, x, 2000, 5, None, None, 512, LINE)
    want = np.zeros(5)
    np.add.at(want, np.arange(2000) % 5, x.astype(np.float64))
    same(memory, want.astype(kind))


@weft.jit
def add_up(memory, x, n, layout: gl.constexpr):
    at = gl.arange(0, 512, layout)
    gl.atomic_add(memory + at, gl.load(x + gl.program_id(0) * 512 + at, mask=at < n), mask=at < n, sem="relaxed")


@pytest.mark.parametrize(("kind", "each"), [(ml_dtypes.bfloat16, 2), (np.float16, 8), (np.float32, 4)])
def test_relaxed_sums_of_neighbours_are_vectors(run, rng, kind, each):
    """The whole numbers of three programs add up, and a mask whose limit is a multiple of 16 leaves vectors whole."""
    x, memory = frozen(rng.integers(-2, 3, 1536).astype(kind)), np.zeros(512, kind)
    made = run(add_up, 3, memory, x, 496, gl.BlockedLayout([each], [32], [4], [0]))
    same(memory, np.where(np.arange(512) < 496, x.reshape(3, 512).sum(0), 0).astype(kind))
    assert made is None or f"x{each}_gpu_if(" in made.asm["cuda"]


@weft.jit
def tickets(counter, taken, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    mine = gl.atomic_add(counter + at * 0, 1)
    gl.store(taken + mine, at)


def test_old_values_are_handed_out_once(run):
    counter, taken = np.zeros(1, np.int32), poison(2048, np.int32)
    run(tickets, 4, counter, taken, 512, LINE, ordered=False)
    same(counter, np.array([2048], np.int32))
    same(np.sort(taken), np.arange(2048, dtype=np.int32))


# Compare and swap


@weft.jit
def swap(memory, old, expected, x, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    gl.store(old + at, gl.atomic_cas(memory + at, gl.load(expected + at), gl.load(x + at), sem="acquire"))


@pytest.mark.parametrize("kind", [np.int16, np.float16, np.int32, np.float32, np.uint64, np.float64])
def test_compare_and_swap(run, rng, kind):
    memory, x = random(rng, kind, 256), random(rng, kind, 256)
    guess = memory.copy()
    guess[::3] = random(rng, kind, 256)[::3]
    changed, old = memory.copy(), poison(256, kind)
    hit = guess.view(f"u{guess.itemsize}") == memory.view(f"u{guess.itemsize}")
    run(swap, 1, changed, old, frozen(guess), x, 256, LINE)
    same(changed, np.where(hit, x, memory))
    same(old, memory.copy())


@weft.jit
def scalar_atomics(memory, old, by):
    gl.store(old, gl.atomic_add(memory, by))
    gl.store(old + 1, gl.atomic_xchg(memory + 1, by, scope="cta"))
    gl.store(old + 2, gl.atomic_cas(memory + 2, 7, by))
    gl.atomic_max(memory + 3, by, mask=by > 100)
    gl.atomic_or(memory + 4, 1, mask=by < 100)


def test_scalars_happen_once_a_program(run):
    memory, old = np.array([10, 20, 7, -5, 8], np.int32), poison(3, np.int32)
    run(scalar_atomics, 1, memory, old, 50)
    same(memory, np.array([60, 50, 50, -5, 9], np.int32))
    same(old, np.array([10, 20, 7], np.int32))


@weft.jit
def lock_and_add(lock, total, by):
    while gl.atomic_cas(lock, 0, 1, sem="acquire") != 0:
        pass
    gl.store(total, gl.load(total, volatile=True) + by)
    gl.barrier()
    gl.atomic_xchg(lock, 0, sem="release")


def test_a_spin_lock(run):
    lock, total = np.zeros(1, np.int32), np.zeros(1, np.int32)
    run(lock_and_add, 20, lock, total, 3, num_warps=1)
    same(total, np.array([60], np.int32))
    same(lock, np.zeros(1, np.int32))
