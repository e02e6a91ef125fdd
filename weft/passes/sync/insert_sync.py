"""Place barriers and fences between accesses to the same shared or tensor memory, as few as needed, within each partition.

    shared.store %c, %v                   shared.store %c, %v
    tma.store %desc, %c          -->      sync.fence_async {reason = "before tma.store of c (written at line 12)"}
                                          sync.barrier {reason = "before tma.store of c (written at line 12)"}
                                          tma.store %desc, %c

The pass runs twice: on tile IR for the author's buffers, and on lowered IR for the scratch memory that lowering took. There
accesses to each of the author's buffers are in order already, and a barrier goes that has nothing left to do beside those that
scratch memory needs. It follows the declared effects of operations in program order (`weft.analysis.synchronisation`):

1. A barrier between accesses of different threads to the same bytes, one of them a write.
2. A fence between a generic access and one of the async proxy, one of them a write, and a barrier after it if it needs one.
3. After a wait for cp.async each thread knows of its own copies only: they count as writes that happen there.
4. After a wait for TMA stores only the elected thread knows: their source counts as read there.
5. On an mbarrier `init` and `invalidate` are writes; what updates it comes after a barrier if threads may still wait on it.
6. An arrival publishes for its whole partition, so it comes after a barrier if threads accessed anything. Where each warp
   arrives for itself (`weft.passes.sync.spread_arrivals`) it takes none. A commit of tcgen05 says nothing of what threads did,
   but who goes on may complete phases, so it comes after a barrier if threads may still wait for some.
7. What threads do by themselves (`weft.ops.thread`) their author brings in order. It is ordered here with what tiles, copy
   engines and products do to the same bytes; where not all threads come, that is done before the branch or loop.
8. A product of a warpgroup reads in the async proxy until a wait for its group, after which its own warpgroup knows.
9. A load that several warps issue (`weft.passes.sync.spread_requests`) comes after a barrier if the elected thread initialised
its
   mbarrier, or waited for stores of the same bytes. Where that barrier would stand in a loop, one thread issues it again.
10. In tensor memory a warp reaches its own lanes only, so threads of one warpgroup never meet there; they do meet what the
   elected thread starts, and with several warpgroups each other. A tcgen05 operation that has been started is over when an
   mbarrier says so: that is the author's to wait for. (Lowered IR has all this in order already.)

What the elected thread does in a row is one branch, so what any of it needs stands before the first.

A loop is entered with what its own end leaves open. What only the code before a loop makes necessary stands before the loop.
Partitions are the author's protocol: none knows of another, all know what came before. Atomics (lowered stage) that release
publish for the block, so they wait for its earlier global accesses; what accesses global memory after an acquire waits for it,
before the branch or loop in which it stands, for only loads stand where not all threads come. Where threads that compute by
themselves do not all come, no barrier can stand: what an atomic orders there is that of its own thread.
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
from weft.ops import control, program, thread
from weft.passes.sync.spread_requests import gathered


def insert_sync(func: Func) -> Func:
    """The function with barriers and fences; allocations have their offsets already.

    With the attribute "sync" of "explicit", raises CompilationError (sync-fence) where a buffer of the author's needs a fence.
    """
    if func.attrs.stage == "tile" and not _uses_memory(func):
        return func
    while True:
        inserter = _Inserter(func)
        body, _ = inserter.run(func.body, State(inserter.warps))
        dear = inserter.dear(body)
        if not dear:
            return func.with_body(body)
        func = gathered(func, dear)


def unneeded(func: Func) -> list[Op]:
    """Barriers and fences that the author wrote in tile IR where nothing was left to order.

    A fence within a partition is taken to be needed: it may be for accesses of another one.
    """
    observer = _Inserter(func, observe=True)
    observer.run(func.body, State(observer.warps))
    apart = {op for outer in walk(func.body) if outer.kind in PARALLEL for op in inside(outer)}
    return [
        op for op, needed in observer.needed.items() if not needed and (op.kind is program.barrier or op not in apart)
    ]


def _uses_memory(func: Func) -> bool:
    return any(effect.space in ("shared", "tensor") for op in walk(func.body) for effect in op.effects)


@dataclass(frozen=True, slots=True)
class _Need:
    """Why an operation needs a barrier or a fence: the earlier operation, and their bytes if it is about bytes.

    `spread`: it does because several warps issue it."""

    op: Op
    meeting: tuple[Bytes, Bytes] | None = None
    spread: bool = False


class _Inserter(States[State]):
    """The state at each point is changed in place. With `observe` nothing is inserted.

    `causes` are the earlier accesses that inserted operations were made for, `spread` are the loads by several warps for
    which alone some were, `needed` says of each of the author's barriers and fences whether something was open there. `rows`
    has for each of the elected thread's operations those of that thread's in a row, from it on.
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
        # In a launch with `block=`, what stands in a branch or loop that not all threads come to is no lowered tile.
        own = divided(func) if func.attrs.block is not None and not self.tile else frozenset[Op]()
        self.alone = frozenset(each for op in own for each in inside(op))

    def visit(self, op: Op, state: State) -> tuple[Sequence[Op], State]:
        """An operation behind what it needs."""
        if self._done_by_now(op, state):
            return (), state
        if not op.effects:
            return (op,), state
        before = self._before(self.rows.get(op, (op,)), state)
        self._do(op, state)
        return (*before, op), state

    # One operation.

    def _done_by_now(self, op: Op, state: State) -> bool:
        """Whether a barrier was inserted into tile IR, and one that lowering needs closes before it all that it closes."""
        if self.tile or op.kind is not program.barrier or not op.attrs["reason"]:
            return False
        if state.touched is not None or state.tensor:
            return False
        return not any(known & UNORDERED and self.accesses.is_authors(access) for access, known in state.known.items())

    def _before(self, row: Iterable[Op], state: State) -> list[Op]:
        """What has to stand before operations that stay together."""
        fence: tuple[Op, _Need] | None = None
        barrier: tuple[Op, _Need] | None = None
        for op in row:
            fenced, ordered = self._needs(op, state)
            if fence is None and fenced is not None and self._may_fence(op, fenced):
                fence = op, fenced
            if ordered is not None and (barrier is None or barrier[1].spread > ordered.spread):
                barrier = op, ordered
        made = [] if fence is None else self._insert(program.fence_async, *fence, state)
        return made if barrier is None else [*made, *self._insert(program.barrier, *barrier, state)]

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
                    # The elected thread would not wait for itself.
                    spread = access.effect.by == "several warps" and earlier.effect.by == "elected"
                    barrier = _Need(earlier.op, conflict.meeting, spread)
        return fence, barrier or self._published(op, state)

    def _published(self, op: Op, state: State) -> _Need | None:
        """What the threads did that an operation must not overtake because it tells others, or was told by them."""
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
        """Accesses that an arrival would tell of before all threads have made them."""
        return (a for a, k in state.known.items() if k & UNORDERED and self._told(a) and not state.passed(a))

    def _told(self, access: Access) -> bool:
        """Whether an arrival tells others that an access is over: one of all threads to memory of the author's.

        Of the loads of several warps the phase tells that they complete."""
        return access.effect.by in ("threads", "each warp") and self.accesses.is_authors(access)

    def _may_fence(self, op: Op, need: _Need) -> bool:
        """False where the author has to. Raises CompilationError (sync-fence).

        Buffers that only share bytes are the compiler's affair in every mode.
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
        op = Op(kind, (), {**kind.defaults, "reason": reason(before, need.op, need.meeting)}, (), (), before.loc)
        self.causes[op] = need.op
        if need.spread:
            self.spread[op] = before
        return [op]

    def _do(self, op: Op, state: State) -> None:
        """An operation happens."""
        if op.kind in (program.barrier, program.fence_async):
            which = UNORDERED if op.kind is program.barrier else UNFENCED
            open_now = any(known & which for known in state.known.values())
            touched = op.kind is program.barrier and state.touched is not None
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
        elif effect.proxy == "async":
            state.fence()
        elif effect.space == "cluster" and effect.waits:
            state.meet()
        elif effect.space == "cluster":
            state.arrive(relaxed=effect.order == "relaxed")

    # Control flow.

    def copy(self, state: State) -> State:
        """A state of its own."""
        return state.copy()

    def join(self, state: State, other: State) -> tuple[State, bool]:
        """What either way leaves open is open."""
        news = state.join(other)
        return state, news

    def along(self, op: Op, edge: Edge, state: State) -> State:
        """Workers do not know what the first partition has under way, nor it what they have; all else goes on as it is."""
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
        """With what has to stand before an operation whose regions not all threads may come to."""
        before: list[Op] = []
        if state.acquired is not None and op not in self.alone and any(map(touches_global, inside(op))):
            before += self._insert(program.barrier, op, _Need(state.acquired), state)
        if op in self.divided:
            before += self._before((inner for inner in inside(op) if inner.effects), state)
        if op.kind is control.warp_specialize:
            # All threads meet before and after.
            state.barrier()
            made, state = super().through(op, state)
            state.barrier()
        elif op.kind in (control.if_, control.partitions):
            made, state = super().through(op, state)
        else:
            made, state = self._hoisted(op, state)
        return (*before, *made), state

    def _hoisted(self, op: Op, state: State) -> tuple[Sequence[Op], State]:
        """A loop, with what only stands in it for the sake of what was before it moved to before it."""
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
        """The operations that were inserted into the regions of some."""
        return [one for op in ops for one in inside(op) if one in self.causes]

    def _copied(self, kind: OpDef, made: list[Op]) -> Op | None:
        """One of the inserted operations, to stand before the loop; None where none is of the kind."""
        found = next((one for one in made if one.kind is kind), None)
        if found is None:
            return None
        op = Op(kind, (), found.attrs, (), (), found.loc)
        self.causes[op] = self.causes[found]
        if found in self.spread:
            self.spread[op] = self.spread[found]
        return op

    def dear(self, body: Region) -> set[Op]:
        """The loads of several warps that alone need a barrier in a loop."""
        return {self.spread[op] for op in repeated(body) if op in self.spread} if self.spread else set()


_HOISTS = ((program.barrier,), (program.fence_async,), (program.fence_async, program.barrier))


def _apply(kind: OpDef, state: State) -> None:
    if kind is program.barrier:
        state.barrier()
    else:
        state.fence()


def _rows(body: Region) -> dict[Op, list[Op]]:
    """Each operation of the elected thread's, and others of that thread's right after it."""
    rows: dict[Op, list[Op]] = {}
    for region in regions(body):
        following: list[Op] = []
        for op in reversed(region.ops):
            if is_elected(op):
                following = rows[op] = [op, *following]
            elif not op.kind.pure:
                following = []
    return rows
