"""Place barriers and fences between accesses to the same shared or tensor memory, as few as needed, within each partition.

    shared.store %c, %v                   shared.store %c, %v
    tma.store %desc, %c          -->      sync.fence_async {reason = "before tma.store of c (written at line 12)"}
                                          sync.barrier {reason = "before tma.store of c (written at line 12)"}
                                          tma.store %desc, %c

The pass runs twice: on tile IR for the author's buffers, and on lowered IR for the scratch memory that lowering took. There
accesses to each of the author's buffers are in order already, and a barrier goes that has nothing left to do beside those that
scratch memory needs. It follows the declared effects of operations in program order (`weft.passes.sync_state`):

1. A barrier between accesses of different threads to the same bytes, one of them a write.
2. A fence between a generic access and one of the async proxy, one of them a write, and a barrier after it if it needs one.
3. After a wait for cp.async each thread knows of its own copies only: they count as writes that happen there.
4. After a wait for TMA stores only the elected thread knows: their source counts as read there.
5. On an mbarrier `init` and `invalidate` are writes; what updates it comes after a barrier if threads may still wait on it.
6. An arrival publishes for its whole partition, so it comes after a barrier if threads accessed anything. Where each warp
   arrives for itself (`weft.passes.spread_arrivals`) it takes none. A commit of tcgen05 says nothing of what threads did, but
   who goes on may complete phases, so it comes after a barrier if threads may still wait for some.
7. What threads do by themselves (`weft.ops.thread`) their author brings in order. It is ordered here with what tiles, copy
   engines and products do to the same bytes; where not all threads come, that is done before the branch or loop.
8. A product of a warpgroup reads in the async proxy until a wait for its group, after which its own warpgroup knows.
9. A load that several warps issue (`weft.passes.spread_requests`) comes after a barrier if the elected thread initialised its
   mbarrier, or waited for stores of the same bytes. Where that barrier would stand in a loop, one thread issues it again.
10. In tensor memory a warp reaches its own lanes only, so threads of one warpgroup never meet there; they do meet what the
   elected thread starts, and with several warpgroups each other. A tcgen05 operation that has been started is over when an
   mbarrier says so: that is the author's to wait for. (Lowered IR has all this in order already.)

What the elected thread does in a row is one branch, so what any of it needs stands before the first.

A loop is entered with what its own end leaves open. What only the code before a loop makes necessary stands before the loop.
Partitions are the author's protocol: none knows of another, all know what came before. Atomics (lowered stage) that release
publish for the block, so they wait for its earlier global accesses; what accesses global memory after an acquire waits for it,
before the branch or loop in which it stands, for only loads stand where not all threads come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from weft.errors import compiler as errors
from weft.errors import fail
from weft.ir.core import Func, Op, Region, walk
from weft.ir.define import OpDef
from weft.ops import cluster, control, program, thread, tma
from weft.passes.scopes import divided
from weft.passes.spread_requests import gathered
from weft.passes.sync_kinds import is_commit, is_elected, is_product, publishes, threads_touch_tensor, touches_global
from weft.passes.sync_state import UNFENCED, UNORDERED, Access, Accesses, Bytes, State
from weft.passes.sync_words import bytes_words, reason


def insert_sync(func: Func) -> Func:
    """The function with barriers and fences; allocations have their offsets already.

    With the attribute "sync" of "explicit", raises CompilationError (sync-fence) where a buffer of the author's needs a fence.
    """
    if func.attrs.stage == "tile" and not _uses_memory(func):
        return func
    while True:
        inserter = _Inserter(func)
        body = inserter.region(func.body, _entered(func))
        dear = inserter.dear(body)
        if not dear:
            return func.with_body(body)
        func = gathered(func, dear)


def unneeded(func: Func) -> list[Op]:
    """Barriers and fences that the author wrote in tile IR where nothing was left to order.

    A fence within a partition is taken to be needed: it may be for accesses of another one.
    """
    observer = _Inserter(func, observe=True)
    observer.region(func.body, _entered(func))
    apart = {op for outer in walk(func.body) if outer.kind in _APART for r in outer.regions for op in walk(r)}
    return [
        op for op, needed in observer.needed.items() if not needed and (op.kind is program.barrier or op not in apart)
    ]


_APART = (control.warp_specialize, control.partitions)


def _entered(func: Func) -> State:
    return State(func.attrs.num_warps)


def _uses_memory(func: Func) -> bool:
    return any(effect.space in ("shared", "tensor") for op in walk(func.body) for effect in op.kind.effects)


@dataclass(frozen=True, slots=True)
class _Need:
    """Why an operation needs a barrier or a fence: the earlier operation, and their bytes if it is about bytes.

    `spread`: it does because several warps issue it."""

    op: Op
    meeting: tuple[Bytes, Bytes] | None = None
    spread: bool = False


class _Inserter:
    """Walks regions with the state at each point; a state is changed in place. With `observe` nothing is inserted.

    `causes` are the earlier accesses that inserted operations were made for, `spread` are the loads by several warps for
    which alone some were, `needed` says of each of the author's barriers and fences whether something was open there.
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
        self.divided = divided(func) if shares else frozenset[Op]()

    def region(self, region: Region, state: State) -> Region:
        """The region with what it needs."""
        ops: list[Op] = []
        for number, op in enumerate(region.ops):
            if self._done_by_now(op, state):
                continue
            if op.kind.effects:
                ops += self._before(_in_a_row(region.ops, number), state)
                self._do(op, state)
            elif op.regions:
                if state.acquired is not None and any(touches_global(i) for r in op.regions for i in walk(r)):
                    ops += self._insert(program.barrier, op, _Need(state.acquired), state)
                if op in self.divided:
                    ops += self._before((i for r in op.regions for i in walk(r) if i.kind.effects), state)
                before, op = _INSIDE.get(op.kind, _Inserter.loop)(self, op, state)
                ops += before
            ops.append(op)
        return Region(region.args, tuple(ops))

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
                    barrier = _Need(earlier.op, conflict.meeting, tma.by_several(op) and earlier.effect.elected)
        return fence, barrier or self._published(op, state)

    def _published(self, op: Op, state: State) -> _Need | None:
        """What the threads did that an operation must not overtake because it tells others, or was told by them."""
        if any(effect.kind == "release" for effect in op.kind.effects):
            if op.attrs.get("each_warp"):
                return None
            accessed = next((a.op for a in self._open(state)), state.written)
            return None if accessed is None else _Need(accessed)
        if is_commit(op):
            return next((_Need(a.op) for a in self._open(state) if a.waits), None)
        if self.tile or not touches_global(op):
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
        alone = access.effect.elected or tma.by_several(access.op)
        return not alone and self.accesses.is_authors(access)

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
        self._synchronise(op, state)
        if is_product(op):
            state.product()
        for access in self.accesses.of(op):
            state.add(access)
        state.tensor = state.tensor or threads_touch_tensor(op)
        if op.attrs.get("max_imprecise"):
            # Its parts are waited for as they are summed up.
            state.waited("wgmma", 0, ())
        if touches_global(op):
            state.touched = state.touched or op
            if any(e.space == "global" and e.kind == "write" and e.proxy == "generic" for e in op.kind.effects):
                state.written = state.written or op
            if not self.tile and op.attrs.get("order") in ("acquire", "acq_rel"):
                state.acquired = op

    def _synchronise(self, op: Op, state: State) -> None:
        """What an operation waits for, or orders."""
        for effect in op.kind.effects:
            if effect.kind != "sync":
                continue
            if effect.completes is not None:
                bar = op.operand(effect.operand) if effect.operand is not None else None
                bars = () if bar is None else self.accesses.bytes(bar)
                state.waited(effect.completes, op.attrs.get("pendings", 0), bars)
            elif effect.space == "threads" and not op.attrs.get("arrive"):
                state.barrier()
                state.tensor = False
            elif effect.proxy == "async":
                state.fence()
        if op.kind is cluster.arrive:
            state.arrive(op.attrs["relaxed"])
        elif op.kind is cluster.wait:
            state.meet()

    # Control flow: what stands before the operation, and the operation with what its regions need.

    def if_(self, op: Op, state: State) -> tuple[list[Op], Op]:
        """What either branch leaves open is open."""
        other = state.copy()
        then, orelse = self.region(op.regions[0], state), self.region(op.regions[1], other)
        state.join(other)
        return [], _with_regions(op, (then, orelse))

    def partitions(self, op: Op, state: State) -> tuple[list[Op], Op]:
        """All threads meet before and after. The first partition goes on with what is under way."""
        state.barrier()
        workers = [state.alone(warps) for warps in op.attrs["num_warps"]]
        regions = tuple(self.region(r, s) for r, s in zip(op.regions, (state, *workers), strict=True))
        for worker in workers:
            worker.barrier()
            state.join(worker.alone(state.warps))
        state.barrier()
        return [], _with_regions(op, regions)

    def whole(self, op: Op, state: State) -> tuple[list[Op], Op]:
        """Partitions from the kernel's begin to its end, which meet at barriers of their own."""
        each = zip(op.regions, op.attrs["num_warps"], strict=True)
        return [], _with_regions(op, tuple(self.region(region, state.alone(warps)) for region, warps in each))

    def loop(self, op: Op, state: State) -> tuple[list[Op], Op]:
        """With what only stands in the loop for the sake of what was before it moved to before it."""
        regions, after = self._repeated(op, state)
        made = self._made(regions)
        inside = {inner for region in op.regions for inner in walk(region)}
        best: tuple[list[Op], tuple[Region, ...], State] = ([], regions, after)
        if any(self.causes[one] not in inside for one in made):
            for kinds in _HOISTS:
                hoisted = [one for kind in kinds if (one := self._copy(kind, made)) is not None]
                if len(hoisted) < len(kinds):
                    continue
                before = state.copy()
                for kind in kinds:
                    _apply(kind, before)
                regions, after = self._repeated(op, before)
                if len(self._made(regions)) < len(self._made(best[1])):
                    best = hoisted, regions, after
        state.become(best[2])
        return best[0], _with_regions(op, best[1])

    def _repeated(self, op: Op, state: State) -> tuple[tuple[Region, ...], State]:
        """The regions of a loop that is entered in a state and from its own end, and the state after it."""
        entering = state.copy()
        while True:
            inner = entering.copy()
            regions: list[Region] = []
            after: list[State] = []
            for region in op.regions:
                regions.append(self.region(region, inner))
                after.append(inner.copy())
            if not entering.join(inner):
                break
        # A `while` is left after its condition, anything else after its body or without having entered it.
        if op.kind is control.while_:
            return tuple(regions), after[0]
        after[-1].join(state)
        return tuple(regions), after[-1]

    def _made(self, regions: Iterable[Region]) -> list[Op]:
        return [op for region in regions for op in walk(region) if op in self.causes]

    def _copy(self, kind: OpDef, made: list[Op]) -> Op | None:
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
        loops = (r for op in walk(body) if op.kind in _LOOPS for r in op.regions) if self.spread else ()
        return {self.spread[op] for region in loops for op in walk(region) if op in self.spread}


_LOOPS = (control.for_, control.while_)
_HOISTS = ((program.barrier,), (program.fence_async,), (program.fence_async, program.barrier))
_INSIDE: dict[OpDef, Callable[[_Inserter, Op, State], tuple[list[Op], Op]]] = {
    control.if_: _Inserter.if_,
    control.warp_specialize: _Inserter.partitions,
    control.partitions: _Inserter.whole,
}


def _apply(kind: OpDef, state: State) -> None:
    if kind is program.barrier:
        state.barrier()
    else:
        state.fence()


def _in_a_row(ops: Sequence[Op], number: int) -> Iterator[Op]:
    """An operation, and if it is the elected thread's the others of that thread's right after it."""
    yield ops[number]
    if is_elected(ops[number]):
        rest = takewhile(lambda op: op.kind.pure or is_elected(op), islice(ops, number + 1, None))
        yield from (op for op in rest if not op.kind.pure)


def _with_regions(op: Op, regions: tuple[Region, ...]) -> Op:
    return Op(op.kind, op.operands, op.attrs, op.results, regions, op.loc)
