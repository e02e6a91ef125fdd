"""Random scalar programs mean in the IR what they mean in Python: loops, branches, swaps, jumps, helpers, early returns."""

# ruff: noqa: S102 (programs under test are text)

from __future__ import annotations

import linecache
import operator
import random
from typing import Any

import pytest

from tests.lang.support import INT, build, jit
from weft import language as gl
from weft.ir.core import Func, Op, Region, Value
from weft.ir.types import Pointer, int32
from weft.lang import RuntimeParam

NAMES = ("a", "b", "c", "d")
BINARY = {
    "arith.add": operator.add, "arith.sub": operator.sub, "arith.mul": operator.mul, "arith.and": operator.and_,
    "arith.or": operator.or_, "arith.xor": operator.xor, "tile.addptr": operator.add, "arith.addptr": operator.add,
    "memory.addptr": operator.add,
}  # fmt: skip


# A program, as text


class Writer:
    """Writes a random function of `n` and `m`, all of whose names have values from the start.

    `leaving`: jumps stand in loops that run on the GPU, too."""

    def __init__(self, seed: int, leaving: bool = False) -> None:
        self.random = random.Random(seed)
        self.leaving = leaving
        self.lines: list[str] = []
        self.stores = 0

    def text(self) -> str:
        for i, name in enumerate(NAMES):
            self.add(1, f"{name} = {self.random.choice([str(i), 'n', 'm', 'n + m', '5'])}")
        self.block(1, depth=0, jumps=("return",))
        for name in NAMES:
            self.store(1, name)
        return "def program(out, n, m):\n" + "".join(self.lines)

    def add(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text + "\n")

    def store(self, indent: int, value: str) -> None:
        self.add(indent, f"gl.store(out + {self.stores}, {value})")
        self.stores += 1

    def atom(self) -> str:
        return self.random.choice([*NAMES, "n", "m", str(self.random.randint(-3, 5))])

    def expression(self) -> str:
        if self.leaving and self.random.random() < 0.2:
            return f"search({self.atom()}, {self.atom()})"
        kind = self.random.randint(0, 5)
        if kind == 0:
            return f"clamp({self.atom()}, {self.atom()})"
        if kind == 1:
            return f"({self.atom()} if {self.condition()} else {self.atom()})"
        return f"({self.atom()} {self.random.choice('+-')} {self.atom()})"

    def condition(self) -> str:
        test = f"{self.atom()} {self.random.choice(['<', '>=', '==', '!='])} {self.atom()}"
        return (
            test if self.random.random() < 0.7 else f"{test} {self.random.choice(['and', 'or'])} not {self.atom()} > 2"
        )

    def jumps_of_loops(self) -> tuple[str, ...]:
        return ("return", "break", "continue") if self.leaving else ()

    def block(self, indent: int, depth: int, jumps: tuple[str, ...]) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.statement(indent, depth, jumps)

    def statement(self, indent: int, depth: int, jumps: tuple[str, ...]) -> None:
        kind = self.random.randint(0, 9 if depth < 3 else 3)
        one, other = self.random.sample(NAMES, 2)
        if kind <= 1:
            self.add(indent, f"{one} = {self.expression()}")
        elif kind == 2:
            self.add(indent, f"{one}, {other} = {other}, {self.expression()}")
        elif kind == 3:
            self.store(indent, one)
        elif kind == 4:
            self.add(indent, f"for i{depth} in range({self.random.choice(['n', '3', 'm, n', '4, m, -1'])}):")
            self.block(indent + 1, depth + 1, self.jumps_of_loops())
        elif kind == 5:
            self.add(indent, f"for s{depth} in gl.static_range({self.random.randint(0, 3)}):")
            self.block(indent + 1, depth + 1, (*(j for j in jumps if j == "return"), "break", "continue"))
        elif kind == 6 and self.leaving:
            limit = self.random.choice(["n", "2"])
            endless = self.random.random() < 0.5
            self.add(indent, f"w{depth} = 0")
            self.add(indent, "while True:" if endless else f"while w{depth} < {limit}:")
            self.add(indent + 1, f"w{depth} += 1")
            if endless:
                self.add(indent + 1, f"if w{depth} > {limit}:")
                self.add(indent + 2, "break")
            self.block(indent + 1, depth + 1, self.jumps_of_loops())
        elif kind == 6:
            self.add(indent, f"w{depth} = 0")
            self.add(indent, f"while w{depth} < {self.random.choice(['n', '2'])}:")
            self.block(indent + 1, depth + 1, ())
            self.add(indent + 1, f"w{depth} += 1")
        else:
            self.add(indent, f"if {self.condition()}:")
            self.block(indent + 1, depth + 1, jumps)
            if jumps and self.random.random() < 0.4:
                self.add(indent + 1, self.random.choice(jumps))
            if self.random.random() < 0.5:
                self.add(indent, "else:")
                self.block(indent + 1, depth + 1, jumps)


