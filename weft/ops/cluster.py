"""Clusters: programs of several blocks, and the barrier between all of their threads (PTX ISA, barrier.cluster).

One program is a cluster of func.attrs.num_ctas blocks. Tiles span the blocks by the
`block` bits of their layouts; scalars are equal in all blocks. Each block has shared memory of its own.
"""

from __future__ import annotations

from weft.ir.core import Attrs, Effect
from weft.ir.define import op
from weft.ir.types import ScalarType, Type, int32

# An arrival orders what came before it ahead of what follows the wait (see `passes.insert_sync`).


def _arrives(attrs: Attrs) -> tuple[Effect, ...]:
    return (Effect("sync", "cluster", waits=False, order="relaxed" if attrs["relaxed"] else "release"),)


WAITS = (Effect("sync", "cluster", order="acquire"),)


@op("cluster.rank", stage="lowered")
def rank() -> Type:
    """Index of the executing block in its cluster."""
    return ScalarType(int32)


@op("cluster.arrive", effects=_arrives, needs="block")
def arrive(relaxed: bool = False, reason: str = "") -> None:
    """Each thread comes to the barrier of the cluster and goes on; with `relaxed` its memory accesses are not ordered by that.

    `reason` says what it is for when a pass placed it; the author's own have none."""


@op("cluster.wait", effects=WAITS, needs="block")
def wait(reason: str = "") -> None:
    """Each thread waits until all threads of all blocks have arrived: what they did before is visible to it."""
