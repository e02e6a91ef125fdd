"""The barrier between all threads of all blocks of a cluster (`num_ctas`).

    cluster.arrive()
    ...                 # what does not depend on the other blocks
    cluster.wait()

Arrivals and waits alternate in every thread. Nobody comes to it inside of `warp_specialize`.
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
    """Come to the barrier and go on; a `wait` follows before the next arrival.

    What the threads did before is visible to who waits, unless `relaxed`: then nothing but the arrival is. Raises async-target,
    cluster-partition.
    """
    _check("cluster.arrive")
    apply_many(ops.arrive, (), relaxed=bool(relaxed))


@builtin
def wait() -> None:
    """Wait until all threads of all blocks have arrived. Raises async-target, cluster-partition."""
    _check("cluster.wait")
    apply_many(ops.wait, ())


@builtin
def barrier(relaxed: bool = False) -> None:
    """`arrive` and `wait`: all threads of all blocks arrive before any goes on. Raises the same errors."""
    _check("cluster.barrier")
    apply_many(ops.arrive, (), relaxed=bool(relaxed))
    apply_many(ops.wait, ())


def _check(what: str) -> None:
    demand(what, "clusters")
    partition = current().partition
    if partition:
        raise fail(errors.PARTITION, what=what, partition=partition)


__all__ = ["arrive", "barrier", "wait"]
