from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from weft.analysis.facts import facts
from weft.ir.build import Builder
from weft.ir.core import Func, FuncAttrs, ParamFacts, Value
from weft.ir.types import Pointer, ScalarType, float32, int1, int8, int32, int64, tile_type, uint8, uint32, uint64
from weft.layout import AutoLayout
from weft.ops import arith, control, hints, memory, program, tile

AUTO = AutoLayout()
I32 = ScalarType(int32)


class Kernel:
    """A function under construction: `p` is a 16-byte aligned pointer, `n` a multiple of 16, `m` any integer."""

    def __init__(self) -> None:
        self.build = Builder()
        self.p = Value(ScalarType(Pointer(float32)), "p")
        self.n, self.m = Value(I32, "n"), Value(I32, "m")

    def __call__(self, kind, *operands, **attrs):
        return self.build.emit(kind, *operands, **attrs)

    def func(self) -> Func:
        self(control.return_)
        return self.build.func(
            "k",
            (self.p, self.n, self.m),
            FuncAttrs(num_warps=4, stage="tile", params=(ParamFacts(16), ParamFacts(16), ParamFacts())),
        )

    def of(self, value):
        found = facts(self.func(), addresses=isinstance(value.type.element, Pointer))[value]
        return found.contiguous, found.divisible, found.constant

    def range(self, end, start=0):
        return self(tile.arange, start=start, end=end, layout=AUTO)

    def splat(self, x, *shape):
        return self(tile.splat, x, shape=shape, layout=AUTO)

    def number(self, value, *shape):
        type = tile_type(int32, shape, AUTO) if shape else I32
        return self(arith.constant, value=value, type=type)


ZERO = 1 << 64


def test_ranges():
    k = Kernel()
    assert k.of(k.range(64)) == ((64,), (ZERO,), (1,))
    k = Kernel()
    assert k.of(k.range(24, 8)) == ((16,), (8,), (1,))


def test_addresses_of_a_row():
    k = Kernel()
    pid = k(arith.mul, k(program.program_id, axis=0), k.number(64))
    offsets = k(arith.add, k.splat(pid, 64), k.range(64))
    at = k(memory.addptr, k.splat(k.p, 64), offsets)
    func = k.func()
    exact, assumed = facts(func), facts(func, addresses=True)
    for found in (exact, assumed):
        assert (found[offsets].contiguous, found[offsets].divisible) == ((64,), (64,))
        assert (found[at].contiguous, found[at].divisible) == ((64,), (16,))
    assert not exact[offsets].hull.nonnegative, "the number of the program times 64 may wrap"
    assert assumed[offsets].hull.nonnegative


def test_addresses_of_another_type():
    """The alignment of 16 bytes holds for elements of another type, and through an integer."""
    k = Kernel()
    other = k(arith.bitcast, k.p, element=Pointer(int64))
    back = k(arith.bitcast, k(arith.bitcast, other, element=int64), element=Pointer(float32))
    offsets = k(arith.add, k.splat(k.n, 64), k.range(64))
    places = [k(memory.addptr, k.splat(base, 64), offsets) for base in (other, back)]
    found = facts(k.func(), addresses=True)
    assert [(found[at].contiguous, found[at].divisible) for at in places] == [((64,), (16,)), ((64,), (16,))]


@pytest.mark.parametrize(("stride", "divisible"), [("n", (4, 16)), ("m", (4, 4))], ids=["aligned", "unaligned"])
def test_addresses_of_a_plane(stride, divisible):
    """Row-major: a row's elements are contiguous, and rows start 16-byte aligned where the stride is divisible by 16."""
    k = Kernel()
    rows = k(tile.broadcast, k(tile.expand_dims, k.range(8), axis=1), shape=(8, 32))
    columns = k(tile.broadcast, k(tile.expand_dims, k.range(32), axis=0), shape=(8, 32))
    offsets = k(arith.add, k(arith.mul, rows, k.splat(getattr(k, stride), 8, 32)), columns)
    at = k(memory.addptr, k.splat(k.p, 8, 32), offsets)
    assert k.of(at) == ((1, 32), divisible, (1, 1))


@pytest.mark.parametrize(("predicate", "run"), [("lt", 16), ("ge", 16), ("le", 1), ("gt", 1), ("eq", 1), ("ne", 1)])
def test_masks(predicate, run):
    k = Kernel()
    mask = k(arith.cmp, k.range(64), k.splat(k.n, 64), predicate=predicate)
    assert k.of(mask)[2] == (run,)


def test_masks_the_other_way_round():
    k = Kernel()
    mask = k(arith.cmp, k.splat(k.n, 64), k.range(64), predicate="gt")
    assert k.of(mask)[2] == (16,)


