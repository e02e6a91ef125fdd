"""Helpers, methods, functions of constants, and what names mean."""

# ruff: noqa: B007, B009, B905, N805, T100 (kernels under test show what Python allows)

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

import weft
from tests.lang.support import INT, POINTER, build, jit, ops, read
from weft import language as gl
from weft.ir.core import FuncAttrs, ParamFacts
from weft.ir.types import ScalarType, float32, int32
from weft.lang.frame import spell

BLOCK = 128
WIDE = gl.constexpr(64)
CONFIG = SimpleNamespace(block=32, inner=SimpleNamespace(depth=3))
LAYOUT = gl.BlockedLayout([1], [32], [4], [0])


class Pair(NamedTuple):
    first: int
    second: int


@jit
def twice(x):
    return x + x


@jit
def scaled(x, factor: gl.constexpr = 3, *rest, offset=0, **others):
    total = x * factor + offset
    for extra in rest:
        total += extra
    return total, len(others)


@gl.constexpr_function
def half(n):
    return n // 2


@gl.aggregate
class Counter:
    value: gl.tensor
    step: gl.constexpr

    @jit
    def advance(self, by=1):
        self.value += by * self.step
        return self

    @jit
    def zero(step):
        return Counter(0, step)

    @gl.constexpr_function
    def doubled(self):
        return self.step * 2


@gl.aggregate
class Window:
    counter: Counter
    limit: gl.tensor

    @jit
    def __init__(self, limit):
        self.counter = Counter(limit, 1)
        self.limit = limit + 1


def test_a_helper_is_inlined_with_its_callers_line():
    @jit
    def kernel(out, n):
        y = twice(n)
        gl.store(out, y)

    func = read(kernel, out=POINTER, n=INT)
    (add,) = ops(func, "arith.add")
    assert add.result.name == "y"
    assert add.loc.function == "twice"
    assert (
        add.loc.caller.function == "test_a_helper_is_inlined_with_its_callers_line.<locals>.kernel".rpartition(".")[2]
    )
    assert add.loc.source.strip() == "return x + x"
    assert add.loc.caller.source.strip() == "y = twice(n)"
    assert add.loc.source[add.loc.col : add.loc.end_col] == "x + x"


def test_arguments_are_bound_as_in_python():
    @jit
    def kernel(out, n):
        a, none = scaled(n)
        gl.static_assert(none == 0)
        b, two = scaled(n, 2, n, 7, offset=1, p=1, q=2)
        gl.static_assert(two == 2)
        pair = (2, n)
        c, one = scaled(n, *pair, **NAMES)
        gl.static_assert(one == 1)

    assert len(ops(read(kernel, out=POINTER, n=INT), "arith.mul")) == 3


NAMES = {"offset": 4, "z": 1}


def test_what_is_read_from_outside_is_recorded_at_its_longest_path():
    offset = 5

    @jit
    def kernel(out, n):
        x = twice(n) + offset + CONFIG.inner.depth + BLOCK + WIDE.value
        gl.store(out, x)

    built = build(kernel, out=POINTER, n=INT)
    function = kernel.__weft_jit__
    mine = {spell(r.path): r.value for r in built.reads if r.owner is function}
    assert mine == {
        "twice": twice, "offset": 5, "CONFIG.inner.depth": 3, "BLOCK": 128, "WIDE": WIDE, "gl.store": gl.store,
    }  # fmt: skip
    assert mine["WIDE"] is WIDE


def test_reads_of_helpers_belong_to_them():
    @jit
    def kernel(out, n):
        counter = Counter.zero(2)
        gl.store(out, counter.value)

    reads = build(kernel, out=POINTER, n=INT).reads
    assert ("Counter", Counter) in [(spell(r.path), r.value) for r in reads if r.owner is Counter.zero.__weft_jit__]


def test_functions_made_per_call_see_their_own_captures():
    def make(factor):
        factor = gl.constexpr(factor)

        @jit
        def kernel(out, n):
            gl.store(out, n * factor)

        return kernel

    for factor in (2, 3):
        func = read(make(factor), out=POINTER, n=INT)
        assert ops(func, "arith.constant")[0].attrs["value"] == factor


