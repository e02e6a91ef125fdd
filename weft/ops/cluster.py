"""Clusters: programs of several blocks, and the barrier of all their threads (PTX ISA, barrier.cluster).

A program is a cluster of `func.attrs.num_ctas` blocks. The `block` bits of layouts distribute tiles over the blocks. Scalars
are equal in all blocks unless they depend on the block's rank (`weft.analysis.apart`), and each block has its own shared
memory. In a thread-level kernel (`func.attrs.block`) there are no tiles, and each block runs its own threads.
"""

from __future__ import annotations

from weft.ir.core import Attrs, Effect, Value
from weft.ir.define import op
from weft.ir.types import RegsType, ScalarType, Type, int32, tile_type
from weft.layout import DistributedLayout
from weft.layout.shared.layouts import Pads
from weft.ops.check import barrier as check_barrier
from weft.ops.check import boolean, regs, require, same_type, scalar, shared_array, tile
from weft.ops.check import shared as shared_handle
from weft.ops.memory import Atomic
from weft.ops.shared import check_sent, check_store, load_type

# An arrival orders what came before it ahead of what follows the wait (see `passes.insert_sync`).


def _arrives(attrs: Attrs) -> tuple[Effect, ...]:
    return (Effect("sync", "cluster", waits=False, order="relaxed" if attrs["relaxed"] else "release"),)


WAITS = (Effect("sync", "cluster", order="acquire"),)


@op("cluster.rank")
def rank() -> Type:
    """Rank of the executing block in its cluster."""
    return ScalarType(int32)


@op("cluster.arrive", effects=_arrives, needs="block")
def arrive(relaxed: bool = False, reason: str = "") -> None:
    """Each thread arrives at the cluster barrier without waiting; with `relaxed` that orders none of its memory accesses.

    `reason` says why a pass inserted it; it is empty for the author's."""


@op("cluster.wait", effects=WAITS, needs="block")
def wait(reason: str = "") -> None:
    """Each thread waits until all threads of the cluster have arrived; their accesses before the arrival are visible to it."""


@op("cluster.barrier", effects=(Effect("sync", "threads"), *WAITS), needs="block")
def barrier(bar: Value | None, reason: str = "") -> None:
    """Barrier of the threads of one partition in all blocks of the cluster. `bar` is the mbarrier of the region, in each block,
    where every warp of every block arrives; `meet_partitions` sets it."""
    if bar is not None:
        check_barrier(bar)


# Distributed shared memory: a thread's accesses to the shared memory of other blocks of the cluster (PTX ISA, "mapa", and the
# state space .shared::cluster). Access i is to the memory of the block of rank `peer ^ peers[i]`, at the same offsets as by
# `shared.load_regs`. Accesses of one element each are those of threads, too.

Table = tuple[int, ...]


@op("cluster.convert", stage="tile", removed_by="lower_tiles", needs="block")
def convert(x: Value, bar: Value | None, layout: DistributedLayout, first: bool = False) -> Type:
    """The same tile in a layout whose blocks hold other elements: all blocks exchange them through their shared memory.

    It orders no other accesses of the blocks. `first`: an element that several blocks hold is that of the block of lowest rank
    (as after an atomic, which one block executes for all). `bar` as in `barrier`, in a warp-specialised kernel."""
    t = tile(x)
    if bar is not None:
        check_barrier(bar)
    return tile_type(t.element, t.shape, layout)


@op("cluster.load", effects=(Effect("read", "shared", "handle", remote=True),), stage="tile", removed_by="lower_tiles")
def load(handle: Value, peer: Value, layout: DistributedLayout) -> Type:
    """Load the block's part of a tile from its places in the memory of the block of rank `peer`."""
    t = shared_handle(handle)
    scalar(peer, int32)
    require(len(t.shape) == t.layout.rank, "{} holds several tiles", t)
    return tile_type(t.element, t.shape, layout)


@op(
    "cluster.store", effects=(Effect("write", "shared", "handle", remote=True),), stage="tile", removed_by="lower_tiles"
)
def store(handle: Value, peer: Value, value: Value) -> None:
    """Store the block's part of a tile to the memory of the block of rank `peer`, each block for itself."""
    _check_stored(handle, peer, value)


