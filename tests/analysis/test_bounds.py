"""Between which numbers integers lie, and what is made of it: unsigned divisions, and sums that C may compute as they stand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.passes.threads import Threads, lowered, pointers
from tests.sim.build import run
from weft.analysis.facts import facts
from weft.analysis.facts.words import word_of
from weft.ir.core import Func, walk
from weft.ir.types import Pointer, float32, int8, int32, int64, uint8, uint32
from weft.ops import arith, program, regs

Bounds = tuple[int, int]


def of_type(dtype) -> Bounds:
    """The smallest and the largest number of a type."""
    word = word_of(dtype)
    assert word is not None
    return word.low, word.high


WHOLE = of_type(int32)


def named(func: Func) -> dict[str, Bounds]:
    """The bounds of the function's named integers."""
    known = facts(func)
    hulls = {value.name: known.hull(value) for op in walk(func.body) for value in op.results if value.name}
    return {name: (hull.low, hull.high) for name, hull in hulls.items() if hull is not None}


def test_where_a_thread_is():
    k = Threads(block=(24, 4))
    for name, op in (("thread", program.thread_id), ("lane", program.lane_id), ("warp", program.warp_id)):
        k.emit(op, name=name)
    k.emit(program.program_id, axis=0, name="block")
    k.emit(program.num_programs, axis=1, name="blocks")
    k.global_idx(0), k.global_idx(1)
    found = named(k.done())
    assert found == {
        "thread": (0, 95), "lane": (0, 31), "warp": (0, 2),
        "block": (0, (2**31 - 1) // 24 - 1), "blocks": (1, 65535),
        "x": (0, (2**31 - 1) // 24 * 24 - 1), "y": (0, 65535 * 4 - 1),
    }  # fmt: skip


def test_what_may_wrap_is_known_by_its_low_bits():
    k = Threads(("n", int32))
    t = k.emit(program.thread_id)
    k.plus(t, k.params[0], "sum")
    k.times(k.times(t, 1 << 20), 1 << 20, "product")
    k.emit(arith.cast, k.plus(t, 200), dtype=uint8, name="narrow")
    k.emit(arith.cast, t, dtype=int8, name="fits")
    assert named(k.done()) == {"sum": WHOLE, "product": (0, 0), "narrow": of_type(uint8), "fits": (0, 127)}


def test_loops_and_branches():
    k = Threads(("n", int32))
    with k.loop(k.params[0], lower=3, step=2) as i:
        k.plus(i, 1, "in_loop")
    with k.loop(10) as j:
        k.times(j, 4, "small")
    assert named(k.done()) == {"in_loop": (4, 2**31 - 2), "small": (0, 36)}


OPERATIONS = (
    arith.add, arith.sub, arith.mul, arith.div, arith.rem, arith.and_, arith.or_, arith.xor, arith.minimum, arith.maximum,
)  # fmt: skip
steps = st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 30), st.integers(0, 30))


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(steps, min_size=1, max_size=12), st.lists(st.integers(-40, 2**20), min_size=2, max_size=2))
def test_every_number_is_in_its_range(program_, numbers):
    """Random sums over all threads of a block: the simulator's numbers, before and after the pass, and the ranges."""
    block = 40
    k = Threads(("out", Pointer(int32)), block=(block,))
    t = k.emit(program.thread_id)
    values = [t, *map(k.number, numbers), k.number(7), k.number(8)]
    for op, a, b in program_:
        lhs, rhs = values[a % len(values)], values[b % len(values)]
        if op in (arith.div, arith.rem):
            # Of a number that is not zero.
            rhs = k.plus(k.emit(arith.and_, rhs, k.number(15)), 1)
        values.append(k.emit(op, lhs, rhs))
    for number, value in enumerate(values):
        k.store(k.params[0], k.plus(t, number * block), value)
    func = k.done()
    low = lowered(func)
    known = facts(func)
    outs = []
    for each in (func, low):
        out = np.zeros(block * len(values), np.int32)
        run(each, out)
        outs.append(out)
    np.testing.assert_array_equal(*outs)
    for row, value in zip(outs[0].reshape(len(values), block), values, strict=True):
        found = known.hull(value)
        assert found is not None and found.low <= row.min() and row.max() <= found.high


