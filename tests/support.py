"""Checking passes: a kernel runs in the simulator before and after, on the same inputs, and must leave the same bits.

    k = tile_kernel(num_warps=4)
    x = k.input(float32, (64,), LAYOUT)             # a pointer parameter, random data, and the tile loaded from it
    k.output(k.add(x, x))                           # another pointer parameter, poisoned, and the tile stored to it
    after = k.check(lowered)                        # both stages agree bit for bit; gives the function after the pass

`Kernel` of the simulator's tests has the shorthand for values; here are arguments, and the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from math import prod
from typing import Any

import numpy as np

from tests.sim.build import TARGET, Kernel
from weft import sim
from weft.ir.core import Func, Op, OpDef, ParamFacts, Value, walk
from weft.ir.text import format_func
from weft.ir.types import (
    DType,
    Element,
    Pointer,
    ScalarType,
    TileType,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from weft.ir.verify import verify
from weft.layout import DistributedLayout
from weft.layout.distributed import infer
from weft.ops import arith, debug, memory, sync, tile
from weft.passes.dce import dce
from weft.passes.lower import lower_tiles
from weft.passes.lowered.allocate_scratch import allocate_scratch
from weft.passes.simplify import simplify
from weft.passes.sync.insert_sync import insert_sync
from weft.sim.numbers.arithmetic import bits_of, numpy_dtype

Pass = Callable[[Func], Func]
Shape = tuple[int, ...]
Argument = np.ndarray | int | float | bool
POISON = 0xA5
UNSIGNED = {8: uint8, 16: uint16, 32: uint32, 64: uint64}
# A page: addresses that a kernel stores are then the same in every run.
ALIGNMENT = 4096


def lowered(func: Func) -> Func:
    """Tile IR to lowered IR that is ready to run: simplified, scratch memory allocated, barriers placed."""
    return insert_sync(allocate_scratch(dce(lower_tiles(dce(simplify(func)), TARGET)), TARGET))


def check_pass(
    func: Func, pass_: Pass, arguments: Sequence[Argument], *, grid: Shape = (1, 1, 1), in_order: bool = True
) -> Func:
    """Run `func` and what the pass makes of it on copies of the arguments; arrays must end bit for bit the same.

    Printed lines must be the same too, in any order unless `in_order`. Returns the function after the pass.
    """
    verify(func)
    after = pass_(func)
    verify(after)
    first, first_lines = simulate(func, arguments, grid)
    second, second_lines = simulate(after, arguments, grid)
    for param, a, b in zip(func.params, first, second, strict=True):
        differing = np.flatnonzero(a != b)
        assert not differing.size, (
            f"{param.name}: {differing.size} of {a.size} bytes differ, first byte {differing[0]}\n"
            f"{format_func(func)}\n{format_func(after)}"
        )
    if in_order:
        assert first_lines == second_lines
    else:
        assert sorted(first_lines) == sorted(second_lines)
    return after


def simulate(func: Func, arguments: Sequence[Argument], grid: Shape = (1, 1, 1)) -> tuple[list[np.ndarray], list[str]]:
    """Run on aligned copies of the arrays; gives the bytes of every array (none for numbers), and the printed lines."""
    made: list[Any] = []
    copies: list[np.ndarray] = []
    for param, argument in zip(func.params, arguments, strict=True):
        if not isinstance(argument, np.ndarray):
            made.append(argument)
            copies.append(np.empty(0, np.uint8))
            continue
        copy = aligned(argument)
        copies.append(copy)
        made.append(sim.Buffer(param.name, copy, 0, copy.ctypes.data & 0xFFF))
    x, y, z = (*grid, 1, 1)[:3]
    report = sim.run(func, (x, y, z), made, target=TARGET, stdout=StringIO())
    return copies, report.lines


def aligned(array: np.ndarray, alignment: int = ALIGNMENT) -> np.ndarray:
    """A copy as bytes, whose address is a multiple of the alignment."""
    flat = bits_of(np.ascontiguousarray(array).reshape(-1)).view(np.uint8)
    room = np.empty(flat.size + alignment, np.uint8)
    start = -room.ctypes.data % alignment
    room[start : start + flat.size] = flat
    return room[start : start + flat.size]


def random_array(rng: np.random.Generator, element: DType, size: int, low: int = -100, high: int = 100) -> np.ndarray:
    """Numbers of any element type: integers between `low` and `high` (where the type holds them), floats around one."""
    dtype = numpy_dtype(element)
    if element.is_bool():
        return rng.integers(0, 2, size).astype(bool)
    if element.is_floating():
        return rng.normal(size=size).astype(np.float32).astype(dtype)
    return rng.integers(max(low, element.min_value), min(high, element.max_value), size, endpoint=True).astype(dtype)


def any_bits(rng: np.random.Generator, element: DType, size: int) -> np.ndarray:
    """Any bits, as elements of the type (bools are 0 or 1)."""
    if element.is_bool():
        return random_array(rng, element, size)
    return rng.integers(0, 256, size * element.itemsize, dtype=np.uint8).view(numpy_dtype(element))


def count(func: Func, *kinds: OpDef) -> int:
    """Operations of these kinds in a function."""
    return sum(op.kind in kinds for op in walk(func.body))


def ops_of(func: Func, kind: OpDef) -> list[Op]:
    """All operations of a kind."""
    return [op for op in walk(func.body) if op.kind is kind]


def tile_kernel(*, num_warps: int = 4, seed: int = 0) -> TileKernel:
    """A kernel under construction that collects its arguments."""
    return TileKernel(num_warps, seed)


class TileKernel(Kernel):
    """A builder that adds parameters as tests ask for inputs and outputs, with an argument for each."""

    def __init__(self, num_warps: int, seed: int) -> None:
        super().__init__(num_warps=num_warps)
        self.rng = np.random.default_rng(seed)
        self.arguments: list[Argument] = []
        self.facts: list[ParamFacts] = []

    # Parameters

    def parameter(self, element: Element, argument: Argument, divisible: int = 1) -> Value:
        """A run-time parameter with its argument; `divisible` is what the compiler may know about it (pointers: bytes)."""
        value = Value(ScalarType(element), f"p{len(self.params)}")
        self.params = (*self.params, value)
        self.arguments.append(argument)
        self.facts.append(ParamFacts(divisible))
        return value

    def number_in(self, value: int | float | bool, element: DType = int32, divisible: int = 1) -> Value:
        """A scalar parameter."""
        return self.parameter(element, value, divisible)

    def pointer_in(self, array: np.ndarray, element: DType, divisible: int = 16) -> Value:
        """A pointer parameter over a copy of an array."""
        return self.parameter(Pointer(element), array, divisible)

    def input(self, element: DType, shape: Shape, layout: DistributedLayout, data: np.ndarray | None = None) -> Value:
        """A tile of random numbers (or of `data`), loaded from a parameter of its own."""
        array = random_array(self.rng, element, prod(shape)) if data is None else data
        ptr = self.pointer_in(array.reshape(-1), element)
        return self.load(ptr, self.positions(shape, layout))

    def output(self, value: Value, mask: Value | None = None) -> None:
        """Store a tile or scalar to a poisoned parameter of its own. Addresses are kept as numbers."""
        element = value.type.element
        if isinstance(element, Pointer):
            self.output(self.emit(arith.bitcast, value, element=int64), mask)
            return
        shape = value.type.shape if isinstance(value.type, TileType) else ()
        poison = np.full(prod(shape) * element.itemsize, POISON, np.uint8)
        ptr = self.parameter(Pointer(element), poison, 16)
        if isinstance(value.type, TileType):
            self.store(ptr, self.positions(shape, value.type.layout), value, mask)
        else:
            self.emit(memory.store, ptr, value, mask)

    def output_of_all(self, value: Value) -> None:
        """`output`, and every thread that holds an element checks that it holds what was stored."""
        element = value.type.element
        if isinstance(element, Pointer):
            self.output_of_all(self.emit(arith.bitcast, value, element=int64))
            return
        self.output(value)
        self.emit(sync.barrier)
        where = None
        if isinstance(value.type, TileType):
            where = self.positions(value.type.shape, value.type.layout)
        stored = self.emit(
            memory.load, self.params[-1] if where is None else self.address(self.params[-1], where), None, None
        )
        equal = self.cmp("eq", self.bits(stored), self.bits(value))
        self.emit(debug.assert_, equal, None, message="all holders agree")

    # Values

    def bits(self, x: Value) -> Value:
        """An array's bits as unsigned integers."""
        element = x.type.element
        if element.is_bool():
            return self.cast(x, uint8)
        return self.emit(arith.bitcast, x, element=UNSIGNED[element.bits])

    def positions(self, shape: Shape, layout: DistributedLayout) -> Value:
        """The row-major number of each element of a tile."""
        flat = infer.reshape(layout, shape, (prod(shape),))
        numbers = self.emit(tile.arange, start=0, end=prod(shape), layout=flat)
        whole = self.emit(tile.reshape, numbers, shape=shape)
        return self.emit(tile.convert, whole, layout=layout)

    def coordinate(self, shape: Shape, axis: int, layout: DistributedLayout) -> Value:
        """Each element's coordinate along an axis, computed from its position."""
        stride = prod(shape[axis + 1 :])
        numbers = self.positions(shape, layout)
        shifted = self.emit(arith.shr, numbers, self.number(stride.bit_length() - 1, numbers))
        return self.emit(arith.and_, shifted, self.number(shape[axis] - 1, numbers))

    def expand(self, x: Value, axis: int) -> Value:
        return self.emit(tile.expand_dims, x, axis=axis)

    def broadcast(self, x: Value, shape: Shape) -> Value:
        return self.emit(tile.broadcast, x, shape=shape)

    def convert(self, x: Value, layout: DistributedLayout) -> Value:
        return self.emit(tile.convert, x, layout=layout)

    def cast(self, x: Value, dtype: DType) -> Value:
        return self.emit(arith.cast, x, dtype=dtype)

    # Running

    def finished(self) -> Func:
        """The function, with what is known about its parameters. Once: it ends the kernel (and `check` calls it)."""
        self.attrs = {**self.attrs, "params": tuple(self.facts)}
        return self.done()

    def check(self, pass_: Pass = lowered, *, grid: Shape = (1, 1, 1), in_order: bool = True) -> Func:
        """Run the function before and after the pass; see `check_pass`."""
        return check_pass(self.finished(), pass_, self.arguments, grid=grid, in_order=in_order)


def warps_of(layout: DistributedLayout, shape: Iterable[int]) -> int:
    """Warps of the block that a layout is made for."""
    return layout.to_linear(tuple(shape)).in_size("warp")
