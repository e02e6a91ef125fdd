"""Distribute the instructions of a TMA load over several warps, instead of one thread that issues all of them.

    mbarrier.expect %bar                          mbarrier.expect %bar
    tma.load %a, %bar     2 instructions   -->    tma.load %a, %bar {issuers=8, first=0}
    tma.load %b, %bar     4 instructions          tma.load %b, %bar {issuers=8, first=2}

A box is at most 256 rows, and as wide as the swizzle. Larger tiles take several instructions, and the warp that issues all of
them starts its MMA late. Consecutive loads continue with the warp after the last one. Bytes may arrive before `expect` adds
them to the phase: the pending arrival keeps the phase open.

The other issuing warps are not ordered after the elected thread's initialisation of the mbarrier, or its wait for TMA stores.
`weft.passes.sync.insert_sync` inserts a barrier for that; if it would be inside a loop, it reverts the load to one issuer
instead. Loads through descriptors that the kernel makes are not distributed, since only the warp that made one has executed the
proxy fence for it. Neither are loads in clusters, nor those of programs that leave shared memory for a second one on their
multiprocessor: it has work meanwhile, and requests that arrive in order suit L2 better. (On an H200, products of 8192 x 8192 x
16384 take 1.05 to 1.12 times as long without distribution where one program is resident, and 0.79 to 1.01 times where two are.)
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
from weft.targets import Target

_LOADS = (tma.load, tma.load_im2col)
_MAKERS = (tma.make_descriptor, tma.update_descriptor)


def spread_requests(func: Func, target: Target) -> Func:
    """The function with `issuers` set on loads of several instructions; unchanged if there are none."""
    kinds = func.body.kinds
    if func.attrs.num_ctas > 1 or kinds.isdisjoint(_LOADS) or not kinds.isdisjoint(_MAKERS):
        return func
    if 2 * (func.attrs.shared_bytes + target.reserved_shared_bytes) <= target.shared_bytes_per_sm:
        return func
    ops = list(run_by(func))
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
    """The function with these loads issued by one thread again."""
    return with_op_attrs(func, {op: {**op.attrs, "issuers": 1, "first": 0} for op in loads})


def _rows(regions: list[Region]) -> Iterator[list[Op]]:
    """Runs of consecutive loads, such as those of one phase."""
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
    """The number of TMA instructions of a load: one per box."""
    d = load.operand("desc")
    assert d is not None and isinstance(d.type, DescriptorType) and isinstance(d.type.layout, NVMMASharedLayout)
    im2col = d.type.mode == "im2col"
    return len(boxes(d.type.block_shape, d.type.layout, d.type.element.bits, im2col=im2col).placements)
