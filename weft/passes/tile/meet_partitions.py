"""Give the partitions of a warp-specialised kernel barriers across the cluster.

    control.warp_specialize             -->    %b = shared.alloc; mbarrier.init %b {count = blocks * warps}
      { cluster.barrier }                      cluster.arrive; cluster.wait
      { ... }                                  control.warp_specialize
                                                 { cluster.barrier %b }
                                                 { ... }

The hardware's barrier of a cluster (barrier.cluster) waits for all threads of all blocks, those of other partitions too. So
where the blocks meet in one partition, or in the kernel's own code beside workers, every warp of it arrives on an mbarrier in
each block, and waits for the one in its own. An mbarrier is of one region, whose warps are the only ones to arrive there.

Workers execute barriers of the outermost region with the kernel's own warps. They follow no loop or branch of it, and idle
there: a cluster barrier in one becomes a barrier of the kernel's own warps in all blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from weft.analysis.flow import regions
from weft.ir.core import Func, Op, Value, walk
from weft.ir.rebuild import Operands, Rebuilder, Replacement
from weft.ir.types import int64
from weft.layout import MBarrierLayout
from weft.ops import cluster, control, mbarrier, shared
from weft.ops.control import run_by

_MEETS = (cluster.barrier, cluster.convert)
Home = tuple[Op, int] | None
"""The region in which blocks meet: that of a partition, or the kernel's own (None)."""


def meet_partitions(func: Func) -> Func:
    """The function with an mbarrier for each region in which blocks meet; unchanged without warp specialization."""
    if not any(op.kind is control.warp_specialize for op in func.body.ops):
        return func
    pairs = dict(nested_barriers(func))
    homes = dict(_homes(func, pairs))
    if not homes:
        return func
    warps, blocks = dict(run_by(func)), func.attrs.num_ctas
    first = {home: op for op, home in reversed(homes.items())}
    bars: dict[Home, Value] = {}
    waits = set(pairs.values())

    def rule(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        if op in waits:
            return ()
        if op not in homes:
            return None
        if op in pairs:
            out.emit(cluster.barrier, bars[homes[op]])
            return ()
        *others, _ = operands
        made = out.emit(op.kind, *others, bars[homes[op]], **op.attrs)
        return () if made is None else (made,)

    out = Rebuilder(rule)
    out.env.update(zip(func.params, func.params, strict=True))
    tag = max((op.attrs["tag"] for op in walk(func.body) if op.kind is shared.alloc), default=0)
    layout = MBarrierLayout.multicta(blocks, False)
    for number, (home, op) in enumerate(first.items(), start=1):
        out.loc = op.loc
        bars[home] = out.emit(shared.alloc, element=int64, shape=(blocks,), layout=layout, tag=tag + number)
        out.emit(mbarrier.init, bars[home], count=blocks * warps[op])
    reason = "after mbarrier.init, before other blocks signal it"
    out.emit(cluster.arrive, reason=reason)
    out.emit(cluster.wait, reason=reason)
    out.copy_ops(func.body)
    return out.func(func.name, func.params, func.attrs, func.loc)


def nested_barriers(func: Func) -> Iterator[tuple[Op, Op]]:
    """Cluster barriers in loops and branches of a kernel with warp specialization: arrivals that order memory, each with the
    wait that follows it at once."""
    around = (outer for outer in func.body.ops if outer.kind is not control.warp_specialize)
    for region in (inner for outer in around for body in outer.regions for inner in regions(body)):
        for op, following in pairwise(region.ops):
            if op.kind is cluster.arrive and following.kind is cluster.wait and not op.attrs["relaxed"]:
                yield op, following


def _homes(func: Func, pairs: Mapping[Op, Op]) -> Iterator[tuple[Op, Home]]:
    for outer in func.body.ops:
        if outer.kind is control.warp_specialize:
            for number, region in enumerate(outer.regions):
                yield from ((op, (outer, number)) for op in walk(region) if op.kind in _MEETS)
            continue
        inside = (op for region in outer.regions for op in walk(region))
        yield from ((op, None) for op in (outer, *inside) if op.kind in _MEETS or op in pairs)
