"""The dataflow state of `insert_sync`: which accesses to shared and tensor memory still need a barrier, proxy fence or wait.

    shared.store %a, %x            store: OPEN                  its own thread has performed it
    proxy fence                    store: FENCED                it is visible to the async proxy, for its own thread
    barrier                        (forgotten)                  all threads and both proxies see it
    tma.store %d, %a               read of %a: PENDING          until `cp.async.bulk.wait_group.read`

The module has four parts: predicates on operations, from their declared effects; which thread owns which bytes of an access;
the state at a program point of a partition; and message text.

The lattice: an access of the generic proxy is `OPEN` until a barrier makes it `CLOSED`. A proxy fence makes an open access
`FENCED`. An access that is both closed and fenced needs no more ordering and is removed from the state. An asynchronous access
is `PENDING` until a wait; afterwards it is open, as only the waiting thread knows that it is complete. The state of an access
is a set of these, since several paths lead to a program point.

A wgmma reads its shared memory operands until a wait completes its group. The wait completes it for the whole warpgroup. A
partition of one warpgroup therefore needs no barrier after the wait, and it follows that all of its warps reached the wgmma.
TMA loads and tcgen05 operations are complete when an mbarrier completes its phase. All threads wait for that mbarrier, so these
accesses are not part of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace

from weft.analysis.blocks import reaches_blocks
from weft.analysis.handles import Place, Places, handles
from weft.analysis.tensor_handles import tensor_handles
from weft.ir.core import Completion, Effect, Func, Op, OpDef, Value, walk
from weft.ir.types import SharedArrayType, SharedType, TensorType, TileType
from weft.layout import LinearLayout, plan_access
from weft.layout.base import WARPGROUP
from weft.layout.linear.columns import columns
from weft.layout.shared.vectors import store_side
from weft.ops import async_copy, shared, tensor_memory
from weft.ops.control import run_by

# Predicates on operations


def is_elected(op: Op) -> bool:
    """Whether only the elected thread executes the operation, without waiting."""
    effects = op.effects
    alone = any(effect.by == "elected" for effect in effects)
    return alone and all((e.by == "elected" and e.kind != "sync") or e.kind == "release" for e in effects)


def is_product(op: Op) -> bool:
    """Whether an operation is a wgmma."""
    return any(effect.completes == "wgmma" and effect.kind == "read" for effect in op.effects)


def touches_global(op: Op) -> bool:
    """Whether an operation accesses global memory through the generic proxy, or is a fence of it."""
    return any(
        effect.space == "global" and (effect.proxy == "generic" or effect.kind == "sync") for effect in op.effects
    )


def is_commit(op: Op) -> bool:
    """Whether an operation is a `tcgen05.commit`, which arrives on an mbarrier when tcgen05 operations are complete."""
    return any(effect.kind == "update" and effect.completes == "tcgen05" for effect in op.effects)


def threads_touch_tensor(op: Op) -> bool:
    """Whether all threads access tensor memory, rather than the elected thread alone."""
    return any(each.space == "tensor" and each.kind != "sync" and each.by != "elected" for each in op.effects)


def publishes(op: Op) -> bool:
    """Whether an operation is an access with release semantics, or a fence."""
    return touches_global(op) and any(effect.order in ("release", "acq_rel") for effect in op.effects)


def acquires(op: Op) -> bool:
    """Whether an operation is an access with acquire semantics, or a fence."""
    return touches_global(op) and any(effect.order in ("acquire", "acq_rel") for effect in op.effects)


# Owners: which thread accesses which bytes, for accesses that move a whole tile between registers and a tile of an allocation.
#
# Two such accesses with the same register layout need no barrier between them: each thread accesses the same bytes in both, and
# its own accesses happen in program order. In tensor memory the same holds for each warp.


_TILES: dict[OpDef, Callable[[Op], Value | None]] = {
    shared.load: lambda op: op.result,
    shared.store: lambda op: op.operand("value"),
    async_copy.global_to_shared: lambda op: op.operand("ptr"),
    tensor_memory.load: lambda op: op.result,
    tensor_memory.store: lambda op: op.operand("value"),
}
"""The tile of elements, or of their addresses, that determines which thread accesses which element."""


@dataclass(frozen=True, slots=True)
class Owners:
    """`spread` maps register, lane and warp to the elements of a whole tile of type `memory`; each element has one thread."""

    memory: SharedType | TensorType
    spread: LinearLayout


def owners(op: Op) -> Owners | None:
    """Which thread accesses which element; None if a thread may access elements of another thread, or if several threads hold
    the same element.

    With ldmatrix and stmatrix the former is the case: a lane's address is that of a row whose elements other lanes hold.
    """
    held, handle = _TILES.get(op.kind, lambda _: None)(op), op.operands[0] if op.operands else None
    if held is None or handle is None:
        return None
    tile, memory = held.type, handle.type
    if not isinstance(tile, TileType) or not isinstance(memory, SharedType | TensorType) or tile.linear is None:
        return None
    if memory.shape != memory.alloc_shape:
        return None
    if tile.linear.in_size("block") > 1 and (isinstance(memory, TensorType) or reaches_blocks(op)):
        return None
    side = store_side(columns(tile.linear))
    if side.lane_mask or side.warp_mask:
        return None
    matrices = isinstance(memory, SharedType) and _by_matrices(op, tile.linear, memory)
    return None if matrices else Owners(memory, tile.linear)


def _by_matrices(op: Op, spread: LinearLayout, memory: SharedType) -> bool:
    if op.kind is async_copy.global_to_shared:
        return False
    start = (0,) * len(memory.shape)
    store = op.kind is shared.store
    shape = memory.shape
    return plan_access(spread, memory.layout, shape, shape, start, memory.element.bits, store).matrix is not None


# The state


Known = int
"""The state of an access: a set of the bits below. An `OPEN` or `CLOSED` access is not fenced; a `FENCED` one is open."""
PENDING, OPEN, FENCED, CLOSED = 1, 2, 4, 8

NONE = 0
CLOSES = {OPEN: CLOSED, FENCED: NONE}
"""The transitions at a barrier."""
UNORDERED = OPEN | FENCED
UNFENCED = OPEN | CLOSED

MOST_PENDING = 7
"""The number of following wgmmas is counted up to this limit."""
EVERY_WARP = 1 << 30
"""The number of following wgmmas once one of them is complete: more than can ever be in flight."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """A range of shared memory bytes or tensor memory columns, and its allocation. `own`: see `Place`."""

    first: int
    end: int
    alloc: Op
    own: bool

    def meets(self, other: Bytes) -> bool:
        """Whether two ranges overlap."""
        return self.first < other.end and other.first < self.end


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """An access to shared or tensor memory: one effect of an operation. Accesses are compared by identity.

    `crosses`: some access of the async proxy touches the same bytes and needs a proxy fence after this one. `owners`: which
    thread accesses which bytes, if each byte has one thread. `single`: a thread-level access in tile IR; the author orders
    such accesses among each other. `apart`: an access to tensor memory by the only warpgroup, in which each warp can access
    only its own 32 lanes.
    """

    op: Op
    effect: Effect
    bytes: tuple[Bytes, ...]
    owners: Owners | None = None
    crosses: bool = False
    single: bool = False
    apart: bool = False

    @property
    def generic(self) -> bool:
        """Whether it is an access of the generic proxy, not of the async proxy."""
        return self.effect.proxy == "generic"

    def meets(self, other: Access) -> tuple[Bytes, Bytes] | None:
        """The overlapping ranges of two accesses that `insert_sync` has to order, if any."""
        if self.effect.space != other.effect.space or (self.apart and other.apart):
            return None
        alike = self.owners is not None and self.owners == other.owners
        by_author = self.single and other.single
        return next(
            (
                (a, b)
                for a in self.bytes
                for b in other.bytes
                if a.meets(b)
                and not (a.alloc is b.alloc and ((alike and a.own and b.own) or by_author or _in_order(a.alloc)))
            ),
            None,
        )

    def needs_order(self, later: Access) -> bool:
        """Whether a later access must be ordered after this one if they overlap. Those of the elected thread are in order."""
        if self.effect.by == later.effect.by == "elected":
            return False
        kinds = self.effect.kind, later.effect.kind
        # An mbarrier wait is a read, an arrival is an update. `try_wait.parity` cannot tell a phase from the one two later, so
        # a slow warp's wait must precede the arrivals that start that phase. If each warp arrives for itself, each has waited
        # before, and the phase does not complete without it.
        return "write" in kinds or (kinds == ("read", "update") and later.effect.by != "each warp")

    @property
    def group(self) -> bool:
        """Whether it is an operand read of a wgmma, complete when a wait completes the wgmma's group."""
        return self.effect.completes == "wgmma"

    @property
    def waits(self) -> bool:
        """Whether it is a wait for a phase of an mbarrier."""
        return any(effect.kind == "sync" and effect.completes == "mbarrier" for effect in self.op.effects)

    def needs_fence(self, later: Access) -> bool:
        """Whether a proxy fence is needed between this access and a later one if they overlap; both are in shared memory."""
        if self.effect.space != "shared" or not self.generic or later.generic or later.effect.kind == "update":
            return False
        return later.effect.kind == "write" or self.effect.kind != "read"


