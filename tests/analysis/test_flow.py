"""The engines of `weft.analysis.flow` against every execution of small random functions.

Their control flow is written down here a second time: operation by operation, as what it means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from random import Random

import pytest

from weft.analysis.flow import (
    LOOPS,
    STRUCTURED,
    Edge,
    States,
    Values,
    decides,
    inside,
    joints,
    pairs,
    program_order,
    reach,
    regions,
    repeated,
    unchanged,
    without,
)  # fmt: skip
from weft.ir.build import Builder
from weft.ir.core import Func, FuncAttrs, Op, ParamFacts, Region, Value, walk
from weft.ir.types import ScalarType, int1, int32
from weft.ops import arith, control, debug, elements

I32 = ScalarType(int32)
SEEDS = range(40)
Env = dict[Value, object]
Known = frozenset[object]


class Maker:
    """Random functions of constants, which stand for things that happen, with all kinds of regions nested in each other."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.b = Builder()
        self.n, self.c = Value(I32, "n"), Value(ScalarType(int1), "c")
        self.known = [self.n]
        self.left = 7

    def func(self) -> Func:
        self.statements(3, 0)
        self.b.emit(control.return_)
        return self.b.func("f", (self.n, self.c), FuncAttrs(num_warps=4, stage="tile", params=(ParamFacts(),) * 2))

    def any(self) -> Value:
        return self.random.choice(self.known)

    def statements(self, count: int, depth: int) -> None:
        for _ in range(count):
            kinds: list[Callable[[int], Iterable[Value]]] = [self.happens]
            if depth < 3:
                kinds += [self.loop, self.repeat, self.branch, self.beside, self.elements]
            self.known += self.random.choice(kinds)(depth)

    def happens(self, depth: int) -> list[Value]:
        if not self.left:
            return []
        self.left -= 1
        return [self.b.emit(arith.constant, value=self.left, type=I32)]

    def region(self, args: Sequence[Value], depth: int, end: Callable[[], None]) -> None:
        outer, self.known = self.known, [*self.known, *args]
        self.statements(self.random.randint(1, 2), depth + 1)
        end()
        self.known = outer

    def hand(self, kind, count: int, *first: Value) -> Callable[[], None]:
        return lambda: self.b.emit(kind, *first, *(self.any() for _ in range(count)))

    def loop(self, depth: int) -> tuple[Value, ...]:
        count = self.random.randint(0, 2)
        with self.b.region([I32] * (1 + count)) as body:
            self.region(body.args[1:], depth, self.hand(control.yield_, count))
        inits = [self.any() for _ in range(count)]
        return made(self.b.emit(control.for_, self.n, self.n, self.n, *inits, descending=False, regions=(body.done,)))

    def repeat(self, depth: int) -> tuple[Value, ...]:
        count, passed = self.random.randint(0, 2), self.random.randint(0, 2)
        with self.b.region([I32] * count) as before:
            self.region(before.args, depth, self.hand(control.condition, passed, self.c))
        with self.b.region([I32] * passed) as after:
            self.region(after.args, depth, self.hand(control.yield_, count))
        inits = [self.any() for _ in range(count)]
        return made(self.b.emit(control.while_, *inits, regions=(before.done, after.done)))

    def branch(self, depth: int) -> tuple[Value, ...]:
        count = self.random.randint(0, 2)
        ways = []
        for _ in range(2):
            with self.b.region() as way:
                self.region((), depth, self.hand(control.yield_, count))
            ways.append(way.done)
        return made(self.b.emit(control.if_, self.c, regions=tuple(ways)))

    def beside(self, depth: int) -> tuple[Value, ...]:
        counts = [self.random.randint(0, 2), *(0,) * self.random.randint(1, 2)]
        ways = []
        for count in counts:
            with self.b.region() as way:
                self.region((), depth, self.hand(control.yield_, count))
            ways.append(way.done)
        workers = (1,) * (len(counts) - 1)
        return made(self.b.emit(control.warp_specialize, regions=tuple(ways), num_warps=workers, num_regs=()))

    def elements(self, depth: int) -> tuple[Value, ...]:
        with self.b.region([I32]) as body:
            self.region(body.args, depth, self.hand(control.yield_, 1))
        return made(self.b.emit(elements.map_elements, self.any(), pack=1, regions=(body.done,)))


