"""The verdict on two conflicting accesses to the same memory, and the message text of its report.

One table, of three spaces, says what must hold between two accesses, and which hazard it is where it does not hold: when an
access of each kind has ended, which fences must lie between it and a later one, and which pairs a pipeline orders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from weft.errors import Hazard, Loc, Row, fail, hazard
from weft.ir.core import Op
from weft.ir.types import DType
from weft.sim.machine.naming import Naming
from weft.sim.machine.tensor_order import disorder
from weft.sim.memory.clocks import Clock
from weft.sim.memory.events import Event, EventMode
from weft.sim.memory.warps import is_one

if TYPE_CHECKING:
    from weft.sim.machine.agents import Pipe

BY_THREADS: tuple[EventMode, ...] = ("generic", "copy", "sent")
"""Accesses in the generic proxy."""
TENSOR_CORE: tuple[EventMode, ...] = ("mma", "cp")
"""Asynchronous tcgen05 operations, which one thread issues."""
WAIT_FOR_LOAD = "call mbarrier.wait() with the mbarrier that the copy signals, and the phase that it completes,"
WAIT_FOR_STORE = "call mbarrier.wait() with the mbarrier that the store signals, and the phase that it completes,"
WAIT_FOR_OTHERS = (
    "let the copy signal a barrier that its block shares with this one, as mbarrier.allocate_mbarrier(two_ctas=True) makes "
    "for pairs, and wait for that"
)
_WAIT_FOR_COPY = (
    "commit the copy and call async_copy.wait_group() with no more pendings than groups committed after it,"
)
_WAIT_FOR_COPIES = "call gl.async_copy_wait_all(), and gl.barrier() after it where another thread copied,"
MANY = -1
"""In place of a thread's number: several threads, or unknown threads."""

_WAITS: dict[EventMode, str] = {
    "store": "tma.store_wait()", "copy": "async_copy.wait_group()", "product": "warpgroup_mma_wait()",
}  # fmt: skip
WORDS: dict[tuple[EventMode, bool], tuple[str, str]] = {
    ("generic", False): ("reads", "read"),
    ("generic", True): ("writes", "wrote"),
    ("copy", True): ("copies into", "copied into"),
    ("sent", True): ("asynchronously stores to", "asynchronously stored to"),
    ("load", True): ("copies into", "copied into"),
    ("store", False): ("copies from", "copied from"),
    ("product", False): ("multiplies", "multiplied"),
    ("mma", False): ("multiplies", "multiplied"),
    ("mma", True): ("multiplies into", "multiplied into"),
    ("cp", False): ("copies from", "copied from"),
    ("cp", True): ("copies into", "copied into"),
    ("response", True): ("requests a response in", "requested a response in"),
}


Verdict = tuple[Row | None, Row | None]
"""The hazard of two accesses: if different threads make them, and if the same thread does. None: no hazard."""
FINE: Verdict = (None, None)


@dataclass(frozen=True, slots=True)
class End:
    """When an access of one kind has ended: for all threads of a task once its clock's count of the event's component is past
    the event's value. Until then the hazards are `running`: of a later read, and of a later write.

    An access that threads make themselves has ended for its own thread at once (`private` is "own"), an asynchronous one for
    threads that have waited themselves, as the clock's field `private` records. Then the verdict is `alone`. `precedes`: it
    need not have ended before a write of these modes by another task, only come first in time: a store that is sent (st.async)
    is performed after it was issued, and completes its bytes where others can wait for them. `blocks`: the hazard, if it is
    another one, where the two accesses are those of two blocks. `of_programs`: `running` are also the hazards of a program that
    has acquired something from another one."""

    running: tuple[Row, Row]
    private: Literal["", "own", "each", "elected"] = ""
    alone: Verdict = FINE
    precedes: tuple[EventMode, ...] = ()
    blocks: Row | None = None
    of_programs: bool = False


