"""Clusters of thread-level kernels, launched with `block=` and `num_ctas=`: a program is a cluster of `num_ctas` blocks.

kernel[8](..., block=256, num_ctas=4)       # 8 clusters of 4 blocks: gl.block_idx.x is 0 to 31
if gl.block_rank_in_cluster() == 0: ...
gl.cluster_sync()
"""

from __future__ import annotations

from typing import Any

from weft.ir.types import int32
from weft.language import logic
from weft.language.broadcast import constant
from weft.language.context import current
from weft.language.marks import builtin
from weft.language.nvidia.hopper import cluster
from weft.language.program import lane_id, program_id
from weft.language.tensor import apply, tensor
from weft.language.thread import Coordinates
from weft.ops import cluster as ops


@builtin
def block_rank_in_cluster() -> tensor:
    """The rank of the executing block in its cluster, an int32; 0 without a cluster.

    In a kernel for tiles other scalars are equal in all blocks, and one block stores a scalar for all. Under a condition on the
    rank, or with an address, value or mask that depends on it, each block acts for itself: under `if rank == 1:` block 1 does.
    What needs all blocks is refused there (cluster-divided)."""
    return constant(0, int32) if current().num_ctas == 1 else apply(ops.rank)


cluster_dim = Coordinates("cluster_dim", lambda _, axis: 1 if axis else current().num_ctas)
"""The number of blocks of a cluster along each axis: compile-time integers. Blocks of a cluster are neighbours along x."""
cluster_idx = Coordinates("cluster_idx", lambda _, axis: program_id(axis))
"""The index of the cluster in the grid of clusters: `program_id(0)` and so on."""

cluster_arrive = cluster.arrive
cluster_wait = cluster.wait


@builtin
def cluster_sync() -> None:
    """A barrier of all threads of the cluster: `cluster_arrive()`, `cluster_wait()`. Raises cluster-missing, async-target."""
    cluster.barrier()


@builtin
def elect_one_sync() -> Any:
    """True in one thread of each warp, which is lane 0."""
    return logic.compare("eq", lane_id(), 0)
