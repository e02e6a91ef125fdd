"""Replace a barrier and one mbarrier arrival for a partition by one arrival of each warp.

    mbarrier.init %empty {count=2}                        mbarrier.init %empty {count=8}
    ...                                                   ...
    shared.load %buffer       in 4 warps, twice   -->     shared.load %buffer
    mbarrier.arrive %empty                                mbarrier.arrive %empty {each_warp=true}

An arrival of the elected thread releases the accesses of all threads, so it needs a barrier of the partition before it. If each
warp arrives for itself, the phase completes when all have arrived, and no warp waits for another. All arrivals at the mbarriers
of an allocation must then be of this kind: without transaction bytes, and from partitions with the same number of warps.

A fast warp must not arrive twice in a phase in place of a slow one. Each partition must therefore arrive once per phase, so
that the wait before its next arrival ensures that the phase is complete. This holds if a phase takes one arrival, or if the
arrivals of all partitions add up to the count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from weft.analysis.handles import handles
from weft.ir.core import Attrs, Func, Op, Region, walk
from weft.ir.rebuild import with_op_attrs
from weft.ops import mbarrier
from weft.ops.control import run_by
from weft.passes.tile.partition_plan import specialisations


def spread_arrivals(func: Func) -> Func:
    """The function with `each_warp` arrivals and matching mbarrier counts; unchanged if no arrival can be spread."""
    if mbarrier.arrive not in func.body.kinds:
        return func
    changed: dict[Op, Attrs] = {}
    for group in _groups(func):
        if group.spreads:
            changed.update((op, {**op.attrs, "each_warp": True}) for op in group.arrivals)
            changed.update((op, {"count": op.attrs["count"] * group.factor}) for op in group.inits)
    return with_op_attrs(func, changed) if changed else func


@dataclass(slots=True)
class _Group:
    """Allocations of mbarriers that some operation may refer to alike, the operations on them, and the arriving warps.

    `counts`: the arrival count of each partition (a worker's region, None for the default one). `plain`: only arrivals by
    partitions of this block change their phases.
    """

    allocs: set[Op]
    inits: list[Op] = field(default_factory=list[Op])
    arrivals: list[Op] = field(default_factory=list[Op])
    warps: set[int] = field(default_factory=set[int])
    counts: set[tuple[Region | None, int]] = field(default_factory=set["tuple[Region | None, int]"])
    plain: bool = True

    @property
    def factor(self) -> int:
        """The factor of arrival counts: the number of warps that arrive."""
        return max(self.warps, default=1)

    @property
    def spreads(self) -> bool:
        """Whether each warp can arrive for itself."""
        fits = all(op.attrs["count"] * self.factor <= mbarrier.COUNT_LIMIT for op in self.inits)
        return self.plain and len(self.warps) == 1 and self.factor > 1 and fits and self._once

    @property
    def _once(self) -> bool:
        """Whether each partition arrives once per phase."""
        taken = {op.attrs["count"] for op in self.inits}
        alone = {count for _, count in self.counts}
        apart = len(self.counts) == len({partition for partition, _ in self.counts})
        return (taken == alone and len(taken) == 1) or (apart and taken == {sum(count for _, count in self.counts)})

    def add(self, other: _Group) -> None:
        """Merge a group that has allocations in common."""
        self.allocs |= other.allocs
        self.inits += other.inits
        self.arrivals += other.arrivals
        self.warps |= other.warps
        self.counts |= other.counts
        self.plain = self.plain and other.plain


def _groups(func: Func) -> list[_Group]:
    groups: list[_Group] = []
    for one in _uses(func):
        apart = [group for group in groups if not group.allocs & one.allocs]
        for group in groups:
            if group.allocs & one.allocs:
                one.add(group)
        groups = [*apart, one]
    return groups


def _uses(func: Func) -> Iterator[_Group]:
    """For each operation on mbarriers, the group of allocations that it may refer to."""
    places = handles(func)
    workers = {op: region for each in specialisations(func) for region in each.regions[1:] for op in walk(region)}
    for op, warps in run_by(func):
        for effect in op.effects:
            bar = op.operand(effect.operand) if effect.operand is not None and effect.kind == "update" else None
            if op.kind is mbarrier.init:
                bar = op.operand("bar")
            if bar is None:
                continue
            allocs = {place.alloc for place in places[bar]}
            shared = bool(effect.remote or mbarrier.blocks_sharing(bar))
            if op.kind is mbarrier.init:
                yield _Group(allocs, inits=[op], plain=not shared)
            elif op.kind is mbarrier.arrive:
                counts = {(workers.get(op), int(op.attrs["count"]))}
                yield _Group(allocs, arrivals=[op], warps={warps}, counts=counts, plain=not shared)
            else:
                yield _Group(allocs, plain=False)
