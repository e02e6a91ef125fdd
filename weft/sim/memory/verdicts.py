"""The verdict on two conflicting accesses to the same memory, and the message text of its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from weft.errors import Hazard, Loc, Row, fail, hazard
from weft.ir.core import Op
from weft.ir.types import DType
from weft.sim.machine.naming import Naming
from weft.sim.memory.clocks import Clock
from weft.sim.memory.events import Event, EventMode
from weft.sim.memory.warps import is_one

BY_THREADS: tuple[EventMode, ...] = ("generic", "copy")
"""Accesses in the generic proxy."""
TENSOR_CORE: tuple[EventMode, ...] = ("mma", "cp")
"""Asynchronous tcgen05 operations, which one thread issues."""
WAIT_FOR_LOAD = "call mbarrier.wait() with the mbarrier that the copy signals, and the phase that it completes,"
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
RACE: Verdict = (hazard.THREAD_RACE, None)


@dataclass(frozen=True, slots=True)
class End:
    """When an asynchronous access is complete: once a clock's count of its component is past its value. Until then `running`
    are the hazards of a later read and of a later write. If only some threads have waited themselves, as the clock's field
    `private` records, the verdict for them is `alone` (None: as after a thread's own access)."""

    running: tuple[Row, Row]
    private: Literal["", "each", "elected"] = ""
    alone: Verdict | None = None


_COPIES = hazard.READ_IN_FLIGHT, hazard.WRITE_IN_FLIGHT
_OPERAND = End((hazard.TENSOR_OPERAND, hazard.TENSOR_OPERAND))
_SUM = End((hazard.TENSOR_IN_FLIGHT, hazard.TENSOR_IN_FLIGHT))
Ends = Mapping[tuple[EventMode, bool], End]
SHARED_ENDS: Ends = {
    ("load", True): End(_COPIES),
    ("copy", True): End(_COPIES, "each"),
    ("response", True): End((hazard.CLC_IN_FLIGHT, hazard.CLC_IN_FLIGHT)),
    ("store", False): End((hazard.STORE_SOURCE_REUSED, hazard.STORE_SOURCE_REUSED), "elected", RACE),
    # wgmma.wait_group covers the waiting warpgroup's own groups only: that of another warpgroup may still read its operands.
    ("product", False): End(
        (hazard.OPERAND_REUSED, hazard.OPERAND_REUSED), "each", (hazard.THREAD_RACE, hazard.THREAD_RACE)
    ),
    ("mma", False): _OPERAND,
    ("cp", False): _OPERAND,
}
TENSOR_ENDS: Ends = {("mma", True): _SUM, ("mma", False): _OPERAND, ("cp", True): _SUM}
"""Completion of asynchronous accesses to shared and to tensor memory, by mode and whether the access writes. Accesses that are
not listed complete at once. `global_clash` covers global memory."""


def running(ends: Ends, earlier: Event, event: Event, clock: Clock) -> Verdict | None:
    """The verdict on an event after an asynchronous access that is not known to be complete; None if it is complete."""
    end = ends.get((earlier.mode, earlier.writes))
    if end is None or clock.known.get(earlier.component, 0) > earlier.value:
        return None
    if end.private and earlier.slot == clock.slot:
        waited: dict[int, int] = clock.each if end.private == "each" else clock.elected
        if waited.get(earlier.component, 0) > earlier.value:
            return end.alone
    row = end.running[event.writes]
    return row, row


def clash(earlier: Event, event: Event, clock: Clock) -> Verdict:
    """The verdict on an event of the clock's task in shared memory, after an earlier conflicting event."""
    if earlier.atomic and event.atomic:
        return FINE
    found = running(SHARED_ENDS, earlier, event, clock)
    if found is not None:
        return found
    if earlier.mode not in BY_THREADS:
        return FINE
    own = earlier.slot == clock.slot
    known = clock.known.get(earlier.component, 0) > earlier.value
    if earlier.mode == event.mode == "generic" and not (own or earlier.writes):
        # A write after another task's read needs no release of that read: it suffices that the read came first in time.
        known = known or clock.before.get(earlier.component, 0) > earlier.value
    ordered: Verdict = FINE if known else RACE if own else (hazard.THREAD_RACE, hazard.THREAD_RACE)
    asynchronous = event.mode not in BY_THREADS
    if not asynchronous or not (known or own) or clock.fenced.get(earlier.component, 0) > earlier.value:
        return ordered
    if own and clock.own_fenced.get(earlier.component, 0) > earlier.value:
        return RACE
    return hazard.MISSING_FENCE, hazard.MISSING_FENCE


def global_clash(own: bool, same_block: bool, copies: bool, forever: bool, learned: bool) -> Row:
    """The hazard of an access to global memory after an unordered one. The earlier one belongs to the same program (`own`), to
    the same block, to an asynchronous copy (`copies`), or to one whose completion the kernel cannot observe (`forever`).
    `learned`: the task has acquired something from other programs."""
    if forever and (own or learned):
        return hazard.GLOBAL_STORED
    if not own:
        return hazard.GLOBAL_RACE
    if copies:
        return hazard.GLOBAL_IN_FLIGHT
    return hazard.GLOBAL_THREADS if same_block else hazard.GLOBAL_BLOCKS


def order(earlier: Event, event: Event, partition: str, other: str) -> str:
    """The fix that orders the accesses of two threads."""
    if earlier.slot != event.slot:
        return f"let {other} arrive on an mbarrier after the first line, and {partition} wait for it before the second"
    between = _WAITS.get(earlier.mode, "the first line")
    return f"call gl.barrier() between {between} and the second line"


def race_of_threads(
    earlier: Event, event: Event, byte: int, threads: tuple[int, int], names: Naming, program: tuple[int, int, int],
    warp: bool,
) -> Hazard:  # fmt: skip
    """The hazard of two threads, given by number, whose generic accesses conflict at a byte. `warp`: only threads of the same
    warp conflict in these two accesses."""
    element = (byte - event.memory.start) // _element_size(event.op)
    name = f"{event.memory.name or 'shared memory'}[{element}]"
    old = earlier.memory.name if earlier.memory is not event.memory else ""
    other, who = (names.thread(number) if is_one(number) else "several threads" for number in threads)
    done = WORDS[earlier.mode, earlier.writes][1]
    fields: dict[str, Any] = {
        "program": program, "thread": who, "access": WORDS[event.mode, event.writes][0], "view": names.view(event.op),
        "name": f"{name} (in bytes that were {old} before)" if old else name, "other": other, "before": done,
        "order": barrier_between(earlier.op, event.op, names, earlier.mode == "copy", warp),
    }  # fmt: skip
    label = f"{other} {done} it here{names.view(earlier.op)}"
    return clashing(hazard.THREADS_RACE, event.op.loc, earlier.op.loc, label, event.memory.name, (other, who), fields)


def wait_for_copy(access: Op, names: Naming | None) -> str:
    """The fix that completes a cp.async copy, with the thread-level or the tile-level functions, as the access uses."""
    return _WAIT_FOR_COPIES if names is not None and names.by_threads(access) else _WAIT_FOR_COPY


def barrier_between(earlier: Op, later: Op, names: Naming, copies: bool = False, warp: bool = False) -> str:
    """The fix that orders two operations of threads; the earlier one may be an asynchronous copy.

    `warp`: only threads of the same warp need the order, so a barrier of the warp suffices."""
    barrier, group = ("gl.syncwarp()", "warp") if warp and not copies else ("gl.barrier()", "block")
    together = f", where all threads of the {group} reach it" if names.nested(earlier) or names.nested(later) else ""
    if earlier is later:
        rounds = ""
        if together:
            rounds = f": all threads{' of a warp' if group == 'warp' else ''} must run the same number of iterations"
        return f"call {barrier} before this line runs again{rounds}"
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
