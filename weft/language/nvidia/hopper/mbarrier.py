"""mbarriers that count bytes in addition to arrivals: the functions of `ampere.mbarrier`, and `expect`."""

from __future__ import annotations

from typing import Any

from weft.errors import asynchronous as errors
from weft.errors import fail
from weft.language.creation import check_int
from weft.language.marks import builtin
from weft.language.nvidia.ampere.mbarrier import MBarrierLayout, allocate_mbarrier, arrive, init, invalidate, wait
from weft.language.nvidia.checks import check_barrier, check_from_cta, check_own_barrier, demand
from weft.language.scalars import predicate
from weft.language.shared_memory import shared_memory_descriptor
from weft.language.tensor import apply_many
from weft.ops import mbarrier as ops


@builtin
def expect(
    mbarrier: shared_memory_descriptor, bytes: int, pred: Any = True, *, from_cta: int | None = None
) -> None:  # fmt: skip
    """One arrival that adds `bytes` to the phase's transaction count, if `pred` is true. Each CTA of a cluster executes it.

    A TMA load counts `desc.nbytes_per_cta` bytes, which without a cluster are `desc.block_type.nbytes`. `from_cta` is a mask of
    rank bits: on the barrier of CTA r the CTA with rank `r & from_cta` arrives, with 0 so CTA 0 on all of them.

    Raises async-expect-bytes, async-target, language-predicate, cluster-from-cta, cluster-signal.
    """
    demand("expect", "mbarriers that count bytes")
    sent_to = check_from_cta("expect", from_cta)
    bar = check_own_barrier("expect", mbarrier) if sent_to else check_barrier("expect", mbarrier)
    number = check_bytes("expect", bytes)
    whose = {"shared_by": ops.blocks_sharing(bar.handle), "sent_to": sent_to}
    apply_many(ops.expect, (bar, predicate("expect", pred)), bytes=number, **whose)


def check_bytes(what: str, bytes: Any) -> int:
    """The bytes of a phase. Raises async-expect-bytes."""
    number = check_int(what, bytes)
    if not 0 <= number <= ops.COUNT_LIMIT:
        raise fail(errors.EXPECT_BYTES, got=number, most=ops.COUNT_LIMIT)
    return number


__all__ = ["MBarrierLayout", "allocate_mbarrier", "arrive", "expect", "init", "invalidate", "wait"]
