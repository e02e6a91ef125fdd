"""Clusters: programs of several blocks, and the barrier of all their threads (PTX ISA, barrier.cluster).

A program is a cluster of `func.attrs.num_ctas` blocks. The `block` bits of layouts distribute tiles over the blocks. Scalars
are equal in all blocks, and each block has its own shared memory. In a thread-level kernel (`func.attrs.block`) there are no
tiles, and each block runs its own threads.
"""

from __future__ import annotations

from weft.ir.core import Attrs, Effect
from weft.ir.define import op
from weft.ir.types import ScalarType, Type, int32

# An arrival orders what came before it ahead of what follows the wait (see `passes.insert_sync`).


def _arrives(attrs: Attrs) -> tuple[Effect, ...]:
    return (Effect("sync", "cluster", waits=False, order="relaxed" if attrs["relaxed"] else "release"),)


WAITS = (Effect("sync", "cluster", order="acquire"),)


@op("cluster.rank")
def rank() -> Type:
    """Rank of the executing block in its cluster. In tile IR only thread-level kernels have it: scalars of others are equal in
    all blocks."""
    return ScalarType(int32)


@op("cluster.arrive", effects=_arrives, needs="block")
def arrive(relaxed: bool = False, reason: str = "") -> None:
    """Each thread arrives at the cluster barrier without waiting; with `relaxed` that orders none of its memory accesses.

    `reason` says why a pass inserted it; it is empty for the author's."""


@op("cluster.wait", effects=WAITS, needs="block")
def wait(reason: str = "") -> None:
    """Each thread waits until all threads of the cluster have arrived; their accesses before the arrival are visible to it."""
