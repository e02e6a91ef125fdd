"""What the threads of a partition know of its accesses to shared and tensor memory: what `insert_sync` decides by.

Four parts: kinds of operations, by their declared effects; which thread owns which bytes of an access; the state that is
carried along a partition's code; and how it is said to the author.

An access is known step by step. A generic one is `OPEN` until a barrier (only its own thread knows it is done), then `CLOSED`;
a fence between the proxies makes it `FENCED`, and when it is closed and fenced nothing has to be remembered. An asynchronous
one is `PENDING` until a wait; what only the waiting thread knows then is open. One access can be in several of these, for
different ways lead to a program point.

A product of a warpgroup reads its operands until a wait says that its group is complete. It is complete for the warpgroup as a
whole, so a partition of one warpgroup has nothing left to order then, and knows that all of its warps came to the product.
What TMA loads and tcgen05 operations do is complete when an mbarrier says so, for which all threads wait; it is not remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace

from weft.analysis.handles import Place, Places, handles
from weft.analysis.tensor_handles import tensor_handles
from weft.ir.core import Completion, Effect, Func, Op, OpDef, Value, walk
from weft.ir.types import SharedArrayType, SharedType, TensorType, TileType
from weft.layout import LinearLayout, plan_access
from weft.layout.base import WARPGROUP
from weft.layout.linear.columns import columns
from weft.layout.shared.vectors import store_side
from weft.ops import async_copy, mbarrier, shared, tensor_memory, tma
from weft.ops.control import run_by

# Kinds of operations


def is_elected(op: Op) -> bool:
    """Whether the elected thread does it and goes on; waits are not so."""
    effects = op.kind.effects
    alone = any(effect.elected for effect in effects) and not op.attrs.get("each_warp") and not tma.by_several(op)
    return alone and all((e.elected and e.kind != "sync") or e.kind == "release" for e in effects)


def is_product(op: Op) -> bool:
    """Whether an operation starts a product of a warpgroup."""
    return any(effect.completes == "wgmma" and effect.kind == "read" for effect in op.kind.effects)


def touches_global(op: Op) -> bool:
    """Whether threads access global memory themselves."""
    return any(effect.space == "global" and effect.proxy == "generic" for effect in op.kind.effects)


def is_commit(op: Op) -> bool:
    """Whether an mbarrier is told by it that tcgen05 operations are complete."""
    return any(effect.kind == "update" and effect.completes == "tcgen05" for effect in op.kind.effects)


def threads_touch_tensor(op: Op) -> bool:
    """Whether all threads access tensor memory, not the elected one alone."""
    return any(each.space == "tensor" and each.kind != "sync" and not each.elected for each in op.kind.effects)


def publishes(op: Op) -> bool:
    """Whether an atomic publishes what its block did before."""
    return op.attrs.get("order") in ("release", "acq_rel")


# Owners: which thread accesses which bytes, where a whole tile goes between registers and one of an allocation's own tiles.
#
# Two such accesses that spread the tile over the threads alike never meet: each byte is one thread's own, and a thread's
# accesses happen in the order of the program. In tensor memory it is a warp that accesses the elements of its threads' own.


_TILES: dict[OpDef, Callable[[Op], Value | None]] = {
    shared.load: lambda op: op.result,
    shared.store: lambda op: op.operand("value"),
    async_copy.global_to_shared: lambda op: op.operand("ptr"),
    tensor_memory.load: lambda op: op.result,
    tensor_memory.store: lambda op: op.operand("value"),
}
"""What holds the elements, or their addresses."""


@dataclass(frozen=True, slots=True)
class Owners:
    """`spread` maps register, lane and warp to the elements of a whole tile of type `memory`; each has one thread."""

    memory: SharedType | TensorType
    spread: LinearLayout


def owners(op: Op) -> Owners | None:
    """Who accesses which element; None where a thread accesses what another one holds, or several hold the same.

    Matrix instructions are among these: lanes read and write for each other.
    """
    held, handle = _TILES.get(op.kind, lambda _: None)(op), op.operands[0] if op.operands else None
    if held is None or handle is None:
        return None
    tile, memory = held.type, handle.type
    if not isinstance(tile, TileType) or not isinstance(memory, SharedType | TensorType) or tile.linear is None:
        return None
    if memory.shape != memory.alloc_shape or tile.linear.in_size("block") > 1:
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
"""How far an access is known: a set of the bits below. `OPEN` and `CLOSED` ones are not fenced; `FENCED` ones are open."""
PENDING, OPEN, FENCED, CLOSED = 1, 2, 4, 8

NONE = 0
CLOSES = {OPEN: CLOSED, FENCED: NONE}
"""What a barrier makes of accesses."""
UNORDERED = OPEN | FENCED
UNFENCED = OPEN | CLOSED

MOST_PENDING = 7
"""A product that more have followed is like one that so many have."""
EVERY_WARP = 1 << 30
"""Stands for more products than are ever under way."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes of shared memory or columns of tensor memory, and the allocation that they belong to. `own`: see `Place`."""

    first: int
    end: int
    alloc: Op
    own: bool

    def meets(self, other: Bytes) -> bool:
        """Whether two share a byte."""
        return self.first < other.end and other.first < self.end


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """What an operation does to shared or tensor memory, by one of its effects. Compared by identity.

    `crosses`: some access of the async proxy would need a fence after this one, which is not so for most memory. `owners`: who
    accesses which bytes, where that is one thread for each. `single`: by threads for themselves, in tile IR; the author brings
    those in order among each other. `apart`: to tensor memory by the only warpgroup, of which each warp has lanes of its own.
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
        """Made by threads, not by a copy engine."""
        return self.effect.proxy == "generic"

    def meets(self, other: Access) -> tuple[Bytes, Bytes] | None:
        """Bytes of each that overlap and are for `insert_sync` to keep apart."""
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
        """Whether a later access has to wait for this one when they overlap. The elected thread never waits for itself."""
        if self.effect.elected and later.effect.elected:
            return False
        kinds = self.effect.kind, later.effect.kind
        # A wait that comes late would see an update that begins the phase after the next. A warp that arrives for itself has
        # waited before, and the phase does not end without it.
        return "write" in kinds or (kinds == ("read", "update") and not later.op.attrs.get("each_warp"))

    @property
    def group(self) -> bool:
        """Made by a product: complete when a wait says that its group is."""
        return self.effect.completes == "wgmma"

    @property
    def waits(self) -> bool:
        """Made by a wait for a phase of an mbarrier."""
        return self.op.kind is mbarrier.wait

    def needs_fence(self, later: Access) -> bool:
        """Whether a later access has to come after a fence between the proxies when they overlap; both in shared memory."""
        if self.effect.space != "shared" or not self.generic or later.generic or later.effect.kind == "update":
            return False
        return later.effect.kind == "write" or self.effect.kind != "read"


@dataclass(frozen=True, slots=True)
class Conflict:
    """What has to stand between two accesses that overlap: something that orders them, a fence, or both. Where they meet."""

    order: bool
    fence: bool
    meeting: tuple[Bytes, Bytes]


class Accesses:
    """The accesses of a function's operations; allocations have their offsets."""

    def __init__(self, func: Func) -> None:
        self._tile = func.attrs.stage == "tile"
        self._places = handles(func)
        tensor = self._tile and func.attrs.tensor_columns > 0
        self._columns = tensor_handles(func) if tensor else dict[Value, Places]()
        self._warps = dict(run_by(func)) if self._columns else dict[Op, int]()
        self._made: dict[Op, list[Access]] = {}
        self._conflicts: dict[tuple[Access, Access], Conflict | None] = {}
        found = {op: list(self._of(op)) for op in walk(func.body) if op.kind.effects}
        engine = [access for each in found.values() for access in each if not access.generic]
        for op, each in found.items():
            self._made[op] = [replace(access, crosses=_crosses(access, engine)) for access in each]

    def of(self, op: Op) -> list[Access]:
        """What an operation does to shared and tensor memory."""
        return self._made.get(op, [])

    def conflict(self, earlier: Access, later: Access) -> Conflict | None:
        """What has to stand between two accesses, if anything. Found once for each two: loops are walked several times."""
        pair = earlier, later
        if pair not in self._conflicts:
            order, fence = earlier.needs_order(later), earlier.needs_fence(later)
            meeting = earlier.meets(later) if order or fence else None
            self._conflicts[pair] = None if meeting is None else Conflict(order, fence, meeting)
        return self._conflicts[pair]

    def bytes(self, handle: Value) -> tuple[Bytes, ...]:
        """The bytes, or columns, that a handle may point to."""
        places = self._columns if isinstance(handle.type, TensorType) else self._places
        return tuple(map(_bytes, places.get(handle, ())))

    @staticmethod
    def is_authors(access: Access) -> bool:
        """Whether an access may be to memory of the author's."""
        return not access.bytes or any(
            each.alloc.kind in (shared.alloc, tensor_memory.alloc) or _in_order(each.alloc) for each in access.bytes
        )

    def _of(self, op: Op) -> Iterator[Access]:
        for effect in op.kind.effects:
            if effect.operand is None or effect.kind == "sync":
                continue
            value = op.operand(effect.operand)
            if value is not None and isinstance(value.type, _MEMORY.get(effect.space, ())):
                found = self.bytes(value)
                spread = op.attrs.get("each_warp") or tma.by_several(op)
                one = replace(effect, elected=False) if spread else effect
                single = self._tile and isinstance(value.type, SharedArrayType)
                apart = effect.space == "tensor" and not effect.elected and self._warps[op] == WARPGROUP
                yield Access(op, one, found, _owners(op, found), single=single, apart=apart)