@op(
    "cluster.async_store",
    effects=(
        Effect("write", "shared", "handle", completes="mbarrier", remote=True), Effect("update", "shared", "bar", remote=True),
    ),
    stage="tile",
    needs="block",
    removed_by="lower_tiles",
)  # fmt: skip
def async_store(handle: Value, peer: Value, value: Value, bar: Value) -> None:
    """As `store`, by PTX st.async, whose bytes complete on the mbarrier of the block of rank `peer`."""
    _check_stored(handle, peer, value)
    check_barrier(bar)


def _check_stored(handle: Value, peer: Value, value: Value) -> None:
    t, v = shared_handle(handle), tile(value)
    scalar(peer, int32)
    require((t.element, t.shape) == (v.element, v.shape), "{} stored to {}", v, t)


def _check_peers(base: Value, peer: Value, offsets: Table, peers: Table) -> None:
    """Check the places of accesses to other blocks."""
    scalar(base, int32)
    scalar(peer, int32)
    require(len(offsets) == len(peers), "a peer per access")


@op("cluster.load_regs", effects=(Effect("read", "shared", "memory", remote=True),), stage="lowered")
def load_regs(
    memory: Value,
    base: Value,
    peer: Value,
    offsets: Table,
    peers: Table,
    registers: tuple[Table, ...],
    vec: int,
    added: Table = (),
    pads: Pads = (),
) -> Type:
    """Load registers from the memory of other blocks; `registers` has each register of the result once."""
    _check_peers(base, peer, offsets, peers)
    return load_type(memory, offsets, added, registers, vec)


@op("cluster.store_regs", effects=(Effect("write", "shared", "memory", remote=True),), stage="lowered")
def store_regs(
    memory: Value,
    base: Value,
    peer: Value,
    value: Value,
    mask: Value | None,
    offsets: Table,
    peers: Table,
    registers: tuple[Table, ...],
    vec: int,
    added: Table = (),
    pads: Pads = (),
) -> None:
    """Store registers to the memory of other blocks. `mask` is a scalar."""
    _check_peers(base, peer, offsets, peers)
    check_store(memory, value, mask, offsets, added, registers, vec)


@op("cluster.load_at", effects=(Effect("read", "shared", "memory", remote=True),), scope="thread")
def load_at(memory: Value, index: Value, peer: Value, pads: Pads = ()) -> Type:
    """Read element `index[i]` of the block of rank `peer[i]` into register i."""
    same_type(index, peer)
    return RegsType(shared_array(memory).element, regs(index).count)


@op("cluster.store_at", effects=(Effect("write", "shared", "memory", remote=True),))
def store_at(memory: Value, index: Value, peer: Value, value: Value, mask: Value | None, pads: Pads = ()) -> None:
    """Write register i to element `index[i]` of the block of rank `peer[i]`. `mask` is a scalar."""
    boolean(mask)
    same_type(index, peer)
    require(regs(index).count == regs(value).count, "an index per value")
    require(value.type.element == shared_array(memory).element, "{} into {}", value.type, memory.type)


@op(
    "cluster.async_store_regs",
    effects=(
        Effect("write", "shared", "memory", completes="mbarrier", remote=True), Effect("update", "shared", "bar", remote=True),
    ),
    stage="lowered",
)  # fmt: skip
def async_store_regs(
    memory: Value,
    base: Value,
    peer: Value,
    value: Value,
    bar: Value,
    mask: Value | None,
    offsets: Table,
    peers: Table,
    registers: tuple[Table, ...],
    vec: int,
    added: Table = (),
    pads: Pads = (),
) -> None:
    """As `store_regs`, by PTX st.async: each access completes its bytes on the mbarrier of the block that it is to."""
    _check_peers(base, peer, offsets, peers)
    check_sent(memory, bar, vec)
    check_store(memory, value, mask, offsets, added, registers, vec)


@op(
    "cluster.atomic_at",
    effects=(Effect("read", "shared", "memory", remote=True), Effect("write", "shared", "memory", remote=True)),
    scope="thread",
)
def atomic_at(
    memory: Value, index: Value, peer: Value, value: Value, mask: Value | None, kind: Atomic, pads: Pads = ()
) -> Type:
    """Combine `value[i]` into element `index[i]` of the block of rank `peer[i]`, atomically among the cluster's threads, where
    `mask[i]` holds; returns the old values, 0 where it does not."""
    boolean(mask)
    same_type(index, peer)
    require(regs(index).count == regs(value).count, "an index per value")
    require(value.type.element == shared_array(memory).element, "{} into {}", value.type, memory.type)
    return value.type
