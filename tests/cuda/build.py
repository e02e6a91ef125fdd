"""Lowered kernels for the tests of CUDA text, built operation by operation, and the compiler they go through."""

from __future__ import annotations

from typing import Any

import pytest

import weft.ops  # noqa: F401  fills the table of operations
from weft import targets
from weft.cuda import emit
from weft.errors import Loc
from weft.ir.build import Builder
from weft.ir.core import Func, FuncAttrs, ParamFacts, Value
from weft.ir.types import DType, Element, Pointer, RegsType, ScalarType, int32
from weft.ops import arith, control, memory, program, regs
from weft.passes.lowered.assign_registers import assign_registers
from weft.runtime.nvrtc import CompiledCuda, available, compile_cuda

ARCHITECTURES = (pytest.param("sm_80", marks=pytest.mark.matrix), "sm_90a", "sm_100a")
needs_nvrtc = pytest.mark.skipif(not available(), reason="needs NVRTC")


class Kernel(Builder):
    """A builder with the shorthand that tests need."""

    def __init__(self, *params: tuple[str, Element], num_warps: int = 4, name: str = "kernel", **attrs: Any) -> None:
        super().__init__()
        self.params = tuple(Value(ScalarType(element), name) for name, element in params)
        self.name = name
        self.attrs: dict[str, Any] = {
            "num_warps": num_warps,
            "target": "sm_90a",
            "params": (ParamFacts(),) * len(params),
            "stage": "lowered",
            **attrs,
        }
        self.loc = Loc("kernel.py", 1)

    def at(self, line: int) -> Kernel:
        self.loc = Loc("kernel.py", line)
        return self

    def done(self) -> Func:
        self.emit(control.return_)
        return assign_registers(self.func(self.name, self.params, FuncAttrs(**self.attrs)))

    def number(self, value: float, dtype: DType = int32, count: int | None = None) -> Value:
        scalar = self.emit(arith.constant, value=value, type=ScalarType(dtype))
        return scalar if count is None else self.emit(regs.splat, scalar, count=count)

    def thread(self) -> Value:
        """The thread's number in its block."""
        warp = self.emit(program.warp_id, name="warp")
        first = self.emit(arith.mul, warp, self.number(32))
        return self.emit(arith.add, first, self.emit(program.lane_id, name="lane"), name="thread")

    def load(
        self, ptr: Value, count: int, vec: int = 1, name: str = "", mask: Value | None = None, **attrs: Any
    ) -> Value:
        return self.emit(
            memory.load_regs, ptr, mask, attrs.pop("other", None), vec=vec, count=count, name=name,
            **_neighbours(count, vec), **attrs,
        )  # fmt: skip

    def store(self, ptr: Value, value: Value, vec: int = 1, mask: Value | None = None, **attrs: Any) -> None:
        count = value.type.count if isinstance(value.type, RegsType) else 1
        self.emit(memory.store_regs, ptr, value, mask, vec=vec, **_neighbours(count, vec), **attrs)


def _neighbours(count: int, vec: int) -> dict[str, Any]:
    """Accesses of `vec` consecutive registers each, a block's width apart."""
    starts = range(0, count, vec)
    registers = tuple([tuple(range(start, start + vec)) for start in starts])
    return {"offsets": (tuple([128 * start for start in starts]),), "registers": registers}


def pointer(dtype: DType) -> Pointer:
    return Pointer(dtype)


def text_of(func: Func, arch: str = "sm_90a") -> str:
    """The text without its prelude."""
    text = emit(func, targets.get(arch))
    return text[text.index('extern "C"') :]


def compiled(func: Func, arch: str = "sm_90a") -> CompiledCuda:
    return compile_cuda(emit(func, targets.get(arch)), name=func.name, arch=arch)
