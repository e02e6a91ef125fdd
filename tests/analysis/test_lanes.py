"""How values differ between the lanes of a warp: what is proved of index arithmetic, and that nothing false is."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from weft.analysis.scopes import scopes
from weft.ir.build import Builder
from weft.ir.core import FuncAttrs, ParamFacts, Value
from weft.ir.types import ScalarType, int1, int32, int64
from weft.ops import arith, control, hints, program, warp

I32, I64 = ScalarType(int32), ScalarType(int64)
THREADS = 256
BLOCK_ID = 5


class Kernel:
    """A kernel of 256 threads, with what each value is in them in block 5 for n = 48 (a multiple of 16) and m = 7."""

    def __init__(self) -> None:
        self.build = Builder()
        self.n, self.m = Value(I32, "n"), Value(I32, "m")
        thread = np.arange(THREADS)
        self.numbers = {self.n: np.full(THREADS, 48), self.m: np.full(THREADS, 7)}
        self.thread = self.source(program.thread_id, thread)
        self.lane = self.source(program.lane_id, thread % 32)
        self.warp = self.source(program.warp_id, thread // 32)
        self.pid = self.source(program.program_id, np.full(THREADS, BLOCK_ID), axis=0)

    def source(self, kind, numbers, **attrs):
        value = self.build.emit(kind, **attrs)
        self.numbers[value] = numbers
        return value

    def number(self, number, type=I32):
        return self.source(arith.constant, np.full(THREADS, number), value=number, type=type)

    def __call__(self, kind, *operands, **attrs):
        return self.build.emit(kind, *(self.number(x) if isinstance(x, int) else x for x in operands), **attrs)

    def scopes(self):
        self.build.emit(control.return_)
        attrs = FuncAttrs(
            num_warps=8, stage="tile", block=(THREADS, 1, 1), params=(ParamFacts(divisible=16), ParamFacts())
        )
        return scopes(self.build.func("k", (self.n, self.m), attrs), precise=True)


def less(k, a, b):
    return k(arith.cmp, a, b, predicate="lt")


def at(k, size):
    """The thread's index in the grid, in blocks of a size."""
    return k(arith.add, k(arith.mul, k.pid, size), k.thread)


CASES = [
    ("thread // 32", "warp", lambda k: k(arith.div, k.thread, 32)),
    ("thread // 64", "warp", lambda k: k(arith.div, k.thread, 64)),
    ("thread // 96", "warp", lambda k: k(arith.div, k.thread, 96)),
    ("thread // 48", "thread", lambda k: k(arith.div, k.thread, 48)),
    ("thread // 16", "thread", lambda k: k(arith.div, k.thread, 16)),
    ("thread // 16 // 2", "warp", lambda k: k(arith.div, k(arith.div, k.thread, 16), 2)),
    ("thread // 256", "block", lambda k: k(arith.div, k.thread, 256)),
    ("thread >> 5", "warp", lambda k: k(arith.shr, k.thread, 5)),
    ("thread & ~31", "warp", lambda k: k(arith.and_, k.thread, -32)),
    ("thread & 31", "thread", lambda k: k(arith.and_, k.thread, 31)),
    ("thread % 64 // 32", "warp", lambda k: k(arith.div, k(arith.rem, k.thread, 64), 32)),
    ("thread % 96 // 32", "warp", lambda k: k(arith.div, k(arith.rem, k.thread, 96), 32)),
    ("thread % 48 // 32", "thread", lambda k: k(arith.div, k(arith.rem, k.thread, 48), 32)),
    ("lane // 32", "block", lambda k: k(arith.div, k.lane, 32)),
    ("thread < 64", "warp", lambda k: less(k, k.thread, 64)),
    ("thread < 48", "thread", lambda k: less(k, k.thread, 48)),
    ("thread < 256", "block", lambda k: less(k, k.thread, 256)),
    ("64 > thread", "warp", lambda k: k(arith.cmp, k.number(64), k.thread, predicate="gt")),
    ("thread <= 63", "warp", lambda k: k(arith.cmp, k.thread, 63, predicate="le")),
    ("thread <= 64", "thread", lambda k: k(arith.cmp, k.thread, 64, predicate="le")),
    ("thread > 31", "warp", lambda k: k(arith.cmp, k.thread, 31, predicate="gt")),
    ("thread >= 32", "warp", lambda k: k(arith.cmp, k.thread, 32, predicate="ge")),
    ("thread == 32", "thread", lambda k: k(arith.cmp, k.thread, 32, predicate="eq")),
    ("thread // 32 == 1", "warp", lambda k: k(arith.cmp, k(arith.div, k.thread, 32), 1, predicate="eq")),
    ("thread < n", "thread", lambda k: less(k, k.thread, k.n)),
    ("thread < 2 * n", "warp", lambda k: less(k, k.thread, k(arith.mul, k.n, 2))),
    ("pid * 128 + thread < 1024", "warp", lambda k: less(k, at(k, 128), 1024)),
    ("pid * 16 + thread < 1024", "thread", lambda k: less(k, at(k, 16), 1024)),
    ("(pid * 128 + thread) // 32", "warp", lambda k: k(arith.div, at(k, 128), 32)),
    ("thread * 2 // 64", "warp", lambda k: k(arith.div, k(arith.mul, k.thread, 2), 64)),
    ("thread * 3 // 96", "thread", lambda k: k(arith.div, k(arith.mul, k.thread, 3), 96)),
    ("thread + m", "thread", lambda k: k(arith.add, k.thread, k.m)),
    ("warp + m", "warp", lambda k: k(arith.add, k.warp, k.m)),
    ("int64(thread) < 64", "warp", lambda k: less(k, k(arith.cast, k.thread, dtype=int64), k.number(64, I64))),
    ("bool(thread)", "thread", lambda k: k(arith.cast, k.thread, dtype=int1)),
    ("warp < m and thread < 64", "warp", lambda k: k(arith.and_, less(k, k.warp, k.m), less(k, k.thread, 64))),
    ("thread < 64 ? n : m", "warp", lambda k: k(arith.select, less(k, k.thread, 64), k.n, k.m)),
    ("thread < 50 ? n : m", "thread", lambda k: k(arith.select, less(k, k.thread, 50), k.n, k.m)),
    ("lane 0's", "warp", lambda k: k(warp.shuffle_idx, k.thread, 0)),
    ("lane lane's", "thread", lambda k: k(warp.shuffle_idx, k.thread, k.lane)),
    ("a vote", "warp", lambda k: k(warp.vote, less(k, k.thread, k.n))),
    ("claimed of warps", "warp", lambda k: k(hints.uniform, k.thread, scope="warp")),
    ("claimed of the block", "block", lambda k: k(hints.uniform, k.thread)),
    ("n claimed of warps", "block", lambda k: k(hints.uniform, k.n, scope="warp")),
]


