"""Indices of programs, warps and threads, and barriers between the threads of a block."""

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
    """The same scalar, which the author asserts to be uniform across the block; the simulator checks it."""
    return x.type


@op("sync.barrier", effects=(Effect("sync", "threads"),), needs="block")
def barrier(reason: str = "") -> None:
    """Barrier of the threads of the block (of the partition); orders their shared and global accesses.

    `reason` says why `insert_sync` inserted it; it is empty for the author's."""


@op("sync.fence_async", effects=(Effect("sync", "shared", proxy="async"),), needs="block")
def fence_async(cluster: bool = False, reason: str = "") -> None:
    """Proxy fence: order earlier generic accesses to shared memory before later ones of the async proxy (fence.proxy.async).

    It orders the accesses of the executing thread, and those that happen before the fence. `reason` as in `barrier`."""


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


def threads_of(func: Func) -> int:
    """The number of threads of a block: given by a launch with `block=`, else that of the warps of all partitions."""
    attrs = func.attrs
    if attrs.block is not None and attrs.total_warps is None:
        return prod(attrs.block)
    return attrs.warps_of_block * WARP_SIZE
