"""Who and where a program, warp or thread is, and barriers between a block's threads."""

from __future__ import annotations

from math import prod

from weft.ir.core import Attrs, Effect, Func, Value
from weft.ir.define import op
from weft.ir.types import ScalarType, Type, int32
from weft.layout import WARP_SIZE
from weft.ops.check import require


@op("program.id")
def program_id(axis: int) -> Type:
    """Index of this program along grid axis 0, 1 or 2."""
    require(axis in (0, 1, 2), "a grid has axes 0, 1 and 2")
    return ScalarType(int32)


@op("program.count")
def num_programs(axis: int) -> Type:
    """Number of programs along grid axis 0, 1 or 2."""
    require(axis in (0, 1, 2), "a grid has axes 0, 1 and 2")
    return ScalarType(int32)


@op("program.warp", scope="warp")
def warp_id() -> Type:
    """Index of the executing warp in its block (in its partition under warp specialisation)."""
    return ScalarType(int32)


@op("program.lane", scope="thread")
def lane_id() -> Type:
    """Index of the executing thread in its warp."""
    return ScalarType(int32)


@op("program.thread", scope="thread")
def thread_id() -> Type:
    """Index of the executing thread in its block (in its partition under warp specialisation): warp * 32 + lane."""
    return ScalarType(int32)


@op("program.uniform", elementwise=True)
def uniform(x: Value) -> Type:
    """The same scalar, claimed by the author to be equal in all threads of the block; the simulator checks it."""
    return x.type


@op("sync.barrier", effects=(Effect("sync", "threads"),), needs="block")
def barrier(reason: str = "") -> None:
    """All threads of the block (of the partition) arrive before any goes on; their shared and global accesses are ordered.

    `reason` says what it keeps apart when `insert_sync` placed it; the author's own have none."""


@op("sync.fence_async", effects=(Effect("sync", "shared", proxy="async"),), needs="block")
def fence_async(cluster: bool = False, reason: str = "") -> None:
    """Order each thread's accesses to shared memory so far before later ones of the async proxy (PTX fence.proxy.async).

    It orders what the executing thread did, or knows to be done. `reason` as for `barrier`."""


@op("sync.block", effects=(Effect("sync", "threads"),), needs="block")
def block_barrier() -> None:
    """All threads of the block, of all its partitions, arrive before any goes on."""


@op("sync.warp", effects=(Effect("sync", "warp"),), needs="warp")
def warp_barrier() -> None:
    """All threads of the warp arrive before any goes on; their accesses are ordered, those of other warps are not."""


def _named(attrs: Attrs) -> tuple[Effect, ...]:
    return (Effect("sync", "threads", waits=not attrs["arrive"]),)


@op("sync.named", effects=_named, needs="block")
def named_barrier(number: int, warps: int, arrive: bool = False) -> None:
    """The author's barrier of a number: it waits until `warps` warps of the block have come (PTX bar.sync).

    With `arrive` the partition comes but does not wait (bar.arrive)."""
    require(0 <= number < 16, "named barriers have numbers from 0 to 15")
    require(1 <= warps <= 32, "a block has 1 to 32 warps")


def threads_of(func: Func) -> int:
    """Threads of a block: as many as a launch with `block=` has, else whole warps, those of all partitions."""
    attrs = func.attrs
    if attrs.block is not None and attrs.total_warps is None:
        return prod(attrs.block)
    return attrs.warps_of_block * WARP_SIZE
