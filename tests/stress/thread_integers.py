"""Random kernels of integer expressions of single threads, and what C's arithmetic gives for them."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

TYPES = tuple(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u"))
LIKELY = ("int32", "int32", "int32", "uint32", "int64", *TYPES)
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
WRAPPING: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_, "^": operator.xor,
}  # fmt: skip
BLOCKS: tuple[tuple[int, ...], ...] = ((32,), (64,), (96,), (8, 8), (16, 2, 2), (40,))
ROWS = 6


def bits_of(dtype: str) -> int:
    return int(dtype.lstrip("uint"))


def wrapped(value: int, dtype: str) -> int:
    """A number cut to a type."""
    bits = bits_of(dtype)
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype[0] == "i" and value >> bits - 1 else value


def quotient(x: int, y: int) -> int:
    """Truncated towards zero, as in C."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def shifted(x: int, amount: int, dtype: str, left: bool) -> int:
    """An amount outside of the type leaves no bit but the sign, as in PTX."""
    bits = bits_of(dtype)
    amount = amount if 0 <= amount < bits else bits
    return wrapped(x << amount, dtype) if left else x >> amount


@dataclass
class Case:
    """A kernel over `out` and the arrays `given`, the program that runs, and what it leaves in `out`."""

    text: str
    program: int
    block: tuple[int, ...]
    given: dict[str, np.ndarray]
    wanted: np.ndarray


@dataclass
class Number:
    """A name of the kernel, and its number in each thread."""

    name: str
    dtype: str
    values: list[int]


