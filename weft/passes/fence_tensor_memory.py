"""Order tcgen05 operations with what orders threads, for they run beside their thread's other instructions.

    tmem.load %acc                             tmem.load %acc
    mbarrier.arrive %empty          -->        tcgen05.fence {before=true}
                                               mbarrier.arrive %empty

    mbarrier.wait %full                        mbarrier.wait %full
    tcgen05.mma %a, %b, %acc        -->        tcgen05.fence {before=false}
                                               tcgen05.mma %a, %b, %acc

Ahead of what tells other threads (an arrival, a barrier, begin and end of `warp_specialize`) stands one if the partition has
accessed tensor memory since the last, on some way there. A commit tells of the elected thread's operations without one. Behind
what threads wait for stands one if an access to tensor memory follows before the next wait, on some way from there.

Kernels in Gluon have no such fences, so these are placed with `sync="explicit"` as well; only `sync="none"` leaves them to the
author.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.ir.core import Func, Op, Region, walk
from weft.ops import cluster, control, tcgen05


def fence_tensor_memory(func: Func) -> Func:
    """The function with fences; itself where it does not touch tensor memory."""
    if not any(_accesses(op) for op in walk(func.body)):
        return func
    body, _ = _Before().region(func.body, _NOTHING)
    body, _ = _After().region(body, None)
    return func.with_body(body)


def _accesses(op: Op) -> bool:
    return any(effect.space == "tensor" and effect.kind != "sync" for effect in op.kind.effects)


def _by_elected(op: Op) -> bool:
    return any(effect.elected for effect in op.kind.effects)


def _is_barrier(op: Op) -> bool:
    return any(effect.kind == "sync" and effect.space == "threads" for effect in op.kind.effects)


def _tells(op: Op) -> bool:
    """Whether other threads learn from an operation what its own did before."""
    return op.kind is cluster.arrive or _is_barrier(op) or any(e.kind == "release" for e in op.kind.effects)


def _learns(op: Op) -> bool:
    """Whether threads learn from an operation what others did."""
    waits = any(effect.kind == "sync" and effect.completes == "mbarrier" for effect in op.kind.effects)
    return waits or op.kind is cluster.wait or (_is_barrier(op) and not op.attrs.get("arrive"))


def _fence(before: bool, where: Op, reason: str) -> Op:
    return Op(tcgen05.fence, (), {"before": before, "reason": reason}, (), (), where.loc)


def _at_line(op: Op) -> str:
    return op.name if op.loc is None else f"{op.name} at line {op.loc.line}"


def _with_regions(op: Op, *regions: Region) -> Op:
    if all(new is old for new, old in zip(regions, op.regions, strict=True)):
        return op
    return Op(op.kind, op.operands, op.attrs, op.results, regions, op.loc)


def _region(old: Region, ops: list[Op]) -> Region:
    return old if len(ops) == len(old.ops) and all(map(_same, ops, old.ops)) else Region(old.args, tuple(ops))


def _same(a: Op, b: Op) -> bool:
    return a is b


@dataclass(frozen=True, slots=True)
class _Done:
    """The latest accesses to tensor memory that nobody has been told of: by all threads, and by the elected one."""

    by_all: Op | None = None
    by_elected: Op | None = None

    def join(self, other: _Done) -> _Done:
        """What may have been done on one of two ways."""
        return _Done(self.by_all or other.by_all, self.by_elected or other.by_elected)

    def alike(self, other: _Done) -> bool:
        """Whether the same kinds of accesses are there."""
        return (self.by_all is None, self.by_elected is None) == (other.by_all is None, other.by_elected is None)


_NOTHING = _Done()


class _Before:
    """Walks forward, with what has been done so far."""

    def region(self, region: Region, done: _Done) -> tuple[Region, _Done]:
        """The region with fences, and what is done at its end."""
        ops: list[Op] = []
        for op in region.ops:
            made, done = self.op(op, done)
            ops += made
        return _region(region, ops), done

    def op(self, op: Op, done: _Done) -> tuple[list[Op], _Done]:
        """An operation with its fence, and what is done after it."""
        if op.kind is control.if_:
            (then, after), (orelse, other) = (self.region(region, done) for region in op.regions)
            return [_with_regions(op, then, orelse)], after.join(other)
        if op.kind in (control.for_, control.while_):
            return self.loop(op, done)
        if op.kind is control.warp_specialize:
            return [*self.fences(op, done), self.partitions(op)], _NOTHING
        if op.kind is tcgen05.fence:
            return [op], _NOTHING if op.attrs["before"] else done
        if op.kind is tcgen05.commit:
            return [op], _Done(done.by_all)
        if _tells(op):
            return [*self.fences(op, done), op], _NOTHING
        if _accesses(op):
            return [op], _Done(done.by_all, op) if _by_elected(op) else _Done(op, done.by_elected)
        return [op], done

    def loop(self, op: Op, done: _Done) -> tuple[list[Op], _Done]:
        """Entered with what its own end has done."""
        while True:
            regions: list[Region] = []
            ends: list[_Done] = []
            end = done
            for region in op.regions:
                made, end = self.region(region, end)
                regions.append(made)
                ends.append(end)
            joined = done.join(end)
            if joined.alike(done):
                # A `while` is left after its condition; a `for` has run, or has not.
                return [_with_regions(op, *regions)], ends[0] if op.kind is control.while_ else joined
            done = joined

    def partitions(self, op: Op) -> Op:
        """All threads meet before and after."""
        regions: list[Region] = []
        for region in op.regions:
            made, done = self.region(region, _NOTHING)
            *inside, last = made.ops
            regions.append(_region(made, [*inside, *self.fences(op, done, "the end of "), last]))
        return _with_regions(op, *regions)

    def fences(self, op: Op, done: _Done, what: str = "") -> list[Op]:
        """What has to stand ahead of an operation that tells others."""
        access = done.by_all or done.by_elected
        return [] if access is None else [_fence(True, op, f"ahead of {what}{op.name} (after {_at_line(access)})")]


class _After:
    """Walks backward, with the access to tensor memory that follows before the next wait; None where none does."""

    def region(self, region: Region, follows: Op | None) -> tuple[Region, Op | None]:
        """The region with fences, and what follows its begin."""
        ops: list[Op] = []
        for op in reversed(region.ops):
            made, follows = self.op(op, follows)
            ops += reversed(made)
        return _region(region, ops[::-1]), follows

    def op(self, op: Op, follows: Op | None) -> tuple[list[Op], Op | None]:
        """An operation with its fence, and what follows before it."""
        if op.kind is control.if_:
            (then, first), (orelse, other) = (self.region(region, follows) for region in op.regions)
            return [_with_regions(op, then, orelse)], first or other
        if op.kind is control.for_:
            return self.for_(op, follows)
        if op.kind is control.while_:
            return self.while_(op, follows)
        if op.kind is control.warp_specialize:
            return [self.partitions(op), *self.fences(op, follows)], None
        if op.kind is tcgen05.fence:
            return [op], follows if op.attrs["before"] else None
        if _learns(op):
            return [op, *self.fences(op, follows)], None
        return [op], op if _accesses(op) else follows

    def for_(self, op: Op, follows: Op | None) -> tuple[list[Op], Op | None]:
        """Its end is followed by its begin, or by what comes after it."""
        (body,) = op.regions
        made, first = self.region(body, follows)
        if follows is None and first is not None:
            made, first = self.region(body, first)
        return [_with_regions(op, made)], follows or first

    def while_(self, op: Op, follows: Op | None) -> tuple[list[Op], Op | None]:
        """The condition is followed by the body or by what comes after, the body by the condition."""
        condition, body = op.regions
        start: Op | None = None
        while True:
            after, first = self.region(body, start)
            before, now = self.region(condition, follows or first)
            if (now is None) == (start is None):
                return [_with_regions(op, before, after)], now
            start = now

    def partitions(self, op: Op) -> Op:
        """All threads meet before and after."""
        regions: list[Region] = []
        for region in op.regions:
            made, follows = self.region(region, None)
            regions.append(_region(made, [*self.fences(op, follows, "the begin of "), *made.ops]))
        return _with_regions(op, *regions)

    def fences(self, op: Op, follows: Op | None, what: str = "") -> list[Op]:
        """What has to stand behind an operation that threads wait in."""
        return [] if follows is None else [_fence(False, op, f"behind {what}{op.name}, for {_at_line(follows)}")]
