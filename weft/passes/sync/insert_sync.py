"""Insert barriers and proxy fences between conflicting accesses to shared or tensor memory, within each partition.

    shared.store %c, %v                   shared.store %c, %v
    tma.store %desc, %c          -->      sync.fence_async {reason = "before tma.store of c (written at line 12)"}
                                          sync.barrier {reason = "before tma.store of c (written at line 12)"}
                                          tma.store %desc, %c

The pass runs twice: on tile IR for the author's buffers, and on lowered IR for scratch memory. In lowered IR the accesses to
the author's buffers are ordered already, and a barrier that was inserted in tile IR is removed if those for scratch memory make
it redundant. The pass is a forward analysis of the declared effects of operations (`weft.analysis.synchronisation`):

1. A barrier is needed between accesses of different threads to the same bytes if one of them is a write.
2. A proxy fence is needed between an access of the generic proxy and one of the async proxy if one of them is a write. A
   barrier follows the fence if the threads differ.
3. A `cp.async.wait_group` completes only the thread's own copies, so they count as writes of the threads at the wait.
4. A `cp.async.bulk.wait_group` is executed by the elected thread only, so the source of its TMA stores counts as read at the
   wait.
5. `mbarrier.init` and `invalidate` are writes. An arrival needs a barrier before it if threads may still wait on the mbarrier.
6. An arrival of the elected thread releases the accesses of its whole partition, so it needs a barrier after accesses of other
   threads. If each warp arrives for itself (`weft.passes.sync.spread_arrivals`), none is needed. A `tcgen05.commit` releases
   no accesses of threads. It needs a barrier if threads may still wait on an mbarrier, as it may complete later phases.
7. The author orders thread-level accesses (`weft.ops.thread`) among each other. The pass orders them with accesses of tiles,
   copy engines and tensor cores to the same bytes; under divergent control flow it does so before the branch or loop.
8. A wgmma reads shared memory in the async proxy until a wait for its group. After the wait its warpgroup needs no barrier.
9. A TMA load that several warps issue (`weft.passes.sync.spread_requests`) needs a barrier after the elected thread initialised
   its mbarrier, or waited for stores of the same bytes. If that barrier would be in a loop, one thread issues the load again.
10. In tensor memory a warp can access its own 32 lanes only, so threads of one warpgroup never conflict with each other. They
   do conflict with operations of the elected thread, and with other warpgroups. The completion of a tcgen05 operation is
   signalled by an mbarrier, which the author waits for. (In lowered IR all of this is ordered already.)

Consecutive operations of the elected thread are one branch, so a barrier or fence for any of them is inserted before the first.

At the head of a loop the states of the entry and of the loop's end are joined. A barrier or fence in the loop that only code
before the loop makes necessary is hoisted. Synchronisation between partitions is the author's protocol: a partition starts with
the state before it and knows no other. In lowered IR a releasing atomic publishes the accesses of its block, so it needs a
barrier after global accesses. Global accesses after an acquiring atomic need a barrier between, which is inserted before the
branch or loop around them, as only loads are under divergent control flow there. Under divergent control flow of thread-level
code no barrier is possible: an atomic orders its own thread's accesses only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from weft.analysis.flow import PARALLEL, Edge, States, inside, regions, repeated
from weft.analysis.scopes import divided
from weft.analysis.synchronisation import (
    UNFENCED,
    UNORDERED,
    Access,
    Accesses,
    Bytes,
    State,
    acquires,
    bytes_words,
    is_commit,
    is_elected,
    is_product,
    publishes,
    reason,
    threads_touch_tensor,
    touches_global,
)
from weft.errors import compiler as errors
from weft.errors import fail
from weft.ir.core import Effect, Func, Op, OpDef, Region, walk
from weft.ops import control, sync, thread
from weft.passes.sync.spread_requests import gathered


def insert_sync(func: Func) -> Func:
    """The function with barriers and fences. Allocations must have their offsets.

    With `sync="explicit"`, raises CompilationError (sync-fence) if one of the author's buffers needs a fence.
    """
    if not _needs_order(func):
        return func
    while True:
        inserter = _Inserter(func)
        body, _ = inserter.run(func.body, State(inserter.warps))
        dear = inserter.dear(body)
        if not dear:
            return func.with_body(body)
        func = gathered(func, dear)


def unneeded(func: Func) -> list[Op]:
    """The author's barriers and fences in tile IR that order nothing.

    A fence within a partition counts as needed, as it may be for accesses of another partition.
    """
    observer = _Inserter(func, observe=True)
    observer.run(func.body, State(observer.warps))
    apart = {op for outer in walk(func.body) if outer.kind in PARALLEL for op in inside(outer)}
    return [op for op, needed in observer.needed.items() if not needed and (op.kind is sync.barrier or op not in apart)]


def _needs_order(func: Func) -> bool:
    """Whether an operation accesses shared or tensor memory, or in lowered IR synchronises."""
    effects = (effect for op in walk(func.body) for effect in op.effects)
    if func.attrs.stage == "tile":
        return any(effect.space in ("shared", "tensor") for effect in effects)
    return any(
        effect.space in ("shared", "tensor") or effect.kind not in ("read", "write") or effect.order
        for effect in effects
    )


@dataclass(frozen=True, slots=True)
class _Need:
    """Why an operation needs a barrier or a fence: the earlier operation, and the overlapping ranges if both access memory.

    `spread`: it is needed only because several warps issue the operation."""

    op: Op
    meeting: tuple[Bytes, Bytes] | None = None
    spread: bool = False


class _Inserter(States[State]):
    """The forward analysis; states are mutated in place. With `observe` nothing is inserted.

    - `causes`: the earlier operation that each inserted barrier or fence is for.
    - `spread`: the TMA load by several warps that an inserted barrier is for, if it is needed for no other reason.
    - `needed`: whether each of the author's barriers and fences orders something.
    - `rows`: for each operation of the elected thread, the run of consecutive operations of that thread from it on.
    """

    def __init__(self, func: Func, observe: bool = False) -> None:
        self.tile = func.attrs.stage == "tile"
        self.explicit = func.attrs.sync == "explicit"
        self.observe = observe
        self.accesses = Accesses(func)
        self.causes: dict[Op, Op] = {}
        self.spread: dict[Op, Op] = {}
        self.needed: dict[Op, bool] = {}
        shares = self.tile and any(op.kind is thread.shared_of for op in walk(func.body))
        self.rows = _rows(func.body)
        self.warps = func.attrs.num_warps
        self.divided = divided(func) if shares else frozenset[Op]()
        # Operations under divergent control flow are thread-level code, not lowered tiles.
        own = frozenset[Op]() if self.tile else divided(func)
        self.alone = frozenset(each for op in own for each in inside(op))

    def visit(self, op: Op, state: State) -> tuple[Sequence[Op], State]:
        """The operation, after the barriers and fences that it needs."""
        if self._done_by_now(op, state):
            return (), state
        if not op.effects:
            return (op,), state
        before = self._before(self.rows.get(op, (op,)), state)
        self._do(op, state)
        return (*before, op), state

    # One operation.

    def _done_by_now(self, op: Op, state: State) -> bool:
        """Whether a barrier was inserted in tile IR, and those for scratch memory before it make it redundant."""
        if self.tile or op.kind is not sync.barrier or not op.attrs["reason"]:
            return False
        if state.touched is not None or state.tensor:
            return False
        return not any(known & UNORDERED and self.accesses.is_authors(access) for access, known in state.known.items())

    def _before(self, row: Iterable[Op], state: State) -> list[Op]:
        """The fence and the barrier that are needed before a run of operations."""
        fence: tuple[Op, _Need] | None = None
        barrier: tuple[Op, _Need] | None = None
        for op in row:
            fenced, ordered = self._needs(op, state)
            if fence is None and fenced is not None and self._may_fence(op, fenced):
                fence = op, fenced
            if ordered is not None and (barrier is None or barrier[1].spread > ordered.spread):
                barrier = op, ordered
        made = [] if fence is None else self._insert(sync.fence_async, *fence, state)
        return made if barrier is None else [*made, *self._insert(sync.barrier, *barrier, state)]

    def _needs(self, op: Op, state: State) -> tuple[_Need | None, _Need | None]:
        fence: _Need | None = None
        barrier: _Need | None = None
        for access in self.accesses.of(op):
            for earlier, known in state.known.items():
                conflict = self.accesses.conflict(earlier, access)
                if conflict is None:
                    continue
                if fence is None and conflict.fence and known & UNFENCED:
                    fence = _Need(earlier.op, conflict.meeting)
                passed = access.effect.kind == "update" and state.passed(earlier)
                if conflict.order and known & UNORDERED and not passed and (barrier is None or barrier.spread):
                    # If one thread issued the load, the earlier access of the elected thread would be in program order.
                    spread = access.effect.by == "several warps" and earlier.effect.by == "elected"
                    barrier = _Need(earlier.op, conflict.meeting, spread)
        return fence, barrier or self._published(op, state)

    def _published(self, op: Op, state: State) -> _Need | None:
        """The accesses that an operation with release semantics must follow, or the acquire that an access must follow."""
        release = next((effect for effect in op.effects if effect.kind == "release"), None)
        if release is not None:
            if release.by == "each warp":
                return None
            accessed = next((a.op for a in self._open(state)), state.written)
            return None if accessed is None else _Need(accessed)
        if is_commit(op):
            return next((_Need(a.op) for a in self._open(state) if a.waits), None)
        if self.tile or op in self.alone or not touches_global(op):
            return None
        if state.acquired is not None:
            return _Need(state.acquired)
        return _Need(state.touched) if state.touched is not None and publishes(op) else None

    def _open(self, state: State) -> Iterator[Access]:
        """Accesses that an arrival would release before all threads have performed them."""
        return (a for a, k in state.known.items() if k & UNORDERED and self._told(a) and not state.passed(a))

    def _told(self, access: Access) -> bool:
        """Whether an arrival releases an access: it is by all threads, to memory that the author allocated.

        The completion of loads by several warps is signalled by the phase of their mbarrier instead."""
        return access.effect.by in ("threads", "each warp") and self.accesses.is_authors(access)

    def _may_fence(self, op: Op, need: _Need) -> bool:
        """Whether the pass may insert a fence; with `sync="explicit"` it may not. Raises CompilationError (sync-fence).

        A fence between different buffers in the same bytes is inserted in every mode, as the compiler chose the offsets.
        """
        assert need.meeting is not None
        mine, others = need.meeting
        if not self.explicit or self.observe or mine.alloc is not others.alloc:
            return True
        if not self.tile:
            return False
        related = (("the access that the fence has to follow", need.op.loc),) if need.op.loc is not None else ()
        line = "before it" if need.op.loc is None else f"at line {need.op.loc.line}"
        raise fail(errors.FENCE, loc=op.loc, related=related, what=op.name, buffer=bytes_words(others), line=line)

    def _insert(self, kind: OpDef, before: Op, need: _Need, state: State) -> list[Op]:
        if self.observe:
            return []
        _apply(kind, state)
        attrs = {**kind.defaults, "reason": reason(before, need.op, need.meeting)}
        if kind is sync.fence_async:
            # What a load overwrites in another block was accessed there: the fence is on the path from there to the load.
            attrs["cluster"] = any(effect.remote and effect.kind == "write" for effect in before.effects)
        op = Op(kind, (), attrs, (), (), before.loc)
        self.causes[op] = need.op
        if need.spread:
            self.spread[op] = before
        return [op]

    def _do(self, op: Op, state: State) -> None:
        """Apply an operation to the state."""
        if op.kind in (sync.barrier, sync.fence_async):
            which = UNORDERED if op.kind is sync.barrier else UNFENCED
            open_now = any(known & which for known in state.known.values())
            touched = op.kind is sync.barrier and state.touched is not None
            if not op.attrs["reason"]:
                self.needed[op] = self.needed.get(op, False) or open_now or touched
        if is_product(op):
            state.product()
        accesses = {access.effect: access for access in self.accesses.of(op)}
        for effect in op.effects:
            if effect.kind == "sync":
                self._synchronise(op, effect, state)
            elif effect in accesses:
                state.add(accesses[effect])
        state.tensor = state.tensor or threads_touch_tensor(op)
        if touches_global(op):
            state.touched = state.touched or op
            if any(e.space == "global" and e.kind == "write" and e.proxy == "generic" for e in op.effects):
                state.written = state.written or op
            if not self.tile and op not in self.alone and acquires(op):
                state.acquired = op

    def _synchronise(self, op: Op, effect: Effect, state: State) -> None:
        """What an operation waits for, or orders."""
        if effect.completes is not None:
            bar = op.operand(effect.operand) if effect.operand is not None else None
            state.waited(effect.completes, effect.pendings, () if bar is None else self.accesses.bytes(bar))
        elif effect.space == "threads" and effect.waits:
            state.barrier()
            state.tensor = False
        elif effect.proxy == "async" and effect.space == "shared":
            state.fence()
        elif effect.space == "cluster" and effect.waits:
            state.meet()
        elif effect.space == "cluster":
            state.arrive(relaxed=effect.order == "relaxed")

    # Control flow.

    def copy(self, state: State) -> State:
        """An independent copy."""
        return state.copy()

    def join(self, state: State, other: State) -> tuple[State, bool]:
        """An access is open if it is open on either path."""
        news = state.join(other)
        return state, news

    def along(self, op: Op, edge: Edge, state: State) -> State:
        """Partitions do not see each other's pending accesses; any other edge passes the state unchanged."""
        if op.kind is control.partitions and edge.target is not None:
            return state.alone(op.attrs["num_warps"][edge.target])
        if op.kind is control.warp_specialize and edge.target:
            return state.alone(op.attrs["num_warps"][edge.target - 1])
        if op.kind is control.warp_specialize and edge.source:
            state = state.copy()
            state.barrier()
            return state.alone(self.warps)
        return state

    def through(self, op: Op, state: State) -> tuple[Sequence[Op], State]:
        """As `visit`, for an operation with regions; barriers for divergent regions are inserted before it."""
        before: list[Op] = []
        if state.acquired is not None and op not in self.alone and any(map(touches_global, inside(op))):
            before += self._insert(sync.barrier, op, _Need(state.acquired), state)
        if op in self.divided:
            before += self._before((inner for inner in inside(op) if inner.effects), state)
        if op.kind is control.warp_specialize:
            # A barrier of all threads precedes and follows `warp_specialize`.
            state.barrier()
            made, state = super().through(op, state)
            state.barrier()
        elif op.kind in (control.if_, control.partitions):
            made, state = super().through(op, state)
        else:
            made, state = self._hoisted(op, state)
        return (*before, *made), state

    def _hoisted(self, op: Op, state: State) -> tuple[Sequence[Op], State]:
        """The loop, with barriers and fences hoisted out of it that only code before the loop makes necessary."""
        made, after = super().through(op, state)
        best = made, after, self._made(made)
        within = set(inside(op))
        if any(self.causes[one] not in within for one in best[2]):
            for kinds in _HOISTS:
                hoisted = [copy for kind in kinds if (copy := self._copied(kind, self._made(made))) is not None]
                if len(hoisted) < len(kinds):
                    continue
                before = state.copy()
                for kind in kinds:
                    _apply(kind, before)
                again, after = super().through(op, before)
                if len(self._made(again)) < len(best[2]):
                    best = (*hoisted, *again), after, self._made(again)
        return best[0], best[1]

    def _made(self, ops: Iterable[Op]) -> list[Op]:
        """The barriers and fences that were inserted into the regions of these operations."""
        return [one for op in ops for one in inside(op) if one in self.causes]

    def _copied(self, kind: OpDef, made: list[Op]) -> Op | None:
        """A copy of the first inserted operation of a kind, to be inserted before the loop; None if there is none."""
        found = next((one for one in made if one.kind is kind), None)
        if found is None:
            return None
        op = Op(kind, (), found.attrs, (), (), found.loc)
        self.causes[op] = self.causes[found]
        if found in self.spread:
            self.spread[op] = self.spread[found]
        return op

    def dear(self, body: Region) -> set[Op]:
        """The TMA loads by several warps that are the only reason for a barrier in a loop."""
        return {self.spread[op] for op in repeated(body) if op in self.spread} if self.spread else set()


_HOISTS = ((sync.barrier,), (sync.fence_async,), (sync.fence_async, sync.barrier))


def _apply(kind: OpDef, state: State) -> None:
    if kind is sync.barrier:
        state.barrier()
    else:
        state.fence()


def _rows(body: Region) -> dict[Op, list[Op]]:
    """Each operation of the elected thread, with the run of operations of that thread that directly follow it."""
    rows: dict[Op, list[Op]] = {}
    for region in regions(body):
        following: list[Op] = []
        for op in reversed(region.ops):
            if is_elected(op):
                following = rows[op] = [op, *following]
            elif not op.kind.pure:
                following = []
    return rows