@dataclass(frozen=True, slots=True)
class Fence:
    """What must lie between two accesses besides the barrier that orders them.

    `kinds`: fences that fields of the clock count, in this order, each with the hazard if it is missing. `proxies`: they order
    accesses in the generic proxy before later ones in the async proxy, also of the same thread (`Clock.own_fenced` counts what
    each thread has fenced for itself); otherwise accesses of any two threads."""

    kinds: tuple[tuple[Literal["fenced", "sealed", "ordered"], Row], ...]
    proxies: bool = False

    def missing(self, clock: Clock, component: int, value: int) -> Row | None:
        """The hazard of the first fence that is missing after an event; None if none is."""
        return next((row for field, row in self.kinds if _count(clock, field, component) <= value), None)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The hazards of two asynchronous tcgen05 operations: if the first is neither complete nor certain to execute before the
    second (`weft.sim.machine.tensor_order`), and if nothing orders the threads that issue them."""

    disordered: Row
    unissued: Row


@dataclass(frozen=True, slots=True, eq=False)
class Ordering:
    """What orders conflicting accesses to one memory space, and the hazards where it is missing.

    `ends`: by mode, and by whether the access writes. `programs`: the hazard of two programs' accesses that nothing orders."""

    ends: Mapping[tuple[EventMode, bool], End]
    fence: Fence
    pipeline: Pipeline | None = None
    programs: Row | None = None


def _both(row: Row) -> tuple[Row, Row]:
    return row, row


_COPIES = hazard.READ_IN_FLIGHT, hazard.WRITE_IN_FLIGHT
_RACES, _RACE = _both(hazard.THREAD_RACE), (hazard.THREAD_RACE, None)
_OPERAND = End(_both(hazard.TENSOR_OPERAND))
SHARED_ORDERING = Ordering(
    {
        ("generic", False): End(_RACES, "own", _RACE, precedes=("generic", "sent")),
        ("generic", True): End(_RACES, "own", _RACE),
        ("copy", True): End(_COPIES, "each", _RACE),
        ("sent", True): End(_COPIES, precedes=("sent",)),
        ("load", True): End(_COPIES),
        ("response", True): End(_both(hazard.CLC_IN_FLIGHT)),
        ("store", False): End(_both(hazard.STORE_SOURCE_REUSED), "elected", _RACE),
        # wgmma.wait_group covers the waiting warpgroup's own groups only: another warpgroup's may still read its operands.
        ("product", False): End(_both(hazard.OPERAND_REUSED), "each", _RACES),
        ("mma", False): _OPERAND,
        ("cp", False): _OPERAND,
    },
    Fence((("fenced", hazard.MISSING_FENCE),), proxies=True),
)
_OF_A_WARP = End(_both(hazard.TENSOR_RACE), "own", (hazard.TENSOR_RACE, None))
_ACCUMULATOR = End(_both(hazard.TENSOR_IN_FLIGHT))
TENSOR_ORDERING = Ordering(
    {
        ("generic", False): _OF_A_WARP,
        ("generic", True): _OF_A_WARP,
        ("mma", False): _OPERAND,
        ("mma", True): _ACCUMULATOR,
        ("cp", True): _ACCUMULATOR,
    },
    # Two threads need `tcgen05.fence::before_thread_sync` ahead of the release, which `tcgen05.commit` implies, and
    # `tcgen05.fence::after_thread_sync` behind the acquire (PTX ISA, "tcgen05.commit").
    Fence((("sealed", hazard.TENSOR_FENCE_BEFORE), ("ordered", hazard.TENSOR_FENCE_AFTER))),
    pipeline=Pipeline(hazard.TENSOR_ORDER, hazard.TENSOR_RACE),
)
_OF_A_THREAD = End(_both(hazard.GLOBAL_THREADS), "own", (hazard.GLOBAL_THREADS, None), blocks=hazard.GLOBAL_BLOCKS)
_READ = _both(hazard.GLOBAL_IN_FLIGHT)
GLOBAL_ORDERING = Ordering(
    {
        ("generic", False): _OF_A_THREAD,
        ("generic", True): _OF_A_THREAD,
        ("copy", False): End(_READ, "each", (hazard.GLOBAL_IN_FLIGHT, None)),
        ("load", False): End(_READ),
        # Only a wait without `.read` covers the writes of TMA stores (PTX ISA, "cp.async.bulk.wait_group").
        ("store", True): End(_both(hazard.GLOBAL_STORED), "elected", of_programs=True),
    },
    # Proxy fences of global memory are judged by masks, too (`weft.sim.memory.races`).
    Fence(()),
    programs=hazard.GLOBAL_RACE,
)
"""Storage differs: a block's memory keeps the last accesses of each task, and `clash` judges one after another; global memory
keeps those of all programs together, and `weft.sim.memory.races` judges an access by masks over its granules."""


