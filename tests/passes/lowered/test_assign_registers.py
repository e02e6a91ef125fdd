"""Sharing variables never changes what a program means, and loops that need no moves get none."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.passes.programs import ARRAY, SCALAR, Endless, interpret, random_program
from weft.ir.build import Builder
from weft.ir.core import Func, FuncAttrs, ParamFacts, Value
from weft.ir.types import RegsType, float32
from weft.ops import arith, control, debug, regs
from weft.passes.lowered.assign_registers import assign_registers


@settings(deadline=None, max_examples=examples(300))
@given(seed=st.integers(0, 2**32), n=st.integers(-3, 3))
def test_meaning_stays(seed, n):
    func = random_program(seed)
    assert interpret(func, n, assign_registers(func).attrs.storage) == interpret(func, n)


def test_the_law_can_fail():
    """Were everything of one type to share a variable, the interpreter would notice."""
    funcs = [random_program(seed) for seed in range(40)]
    storages = [{v: v.type.count if v.type == ARRAY else 1 for v in assign_registers(f).attrs.storage} for f in funcs]
    wrong = sum(_differs(func, storage) for func, storage in zip(funcs, storages, strict=True))
    assert wrong > 10


def _differs(func, storage):
    try:
        return interpret(func, 2, storage) != interpret(func, 2)
    except Endless:
        return True


class Loop:
    """A loop that carries arrays: `body` gets the builder and the arguments and returns what is carried on."""

    def __init__(self, carried: int, body) -> None:
        self.b = b = Builder()
        self.n = Value(SCALAR, "n")
        one = b.emit(arith.constant, value=1, type=SCALAR)
        self.inits = [b.emit(arith.add, self.splat(i), self.splat(2)) for i in range(carried)]
        with b.region([SCALAR, *[ARRAY] * carried]) as region:
            self.args = list(region.args[1:])
            self.next = body(b, *self.args)
            b.emit(control.yield_, *self.next)
        self.results = b.emit(control.for_, self.n, self.n, one, *self.inits, descending=False, regions=(region.done,))
        self.results = list(self.results) if isinstance(self.results, tuple) else [self.results]

    def splat(self, i):
        return self.b.emit(regs.splat, self.b.emit(arith.constant, value=i, type=SCALAR), count=4)

    def storage(self, *live):
        for value in live:
            self.b.emit(debug.print_, value, prefix="")
        self.b.emit(control.return_)
        func: Func = self.b.func("kernel", (self.n,), FuncAttrs(num_warps=4, stage="lowered", params=(ParamFacts(),)))
        return assign_registers(func).attrs.storage


def test_an_accumulator_is_one_variable():
    loop = Loop(1, lambda b, acc: [b.emit(arith.add, acc, acc)])
    storage = loop.storage(*loop.results)
    assert {storage[v] for v in (*loop.inits, *loop.args, *loop.next, *loop.results)} == {0}


def test_a_swap_keeps_two():
    loop = Loop(2, lambda b, x, y: [y, x])
    storage = loop.storage(*loop.results)
    assert storage[loop.args[0]] != storage[loop.args[1]]
    for arg, init, result in zip(loop.args, loop.inits, loop.results, strict=True):
        assert storage[arg] == storage[init] == storage[result]


def test_an_initial_value_that_is_needed_later_is_kept():
    loop = Loop(1, lambda b, acc: [b.emit(arith.add, acc, acc)])
    storage = loop.storage(*loop.results, *loop.inits)
    assert loop.inits[0] not in storage
    assert storage[loop.args[0]] == storage[loop.next[0]] == storage[loop.results[0]]


def test_an_old_value_that_is_needed_later_is_kept():
    def body(b, acc):
        new = b.emit(arith.add, acc, acc)
        b.emit(debug.print_, acc, prefix="")
        return [new]

    loop = Loop(1, body)
    storage = loop.storage(*loop.results)
    assert storage.get(loop.next[0]) != storage[loop.args[0]]


def test_a_permutation_is_not_done_in_place():
    loop = Loop(1, lambda b, x: [b.emit(regs.gather, x, table=(1, 0, 3, 2))])
    storage = loop.storage(*loop.results)
    assert storage.get(loop.next[0]) != storage[loop.args[0]]


def test_one_side_of_a_branch_does_not_block_the_other():
    def body(b, acc):
        flag = b.emit(arith.constant, value=True, type=b.emit(arith.cmp, one(b), one(b), predicate="eq").type)
        with b.region() as then:
            b.emit(control.yield_, b.emit(arith.add, acc, acc))
        with b.region() as orelse:
            b.emit(control.yield_, acc)
        return [b.emit(control.if_, flag, regions=(then.done, orelse.done))]

    loop = Loop(1, body)
    storage = loop.storage(*loop.results)
    assert {storage[v] for v in (*loop.args, *loop.next, *loop.results)} == {0}


def one(b):
    return b.emit(arith.constant, value=1, type=SCALAR)


def test_dot_works_on_its_accumulator_only():
    b = Builder()
    acc_type = RegsType(float32, 4)
    zero = b.emit(arith.constant, value=0.0, type=acc_type)
    acc = b.emit(arith.add, zero, zero)
    tables = {"rows": (0, 0, 0, 0), "columns": (0, 0, 0, 0), "a_table": ((0, 1),), "b_table": ((2, 3),)}
    new = b.emit(regs.dot, zero, zero, acc, **tables)
    other = b.emit(regs.dot, new, zero, zero, **tables)
    itself = b.emit(regs.dot, other, zero, other, **tables)
    b.emit(debug.print_, itself, prefix="")
    b.emit(control.return_)
    storage = assign_registers(b.func("kernel", (), FuncAttrs(num_warps=4, stage="lowered"))).attrs.storage
    assert storage[acc] == storage[new]
    assert other not in storage