def made(results: Value | tuple[Value, ...] | None) -> tuple[Value, ...]:
    return () if results is None else results if isinstance(results, tuple) else (results,)


class Executions:
    """All that can happen: runs go on as sets of what a run holds (values, and some account of the past) until none is new.

    `past` are the accounts with which each operation is reached, `held` what each value can be."""

    def __init__(self, func: Func, happens: Callable[[Known, Op], Known]) -> None:
        self.happens = happens
        self.past: dict[Op, set[Known]] = defaultdict(set)
        self.held: dict[Value, set[object]] = defaultdict(set)
        start = {func.params[0]: "n", func.params[1]: "c"}
        self.ends = self.region(func.body, [(start, frozenset())])

    def region(self, region: Region, runs):
        for op in region.ops:
            seen = {*(value for env, _ in runs for value in env), *op.results}
            runs = distinct((visible(env, seen), past) for env, past in self.op(op, runs))
        return runs

    def set(self, env: Env, targets: Iterable[Value], found: Iterable[object]) -> Env:
        env = {**env, **dict(zip(targets, found, strict=True))}
        for value in env:
            self.held[value].add(env[value])
        return env

    def op(self, op: Op, runs):
        for _, past in runs:
            self.past[op].add(past)
        if op.kind is arith.constant:
            return [(self.set(env, op.results, [op.attrs["value"]]), self.happens(past, op)) for env, past in runs]
        if op.kind in LOOPS or op.kind is elements.map_elements:
            return self.loop(op, runs)
        if op.kind is control.if_:
            return [run for way in op.regions for run in self.handed(op, self.region(way, runs), way, op.results, 0)]
        if op.kind is control.warp_specialize:
            first, *others = ([self.region(way, [run]) for run in runs] for way in op.regions)
            out = []
            for number, ends in enumerate(first):
                beside = [ends, *(other[number] for other in others)]
                for past in self.together([{past for _, past in way} for way in beside]):
                    moved = self.handed(op, ends, op.regions[0], op.results, 0)
                    out += [(env, past) for env, _ in moved]
            return out
        return runs

    def together(self, ways: list[set[Known]]) -> set[Known]:
        """Accounts of the past behind regions that ran side by side: any one of them had the last word."""
        return set().union(*ways)

    def handed(self, op: Op, runs, region: Region, targets: Sequence[Value], first: int):
        sources = list(region.terminator.uses)[first:]
        return [(self.set(env, targets, [env[s] for s in sources]), past) for env, past in runs]

    def loop(self, op: Op, runs):
        """Rounds until none gives a run that was not there before."""
        (body, *rest), before = op.regions, []
        if op.kind is control.for_:
            inits, args, results = list(op.uses)[3:], body.args[1:], op.results
        elif op.kind is control.while_:
            inits, args, results = list(op.uses), body.args, ()
        else:
            inits, args, results = [], (), ()
        heads = distinct((self.set(env, args, [env[v] for v in inits]), past) for env, past in runs)
        out = []
        while len(heads) != len(before):
            before = heads
            inner = [(self.set(env, body.args[:1], ["i"]), past) for env, past in heads] if not rest else heads
            ends = self.region(body, inner)
            if rest:
                out = self.handed(op, ends, body, op.results, 1)
                ends = self.region(rest[0], self.handed(op, ends, body, rest[0].args, 1))
                again = self.handed(op, ends, rest[0], args, 0)
            else:
                again = self.handed(op, ends, body, args, 0) if op.kind is control.for_ else ends
                whole = [*heads, *again]
                out = [(self.set(env, results, [env[v] for v in args]), past) for env, past in whole]
            heads = distinct([*heads, *((visible(env, heads[0][0]), past) for env, past in again)])
        if op.kind is elements.map_elements:
            return [(self.set(env, op.results, ["mapped"]), past) for env, past in out]
        return out


class Executed(Executions):
    def together(self, ways: list[set[Known]]) -> set[Known]:
        """All of them have run."""
        out = {frozenset()}
        for way in ways:
            out = {a | b for a in out for b in way}
        return out


def visible(env: Env, outside: Iterable[Value]) -> Env:
    """What is left of the values where only those of outside are seen."""
    return {value: env[value] for value in outside}


def distinct(runs):
    return list({(frozenset(env.items()), past): (env, past) for env, past in runs}.values())


