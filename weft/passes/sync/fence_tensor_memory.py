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

from collections.abc import Sequence
from dataclasses import dataclass

from weft.analysis.flow import States
from weft.ir.core import Func, Op, walk
from weft.ir.define import Effect
from weft.ops import control, tcgen05


def fence_tensor_memory(func: Func) -> Func:
    """The function with fences; itself where it does not touch tensor memory."""
    if not any(_accesses(op) for op in walk(func.body)):
        return func
    body, _ = _Before().run(func.body, _NOTHING)
    body, _ = _After().run(body, None)
    return func.with_body(body)


def _accesses(op: Op) -> bool:
    return any(effect.space == "tensor" and effect.kind != "sync" for effect in op.effects)


def _by_elected(op: Op) -> bool:
    return any(effect.by == "elected" for effect in op.effects)


def _is_barrier(op: Op) -> bool:
    return any(effect.kind == "sync" and effect.space == "threads" for effect in op.effects)


def _tells(op: Op) -> bool:
    """Whether other threads learn from an operation what its own did before."""
    arrives = any(effect.space == "cluster" and not effect.waits for effect in op.effects)
    return arrives or _is_barrier(op) or any(effect.kind == "release" for effect in op.effects)


def _learns(op: Op) -> bool:
    """Whether threads learn from an operation what others did."""
    return any(_waits(effect) for effect in op.effects)


def _waits(effect: Effect) -> bool:
    if effect.kind != "sync" or not effect.waits:
        return False
    return effect.space in ("threads", "cluster") or effect.completes == "mbarrier"


def _fence(before: bool, where: Op, reason: str) -> Op:
    return Op(tcgen05.fence, (), {"before": before, "reason": reason}, (), (), where.loc)


def _at_line(op: Op) -> str:
    return op.name if op.loc is None else f"{op.name} at line {op.loc.line}"


@dataclass(frozen=True, slots=True)
class _Done:
    """The latest accesses to tensor memory that nobody has been told of: by all threads, and by the elected one."""

    by_all: Op | None = None
    by_elected: Op | None = None

    @property
    def kinds(self) -> tuple[bool, bool]:
        """Which kinds of accesses are there."""
        return self.by_all is not None, self.by_elected is not None


_NOTHING = _Done()


class _Before(States[_Done]):
    """Forward, with what has been done so far."""

    def visit(self, op: Op, state: _Done) -> tuple[Sequence[Op], _Done]:
        """An operation with its fence, and what is done after it."""
        if op.kind is tcgen05.fence:
            return [op], _NOTHING if op.attrs["before"] else state
        if op.kind is tcgen05.commit:
            return [op], _Done(state.by_all)
        if _tells(op):
            return [*self.fences(op, state), op], _NOTHING
        if _accesses(op):
            return [op], _Done(state.by_all, op) if _by_elected(op) else _Done(op, state.by_elected)
        return [op], state

    def join(self, state: _Done, other: _Done) -> tuple[_Done, bool]:
        """What may have been done on one of two ways."""
        joined = _Done(state.by_all or other.by_all, state.by_elected or other.by_elected)
        return joined, joined.kinds != state.kinds

    def through(self, op: Op, state: _Done) -> tuple[Sequence[Op], _Done]:
        """All threads meet before partitions and after them."""
        if op.kind is not control.warp_specialize:
            return super().through(op, state)
        made, _ = super().through(op, _NOTHING)
        return [*self.fences(op, state), *made], _NOTHING

    def past(self, op: Op, number: int, state: _Done) -> tuple[Sequence[Op], _Done]:
        """A partition tells at its end what it did."""
        return self.fences(op, state, "the end of ") if op.kind is control.warp_specialize else (), state

    def fences(self, op: Op, done: _Done, what: str = "") -> list[Op]:
        """What has to stand ahead of an operation that tells others."""
        access = done.by_all or done.by_elected
        return [] if access is None else [_fence(True, op, f"ahead of {what}{op.name} (after {_at_line(access)})")]


class _After(States["Op | None"]):
    """Backward, with the access to tensor memory that follows before the next wait; None where none does."""

    backward = True

    def visit(self, op: Op, state: Op | None) -> tuple[Sequence[Op], Op | None]:
        """An operation with its fence, and what follows before it."""
        if op.kind is tcgen05.fence:
            return [op], state if op.attrs["before"] else None
        if _learns(op):
            return [op, *self.fences(op, state)], None
        return [op], op if _accesses(op) else state

    def join(self, state: Op | None, other: Op | None) -> tuple[Op | None, bool]:
        """What may follow on one of two ways."""
        return state or other, state is None and other is not None

    def through(self, op: Op, state: Op | None) -> tuple[Sequence[Op], Op | None]:
        """All threads meet before partitions and after them."""
        if op.kind is not control.warp_specialize:
            return super().through(op, state)
        made, _ = super().through(op, None)
        return [*made, *self.fences(op, state)], None

    def past(self, op: Op, number: int, state: Op | None) -> tuple[Sequence[Op], Op | None]:
        """A partition learns at its begin what was done before."""
        return self.fences(op, state, "the begin of ") if op.kind is control.warp_specialize else (), state

    def fences(self, op: Op, follows: Op | None, what: str = "") -> list[Op]:
        """What has to stand behind an operation that threads wait in."""
        return [] if follows is None else [_fence(False, op, f"behind {what}{op.name}, for {_at_line(follows)}")]
