"""mbarriers: 64-bit objects in shared memory that count arrivals and transaction bytes, phase by phase (PTX ISA, mbarrier).

A phase completes when its pending arrivals and its pending bytes are zero; the next phase begins at once. One elected thread of
the partition executes `init`, `expect`, `arrive` and `invalidate`; all threads execute `wait`.

In code written per thread, each thread that executes `init_at`, `arrive_at`, `arrive_in` or `probe` does so for itself.

In a cluster several blocks may share the mbarrier of the first of them: that block initialises it and waits for it, and all of
them arrive there.
"""

from __future__ import annotations

from functools import cache

from weft.ir.core import Attrs, Effect, Value
from weft.ir.define import op, reads, writes
from weft.ir.types import ScalarType, SharedType, Type, int1, int32, int64
from weft.layout import MBarrierLayout
from weft.ops.check import barrier, boolean, require, scalar, shared_array

COUNT_LIMIT = (1 << 20) - 1
"""The largest number of arrivals, and of bytes, of a phase (PTX ISA, "Contents of the mbarrier object")."""

WRITES = Effect("write", "shared", "bar", by="elected")


def _arrives(attrs: Attrs) -> tuple[Effect, ...]:
    """The effects of `expect` and `arrive`: an update of the mbarrier, perhaps another block's, that releases the accesses of
    all threads."""
    return _arrival(
        bool(attrs.get("each_warp")), bool(attrs["shared_by"] or attrs["sent_to"] or attrs.get("everywhere"))
    )


@cache
def _arrival(each_warp: bool, remote: bool) -> tuple[Effect, ...]:
    update = Effect("update", "shared", "bar", by="each warp" if each_warp else "elected", remote=remote)
    return update, Effect("release", "threads", by="each warp" if each_warp else "threads")


def _waits(attrs: Attrs) -> tuple[Effect, ...]:
    remote = bool(attrs["shared_by"])
    return (
        Effect("read", "shared", "bar", remote=remote),
        Effect("sync", "shared", "bar", completes="mbarrier", remote=remote),
    )


@op("mbarrier.init", effects=(WRITES,), needs="block", verb="initialised")
def init(bar: Value, count: int) -> None:
    """Initialise the mbarrier: phase 0 begins, and each phase takes `count` arrivals."""
    barrier(bar)
    require(1 <= count <= COUNT_LIMIT, "a barrier counts 1 to {} arrivals", COUNT_LIMIT)


@op("mbarrier.invalidate", effects=(WRITES,), needs="block", verb="invalidated")
def invalidate(bar: Value) -> None:
    """Invalidate the mbarrier; its memory may be reused afterwards."""
    barrier(bar)


@op("mbarrier.expect", effects=_arrives, needs="block")
def expect(bar: Value, pred: Value | None, bytes: int, shared_by: int = 0, sent_to: int = 0) -> None:
    """One arrival that adds `bytes` to the pending bytes of the current phase, if `pred` holds. `shared_by` and `sent_to` as in
    `arrive`."""
    barrier(bar)
    require(not (sent_to and shared_by), "an arrival for other blocks is at their own barriers")
    _predicate(pred)
    require(0 <= bytes <= COUNT_LIMIT, "a phase counts up to {} bytes", COUNT_LIMIT)


@op("mbarrier.arrive", effects=_arrives, needs="block")
def arrive(
    bar: Value, pred: Value | None, count: int = 1, shared_by: int = 0, each_warp: bool = False, everywhere: bool = False,
    sent_to: int = 0,
) -> None:  # fmt: skip
    """`count` arrivals where `pred` holds, for the whole partition: accesses of its threads before are visible to waiters.

    With `each_warp` (set by `spread_arrivals`, which multiplies the mbarrier's count) every warp arrives `count` times when its
    own threads have reached the operation. This needs no barrier before it, and still releases the accesses of all threads.

    In a cluster the mbarrier is that of the block whose rank has the bits of `shared_by` clear (see `blocks_sharing`), or with
    `everywhere` the one at the same offset in each block. With `sent_to` only the blocks whose rank has these bits clear
    arrive, each on the mbarriers of all blocks whose rank differs in these bits only."""
    barrier(bar)
    _predicate(pred)
    own = not (shared_by or each_warp)
    require(own or not (everywhere or sent_to), "an arrival for other blocks is a partition's, at their own barriers")
    require(not (everywhere and sent_to), "an arrival everywhere is sent by every block")
    require(1 <= count <= COUNT_LIMIT, "1 to {} arrivals", COUNT_LIMIT)


