"""Random structured programs of the lowered stage, and what they mean.

They compute on int32 scalars and on arrays of four int32, with loops, branches, swaps and permutations, and print what they
have. `interpret` runs one on cells: a cell per value, or a cell per class of values that share a variable. Cells are written
register by register, so a class that should not share shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import weft.ops  # noqa: F401  fills the table of operations
from weft.ir.build import Builder
from weft.ir.core import Func, FuncAttrs, Op, ParamFacts, Region, Value
from weft.ir.types import RegsType, ScalarType, int32
from weft.ops import arith, control, debug, regs

SCALAR, ARRAY = ScalarType(int32), RegsType(int32, 4)
OPERATIONS = {arith.add: lambda a, b: a + b, arith.sub: lambda a, b: a - b, arith.xor: lambda a, b: a ^ b}
PREDICATES = {"lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b}


def wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


# Making programs


def random_program(seed: int, name: str = "kernel") -> Func:
    """A program with one parameter `n`."""
    return _Maker(Random(seed)).program(name)


class _Maker:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.b = Builder()
        self.known: list[Value] = []

    def program(self, name: str) -> Func:
        n = Value(SCALAR, "n")
        self.known = [
            n,
            self.number(3),
            self.emit(regs.splat, n, count=4),
            self.emit(regs.splat, self.number(5), count=4),
        ]
        self.statements(self.random.randint(4, 9), depth=0)
        for value in self.random.sample(self.known, min(4, len(self.known))):
            self.show(value)
        self.b.emit(control.return_)
        return self.b.func(name, (n,), FuncAttrs(num_warps=1, target="sm_90a", params=(ParamFacts(),), stage="lowered"))

    def emit(self, *args: Any, **attrs: Any) -> Any:
        return self.b.emit(*args, name=self.random.choice(["", "x", "acc"]), **attrs)

    def number(self, value: int) -> Value:
        return self.b.emit(arith.constant, value=value, type=SCALAR)

    def any(self, type: Any) -> Value:
        return self.random.choice([v for v in self.known if v.type == type])

    def show(self, value: Value) -> None:
        self.b.emit(debug.print_, value, prefix="v")

    def flag(self) -> Value:
        predicate = self.random.choice(list(PREDICATES))
        return self.emit(arith.cmp, self.any(SCALAR), self.any(SCALAR), predicate=predicate)

    def statements(self, count: int, depth: int) -> None:
        for _ in range(count):
            kinds = [
                self.arrays,
                self.arrays,
                self.arrays,
                self.scalars,
                self.permute,
                self.extract,
                self.splat,
                self.print,
            ]
            if depth < 3:
                kinds += [self.loop, self.loop, self.branch, self.repeat]
            statement = self.random.choice(kinds)
            made = statement(depth) if statement in (self.loop, self.branch, self.repeat) else statement()
            self.known.extend(made)

    def arrays(self) -> list[Value]:
        return [self.emit(self.random.choice(list(OPERATIONS)), self.any(ARRAY), self.any(ARRAY))]

    def scalars(self) -> list[Value]:
        return [self.emit(self.random.choice(list(OPERATIONS)), self.any(SCALAR), self.any(SCALAR))]

    def permute(self) -> list[Value]:
        return [self.emit(regs.gather, self.any(ARRAY), table=tuple(self.random.choices(range(4), k=4)))]

    def extract(self) -> list[Value]:
        return [self.emit(regs.extract, self.any(ARRAY), index=self.random.randrange(4))]

    def splat(self) -> list[Value]:
        return [self.emit(regs.splat, self.any(SCALAR), count=4)]

    def print(self) -> list[Value]:
        self.show(self.any(self.random.choice([SCALAR, ARRAY])))
        return []

    def region(self, args: list[Value], depth: int, end: Any) -> None:
        """Statements over what is known and the arguments; `end` emits the terminator."""
        outer, self.known = self.known, [*self.known, *args]
        self.statements(self.random.randint(1, 4), depth + 1)
        end()
        self.known = outer

    def carried(self) -> list[Value]:
        return [self.any(self.random.choice([SCALAR, ARRAY, ARRAY])) for _ in range(self.random.randint(1, 4))]

    def next(self, types: list[Any]) -> list[Value]:
        """Values to hand on; repeats, swaps and values from outside are welcome."""
        return [self.any(type) for type in types]

    def results(self, made: Any) -> list[Value]:
        return list(made) if isinstance(made, tuple) else [made]

    def bound(self, value: int) -> Value:
        """A number in a variable, which a loop may carry besides."""
        self.known.append(self.emit(arith.add, self.number(0), self.number(value)))
        return self.known[-1]

    def loop(self, depth: int) -> list[Value]:
        bounds = self.bound(0), self.bound(self.random.randint(0, 3)), self.bound(1)
        inits = self.carried()
        types = [v.type for v in inits]
        with self.b.region([SCALAR, *types], ["i", *self.random.choices(["", "acc"], k=len(types))]) as body:
            self.region(list(body.args), depth, lambda: self.b.emit(control.yield_, *self.next(types)))
        return self.results(self.emit(control.for_, *bounds, *inits, descending=False, regions=(body.done,)))

    def branch(self, depth: int) -> list[Value]:
        types = [v.type for v in self.carried()]
        flag = self.flag()
        regions = []
        for _ in range(2):
            with self.b.region() as side:
                self.region([], depth, lambda: self.b.emit(control.yield_, *self.next(types)))
            regions.append(side.done)
        return self.results(self.emit(control.if_, flag, regions=tuple(regions)))

    def repeat(self, depth: int) -> list[Value]:
        """A while loop: a counter runs out; what is passed on need not be what came in."""
        inits = self.carried()
        types, passed = [v.type for v in inits], [v.type for v in self.carried()]
        with self.b.region([SCALAR, *types]) as before:
            count = before.args[0]

            def condition() -> None:
                going = self.emit(arith.cmp, self.number(0), count, predicate="lt")
                self.b.emit(control.condition, going, count, *self.next(passed))

            self.region(list(before.args), depth, condition)
        with self.b.region([SCALAR, *passed]) as after:
            left = self.b.emit(arith.sub, after.args[0], self.number(1))
            self.region(list(after.args), depth, lambda: self.b.emit(control.yield_, left, *self.next(types)))
        start = self.number(self.random.randint(0, 2))
        return self.results(self.emit(control.while_, start, *inits, regions=(before.done, after.done)))


# Running them


def interpret(func: Func, n: int, storage: Mapping[Value, int] | None = None) -> list[int]:
    """Everything that the program prints, one number an element. Raises Endless where sharing broke a loop's counter."""
    machine = _Machine(storage or {})
    machine.write(func.params[0], [n])
    machine.region(func.body)
    return machine.printed