@pytest.mark.parametrize(("scope", "make"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_is_proved(scope, make):
    k = Kernel()
    value = make(k)
    assert k.scopes()[value] == scope


def quotient(a, b):
    return np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)


EVALUATE = {
    arith.add: np.add, arith.sub: np.subtract, arith.mul: np.multiply, arith.and_: np.bitwise_and, arith.or_: np.bitwise_or,
    arith.xor: np.bitwise_xor, arith.div: quotient, arith.rem: lambda a, b: a - quotient(a, b) * b,
    arith.shl: lambda a, b: a << (b & 7), arith.shr: lambda a, b: a >> (b & 7),
}  # fmt: skip
COMPARE = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
CONSTANTS = (1, 2, 3, 4, 8, 16, 31, 32, 32, 32, 48, 63, 64, 64, 96, 128, 5, 7, -1, -32, -64, 0)


def random_values(random):
    """A kernel of random operations on the thread's index and uniform numbers, with the numbers of each in all threads."""
    k = Kernel()
    values = [k.thread, k.lane, k.thread, k.warp, k.pid, k.n, k.m]
    for _ in range(12):
        kind = random.choice([*EVALUATE, arith.cmp, arith.cmp])
        a, b = random.choice(values), random.choice(values)
        if random.random() < 0.7 or kind in (arith.shl, arith.shr):
            b = k.number(random.choice((1, 2, 3, 5, 6) if kind in (arith.shl, arith.shr) else CONSTANTS))
        x, y = (k.numbers[v].astype(np.int64) for v in (a, b))
        if kind in (arith.div, arith.rem) and not y.all():
            continue
        if kind is arith.cmp:
            predicate = random.choice(list(COMPARE))
            made, numbers = k(kind, a, b, predicate=predicate), COMPARE[predicate](x, y)
        else:
            made, numbers = k(kind, a, b), EVALUATE[kind](x, y).astype(np.int32)
            values.append(made)
        k.numbers[made] = numbers
    return k


def test_nothing_false_is_proved():
    random, proved = Random(0), 0
    for _ in range(300):
        k = random_values(random)
        for value, scope in k.scopes().items():
            numbers = k.numbers.get(value)
            if numbers is None or scope == "thread":
                continue
            rows = numbers.reshape(1 if scope == "block" else THREADS // 32, -1)
            assert (rows == rows[:, :1]).all(), (value, scope)
            proved += scope == "warp"
    assert proved > 500
