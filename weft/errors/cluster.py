"""Mistakes with clusters: data exchanged between blocks, barriers that blocks share, cluster launch control."""

from __future__ import annotations

from weft.errors.base import CompilationError, LayoutError, row

EXCHANGE = row(
    "cluster-exchange",
    LayoutError,
    "{what} would move elements between the blocks of the cluster: {first}, but {second}",
    "{fix}",
)
PARTITION = row(
    "cluster-partition",
    CompilationError,
    "{what} must be executed by all threads of the cluster, but it is in the partition {partition} of warp_specialize",
    "call cluster.barrier(), which is the barrier of the partition's threads in all CTAs, or call it before or after "
    "warp_specialize",
)
MISSING = row(
    "cluster-missing",
    CompilationError,
    "{what} in a kernel that is launched without a cluster",
    "launch with num_ctas=2 or more; for the threads of one block write gl.barrier()",
)
STORE = row(
    "cluster-store",
    CompilationError,
    "{what} in a kernel that is launched without a cluster, where the GPU has no such store (st.async)",
    "launch with num_ctas=2 or more, or store with buffer.store(value) and gl.barrier()",
)
PEER = row(
    "cluster-peer",
    CompilationError,
    "{got} lies in the blocks 0 to {last} of the cluster, but peer({rank}) asks for another",
    "pass a rank below gl.num_ctas(), such as (gl.block_rank_in_cluster() + 1) % gl.num_ctas()",
)
VIEW = row(
    "cluster-view",
    CompilationError,
    "peer() of a view of {space}: the blocks of a cluster access each other's shared memory only",
    "call it on a view of shared memory in a kernel, as gl.stack_allocation[dtype, gl.AddressSpace.SHARED](layout) gives it",
)
DIVIDED = row(
    "cluster-divided",
    CompilationError,
    "{what} needs all blocks of the cluster, but they take the condition around it differently",
    "leave under the condition only what a block does for itself, or decide with values that all blocks share",
)
TILES = row(
    "cluster-tiles",
    CompilationError,
    "{what} works on tiles or descriptors, but with block= and num_ctas={num_ctas} each block runs its own threads",
    "use views and scalars, or leave block= out: in a kernel for tiles a program is the whole cluster",
)
NESTED = row(
    "cluster-nested",
    CompilationError,
    "{what} is in a loop or branch of a kernel with warp_specialize, where the worker partitions do not reach it",
    "write cluster.barrier(), for which the warps that reach it suffice, or move it out of the loop or branch",
)
SIGNAL = row(
    "cluster-signal",
    CompilationError,
    "{what} signals one barrier per block, but this barrier is shared by several blocks ({layout})",
    "use mbarrier.allocate_mbarrier(), which makes a barrier in each block",
)
SLICE = row(
    "cluster-slice",
    LayoutError,
    "{what} of {got}, a part of a tile {tile} in {layout}: its memory is in other blocks of the cluster than those that copy "
    "it, but {limit}",
    "slice along a dimension that cga_layout does not split, or copy whole tiles",
)
FROM_CTA = row(
    "cluster-from-cta",
    CompilationError,
    "from_cta of {what} is {got}, which {problem}",
    "pass the mask of the bits of a CTA's rank that its sender has too, from 0 (CTA 0 sends to all) to {most} (each to itself)",
)
SENDER = row(
    "cluster-sender",
    CompilationError,
    "sender is {got}, but the blocks that can send {desc} are {known}",
    "pass one of these; for several senders launch with num_ctas and a cga_layout of zero vectors",
)
IM2COL = row(
    "cluster-im2col",
    LayoutError,
    "the block of an im2col descriptor is split over the blocks of a cluster by {layout}",
    "use a cga_layout of zero vectors, which puts a copy into each block",
)

# Cluster launch control

CLC_RESULT = row(
    "clc-result",
    CompilationError,
    "{what} got {got} for the response",
    "use gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0])); of several choose one, as in "
    "results.index(i)",
)
CLC_DIMENSION = row(
    "clc-dimension",
    CompilationError,
    "program_id({dim}) of a response, but a grid has 3 dimensions",
    "pass 0, 1 or 2",
)
