"""Kernels of single threads for the tests of passes and text, built operation by operation as the language makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from tests.sim.build import Kernel
from weft import targets
from weft.ir.core import Func, ParamFacts, Value
from weft.ir.types import DType, Element, Pointer, RegsType, ScalarType, float32, int32
from weft.ops import arith, async_copy, control, memory, program, regs, shared, sync, thread
from weft.ops import memory as memory_ops
from weft.passes.pipeline import lower_pipeline, tile_pipeline

Index = Value | int


class Threads(Kernel):
    """A kernel launched with `block=`, and the operations of threads by short names; numbers stand for constants."""

    def __init__(self, *params: tuple[str, Element], block: tuple[int, ...] = (128,), **attrs: Any) -> None:
        shape = (*block, 1, 1)[:3]
        super().__init__(*params, num_warps=-(-prod(block) // 32), block=shape, **attrs)
        self.attrs["params"] = tuple(
            ParamFacts(16) if isinstance(element, Pointer) else ParamFacts() for _, element in params
        )
        self.block = shape
        self.tags = 0

    # Scalars

    def value(self, x: Index, like: Element = int32) -> Value:
        return x if isinstance(x, Value) else self.number(x, like)

    def arith(self, kind: Any, a: Index, b: Index, name: str = "", **attrs: Any) -> Value:
        return self.emit(kind, self.value(a), self.value(b), name=name, **attrs)

    def plus(self, a: Index, b: Index, name: str = "") -> Value:
        return self.arith(arith.add, a, b, name)

    def times(self, a: Index, b: Index, name: str = "") -> Value:
        return self.arith(arith.mul, a, b, name)

    def over(self, a: Index, b: Index, name: str = "") -> Value:
        return self.arith(arith.div, a, b, name)

    def modulo(self, a: Index, b: Index, name: str = "") -> Value:
        return self.arith(arith.rem, a, b, name)

    def less(self, a: Index, b: Index, name: str = "") -> Value:
        return self.arith(arith.cmp, a, b, name, predicate="lt")

    def thread_idx(self, axis: int) -> Value:
        """As the language spells it: no division where a size is one, or for the last axis."""
        inside, outside = prod(self.block[:axis]), prod(self.block[axis + 1 :])
        number = self.emit(program.thread_id, name="thread")
        if inside > 1:
            number = self.over(number, inside)
        return number if outside == 1 else self.modulo(number, self.block[axis])

    def global_idx(self, axis: int) -> Value:
        block = self.emit(program.program_id, axis=axis)
        return self.plus(self.times(block, self.block[axis]), self.thread_idx(axis), "xyz"[axis])

    # Memory

    def load(
        self, ptr: Value, at: Index, vec: int = 1, mask: Value | None = None, name: str = "", **attrs: Any
    ) -> Value:
        """`vec` elements, or a scalar."""
        loaded = self.emit(
            memory.load_regs, self.emit(memory_ops.addptr, ptr, self.value(at)), mask, None, name=name, offsets=((0,),),
            registers=(tuple(range(vec)),), vec=vec, count=vec, **attrs,
        )  # fmt: skip
        return loaded if vec > 1 else self.emit(regs.extract, loaded, index=0)

    def store(self, ptr: Value, at: Index, value: Value, mask: Value | None = None) -> None:
        array = value if isinstance(value.type, RegsType) else self.emit(regs.concat, value)
        vec = array.type.count
        self.emit(
            memory.store_regs, self.emit(memory_ops.addptr, ptr, self.value(at)), array, mask, offsets=((0,),),
            registers=(tuple(range(vec)),), vec=vec,
        )  # fmt: skip

    def share(self, dtype: DType, count: int, name: str) -> Value:
        self.tags += 1
        return self.emit(shared.array, dtype=dtype, count=count, tag=self.tags, name=name)

    def own(self, dtype: DType, count: int, name: str) -> Value:
        self.tags += 1
        return self.emit(thread.alloc_local, dtype=dtype, count=count, tag=self.tags, name=name)

    def get(self, memory: Value, at: Index, vec: int = 1, offsets: tuple[int, ...] = (0,), mask: Any = None) -> Value:
        """From shared memory: an array, or a scalar where it has one element."""
        loaded = self.emit(thread.load_shared, memory, self.value(at), mask, offsets=offsets, vec=vec)
        return loaded if loaded.type.count > 1 else self.emit(regs.extract, loaded, index=0)

    def put(self, memory: Value, at: Index, value: Value, vec: int = 1, offsets: Any = (0,), mask: Any = None) -> None:
        array = value if isinstance(value.type, RegsType) else self.emit(regs.concat, value)
        self.emit(thread.store_shared, memory, self.value(at), array, mask, offsets=offsets, vec=vec)

    def read(self, memory: Value, at: Index) -> Value:
        """One element of a thread's own array."""
        index, offset = (None, at) if isinstance(at, int) else (at, 0)
        return self.emit(regs.extract, self.emit(thread.load_local, memory, index, offsets=(offset,)), index=0)

    def write(self, memory: Value, at: Index, value: Value) -> None:
        index, offset = (None, at) if isinstance(at, int) else (at, 0)
        self.emit(thread.store_local, memory, index, self.emit(regs.concat, value), None, offsets=(offset,))

    def copy(self, memory: Value, to: Index, ptr: Value, at: Index, vec: int, mask: Value | None = None) -> None:
        """Start an asynchronous copy."""
        self.emit(
            async_copy.copy, memory, self.value(to), self.emit(memory_ops.addptr, ptr, self.value(at)), mask, None, None, None,
            offsets=((0,),), places=(0,), vec=vec,
        )  # fmt: skip

    def arrived(self, pendings: int = 0) -> None:
        self.emit(async_copy.commit)
        self.emit(async_copy.wait, pendings=pendings)

    def barrier(self) -> None:
        self.emit(sync.barrier)

    # Control flow

    @contextmanager
    def loop(self, upper: Index, name: str = "i", lower: Index = 0, step: int = 1) -> Iterator[Value]:
        bounds = [self.value(lower), self.value(upper), self.value(step)]
        with self.region([ScalarType(int32)], [name]) as body:
            yield body.args[0]
            self.emit(control.yield_)
        self.emit(control.for_, *bounds, descending=False, regions=(body.done,))

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        with self.region() as then:
            yield
            self.emit(control.yield_)
        with self.region() as orelse:
            self.emit(control.yield_)
        self.emit(control.if_, condition, regions=(then.done, orelse.done))


