"""Mistakes with warp specialisation: partitions, what they take and return, their warps, registers and barriers."""

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
    "worker {worker} is to have {warps} warps",
    "give each worker 1, 2, 4, 8 or 16 warps, known at compile time",
)
REGISTERS = row(
    "partitions-registers",
    CompilationError,
    "worker {worker} is to have {registers} registers for each thread",
    "give a multiple of 8 from 24 to 256, known at compile time",
)
NESTED = row(
    "partitions-nested",
    CompilationError,
    "warp_specialize is called in the partition {outer}, whose warps are split off already",
    "call it once in the kernel itself, with a function for each role",
)
UNDER_CONTROL = row(
    "partitions-under-control",
    CompilationError,
    "warp_specialize stands in a branch or loop that is decided at run time, but all warps of the block must come to it",
    "move the branch or loop into the partitions' functions; an early return before the call counts as a branch too",
)

# What crosses

WORKER_TAKES = row(
    "partitions-worker-takes",
    CompilationError,
    "worker {worker} is given {got}, which lies in the registers of the default partition's threads",
    "store it to shared memory and pass the handle, or let the worker load it itself",
)
WORKER_RETURNS = row(
    "partitions-worker-returns",
    CompilationError,
    "worker {worker} returns {got}, but only the default partition can return something",
    "let it store its result to shared or global memory",
)
WORKER_SCOPE = row(
    "partitions-worker-scope",
    CompilationError,
    "a worker uses {value}, which each {scope} of the default partition has of its own",
    "pass what all threads agree on (gl.uniform claims that), or compute it in the worker",
)
WORKER_HANDLE = row(
    "partitions-worker-handle",
    CompilationError,
    "a worker uses {value}, a handle that is chosen by run-time control flow in the default partition",
    "pass the whole allocation and the index, and let the worker take .index(i)",
)

# What a block has

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
    "registers are asked for workers, but {target} cannot move registers between warps",
    "drop worker_num_regs, or compile for a target that can (sm_90a, sm_100a)",
)

# Named barriers

BARRIER_NUMBER = row(
    "partitions-barrier-number",
    CompilationError,
    "a named barrier has number {number}",
    "use numbers from 0 to 14 that are known at compile time; each partition takes one of these away",
)
BARRIER_WARPS = row(
    "partitions-barrier-warps",
    CompilationError,
    "a named barrier is to wait for {warps} warps",
    "give the number of all warps that come to it, from 1 to 32, known at compile time",
)
BARRIERS = row(
    "partitions-barriers",
    CompilationError,
    "named barrier {number} would be hardware barrier {hardware}, but a block has {limit} of them: one is the block's own, "
    "{partitions} belong to its partitions",
    "use smaller numbers, or mbarriers",
)