def test_constant_functions_and_mathematics():
    @jit
    def kernel(out):
        size: gl.constexpr = half(BLOCK) + int(math.log2(8))
        name: gl.constexpr = "{}_{}".format("x", size).upper()
        gl.static_assert(size == 67, f"size is {size:>4}")
        gl.static_assert(name == "X_67" and "X" in name)
        gl.static_assert(f"{name!r:>8}" == "  'X_67'")
        gl.static_assert(LAYOUT.rank == len(LAYOUT.order))

    assert [op.name for op in read(kernel, out=POINTER).body.ops] == ["control.return"]


def test_pythons_functions_on_run_time_values():
    @jit
    def kernel(out, n, x):
        gl.static_assert(min(3, 4) + max((1, 2)) + abs(-1) == 6)
        a = min(n, 10)
        b = max(a, n, 3)
        c = abs(n)
        t = gl.arange(0, 64, gl.BlockedLayout([1], [32], [4], [0]))
        gl.static_assert(len(t) == 64)
        gl.static_assert(isinstance(n, gl.tensor) and not isinstance(n, gl.constexpr) and isinstance(3, gl.constexpr))
        gl.static_assert(float(n).dtype == gl.float32 and bool(n).dtype == gl.int1 and int(x).dtype == gl.int32)
        gl.static_assert(float(3) == 3.0 and int("4") == 4)
        gl.static_assert(tuple(range(3)) == (0, 1, 2))
        gl.static_assert(list(zip((1, 2), (3, 4))) == [(1, 3), (2, 4)])
        gl.static_assert(sum([1, 2, 3]) == 6 and any([0, 1]) and not all(x > 1 for x in (1, 2)))
        total = sum([n, a, b])
        for i, size in enumerate(reversed([4, 8])):
            gl.static_assert(size == (8, 4)[i])
        gl.static_assert(getattr(n, "dtype") == gl.int32 and not hasattr(n, "nothing"))

    func = read(kernel, out=POINTER, n=INT, x=INT)
    assert len(ops(func, "arith.min")) == 1
    assert len(ops(func, "arith.max")) == 2
    assert len(ops(func, "arith.add")) == 2


def test_comprehensions_run_element_by_element():
    @jit
    def kernel(out, n):
        sizes: gl.constexpr = [i * j for i in range(3) if i != 1 for j in (1, 2)]
        gl.static_assert(sizes == [0, 0, 2, 4])
        values = tuple(n + i for i in sizes)
        gl.static_assert(len(values) == 4)

    assert len(ops(read(kernel, out=POINTER, n=INT), "arith.add")) == 4


def test_tuples_lists_and_unpacking():
    @jit
    def kernel(out, n):
        first, *middle, last = (1, n, 2, 3)
        gl.static_assert(first + last == 4 and len(middle) == 2)
        (a, [b, c]), d = (n, (2, 3)), 4
        gl.static_assert([b, c] + (d,) == [2, 3, 4])
        gl.static_assert([1, *middle[1:]] == [1, 2])
        pair = Pair(1, 2)
        gl.static_assert(pair.second == 2)
        x = y = n
        gl.store(out, x + y)

    assert len(ops(read(kernel, out=POINTER, n=INT), "arith.add")) == 1


def test_dtypes_are_called():
    @jit
    def kernel(out, n):
        gl.store(out, gl.float32(n))
        x = gl.int64(3)
        gl.static_assert(x.dtype == gl.int64)

    (cast,) = ops(read(kernel, out=POINTER, n=INT), "arith.cast")[:1]
    assert cast.result.type == ScalarType(float32)


def test_methods_return_new_state():
    @jit
    def kernel(out, n):
        one = Counter(n, 4)
        two = one.advance(3)
        gl.static_assert(two.doubled() == 8)
        gl.store(out, one.value)
        gl.store(out, two.value)

    func = read(kernel, out=POINTER, n=INT)
    first, second = ops(func, "memory.store")
    casts = {op.result: op.operands[0] for op in ops(func, "arith.cast")}
    assert casts[first.operands[1]] is func.params[1]
    assert casts[second.operands[1]] is ops(func, "arith.add")[0].result


