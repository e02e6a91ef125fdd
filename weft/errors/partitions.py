"""Mistakes with warp specialisation: partitions, their arguments and results, their warps, registers and barriers."""

from __future__ import annotations

from weft.errors.base import CompilationError, row

# The call

ENTRIES = row(
    "partitions-entries",
    CompilationError,
    "warp_specialize needs a list of (function, (arguments, ...)) pairs, the default partition first, but got {got}",
    "write gl.warp_specialize([(default, (a,)), (worker, (b, c))], worker_num_warps=[1])",
)
COUNTS = row(
    "partitions-counts",
    CompilationError,
    "warp_specialize has {workers} workers, but {what} has {count} entries",
    "give one number for each function but the first",
)
WARPS = row(
    "partitions-warps",
    CompilationError,
    "worker {worker} cannot have {warps} warps",
    "give each worker 1, 2, 4, 8 or 16 warps, known at compile time",
)
REGISTERS = row(
    "partitions-registers",
    CompilationError,
    "worker {worker} cannot have {registers} registers per thread",
    "give a multiple of 8 from 24 to 256, known at compile time",
)
NESTED = row(
    "partitions-nested",
    CompilationError,
    "warp_specialize is called in the partition {outer} of another warp_specialize",
    "call it once in the kernel itself, with a function for each role",
)
UNDER_CONTROL = row(
    "partitions-under-control",
    CompilationError,
    "warp_specialize is in a branch or loop that is decided at run time, but all warps of the block must reach it",
    "move the branch or loop into the partitions' functions; an early return before the call counts as a branch too",
)

# Values that cross into and out of partitions

WORKER_TAKES = row(
    "partitions-worker-takes",
    CompilationError,
    "worker {worker} is passed {got}, which is in registers of the default partition's threads",
    "store it to shared memory and pass the handle, or let the worker load it itself",
)
WORKER_RETURNS = row(
    "partitions-worker-returns",
    CompilationError,
    "worker {worker} returns {got}, but only the default partition can return a value",
    "store the result to shared or global memory in the worker",
)
WORKER_SCOPE = row(
    "partitions-worker-scope",
    CompilationError,
    "a worker uses {value}, which may differ in each {scope} of the default partition",
    "pass a value that is uniform in the block (gl.uniform asserts that), or compute it in the worker",
)
WORKER_HANDLE = row(
    "partitions-worker-handle",
    CompilationError,
    "a worker uses {value}, a handle that is chosen by run-time control flow in the default partition",
    "pass the whole allocation and the index, and take .index(i) in the worker",
)

# Warps and registers of a block

TOO_MANY_WARPS = row(
    "partitions-too-many-warps",
    CompilationError,
    "the kernel's {default} warps and its workers' take {total} warps in all, but a block has at most {limit} "
    "(workers with registers of their own, and those of 4 warps and more, begin at multiples of 4 warps)",
    "use fewer workers, fewer warps for some, or a smaller num_warps",
)
POOL = row(
    "partitions-register-pool",
    CompilationError,
    "the workers' registers leave {left} for each thread of the default partition: {pool} registers start with the block, "
    "workers take {taken} (each warpgroup of 4 warps as many as its largest)",
    "give workers fewer registers, so that at least 24 remain, or raise maxnreg",
)
NO_REGISTERS = row(
    "partitions-no-registers",
    CompilationError,
    "worker_num_regs is given, but {target} cannot reallocate registers between warps",
    "drop worker_num_regs, or compile for a target that can (sm_90a, sm_100a)",
)

# Named barriers

BARRIER_NUMBER = row(
    "partitions-barrier-number",
    CompilationError,
    "a named barrier cannot have the number {number}",
    "use numbers from 0 to 14 that are known at compile time; each partition uses up one of them",
)
BARRIER_WARPS = row(
    "partitions-barrier-warps",
    CompilationError,
    "a named barrier cannot wait for {warps} warps",
    "give the number of all warps that arrive at it, from 1 to 32, known at compile time",
)
BARRIERS = row(
    "partitions-barriers",
    CompilationError,
    "named barrier {number} would be hardware barrier {hardware}, but a block has {limit} of them: one is the block's own, "
    "{partitions} belong to its partitions",
    "use smaller numbers, or mbarriers",
)