@jit
def clamp_of(x, high):
    if x > high:
        return high
    return x


def search(x, high):
    for i in range(high):
        if i * i >= x:
            return i + x
        if i > 3:
            break
    return high


# Its meaning in Python and in the IR


class Memory(dict[int, int]):
    """What the program stored."""

    def store(self, address: int, value: int) -> None:
        self[address] = int(value)

    static_range = staticmethod(range)


def run_python(text: str, n: int, m: int) -> Memory:
    memory = Memory()
    space: dict[str, Any] = {"gl": memory, "clamp": lambda x, high: min(x, high), "search": search}
    exec(compile(text, "<reference>", "exec"), space)
    space["program"](0, n, m)
    return memory


def run_ir(func: Func, n: int, m: int) -> Memory:
    machine = Machine()
    machine.run(func.body, (0, n, m))
    return machine.memory


class Machine:
    """Executes scalar tile IR on Python integers."""

    def __init__(self) -> None:
        self.values: dict[Value, Any] = {}
        self.memory = Memory()

    def run(self, region: Region, arguments: Any) -> list[Any]:
        self.values.update(zip(region.args, arguments, strict=True))
        for op in region.ops:
            operands = [self.values[value] for value in op.uses]
            if op.kind.terminator:
                return operands
            self.values.update(zip(op.results, self.execute(op, operands), strict=True))
        raise AssertionError("a region without a terminator")

    def execute(self, op: Op, operands: list[Any]) -> list[Any]:
        if op.name in BINARY:
            return [BINARY[op.name](*operands)]
        if op.name == "arith.constant":
            return [op.attrs["value"]]
        if op.name == "arith.cmp":
            return [getattr(operator, op.attrs["predicate"])(*operands)]
        if op.name == "arith.cast":
            return [bool(operands[0]) if op.attrs["dtype"].is_bool() else int(operands[0])]
        if op.name == "control.trips":
            return [len(range(*operands))]
        if op.name == "memory.store":
            self.memory.store(*operands[:2])
            return []
        return getattr(self, op.name.replace("control.", "do_"))(op, operands)

    def do_if(self, op: Op, operands: list[Any]) -> list[Any]:
        return self.run(op.regions[0 if operands[0] else 1], ())

    def do_for(self, op: Op, operands: list[Any]) -> list[Any]:
        (lower, upper, step), carried = operands[:3], operands[3:]
        for i in range(lower, upper, step):
            assert op.attrs["descending"] in (None, step < 0)
            carried = self.run(op.regions[0], (i, *carried))
        return carried

    def do_while(self, op: Op, operands: list[Any]) -> list[Any]:
        while True:
            holds, *passed = self.run(op.regions[0], operands)
            if not holds:
                return passed
            operands = self.run(op.regions[1], passed)


def kernel_of(text: str, name: str) -> jit:
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"gl": gl, "clamp": clamp_of, "search": jit(search)}
    exec(compile(text, name, "exec"), space)
    return jit(space["program"])


@pytest.mark.parametrize("first", [*range(0, 120, 20), 1140])
def test_random_programs(first):
    for seed in range(first, first + 20):
        check(Writer(seed).text(), f"<random {seed}>")


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_programs_that_leave_loops(first):
    for seed in range(first, first + 20):
        check(Writer(seed, leaving=True).text(), f"<leaving {seed}>")


def check(text: str, name: str) -> None:
    func = build(kernel_of(text, name), out=RuntimeParam(Pointer(int32)), n=INT, m=INT).func
    for n, m in ((0, 0), (3, 1), (1, 3), (-1, 2)):
        assert run_ir(func, n, m) == run_python(text, n, m), f"n={n}, m={m}\n{text}"
