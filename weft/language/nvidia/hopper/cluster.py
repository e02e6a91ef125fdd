"""The barrier of all threads of a cluster (`num_ctas`).

    cluster.arrive()
    ...                 # code that does not depend on other CTAs
    cluster.wait()

Arrivals and waits alternate in every thread. Inside of `warp_specialize` only `barrier()` is available; there it is the barrier
of the partition's threads in all CTAs. A kernel without a cluster has no barrier of it (cluster-missing).
"""

from __future__ import annotations

from weft.errors import cluster as errors
from weft.errors import fail
from weft.language.context import current
from weft.language.marks import builtin
from weft.language.nvidia.checks import demand
from weft.language.tensor import apply_many
from weft.ops import cluster as ops


@builtin
def arrive(relaxed: bool = False) -> None:
    """Arrive without waiting; a `wait` must follow before the next arrival.

    Earlier memory accesses are visible to threads after their wait, unless `relaxed`, which orders no accesses. Raises
    async-target, cluster-partition.
    """
    _check("cluster.arrive()")
    apply_many(ops.arrive, (), relaxed=bool(relaxed))


@builtin
def wait() -> None:
    """Wait until all threads of the cluster have arrived. Raises async-target, cluster-partition."""
    _check("cluster.wait()")
    apply_many(ops.wait, ())


@builtin
def barrier(relaxed: bool = False) -> None:
    """`arrive` followed by `wait`; in a partition, a barrier of its threads in all CTAs.

    Raises async-target, cluster-missing."""
    if current().partition:
        _check_cluster("cluster.barrier()")
        apply_many(ops.barrier, (None,))
        return
    _check("cluster.barrier()")
    apply_many(ops.arrive, (), relaxed=bool(relaxed))
    apply_many(ops.wait, ())


def _check(what: str) -> None:
    _check_cluster(what)
    partition = current().partition
    if partition:
        raise fail(errors.PARTITION, what=what.removesuffix("()"), partition=partition)


def _check_cluster(what: str) -> None:
    demand(what.removesuffix("()"), "clusters")
    if current().num_ctas == 1:
        raise fail(errors.MISSING, what=what)


__all__ = ["arrive", "barrier", "wait"]
