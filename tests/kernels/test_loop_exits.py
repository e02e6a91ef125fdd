"""Loops that end early for each thread on its own: `break`, `continue` and `return`, in kernels and helpers.

The kernels are compared with their own text, which Python runs once for each thread.
"""

from __future__ import annotations

from types import FunctionType, SimpleNamespace

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, frozen, poison, same
from weft import language as gl
from weft.language.marks import jit_of


def in_python(kernel, thread):
    """The function of a kernel or helper as this thread runs it, in plain Python."""
    raw = jit_of(kernel)
    language = SimpleNamespace(global_idx=SimpleNamespace(x=thread), static_range=range)
    helpers = {n: in_python(raw.__globals__[n], thread) for n in raw.__code__.co_names if is_helper(raw, n)}
    return FunctionType(raw.__code__, {**raw.__globals__, **helpers, "gl": language}, argdefs=raw.__defaults__)


def is_helper(raw, name):
    return jit_of(raw.__globals__.get(name)) is not None


def check(run, kernel, out, x, *numbers, threads=96):
    """Run it for `threads` threads, and in Python for each of them: `out` must hold the same afterwards."""
    want = out.copy()
    for thread in range(threads):
        in_python(kernel, thread)(want, x, *map(int, numbers))
    run(kernel, threads // 32, Viewed(out), Viewed(x), *numbers, block=32)
    same(out, want)


@weft.jit
def search(out, x, n):
    i = gl.global_idx.x
    j = found = -1
    for j in range(n):
        if x[i + j] > 6:
            found = x[i + j]
            break
    out[2 * i] = j
    out[2 * i + 1] = found


@pytest.mark.parametrize("n", [0, 1, 7, 40])
def test_a_search_leaves_the_counter_where_it_stopped(run, rng, n):
    x, out = frozen(rng.integers(0, 8, 136).astype(np.int32)), poison(192, np.int32)
    check(run, search, out, x, n)


@weft.jit
def backwards(out, x, n, step):
    i = gl.global_idx.x
    k = last = 0
    for k in range(n - 1, -1, -3):
        if x[i + k] == 0:
            break
        last += x[i + k]
    for m in range(1, n, step):
        if x[i + m] == 1:
            continue
        if x[i + m] == 2:
            break
        last = last * 2 + m
    for m in range(8, 0, -2):
        if x[i] == m:
            break
    out[3 * i] = k
    out[3 * i + 1] = last
    out[3 * i + 2] = m


@pytest.mark.parametrize(("n", "step"), [(1, 1), (9, 2), (20, 7)])
def test_steps_of_either_sign_and_known_at_run_time(run, rng, n, step):
    x, out = frozen(rng.integers(0, 9, 116).astype(np.int32)), poison(288, np.int32)
    check(run, backwards, out, x, n, step)


@weft.jit
def walk(out, x, n):
    i = gl.global_idx.x
    at, total, rounds = i, 0, 0
    while True:
        rounds += 1
        if rounds > n:
            break
        value = x[at]
        if value == 0:
            at += 1
            continue
        if value > 90:
            total = -total
            break
        total += value
        at = value
    out[2 * i] = total
    out[2 * i + 1] = rounds


def test_endless_loops_end_by_break(run, rng):
    x, out = frozen(rng.integers(0, 96, 200).astype(np.int32)), poison(192, np.int32)
    check(run, walk, out, x, 9)


@weft.jit
def guarded(out, x, n):
    i = k = gl.global_idx.x
    while k < n and x[k] != 3:
        if x[k] == 5:
            k = n + 1000
            break
        k += 1
    out[i] = k


@pytest.mark.parametrize("n", [1, 50, 96])
def test_the_condition_is_not_asked_again_after_a_break(run, rng, n):
    x, out = frozen(rng.integers(0, 7, n).astype(np.int32)), poison(96, np.int32)
    check(run, guarded, out, x, n)


@weft.jit
def never_again(out, x, n):
    i = gl.global_idx.x
    k = 0
    while x[k] >= 0:
        k += 1
        if k == n:
            break
    out[i] = k


def test_a_condition_that_would_read_beyond_the_end(run):
    x, out = frozen(np.arange(7, dtype=np.int32)), poison(96, np.int32)
    check(run, never_again, out, x, 7)


@weft.jit
def pairs(out, x, n):
    i = gl.global_idx.x
    count, first = 0, -1
    for a in range(n):
        if x[i + a] == 0:
            continue
        for b in range(a + 1, n):
            if x[i + b] == 0:
                break
            if x[i + a] + x[i + b] == 9:
                count += 1
                if first < 0:
                    first = a * 100 + b
                elif count > 3:
                    break
                else:
                    continue
            if b > 12:
                if x[i + b] == 1:
                    count += 100
                    break
                count += 10
            count += 0
        if count > 60:
            out[2 * i] = -count
            return
    out[2 * i] = count
    out[2 * i + 1] = first


@pytest.mark.parametrize("n", [3, 15, 30])
def test_nested_loops_and_a_return_from_both(run, rng, n):
    x, out = frozen(rng.integers(0, 9, 126).astype(np.int32)), poison(192, np.int32)
    check(run, pairs, out, x, n)


@weft.jit
def index_of(x, first, n, key):
    for j in range(n):
        for k in gl.static_range(2):
            if x[first + j] == key + k:
                return j, key + k
        if x[first + j] == 0:
            return -2, 0
    return -1, n


@weft.jit
def last_bit(value):
    while True:
        if value < 2:
            return value
        value = value // 2 if value % 2 == 0 else value - 2


@weft.jit
def helpers(out, x, n):
    i = gl.global_idx.x
    where, what = index_of(x, i, n, 4)
    out[3 * i] = where
    out[3 * i + 1] = what
    for j in range(n):
        if index_of(x, i + j, 3, 1)[0] == 2:
            out[3 * i + 2] = last_bit(x[i + j])
            break


def test_helpers_return_from_their_loops(run, rng):
    x, out = frozen(rng.integers(0, 12, 110).astype(np.int32)), poison(288, np.int32)
    check(run, helpers, out, x, 9)


@weft.jit
def unrolled(out, x, n):
    i = gl.global_idx.x
    total = 0
    for k in gl.static_range(4):
        j = 0
        while j < n:
            j += 1
            if x[i + j] == k:
                break
            if x[i + j] == 7:
                out[i] = -k
                return
        if j == n:
            break
        total = total * 10 + j
    out[i] = total


def test_loops_within_unrolled_ones(run, rng):
    x, out = frozen(rng.integers(0, 8, 110).astype(np.int32)), poison(96, np.int32)
    check(run, unrolled, out, x, 9)


@weft.jit
def vectors(out, x, n):
    i = gl.global_idx.x
    total = x.load[4](4 * i)
    for j in range(n):
        if total[1] > 40.0:
            break
        if total[0] < 0.0:
            continue
        total = total + x.load[4](4 * (i + j))
    out.store(4 * i, total)


def test_vectors_go_round(run, rng):
    x, out = frozen(rng.integers(-3, 20, 4 * 70).astype(np.float32)), poison(128, np.float32)
    run(vectors, 1, Viewed(out), Viewed(x), 30, block=32)
    rows, want = x.reshape(-1, 4), []
    for i in range(32):
        total = rows[i].copy()
        for j in range(30):
            if total[1] > 40:
                break
            if total[0] >= 0:
                total += rows[i + j]
        want.append(total)
    same(out.reshape(32, 4), np.array(want, np.float32))


@gl.aggregate
class Best:
    value: gl.tensor
    place: gl.tensor


@weft.jit
def best_of(x, first, n):
    best = Best(x[first], first)
    for j in range(n):
        if x[first + j] > best.value:
            best = Best(x[first + j], first + j)
        if best.value > 90:
            return best, x.tile[8](best.place // 8)
    return best, x.tile[8](0)


@weft.jit
def aggregates(out, x, n):
    i = gl.global_idx.x
    best, part = best_of(x, i, n)
    out[3 * i] = best.value
    out[3 * i + 1] = best.place
    out[3 * i + 2] = part[3]


def test_aggregates_and_views_are_returned(run, rng):
    x, out = frozen(rng.integers(0, 99, 128).astype(np.int32)), poison(96, np.int32)
    run(aggregates, 1, Viewed(out), Viewed(x), 20, block=32)
    want = []
    for i in range(32):
        end = next((j for j in range(20) if x[i + j] > 90), 19)
        place = i + int(np.argmax(x[i : i + end + 1]))
        want.append([x[place], place, x[place // 8 * 8 + 3] if x[place] > 90 else x[3]])
    same(out.reshape(32, 3), np.array(want, np.int32))
