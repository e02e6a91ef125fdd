"""mbarriers: objects of 64 bits in shared memory that count arrivals and bytes, phase by phase (PTX ISA, mbarrier).

A phase is complete when all arrivals have come and all expected bytes have; the next one begins at once. `init`, `expect`,
`arrive` and `invalidate` are done by one elected thread of the partition, `wait` by all of its threads.

In a cluster blocks may share a barrier: that of the first of them, which makes it and waits for it, and all arrive there.
"""

from __future__ import annotations

from functools import cache

from weft.ir.core import Attrs, Effect, Value
from weft.ir.define import op
from weft.ir.types import SharedType, int32
from weft.layout import MBarrierLayout
from weft.ops.check import barrier, boolean, require, scalar

COUNT_LIMIT = (1 << 20) - 1
"""Arrivals, and bytes, that a phase can count (PTX ISA, mbarrier: valid ranges)."""

WRITES = Effect("write", "shared", "bar", by="elected")


def _arrives(attrs: Attrs) -> tuple[Effect, ...]:
    """Of `expect` and `arrive`: the barrier is updated, perhaps another block's, and tells what all threads did."""
    return _arrival(bool(attrs.get("each_warp")), bool(attrs["shared_by"] or attrs.get("everywhere")))


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


@op("mbarrier.init", effects=(WRITES,), needs="block")
def init(bar: Value, count: int) -> None:
    """Make the barrier: its phase 0 begins, and each phase takes `count` arrivals."""
    barrier(bar)
    require(1 <= count <= COUNT_LIMIT, "a barrier counts 1 to {} arrivals", COUNT_LIMIT)


@op("mbarrier.invalidate", effects=(WRITES,), needs="block")
def invalidate(bar: Value) -> None:
    """End the barrier; its memory may be used otherwise from here on."""
    barrier(bar)


@op("mbarrier.expect", effects=_arrives, needs="block")
def expect(bar: Value, pred: Value | None, bytes: int, shared_by: int = 0) -> None:
    """One arrival, and the current phase waits for this many more bytes, where `pred` holds. `shared_by` as for `arrive`."""
    barrier(bar)
    _predicate(pred)
    require(0 <= bytes <= COUNT_LIMIT, "a phase counts up to {} bytes", COUNT_LIMIT)


@op("mbarrier.arrive", effects=_arrives, needs="block")
def arrive(
    bar: Value, pred: Value | None, count: int = 1, shared_by: int = 0, each_warp: bool = False, everywhere: bool = False
) -> None:  # fmt: skip
    """`count` arrivals where `pred` holds, for the whole partition: what its threads did before is visible to who waits.

    With `each_warp` (set by `spread_arrivals`, which makes the barrier count accordingly) every warp arrives so often, once its
    own threads have come here; that takes no barrier, and those who wait still know what all threads did before.

    In a cluster the barrier is that of the block whose index has the bits of `shared_by` clear (see `blocks_sharing`), or with
    `everywhere` each block's that lies there."""
    barrier(bar)
    _predicate(pred)
    require(not (everywhere and (shared_by or each_warp)), "an arrival everywhere is a partition's, at own barriers")
    require(1 <= count <= COUNT_LIMIT, "1 to {} arrivals", COUNT_LIMIT)


@op("mbarrier.wait", effects=_waits, needs="block")
def wait(bar: Value, phase: Value, pred: Value | None, *deps: Value, shared_by: int = 0) -> None:
    """Wait until the phase of parity `phase` (0 or 1) is complete, where `pred` holds. On a fresh barrier parity 1 is.

    `deps` are handles whose memory stays allocated at least until here. `shared_by` as for `arrive`; only the first of those
    blocks waits (in the lowered stage this stands under a test for it)."""
    barrier(bar)
    scalar(phase, int32)
    _predicate(pred)


def blocks_sharing(bar: Value) -> int:
    """The bits of a block's index in which blocks that share a barrier of the tile stage differ; 0: each has its own."""
    layout = bar.type.layout if isinstance(bar.type, SharedType) else None
    cga = layout.cga if isinstance(layout, MBarrierLayout) else ()
    return sum(1 << bit for bit, basis in enumerate(cga) if not any(basis))


def _predicate(pred: Value | None) -> None:
    if pred is not None:
        scalar(pred)
        boolean(pred)