def _count(clock: Clock, field: str, component: int) -> int:
    """A clock's count of a component in one of its fields; 0 without a field."""
    counts: dict[int, int] = getattr(clock, field) if field else {}
    return counts.get(component, 0)


def waited(end: End, component: int, value: int, clock: Clock) -> bool:
    """True if an event of the clock's task has ended for the threads that made it, or that waited for it themselves."""
    return end.private == "own" or _count(clock, end.private, component) > value


def unordered(space: Ordering, end: End, writes: bool, own: bool, same_block: bool, learned: bool) -> Row:
    """The hazard of an access that nothing orders after an earlier one, of the same program (`own`) or of the same block.
    `learned`: the task has acquired something from other programs."""
    if space.programs is not None and not (own or (learned and end.of_programs)):
        return space.programs
    return end.running[writes] if same_block or end.blocks is None else end.blocks


def clash(space: Ordering, earlier: Event, event: Event, clock: Clock, pipes: Sequence[Pipe] = ()) -> Verdict:
    """The verdict on an event of the clock's task after an earlier conflicting event in a block's memory."""
    if earlier.atomic and event.atomic:
        return FINE
    by_threads, asynchronous = earlier.mode in BY_THREADS, event.mode not in BY_THREADS
    if space.pipeline is not None and asynchronous and not by_threads:
        return _pipelined(space, space.pipeline, earlier, event, clock, pipes)
    component, value, own = earlier.component, earlier.value, earlier.slot == clock.slot
    verdict = FINE
    if clock.known.get(component, 0) <= value:
        verdict = _running(space.ends[earlier.mode, earlier.writes], event, component, value, own, clock)
        if verdict[1] is not None:
            return verdict
    if space.fence.proxies:
        row = space.fence.missing(clock, component, value) if asynchronous and by_threads else None
        if row is None:
            return verdict
        private = own and clock.own_fenced.get(component, 0) > value
        return space.ends[earlier.mode, earlier.writes].alone if private else (row, row)
    # Where no barrier orders two threads, that is the hazard, whatever the fences.
    row = space.fence.missing(clock, component, value) if verdict is FINE else None
    if row is None:
        return verdict
    return row, None if own and by_threads else row


def _running(end: End, event: Event, component: int, value: int, own: bool, clock: Clock) -> Verdict:
    """The verdict after an event that has not ended for all threads of the task."""
    if own and waited(end, component, value, clock):
        return end.alone
    precedes = event.mode in end.precedes and (not own or event.mode == "sent")
    if precedes and event.writes and clock.before.get(component, 0) > value:
        return FINE
    row = end.running[event.writes]
    return row, row


def _pipelined(
    space: Ordering, hazards: Pipeline, earlier: Event, event: Event, clock: Clock, pipes: Sequence[Pipe]
) -> Verdict:
    """The verdict on two asynchronous tcgen05 operations. If two threads issue them, it suffices for the order between the
    threads that the first was issued."""
    component, value = earlier.component, earlier.value
    if earlier.slot != clock.slot:
        either = [c for c in (component, pipes[earlier.slot].issued) if clock.known.get(c, 0) > value]
        missing = [space.fence.missing(clock, c, value) for c in either] or [hazards.unissued]
        if None not in missing:
            return missing[0], missing[0]
    if clock.known.get(component, 0) > value or not out_of_order(earlier, event, pipes):
        return FINE
    return hazards.disordered, hazards.disordered


def out_of_order(earlier: Event, event: Event, pipes: Sequence[Pipe]) -> str:
    """Why the hardware does not order a tcgen05 operation after an earlier one in flight; empty if it does, and for other
    accesses."""
    if earlier.mode not in TENSOR_CORE or event.mode not in TENSOR_CORE or not pipes:
        return ""
    pipe, later = pipes[earlier.slot], pipes[event.slot].started[event.value]
    multiplied = pipe.product > earlier.value
    return disorder(pipe.started[earlier.value], earlier.writes, later, not event.writes, multiplied)


def order(earlier: Event, event: Event, partition: str, other: str) -> str:
    """The fix that orders the accesses of two threads."""
    if earlier.slot != event.slot:
        return f"let {other} arrive on an mbarrier after the first line, and {partition} wait for it before the second"
    between = _WAITS.get(earlier.mode, "the first line")
    return f"call gl.barrier() between {between} and the second line"


