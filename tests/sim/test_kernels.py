"""Whole kernels on tiles against NumPy: arithmetic, shapes, memory, programs, control flow."""

from __future__ import annotations

import operator

import ml_dtypes
import numpy as np
import pytest

from tests.sim.build import BY_NUMPY, GRID, LINE, TARGET, Kernel, buffer, elementwise, pointer, run
from weft import sim
from weft.ir.define import OPS
from weft.ir.types import ScalarType, bfloat16, float16, float32, int1, int8, int32, int64, uint8
from weft.layout import SliceLayout
from weft.ops import arith, control, elements, memory, program, tile

N = 256
RNG = np.random.default_rng(7)


def test_every_operation_has_a_rule():
    assert [name for name, kind in OPS.items() if kind not in sim.RULES] == []


@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        (arith.add, operator.add), (arith.sub, operator.sub), (arith.mul, operator.mul),
        (arith.and_, operator.and_), (arith.or_, operator.or_), (arith.xor, operator.xor),
        (arith.rem, np.fmod), (arith.minimum, np.minimum), (arith.maximum, np.maximum),
    ],
    ids=lambda v: getattr(v, "name", ""),
)  # fmt: skip
def test_integer_operations(kind, reference):
    x = RNG.integers(-(2**31), 2**31, N).astype(np.int32)
    y = np.where((v := RNG.integers(-1000, 1000, N)) == 0, 7, v).astype(np.int32)
    found = elementwise([x, y], np.dtype(np.int32), lambda k, a, b: k.emit(kind, a, b))
    np.testing.assert_array_equal(found, reference(x, y))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("kind", [arith.add, arith.mul, arith.div_rn], ids=lambda k: k.name)
def test_float_operations(kind, dtype):
    x, y = RNG.normal(size=(2, N)).astype(dtype)
    reference = {arith.add: operator.add, arith.mul: operator.mul, arith.div_rn: operator.truediv}[kind]
    wide = np.float64 if dtype == np.float64 else np.float32
    found = elementwise([x, y], np.dtype(dtype), lambda k, a, b: k.emit(kind, a, b))
    np.testing.assert_array_equal(found, reference(x.astype(wide), y.astype(wide)).astype(dtype))


def test_shifts_clamp():
    x = RNG.integers(-(2**31), 2**31, N).astype(np.int32)
    amount = RNG.integers(-5, 50, N).astype(np.int32)
    left = elementwise([x, amount], np.dtype(np.int32), lambda k, a, b: k.emit(arith.shl, a, b))
    right = elementwise([x, amount], np.dtype(np.int32), lambda k, a, b: k.emit(arith.shr, a, b))
    inside = (amount >= 0) & (amount < 32)
    np.testing.assert_array_equal(left[inside], (x.astype(np.int64) << np.abs(amount))[inside].astype(np.int32))
    np.testing.assert_array_equal(right[inside], (x >> np.where(inside, amount, 0))[inside])
    assert not left[~inside].any()
    np.testing.assert_array_equal(right[~inside], np.where(x < 0, -1, 0)[~inside])


def test_casts_and_bitcasts_between_stores():
    x = RNG.normal(size=N).astype(np.float32)
    half = elementwise([x], np.dtype(ml_dtypes.bfloat16), lambda k, a: k.emit(arith.cast, a, dtype=bfloat16))
    np.testing.assert_array_equal(half, x.astype(ml_dtypes.bfloat16))
    bits = elementwise([x], np.dtype(np.int32), lambda k, a: k.emit(arith.bitcast, a, element=int32))
    np.testing.assert_array_equal(bits, x.view(np.int32))
    flags = elementwise([x], np.dtype(bool), lambda k, a: k.cmp("lt", a, k.number(0.0, a)))
    np.testing.assert_array_equal(flags, x < 0)


