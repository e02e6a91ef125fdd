"""mbarriers: barriers in shared memory that count arrivals, phase by phase.

    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    ...
    mbarrier.wait(bar, phase)

A phase completes when all its arrivals have occurred, and the next phase begins immediately. Phases have parities 0, 1, 0, ....
A wait for parity 1 of a newly initialized barrier returns immediately.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import asynchronous as errors
from weft.errors import fail
from weft.ir.types import int32, int64
from weft.language.broadcast import constant
from weft.language.context import current
from weft.language.creation import check_int
from weft.language.marks import builtin
from weft.language.nvidia.checks import check_barrier, check_from_cta, check_own_barrier, demand
from weft.language.promote import convert
from weft.language.runtime_value import name_of
from weft.language.scalars import is_integer_scalar, predicate
from weft.language.shared_memory import allocate_shared_memory, check_buffer, shared_memory_descriptor
from weft.language.tensor import apply_many, tensor
from weft.layout import MBarrierLayout
from weft.ops import mbarrier as ops


@builtin
def allocate_mbarrier(batch: int | None = None, two_ctas: bool = False) -> shared_memory_descriptor:
    """Allocate memory for an mbarrier, or for an array of `batch` of them; `init` initializes them.

    In a cluster each CTA has one, or with `two_ctas` each CTA pair. Raises async-two-ctas without a cluster."""
    blocks = current().num_ctas
    if two_ctas and blocks == 1:
        raise fail(errors.TWO_CTAS)
    demand("allocate_mbarrier", "mbarriers")
    count = blocks // 2 if two_ctas else blocks
    shape = [count] if batch is None else [check_int("allocate_mbarrier", batch), count]
    return allocate_shared_memory(int64, shape, MBarrierLayout.multicta(blocks, bool(two_ctas)))


@builtin
def init(mbarrier: shared_memory_descriptor, count: int) -> None:
    """Initialize a barrier: each phase takes `count` arrivals from each CTA that shares it. Raises async-barrier-count."""
    demand("init", "mbarriers")
    bar = check_barrier("init", mbarrier)
    apply_many(ops.init, (bar,), count=check_count("init", count))


@builtin
def invalidate(mbarrier: shared_memory_descriptor) -> None:
    """Invalidate a barrier, so that its memory can be reused."""
    demand("invalidate", "mbarriers")
    apply_many(ops.invalidate, (check_barrier("invalidate", mbarrier),))


@builtin
def arrive(
    mbarrier: shared_memory_descriptor, *, count: int = 1, pred: Any = True, everywhere: bool = False,
    from_cta: int | None = None,
) -> None:  # fmt: skip
    """`count` arrivals by the whole block (or partition), if `pred` is true.

    Earlier memory accesses of its threads are visible to threads that wait for the phase. If CTAs share the barrier, each of
    them arrives. With `everywhere`, the block arrives on the barriers of all CTAs of the cluster, each of which has its own.
    `from_cta` is a mask of rank bits: on the barrier of CTA r the CTA with rank `r & from_cta` arrives.

    Raises async-barrier-count, language-predicate, cluster-signal, cluster-from-cta.
    """
    demand("arrive", "mbarriers")
    sent_to = check_from_cta("arrive", from_cta, everywhere)
    bar = check_own_barrier("arrive", mbarrier) if everywhere or sent_to else check_barrier("arrive", mbarrier)
    number = check_count("arrive", count)
    target = current().target
    if number != 1 and not target.has_mbarrier_tx:
        raise fail(errors.COUNT_TARGET, count=number, target=target.name)
    shared_by = ops.blocks_sharing(bar.handle)
    far = bool(everywhere) and current().num_ctas > 1
    whose = {"shared_by": shared_by, "everywhere": far, "sent_to": sent_to}
    apply_many(ops.arrive, (bar, predicate("arrive", pred)), count=number, **whose)


@builtin
def wait(
    mbarrier: shared_memory_descriptor, phase: Any, pred: Any = True, deps: Sequence[shared_memory_descriptor] = ()
) -> None:
    """Wait until the phase of parity `phase`, 0 or 1, is complete, if `pred` is true.

    If CTAs share the barrier, only the first of them waits. `deps` are buffers whose live ranges extend to this point, so that
    no other allocation reuses their memory earlier. Raises async-phase, language-predicate.
    """
    demand("wait", "mbarriers")
    bar = check_barrier("wait", mbarrier)
    kept = [check_buffer("wait's deps", x) for x in deps]
    apply_many(ops.wait, (bar, phase_scalar(phase), predicate("wait", pred), *kept))


def phase_scalar(phase: Any) -> tensor:
    """A phase's parity as an int32. Raises async-phase, async-phase-type."""
    if isinstance(phase, tensor):
        if not is_integer_scalar(phase):
            raise fail(errors.PHASE_TYPE, got=name_of(phase))
        return convert(phase, int32)
    if not hasattr(phase, "__index__") or int(phase) not in (0, 1):
        raise fail(errors.PHASE, got=repr(phase))
    return constant(int(phase), int32)


def check_count(what: str, count: Any) -> int:
    """The arrivals of a phase. Raises async-barrier-count."""
    number = check_int(what, count)
    if not 1 <= number <= ops.COUNT_LIMIT:
        raise fail(errors.BARRIER_COUNT, what=what, got=number, most=ops.COUNT_LIMIT)
    return number


__all__ = ["MBarrierLayout", "allocate_mbarrier", "arrive", "init", "invalidate", "wait"]
