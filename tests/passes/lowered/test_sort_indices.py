"""Indices of threads, taken apart: what changes in unrolled loops and constants go last, and every element stays the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.passes.threads import Threads, lowered, pointers
from tests.sim.build import run
from weft.ir.core import Func, Op, Value, walk
from weft.ir.types import Pointer, float32, int32
from weft.ops import arith, memory, program, thread


def makers(func: Func) -> dict[Value, Op]:
    return {op.result: op for op in walk(func.body) if len(op.results) == 1}


def test_a_loop_moves_one_address():
    """What a round adds to the address is the counter's multiple; by a number of run time nothing is gained."""
    k = Threads(*pointers("x", "out"), ("n", int32))
    x, out, n = k.params
    t = k.emit(program.thread_id)
    with k.loop(4) as i:
        down = k.plus(t, i)
        k.store(out, k.plus(k.times(down, n), t), k.load(x, k.plus(k.times(down, 96), t)))
    func = lowered(k.done())
    made = makers(func)
    (counter,) = (op.regions[0].args[0] for op in walk(func.body) if op.regions)
    (moved,) = (op for op in walk(func.body) if op.kind is memory.addptr and op.operands[0] in made)
    assert made[moved.operands[0]].operands[0] is func.params[0]
    product = made[moved.operands[1]]
    assert product.kind is arith.mul and product.operands[0] is counter


def test_constants_come_last():
    k = Threads(*pointers("p"))
    t = k.emit(program.thread_id)
    room = k.share(float32, 1024, "room")
    for j in (1, 5):
        k.put(room, k.times(k.plus(t, j), 8), k.load(k.params[0], k.plus(k.times(k.plus(t, j), 4), t)))
    func = lowered(k.done())
    made = makers(func)
    pointers_ = [op for op in walk(func.body) if op.kind is memory.addptr]
    (first,) = {op.operands[0] for op in pointers_ if op.operands[0] in made}
    assert [made[op.operands[1]].attrs["value"] for op in pointers_ if op.operands[0] is first] == [4, 20]
    indices = [made[op.operands[1]] for op in walk(func.body) if op.kind is thread.store_shared]
    assert [made[op.operands[1]].attrs["value"] for op in indices] == [8, 40]
    assert indices[0].operands[0] is indices[1].operands[0]


def test_other_uses_keep_the_index():
    """What else is made of a sum that may wrap needs it as it is."""
    k = Threads(*pointers("p"), ("n", int32))
    p, n = k.params
    at = k.plus(n, 3)
    with k.when(k.less(at, 100)):
        k.store(p, at, k.load(p, k.plus(at, 2)))
    func = lowered(k.done())
    (total,) = (op.result for op in walk(func.body) if op.kind is arith.add)
    first, second = (op for op in walk(func.body) if op.kind is memory.addptr)
    assert first.operands == (func.params[0], total)
    assert second.operands[0] is first.result and makers(func)[second.operands[1]].attrs["value"] == 2


SIZES = st.integers(0, 7)
TERMS = st.lists(st.tuples(st.sampled_from(["t", "i", "j", "n"]), SIZES, SIZES, SIZES), min_size=1, max_size=4)


@settings(deadline=None, max_examples=examples(40))
@given(TERMS, st.booleans())
def test_every_element_is_the_same(terms, subtract):
    """Random sums of products of sums, in two loops: what was read before and after the pass."""
    block, rounds = 20, 3
    k = Threads(("x", Pointer(int32)), ("out", Pointer(int32)), ("n", int32), block=(block,))
    x, out, n = k.params
    t = k.emit(program.thread_id)
    with k.loop(rounds, "i") as i, k.loop(5, "j", lower=1, step=2) as j:
        at = k.number(0)
        for name, a, b, c in terms:
            leaf = {"t": t, "i": i, "j": j, "n": n}[name]
            at = k.plus(at, k.times(k.plus(k.times(k.plus(leaf, a), b), j if c == 3 else i), c))
        at = k.emit(arith.sub, k.plus(at, 40), t) if subtract else at
        slot = k.plus(k.times(k.plus(k.times(i, 3), j), block), t)
        k.store(out, slot, k.load(x, at))
    func = k.done()
    data = np.random.default_rng(0).integers(0, 1 << 30, 50_000, dtype=np.int32)
    found = []
    for each in (func, lowered(func)):
        result = np.zeros(20 * block, np.int32)
        run(each, data, result, 6)
        found.append(result)
    np.testing.assert_array_equal(*found)