@dataclass(frozen=True, slots=True)
class Conflict:
    """What two overlapping accesses need between them: ordering, a proxy fence, or both. `meeting` are the ranges."""

    order: bool
    fence: bool
    meeting: tuple[Bytes, Bytes]


class Accesses:
    """The accesses of a function's operations. Allocations must have their offsets."""

    def __init__(self, func: Func) -> None:
        self._tile = func.attrs.stage == "tile"
        self._places = handles(func)
        tensor = self._tile and func.attrs.tensor_columns > 0
        self._columns = tensor_handles(func) if tensor else dict[Value, Places]()
        self._warps = dict(run_by(func)) if self._columns else dict[Op, int]()
        self._made: dict[Op, list[Access]] = {}
        self._conflicts: dict[tuple[Access, Access], Conflict | None] = {}
        found = {op: list(self._of(op)) for op in walk(func.body) if op.effects}
        engine = [access for each in found.values() for access in each if not access.generic]
        for op, each in found.items():
            self._made[op] = [replace(access, crosses=_crosses(access, engine)) for access in each]

    def of(self, op: Op) -> list[Access]:
        """The accesses of an operation to shared and tensor memory."""
        return self._made.get(op, [])

    def conflict(self, earlier: Access, later: Access) -> Conflict | None:
        """What two accesses need between them, if anything. Cached, since the fixpoint visits loops several times."""
        pair = earlier, later
        if pair not in self._conflicts:
            order, fence = earlier.needs_order(later), earlier.needs_fence(later)
            meeting = earlier.meets(later) if order or fence else None
            self._conflicts[pair] = None if meeting is None else Conflict(order, fence, meeting)
        return self._conflicts[pair]

    def bytes(self, handle: Value) -> tuple[Bytes, ...]:
        """The bytes, or columns, that a handle may refer to."""
        places = self._columns if isinstance(handle.type, TensorType) else self._places
        return tuple(map(_bytes, places.get(handle, ())))

    @staticmethod
    def is_authors(access: Access) -> bool:
        """Whether an access may touch memory that the author allocated, rather than only scratch memory of the compiler."""
        return not access.bytes or any(
            each.alloc.kind in (shared.alloc, tensor_memory.alloc) or _in_order(each.alloc) for each in access.bytes
        )

    def _of(self, op: Op) -> Iterator[Access]:
        for effect in op.effects:
            if effect.operand is None or effect.kind == "sync":
                continue
            value = op.operand(effect.operand)
            if value is not None and isinstance(value.type, _MEMORY.get(effect.space, ())):
                found = self.bytes(value)
                single = self._tile and isinstance(value.type, SharedArrayType)
                apart = effect.space == "tensor" and effect.by != "elected" and self._warps[op] == WARPGROUP
                yield Access(op, effect, found, _owners(op, found), single=single, apart=apart)


