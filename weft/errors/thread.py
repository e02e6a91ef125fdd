"""Mistakes in thread-level kernels: blocks, vectors, and the memory behind views."""

from __future__ import annotations

from weft.errors.base import CompilationError, LayoutError, PerformanceWarning, row

# Threads of a block

BLOCK = row(
    "thread-block",
    CompilationError,
    "{what} in a kernel launched without block=: its {threads} threads are numbered along x only",
    "launch it as kernel[grid](..., block=(x, y)), or use x alone",
)
TENSOR_CORE = row(
    "thread-tensor-core",
    CompilationError,
    "no instruction multiplies {operands} to sums of {sums} in the shape {shape}",
    "write TensorCore[type, gl.float32, gl.Index(16, 8, k)] with one of {known}, where k is 8, 16 or 32 for elements of 32, 16 "
    "or 8 bits",
)
TENSOR_CORE_VIEW = row(
    "thread-tensor-core-view",
    CompilationError,
    "{what} takes a view of {size} numbers of {dtype}, but got {got}",
    "take a tile of that size, as in view.tile[16, 8](i, j)",
)
TENSOR_CORE_FRAGMENT = row(
    "thread-tensor-core-fragment",
    CompilationError,
    "{name} of mma_op is a vector of {size} {dtype}, but got {got}",
    "pass what load_a, load_b, load_c and mma_op of this TensorCore give",
)
BLOCK_SIZE = row(
    "thread-block-size",
    CompilationError,
    "{what} is told of a block of {given} threads, but the kernel is launched with {threads}",
    "leave block_size out: the launch sets it",
)
WIDTH = row(
    "thread-width",
    CompilationError,
    "{what} is told of {given} elements, but got {got}",
    "leave width out: the value has it",
)
PER_THREAD = row(
    "thread-value-needed",
    CompilationError,
    "{what} exchanges values of single threads, but got {got}",
    "pass a scalar or a vector; the elements of a tile are combined by gl.sum, gl.max and gl.associative_scan",
)
SHUFFLE = row(
    "thread-shuffle",
    CompilationError,
    "{what} by {by}: a warp has lanes 0 to 31",
    "pass {want}",
)
VOTE = row(
    "thread-vote",
    CompilationError,
    "gl.warp.vote makes a uint32 of one flag of each thread, not of {got}",
    "pass a scalar, such as x > 0, and leave ret_type out",
)

# Vectors

VECTOR_SIZE = row(
    "thread-vector-size",
    CompilationError,
    "{what} got vectors of different sizes: {left} and {right}",
    "take equally many elements of both, as in v.slice(0, 4) or v[0], or concatenate vectors with v.join(w)",
)
VECTOR_TILE = row(
    "thread-vector-tile",
    CompilationError,
    "{what} mixes a thread's vector and a tile of the whole block: {left} and {right}",
    "use vectors only or tiles only: a tile of a view is gl.load(view.tile[64](i)), a tile goes through memory to become "
    "vectors, and an array that is passed without weft.LayoutTensor is a pointer, which ptr + offsets moves",
)
VECTOR_ADDRESS = row(
    "thread-vector-address",
    CompilationError,
    "{what} got {pointer}, several addresses per thread",
    "open a view, as in weft.LayoutTensor(ptr, layout), and load[n] or store through it; or use one address at a time",
)
VECTOR_INDEX = row(
    "thread-vector-index",
    CompilationError,
    "element {index} of {got}, whose elements are registers, which need an index that is known at compile time",
    "unroll the loop with gl.static_range, choose with gl.where, or keep the elements in a view of local memory, from "
    "weft.LayoutTensor.stack_allocation",
)
VECTOR_RANGE = row(
    "thread-vector-range",
    CompilationError,
    "element {index} of {got}, which has elements 0 to {last}",
    "use an index from -{size} to {last}",
)
VECTOR_TYPE = row(
    "thread-vector-type",
    CompilationError,
    "gl.SIMD[{got}] is not a vector type",
    "write a dtype and a number of elements, as in gl.SIMD[gl.float32, 4]",
)
VECTOR_VALUES = row(
    "thread-vector-values",
    CompilationError,
    "a vector of {size} elements cannot be made of {got}",
    "pass one value for all elements, a value for each, or a vector of that size",
)

# Views of memory

INDEX = row(
    "thread-index",
    CompilationError,
    "an index into a view is one whole number, but got {got}",
    "{instead}",
)
UNKNOWN_NUMBER = row(
    "thread-unknown-number",
    CompilationError,
    "{what} got UNKNOWN, a number of a view's layout that is known at run time only",
    "write t.dim(axis), which is its run-time value, instead of t.shape[axis]",
)
STORED = row(
    "thread-stored",
    CompilationError,
    "{got} cannot be stored to {elements} of {dtype}",
    "store one value, or a vector with an element for each of them",
)
OPENED = row(
    "thread-opened",
    CompilationError,
    "cannot open a view over {got}",
    "open views over a pointer to global memory, or over a buffer of shared memory",
)
ADDRESS = row(
    "thread-address",
    CompilationError,
    "cannot make a pointer into {space}: only global memory has pointers",
    "pass the view itself",
)
SHARED_LAYOUT = row(
    "thread-shared-layout",
    LayoutError,
    "{got} in {layout!r}: its elements are not at constant strides, so no view can address them",
    "allocate it without swizzle or padding, as with gl.SwizzledSharedLayout(1, 1, 1, order), or use "
    "weft.LayoutTensor.stack_allocation(dtype, layout, address_space=weft.AddressSpace.SHARED)",
)
SHARED_PART = row(
    "thread-shared-part",
    CompilationError,
    "a view of {got}, which is not one whole tile of its allocation",
    "open the view over a whole tile, and take parts with view.tile; of several tiles choose one with bufs.index(i)",
)
ATOMIC_VIEW = row(
    "thread-atomic-view",
    CompilationError,
    "{what} updates one element, but got {got}",
    "pass a view of one element in global or shared memory, as in {what}({one}, value)",
)
ATOMIC_SHARED = row(
    "thread-atomic-shared",
    CompilationError,
    "{what} does not work on shared memory of {dtype}",
    "use elements of 32 or 64 bits, and atomic_add, atomic_max, atomic_min, atomic_and, atomic_or, atomic_xor or atomic_xchg",
)
COPY = row(
    "thread-copy",
    CompilationError,
    "an asynchronous copy cannot move {bytes} bytes at a time from {source} to {target}",
    "copy 4, 8 or 16 bytes at a time from global to shared memory, of one element type, as with t.vectorize[1, 4](); "
    "or use copy_from",
)
HOST_VIEW = row(
    "thread-host-view",
    CompilationError,
    "{path} belongs to the host program, and a kernel cannot read it",
    "pass the array or a view of it as an argument of the kernel",
)

NO_ELEMENTS = row(
    "thread-no-elements",
    CompilationError,
    "stack_allocation got a layout of {count} elements",
    "allocate at least one element",
)
LOCAL_BYTES = row(
    "thread-local-bytes",
    CompilationError,
    "stack_allocation gives each thread {count} elements of {dtype}, which are {bytes} bytes; a thread has at most {limit}",
    "allocate AddressSpace.SHARED for what threads share, or pass an array as an argument of the kernel",
)

# Advice

LOCAL_INDEX = row(
    "thread-local-index",
    PerformanceWarning,
    "{name} is indexed at run time: unless the loop around it is unrolled, it will be in local memory instead of registers",
    "unroll the loop over its indices with gl.static_range; keep a thread's fragments of a TensorCore in variables",
)