def test_quotient_and_remainder_need_numbers_that_are_not_negative():
    k = Kernel()
    eight = k.number(8, 64)
    up, down = k.range(64), k.range(0, -64)
    values = [k(kind, x, eight) for x in (up, down) for kind in (arith.div, arith.rem)]
    found = facts(k.func())
    assert [found[v].constant[0] for v in values] == [8, 1, 1, 1]
    assert [found[v].contiguous[0] for v in values] == [1, 8, 1, 1]


def test_shift_rounds_down_so_sign_does_not_matter():
    k = Kernel()
    assert k.of(k(arith.shr, k.range(0, -64), k.number(3, 64)))[2] == (8,)


def test_hints():
    k = Kernel()
    x = k(arith.add, k.splat(k.m, 64), k.range(64))
    hinted = k(
        hints.axes, k(memory.load, k(memory.addptr, k.splat(k.p, 64), x), None, None), divisible=(24,), contiguous=(4,)
    )
    assert k.of(hinted) == ((4,), (8,), (1,))


def test_loops_keep_what_holds_every_time():
    k = Kernel()
    zero, start = k.number(0), k.range(64)
    with k.build.region([I32, start.type, start.type]) as body:
        i, a, b = body.args
        k(control.yield_, k(arith.add, a, k.splat(i, 64)), k(arith.mul, b, k.splat(k.m, 64)))
    a, b = k(control.for_, zero, k.m, k.n, start, start, descending=False, regions=(body.done,))
    found = facts(k.func())
    assert (found[i].every, found[i].hull.nonnegative) == (16, True)
    assert (found[a].contiguous, found[a].divisible) == ((64,), (16,))
    assert (found[b].contiguous, found[b].divisible) == ((1,), (1,))


def test_while_and_if():
    k = Kernel()
    start = k.range(64)
    with k.build.region([start.type]) as before:
        k(control.condition, k(arith.cmp, k.m, k.n, predicate="lt"), before.args[0])
    with k.build.region([start.type]) as after:
        with k.build.region() as then:
            k(control.yield_, k(arith.add, after.args[0], k.splat(k.n, 64)))
        with k.build.region() as orelse:
            k(control.yield_, k(arith.add, after.args[0], k.number(8, 64)))
        test = k(arith.cmp, k.m, k.n, predicate="eq")
        k(control.yield_, k(control.if_, test, regions=(then.done, orelse.done)))
    result = k(control.while_, start, regions=(before.done, after.done))
    assert k.of(result) == ((64,), (8,), (1,))


# Against brute force

MAX = (1 << 31) - 1
RANGES = {int8: 8, uint8: 8, int32: 32, uint32: 32, int64: 64, uint64: 64}