def test_fields_are_carried_by_path():
    @jit
    def kernel(out, n):
        counter = Counter.zero(2)
        other = Counter(n, 3)
        for i in range(n):
            counter = counter.advance()
            other.value = other.value * 2
        gl.static_assert(counter.step == 2)
        gl.store(out, counter.value + other.value)

    (loop,) = ops(read(kernel, out=POINTER, n=INT), "control.for")
    assert [v.name for v in loop.results] == ["counter_value", "other_value"]
    assert [v.type for v in loop.results] == [ScalarType(int32)] * 2


def test_nested_aggregates_and_a_jit_constructor():
    @jit
    def kernel(out, n):
        window = Window(n)
        window.counter.value += 1
        copy = window
        copy.counter = Counter(7, 1)
        gl.store(out, window.counter.value + window.limit)

    func = read(kernel, out=POINTER, n=INT)
    limit, first, total = ops(func, "arith.add")
    assert total.operands == (first.result, limit.result)


def test_combine_functions_are_inlined():
    @jit
    def largest(a, b):
        if a > b:
            return a
        return b

    @jit
    def kernel(out):
        t = gl.arange(0, 128, LAYOUT)
        gl.store(out, gl.reduce(t, 0, largest))

    assert len(ops(read(kernel, out=POINTER), "control.if")) == 1


def test_print_assert_and_breakpoint():
    @jit
    def kernel(out, n, BLOCK):
        pair = (n, 3)
        t = n + 1
        print("t is", t, n)
        print("block", BLOCK)
        print(f"t={t}")
        assert t > 0, "positive"
        assert BLOCK > 0
        breakpoint()

    func = read(kernel, out=POINTER, n=INT, BLOCK=4)
    said = ops(func, "debug.print")
    assert [op.attrs["prefix"] for op in said] == ["t is", "t="]
    assert ops(func, "debug.assert")[0].attrs["message"] == "positive"
    (stop,) = ops(func, "debug.breakpoint")
    assert stop.attrs["names"] == ("out", "n", "pair[0]", "t")
    assert stop.operands[3] is ops(func, "arith.add")[0].result


def test_values_have_their_authors_names():
    @jit
    def kernel(out, n):
        total = n + 1
        again = total
        low, high = n - 1, n * 2
        gl.store(out, total + low + high)

    func = read(kernel, out=POINTER, n=INT)
    assert [op.result.name for op in ops(func, "arith.add", "arith.sub", "arith.mul")][:3] == ["total", "low", "high"]
    assert [p.name for p in func.params] == ["out", "n"]


def test_what_the_function_is_compiled_for():
    @jit
    def kernel(out, n, BLOCK: gl.constexpr):
        gl.static_assert(BLOCK == 1)

    func = build(kernel, num_warps=8, out=POINTER, n=INT, BLOCK=gl.constexpr(1)).func
    assert func.name == "kernel"
    assert func.attrs == FuncAttrs(num_warps=8, target="sm_90a", params=(ParamFacts(16), ParamFacts()), stage="tile")


def test_none_is_not_a_run_time_value():
    @jit
    def kernel(out, n, bias):
        if bias is None:
            x = n
        else:
            x = n + bias
        gl.static_assert(n is not None and n != None)  # noqa: E711
        gl.store(out, x)

    assert ops(read(kernel, out=POINTER, n=INT, bias=None), "arith.add") == []


@weft.jit
def pairwise(values, count: gl.constexpr):
    """The sum of a tuple of tiles as a balanced tree."""
    if count == 1:
        return values[0]
    half: gl.constexpr = count // 2
    return pairwise(values[:half], half) + pairwise(values[half:], count - half)


@weft.jit
def power(x, n: gl.constexpr):
    if n == 0:
        return 1.0
    if n % 2:
        return x * power(x, n - 1)
    root = power(x, n // 2)
    return root * root


@weft.jit
def recursive(out, x, layout: gl.constexpr):
    at = gl.arange(0, 128, layout)
    v = gl.load(x + at)
    gl.store(out + at, pairwise((v, 2 * v, 3 * v, 4 * v, 5 * v), 5) + power(v, 13))


def test_a_helper_may_call_itself_with_other_constants():
    x = np.arange(128, dtype=np.float32) % 4
    out = np.zeros_like(x)
    recursive[1](out, x, gl.BlockedLayout([1], [32], [4], [0]))
    np.testing.assert_array_equal(out, 15 * x + x**13)
