"""mbarriers that count bytes in addition to arrivals: the functions of `ampere.mbarrier`, and `expect`."""

from __future__ import annotations

from typing import Any

from weft.errors import asynchronous as errors
from weft.errors import fail
from weft.language.creation import check_int
from weft.language.marks import builtin
from weft.language.nvidia.ampere.mbarrier import MBarrierLayout, allocate_mbarrier, arrive, init, invalidate, wait
from weft.language.nvidia.checks import check_barrier, demand
from weft.language.scalars import predicate
from weft.language.shared_memory import shared_memory_descriptor
from weft.language.tensor import apply_many
from weft.ops import mbarrier as ops


@builtin
def expect(mbarrier: shared_memory_descriptor, bytes: int, pred: Any = True) -> None:
    """One arrival that adds `bytes` to the phase's transaction count, if `pred` is true. Each CTA of a cluster executes it.

    A TMA load counts `desc.nbytes_per_cta` bytes, which without a cluster are `desc.block_type.nbytes`.
    Raises async-expect-bytes, async-target, language-predicate.
    """
    demand("expect", "mbarriers that count bytes")
    bar = check_barrier("expect", mbarrier)
    number = check_int("expect", bytes)
    if not 0 <= number <= ops.COUNT_LIMIT:
        raise fail(errors.EXPECT_BYTES, got=number, most=ops.COUNT_LIMIT)
    apply_many(ops.expect, (bar, predicate("expect", pred)), bytes=number, shared_by=ops.blocks_sharing(bar.handle))


__all__ = ["MBarrierLayout", "allocate_mbarrier", "arrive", "expect", "init", "invalidate", "wait"]
