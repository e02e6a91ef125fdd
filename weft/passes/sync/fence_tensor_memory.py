"""Insert `tcgen05.fence` around synchronisation, as tcgen05 operations are asynchronous to their thread's other instructions.

    tensor_memory.load %acc                    tensor_memory.load %acc
    mbarrier.arrive %empty          -->        tcgen05.fence {before=true}
                                               mbarrier.arrive %empty

    mbarrier.wait %full                        mbarrier.wait %full
    tcgen05.mma %a, %b, %acc        -->        tcgen05.fence {before=false}
                                               tcgen05.mma %a, %b, %acc

A `fence::before_thread_sync` is inserted before an operation that signals other threads (an arrival, a barrier, the begin and
end of `warp_specialize`) if on some path the partition has accessed tensor memory since the last such fence. A `tcgen05.commit`
needs none for operations of the elected thread. A `fence::after_thread_sync` is inserted after a wait if on some path an access
to tensor memory follows before the next wait.

Gluon kernels have no such fences, so the pass runs with `sync="explicit"` too; only `sync="none"` leaves them to the author.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.analysis.flow import States
from weft.ir.core import Func, Op, walk
from weft.ir.define import Effect
from weft.ops import control, tcgen05


def fence_tensor_memory(func: Func) -> Func:
    """The function with fences; the same object if it does not access tensor memory."""
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
    """Whether an operation signals other threads."""
    arrives = any(effect.space == "cluster" and not effect.waits for effect in op.effects)
    return arrives or _is_barrier(op) or any(effect.kind == "release" for effect in op.effects)


def _learns(op: Op) -> bool:
    """Whether threads wait in an operation for others."""
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
    """The latest accesses to tensor memory that no fence covers yet: by all threads, and by the elected one."""

    by_all: Op | None = None
    by_elected: Op | None = None

    @property
    def kinds(self) -> tuple[bool, bool]:
        """Which of the two are present; this is the lattice element."""
        return self.by_all is not None, self.by_elected is not None


_NOTHING = _Done()


class _Before(States[_Done]):
    """Forward analysis: the accesses since the last fence. Inserts the fences before synchronisation."""

    def visit(self, op: Op, state: _Done) -> tuple[Sequence[Op], _Done]:
        """The operation with its fence, and the accesses past it."""
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
        """The union of both paths."""
        joined = _Done(state.by_all or other.by_all, state.by_elected or other.by_elected)
        return joined, joined.kinds != state.kinds

    def through(self, op: Op, state: _Done) -> tuple[Sequence[Op], _Done]:
        """A barrier of all threads precedes and follows `warp_specialize`."""
        if op.kind is not control.warp_specialize:
            return super().through(op, state)
        made, _ = super().through(op, _NOTHING)
        return [*self.fences(op, state), *made], _NOTHING

    def past(self, op: Op, number: int, state: _Done) -> tuple[Sequence[Op], _Done]:
        """The end of a partition synchronises with the others."""
        return self.fences(op, state, "the end of ") if op.kind is control.warp_specialize else (), state

    def fences(self, op: Op, done: _Done, what: str = "") -> list[Op]:
        """The fence that is needed before an operation that signals other threads."""
        access = done.by_all or done.by_elected
        return [] if access is None else [_fence(True, op, f"ahead of {what}{op.name} (after {_at_line(access)})")]


class _After(States["Op | None"]):
    """Backward analysis: the access to tensor memory that follows before the next wait, or None. Inserts the fences after
    waits."""

    backward = True

    def visit(self, op: Op, state: Op | None) -> tuple[Sequence[Op], Op | None]:
        """The operation with its fence, and the access that follows its begin."""
        if op.kind is tcgen05.fence:
            return [op], state if op.attrs["before"] else None
        if _learns(op):
            return [op, *self.fences(op, state)], None
        return [op], op if _accesses(op) else state

    def join(self, state: Op | None, other: Op | None) -> tuple[Op | None, bool]:
        """An access that follows on either path."""
        return state or other, state is None and other is not None

    def through(self, op: Op, state: Op | None) -> tuple[Sequence[Op], Op | None]:
        """A barrier of all threads precedes and follows `warp_specialize`."""
        if op.kind is not control.warp_specialize:
            return super().through(op, state)
        made, _ = super().through(op, None)
        return [*made, *self.fences(op, state)], None

    def past(self, op: Op, number: int, state: Op | None) -> tuple[Sequence[Op], Op | None]:
        """The begin of a partition synchronises with the others."""
        return self.fences(op, state, "the begin of ") if op.kind is control.warp_specialize else (), state

    def fences(self, op: Op, follows: Op | None, what: str = "") -> list[Op]:
        """The fence that is needed after an operation in which threads wait."""
        return [] if follows is None else [_fence(False, op, f"behind {what}{op.name}, for {_at_line(follows)}")]