@op("mbarrier.wait", effects=_waits, needs="block", verb="waited on")
def wait(bar: Value, phase: Value, pred: Value | None, *deps: Value, shared_by: int = 0) -> None:
    """Wait until the phase with parity `phase` (0 or 1) is complete, where `pred` holds. On a fresh mbarrier parity 1 is.

    `deps` are handles whose memory stays allocated at least until here. `shared_by` as in `arrive`; only the first of these
    blocks waits (in lowered IR the wait is under a predicate for it)."""
    barrier(bar)
    scalar(phase, int32)
    _predicate(pred)


# Each thread for itself: the mbarrier is element `index` of an array of 64-bit integers.


@op("mbarrier.init_at", effects=(writes("memory", "shared"),), verb="initialised")
def init_at(memory: Value, index: Value, count: int) -> None:
    """As `init`, by the thread that executes it."""
    _word(memory, index)
    require(1 <= count <= COUNT_LIMIT, "a barrier counts 1 to {} arrivals", COUNT_LIMIT)


@op("mbarrier.invalidate_at", effects=(writes("memory", "shared"),), verb="invalidated")
def invalidate_at(memory: Value, index: Value) -> None:
    """As `invalidate`, by the thread that executes it."""
    _word(memory, index)


@op("mbarrier.arrive_at", effects=(reads("memory", "shared"), writes("memory", "shared")), scope="thread")
def arrive_at(memory: Value, index: Value, bytes: int = -1) -> Type:
    """One arrival of each thread, which releases the thread's accesses; `bytes` from 0 on are added to the pending bytes of the
    phase before (PTX mbarrier.arrive.expect_tx). Returns the state, an opaque number that tells the phase."""
    _word(memory, index)
    require(-1 <= bytes <= COUNT_LIMIT, "a phase counts up to {} bytes", COUNT_LIMIT)
    return ScalarType(int64)


@op(
    "mbarrier.arrive_in",
    effects=(Effect("read", "shared", "memory", remote=True), Effect("write", "shared", "memory", remote=True)),
)
def arrive_in(memory: Value, index: Value, peer: Value, bytes: int = -1) -> None:
    """As `arrive_at`, on the mbarrier at the same place in the block of rank `peer` (PTX mbarrier.arrive on .shared::cluster,
    which returns no state)."""
    _word(memory, index)
    scalar(peer, int32)
    require(-1 <= bytes <= COUNT_LIMIT, "a phase counts up to {} bytes", COUNT_LIMIT)


ARRIVALS = (arrive_at, arrive_in)
"""Arrivals of threads by themselves."""


@op("mbarrier.probe", effects=(reads("memory", "shared"), writes("memory", "shared")), scope="thread")
def probe(memory: Value, index: Value, phase: Value, parity: bool = False) -> Type:
    """Whether a phase is complete: that of a state which `arrive_at` returned, or with `parity` that of parity `phase` (PTX
    mbarrier.test_wait). A thread that learns so acquires what the arrivals of the phase released."""
    _word(memory, index)
    scalar(phase, int32 if parity else int64)
    return ScalarType(int1)


def _word(memory: Value, index: Value) -> None:
    t = shared_array(memory)
    require(t.element.is_int() and t.element.bits == 64, "an mbarrier is a 64-bit integer: {}", t)
    scalar(index, int32)


def blocks_sharing(bar: Value) -> int:
    """The bits of the cluster rank in which blocks that share an mbarrier (in tile IR) differ; 0 if each has its own."""
    layout = bar.type.layout if isinstance(bar.type, SharedType) else None
    cga = layout.cga if isinstance(layout, MBarrierLayout) else ()
    return sum(1 << bit for bit, basis in enumerate(cga) if not any(basis))


def _predicate(pred: Value | None) -> None:
    if pred is not None:
        scalar(pred)
        boolean(pred)
