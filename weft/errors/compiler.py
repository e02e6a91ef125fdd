"""Mistakes that show once a kernel has been read: in passes over tile IR, in lowering to a target, as CUDA text."""

from __future__ import annotations

from weft.errors.base import CompilationError, PerformanceWarning, row
from weft.errors.launch import OutOfResources

# Layouts and fences

LAYOUT_CONFLICT = row(
    "resolve-conflict",
    CompilationError,
    "{value} is left to the compiler, but its uses need two layouts: {first} and {second}",
    "make one tile for each use, or give it the first layout and write gl.convert_layout({value}, {second}) for the second",
)
LAYOUT_OPEN = row(
    "resolve-open",
    CompilationError,
    "nothing says how the elements of {value} lie in threads: no tile that it meets has a layout",
    "make it with layout=..., or call set_auto_layout(value, layout) on it",
)
FENCE = row(
    "sync-fence",
    CompilationError,
    "{what} reaches {buffer} through the async proxy, but threads accessed it {line}, and nothing orders the two proxies",
    "write fence_async_shared() between the two, or let weft place it: drop sync='explicit'",
)

# Accumulators of asynchronous products

ACCUMULATOR_READ = row(
    "accumulator-in-flight",
    CompilationError,
    "{name} is used here, but the product that it is the result of may still be under way: it has no value yet",
    "wait for the product and use what the wait returns: {name} = warpgroup_mma_wait(0, ({name},))",
)
ACCUMULATOR_KEPT = row(
    "accumulator-kept",
    CompilationError,
    "{name} is used here again, after it has been handed on while its product was under way: it has changed in place, and "
    "could not be copied",
    "go on with what it was handed on to, or wait for the product first",
)
ACCUMULATOR_MOVED = row(
    "accumulator-moved",
    CompilationError,
    "{name} would have to move to other registers here while its product is under way",
    "wait for the product before, or let every accumulator keep its name from round to round",
)
ACCUMULATOR_SIZE = row(
    "accumulator-registers",
    PerformanceWarning,
    "accumulators take {bytes} bytes of each thread's registers at a time, which has {limit}: with addresses and operands "
    "that is too many, and some go to memory",
    "use more warps for the tile (now {warps}), or a smaller tile",
)

# Tensor memory

TMEM_COLUMNS = row(
    "tensor-memory",
    OutOfResources,
    "the kernel needs {total} columns of tensor memory, the target has {limit} for a block: {bill}",
    "use smaller tiles or fewer buffers, or keep in one buffer what is not needed at the same time, as parts of it (.slice) or "
    "as another type (.reinterpret)",
)
TMEM_WARPS = row(
    "tensor-memory-warps",
    CompilationError,
    "{what} is done by {who}, which has {warps} warps: warp w reaches lanes 32 * (w % 4) to 32 * (w % 4) + 31 of tensor memory "
    "only, so four are needed to reach all",
    "give it 4 warps, or 8: {where}",
)

# Threads that compute by themselves

THREAD_BLOCK = row(
    "thread-block-warps",
    CompilationError,
    "{what} needs {needs}, but the block has {threads} threads, {block}",
    "launch with a multiple that fits, for example block={instead}",
)
THREAD_MISALIGNED = row(
    "thread-misaligned",
    CompilationError,
    "{count} elements of {dtype} are accessed at a time, {width} bytes, so their address has to be a multiple of {width}; what "
    "is added to the argument {name} is one, but its own address is not known to be one of more than {known}",
    "pass {name} at an address that is a multiple of 16 bytes, as a fresh array's is, and let weft see that (no "
    "do_not_specialize); or vectorize by fewer elements, at most {fits} where nothing more is known",
)
THREAD_LOCAL_CHOSEN = row(
    "thread-local-chosen",
    CompilationError,
    "which of several arrays of a thread's own {name} is, is decided at run time here, but such arrays have no addresses",
    "choose the element instead: read both arrays, or keep them as two parts of one array and choose the index",
)

# Lowering to a target

SHARED_MEMORY = row(
    "shared-memory",
    OutOfResources,
    "the kernel needs {total} bytes of shared memory, the target has {limit} for a block: {bill}",
    "use smaller or fewer buffers, smaller tiles, or layouts between which a conversion needs no shared memory",
)
SCOPE = row(
    "control-scope",
    CompilationError,
    "{what} must be executed by the whole {needs}, but it stands under a condition that each {scope} decides for itself",
    "{instead}",
)
HANDLES = row(
    "lower-handles",
    CompilationError,
    "two handles {type} come together here that are parts of different kinds: one begins at {first}, the other at {second}",
    "let only whole tiles vary at run time, as in bufs.index(i), and slice them where they are used",
)
TARGET = row(
    "lower-target",
    CompilationError,
    "{what} needs a GPU that has {needs}, which {target} has not",
    "compile for {since} or later",
)
ASYNC_COPY_WIDTH = row(
    "async-copy-width",
    CompilationError,
    "an asynchronous copy moves 4, 8 or 16 bytes at a time, but of a thread's elements of {dtype} ({bits} bits each) no more "
    "than {in_global} are known to lie side by side in global memory under one mask, and {in_shared} lie so in shared memory",
    "give each thread {least} neighbours along the dimension that is contiguous in both memories; promise what cannot be seen "
    "(gl.multiple_of, gl.max_contiguous, of the mask gl.max_constancy); or load the tile and store it",
)
IM2COL_PIXELS = row(
    "tma-im2col-pixels",
    CompilationError,
    "a block of {pixels} pixels is more than one im2col request copies, {limit}",
    "use blocks of at most {limit} pixels and issue several loads",
)

# CUDA text: what a target or PTX itself cannot do

CUDA_FLOAT8 = row(
    "cuda-float8",
    CompilationError,
    "{dtype} is computed with or converted here, which {target} has no instructions for",
    "compile for sm_90a or later, or keep such values in memory only and compute in float16",
)
CUDA_FLOAT8_ROUNDING = row(
    "cuda-float8-rounding",
    CompilationError,
    "the conversion to {dtype} is to round towards zero, but GPUs only round it to nearest even",
    "leave out fp_downcast_rounding='rtz', or convert to float16",
)
CUDA_CACHE_AND_EVICTION = row(
    "cuda-cache-and-eviction",
    CompilationError,
    "this access has the cache modifier {cache!r} and the eviction policy {eviction!r}, of which an instruction takes one",
    "keep one of the two",
)
CUDA_ATOMIC_TYPE = row(
    "cuda-atomic-type",
    CompilationError,
    "an atomic {kind} on {dtype} has {bits} bits, but GPUs have none under 16",
    "use elements of 16, 32 or 64 bits",
)
CUDA_ASM_CONSTRAINTS = row(
    "cuda-asm-constraints",
    CompilationError,
    "the constraints {constraints!r} name {got} registers, but {outputs} results and {inputs} operands in packs of {pack} "
    "take {need}",
    "write one constraint per 32-bit register (per element where elements are wider), results first",
)
CUDA_ASM_CONSTRAINT = row(
    "cuda-asm-constraint",
    CompilationError,
    "the constraint {constraint!r} is none that inline PTX has",
    "use h, r, l, f or d (16, 32, 64 bits, float, double) or the number of a result, with = before those of results",
)
CUDA_ASM_OPERAND = row(
    "cuda-asm-operand",
    CompilationError,
    "the inline PTX names ${number}, but it has {count} operands, results first",
    "number operands from $0 to ${last}; a dollar sign itself is $$",
)