_MEMORY: dict[str, tuple[type, ...]] = {"shared": (SharedType, SharedArrayType), "tensor": (TensorType,)}
"""The handle types of each space. In lowered IR tensor memory has no handles, and all accesses to it are already ordered."""


def _bytes(place: Place) -> Bytes:
    offset: int = place.alloc.attrs["column" if place.alloc.kind is tensor_memory.alloc else "offset"]
    return Bytes(offset + place.first, offset + place.end, place.alloc, place.own)


def _owners(op: Op, found: Iterable[Bytes]) -> Owners | None:
    """The owners of an access, if the handle has the element type, layout and shape of each allocation it may refer to."""
    made = owners(op)
    if made is None:
        return None
    t = made.memory
    types = (each.alloc.result.type for each in found)
    mine = ((m.element, m.layout, m.alloc_shape) for m in types if isinstance(m, SharedType | TensorType))
    return made if all(each == (t.element, t.layout, t.alloc_shape) for each in mine) else None


def _in_order(alloc: Op) -> bool:
    """Whether accesses to an allocation were ordered in tile IR already: it is the author's memory, in lowered IR."""
    return alloc.kind is shared.array


def _crosses(access: Access, engine: list[Access]) -> bool:
    return any(access.needs_fence(other) and access.meets(other) for other in engine)