def divided(dtype=int32, block=(96,), divisor=12, signed=False) -> list[str]:
    k = Threads(("out", Pointer(dtype)), ("n", dtype), block=block)
    out, n = k.params
    x = k.emit(arith.cast, k.emit(program.thread_id), dtype=dtype) if dtype != int32 else k.emit(program.thread_id)
    x = n if signed else x
    by = k.number(divisor, dtype) if divisor else k.emit(arith.maximum, n, k.number(1, dtype))
    k.store(out, 0, k.add(k.emit(arith.div, x, by), k.emit(arith.rem, x, by)))
    return [
        f"{op.name} {op.result.type}"
        for op in walk(lowered(k.done()).body)
        if op.kind in (arith.div, arith.rem, arith.shr, arith.and_)
    ]


def test_powers_of_two_are_shifts_and_masks():
    assert divided(divisor=4) == ["arith.shr i32", "arith.and i32"]
    assert divided(int64, divisor=32) == ["arith.shr i64", "arith.and i64"]


def test_others_are_unsigned():
    assert divided() == ["arith.div u32", "arith.rem u32"]
    assert divided(divisor=0) == ["arith.div u32", "arith.rem u32"]
    assert divided(int64) == ["arith.div u32", "arith.rem u32"], "numbers of 32 bits"
    assert divided(int64, divisor=0) == ["arith.div u64", "arith.rem u64"]


def test_what_may_be_negative_stays():
    assert divided(signed=True) == ["arith.div i32", "arith.rem i32"]
    assert divided(divisor=-4) == ["arith.div i32", "arith.rem i32"]


def test_what_is_less_than_its_divisor():
    assert divided(divisor=128) == []


def test_arrays_are_divided_alike():
    k = Threads(("out", Pointer(int32)))
    t = k.emit(program.thread_id)
    places = k.emit(regs.affine, t, offsets=((0, 5, 9, 13),))
    parts = k.emit(arith.div, places, k.emit(regs.splat, k.number(4), count=4))
    k.store(k.params[0], 0, parts)
    (op,) = (op for op in walk(lowered(k.done()).body) if op.kind in (arith.shr, arith.div))
    assert op.kind is arith.shr


@pytest.mark.parametrize("block", [None, (128,)])
def test_only_functions_of_threads_are_marked(block):
    k = Threads(*pointers("p"), ("n", int32))
    if block is None:
        del k.attrs["block"]
    n = k.params[1]
    x, y, z = (k.times(k.emit(program.thread_id), n, "x") for n in (3, n, k.times(n, n)))
    k.store(k.params[0], x, k.number(1.0, float32))
    k.store(k.params[0], y, k.number(1.0, float32))
    with k.when(k.less(z, 9)):
        k.store(k.params[0], z, k.number(1.0, float32))
    func = lowered(k.done())
    exact = {"arith.mul range": 1, "arith.mul address": 1} if block else {}
    made = {op.result: op.name for op in walk(func.body) if len(op.results) == 1}
    assert Counter(f"{made[value]} {why}" for value, why in func.attrs.exact.items()) == exact


def test_unsigned_values_have_their_own_ranges():
    k = Threads(("n", uint32))
    k.emit(arith.and_, k.params[0], k.number(7, uint32), name="low")
    k.emit(arith.rem, k.params[0], k.number(10, uint32), name="rest")
    k.emit(arith.shr, k.params[0], k.number(30, uint32), name="high")
    assert named(k.done()) == {"low": (0, 7), "rest": (0, 9), "high": (0, 3)}
