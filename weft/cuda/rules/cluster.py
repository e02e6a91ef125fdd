"""Clusters: the CTA's rank, and the cluster barrier."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, emits, spells
from weft.ir.core import Op
from weft.ops import cluster


@spells(cluster.rank)
def _rank(e: Emitter, op: Op) -> str:
    return e.call("cluster_rank")


# Without qualifiers `arrive` is a release and `wait` an acquire; a relaxed arrival orders nothing (PTX ISA, barrier.cluster).


@emits(cluster.arrive)
def _arrive(e: Emitter, op: Op) -> None:
    e.out.line(f"{e.call('cluster_arrive_relaxed' if op.attrs['relaxed'] else 'cluster_arrive')};")


@emits(cluster.wait)
def _wait(e: Emitter, op: Op) -> None:
    e.out.line(f"{e.call('cluster_wait')};")
