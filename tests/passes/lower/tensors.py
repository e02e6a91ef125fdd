"""Kernels that use tensor memory, built operation by operation, and what their lowered addresses come to."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support import TileKernel, ops_of, tile_kernel
from weft import targets
from weft.ir.core import Func, Op, OpDef, Value, walk
from weft.ir.types import float32
from weft.ir.verify import verify
from weft.layout import TensorMemoryLayout
from weft.layout.tensor_memory.load_store import register_layout
from weft.ops import arith, program, tensor_memory
from weft.passes.lower import lower_tiles
from weft.passes.tile.split_partitions import split_partitions

LANE = 1 << 16
TARGET = targets.get("sm_100a")
WIDE = TensorMemoryLayout([128, 64], col_stride=1)


def tensor_kernel(*, columns: int = 128, num_warps: int = 4, **attrs) -> TileKernel:
    """A kernel under construction that has columns of tensor memory."""
    k = tile_kernel(num_warps=num_warps)
    k.attrs = {**k.attrs, "target": "sm_100a", **({"tensor_columns": columns} if columns else {}), **attrs}
    return k


def tensor(k, shape=(128, 64), *, layout=WIDE, element=float32, column=0, name="acc"):
    """An allocation at a column, as `allocate_tensor_memory` leaves it."""
    tag = len(k._open[0])
    return k.emit(
        tensor_memory.alloc, element=element, shape=tuple(shape), layout=layout, tag=tag, column=column, name=name
    )


def load(k, handle, *, num_warps=4, variant="32x32b"):
    """The tile of a handle, in the layout that the hardware gives."""
    t = handle.type
    whole = register_layout(t.element.bits, t.shape, t.layout, num_warps, variant)
    return k.emit(tensor_memory.load, handle, layout=whole)


def part(k, acc, start, length=32):
    """Some columns of a tile."""
    return k.emit(tensor_memory.slice, acc, start=start, length=length, dim=1)


def lowered(k, target=TARGET) -> Func:
    """Lowered IR, checked; these kernels are not run."""
    func = k.finished()
    verify(func)
    after = lower_tiles(split_partitions(func, target), target)
    verify(after)
    return after


def only(func: Func, kind: OpDef) -> Op:
    (op,) = ops_of(func, kind)
    return op


def number(func: Func, value: Value, known: Mapping[Value, int]) -> int:
    """What an address or another sum comes to, given some values; the kernel's columns begin at 0."""
    if value in known:
        return known[value]
    (op,) = (op for op in walk(func.body) if value in op.results)
    parts = [number(func, operand, known) for operand in op.uses if op.kind is not tensor_memory.reserve]
    if op.kind is tensor_memory.reserve:
        return 0
    if op.kind is arith.constant:
        return op.attrs["value"]
    return RULES[op.kind](*parts)


RULES = {
    arith.add: lambda a, b: a + b,
    arith.mul: lambda a, b: a * b,
    arith.and_: lambda a, b: a & b,
    arith.shr: lambda a, b: a >> b,
}


def addresses(func: Func, known: Mapping[Value, int] | None = None) -> list[int]:
    """Where the loads of a function begin in warp 0, their own offsets included."""
    known = {**warps(func, 0), **(known or {})}
    return [
        number(func, op.operands[0], known) + op.attrs["offsets"][0] for op in ops_of(func, tensor_memory.load_regs)
    ]


def warps(func: Func, warp: int) -> dict[Value, int]:
    """The value of warp numbers, for a warp."""
    return {op.result: warp for op in ops_of(func, program.warp_id)}