def trunc_div(a, b):
    return np.where((a < 0) != (b < 0), -(np.abs(a) // np.abs(b)), np.abs(a) // np.abs(b))


def wrapped(array, dtype):
    """Exact numbers as those of the type."""
    size = 1 << dtype.bits
    low = size >> 1 if dtype.is_int_signed() else 0
    return (array + low) % size - low


EVALUATE = {
    arith.add: np.add,
    arith.sub: np.subtract,
    arith.mul: np.multiply,
    arith.div: trunc_div,
    arith.rem: lambda a, b: a - trunc_div(a, b) * b,
    arith.shl: np.left_shift,
    arith.shr: np.right_shift,
    arith.and_: np.bitwise_and,
    arith.or_: np.bitwise_or,
    arith.xor: np.bitwise_xor,
    arith.minimum: np.minimum,
    arith.maximum: np.maximum,
}
COMPARE = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
SHAPE = (8, 16)


@st.composite
def programs(draw):
    """A random straight-line kernel over 8x16 tiles, every tile in it with its numbers, and whether an int32 overflowed."""
    k = Kernel()
    n = draw(st.one_of(st.integers(-4, 4), st.sampled_from([1 << 27, (1 << 27) - 1, -(1 << 27)]))) * 16
    m = draw(st.one_of(st.integers(-50, 50), st.integers(MAX - 20, MAX), st.integers(-MAX - 1, 20 - MAX)))
    pid = draw(st.sampled_from([0, 3, 32768, MAX - 1]))
    values: dict[Value, np.ndarray] = {}
    overflowed = False

    def add(value, exact):
        nonlocal overflowed
        exact = np.broadcast_to(np.asarray(exact, object), value.type.shape)
        dtype = value.type.element
        values[value] = exact if dtype == int1 else wrapped(exact, dtype)
        return value

    def leaf():
        kind = draw(st.sampled_from(["range", "range", "number", "n", "m", "program"]))
        if kind == "number":
            number = draw(
                st.sampled_from([0, 1, 2, 3, 4, 6, 7, 8, 12, 15, 16, 65536, 1 << 30, MAX, -1, -8, -16, -MAX - 1])
            )
            return add(k.number(number, *SHAPE), number)
        if kind in ("n", "m"):
            number = wrapped(np.array(n if kind == "n" else m, object), int32)
            return add(k.splat(k.n if kind == "n" else k.m, *SHAPE), number)
        if kind == "program":
            return add(k.splat(k(program.program_id, axis=0), *SHAPE), pid)
        axis, start = draw(st.integers(0, 1)), draw(st.sampled_from([0, 0, 4, 8, -16, 5]))
        line = k.range(start + SHAPE[axis], start)
        wide = k(tile.broadcast, k(tile.expand_dims, line, axis=1 - axis), shape=SHAPE)
        return add(wide, np.expand_dims(np.arange(start, start + SHAPE[axis]), 1 - axis))

    tiles = [leaf() for _ in range(3)]
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from([*EVALUATE, arith.cmp, arith.select, arith.cast, tile.permute, tile.reshape]))
        x = draw(st.sampled_from(tiles))
        y = draw(st.sampled_from([t for t in tiles if t.type == x.type]))
        a, b = values[x], values[y]
        dtype = x.type.element
        if kind in (arith.div, arith.rem) and (not b.all() or (b == -1).any()):
            continue
        if kind in (arith.shl, arith.shr):
            amount = draw(st.integers(0, 5))
            y, b = k(arith.constant, value=amount, type=x.type), np.array(amount, object)
        if kind is arith.select:
            condition = k(arith.cmp, x, y, predicate="lt")
            add(condition, a < b)
            tiles.append(add(k(kind, condition, x, y), np.minimum(a, b)))
        elif kind is arith.cmp:
            predicate = draw(st.sampled_from(list(COMPARE)))
            add(k(kind, x, y, predicate=predicate), COMPARE[predicate](a, b))
        elif kind is arith.cast:
            target = draw(st.sampled_from(list(RANGES)))
            tiles.append(add(k(kind, x, dtype=target), a))
        elif kind is tile.permute:
            add(k(kind, x, order=(1, 0)), a.T)
        elif kind is tile.reshape:
            shape = draw(st.sampled_from([(128,), (16, 8), (1, 8, 16), (8, 16, 1), (8, 4, 4), (2, 4, 16)]))
            add(k(kind, x, shape=shape), a.reshape(shape))
        else:
            exact = EVALUATE[kind](a, b)
            tiles.append(add(k(kind, x, y), exact))
            overflowed |= dtype == int32 and bool((values[tiles[-1]] != exact).any())
    return k.func(), values, overflowed


@settings(deadline=None, max_examples=examples(400))
@given(programs())
def test_facts_hold(case):
    """Those that addresses are judged by hold where no int32 sum or product overflows, all others whatever wraps."""
    func, values, overflowed = case
    for addresses in (False,) if overflowed else (False, True):
        found = facts(func, addresses)
        for value, array in values.items():
            holds(found[value], array, getattr(value.type.element, "bits", 64))


def holds(f, array, bits):
    hull = f.hull
    if array.dtype != bool:
        assert (array >= hull.low).all() and (array <= hull.high).all()
        assert (array % hull.rest.modulus == hull.rest.residue).all()
    for axis in range(array.ndim):
        moved = np.moveaxis(array, axis, -1)
        runs = moved.reshape(*moved.shape[:-1], -1, f.contiguous[axis])
        assert ((np.diff(runs) - 1) % (1 << bits) == 0).all()
        assert (runs[..., 0] % f.divisible[axis] == 0).all()
        start = f.at(axis, f.contiguous[axis])
        assert (runs[..., 0] % start.modulus == start.residue).all()
        assert (np.diff(moved.reshape(*moved.shape[:-1], -1, f.constant[axis]).astype(object)) == 0).all()


def test_results_of_other_types_have_numbers_of_their_own():
    """Values and indices reduced together: nothing is known of either, in its own type."""
    k = Kernel()
    values, indices = k.number(1, 64), k(arith.cast, k.range(64), dtype=int64)
    with k.build.region([I32, ScalarType(int64), I32, ScalarType(int64)]) as combine:
        k(control.yield_, *combine.args[:2])
    first, second = k(tile.reduce, values, indices, axis=0, combine=combine.done)
    found = facts(k.func())
    for value in (first, second):
        hull = found.hull(value)
        assert hull is not None
        assert (hull.low, hull.high) == (value.type.element.min_value, value.type.element.max_value)