@dataclass
class Writer:
    """Writes one kernel, and computes it on the way in integers of any size."""

    pick: random.Random
    program: int
    block: tuple[int, ...]
    rows: dict[str, list[list[int]]]
    lines: list[str] = field(default_factory=list[str])
    numbers: list[Number] = field(default_factory=list[Number])
    tests: list[Number] = field(default_factory=list[Number])

    def add(self, text: str, dtype: str, values: list[int]) -> Number:
        found = Number(f"v{len(self.lines)}", dtype, values)
        self.lines.append(f"    {found.name} = {text}")
        (self.tests if dtype == "int1" else self.numbers).append(found)
        return found

    @property
    def threads(self) -> int:
        return int(np.prod(self.block))

    def edge(self, dtype: str) -> int:
        """A number that is small, next to a power of two, or next to an end of the type."""
        pick, bits = self.pick, bits_of(dtype)
        power = 1 << pick.randrange(bits)
        near = pick.choice([0, 0, 1, power, power, -power, (1 << bits - 1), pick.getrandbits(bits)])
        return wrapped(near + pick.choice([0, 0, 1, -1, 3]), dtype)

    def constant(self, dtype: str, value: int) -> str:
        return f"gl.cast({value}, gl.{dtype})"

    def leaf(self) -> None:
        pick = self.pick
        kind = pick.choice(["thread", "thread", "lane", "program", "given", "given", "global"])
        if kind == "thread":
            axis = pick.randrange(len(self.block))
            below = int(np.prod(self.block[:axis]))
            values = [number // below % self.block[axis] for number in range(self.threads)]
            self.add(f"gl.thread_idx.{'xyz'[axis]}", "int32", values)
        elif kind == "lane":
            self.add("gl.lane_id()", "int32", [number % 32 for number in range(self.threads)])
        elif kind == "program":
            self.add("gl.block_idx.x", "int32", [self.program] * self.threads)
        elif kind == "global":
            values = [self.program * self.block[0] + number % self.block[0] for number in range(self.threads)]
            self.add(
                "gl.block_idx.x * gl.block_dim.x + gl.thread_idx.x", "int32", [wrapped(v, "int32") for v in values]
            )
        else:
            self.given(pick.choice(LIKELY))

    def given(self, dtype: str) -> Number:
        row = self.pick.randrange(ROWS)
        return self.add(f"{dtype}s[{row}, t]", dtype, self.rows[dtype][row])

    def partner(self, x: Number) -> tuple[str, list[int]]:
        """Another number of the same type: a constant, or one that threads have."""
        pick = self.pick
        if pick.random() < 0.5:
            value = self.edge(x.dtype)
            return self.constant(x.dtype, value), [value] * self.threads
        same = [each for each in self.numbers if each.dtype == x.dtype]
        y = pick.choice(same) if pick.random() < 0.7 else self.given(x.dtype)
        return y.name, y.values

    def both(self, text: str, x: Number, values: list[int], function: Callable[[int, int], int]) -> None:
        self.add(text, x.dtype, [wrapped(function(a, b), x.dtype) for a, b in zip(x.values, values, strict=True)])

    def step(self) -> None:
        pick = self.pick
        x = pick.choice(self.numbers if pick.random() < 0.4 else self.numbers[-2:])
        kind = pick.choice(
            ["wrap", "wrap", "wrap", "shift", "shift", "div", "div", "rem", "rem", "cast", "extreme", "where", "compare",
             "invert", "branch", "tests"]
        )  # fmt: skip
        if kind == "wrap":
            sign, (text, values) = pick.choice(list(WRAPPING)), self.partner(x)
            self.both(f"{x.name} {sign} {text}", x, values, WRAPPING[sign])
        elif kind == "shift":
            self.shift(x)
        elif kind in ("div", "rem"):
            self.divide(x, kind == "div")
        elif kind == "cast":
            dtype = pick.choice(LIKELY)
            self.add(f"{x.name}.to(gl.{dtype})", dtype, [wrapped(value, dtype) for value in x.values])
        elif kind == "extreme":
            (name, function), (text, values) = pick.choice([("minimum", min), ("maximum", max)]), self.partner(x)
            self.both(f"gl.{name}({x.name}, {text})", x, values, function)
        elif kind == "invert":
            sign, function = pick.choice([("~", operator.invert), ("-", operator.neg)])
            self.add(f"{sign}{x.name}", x.dtype, [wrapped(function(value), x.dtype) for value in x.values])
        elif kind == "compare":
            self.compare(x)
        elif kind == "tests":
            a, b = pick.choice(self.tests), pick.choice(self.tests)
            sign, logic = pick.choice([("&", operator.and_), ("|", operator.or_)])
            self.add(
                f"{a.name} {sign} {b.name}", "int1", [logic(p, q) for p, q in zip(a.values, b.values, strict=True)]
            )
        else:
            self.choose(x, kind == "branch")

    def shift(self, x: Number) -> None:
        pick, left = self.pick, self.pick.random() < 0.5
        if pick.random() < 0.6:
            amount = pick.choice([0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 127])
            amount = wrapped(amount, x.dtype)
            text, values = self.constant(x.dtype, amount), [amount] * self.threads
        else:
            text, values = self.partner(x)
        self.both(f"{x.name} {'<<' if left else '>>'} {text}", x, values, lambda a, b: shifted(a, b, x.dtype, left))

    def divide(self, x: Number, whole: bool) -> None:
        """Divisors are constants, or not zero because of their lowest bit; the least number is never divided by -1."""
        pick = self.pick
        if pick.random() < 0.6:
            divisor = pick.choice([1, 2, 3, 4, 8, 12, 16, 32, 64, 100, self.edge(x.dtype)]) or 5
            text, values = self.constant(x.dtype, divisor), [divisor] * self.threads
        else:
            name, values = self.partner(x)
            found = self.add(f"{name} | {self.constant(x.dtype, 1)}", x.dtype, [value | 1 for value in values])
            text, values = found.name, found.values
        if x.dtype[0] == "i" and -1 in values:
            return
        if whole:
            self.both(f"{x.name} // {text}", x, values, quotient)
        else:
            self.both(f"{x.name} % {text}", x, values, lambda a, b: a - quotient(a, b) * b)

    def compare(self, x: Number) -> None:
        sign = self.pick.choice(list(COMPARE))
        if self.pick.random() < 0.4:
            value = wrapped(self.pick.choice(x.values) + self.pick.choice([0, 0, 1, -1]), x.dtype)
            text, values = self.constant(x.dtype, value), [value] * self.threads
        else:
            text, values = self.partner(x)
        self.add(
            f"{x.name} {sign} {text}", "int1", [COMPARE[sign](a, b) for a, b in zip(x.values, values, strict=True)]
        )

    def choose(self, x: Number, branch: bool) -> None:
        test, (text, values) = self.pick.choice(self.tests), self.partner(x)
        chosen = [a if yes else b for yes, a, b in zip(test.values, x.values, values, strict=True)]
        found = self.add(x.name if branch else f"gl.where({test.name}, {x.name}, {text})", x.dtype, chosen)
        if branch:
            self.lines += [f"    if not {test.name}:", f"        {found.name} = {text}"]

    def text(self) -> tuple[str, np.ndarray]:
        """The kernel, and what it leaves in `out`."""
        pick = self.pick
        for _ in range(3):
            self.leaf()
        self.compare(pick.choice(self.numbers))
        for _ in range(pick.randint(5, 18)):
            self.step()
        out = np.full((ROWS, self.threads), -1, np.int64)
        for row in range(ROWS):
            value, test = pick.choice(self.numbers[-8:]), pick.choice(self.tests[-3:])
            masked = pick.random() < 0.5
            store = f"out[{row}, t] = {value.name}.to(gl.int64)"
            self.lines += [f"    if {test.name}:", f"        {store}"] if masked else [f"    {store}"]
            kept = [not masked or yes for yes in test.values]
            out[row] = [wrapped(v, "int64") if yes else -1 for v, yes in zip(value.values, kept, strict=True)]
        x, y, z = (*self.block, 1, 1)[:3]
        place = (
            "gl.thread_idx.x"
            + (f" + {x} * gl.thread_idx.y" if y > 1 else "")
            + (f" + {x * y} * gl.thread_idx.z" if z > 1 else "")
        )
        names = ", ".join(f"{dtype}s" for dtype in TYPES)
        head = f"@weft.jit\ndef program(out, {names}):\n    t = {place}\n"
        return head + "\n".join(self.lines) + "\n", out


def random_case(seed: int) -> Case:
    """A kernel of single threads, and what it leaves in `out`."""
    pick = random.Random(seed)
    block = pick.choice(BLOCKS)
    program = pick.choice([0, 1, 3, 511, 4095, 65535, (1 << 22) - 1, 1 << 24])
    writer = Writer(pick, program, block, {})
    for dtype in TYPES:
        writer.rows[dtype] = [[writer.edge(dtype) for _ in range(writer.threads)] for _ in range(ROWS)]
    text, wanted = writer.text()
    given = {f"{dtype}s": np.array(rows, dtype) for dtype, rows in writer.rows.items()}
    return Case(text, program, block, given, wanted)