class Endless(Exception):
    """The programs above end within a few thousand steps; this one does not."""


class _Machine:
    def __init__(self, storage: Mapping[Value, int]) -> None:
        self.storage = storage
        self.cells: dict[object, list[int]] = {}
        self.printed: list[int] = []
        self.steps = 0

    def read(self, value: Value) -> list[int]:
        return self.cells[self.storage.get(value, value)]

    def write(self, value: Value, numbers: Any) -> None:
        """Register by register; `numbers` may read cells as it goes."""
        cell = self.cells.setdefault(self.storage.get(value, value), [0] * getattr(value.type, "count", 1))
        for i, number in enumerate(numbers):
            cell[i] = number

    def assign(self, targets: Any, sources: Any) -> None:
        for target, numbers in zip(list(targets), [list(self.read(s)) for s in sources], strict=True):
            self.write(target, numbers)

    def region(self, region: Region) -> Op:
        for op in region.ops[:-1]:
            self.op(op)
        return region.terminator

    def op(self, op: Op) -> None:
        self.steps += 1
        if self.steps > 5_000:
            raise Endless
        values = list(op.uses)
        if op.kind in OPERATIONS:
            a, b = (self.read(v) for v in values)
            self.write(op.result, (wrap(OPERATIONS[op.kind](a[i], b[i])) for i in range(len(a))))
        elif op.kind is arith.constant:
            self.write(op.result, [op.attrs["value"]] * (4 if op.result.type == ARRAY else 1))
        elif op.kind is arith.cmp:
            a, b = (self.read(v)[0] for v in values)
            self.write(op.result, [PREDICATES[op.attrs["predicate"]](a, b)])
        elif op.kind is regs.gather:
            x = self.read(values[0])
            self.write(op.result, (x[i] for i in op.attrs["table"]))
        elif op.kind is regs.extract:
            self.write(op.result, [self.read(values[0])[op.attrs["index"]]])
        elif op.kind is regs.splat:
            self.write(op.result, self.read(values[0]) * 4)
        elif op.kind is debug.print_:
            self.printed.extend(self.read(values[0]))
        else:
            {control.for_: self.for_, control.while_: self.while_, control.if_: self.if_}[op.kind](op, values)

    def for_(self, op: Op, values: list[Value]) -> None:
        counter, *args = op.regions[0].args
        self.assign(args, values[3:])
        lower, upper, step = values[:3]
        i = self.read(lower)[0]
        # As a C loop does, which reads its bounds in every round.
        while i < self.read(upper)[0]:
            self.write(counter, [i])
            self.assign(args, self.region(op.regions[0]).uses)
            i += self.read(step)[0]
        self.assign(op.results, args)

    def while_(self, op: Op, values: list[Value]) -> None:
        before, after = op.regions
        self.assign(before.args, values)
        while True:
            going, *passed = self.region(before).uses
            if not self.read(going)[0]:
                self.assign(op.results, passed)
                return
            self.assign(after.args, passed)
            self.assign(before.args, self.region(after).uses)

    def if_(self, op: Op, values: list[Value]) -> None:
        self.assign(op.results, self.region(op.regions[0 if self.read(values[0])[0] else 1]).uses)