@dataclass(slots=True)
class State:
    """The dataflow state at a program point: the state of each access, and global memory accesses since the last barrier.

    - `warps`: the number of warps that run the code.
    - `known`: the state of each access that still needs ordering.
    - `signals`: the mbarriers on which pending cp.async copies arrive.
    - `touched`, `written`, `acquired`: since the last barrier, an access to global memory, a write to it, an acquiring atomic.
    - `arrived`: the accesses before the last `barrier.cluster.arrive`, which the wait there orders.
    - `tensor`: threads accessed tensor memory since the last barrier of tile IR.
    - `later`: for the operand reads of a wgmma, bit n is set if n wgmmas may have followed it.
    - `since`: for an mbarrier wait, the least number of wgmmas that followed it. It becomes `EVERY_WARP` once one of them is
      complete: a wgmma needs all warps of its warpgroup, so all of them have passed the wait.
    """

    warps: int = 0
    known: dict[Access, Known] = field(default_factory=dict[Access, Known])
    signals: dict[Access, tuple[Bytes, ...]] = field(default_factory=dict[Access, tuple[Bytes, ...]])
    touched: Op | None = None
    written: Op | None = None
    acquired: Op | None = None
    tensor: bool = False
    arrived: frozenset[Access] = frozenset()
    later: dict[Access, int] = field(default_factory=dict[Access, int])
    since: dict[Access, int] = field(default_factory=dict[Access, int])

    def copy(self) -> State:
        """An independent copy."""
        return replace(
            self, known=dict(self.known), signals=dict(self.signals), later=dict(self.later), since=dict(self.since)
        )

    def become(self, other: State) -> None:
        """Take over all fields of another state, which must not be used afterwards."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def join(self, other: State) -> bool:
        """Join another state into this one; returns whether this one changed."""
        news = False
        for access, known in other.known.items():
            before = self.known.get(access, NONE)
            if known & ~before:
                self.known[access] = before | known
                news = True
        for access, numbers in other.later.items():
            before = self.later.get(access, 0)
            self.later[access] = before | numbers
            news = news or self.later[access] != before
        for access, number in other.since.items():
            before = self.since.setdefault(access, number)
            self.since[access] = min(before, number)
            news = news or number < before
        self.signals.update(other.signals)
        news = news or (other.tensor and not self.tensor)
        self.tensor = self.tensor or other.tensor
        news = news or not self.arrived <= other.arrived
        self.arrived &= other.arrived
        for name in ("touched", "written", "acquired"):
            if getattr(self, name) is None and getattr(other, name) is not None:
                setattr(self, name, getattr(other, name))
                news = True
        return news

    def add(self, access: Access) -> None:
        """An access is executed, or started if it is asynchronous."""
        effect = access.effect
        self.arrived -= {access}
        if effect.completes in ("mbarrier", "tcgen05") and effect.kind != "update":
            # A TMA load or a tcgen05 operation: all threads wait for its mbarrier, and none may touch the bytes before.
            return
        if effect.kind == "update" and effect.completes == "cp.async":
            for copy, known in self.known.items():
                if copy.effect.completes == "cp.async" and known & PENDING:
                    self.signals[copy] = self.signals.get(copy, ()) + access.bytes
        pending = effect.completes is not None and effect.kind != "update"
        self.known[access] = self.known.get(access, NONE) | (PENDING if pending else _opened(access))
        if access.group:
            self.later[access] = self.later.get(access, 0) | 1
        if access.waits:
            self.since[access] = 0

    def product(self) -> None:
        """A wgmma starts; its accesses are added next."""
        last = 1 << MOST_PENDING
        self.later = {access: (n << 1 | n & last) & (last << 1) - 1 for access, n in self.later.items()}
        self.since = {access: min(number + 1, EVERY_WARP) for access, number in self.since.items()}

    def passed(self, access: Access) -> bool:
        """Whether all warps are known to have passed a wait, without a barrier since."""
        return self.since.get(access) == EVERY_WARP

    def barrier(self) -> None:
        """A barrier of the partition's threads."""
        self._move(CLOSES, self.known)
        self.touched = self.written = self.acquired = None
        self.since = {}

    def fence(self) -> None:
        """A proxy fence: earlier generic accesses precede later accesses of the async proxy."""
        self._move({OPEN: FENCED, CLOSED: NONE}, self.known)

    def arrive(self, relaxed: bool) -> None:
        """All threads execute `barrier.cluster.arrive`; with `.relaxed` it orders no memory accesses."""
        self.arrived = frozenset() if relaxed else frozenset(self.known)

    def meet(self) -> None:
        """All threads execute `barrier.cluster.wait`: accesses before the arrivals are ordered before what follows."""
        self._move(CLOSES, self.arrived)
        self.arrived = frozenset()

    def waited(self, mechanism: Completion, pendings: int, bars: Iterable[Bytes]) -> None:
        """A wait for asynchronous accesses. With `pendings` some may stay in flight; which ones is known for wgmmas only."""
        if mechanism == "wgmma":
            self._complete(pendings)
            return
        for access, known in list(self.known.items()):
            if not known & PENDING:
                continue
            if access.effect.completes == mechanism:
                # A thread waits for its own copies only; the elected thread waits for those that the copy engine makes.
                self.known[access] = known | _opened(access)
                if not pendings:
                    self.known[access] &= ~PENDING
            elif mechanism == "mbarrier" and any(a.meets(b) for a in bars for b in self.signals.get(access, ())):
                self.known[access] = known & ~PENDING | (CLOSED if access.crosses else NONE)

    def _complete(self, pendings: int) -> None:
        """All wgmmas but the latest `pendings` are complete, for the threads of their warpgroup."""
        one = self.warps == WARPGROUP
        for access, numbers in list(self.later.items()):
            known = self.known[access]
            if numbers >> min(pendings, MOST_PENDING) and not one:
                known |= _opened(access)
            numbers &= (1 << pendings) - 1
            if numbers:
                self.later[access] = numbers
            else:
                del self.later[access]
                known &= ~PENDING
            self.known[access] = known
        self._move({}, ())
        if one:
            self.since = {a: EVERY_WARP if number > pendings else number for a, number in self.since.items()}

    def alone(self, warps: int) -> State:
        """The entry state of a worker partition: the same without pending accesses, which it cannot wait for."""
        known = {access: rest for access, k in self.known.items() if (rest := k & ~PENDING)}
        return State(warps, known)

    def _move(self, moves: dict[Known, Known], which: Container[Access]) -> None:
        known: dict[Access, Known] = {}
        for access, before in self.known.items():
            after = before
            for old, new in moves.items():
                if before & old and access in which:
                    after = after & ~old | new
            if after:
                known[access] = after
        self.known = known


