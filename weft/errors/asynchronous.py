"""Mistakes with asynchronous copies: cp.async, mbarriers, TMA, and what targets have of them."""

from __future__ import annotations

from weft.errors.base import CompilationError, LayoutError, row

TARGET = row(
    "async-target",
    CompilationError,
    "{what} needs {feature}, which {target} does not have",
    "{instead}, or compile for a target that has it",
)
PENDINGS = row(
    "async-pendings",
    CompilationError,
    "{what} is asked to leave {got} under way",
    "pass a number from 0 to {most}; 0 waits for all",
)
OPERAND_SCOPE = row(
    "async-operand-scope",
    CompilationError,
    "{what} happens once for the whole block, but {value} is each {scope}'s own",
    "compute it from values that all threads share, or claim that they do with gl.uniform(x)",
)

# cp.async

COPY_TILE = row(
    "async-copy-tile",
    CompilationError,
    "{pointer} is copied to {got}",
    "use a tile of addresses of the same shape, to elements of the same dtype",
)
COPY_BYTES = row(
    "async-copy-bytes",
    LayoutError,
    "each thread copies {elements} of {bits} bits from {pointer}, but cp.async moves 4, 8 or 16 bytes at a time",
    "use a layout that gives a thread at least {least} neighbouring elements, or gl.load and smem.store",
)
COPY_CACHE = row(
    "async-copy-cache",
    CompilationError,
    "cp.async has no cache modifier {got}",
    "use '.ca' or '.cg', or leave it out",
)

# mbarriers

BARRIER_ARRAY = row(
    "async-barrier-array",
    CompilationError,
    "{what} works on one mbarrier, but got {got}",
    "choose one, as in bars.index(i)",
)
BARRIER_LAYOUT = row(
    "async-barrier-layout",
    LayoutError,
    "{what} needs an mbarrier, but {got} lies in {layout}",
    "write gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout()), or mbarrier.allocate_mbarrier()",
)
BARRIER_COUNT = row(
    "async-barrier-count",
    CompilationError,
    "{what} of {got} arrivals",
    "pass a count from 1 to {most}",
)
COUNT_TARGET = row(
    "async-barrier-count-target",
    CompilationError,
    "arrive counts {count} at once, but {target} counts arrivals one by one",
    "arrive once, and divide the count of mbarrier.init accordingly",
)
EXPECT_BYTES = row(
    "async-expect-bytes",
    CompilationError,
    "expect of {got} bytes",
    "pass a number from 0 to {most}; a larger block takes several barriers",
)
PHASE = row(
    "async-phase",
    CompilationError,
    "wait for phase {got}",
    "pass the parity of the phase, 0 or 1, as in mbarrier.wait(bar, i // num_buffers & 1)",
)
PHASE_TYPE = row(
    "async-phase-type",
    CompilationError,
    "the phase that wait waits for is {got}, not an integer",
    "pass the parity of the phase, 0 or 1, as in mbarrier.wait(bar, i // num_buffers & 1)",
)
TWO_CTAS = row(
    "async-two-ctas",
    CompilationError,
    "two_ctas=True asks for a barrier of two blocks, but this kernel runs without clusters",
    "leave two_ctas out",
)

# TMA

DESCRIPTOR_NEEDED = row(
    "async-descriptor-needed",
    CompilationError,
    "{what} needs a tensor descriptor, but got {got}",
    "pass a TensorDescriptor to the kernel, or make one with tma.make_tensor_descriptor",
)
DESCRIPTOR_MODE = row(
    "async-descriptor-mode",
    CompilationError,
    "{what} needs {want}, but got {got}",
    "{fix}",
)
COORDINATES = row(
    "async-coordinates",
    CompilationError,
    "{what} got {got} for {desc}, which takes {rank}",
    "pass a list of {rank} integers, outermost dimension first",
)
COORDINATE_STEP = row(
    "async-coordinate-step",
    CompilationError,
    "{what} starts at column {column} of {desc}, but the last coordinate of a TMA request is a multiple of 16 bytes",
    "start blocks at columns that {step} divides",
)
COORDINATE_TYPE = row(
    "async-coordinate-type",
    CompilationError,
    "coordinate {number} of {what} is {got}, but coordinates are integers of at most 32 bits",
    "compute it in int32, or convert it with x.to(gl.int32)",
)
BLOCK = row(
    "async-block",
    LayoutError,
    "{what} moves {desc} in {desc_layout}, but the buffer is {got} in {layout}",
    "allocate the buffer as gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)",
)
REDUCE_TYPE = row(
    "async-reduce-type",
    CompilationError,
    "{what} does not work on {dtype}",
    "it works on {known}; load, combine and store other types, or use gl.atomic_add and its kind",
)
MAKE_RANK = row(
    "async-make-rank",
    CompilationError,
    "a descriptor with {shape} extents, {strides} strides and a block of {block} dimensions",
    "give one of each for every dimension, of which there are 1 to 5",
)
MAKE_BASE = row(
    "async-make-base",
    CompilationError,
    "the base of a descriptor is {got}, not one address",
    "pass a pointer, as a kernel gets for an array",
)
MAKE_LAYOUT = row(
    "async-make-layout",
    LayoutError,
    "a descriptor made in a kernel copies blocks in an NVMMASharedLayout without padding, but got {layout}",
    "write gl.NVMMASharedLayout.get_default_for(block_shape, dtype); padded fp4 needs a TensorDescriptor made on the host",
)
MAKE_STRIDE = row(
    "async-make-stride",
    CompilationError,
    "the last stride of a descriptor is {got}, but elements of the last dimension follow one another",
    "pass 1 as the last stride, known at compile time",
)
MAKE_PADDING = row(
    "async-make-padding",
    CompilationError,
    "padding_option={got} of a descriptor of {dtype}",
    "pass 'zero', or 'nan' for floats of at least 16 bits",
)
MAKE_EXTENT = row(
    "async-make-extent",
    CompilationError,
    "extent {dim} of a descriptor is {got}, but every dimension has at least one element",
    "describe nothing that is empty: skip the block's work under a condition",
)
MAKE_OUTER_STRIDE = row(
    "async-make-outer-stride",
    CompilationError,
    "stride {dim} of a descriptor is {nbytes} bytes, but TMA takes positive multiples of 16 below 2**40",
    "let rows have a multiple of {count} elements",
)
