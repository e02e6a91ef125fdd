"""Let several warps issue the requests of a TMA load, where one thread would issue them one after another.

    mbarrier.expect %bar                          mbarrier.expect %bar
    tma.load %a, %bar     two requests     -->    tma.load %a, %bar {issuers=8, first=0}
    tma.load %b, %bar     four                    tma.load %b, %bar {issuers=8, first=2}

A block of more columns than a swizzle is wide, or of more than 256 rows, takes several requests, and a thread that issues them
is late for its product. Loads in a row begin where the one before them ended. The bytes may arrive before the phase expects
them: the arrival that is still to come keeps it open.

What only the thread that acts for the partition knows, the other issuers do not: that it has initialised the barrier, or that
its stores have been read. There `weft.passes.sync.insert_sync` places a barrier; rather than in a loop it takes the mark back.
Loads through descriptors that the kernel makes are left alone, for only the warp that made one has it fenced, and so are
clusters.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.ir.core import Attrs, Func, Op, Region
from weft.ir.rebuild import with_op_attrs
from weft.ir.types import DescriptorType
from weft.layout import NVMMASharedLayout
from weft.layout.shared.tma import boxes
from weft.ops import mbarrier, tma
from weft.ops.control import run_by

_LOADS = (tma.load, tma.load_im2col)


def spread_requests(func: Func) -> Func:
    """The function with loads marked whose requests several warps may issue; unchanged where there are none."""
    ops = list(run_by(func))
    if func.attrs.num_ctas > 1 or any(op.kind is tma.make_descriptor for op, _ in ops):
        return func
    warps = {op: count for op, count in ops if op.kind in _LOADS and count > 1}
    changed: dict[Op, Attrs] = {}
    for row in _rows([func.body, *(region for op, _ in ops for region in op.regions)]) if warps else ():
        counts = [_requests(op) for op in row]
        if row[0] not in warps or max(counts) == 1:
            continue
        issuers, first = warps[row[0]], 0
        for op, count in zip(row, counts, strict=True):
            if first or count > 1:
                changed[op] = {**op.attrs, "issuers": issuers, "first": first}
            first = (first + count) % issuers
    return with_op_attrs(func, changed) if changed else func


def gathered(func: Func, loads: set[Op]) -> Func:
    """The function with the requests of these loads issued by one thread again."""
    return with_op_attrs(func, {op: {**op.attrs, "issuers": 1, "first": 0} for op in loads})


def _rows(regions: list[Region]) -> Iterator[list[Op]]:
    """Loads that stand together, as those of one phase do."""
    for region in regions:
        row: list[Op] = []
        for op in region.ops:
            if op.kind in _LOADS:
                row.append(op)
            elif not op.kind.pure or op.kind is mbarrier.expect:
                if row:
                    yield row
                row = []


def _requests(load: Op) -> int:
    """How many instructions the hardware takes for a load."""
    d = load.operand("desc")
    assert d is not None and isinstance(d.type, DescriptorType) and isinstance(d.type.layout, NVMMASharedLayout)
    return len(boxes(d.type.block_shape, d.type.layout, d.type.element.bits).placements)
