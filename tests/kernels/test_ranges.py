"""`range` on the GPU is Python's: any bounds and steps, both counter types, near overflow, in every form of a loop."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import same
from weft import language as gl
from weft.errors import Hazard
from weft.ir.core import walk

LINE = gl.BlockedLayout([1], [32], [4], [0])
LOW, HIGH = -(1 << 31), (1 << 31) - 1
CASES = [
    (10, 0, -3), (0, 10, -3), (0, 10, 3), (3, 3, 1), (5, -5, -1), (-5, 5, 1), (HIGH - 2, HIGH, 16), (HIGH - 40, HIGH, 16),
    (LOW + 2, LOW, -16), (LOW + 40, LOW, -16), (LOW, HIGH, HIGH), (LOW, HIGH, 1 << 30), (HIGH, LOW, LOW),
    (HIGH, LOW, -(1 << 30)),
    (HIGH - 3, HIGH, 1), (LOW + 3, LOW, -1), (0, HIGH, HIGH), (0, LOW, LOW),
]  # fmt: skip
LONG = [(a + (1 << 40), b + (1 << 40), c) for a, b, c in CASES[:6]] + [
    ((1 << 63) - 3, (1 << 63) - 1, 16), (-(1 << 63) + 40, -(1 << 63), -16), (-(1 << 63), (1 << 63) - 1, (1 << 62) + 5),
    ((1 << 63) - 1, -(1 << 63), -(1 << 63)),
]  # fmt: skip


@weft.jit
def until(lower, upper, step, most):
    count = 0
    last = lower * 0 + 77
    total = lower * 0
    for last in range(lower, upper, step):
        if count == most:
            break
        if count % 2 == 1:
            count += 1
            continue
        total = total * 3 + last
        count += 1
    return count, last, total


@weft.jit
def search(lower, upper, step, most):
    count = 0
    for i in range(lower, upper, step):
        if count == most:
            return i
        count += 1
    return lower * 0 - count


def wrapped(number, bits):
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


@weft.jit
def from_memory(out, bounds, most, form: gl.constexpr):
    lower, upper, step = gl.load(bounds), gl.load(bounds + 1), gl.load(bounds + 2)
    if form == "plain":
        count = 0
        total = lower * 0
        for i in range(lower, upper, step):
            count += 1
            total = total * 3 + i
        gl.store(out, count)
        gl.store(out + 1, total)
    elif form == "break":
        count, last, total = until(lower, upper, step, most)
        gl.store(out, count)
        gl.store(out + 1, total)
        gl.store(out + 2, last)
    else:
        gl.store(out, search(lower, upper, step, most))


def expected(form, bounds, most, bits):
    numbers, total, out = range(*bounds), 0, [-1, -1, -1]
    if form == "return":
        out[0] = numbers[most] if len(numbers) > most else -len(numbers)
        return out
    if form == "plain":
        for number in numbers:
            total = wrapped(total * 3 + number, bits)
        return [len(numbers), total, -1]
    count, last = 0, 77
    for last in numbers:
        if count == most:
            break
        if count % 2 == 0:
            total = wrapped(total * 3 + last, bits)
        count += 1
    return [count, total, last]


@pytest.mark.parametrize("form", ["plain", "break", "return"])
@pytest.mark.parametrize(("bits", "bounds"), [*((32, case) for case in CASES), *((64, case) for case in LONG)])
def test_run_time_bounds_and_steps(form, bits, bounds, run):
    for most in (1, 100):
        out = np.full(3, -1, f"i{bits // 8}")
        run(from_memory, 1, out, np.array(bounds, f"i{bits // 8}"), most, form)
        same(out, np.array(expected(form, bounds, most, bits), out.dtype))


@weft.jit
def constant(out, lower: gl.constexpr, upper: gl.constexpr, step: gl.constexpr, most, form: gl.constexpr):
    if form == "plain":
        count = 0
        total = 0
        for i in range(lower, upper, step):
            count += 1
            total = total * 3 + i
        gl.store(out, count)
        gl.store(out + 1, total)
    else:
        count, last, total = until(lower, upper, step, most)
        gl.store(out, count)
        gl.store(out + 1, total)
        gl.store(out + 2, last)


@pytest.mark.parametrize(
    "bounds", [(10, 0, -3), (0, 10, -3), (HIGH - 2, HIGH, 16), (LOW + 40, LOW, -16), (-1, HIGH, HIGH)]
)
@pytest.mark.parametrize("form", ["plain", "break"])
def test_constant_bounds(bounds, form, run):
    out = np.full(3, -1, np.int32)
    run(constant, 1, out, *bounds, 100, form)
    same(out, np.array(expected(form, bounds, 100, 32), np.int32))


@weft.jit
def steps_of_sixteen(out, lower, upper, most, form: gl.constexpr):
    count = 0
    if form == "plain":
        for _i in range(lower, upper, 16):
            count += 1
    else:
        for _i in range(lower, upper, 16):
            if count == most:
                break
            count += 1
    gl.store(out, count)


@pytest.mark.parametrize("form", ["plain", "break"])
@pytest.mark.parametrize(("lower", "upper"), [(HIGH - 2, HIGH), (HIGH - 31, HIGH), (0, 65), (65, 0), (LOW, LOW + 33)])
def test_a_constant_step_and_run_time_bounds(lower, upper, form, run):
    out = np.zeros(1, np.int32)
    run(steps_of_sixteen, 1, out, lower, upper, 100, form)
    same(out, np.array([len(range(lower, upper, 16))], np.int32))


@weft.jit
def of_threads(out, lower, upper):
    step = gl.thread_idx.x - 4
    if step == 0:
        step = 7
    count = 0
    nested = 0
    for i in range(lower, upper, step):
        count += 1
        for j in range(i, lower, -step):
            if j == upper:
                break
            nested += 1
    out[gl.thread_idx.x, 0] = count
    out[gl.thread_idx.x, 1] = nested


@pytest.mark.parametrize(("lower", "upper"), [(0, 30), (30, 0), (HIGH - 30, HIGH), (LOW + 30, LOW)])
def test_a_step_of_each_thread(lower, upper, device):
    out = device.array(np.zeros((64, 2), np.int32))
    of_threads[1](weft.LayoutTensor(out), lower, upper, block=(64,))
    steps = [t - 4 or 7 for t in range(64)]
    rows = [(len(range(lower, upper, s)), sum(len(range(i, lower, -s)) for i in range(lower, upper, s))) for s in steps]
    same(device.numpy(out), np.array(rows, np.int32))


@weft.jit
def zero_step(out, step, form: gl.constexpr):
    for i in range(5, 5, step):
        gl.store(out, i)
        if form == "break":
            break
    gl.store(out + 1, 7)


@pytest.mark.parametrize("form", ["plain", "break"])
def test_a_step_of_zero(form, device):
    """The simulator reports it, even where there is nothing to count; on a GPU there are no iterations."""
    out = device.array(np.zeros(2, np.int32))
    if device.is_gpu:
        zero_step[1](out, 0, form)
        same(device.numpy(out), np.array([0, 7], np.int32))
        return
    with pytest.raises(Hazard) as caught:
        zero_step[1](out, 0, form)
    assert caught.value.code == "hazard-loop-step"


@weft.jit
def ones(out, n, m):
    for i in range(n):
        gl.store(out + i, i)
    for j in range(m, 0, -1):
        gl.store(out + 16 + j, j)
    for k in range(0, 64, 8):
        gl.store(out + 48 + k // 8, k)


def test_loops_that_cannot_step_over_their_end_count_in_c_as_they_did():
    compiled = ones[1](np.zeros(64, np.int32), 10, 10)
    assert not [op for op in walk(compiled.front.lowered.body) if op.name == "control.trips"]
    text = compiled.asm["cuda"]
    assert "for (int i = 0; i < n; ++i)" in text
    assert "for (int j = m; j > 0; --j)" in text
    assert "for (int k = 0; k < 64; k += 8)" in text
