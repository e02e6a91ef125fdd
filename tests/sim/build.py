"""Kernels for the simulator's tests, built operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import numpy as np

import weft.ops  # noqa: F401  fills the table of operations
from weft import sim, targets
from weft.errors import Loc
from weft.ir.build import Builder
from weft.ir.core import Func, FuncAttrs, ParamFacts, Value
from weft.ir.types import (
    DType,
    Element,
    Pointer,
    ScalarType,
    TileType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from weft.layout import BlockedLayout, SliceLayout
from weft.ops import arith, control, memory, tile
from weft.sim.numbers.arithmetic import numpy_dtype

TARGET = targets.get("sm_90a")
LINE = BlockedLayout([4], [32], [4], [0])
GRID = BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0])
BY_NUMPY = {
    numpy_dtype(d): d
    for d in (
        int1, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
        float8e4nv, float8e5, float16, bfloat16, float32, float64,
    )
}  # fmt: skip


class Kernel(Builder):
    """A builder with the shorthand that tests need. `loc` is a line of a file that does not exist, unless set."""

    def __init__(self, *params: tuple[str, Element], num_warps: int = 4, stage: str = "tile", **attrs: Any) -> None:
        super().__init__()
        self.params = tuple(Value(ScalarType(element), name) for name, element in params)
        self.attrs: dict[str, Any] = {
            "num_warps": num_warps,
            "target": "sm_90a",
            "params": (ParamFacts(),) * len(params),
            "stage": stage,
            **attrs,
        }
        self.loc = Loc("<kernel>", 1)

    def at(self, line: int) -> Kernel:
        self.loc = Loc("<kernel>", line)
        return self

    def done(self) -> Func:
        self.emit(control.return_)
        return self.func("kernel", self.params, FuncAttrs(**self.attrs))

    # Values

    def number(self, value: float, like: Value | Element = int32) -> Value:
        type = like.type if isinstance(like, Value) else ScalarType(like)
        return self.emit(arith.constant, value=value, type=type)

    def arange(self, n: int, layout: Any = LINE) -> Value:
        return self.emit(tile.arange, start=0, end=n, layout=layout)

    def splat(self, x: Value, like: Value) -> Value:
        return self.emit(tile.splat, x, shape=like.type.shape, layout=like.type.layout)

    def add(self, lhs: Value, rhs: Value) -> Value:
        return self.emit(arith.add, lhs, rhs)

    def mul(self, lhs: Value, rhs: Value) -> Value:
        return self.emit(arith.mul, lhs, rhs)

    def cmp(self, predicate: str, lhs: Value, rhs: Value) -> Value:
        return self.emit(arith.cmp, lhs, rhs, predicate=predicate)

    def below(self, lhs: Value, limit: float) -> Value:
        return self.cmp("lt", lhs, self.number(limit, lhs))

    def address(self, ptr: Value, offsets: Value) -> Value:
        pointers = self.splat(ptr, offsets) if isinstance(offsets.type, TileType) else ptr
        return self.emit(memory.addptr, pointers, offsets)

    def load(self, ptr: Value, offsets: Value, mask: Value | None = None, other: Value | None = None) -> Value:
        return self.emit(memory.load, self.address(ptr, offsets), mask, other)

    def watch(self, ptr: Value, offsets: Value) -> Value:
        """A load that synchronises."""
        return self.emit(memory.load, self.address(ptr, offsets), None, None, volatile=True)

    def signal(self, ptr: Value, offsets: Value) -> None:
        """Set a flag that others watch."""
        self.emit(memory.atomic, self.address(ptr, offsets), self.number(1), None, kind="xchg")

    def store(self, ptr: Value, offsets: Value, value: Value, mask: Value | None = None) -> None:
        self.emit(memory.store, self.address(ptr, offsets), value, mask)

    def grid_offsets(self, shape: tuple[int, int], columns: int, layout: Any = GRID) -> Value:
        """`row * columns + column` as a tile."""
        rows = self.emit(tile.arange, start=0, end=shape[0], layout=SliceLayout(1, layout))
        cols = self.emit(tile.arange, start=0, end=shape[1], layout=SliceLayout(0, layout))
        rows = self.mul(rows, self.number(columns, rows))
        rows = self.emit(tile.broadcast, self.emit(tile.expand_dims, rows, axis=1), shape=shape)
        cols = self.emit(tile.broadcast, self.emit(tile.expand_dims, cols, axis=0), shape=shape)
        return self.add(rows, cols)


def pointer(dtype: DType) -> Pointer:
    return Pointer(dtype)


def buffer(name: str, array: np.ndarray) -> sim.Buffer:
    """An argument over an array's memory."""
    return sim.Buffer(name, array.reshape(-1).view(np.uint8), 0, array.__array_interface__["data"][0] & 0xFFF)


def run(func: Func, *arguments: Any, grid: tuple[int, ...] = (1, 1, 1), **options: Any) -> sim.Report:
    """Run with NumPy arrays as pointers, named as the parameters."""
    options.setdefault("stdout", StringIO())
    made = [
        buffer(param.name, a) if isinstance(a, np.ndarray) else a
        for param, a in zip(func.params, arguments, strict=True)
    ]
    full = (*grid, 1, 1)[:3]
    return sim.run(func, full, made, target=TARGET, **options)


def elementwise(
    inputs: Sequence[np.ndarray], result: np.dtype, body: Callable[..., Value], layout: Any = LINE
) -> np.ndarray:
    """`body(kernel, *tiles)` over whole arrays of one power-of-two length."""
    n = inputs[0].size
    out = np.zeros(n, result)
    arrays = [*inputs, out]
    k = Kernel(*[(f"p{i}", pointer(BY_NUMPY[a.dtype])) for i, a in enumerate(arrays)])
    offsets = k.arange(n, layout)
    tiles = [k.load(p, offsets) for p in k.params[:-1]]
    k.store(k.params[-1], offsets, body(k, *tiles))
    run(k.done(), *arrays)
    return out