def _opened(access: Access) -> Known:
    """The first state of a completed access. One that no async proxy access touches needs no fence, so it starts as fenced."""
    return OPEN if access.crosses else FENCED


# Message text


_VERBS = {"read": "read", "write": "written", "update": "updated"}


def reason(op: Op, earlier: Op, meeting: tuple[Bytes, Bytes] | None) -> str:
    """The reason for a barrier, such as 'before tma.store of c_smem (written at line 12)'. `meeting` are the overlapping ranges
    of the earlier and the later access. An unknown name or line is omitted.
    """
    if meeting is None:
        return f"before {op.name}{_place(f'after {earlier.name}', earlier)}"
    mine, others = meeting
    name = others.alloc.result.name
    verb = verb_of(earlier)
    if mine.alloc is not others.alloc and mine.alloc.result.name:
        verb = f"bytes of {mine.alloc.result.name}, {verb}"
    return f"before {op.name}{f' of {name}' if name else ''}{_place(verb, earlier)}"


def verb_of(op: Op) -> str:
    """The participle for what an operation does to shared or tensor memory."""
    if op.kind.verb:
        return op.kind.verb
    kinds = {effect.kind for effect in op.effects if effect.space in ("shared", "tensor")}
    return next((verb for kind, verb in _VERBS.items() if kind in kinds), "accessed")


def bytes_words(some: Bytes) -> str:
    """The author's name of a buffer."""
    return some.alloc.result.name or "shared memory"


def _place(what: str, op: Op) -> str:
    return "" if op.loc is None else f" ({what} at line {op.loc.line})"
