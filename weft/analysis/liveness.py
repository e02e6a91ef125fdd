"""Liveness of shared memory allocations, and offsets for them.

    %a = shared.alloc                    1
    shared.store %a, %x                  2
    %y = shared.load %a                  3
    %b = shared.alloc                    4        %a is alive from 2 to 3, %b from 5 to 5, so both get offset 0
    shared.store %b, %y                  5

An allocation is alive from its first access to its last, in program order, with these extensions:

- Through a whole loop, if it is alive at the loop's entry or past its end: an iteration may read what the previous one wrote.
- Until the wait that completes its last asynchronous access. The operands of tcgen05 operations are alive until the last wait
  for an mbarrier on which a later commit arrives.
- An mbarrier until the end of the kernel, unless it is invalidated on every path.
- Through all of `warp_specialize`, if a partition uses it, since partitions run concurrently. Allocations of different
  partitions never share bytes.
- Through the whole kernel, if threads access it individually (`weft.ops.thread`). The author orders those accesses, and knows
  of no second buffer in the same bytes that would need a barrier between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from weft.analysis.blocks import reaches_blocks
from weft.analysis.flow import LOOPS, PARALLEL, States, program_order
from weft.analysis.handles import ALLOCS, Place, alignment_of, bytes_of, handles, is_alloc
from weft.errors import Loc
from weft.ir.core import Completion, Effect, Func, Op, Region, Value, walk
from weft.layout.shared.sizes import BARRIER_BYTES
from weft.locks import lazy
from weft.ops import mbarrier, shared, thread

Lane = tuple[Op, int]
"""A partition: the operation whose regions run concurrently, and the index of the region."""


@dataclass(slots=True)
class Lifetime:
    """The live range of an allocation: the positions, in program order, of its first and last access; (0, 0) if unused.

    `begins` and `ends` are their source lines. `stays`: it is alive until the kernel ends. `lanes` are the partitions that
    contain the allocation. `kept`: accesses may exist that the compiler does not see, as the author keeps the handle alive.
    """

    first: int = 0
    last: int = 0
    begins: Loc | None = None
    ends: Loc | None = None
    lanes: tuple[Lane, ...] = ()
    kept: bool = False
    stays: bool = False

    def use(self, first: int, last: int) -> None:
        """Extend the live range to two more positions."""
        self.first = min(self.first or first, first)
        self.last = max(self.last, last)

    @property
    def lines(self) -> str:
        """The source lines of the live range, as text of a message; empty if they are not known."""
        if self.begins is None or self.ends is None:
            return ""
        # An access in a helper function is reported at the kernel's line that calls the helper.
        first, last = (list(loc.chain())[-1].line for loc in (self.begins, self.ends))
        if self.stays:
            return f"from line {first} to the end"
        return f"at line {first}" if first == last else f"from line {first} to {last}"

    def meets(self, other: Lifetime) -> bool:
        """Whether two live ranges overlap in time."""
        if self.first <= other.last and other.first <= self.last:
            return True
        return any(a is b and i != j for a, i in self.lanes for b, j in other.lanes)


@dataclass(frozen=True, slots=True)
class Placed:
    """An allocation with its live range, offset and size."""

    alloc: Op
    lifetime: Lifetime
    offset: int
    bytes: int

    @property
    def end(self) -> int:
        """The offset one past the last byte."""
        return self.offset + self.bytes


def lifetimes(func: Func) -> dict[Op, Lifetime]:
    """The live range of every allocation, in program order."""
    return {} if func.body.kinds.isdisjoint(ALLOCS) else _Liveness(func).found()


def place(lives: dict[Op, Lifetime]) -> list[Placed]:
    """First-fit offsets: each allocation gets the lowest offset that is free during its live range. Given offsets stay.

    Allocations with the largest alignment are placed first, which avoids padding between them; equals in order of first use.
    """
    placed = [Placed(a, life, a.attrs["offset"], bytes_of(a)) for a, life in lives.items() if a.attrs["offset"] >= 0]
    rest = [(alloc, life) for alloc, life in lives.items() if alloc.attrs["offset"] < 0]
    for alloc, life in sorted(rest, key=lambda item: (-alignment_of(item[0]), item[1].first)):
        met = [other for other in placed if life.meets(other.lifetime)]
        placed.append(Placed(alloc, life, _lowest_gap(met, bytes_of(alloc), alignment_of(alloc)), bytes_of(alloc)))
    return placed


def total_bytes(placed: Iterable[Placed]) -> int:
    """The total size of shared memory in bytes."""
    return max((p.end for p in placed), default=0)


def bill(placed: Iterable[Placed]) -> str:
    """Message text that lists each allocation's size, line and live range, largest first."""
    return "; ".join(map(_item, sorted(placed, key=lambda p: -p.bytes)))


def _item(item: Placed) -> str:
    text = f"{item.alloc.result.name or 'scratch'} takes {item.bytes} bytes"
    if item.alloc.loc is not None:
        text += f" at {item.alloc.loc}"
    lines = item.lifetime.lines
    return f"{text}, in use {lines}" if lines else text


