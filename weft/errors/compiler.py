"""Mistakes found after a kernel has been read: by passes over tile IR, by lowering to a target, by emission of CUDA text."""

from __future__ import annotations

from weft.errors.base import CompilationError, PerformanceWarning, row
from weft.errors.launch import OutOfResources

# Layouts and fences

LAYOUT_CONFLICT = row(
    "resolve-conflict",
    CompilationError,
    "the layout of {value} is left to the compiler, but its uses need two layouts: {first} and {second}",
    "make one tile for each use, or give it the first layout and write gl.convert_layout({value}, {second}) for the second",
)
LAYOUT_OPEN = row(
    "resolve-open",
    CompilationError,
    "the layout of {value} cannot be inferred: no tile that it is combined with has a layout",
    "make it with layout=..., or call set_auto_layout(value, layout) on it",
)
FENCE = row(
    "sync-fence",
    CompilationError,
    "{what} accesses {buffer} through the async proxy, but threads accessed it {line}, and no fence orders the two proxies",
    "write fence_async_shared() between the two, or let weft insert it: drop sync='explicit'",
)

# Accumulators of MMAs in flight

ACCUMULATOR_READ = row(
    "accumulator-in-flight",
    CompilationError,
    "{name} is used here, but the MMA that computes it may still be in flight",
    "wait for the MMA and use the result of the wait: {name} = warpgroup_mma_wait(0, ({name},))",
)
ACCUMULATOR_KEPT = row(
    "accumulator-kept",
    CompilationError,
    "{name} is used here again after it was passed on while its MMA was in flight: its registers were updated in place, and "
    "could not be copied",
    "use the value that it was passed on to, or wait for the MMA first",
)
ACCUMULATOR_MOVED = row(
    "accumulator-moved",
    CompilationError,
    "{name} would have to move to other registers here while its MMA is in flight",
    "wait for the MMA first, or keep every accumulator in the same variable across iterations",
)
ACCUMULATOR_SIZE = row(
    "accumulator-registers",
    PerformanceWarning,
    "accumulators take {bytes} of the {limit} bytes of registers of each thread: with addresses and operands they will spill "
    "to local memory",
    "use more warps for the tile (now {warps}), or a smaller tile",
)

PRODUCT_WAITS = row(
    "mma-registers-wait",
    PerformanceWarning,
    "this MMA is waited for at once: its left operand lies in registers, which must not change before the MMA is complete, and "
    "no wait completes it in the same block of statements, nor in the next iteration of a loop that weft can unroll by two",
    "wait for it before the block ends, or in the next iteration of a loop over range() with a constant positive step; or put "
    "the operand into shared memory",
)

# Tensor memory

TMEM_COLUMNS = row(
    "tensor-memory",
    OutOfResources,
    "the kernel needs {total} columns of tensor memory, but the target has {limit} per block: {bill}",
    "use smaller tiles or fewer buffers, or let data that is not live at the same time share a buffer, by .slice or "
    ".reinterpret",
)
TMEM_WARPS = row(
    "tensor-memory-warps",
    CompilationError,
    "{what} is executed by {who}, which has {warps} warps, but warp w can access only lanes 32 * (w % 4) to 32 * (w % 4) + 31 "
    "of tensor memory, so all lanes need four warps",
    "give it 4 warps, or 8: {where}",
)

# Thread-level kernels

THREAD_BLOCK = row(
    "thread-block-warps",
    CompilationError,
    "{what} needs {needs}, but the block has {threads} threads, {block}",
    "launch with a multiple that fits, for example block={instead}",
)
THREAD_MISALIGNED = row(
    "thread-misaligned",
    CompilationError,
    "an access of {count} elements of {dtype} ({width} bytes) needs an address that is a multiple of {width}; the offset from "
    "the argument {name} is one, but the address of {name} itself is only known to be a multiple of {known}",
    "pass {name} at a 16-byte aligned address, as a fresh array has, and without do_not_specialize; or vectorize by at most "
    "{fits}",
)
THREAD_LOCAL_CHOSEN = row(
    "thread-local-chosen",
    CompilationError,
    "{name} is one of several thread-local arrays, selected here at run time, but thread-local arrays have no addresses",
    "select the element instead: read both arrays, or keep them as two parts of one array and select the index",
)

