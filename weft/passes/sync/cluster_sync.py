"""Insert cluster barriers if blocks access each other's memory: after mbarriers are initialised, and before any block exits.

    mbarrier.init %bar                          mbarrier.init %bar
    ...                                  -->    cluster.arrive; cluster.wait
    tma.load ... {multicast = true}             ...
                                                tma.load ... {multicast = true}
                                                cluster.arrive; cluster.wait

A block may signal another block's mbarrier only after it is initialised, and may access another block's shared memory only
while that block runs: after a barrier that it has come to, and before one that it waits at. If the author already has a cluster
barrier there, the pass inserts none. Synchronisation in between is the author's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.analysis.blocks import reaches_blocks
from weft.errors import Loc
from weft.ir.core import Func, Op, Region, walk
from weft.ir.types import DescriptorType, SharedType, TensorType
from weft.layout.cluster import receivers
from weft.ops import clc, cluster, mbarrier, tma


def cluster_sync(func: Func) -> Func:
    """The function with cluster barriers; unchanged if no block accesses another block's memory."""
    blocks = func.attrs.num_ctas
    if blocks == 1:
        return func
    ops = list(func.body.ops)
    crossing = [number for number, op in enumerate(ops) if _crosses(op, blocks)]
    if not crossing:
        return func
    first = crossing[0]
    made = [number for number, op in enumerate(ops[:first]) if op.kind is mbarrier.init]
    starts = any(reaches_blocks(op) or op.kind in _BY_THREADS for op in _inside(ops[first])) and not _meets(ops[:first])
    if not _meets(ops[crossing[-1] + 1 :]):
        ops[-1:] = [*_meeting("before a block exits while others use its memory", func.body.terminator.loc), ops[-1]]
    if made and not _meets(ops[made[-1] + 1 : crossing[0]]):
        ops[made[-1] + 1 : made[-1] + 1] = _meeting(
            "after mbarrier.init, before other blocks signal it", ops[made[-1]].loc
        )
    elif starts:
        ops[first:first] = _meeting("before threads access memory of a block that may not have started", ops[first].loc)
    return func.with_body(Region(func.body.args, tuple(ops)))


_BY_THREADS = (cluster.load_at, cluster.store_at, cluster.atomic_at, mbarrier.arrive_in)


def _crosses(outer: Op, blocks: int) -> bool:
    """Whether an operation of the outermost region, or one nested in it, accesses other blocks' memory."""
    return any(_reaches(op, blocks) for op in _inside(outer) if op.effects)


def _inside(outer: Op) -> Iterator[Op]:
    """An operation, and those nested in it."""
    yield outer
    yield from (inner for region in outer.regions for inner in walk(region))


def _reaches(op: Op, blocks: int) -> bool:
    if op.kind in (tma.load, tma.load_im2col) and op.attrs["multicast"]:
        desc = op.operand("desc")
        assert desc is not None and isinstance(desc.type, DescriptorType)
        return receivers(desc.type.layout.to_linear(desc.type.block_shape), blocks) > 0
    if op.kind is tma.gather and op.attrs["multicast"]:
        handle = op.operand("handle")
        assert handle is not None and isinstance(handle.type, SharedType)
        return receivers(handle.type.layout.to_linear(handle.type.shape), blocks) > 0
    if op.kind is clc.try_cancel:
        return bool(op.attrs["multicast"])
    if any(isinstance(value.type, TensorType) and value.type.layout.two_ctas for value in op.uses):
        # An MMA of two blocks (`.cta_group::2`) accesses the memory of both; threads access their own block's.
        return any(effect.by == "elected" for effect in op.effects)
    return reaches_blocks(op) or any(effect.remote for effect in op.effects)


def _meets(ops: Sequence[Op]) -> bool:
    return any(effect.space == "cluster" and effect.waits for op in ops for effect in op.effects)


def _meeting(reason: str, loc: Loc | None) -> list[Op]:
    pair = (cluster.arrive, {"relaxed": False, "reason": reason}), (cluster.wait, {"reason": reason})
    return [Op(kind, (), attrs, (), (), loc) for kind, attrs in pair]