def _lowest_gap(met: list[Placed], size: int, alignment: int) -> int:
    offset = 0
    for other in sorted(met, key=lambda p: p.offset):
        if offset + size <= other.offset:
            break
        offset = max(offset, -(-other.end // alignment) * alignment)
    return offset


@dataclass(frozen=True, slots=True)
class _Wait:
    """A wait for asynchronous accesses: for all groups but the latest `pendings`, or for the mbarriers at `places`."""

    position: int
    mechanism: Completion
    pendings: int
    places: frozenset[Place]


@dataclass(frozen=True, slots=True)
class _Commit:
    """A `tcgen05.commit`: an arrival on these mbarriers once all earlier tcgen05 operations of the thread are complete."""

    position: int
    bars: frozenset[Place]


@dataclass(slots=True)
class _Block:
    """The region being walked: its parent, its waits so far, and the positions at which it starts asynchronous groups."""

    outer: _Block | None
    waits: list[_Wait] = field(default_factory=list[_Wait])
    groups: list[tuple[int, Completion]] = field(default_factory=list[tuple[int, Completion]])


@dataclass(frozen=True, slots=True)
class _Pending:
    """An asynchronous access: its position, its region, and the mbarriers that it signals."""

    place: Place
    position: int
    block: _Block
    mechanism: Completion
    bars: frozenset[Place]


class _Liveness:
    """Records the accesses to each allocation by their positions in program order."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.places = handles(func)
        self.lives: dict[Op, Lifetime] = {}
        self.made: dict[Op, tuple[int, Region]] = {}
        self.order = program_order(func.body)
        self.waits: list[_Wait] = []
        self.commits: list[_Commit] = []
        self.pending: list[_Pending] = []
        self.barriers: dict[Op, list[Place]] = {}
        self.arrives = False

    def found(self) -> dict[Op, Lifetime]:
        """The live range of every allocation."""
        self._region(self.func.body, None, ())
        for access in self.pending:
            self.lives[access.place.alloc].use(access.position, self._completed(access))
        for alloc, begun in self.barriers.items():
            _, ended = _Invalidated(self.places).run(self.made[alloc][1], frozenset())
            if not all(slot in ended for part in begun for slot in _slots(part)):
                self.lives[alloc].last = self.order.last
        if self.func.attrs.stage == "tile":
            for alloc in (*self._shared_by_threads(), *self._shared_by_blocks()):
                life = self.lives[alloc]
                life.use(1, self.order.last)
                life.kept = True
        for alloc, life in self.lives.items():
            if life.first:
                self._through_loops(self.made[alloc][0], life)
                life.begins, life.ends = self._line(life.first), self._line(life.last)
                life.stays = life.last == self.order.last
        return self.lives

    def _shared_by_threads(self) -> Iterator[Op]:
        """Allocations that threads access individually."""
        for op in walk(self.func.body):
            if op.kind is shared.array:
                yield op
            elif op.kind is thread.shared_of:
                yield from (place.alloc for place in self.places[op.result])

    def _shared_by_blocks(self) -> Iterator[Op]:
        """Allocations that other blocks of the cluster access: only the author knows when they are done with it."""
        for op in walk(self.func.body) if self.func.attrs.num_ctas > 1 else ():
            if reaches_blocks(op) and op.operands[0] is not None:
                yield from (place.alloc for place in self.places[op.operands[0]])

    def _line(self, position: int) -> Loc | None:
        """The line of the operation at a position, or of the last one before it that has a line."""
        ops = (self.order.ops[at] for at in range(position, 0, -1))
        return next((op.loc for op in ops if op is not None and op.loc is not None), None)

    def _region(self, region: Region, outer: _Block | None, lanes: tuple[Lane, ...]) -> None:
        block, positions = _Block(outer), self.order.positions
        for op in region.ops:
            if is_alloc(op):
                self.lives[op] = Lifetime(lanes=lanes)
                self.made[op] = positions[op], region
            if op.effects:
                self._accesses(op, positions[op], block)
            if op.regions:
                self._inside(op, block, lanes)

    def _inside(self, op: Op, block: _Block, lanes: tuple[Lane, ...]) -> None:
        for number, region in enumerate(op.regions):
            if op.kind in PARALLEL:
                # No other partition waits for the asynchronous accesses of a worker partition.
                self._region(region, None if number else block, (*lanes, (op, number)))
            else:
                self._region(region, block, lanes)

    def _accesses(self, op: Op, position: int, block: _Block) -> None:
        used = [value for value in op.uses if value in self.places]
        accessed = {op.operand(effect.operand) for effect in op.effects if effect.operand and effect.kind != "sync"}
        for value in used:
            for part in self.places[value]:
                self.lives[part.alloc].use(position, position)
                self.lives[part.alloc].kept |= value not in accessed and value not in self._waited(op)
        if op.kind is mbarrier.init:
            for part in self.places[used[0]]:
                self.barriers.setdefault(part.alloc, []).append(part)
        for effect in op.effects:
            self._asynchronous(op, effect, position, block)

    def _waited(self, op: Op) -> list[Value | None]:
        """The mbarrier that an operation waits for."""
        return [op.operand(e.operand) for e in op.effects if e.completes is not None and e.operand is not None]

    def _asynchronous(self, op: Op, effect: Effect, position: int, block: _Block) -> None:
        if effect.completes is None or effect.space != "shared":
            return
        value = op.operand(effect.operand) if effect.operand is not None else None
        if effect.kind == "sync":
            wait = _Wait(position, effect.completes, effect.pendings, self._of(value))
            self.waits.append(wait)
            block.waits.append(wait)
        elif effect.kind == "update" and effect.completes == "tcgen05":
            self.commits.append(_Commit(position, self._of(value)))
        elif effect.kind == "update":
            # `cp.async.mbarrier.arrive` signals an mbarrier once the copies are complete: no `cp.async.wait_group` need follow.
            self.arrives = True
        elif not op.attrs.get("max_imprecise"):
            # Each operation is an asynchronous group of its own, except for cp.async, whose waits cover all copies.
            if effect.completes != "cp.async" and (position, effect.completes) not in block.groups[-1:]:
                block.groups.append((position, effect.completes))
            bars = [op.operand(e.operand) for e in op.effects if e.kind == "update" and e.operand is not None]
            signalled = frozenset[Place]().union(*map(self._of, bars))
            self.pending += [_Pending(p, position, block, effect.completes, signalled) for p in self._of(value)]

    def _of(self, value: Value | None) -> frozenset[Place]:
        return frozenset() if value is None else self.places.get(value, frozenset())

    @lazy
    def _committed(self) -> list[tuple[int, int]]:
        """Positions of waits for mbarriers that a commit arrives on, each with the position of the last such commit before."""
        found: list[tuple[int, int]] = []
        for wait in self.waits:
            before = (c for c in self.commits if c.position < wait.position and _overlap(wait.places, c.bars))
            last = max((commit.position for commit in before), default=None)
            if last is not None:
                found.append((wait.position, last))
        return found

    def _completed(self, access: _Pending) -> int:
        """The earliest position at which an asynchronous access is known to be complete."""
        if access.mechanism == "mbarrier":
            after = [w.position for w in self.waits if w.position > access.position and _overlap(w.places, access.bars)]
            return max(after, default=self.order.last)
        if access.mechanism == "tcgen05":
            after = [wait for wait, commit in self._committed if commit > access.position]
            return max(after, default=self.order.last)
        if access.mechanism == "cp.async" and self.arrives:
            return self.order.last
        block: _Block | None = access.block
        groups: list[int] = []
        while block is not None:
            groups += [at for at, mechanism in block.groups if mechanism == access.mechanism and at > access.position]
            for wait in block.waits:
                after = sum(at < wait.position for at in groups)
                if wait.mechanism == access.mechanism and wait.position > access.position and wait.pendings <= after:
                    return wait.position
            block = block.outer
        if access.mechanism != "cp.async":
            return self.order.last
        later = [w.position for w in self.waits if w.mechanism == access.mechanism and w.position > access.position]
        return max(later, default=self.order.last)

    def _through_loops(self, made: int, life: Lifetime) -> None:
        """Extend a live range that crosses the entry or end of a loop to the whole loop, inner loops before outer."""
        for op, last in self.order.ends.items():
            if op.kind not in LOOPS and op.kind not in PARALLEL:
                continue
            first = self.order.positions[op]
            inside = first < made <= last
            if life.first <= last and life.last > (last if inside else first):
                life.use(first, last)


def _slots(part: Place) -> Iterator[tuple[Op, int]]:
    """The mbarriers in a byte range."""
    return ((part.alloc, byte) for byte in range(part.first, part.end, BARRIER_BYTES))


def _overlap(some: Iterable[Place], others: Sequence[Place] | frozenset[Place]) -> bool:
    return any(a.alloc is b.alloc and a.first < b.end and b.first < a.end for a in some for b in others)


class _Invalidated(States[frozenset[tuple[Op, int]]]):
    """Forward analysis: the mbarriers that are invalidated on every path."""

    def __init__(self, places: dict[Value, frozenset[Place]]) -> None:
        self._places = places

    def visit(self, op: Op, state: frozenset[tuple[Op, int]]) -> tuple[Sequence[Op], frozenset[tuple[Op, int]]]:
        """Add the mbarrier of a handle that refers to exactly one."""
        if op.kind is mbarrier.invalidate:
            (bar,) = op.uses
            parts = self._places[bar]
            if len(parts) == 1 and all(part.exact for part in parts):
                state = state.union(*map(_slots, parts))
        return (op,), state

    def join(
        self, state: frozenset[tuple[Op, int]], other: frozenset[tuple[Op, int]]
    ) -> tuple[frozenset[tuple[Op, int]], bool]:
        """The intersection: invalidated on both paths."""
        return state & other, not state <= other

    def both(self, state: frozenset[tuple[Op, int]], other: frozenset[tuple[Op, int]]) -> frozenset[tuple[Op, int]]:
        """The union: all partitions have run."""
        return state | other