# Lowering to a target

SHARED_MEMORY = row(
    "shared-memory",
    OutOfResources,
    "the kernel needs {total} bytes of shared memory, but the target has {limit} per block: {bill}",
    "use smaller or fewer buffers, smaller tiles, or layouts between which a conversion needs no shared memory",
)
SCOPE = row(
    "control-scope",
    CompilationError,
    "{what} must be executed by the whole {needs}, but it is under a condition that may differ in each {scope}",
    "{instead}",
)
HANDLES = row(
    "lower-handles",
    CompilationError,
    "control flow merges two handles {type} whose offsets differ: one begins at {first}, the other at {second}",
    "select whole tiles at run time, as in bufs.index(i), and slice them where they are used",
)
TARGET = row(
    "lower-target",
    CompilationError,
    "{what} needs a GPU that has {needs}, which {target} does not have",
    "compile for {since} or later",
)
ASYNC_COPY_WIDTH = row(
    "async-copy-width",
    CompilationError,
    "an asynchronous copy moves 4, 8 or 16 bytes at a time, but of a thread's elements of {dtype} ({bits} bits each) only "
    "{in_global} are known to be contiguous in global memory under one mask, and {in_shared} are contiguous in shared memory",
    "give each thread {least} neighbours along the dimension that is contiguous in both memories; promise what weft cannot "
    "prove (gl.multiple_of, gl.max_contiguous, for the mask gl.max_constancy); if the mask begins inside a copy and the "
    "elements before it are not read, write zeros=False; or load the tile and store it",
)
ASYNC_STORE_WIDTH = row(
    "async-store-width",
    CompilationError,
    "an asynchronous store moves at least 4 bytes at a time, but of a thread's elements of {dtype} only {vec} are contiguous "
    "in shared memory",
    "give each thread {least} neighbours along the dimension that is contiguous in shared memory, or use smem.store",
)
IM2COL_PIXELS = row(
    "tma-im2col-pixels",
    CompilationError,
    "a block of {pixels} pixels exceeds the {limit} that one im2col load copies",
    "use blocks of at most {limit} pixels and issue several loads",
)

# CUDA text: what a target or PTX does not support

CUDA_FLOAT8 = row(
    "cuda-float8",
    CompilationError,
    "this line computes with or converts {dtype}, for which {target} has no instructions",
    "compile for sm_90a or later, or keep such values in memory only and compute in float16",
)
CUDA_FLOAT8_ROUNDING = row(
    "cuda-float8-rounding",
    CompilationError,
    "the conversion to {dtype} is requested to round towards zero, but GPUs only round it to nearest even",
    "leave out fp_downcast_rounding='rtz', or convert to float16",
)
CUDA_ATOMIC_TYPE = row(
    "cuda-atomic-type",
    CompilationError,
    "an atomic {kind} on {dtype} has {bits} bits, but GPUs have no atomics of fewer than 16",
    "use elements of 16, 32 or 64 bits",
)
CUDA_ASM_CONSTRAINTS = row(
    "cuda-asm-constraints",
    CompilationError,
    "the constraints {constraints!r} name {got} registers, but {outputs} results and {inputs} operands{packs} take {need}",
    "write one constraint per 32-bit register (per element where elements are wider), results first",
)
CUDA_ASM_CONSTRAINT = row(
    "cuda-asm-constraint",
    CompilationError,
    "the constraint {constraint!r} is not one of inline PTX",
    "use h, r, l, f or d (16, 32, 64 bits, float, double) or the number of a result, with = before those of results",
)
CUDA_ASM_OPERAND = row(
    "cuda-asm-operand",
    CompilationError,
    "the inline PTX names ${number}, but it has {count} operands, results first",
    "number operands from $0 to ${last}; a dollar sign itself is $$",
)