_MEMORY: dict[str, tuple[type, ...]] = {"shared": (SharedType, SharedArrayType), "tensor": (TensorType,)}
"""Types of handles to each space; in the lowered stage tensor memory has none, and all accesses to it are in order."""


def _bytes(place: Place) -> Bytes:
    offset: int = place.alloc.attrs["column" if place.alloc.kind is tensor_memory.alloc else "offset"]
    return Bytes(offset + place.first, offset + place.end, place.alloc, place.own)


def _owners(op: Op, found: Iterable[Bytes]) -> Owners | None:
    """The owners of an access by handles of the type of the allocations themselves."""
    made = owners(op)
    if made is None:
        return None
    t = made.memory
    types = (each.alloc.result.type for each in found)
    mine = ((m.element, m.layout, m.alloc_shape) for m in types if isinstance(m, SharedType | TensorType))
    return made if all(each == (t.element, t.layout, t.alloc_shape) for each in mine) else None


def _in_order(alloc: Op) -> bool:
    """Whether tile IR has the accesses of an allocation in order already: the author's, in lowered IR."""
    return alloc.kind is shared.array


def _crosses(access: Access, engine: list[Access]) -> bool:
    return any(access.needs_fence(other) and access.meets(other) for other in engine)


@dataclass(slots=True)
class State:
    """Accesses and how far they are known, and what happened to global memory since the last barrier.

    `warps` run what comes. `signals` are the mbarriers that will tell that pending copies are complete. `touched` is an access
    to global memory, `written` one that writes; `acquired` is an atomic with an acquire. `arrived`: the accesses before the
    last arrival at the cluster's barrier, which the wait there orders. `tensor`: threads accessed tensor memory since the last
    barrier that tile IR had. `later` has bit n set for the operands of a product
    that n products may have followed. `since`: how many products certainly followed a wait for an mbarrier, `EVERY_WARP` once
    one of them is known to be complete, and with it that all warps have waited.
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
        """A state of its own."""
        return replace(
            self, known=dict(self.known), signals=dict(self.signals), later=dict(self.later), since=dict(self.since)
        )

    def become(self, other: State) -> None:
        """Be as the other one is, which is not used any more."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def join(self, other: State) -> bool:
        """Come from there as well; whether that is news."""
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
        """An access happens, or starts."""
        effect = access.effect
        self.arrived -= {access}
        if effect.completes in ("mbarrier", "tcgen05") and effect.kind != "update":
            # A copy into shared memory, a product: all threads wait for it, and before they do nobody may touch its bytes.
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
        """A product starts, whose accesses come next."""
        last = 1 << MOST_PENDING
        self.later = {access: (n << 1 | n & last) & (last << 1) - 1 for access, n in self.later.items()}
        self.since = {access: min(number + 1, EVERY_WARP) for access, number in self.since.items()}

    def passed(self, access: Access) -> bool:
        """Whether all warps are known to have come past a wait, though no barrier says so."""
        return self.since.get(access) == EVERY_WARP

    def barrier(self) -> None:
        """All threads know what any of them did or knew."""
        self._move(CLOSES, self.known)
        self.touched = self.written = self.acquired = None
        self.since = {}

    def fence(self) -> None:
        """What each thread did or knew comes before later accesses of the async proxy."""
        self._move({OPEN: FENCED, CLOSED: NONE}, self.known)

    def arrive(self, relaxed: bool) -> None:
        """All threads come to the barrier of the cluster; with `relaxed` that orders nothing."""
        self.arrived = frozenset() if relaxed else frozenset(self.known)

    def meet(self) -> None:
        """All threads of the cluster have come: they know what any did before."""
        self._move(CLOSES, self.arrived)
        self.arrived = frozenset()

    def waited(self, mechanism: Completion, pendings: int, bars: Iterable[Bytes]) -> None:
        """A wait for asynchronous accesses; but for products, it is not known which stay pending when some may."""
        if mechanism == "wgmma":
            self._complete(pendings)
            return
        for access, known in list(self.known.items()):
            if not known & PENDING:
                continue
            if access.effect.completes == mechanism:
                # Threads wait for their own copies, the elected one for the engine's.
                self.known[access] = known | _opened(access)
                if not pendings:
                    self.known[access] &= ~PENDING
            elif mechanism == "mbarrier" and any(a.meets(b) for a in bars for b in self.signals.get(access, ())):
                self.known[access] = known & ~PENDING | (CLOSED if access.crosses else NONE)

    def _complete(self, pendings: int) -> None:
        """All products but the latest are complete: for the threads of their warpgroup."""
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
        """What other partitions start with: nothing that this one has under way is theirs to wait for."""
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
    """How an access is known to begin with: nothing has to be fenced that no engine touches."""
    return OPEN if access.crosses else FENCED


# In the author's words


_VERBS = {
    "mbarrier.init": "initialised",
    "mbarrier.invalidate": "invalidated",
    "mbarrier.wait": "waited on",
    "async_copy.global_to_shared": "copied to",
}
_KINDS = {"read": "read", "write": "written", "update": "updated"}


def reason(op: Op, earlier: Op, meeting: tuple[Bytes, Bytes] | None) -> str:
    """As in 'before tma.store of c_smem (written at line 12)'; `meeting` are the bytes of the earlier and of the later access.

    What is not known, a name or a line, is left out.
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
    """What an operation does to shared or tensor memory."""
    if op.name in _VERBS:
        return _VERBS[op.name]
    kinds = {effect.kind for effect in op.kind.effects if effect.space in ("shared", "tensor")}
    return next((verb for kind, verb in _KINDS.items() if kind in kinds), "accessed")


def bytes_words(some: Bytes) -> str:
    """A buffer by the author's name."""
    return some.alloc.result.name or "shared memory"


def _place(what: str, op: Op) -> str:
    return "" if op.loc is None else f" ({what} at line {op.loc.line})"