class Last(States[Known]):
    """What can have happened last."""

    def __init__(self, backward: bool = False) -> None:
        self.backward = backward
        self.at: dict[Op, Known] = {}

    def visit(self, op: Op, state: Known):
        self.at[op] = state
        return (op,), frozenset([op]) if op.kind is arith.constant else state

    def through(self, op: Op, state: Known):
        self.at[op] = state
        return super().through(op, state)

    def join(self, state: Known, other: Known):
        return state | other, not other <= state


class Sure(Last):
    """What has happened for sure."""

    def visit(self, op: Op, state: Known):
        self.at[op] = state
        return (op,), state | {op} if op.kind is arith.constant else state

    def join(self, state: Known, other: Known):
        return state & other, not state <= other

    def both(self, state: Known, other: Known):
        return state | other


class Numbers(Values[Known, None]):
    """Which constants a value can be."""

    def visit(self, op: Op, context: None) -> None:
        self.known.update({result: frozenset([op.attrs["value"]]) for result in op.results})

    def join(self, value: Value, old: Known, new: Known, number: int) -> Known:
        return old | new

    def begin(self, op: Op, context: None) -> None:
        for region in op.regions:
            if op.kind is control.for_ or op.kind not in STRUCTURED:
                self.known[region.args[0]] = frozenset(["i"])

    def end(self, op: Op, context: None) -> None:
        if op.kind not in STRUCTURED:
            self.known.update({result: frozenset(["mapped"]) for result in op.results})


def last(past: Known, op: Op) -> Known:
    return frozenset([op])


def test_functions_have_all_kinds_of_regions_in_each_other():
    nested = {(a.kind, b.kind) for seed in SEEDS for a in walk(Maker(seed).func().body) for b in inside(a) if b.regions}
    kinds = {control.for_, control.while_, control.if_, control.warp_specialize, elements.map_elements}
    assert nested == {(a, b) for a in kinds for b in kinds}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_happened_last(seed):
    func = Maker(seed).func()
    flow = Last()
    body, end = flow.run(func.body, frozenset())
    runs = Executions(func, last)
    assert body is func.body
    assert {op: flow.at[op] for op in runs.past} == {op: frozenset().union(*past) for op, past in runs.past.items()}
    assert end == frozenset().union(*(past for _, past in runs.ends))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_happens_next(seed):
    """Backward: what comes right after is what it comes right after, seen from the other side."""
    func = Maker(seed).func()
    flow = Last(backward=True)
    flow.run(func.body, frozenset())
    runs = Executions(func, last)
    marks = [op for op in walk(func.body) if op.kind is arith.constant]
    follows = {(a, b) for b in marks for past in runs.past[b] for a in past}
    assert {(a, b) for a in marks for b in flow.at[a]} == follows


@pytest.mark.parametrize("seed", SEEDS)
def test_what_happened_for_sure(seed):
    func = Maker(seed).func()
    flow = Sure()
    _, end = flow.run(func.body, frozenset())
    runs = Executed(func, lambda past, op: past | {op})
    assert {op: flow.at[op] for op in runs.past} == {
        op: frozenset.intersection(*past) for op, past in runs.past.items()
    }
    assert end == frozenset.intersection(*(past for _, past in runs.ends))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_values_can_be(seed):
    func = Maker(seed).func()
    flow = Numbers()
    flow.known.update({func.params[0]: frozenset("n"), func.params[1]: frozenset("c")})
    flow.run(func.body, None)
    runs = Executions(func, last)
    assert flow.known == {value: frozenset(found) for value, found in runs.held.items()}


class Prints(States[int]):
    """Something ahead of each operation that happens, and at the far end of each region."""

    def visit(self, op: Op, state: int):
        return ((mark(state), op), state + 1) if op.kind is arith.constant else ((op,), state)

    def join(self, state: int, other: int):
        return max(state, other), other > state and max(state, other) < 20

    def past(self, op: Op, number: int, state: int):
        return (mark(-1),), state


def mark(number: int) -> Op:
    return Op(debug.print_, (), {"prefix": str(number)}, (), (), None)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("backward", [False, True])
