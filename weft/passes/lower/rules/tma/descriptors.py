"""Lowering of descriptors that a kernel makes: each has a slot in the global workspace."""

from __future__ import annotations

from typing import Any

from weft.analysis.flow import repeated
from weft.ir.core import Op, OpDef, Value
from weft.ir.types import int32, int64
from weft.ops import arith, debug, shared, tma
from weft.ops.check import pointer_of
from weft.passes.lower.operands import optional, require
from weft.passes.lower.state import Lowering, LowerRule


def make_descriptor(lo: Lowering, op: Op) -> None:
    """Each operation in the code has its own slot in the workspace; in a loop, each iteration overwrites the descriptor of the
    previous one.

    Each partition makes the descriptors that it uses (see `split_partitions`), so unused ones are dropped here."""
    require(lo, op, lo.target.has_tma, "TMA", "sm_90a")
    if op.result not in lo.used:
        return
    operands = [lo.scalar(value) for value in op.uses]
    if lo.source.attrs.debug:
        _assert_describable(lo, op, operands)
    room, attrs = _place(lo, op)
    lo.env[op.result] = lo.emit(tma.write_descriptor, room, *operands, name=op.result.name, **attrs)


def update_descriptor(lo: Lowering, op: Op) -> None:
    """As `make_descriptor`, from the fields of another descriptor."""
    require(lo, op, lo.target.has_tma, "TMA", "sm_90a")
    if op.result not in lo.used:
        return
    desc, ptr, *numbers = op.operands
    room, attrs = _place(lo, op)
    lo.env[op.result] = lo.emit(
        tma.rewrite_descriptor, room, lo.scalar(desc), optional(lo, ptr), *(lo.scalar(n) for n in numbers),
        name=op.result.name, **attrs,
    )  # fmt: skip


def _place(lo: Lowering, op: Op) -> tuple[Value, dict[str, Any]]:
    """Shared memory in which a descriptor is built, and the attributes with its slot in the workspace."""
    size, slot = tma.DESCRIPTOR_BYTES, lo.workspace
    lo.workspace += size
    room = lo.emit(shared.scratch, dtype=int32, count=size // int32.itemsize, tag=lo.tag(), align=size)
    return room, {**op.attrs, "slot": slot, "again": op in repeated(lo.source.body)}


def _assert_describable(lo: Lowering, op: Op, operands: list[Value]) -> None:
    """Assertions of a debug build: the alignment of addresses and strides, and the extents, that TMA requires (CUDA
    Driver API, cuTensorMapEncodeTiled). The language has checked constants already."""
    base, *numbers = operands
    rank = len(numbers) // 2
    zero, granule = lo.constant(0, int64), lo.constant(15, int64)

    def demand(condition: Value, message: str) -> None:
        lo.emit(debug.assert_, condition, None, message=f"make_tensor_descriptor: {message}")

    def whole(size: Value) -> Value:
        return lo.emit(arith.cmp, lo.emit(arith.and_, size, granule), zero, predicate="eq")

    demand(whole(lo.emit(arith.bitcast, base, element=int64)), "the address is no multiple of 16 bytes")
    one = lo.constant(1, int32)
    for dim, extent in enumerate(numbers[:rank]):
        if extent not in lo.constants:
            demand(lo.emit(arith.cmp, extent, one, predicate="ge"), f"extent {dim} is below 1")
    for dim, (extent, stride) in enumerate(zip(numbers[: rank - 1], numbers[rank:-1], strict=True)):
        if stride in lo.constants:
            continue
        steps = whole(lo.scaled(stride, pointer_of(base).element_ty.itemsize))
        single = lo.emit(arith.cmp, extent, one, predicate="eq")
        demand(lo.emit(arith.or_, steps, single), f"stride {dim} is no multiple of 16 bytes")


RULES: dict[OpDef, LowerRule] = {
    tma.make_descriptor: make_descriptor,
    tma.update_descriptor: update_descriptor,
}