def race_of_threads(
    earlier: Event, event: Event, byte: int, threads: tuple[int, int], names: Naming, program: tuple[int, int, int],
    warp: bool, several: bool = False,
) -> Hazard:  # fmt: skip
    """The hazard of two threads, given by number, whose generic accesses conflict at a byte. `warp`: only threads of the same
    warp conflict in these two accesses. `several`: the second one writes the byte in several threads."""
    element = (byte - event.memory.start) // _element_size(event.op)
    name = f"{event.memory.name or 'shared memory'}[{element}]"
    old = earlier.memory.name if earlier.memory is not event.memory else ""
    other, who = (names.thread(number) if is_one(number) else "several threads" for number in threads)
    done = WORDS[earlier.mode, earlier.writes][1]
    fields: dict[str, Any] = {
        "program": program, "thread": who, "access": WORDS[event.mode, event.writes][0], "view": names.view(event.op),
        "name": f"{name} (in bytes that were {old} before)" if old else name, "other": other, "before": done,
        "order": barrier_between(
            earlier.op, event.op, names, earlier.mode == "copy", warp, wrote=earlier.writes, several=several
        ),
    }  # fmt: skip
    label = f"{other} {done} it here{names.view(earlier.op)}"
    return clashing(hazard.THREADS_RACE, event.op.loc, earlier.op.loc, label, event.memory.name, (other, who), fields)


def wait_for_copy(access: Op, names: Naming | None) -> str:
    """The fix that completes a cp.async copy, with the thread-level or the tile-level functions, as the access uses."""
    return _WAIT_FOR_COPIES if names is not None and names.by_threads(access) else _WAIT_FOR_COPY


def barrier_between(
    earlier: Op, later: Op, names: Naming, copies: bool = False, warp: bool = False, wrote: bool = False,
    several: bool = False,
) -> str:  # fmt: skip
    """The fix that orders two operations of threads; the earlier one may be an asynchronous copy.

    `warp`: only threads of the same warp need the order, so a barrier of the warp suffices. `wrote`: the earlier one wrote, as
    in a loop whose line reads and then writes. `several`: the later one writes an element in several threads."""
    barrier, group = ("gl.syncwarp()", "warp") if warp and not copies else ("gl.barrier()", "block")
    together = f", where all threads of the {group} reach it" if names.nested(earlier) or names.nested(later) else ""
    if earlier is later:
        rounds = ""
        if together:
            rounds = f": all threads{' of a warp' if group == 'warp' else ''} must run the same number of iterations"
        return f"call {barrier} before this line runs again{rounds}"
    if str(earlier.loc) == str(later.loc) and several:
        return "combine the values of several threads with an atomic, as in gl.atomic_add(t.tile[1](i), x), or in one thread"
    if str(earlier.loc) == str(later.loc) and wrote:
        return f"call {barrier} behind this line, before it runs again{together}"
    if str(earlier.loc) == str(later.loc):
        return f"keep what was read in a variable, call {barrier}{together}, and write it after that"
    if copies:
        access = f"line {later.loc.line}" if later.loc is not None else "the access"
        return f"call gl.barrier() after gl.async_copy_wait_all(), before {access}{together}"
    return f"call {barrier} between the first line and the second line{together}"


def _element_size(op: Op) -> int:
    """Bytes per element of the shared memory that an operation accesses, according to its effects."""
    for effect in op.effects:
        if effect.space == "shared" and effect.operand is not None:
            value = op.operand(effect.operand)
            assert value is not None and isinstance(value.type.element, DType)
            return value.type.element.itemsize
    raise ValueError(f"{op.name} accesses no shared memory")


def task_words(slot: int, tasks: int, blocks: int) -> str:
    """The name of a task in reports, in a program of `blocks` blocks with `tasks` tasks each."""
    words = [f"block {slot // tasks}"] if blocks > 1 else []
    if tasks > 1:
        words.append(f"partition {slot % tasks}")
    return ", ".join(words) or "the block"


def clashing(
    entry: Row,
    loc: Loc | None,
    earlier: Loc | None,
    label: str,
    name: str,
    partitions: tuple[str, ...],
    fields: dict[str, Any],
) -> Hazard:
    """The exception of a catalogue row for two source locations; the earlier one is attached as related."""
    error = fail(entry, loc=loc, related=() if earlier is None else ((label, earlier),), **fields)
    assert isinstance(error, Hazard)
    error.buffer, error.partitions = name, partitions
    return error