def test_bool_memory_holds_any_byte():
    raw = np.array([0, 1, 2, 255] * (N // 4), np.uint8)
    out = np.zeros(N, np.uint8)
    k = Kernel(("x", pointer(int1)), ("out", pointer(uint8)))
    offsets = k.arange(N)
    k.store(k.params[1], offsets, k.emit(arith.cast, k.load(k.params[0], offsets), dtype=uint8))
    run(k.done(), raw, out)
    np.testing.assert_array_equal(out, raw != 0)


def copy_2d(shape: tuple[int, int]):
    """Strided 2D copy with masks, as a kernel of two pointers, two sizes and four strides."""
    k = Kernel(
        ("x", pointer(float32)), ("y", pointer(float32)),
        *[(name, int32) for name in ("rows", "cols", "xs0", "xs1", "ys0", "ys1")],
    )  # fmt: skip
    x, y, rows, cols, xs0, xs1, ys0, ys1 = k.params

    def axis(dim: int, size: int, limit):
        index = k.emit(tile.arange, start=0, end=size, layout=SliceLayout(1 - dim, GRID))
        start = k.mul(k.emit(program.program_id, axis=dim), k.number(size))
        index = k.add(index, k.splat(start, index))
        mask = k.cmp("lt", index, k.splat(limit, index))
        return index, mask

    def spread(value, dim: int):
        return k.emit(tile.broadcast, k.emit(tile.expand_dims, value, axis=1 - dim), shape=shape)

    def offsets(s0, s1):
        rows_part = spread(k.mul(i, k.splat(s0, i)), 0)
        return k.add(rows_part, spread(k.mul(j, k.splat(s1, j)), 1))

    i, below_rows = axis(0, shape[0], rows)
    j, below_cols = axis(1, shape[1], cols)
    mask = k.emit(arith.and_, spread(below_rows, 0), spread(below_cols, 1))
    k.store(y, offsets(ys0, ys1), k.load(x, offsets(xs0, xs1), mask), mask)
    return k.done()


@pytest.mark.parametrize("cols", [200, 2000])
@pytest.mark.parametrize("transposed", [False, True])
def test_copy_of_the_seed(cols, transposed):
    rows = 1000
    x = RNG.normal(size=(rows, cols)).astype(np.float32)
    out = np.zeros((cols, rows), np.float32).T if transposed else np.zeros((rows, cols), np.float32)
    storage = out.T if transposed else out
    func = copy_2d((128, 256))
    report = run(
        func, x, storage, rows, cols, cols, 1, *(s // 4 for s in out.strides), grid=(-(-rows // 128), -(-cols // 256))
    )
    assert report.programs == -(-rows // 128) * -(-cols // 256)
    np.testing.assert_array_equal(out, x)


def test_shapes():
    x = np.arange(64, dtype=np.int32)
    out = np.zeros(64, np.int32)
    k = Kernel(("x", pointer(int32)), ("out", pointer(int32)), num_warps=4)
    loaded = k.load(k.params[0], k.grid_offsets((4, 16), 16))
    turned = k.emit(tile.permute, loaded, order=(1, 0))
    folded = k.emit(tile.reshape, turned, shape=(8, 8))
    first, second = k.emit(tile.split, k.emit(tile.join, folded, folded))
    total = k.add(first, second)
    offsets = k.grid_offsets((8, 8), 8, total.type.layout)
    k.store(k.params[1], offsets, total)
    run(k.done(), x, out)
    np.testing.assert_array_equal(out.reshape(8, 8), 2 * x.reshape(4, 16).T.reshape(8, 8))


def test_select_and_other():
    x = np.arange(N, dtype=np.int32)
    out = np.zeros(N, np.int32)
    k = Kernel(("x", pointer(int32)), ("out", pointer(int32)))
    offsets = k.arange(N)
    mask = k.below(offsets, 100)
    loaded = k.load(k.params[0], offsets, mask, k.number(-1, offsets))
    doubled = k.emit(arith.select, k.below(loaded, 50), k.add(loaded, loaded), loaded)
    k.store(k.params[1], offsets, doubled)
    run(k.done(), x, out)
    np.testing.assert_array_equal(out, np.where(x < 50, np.where(x < 100, 2 * x, -1), np.where(x < 100, x, -2)))


def test_programs_of_a_grid():
    out = np.full((2, 3, 4), -1, np.int32)
    k = Kernel(("out", pointer(int32)))
    ids = [k.emit(program.program_id, axis=a) for a in range(3)]
    sizes = [k.emit(program.num_programs, axis=a) for a in range(3)]
    at = k.add(k.mul(k.add(k.mul(ids[2], sizes[1]), ids[1]), sizes[0]), ids[0])
    k.store(k.params[0], at, at)
    func = k.done()
    run(func, out, grid=(4, 3, 2))
    np.testing.assert_array_equal(out.ravel(), np.arange(24))
    out[:] = -1
    report = run(func, out, grid=(4, 3, 2), programs=[(1, 0, 0), (3, 2, 1)])
    assert report.programs == 2
    assert out.ravel().nonzero()[0].size == 24
    np.testing.assert_array_equal(np.flatnonzero(out.ravel() >= 0), [1, 23])


def test_a_loop_assigns_in_parallel():
    out = np.zeros(2, np.int32)
    k = Kernel(("out", pointer(int32)), ("n", int32))
    types = [ScalarType(int32)] * 2
    with k.region([ScalarType(int32), *types], ["i", "a", "b"]) as body:
        _, a, b = body.args
        k.emit(control.yield_, b, k.add(a, b))
    a, b = k.emit(
        control.for_,
        k.number(0),
        k.params[1],
        k.number(1),
        k.number(0),
        k.number(1),
        descending=False,
        regions=(body.done,),
    )
    k.store(k.params[0], k.number(0), a)
    k.store(k.params[0], k.number(1), b)
    run(k.done(), out, 10)
    assert out.tolist() == [55, 89]


def test_descending_loop():
    out = np.zeros(16, np.int32)
    k = Kernel(("out", pointer(int32)))
    with k.region([ScalarType(int32), ScalarType(int32)]) as body:
        i, n = body.args
        k.store(k.params[0], n, i)
        k.emit(control.yield_, k.add(n, k.number(1)))
    k.emit(control.for_, k.number(9), k.number(-1), k.number(-3), k.number(0), descending=True, regions=(body.done,))
    run(k.done(), out)
    assert out.tolist()[:5] == [9, 6, 3, 0, 0]


def collatz(k: Kernel, start):
    """Steps to 1, as a while over (value, count)."""
    types = [start.type, start.type]
    with k.region(types) as condition:
        value, count = condition.args
        k.emit(control.condition, k.cmp("gt", value, k.number(1, value)), value, count)
    with k.region(types) as body:
        value, count = body.args
        odd = k.cmp("ne", k.emit(arith.and_, value, k.number(1, value)), k.number(0, value))
        with k.region() as then:
            k.emit(control.yield_, k.add(k.mul(value, k.number(3, value)), k.number(1, value)))
        with k.region() as orelse:
            k.emit(control.yield_, k.emit(arith.div, value, k.number(2, value)))
        k.emit(
            control.yield_,
            k.emit(control.if_, odd, regions=(then.done, orelse.done)),
            k.add(count, k.number(1, count)),
        )
    return k.emit(control.while_, start, k.number(0, start), regions=(condition.done, body.done))[1]


def steps(n: int) -> int:
    count = 0
    while n > 1:
        n, count = 3 * n + 1 if n % 2 else n // 2, count + 1
    return count


def test_while_and_if_on_scalars():
    out = np.zeros(30, np.int32)
    k = Kernel(("out", pointer(int32)))
    pid = k.emit(program.program_id, axis=0)
    k.store(k.params[0], pid, collatz(k, pid))
    run(k.done(), out, grid=(30,))
    assert out.tolist() == [steps(n) for n in range(30)]


def test_functions_of_elements_may_branch():

    x = np.arange(N, dtype=np.int32)

    def body(k, value):
        with k.region([ScalarType(int32)]) as region:
            k.emit(control.yield_, collatz(k, region.args[0]))
        return k.emit(elements.map_elements, value, pack=1, regions=(region.done,))

    found = elementwise([x], np.dtype(np.int32), body)
    assert found.tolist() == [steps(int(n)) for n in x]


@pytest.mark.parametrize("kind", ["add", "max", "min", "and", "or", "xor", "xchg"])
def test_atomics_act_one_after_another(kind):
    index = RNG.integers(0, 5, N).astype(np.int32)
    value = RNG.integers(-100, 100, N).astype(np.int32)
    cells = np.arange(5, dtype=np.int32) * 10
    reference, expected = cells.copy(), np.zeros(N, np.int32)
    step = {
        "add": operator.add, "max": max, "min": min, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
        "xchg": lambda old, new: new,
    }[kind]  # fmt: skip
    for i in range(N):
        if i % 3:
            expected[i] = reference[index[i]]
            reference[index[i]] = step(reference[index[i]], value[i])
    out = np.zeros(N, np.int32)
    k = Kernel(*[(name, pointer(int32)) for name in ("index", "value", "cells", "out")])
    offsets = k.arange(N)
    mask = k.cmp("ne", k.emit(arith.rem, offsets, k.number(3, offsets)), k.number(0, offsets))
    at = k.address(k.params[2], k.load(k.params[0], offsets))
    old = k.emit(memory.atomic, at, k.load(k.params[1], offsets), mask, kind=kind)
    k.store(k.params[3], offsets, old, mask)
    run(k.done(), index, value, cells, out)
    np.testing.assert_array_equal(cells, reference)
    np.testing.assert_array_equal(out, expected)


def test_float_atomics():
    cells = np.zeros(1, np.float16)
    k = Kernel(("cells", pointer(float16)))
    zeros = k.number(0, k.arange(128))
    ones = k.emit(arith.constant, value=1.0, type=arith.with_element(zeros.type, float16))
    k.emit(memory.atomic, k.address(k.params[0], zeros), ones, None, kind="add")
    run(k.done(), cells)
    assert cells[0] == 128


def test_compare_and_swap_on_tiles():
    cells = np.array([3, 5, 3, 5], np.int64)
    k = Kernel(("cells", pointer(int64)))
    at = k.address(k.params[0], k.arange(4, LINE))
    three = k.emit(arith.constant, value=3, type=arith.with_element(at.type, int64))
    nine = k.emit(arith.constant, value=9, type=arith.with_element(at.type, int64))
    k.emit(memory.atomic_cas, at, three, nine)
    run(k.done(), cells)
    assert cells.tolist() == [9, 5, 9, 5]


def test_pointers_to_the_middle_of_storage():
    storage = np.arange(100, dtype=np.float32)
    out = np.zeros(4, np.float32)
    k = Kernel(("x", pointer(float32)), ("out", pointer(float32)))
    offsets = k.arange(4)
    back = k.emit(arith.sub, k.number(0, offsets), offsets)
    k.store(k.params[1], offsets, k.load(k.params[0], back))
    whole = buffer("x", storage)
    whole.offset = 40
    whole.address_low = (whole.address_low + 40) & 0xFFF
    sim.run(k.done(), (1, 1, 1), [whole, buffer("out", out)], target=TARGET)
    assert out.tolist() == [10, 9, 8, 7]


def test_one_tile_of_pointers_into_two_arrays():
    x, y = np.arange(8, dtype=np.int8), np.arange(8, dtype=np.int8) + 50
    out = np.zeros(8, np.int8)
    k = Kernel(*[(name, pointer(int8)) for name in ("x", "y", "out")])
    offsets = k.arange(8)
    odd = k.cmp("eq", k.emit(arith.and_, offsets, k.number(1, offsets)), k.number(1, offsets))
    at = k.emit(arith.select, odd, k.address(k.params[0], offsets), k.address(k.params[1], offsets))
    k.store(k.params[2], offsets, k.emit(memory.load, at, None, None))
    run(k.done(), x, y, out)
    np.testing.assert_array_equal(out, np.where(np.arange(8) % 2, x, y))


def test_scalar_arguments_of_every_type():
    arrays = {d: np.zeros(1, n) for n, d in BY_NUMPY.items() if d is not int1}
    k = Kernel(*[(f"p{i}", pointer(d)) for i, d in enumerate(arrays)], *[(f"s{i}", d) for i, d in enumerate(arrays)])
    half = len(arrays)
    for ptr, value in zip(k.params[:half], k.params[half:], strict=True):
        k.store(ptr, k.number(0), value)
    run(k.done(), *arrays.values(), *[3.5 if d.is_floating() else 3 for d in arrays])
    assert [float(a[0]) for a in arrays.values()] == [3.5 if d.is_floating() else 3 for d in arrays]


def test_report_counts_and_advises_once():
    out = np.zeros(N, np.int32)
    k = Kernel(("out", pointer(int32)))
    offsets = k.arange(N)
    shifted = k.emit(arith.sub, offsets, k.number(5, offsets))
    k.at(7)
    k.store(k.params[0], offsets, k.emit(arith.div, shifted, k.number(3, shifted)))
    report = run(k.done(), out, grid=(3,))
    np.testing.assert_array_equal(out, np.trunc((np.arange(N) - 5) / 3))
    assert [(a.rule, a.loc.line) for a in report.advice] == [("negative-division", 7), ("equal-stores", 7)]
    assert report.operations == 3 * 8
    assert "3 programs" in str(report)
    assert "truncated" in str(report)


@pytest.mark.parametrize("progress", [None, True, False])
def test_no_progress_where_nobody_watches(progress, capsys, monkeypatch):
    from weft.sim.machine import launch

    monkeypatch.setattr(launch, "PROGRESS_AFTER", 0.0)
    k = Kernel(("out", pointer(int32)))
    k.store(k.params[0], k.emit(program.program_id, axis=0), k.number(1))
    out = np.zeros(3, np.int32)
    run(k.done(), out, grid=(3,), progress=progress)
    assert out.tolist() == [1, 1, 1]
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    k = Kernel(("out", pointer(int32)))
    k.store(k.params[0], k.emit(program.program_id, axis=0), k.number(1))
    run(k.done(), np.zeros(3, np.int32), grid=(3,), progress=True)
    assert "simulating kernel" in capsys.readouterr().err