def tiled(func: Func, arch: str = "sm_90a") -> Func:
    return tile_pipeline(func, targets.get(arch))


def lowered(func: Func, arch: str = "sm_90a") -> Func:
    target = targets.get(arch)
    return lower_pipeline(tile_pipeline(func, target), target)


def pointers(*names: str, dtype: DType = float32) -> tuple[tuple[str, Element], ...]:
    return tuple((name, Pointer(dtype)) for name in names)


# Kernels


def add_one(block: tuple[int, ...] = (8, 8)) -> Threads:
    """`t[x, y] += 1` where x and y are inside of a matrix of run-time sizes and stride."""
    k = Threads(*pointers("t"), ("rows", int32), ("columns", int32), ("stride", int32), block=block)
    t, rows, columns, stride = k.params
    x, y = k.at(2).global_idx(0), k.global_idx(1)
    inside = k.at(3).emit(arith.and_, k.less(x, rows), k.less(y, columns))
    with k.when(inside):
        at = k.at(4).plus(k.times(x, stride), y)
        k.store(t, at, k.emit(arith.add, k.load(t, at), k.number(1.0, float32)))
    return k


def vector_copy(block: tuple[int, ...] = (256,)) -> Threads:
    """Four elements a thread."""
    k = Threads(*pointers("x", "out"), ("n", int32), block=block)
    x, out, n = k.params
    start = k.at(2).times(k.global_idx(0), 4, "start")
    with k.at(3).when(k.less(start, n)):
        k.at(4).store(out, start, k.load(x, start, 4, name="four"))
    return k


