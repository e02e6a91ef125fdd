"""Mistakes between the blocks of a cluster, found while a kernel ran in the simulator."""

from __future__ import annotations

from weft.errors.base import Hazard, row


class ClusterBarrierMisuse(Hazard):
    """Arrivals and waits at a cluster's barrier that do not alternate."""


class BlockExited(Hazard):
    """An access to the shared memory of a block that has ended."""


CLUSTER_PAIR = row(
    "hazard-cluster-pair",
    ClusterBarrierMisuse,
    "program {program} {what} the barrier of its cluster twice",
    "call {wanted} in between: arrivals and waits alternate",
)
BLOCK_EXITED = row(
    "hazard-block-exited",
    BlockExited,
    "program {program}: block {block} uses shared memory of block {other}, which has ended",
    "end the kernel with cluster.barrier(), so that no block leaves while others need it",
)
