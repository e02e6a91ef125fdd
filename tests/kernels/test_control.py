"""Control flow, helpers, tuples, aggregates, programs and threads, through whole kernels."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import frozen, kept_poison, poison, random, same
from weft import language as gl

LINE = gl.BlockedLayout([2], [32], [4], [0])


# Loops


@weft.jit
def loops(out, x, n, step, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    total = gl.zeros([BLOCK], gl.int32, layout)
    for row in range(n):
        total += gl.load(x + row * BLOCK + at) * (row + 1)
    gl.store(out + at, total)
    total = gl.zeros_like(total)
    for row in range(n - 1, -1, -1):
        total = total * 3 + gl.load(x + row * BLOCK + at)
    gl.store(out + BLOCK + at, total)
    total = gl.zeros_like(total)
    for row in range(1, n, step):
        total += gl.load(x + row * BLOCK + at)
    gl.store(out + 2 * BLOCK + at, total)
    for k in gl.static_range(3, 0, -1):
        total = total * k + k
    gl.store(out + 3 * BLOCK + at, total)


@pytest.mark.parametrize(("n", "step"), [(0, 1), (1, 1), (2, 3), (7, 2), (8, 16)])
def test_loops(run, rng, n, step):
    x, out = frozen(rng.integers(-99, 99, (8, 256)).astype(np.int32)), poison((4, 256), np.int32)
    run(loops, 1, out, x, n, step, 256, LINE)
    rows = x[:n].astype(np.int64)
    backwards = np.zeros(256, np.int64)
    for row in rows[::-1]:
        backwards = backwards * 3 + row
    stepped = rows[1::step].sum(0) if n else np.zeros(256, np.int64)
    static = ((stepped * 3 + 3) * 2 + 2) * 1 + 1
    for found, want in zip(out, ((rows * (np.arange(n) + 1)[:, None]).sum(0), backwards, stepped, static), strict=True):
        same(found, want.astype(np.int32))


@weft.jit
def fibonacci(out, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    a = gl.zeros([BLOCK], gl.int64, layout)
    b = a + 1
    i, j = 0, 1
    for _ in range(n):
        a, b = b, a + b
        i, j = j, i + j
    at = gl.arange(0, BLOCK, layout)
    gl.store(out + at, a * 1000 + at)
    gl.store(out + BLOCK, i)


@pytest.mark.parametrize("n", [0, 1, 2, 10, 40])
def test_carried_values_change_together(run, n):
    out = poison(129, np.int64)
    run(fibonacci, 1, out, n, 128, LINE)
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    same(out, np.append(np.arange(128) + a * 1000, a))


@weft.jit
def collatz(out, x, n):
    at = gl.program_id(0)
    value, steps = gl.load(x + at), 0
    while value != 1:
        if value % 2 == 0:
            value = value // 2
        else:
            value = value * 3 + 1
        steps += 1
    gl.store(out + at, steps)


def test_while_loops_and_branches_of_scalars(run):
    out = poison(30, np.int32)
    run(collatz, 30, out, frozen(np.arange(1, 31, dtype=np.int64)), 30, num_warps=1)

    def steps(v):
        return 0 if v == 1 else 1 + steps(v // 2 if v % 2 == 0 else 3 * v + 1)

    same(out, np.array([steps(v) for v in range(1, 31)], np.int32))


# Branches and returns


@weft.jit
def branches(out, x, n, flag, mode: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    if gl.program_id(0) * BLOCK >= n:
        return
    value = gl.load(x + at, mask=at < n, other=0)
    if flag and n > 10:
        value = value + 1
    elif not flag or n < 0:
        value = value * 2
    if mode == "double":
        scale = 2
    else:
        scale = 3
    value = value * scale if n % 2 == 0 else value - scale
    gl.store(out + at, value, mask=at < n)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("mode", ["double", "treble"])
@pytest.mark.parametrize("n", [5, 200, 333])
def test_branches(run, rng, n, mode, flag):
    x, out = frozen(rng.integers(-99, 99, n).astype(np.int32)), poison(512, np.int32)
    run(branches, 4, out, x, n, flag, mode, 128, LINE)
    scale = 2 if mode == "double" else 3
    want = x + 1 if flag and n > 10 else x * 2 if not flag else x
    same(out[:n], (want * scale if n % 2 == 0 else want - scale).astype(np.int32))
    kept_poison(out, n)


# Helpers


@gl.constexpr_function
def twice(n):
    return 2 * n


@weft.jit
def polynomial(x, coefficients):
    total = gl.zeros_like(x)
    for i in gl.static_range(len(coefficients)):
        total = total * x + coefficients[i]
    return total


@gl.must_use_result
@weft.jit
def sort_pair(a, b):
    return gl.minimum(a, b), gl.maximum(a, b)


def adder(by):
    @weft.jit
    def add(x):
        return x + by

    return add


@weft.jit
def helpers(out, x, function: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    value = gl.load(x + at)
    low, high = sort_pair(value, 5)
    pair = (low, high)
    gl.store(out + at, polynomial(value, (1, -2, high)))
    gl.store(out + BLOCK + at, pair[1] - pair[0])
    gl.store(out + twice(BLOCK) + at, function(value))
    gl.store(out + 3 * BLOCK + at, max(min(value, 3), -3) + abs(value))
    gl.static_assert(twice(3) == 6 and isinstance(value, gl.tensor))


@pytest.mark.parametrize("by", [3, -4])
def test_helpers_and_closures(run, rng, by):
    x, out = frozen(rng.integers(-99, 99, 256).astype(np.int32)), poison((4, 256), np.int32)
    run(helpers, 1, out, x, adder(by), 256, LINE)
    high = np.maximum(x, 5)
    wanted = (x * x - 2 * x + high, high - np.minimum(x, 5), x + by, np.clip(x, -3, 3) + np.abs(x))
    for found, want in zip(out, wanted, strict=True):
        same(found, want.astype(np.int32))


@gl.aggregate
class Statistics:
    total: gl.tensor
    count: gl.tensor
    scale: gl.constexpr

    @weft.jit
    def add(self, x):
        return Statistics(self.total + x * self.scale, self.count + 1, self.scale)

    @weft.jit
    def mean(self):
        return self.total // self.count


@weft.jit
def aggregates(out, x, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    seen = Statistics(gl.zeros([BLOCK], gl.int32, layout), 0, 3)
    for row in range(n):
        value = gl.load(x + row * BLOCK + at)
        if row % 2 == 0:
            seen = seen.add(value)
    gl.store(out + at, seen.mean())
    gl.store(out + BLOCK + at, seen.total + seen.count)


def test_aggregates_go_through_loops_and_branches(run, rng):
    x, out = frozen(rng.integers(0, 999, (7, 128)).astype(np.int32)), poison((2, 128), np.int32)
    run(aggregates, 1, out, x, 7, 128, LINE)
    total = x[::2].sum(0) * 3
    same(out[0], (total // 4).astype(np.int32))
    same(out[1], (total + 4).astype(np.int32))


# Programs and threads


@weft.jit
def programs(out, BLOCK: gl.constexpr, layout: gl.constexpr):
    x, y, z = gl.program_id(0), gl.program_id(1), gl.program_id(2)
    flat = (z * gl.num_programs(1) + y) * gl.num_programs(0) + x
    at = gl.arange(0, BLOCK, layout)
    gl.store(out + flat * BLOCK + at, flat * 1000 + gl.num_programs(2) * 100 + at)


@pytest.mark.parametrize("grid", [5, (5,), (2, 3), (2, 3, 4), lambda bound: (bound["BLOCK"] // 32, 2)])
def test_grids(run, grid):
    size = (4, 2, 1) if callable(grid) else (*([grid] if isinstance(grid, int) else grid), 1, 1)[:3]
    count = size[0] * size[1] * size[2]
    out = poison((count, 128), np.int32)
    run(programs, grid, out, 128, gl.BlockedLayout([1], [32], [4], [0]))
    same(out, (np.arange(count)[:, None] * 1000 + size[2] * 100 + np.arange(128)).astype(np.int32))


@weft.jit
def threads(out, num_warps: gl.constexpr):
    gl.static_assert(gl.num_warps() == num_warps)
    gl.static_assert(gl.num_ctas() == 1)
    at = gl.warp_id() * 32 + gl.lane_id()
    gl.store(out + at, at * 10 + gl.warp_id())
    gl.barrier()
    gl.schedule_barrier()
    gl.thread_barrier()
    if gl.uniform(gl.program_id(0)) == 0:
        gl.store(out + num_warps * 32, gl.num_warps())


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
def test_threads(run, warps):
    out = poison(32 * warps + 1, np.int32)
    run(threads, 1, out, num_warps=warps)
    at = np.arange(32 * warps)
    same(out, np.append(at * 10 + at // 32, warps).astype(np.int32))


@weft.jit
def per_thread(out, old, counts, n):
    lane, mine = gl.lane_id(), gl.warp_id() * 32 + gl.lane_id()
    gl.store(old + mine, gl.atomic_add(counts + lane, mine))
    gl.atomic_add(counts + 32, mine)
    gl.atomic_max(counts + 33, mine, mask=lane < 7)
    gl.store(out + mine, gl.load(out + mine) * 2 + lane, mask=mine < n)
    gl.atomic_add(counts + 34, 1)


@pytest.mark.parametrize("warps", [1, 4])
def test_scalars_of_threads_are_stored_by_each(run, warps):
    count = 32 * warps
    start = np.arange(100, 100 + count, dtype=np.int32)
    out, old, counts = start.copy(), poison(count, np.int32), np.zeros(35, np.int32)
    run(per_thread, 1, out, old, counts, count - 5, num_warps=warps, ordered=warps == 1)
    mine = np.arange(count, dtype=np.int32)
    same(out, np.where(mine < count - 5, start * 2 + mine % 32, start).astype(np.int32))
    sums = mine.reshape(-1, 32).sum(0)
    same(counts, np.append(sums, [mine.sum(), (warps - 1) * 32 + 6, 1]).astype(np.int32))
    if warps == 1:
        same(old, np.zeros(32, np.int32))


@weft.jit
def optional(out, x, y, scale, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    value = gl.load(x + at, mask=at < n, other=0)
    if y is not None:
        value += gl.load(y + at, mask=at < n, other=0)
    gl.store(out + at, value * scale, mask=at < n)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("scale", [1, 2, 16, 2**33])
def test_absent_arguments_and_special_numbers(run, rng, given, scale):
    x, y, out = random(rng, np.int64, 100), random(rng, np.int64, 100), poison(128, np.int64)
    run(optional, 1, out, x, y if given else None, scale, 100, 128, LINE)
    with np.errstate(over="ignore"):
        same(out[:100], (x + y if given else x) * np.int64(scale))
    kept_poison(out, 100)


@gl.aggregate
class Complex:
    real: gl.tensor
    imaginary: gl.tensor

    @weft.jit
    def __add__(self, other):
        return Complex(self.real + other.real, self.imaginary + other.imaginary)

    @weft.jit
    def __neg__(self):
        return Complex(-self.real, -self.imaginary)

    @weft.jit
    def __mul__(self, other):
        if isinstance(other, Complex):
            real = self.real * other.real - self.imaginary * other.imaginary
            return Complex(real, self.real * other.imaginary + self.imaginary * other.real)
        return Complex(self.real * other, self.imaginary * other)


@weft.jit
def iterated(out, n):
    x = Complex(n, 1)
    for _ in range(3):
        y = -(x * x) * 2
        y += x.__mul__(3)
        x = y + x
    gl.store(out, x.real)
    gl.store(out + 1, x.imaginary)


def test_operators_of_aggregates(run):
    out, x = poison(2, np.int32), 2 + 1j
    run(iterated, 1, out, 2)
    for _ in range(3):
        x = -(x * x) * 2 + x * 3 + x
    assert out.tolist() == [x.real, x.imag]