def transpose() -> Threads:
    """A 32x32 tile through shared memory of rows of 33, 8 rows of threads."""
    k = Threads(*pointers("x", "out"), ("n", int32), block=(32, 8))
    x, out, n = k.params
    tile = k.at(2).share(float32, 32 * 33, "tile")
    row, column = k.at(3).thread_idx(1), k.thread_idx(0)
    by, bx = (k.times(k.emit(program.program_id, axis=axis), 32) for axis in (1, 0))
    with k.at(4).loop(32, step=8) as i:
        down = k.at(5).plus(row, i, "down")
        value = k.load(x, k.plus(k.times(k.plus(by, down), n), k.plus(bx, column)))
        k.at(6).put(tile, k.plus(k.times(down, 33), column), value)
    k.at(7).barrier()
    with k.at(8).loop(32, step=8) as i:
        down = k.at(9).plus(row, i, "down")
        value = k.get(tile, k.plus(k.times(column, 33), down))
        k.at(10).store(out, k.plus(k.times(k.plus(bx, down), n), k.plus(by, column)), value)
    return k


def product() -> Threads:
    """C = A @ B, tiles of 64x64, 8x8 results of each of 64 threads, 8 steps of k at a time in shared memory (A transposed)."""
    k = Threads(*pointers("a", "b", "c"), ("n", int32), block=(64,))
    a, b, c, n = k.params
    t = k.at(2).emit(program.thread_id, name="t")
    ty, tx = k.times(k.over(t, 8), 8, "ty"), k.times(k.modulo(t, 8), 8, "tx")
    rows, columns = (k.times(k.emit(program.program_id, axis=axis), 64) for axis in (1, 0))
    a_tile, b_tile = k.at(3).share(float32, 8 * 64, "a_tile"), k.share(float32, 8 * 64, "b_tile")
    acc = k.at(4).own(float32, 64, "acc")
    with k.loop(64) as i:
        k.write(acc, i, k.number(0.0, float32))
    with k.at(5).loop(n, "k0", step=8) as k0:
        part = k.at(6).times(k.modulo(t, 2), 4)
        for half in (0, 32):
            row = k.plus(k.over(t, 2), half)
            four = k.load(a, k.plus(k.times(k.plus(rows, row), n), k.plus(k0, part)), 4, name="four")
            for j in range(4):
                k.put(a_tile, k.plus(k.times(k.plus(part, j), 64), row), k.emit(regs.extract, four, index=j))
            row = k.at(7).plus(k.over(t, 16), half // 8)
            column = k.times(k.modulo(t, 16), 4)
            four = k.load(b, k.plus(k.times(k.plus(k0, row), n), k.plus(columns, column)), 4)
            k.put(b_tile, k.plus(k.times(row, 64), column), four, 4)
        k.at(8).barrier()
        with k.at(9).loop(8, "step") as step:
            left = k.at(10).get(a_tile, k.plus(k.times(step, 64), ty), 4, (0, 4))
            right = k.get(b_tile, k.plus(k.times(step, 64), tx), 4, (0, 4))
            for i in range(8):
                for j in range(8):
                    pair = (k.emit(regs.extract, side, index=r) for side, r in ((left, i), (right, j)))
                    k.write(acc, 8 * i + j, k.add(k.mul(*pair), k.read(acc, 8 * i + j)))
        k.at(11).barrier()
    for i in range(8):
        places = k.plus(k.times(k.plus(rows, k.plus(ty, i)), n), k.plus(columns, tx))
        for j in (0, 4):
            four = k.at(12).emit(thread.load_local, acc, None, offsets=tuple(range(8 * i + j, 8 * i + j + 4)))
            k.store(c, k.plus(places, j), four)
    return k


def asynchronous(mask: bool = False) -> Threads:
    """Four elements a thread by cp.async, read by the neighbour."""
    k = Threads(*pointers("x", "out"), ("n", int32), block=(128,))
    x, out, n = k.params
    room = k.at(2).share(float32, 512, "room")
    start = k.times(k.emit(program.thread_id), 4, "start")
    k.at(3).copy(room, start, x, start, 4, k.less(start, n) if mask else None)
    k.at(4).arrived()
    k.at(5).barrier()
    k.at(6).store(out, start, k.get(room, k.emit(arith.xor, start, k.number(4)), 4))
    return k


def flag(k: Threads) -> Value:
    """Something that each thread decides for itself."""
    return k.emit(arith.cmp, k.emit(program.thread_id), k.number(5), predicate="lt")
