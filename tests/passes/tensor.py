"""Kernels on tensor memory for the tests of passes, on the buffers and steps of `tests.passes.shared`."""

from __future__ import annotations

from typing import Any

from tests.passes.shared import Rules
from weft import targets
from weft.ir.core import Func, Value
from weft.ir.types import ScalarType, float16, float32, int64
from weft.layout import SwizzledSharedLayout
from weft.layout.tensor_memory.layouts import TensorMemoryLayout
from weft.layout.tensor_memory.load_store import register_layout
from weft.ops import arith, clc, shared, tcgen05, tensor_memory, tile
from weft.passes.tile.allocate_tensor_memory import allocate_tensor_memory

SM100 = targets.get("sm_100a")
ROWS, COLUMNS, INNER = 128, 64, 16
ACC = TensorMemoryLayout([ROWS, COLUMNS])
FLAT = SwizzledSharedLayout(1, 1, 1, [1, 0])
ANSWER = SwizzledSharedLayout(1, 1, 1, [0])


class TensorKernel(Rules):
    """Operands `x` and `y` in shared memory, two accumulators `accs` of 64 columns each in tensor memory, an answer.

    `M` starts the product to the first accumulator, `M1` to the second, `Mi` to some; `C` commits to `bar`, `C2` to `other`.
    `L` loads, `T` stores the first, `L1` and `T1` the second, `Li` some. `ask` and `told` are about the answer.
    """

    def __init__(self, sync: str = "auto", num_warps: int = 4) -> None:
        super().__init__(sync, num_warps)
        self.attrs["target"] = "sm_100a"
        self.x, self.y = self.matrix("x", ROWS, INNER), self.matrix("y", INNER, COLUMNS)
        self.answer = self.alloc("answer", layout=ANSWER, element=int64, length=2)
        self.accs = self.tensor("accs", 2, ROWS, COLUMNS)
        self.steps |= {
            "M": lambda: self.multiply(self.acc(0)),
            "M1": lambda: self.multiply(self.acc(1)),
            "Mi": lambda: self.multiply(self.acc(self.n)),
            "C": lambda: self.commit(self.bar),
            "C2": lambda: self.commit(self.other),
            "L": lambda: self.take(self.acc(0)),
            "L1": lambda: self.take(self.acc(1)),
            "Li": lambda: self.take(self.acc(self.n)),
            "T": lambda: self.put(self.acc(0)),
            "T1": lambda: self.put(self.acc(1)),
            "Wx": lambda: self.write_matrix(self.x),
            "ask": lambda: self.emit(clc.try_cancel, self.answer, self.bar),
            "told": lambda: self.emit(clc.load, self.answer),
        }

    # Memory

    def matrix(self, name: str, rows: int, columns: int) -> Value:
        self.tags += 1
        return self.emit(shared.alloc, element=float16, shape=(rows, columns), layout=FLAT, tag=self.tags, name=name)

    def tensor(self, name: str, *shape: int, element: Any = float32, layout: Any = ACC) -> Value:
        self.tags += 1
        return self.emit(tensor_memory.alloc, element=element, shape=shape, layout=layout, tag=self.tags, name=name)

    def acc(self, number: int | Value) -> Value:
        value = number if isinstance(number, Value) else self.number(number)
        return self.emit(tensor_memory.index, self.accs, value)

    def part(self, handle: Value, start: int, length: int, dim: int) -> Value:
        return self.emit(tensor_memory.slice, handle, start=start, length=length, dim=dim)

    def held(self, handle: Value, warps: int) -> Any:
        t = handle.type
        return register_layout(t.element.bits, t.shape, t.layout, warps)

    # Operations

    def multiply(self, acc: Value, x: Value | None = None) -> None:
        self.emit(tcgen05.mma, x or self.x, self.y, acc, None, None)

    def commit(self, bar: Value) -> None:
        self.emit(tcgen05.commit, bar, None)

    def take(self, handle: Value, warps: int = 0) -> Value:
        return self.emit(tensor_memory.load, handle, layout=self.held(handle, warps or self.attrs["num_warps"]))

    def put(self, handle: Value, warps: int = 0) -> None:
        layout = self.held(handle, warps or self.attrs["num_warps"])
        zero = self.emit(arith.constant, value=0.0, type=ScalarType(handle.type.element))
        value = self.emit(tile.splat, zero, shape=handle.type.shape, layout=layout)
        self.emit(tensor_memory.store, handle, value, None)

    def write_matrix(self, handle: Value) -> None:
        zero = self.emit(arith.constant, value=0.0, type=ScalarType(float16))
        layout = register_layout(16, (ROWS, INNER), TensorMemoryLayout([ROWS, INNER]), self.attrs["num_warps"])
        self.emit(shared.store, handle, self.emit(tile.splat, zero, shape=(ROWS, INNER), layout=layout))

    # Passes

    def allocated(self) -> Func:
        for handle in (self.x, self.y, self.answer):
            self.emit(shared.keep_alive, handle)
        return allocate_tensor_memory(super().allocated(), SM100)

    def named(self, func: Func) -> str:
        names = {
            "tcgen05.mma": "M", "tcgen05.commit": "C", "tensor_memory.load": "L", "tensor_memory.store": "T",
            "clc.try_cancel": "ask", "clc.load": "told",
        }  # fmt: skip
        return " ".join(names.get(word, word) for word in super().named(func).split())