def test_what_is_put_in_stands_once_in_each_place(seed, backward):
    func = Maker(seed).func()
    flow = Prints()
    flow.backward = backward
    body, _ = flow.run(func.body, 0)
    old, new = list(walk(func.body)), list(walk(body))
    constants = sum(op.kind is arith.constant for op in old)
    ends = sum(len(op.regions) for op in old)
    assert sum(op.kind is debug.print_ for op in new) == constants + ends
    assert [op.kind for op in new if op.kind is not debug.print_] == [op.kind for op in old]
    for region in regions(body):
        if region is not body:
            edge = region.ops[0] if backward else region.ops[-2]
            assert edge.attrs.get("prefix") == "-1"


# The structure


def loop_of(*inits: Value, hand: Callable[..., Sequence[Value]]) -> Op:
    b = Builder()
    n = Value(I32)
    with b.region([I32] * (1 + len(inits))) as body:
        b.emit(control.yield_, *hand(*body.args[1:]))
    b.emit(control.for_, n, n, n, *inits, descending=False, regions=(body.done,))
    return b._open[0][-1]


def while_of(*inits: Value, passed: Callable[..., Sequence[Value]], hand: Callable[..., Sequence[Value]]) -> Op:
    b = Builder()
    with b.region([I32] * len(inits)) as before:
        given = passed(*before.args)
        b.emit(control.condition, Value(ScalarType(int1)), *given)
    with b.region([I32] * len(given)) as after:
        b.emit(control.yield_, *hand(*after.args))
    b.emit(control.while_, *inits, regions=(before.done, after.done))
    return b._open[0][-1]


def test_rows_of_a_loop():
    x, y = Value(I32), Value(I32)
    op = loop_of(x, hand=lambda a: [y])
    (joint,) = joints(op)
    (body,) = op.regions
    assert list(joint.rows) == [(y, x, body.args[1], *op.results)]
    assert list(pairs(op)) == [(body.args[1], y), (body.args[1], op.result), (body.args[1], x)]
    assert len(decides(op)) == 3


def test_values_that_a_loop_does_not_change():
    x, y, z = Value(I32), Value(I32), Value(I32)
    op = loop_of(x, y, z, hand=lambda a, b, c: [a, y, a])
    _, a, b, c = op.regions[0].args
    assert unchanged(op) == {a: x, op.results[0]: x, b: y, op.results[1]: y}
    rest = without(op, unchanged(op).__contains__)
    assert rest.operands[3:] == (z,) and rest.results == op.results[2:]
    assert rest.regions[0].args[1:] == (c,) and rest.regions[0].terminator.operands == (a,)
    assert without(op, lambda value: False) is op


def test_values_that_a_while_does_not_change():
    x, y = Value(I32), Value(I32)
    op = while_of(x, y, passed=lambda a, b: [b, a], hand=lambda p, q: [q, x])
    (a, b), (p, q) = (region.args for region in op.regions)
    assert unchanged(op) == {a: x, q: x, op.results[1]: x}
    rest = without(op, unchanged(op).__contains__)
    assert rest.operands == (y,) and rest.results == op.results[:1]
    assert [region.args for region in rest.regions] == [(b,), (p,)]
    assert rest.regions[0].terminator.operands[1:] == (b,) and rest.regions[1].terminator.operands == (x,)


def test_operations_of_loops():
    func = Maker(3).func()
    loops = [op for op in walk(func.body) if op.kind in LOOPS]
    assert repeated(func.body) == {inner for op in loops for region in op.regions for inner in walk(region)}


def test_program_order():
    func = Maker(3).func()
    order = program_order(func.body)
    assert list(order.positions) == list(walk(func.body))
    numbers = [*order.positions.values(), *order.ends.values()]
    assert sorted(numbers) == list(range(1, order.last + 1))
    assert list(order.positions.values()) == sorted(order.positions.values())
    assert list(order.ends.values()) == sorted(order.ends.values())
    for op, end in order.ends.items():
        nested = [inner for region in op.regions for inner in walk(region)]
        assert {each for each, at in order.positions.items() if order.positions[op] < at < end} == set(nested)
        assert order.ops[end] is None
    assert all(order.ops[at] is op for op, at in order.positions.items())


def test_all_that_follows():
    assert reach([3], lambda n: [n // 2] if n else []) == {3, 1, 0}
    assert reach([1, 2], lambda n: [2, 1]) == {1, 2}


def test_an_edge_back():
    assert Edge(1, 0, (), ()).back and Edge(0, 0, (), ()).back
    assert not Edge(0, 1, (), ()).back and not Edge(None, 0, (), ()).back
    assert Edge(0, 1, (), ()).reversed.back
