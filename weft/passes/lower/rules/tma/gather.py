"""Lowering of TMA gathers and scatters of rows: instructions for four rows each, issued by the elected thread.

    tma.gather %desc, %bar, %t, %rows, %c    -->    %r = all rows in each thread's registers
                                                    tma.gather4 %desc, %bar, %t, %r, %c {steps=((0, 0, 0), (4, 0, 512))}

`elect.sync` may elect any thread of the warp, so every thread gets all row indices.
"""

from __future__ import annotations

from weft.errors import fail
from weft.errors import layout as errors
from weft.ir.core import Op, OpDef, Value
from weft.ir.types import DescriptorType, int32
from weft.layout import NVMMASharedLayout
from weft.layout.cluster import block_bases, block_shape, copies, receivers
from weft.layout.convert.plans import crosses, plan_conversion
from weft.layout.linear.f2 import log2
from weft.layout.shared import tma as tma_layout
from weft.ops import tma
from weft.ops.check import linear_of
from weft.ops.regs import Table
from weft.passes.lower.blocks import acting, sending, where
from weft.passes.lower.handles import slice_of, type_of, view
from weft.passes.lower.operands import optional, require
from weft.passes.lower.rules.tile.convert import converted
from weft.passes.lower.rules.tma.copies import destination
from weft.passes.lower.state import Lowering, LowerRule


def _require(lo: Lowering, op: Op) -> None:
    require(lo, op, lo.target.has_tma_gather, "TMA of single rows", "sm_100a")


def _descriptor(desc: Value) -> tuple[DescriptorType, NVMMASharedLayout]:
    assert isinstance(desc.type, DescriptorType) and isinstance(desc.type.layout, NVMMASharedLayout)
    return desc.type, desc.type.layout


def _blocks(desc: Value, handle: Value, dim: int) -> Table:
    """The offset along a dimension of a block's part of a gathered tile, for each bit of the block's cluster rank."""
    _, layout = _descriptor(desc)
    return tuple([basis[dim] for basis in block_bases(layout.cga, type_of(handle).shape)])


def _steps(lo: Lowering, desc: Value, handle: Value) -> tma.GatherSteps:
    """One instruction for each four rows of each box. Within a box, rows are contiguous in shared memory."""
    d, layout = _descriptor(desc)
    split = tma_layout.boxes(type_of(handle).shape, layout, d.element.bits, slice_of(lo, handle))
    rows = split.box[0]
    four = split.box_bytes // rows * tma.GATHERED
    return tuple(
        [
            (start[0] + i * tma.GATHERED, start[1], offset + i * four)
            for start, offset in split.placements
            for i in range(rows // tma.GATHERED)
        ]
    )


def _rows(lo: Lowering, op: Op, desc: Value, handle: Value, rows: Value) -> Value:
    """An array of all row indices of the block's part of the tile, in each of its threads.

    Raises LayoutError (convert-blocks) if other blocks hold them."""
    source = linear_of(rows)
    _, layout = _descriptor(desc)
    own, *_ = block_shape(layout.cga, type_of(handle).shape)
    blocks = _blocks(desc, handle, 0)
    target = source.with_columns("register", [1 << bit for bit in range(log2(own))])
    for part in ("lane", "warp"):
        target = target.with_columns(part, [0] * source.in_bits(part))
    if any(blocks):
        target = target.with_columns("block", blocks)
    if crosses(plan_conversion(source, target, int32.bits)):
        raise fail(errors.CONVERT_BLOCKS, loc=op.loc, src=list(source.bases("block")), dst=blocks)
    return lo.array(converted(lo, lo.form(rows), source, target, int32.bits))


def _column(lo: Lowering, desc: Value, handle: Value, column: Value) -> Value:
    """The first column of the block's part of the tile."""
    parts = _blocks(desc, handle, 1)
    first = lo.scalar(column)
    return lo.add(first, lo.of_thread((), (), parts)) if any(parts) else first


def gather(lo: Lowering, op: Op) -> None:
    """All loads complete on one mbarrier. Blocks with the same data load one copy each, or with "multicast" the first of them
    loads for all. Raises CompilationError (lower-target)."""
    _require(lo, op)
    desc, bar, handle, pred, rows, column = op.operands
    assert desc is not None and handle is not None and rows is not None and column is not None
    t = type_of(handle)
    sharing = receivers(t.layout.to_linear(t.shape), lo.num_ctas) if op.attrs["multicast"] else 0
    whole, first = _rows(lo, op, desc, handle, rows), _column(lo, desc, handle, column)
    memory, crossing = destination(lo, op)
    kept = {name: op.attrs[name] for name in ("shared_by", "remote", "l2")}
    with where(lo, sending(lo, op, sharing)):
        lo.emit(
            tma.gather4, lo.scalar(desc), view(lo, bar), memory, optional(lo, pred), whole, first,
            steps=_steps(lo, desc, handle), receivers=sharing, **kept, **crossing,
        )  # fmt: skip


def scatter(lo: Lowering, op: Op) -> None:
    """All stores are in one bulk group. If several blocks hold the same data, the first of them stores it. Raises
    CompilationError (lower-target)."""
    _require(lo, op)
    desc, handle, rows, column = op.uses
    whole = _rows(lo, op, desc, handle, rows)
    t = type_of(handle)
    with where(lo, acting(lo, copies(t.layout.to_linear(t.shape), lo.num_ctas))):
        lo.emit(
            tma.scatter4, lo.scalar(desc), view(lo, handle), whole, _column(lo, desc, handle, column),
            steps=_steps(lo, desc, handle), l2=op.attrs["l2"],
        )  # fmt: skip


RULES: dict[OpDef, LowerRule] = {
    tma.gather: gather,
    tma.scatter: scatter,
}
