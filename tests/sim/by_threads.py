"""Kernels of single threads for the simulator's tests: one element of an array or of shared memory at a time, or vectors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tests.sim import build
from tests.sim.build import Kernel
from tests.support import lowered
from weft import sim
from weft.errors import Hazard
from weft.ir.core import Func, Value
from weft.ir.types import DType, Element, RegsType
from weft.ir.verify import verify
from weft.ops import arith, memory, program, regs, shared, sync, thread


class Threads(Kernel):
    """A builder for a block of `block` threads; x is the fastest."""

    def __init__(self, *params: tuple[str, Element], block: tuple[int, ...] = (32,), **attrs: object) -> None:
        full = (*block, 1, 1)[:3]
        # Lowered IR checks indices into views in a debug build only; here both stages check them.
        super().__init__(*params, num_warps=-(-prod(full) // 32), block=full, **{"debug": True, **attrs})
        self.block = full
        self._tags = 0

    @property
    def tid(self) -> Value:
        """The thread's number."""
        return self.emit(program.thread_id)

    @property
    def places(self) -> tuple[Value, Value]:
        """`thread_idx.x` and `thread_idx.y`."""
        x = self.number(self.block[0])
        return self.emit(arith.rem, self.tid, x), self.emit(arith.div, self.tid, x)

    def pid(self, axis: int = 0) -> Value:
        return self.emit(program.program_id, axis=axis)

    def int(self, value: int) -> Value:
        return self.number(value)

    def sub(self, lhs: Value, rhs: Value) -> Value:
        return self.emit(arith.sub, lhs, rhs)

    def rem(self, lhs: Value, by: int) -> Value:
        return self.emit(arith.rem, lhs, self.number(by))

    def one(self, x: Value) -> Value:
        """A scalar as an array of one register, or the scalar that such an array holds."""
        if isinstance(x.type, RegsType):
            return self.emit(regs.extract, x, index=0)
        return self.emit(regs.splat, x, count=1)

    def get(
        self, ptr: Value, index: Value, mask: Value | None = None, vec: int = 1, other: Value | None = None
    ) -> Value:
        """`ptr[index]`: a scalar, or `vec` elements from there on."""
        found = self.emit(
            memory.load_regs, ptr, mask, other, index, offsets=((0,), (1,)), registers=(tuple(range(vec)),), vec=vec, count=vec
        )  # fmt: skip
        return self.one(found) if vec == 1 else found

    def put(self, ptr: Value, index: Value, value: Value, mask: Value | None = None) -> None:
        value = value if isinstance(value.type, RegsType) else self.one(value)
        vec = value.type.count
        self.emit(
            memory.store_regs, ptr, value, mask, index, offsets=((0,), (1,)), registers=(tuple(range(vec)),), vec=vec
        )

    def shared(self, dtype: DType, count: int, name: str = "smem") -> Value:
        self._tags += 1
        return self.emit(shared.array, dtype=dtype, count=count, tag=self._tags, name=name)

    def read(
        self, memory: Value, index: Value, mask: Value | None = None, offsets: Sequence[int] = (0,), vec: int = 1
    ) -> Value:
        found = self.emit(thread.load_shared, memory, index, mask, offsets=tuple(offsets), vec=vec)
        return self.one(found) if found.type.count == 1 else found

    def write(
        self, memory: Value, index: Value, value: Value, mask: Value | None = None, offsets: Sequence[int] = (0,),
        vec: int = 1,
    ) -> None:  # fmt: skip
        value = value if isinstance(value.type, RegsType) else self.one(value)
        self.emit(thread.store_shared, memory, index, value, mask, offsets=tuple(offsets), vec=vec)

    def local(self, dtype: DType, count: int, name: str = "mine") -> Value:
        self._tags += 1
        return self.emit(thread.alloc_local, dtype=dtype, count=count, tag=self._tags, name=name)

    def barrier(self) -> None:
        self.emit(sync.barrier)

    def inside(self, view: str, *indices: Value, sizes: Sequence[int | Value]) -> None:
        """Check indices into a view."""
        further = [size for size in sizes if isinstance(size, Value)]
        constant = tuple(-1 if isinstance(size, Value) else size for size in sizes)
        self.emit(thread.bounds, *indices, *further, sizes=constant, view=view)


def run(func: Func, *arguments: Any, **options: Any) -> sim.Report:
    """Run tile IR, and lowered IR on copies: the same numbers, or the same hazard, which is then raised."""
    verify(func)
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    after = lowered(func)
    verify(after)
    found, again = outcome(func, *arguments, **options), outcome(after, *copies, **options)
    assert getattr(found, "code", "") == getattr(again, "code", ""), f"{found}\nand when lowered\n{again}"
    if isinstance(found, Hazard):
        raise found
    for given, other in zip(arguments, copies, strict=True):
        if isinstance(given, np.ndarray):
            np.testing.assert_array_equal(given.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8))
    return found


def outcome(func: Func, *arguments: Any, **options: Any) -> sim.Report | Hazard:
    """What comes of running a function: a report, or the hazard that it meets."""
    try:
        return build.run(func, *arguments, **options)
    except Hazard as error:
        return error
