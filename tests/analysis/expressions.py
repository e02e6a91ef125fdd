"""Random expressions of 8-bit integers, with the numbers of every value for all that their variables can be.

Variables are `pid` (any number), `n` (a multiple of 16), `m` (any) and `h` (a multiple of 4 by a hint). An array of numbers has
an axis for each variable that it depends on (of length 1 otherwise) and then those of the tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import numpy as np

from weft.ir.build import Builder
from weft.ir.core import Func, FuncAttrs, ParamFacts, Value
from weft.ir.types import ScalarType, int8, tile_type
from weft.layout import AutoLayout
from weft.ops import arith, control, hints, program, tile

AUTO = AutoLayout()
I8 = ScalarType(int8)
ALL = np.arange(-128, 128)
VARIABLES = {"pid": ALL, "n": ALL[::16], "m": ALL, "h": ALL[::4]}
AXES = {name: axis for axis, name in enumerate(VARIABLES)}
CONSTANTS = (1, 2, 3, 4, 4, 5, 7, 8, 8, 8, 12, 15, 16, 16, 16, 24, 31, 32, 32, 48, 64, 96, 0, -1, -2, -4, -8, -16)
AGAIN = 0.1
"""How often both operands have the same index in them."""
SHAPES = ((64,), (16,), (4, 16), (16, 4))
Numbers = np.ndarray


def _quotient(a: Numbers, b: Numbers) -> Numbers:
    a, b = a.astype(np.int16), b.astype(np.int16)
    return (np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)).astype(np.int8)


EVALUATE = {
    arith.add: np.add, arith.sub: np.subtract, arith.mul: np.multiply, arith.div: _quotient,
    arith.rem: lambda a, b: a - _quotient(a, b) * b, arith.shl: np.left_shift, arith.shr: np.right_shift,
    arith.and_: np.bitwise_and, arith.or_: np.bitwise_or, arith.xor: np.bitwise_xor, arith.minimum: np.minimum,
    arith.maximum: np.maximum,
}  # fmt: skip
COMPARE = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
OFTEN = (arith.add,) * 8 + (arith.mul,) * 4 + (arith.sub, arith.div, arith.rem, arith.shl, arith.shr, arith.and_)
PREDICATES = ("lt", "lt", "lt", "ge", "ge", "le", "gt", "eq", "ne")
SELDOM = (arith.or_, arith.xor, arith.minimum, arith.maximum, arith.select)


@dataclass
class Expression:
    """A function that computes one expression, and the numbers of each of its values; the last one is the result."""

    random: Random
    shape: tuple[int, ...]
    build: Builder = field(default_factory=Builder)
    numbers: dict[Value, Numbers] = field(default_factory=dict)
    variables: dict[str, Value] = field(default_factory=dict)
    variables_left: int = 2

    def __post_init__(self) -> None:
        self.params = {name: Value(I8, name) for name in ("n", "m")}

    @property
    def func(self) -> Func:
        self.build.emit(control.return_)
        attrs = FuncAttrs(num_warps=4, stage="tile", params=(ParamFacts(16), ParamFacts()))
        return self.build.func("k", tuple(self.params.values()), attrs)

    def emit(self, kind, *operands: Value, numbers: Numbers, **attrs) -> Value:
        value = self.build.emit(kind, *operands, **attrs)
        self.numbers[value] = numbers
        return value

    def variable(self) -> Value:
        """One of the variables: of at most two different ones."""
        names = ["pid", "n", "n", "h", "h", "m"] if self.variables_left else list(self.variables)
        name = self.random.choice(names)
        if name not in self.variables:
            self.variables_left -= 1
            numbers = self._along(AXES[name], VARIABLES[name])
            if name == "pid":
                wide = self.build.emit(program.program_id, axis=0)
                self.variables[name] = self.emit(arith.cast, wide, numbers=numbers, dtype=int8)
            elif name == "h":
                known = self.build.emit(arith.cast, self.build.emit(program.program_id, axis=1), dtype=int8)
                self.variables[name] = self.emit(hints.axes, known, numbers=numbers, divisible=(4,))
            else:
                self.variables[name] = self.params[name]
                self.numbers[self.params[name]] = numbers
        return self.variables[name]

    def number(self, value: int, type) -> Value:
        numbers = np.full((1,) * (4 + len(self.shape)), value, np.int8)
        return self.emit(arith.constant, numbers=numbers, value=value, type=type)

    def splat(self, x: Value) -> Value:
        return self.emit(tile.splat, x, numbers=self.numbers[x], shape=self.shape, layout=AUTO)

    def along(self, axis: int) -> Value:
        """The index along an axis, from some number on."""
        start, size = self.random.choice((0, 0, 0, 0, 8, 16, 3, -16)), self.shape[axis]
        x = self.build.emit(tile.arange, start=start, end=start + size, layout=AUTO)
        x = self.build.emit(arith.cast, x, dtype=int8)
        for d in range(len(self.shape)):
            if d != axis:
                x = self.build.emit(tile.expand_dims, x, axis=d)
        if len(self.shape) > 1:
            x = self.build.emit(tile.broadcast, x, shape=self.shape)
        self.numbers[x] = self._along(4 + axis, np.arange(start, start + size))
        return x

    def _along(self, axis: int, numbers: Numbers) -> Numbers:
        return np.expand_dims(numbers.astype(np.int8), [a for a in range(4 + len(self.shape)) if a != axis])

    def scalar(self, depth: int) -> Value:
        """A scalar expression."""
        if not depth or self.random.random() < 0.15:
            return self.variable() if self.random.random() < 0.75 else self.number(self.random.choice(CONSTANTS), I8)
        return self.combined(lambda: self.scalar(depth - 1), lambda value: self.number(value, I8))

    def tile(self, depth: int, axes: tuple[int, ...]) -> Value:
        """A tile expression of the indices along these axes."""
        if not depth and len(axes) == 1:
            return self.along(*axes)
        type = tile_type(int8, self.shape, AUTO)
        both = self.random.random() < AGAIN
        first, second = (axes, axes if both else ()) if len(axes) == 1 else (axes[:1], axes[1:])

        def operand() -> Value:
            return self.tile(max(depth - 1, 0), second) if second else self.splat(self.scalar(depth - 1))

        return self.combined(operand, lambda value: self.number(value, type), self.tile(max(depth - 1, 0), first))

    def combined(self, operand, number, first: Value | None = None) -> Value:
        """An operation on two expressions, or on one and a constant."""
        draw = self.random
        kind = draw.choice(OFTEN if draw.random() < 0.9 else SELDOM)
        x = operand() if first is None else first
        if kind in (arith.shl, arith.shr):
            y = number(draw.randrange(6))
        elif kind in (arith.div, arith.rem):
            y = number(draw.choice([c for c in CONSTANTS if c > 0]))
        else:
            y = (
                operand()
                if (first is not None and draw.random() < 0.6) or draw.random() < 0.5
                else number(draw.choice(CONSTANTS))
            )
        if first is not None and kind is not arith.sub and kind not in (arith.shl, arith.shr, arith.div, arith.rem):
            x, y = draw.choice(((x, y), (y, x)))
        a, b = self.numbers[x], self.numbers[y]
        if kind is not arith.select:
            return self.emit(kind, x, y, numbers=EVALUATE[kind](a, b))
        condition = self.compared(x, y)
        return self.emit(kind, condition, x, y, numbers=np.where(self.numbers[condition], a, b))

    def compared(self, x: Value, y: Value) -> Value:
        """A mask."""
        predicate = self.random.choice(PREDICATES)
        return self.emit(
            arith.cmp, x, y, numbers=COMPARE[predicate](self.numbers[x], self.numbers[y]), predicate=predicate
        )


def expressions(seed: int, count: int) -> Iterator[Expression]:
    """Random expressions of depth 2 to 5, over tiles; a sixth of them masks."""
    random = Random(seed)
    for _ in range(count):
        made = Expression(random, random.choice(SHAPES))
        axes = tuple(random.sample(range(len(made.shape)), len(made.shape)))
        x = made.tile(random.randrange(1, 5), axes)
        if random.random() < 1 / 6:
            made.compared(x, made.splat(made.scalar(1)))
        else:
            y = made.splat(made.scalar(2))
            made.emit(arith.add, x, y, numbers=made.numbers[x] + made.numbers[y])
        yield made


def runs(numbers: Numbers, axis: int, size: int) -> Numbers:
    """Numbers with runs of `size` along an axis of the tile as the last axis."""
    moved = np.moveaxis(numbers, 4 + axis, -1)
    return moved.reshape(*moved.shape[:-1], -1, size)


def whole(numbers: Numbers, shape: tuple[int, ...]) -> Numbers:
    """With the axes of the tile at their full length."""
    return np.broadcast_to(numbers, (*numbers.shape[:4], *shape))
