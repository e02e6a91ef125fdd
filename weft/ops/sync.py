"""Barriers between the threads of a block, fences of memory order, proxy fences, the order between launches, and the barrier of
the instruction schedule."""

from __future__ import annotations

from typing import Literal

from weft.ir.core import Attrs, Effect
from weft.ir.define import op
from weft.ops.check import require
from weft.ops.memory import MemoryScope


@op("sync.barrier", effects=(Effect("sync", "threads"),), needs="block")
def barrier(reason: str = "", of: str = "") -> None:
    """Barrier of the threads of the block (of the partition); orders their shared and global accesses.

    `reason` says why `insert_sync` inserted it; it is empty for the author's. `of` is the function of the language that the
    barrier is a part of."""


@op("sync.fence_async", effects=(Effect("sync", "shared", proxy="async"),), needs="block")
def fence_async(cluster: bool = False, reason: str = "") -> None:
    """Proxy fence: order earlier generic accesses to shared memory before later ones of the async proxy (fence.proxy.async).

    It orders the accesses of the executing thread, and those that happen before the fence. `reason` as in `barrier`."""


@op("sync.fence_async_global", effects=(Effect("sync", "global", proxy="async"),))
def fence_async_global() -> None:
    """Proxy fence: order accesses to global memory that happen before it before later ones of the async proxy
    (fence.proxy.async.global)."""


FenceOrder = Literal["acq_rel", "sc"]
"""The memory order of a fence: acq_rel makes relaxed accesses acquire and release; with sc all fences have one order, too."""


@op("sync.fence", effects=(Effect("sync", "global", order="acq_rel"),))
def fence(order: FenceOrder = "acq_rel", scope: MemoryScope = "gpu") -> None:
    """Fence of each thread that executes it (fence.acq_rel): a release with a later relaxed write, an acquire with an earlier
    relaxed read."""


@op("sync.block", effects=(Effect("sync", "threads"),), needs="block")
def block_barrier() -> None:
    """Barrier of all threads of the block, of all its partitions."""


@op("sync.warp", effects=(Effect("sync", "warp"),), needs="warp")
def warp_barrier() -> None:
    """Barrier of the threads of a warp; orders their accesses among each other (PTX bar.warp.sync)."""


def _named(attrs: Attrs) -> tuple[Effect, ...]:
    return (Effect("sync", "threads", waits=not attrs["arrive"]),)


@op("sync.named", effects=_named, needs="block")
def named_barrier(number: int, warps: int, arrive: bool = False) -> None:
    """Named barrier of the author: it waits until `warps` warps of the block have arrived (PTX bar.sync).

    With `arrive` the partition arrives without waiting (bar.arrive)."""
    require(0 <= number < 16, "named barriers have numbers from 0 to 15")
    require(1 <= warps <= 32, "a block has 1 to 32 warps")


@op("sync.schedule_barrier", effects=(Effect("read", "io"),))
def schedule_barrier(reason: str = "") -> None:
    """A point across which ptxas moves no instruction. It orders nothing between threads. `reason` as in `barrier`; it says why
    `hold_waits` inserted it."""


@op("sync.gdc_wait", effects=(Effect("sync", "grid", order="acquire"),), needs="block")
def gdc_wait() -> None:
    """Wait until the launches that this one depends on are complete and all that they wrote is visible
    (PTX griddepcontrol.wait). No effect in a launch without `launch_pdl=True`."""


@op("sync.gdc_launch_dependents", effects=(Effect("sync", "grid", waits=False),), needs="block")
def gdc_launch_dependents() -> None:
    """This block no longer holds up the start of launches that depend on this one (PTX griddepcontrol.launch_dependents). It
    publishes nothing."""
