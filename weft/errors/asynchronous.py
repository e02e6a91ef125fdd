"""Mistakes with asynchronous copies: cp.async, mbarriers, TMA and its descriptors, and their support by targets."""

from __future__ import annotations

from weft.errors.base import CompilationError, LaunchError, LayoutError, row

TARGET = row(
    "async-target",
    CompilationError,
    "{what} needs {feature}, which {target} does not have",
    "{instead}, or compile for a target that has it",
)
PENDINGS = row(
    "async-pendings",
    CompilationError,
    "{what} cannot leave {got} operations in flight",
    "pass a number from 0 to {most}; 0 waits for all",
)
OPERAND_SCOPE = row(
    "async-operand-scope",
    CompilationError,
    "{what} executes once for the whole block, but {value} may differ in each {scope}",
    "compute it from values that are uniform in the block, or assert that it is uniform with gl.uniform(x)",
)

# cp.async

COPY_TILE = row(
    "async-copy-tile",
    CompilationError,
    "cannot copy from {pointer} to {got}",
    "use a tile of pointers of the same shape as the buffer, to elements of the same dtype",
)
COPY_BYTES = row(
    "async-copy-bytes",
    LayoutError,
    "each thread copies {elements} of {bits} bits from {pointer}, but cp.async moves 4, 8 or 16 bytes at a time",
    "use a layout that gives a thread at least {least} contiguous elements, or gl.load and smem.store",
)
COPY_CACHE = row(
    "async-copy-cache",
    CompilationError,
    "cp.async has no cache modifier {got}",
    "use '.ca' or '.cg', or leave it out",
)

# mbarriers

BARRIER_WORD = row(
    "async-barrier-word",
    CompilationError,
    "{what} needs an mbarrier, a 64-bit integer in shared memory, but got {got}",
    "write gl.stack_allocation[gl.uint64, gl.AddressSpace.SHARED](gl.row_major[1]())",
)
BARRIER_THREADS = row(
    "async-barrier-threads",
    CompilationError,
    "{what} is for kernels of single threads, in which each thread arrives by itself, but this one is launched without block=",
    "launch it as kernel[grid](..., block=128), or use the functions of mbarrier, which a whole block executes together",
)
BARRIER_STATE = row(
    "async-barrier-state",
    CompilationError,
    "mbarrier_test_wait needs the state that mbarrier_arrive has returned, but got {got}",
    "write state = gl.mbarrier_arrive(bar), and then while not gl.mbarrier_test_wait(bar, state): pass",
)
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
    "{what} got a count of {got} arrivals",
    "pass a count from 1 to {most}",
)
COUNT_TARGET = row(
    "async-barrier-count-target",
    CompilationError,
    "mbarrier.arrive got count={count}, but on {target} an arrival counts as 1",
    "leave count out, and lower the count of mbarrier.init accordingly",
)
EXPECT_BYTES = row(
    "async-expect-bytes",
    CompilationError,
    "mbarrier.expect got {got} bytes",
    "pass a number from 0 to {most}; a larger block takes several barriers",
)
PHASE = row(
    "async-phase",
    CompilationError,
    "mbarrier.wait got phase {got}",
    "pass the parity of the phase, 0 or 1, as in mbarrier.wait(bar, i // num_buffers & 1)",
)
PHASE_TYPE = row(
    "async-phase-type",
    CompilationError,
    "the phase of mbarrier.wait is {got}, not an integer",
    "pass the parity of the phase, 0 or 1, as in mbarrier.wait(bar, i // num_buffers & 1)",
)
TWO_CTAS = row(
    "async-two-ctas",
    CompilationError,
    "two_ctas=True makes a barrier that two blocks share, but this kernel runs without clusters",
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
    "{what} starts at column {column} of {desc}, but TMA needs the last coordinate to be a multiple of 16 bytes",
    "start blocks at columns that are multiples of {step}",
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
    "it works on {known}; load, combine and store other types, or use gl.atomic_add and the other atomics",
)
UPDATE_NOTHING = row(
    "async-update-nothing",
    CompilationError,
    "update_tensor_descriptor replaces nothing: base, shape and strides are None",
    "give it base=, shape= or strides=, or use the descriptor as it is",
)
UPDATE_BASE = row(
    "async-update-base",
    CompilationError,
    "the base of update_tensor_descriptor is {got}, but the descriptor is of {dtype}",
    "pass a pointer to {dtype}, as in pointer + offset",
)
MAKE_RANK = row(
    "async-make-rank",
    CompilationError,
    "a descriptor got {shape} extents, {strides} strides and a block of {block} dimensions",
    "give one extent, one stride and one block size for each of 1 to 5 dimensions",
)
MAKE_BASE = row(
    "async-make-base",
    CompilationError,
    "the base of a descriptor is {got}, not one address",
    "pass a scalar pointer, such as an array argument of the kernel",
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
    "the last stride of a descriptor is {got}, but TMA needs the last dimension to be contiguous",
    "pass 1 as the last stride, known at compile time",
)
MAKE_PADDING = row(
    "async-make-padding",
    CompilationError,
    "padding_option={got} is not valid for a descriptor of {dtype}",
    "pass 'zero', or 'nan' for floats of at least 16 bits",
)
MAKE_EXTENT = row(
    "async-make-extent",
    CompilationError,
    "extent {dim} of a descriptor is {got}, but every dimension has at least one element",
    "do not describe an empty tensor: put the code under a condition",
)
MAKE_OUTER_STRIDE = row(
    "async-make-outer-stride",
    CompilationError,
    "stride {dim} of a descriptor is {nbytes} bytes, but TMA takes positive multiples of 16 below 2**40",
    "pad rows to a multiple of {count} elements",
)

# Descriptors: tensors, blocks and layouts that TMA cannot copy

# The tensor

DESCRIPTOR_TENSOR = row(
    "descriptor-tensor",
    LaunchError,
    "a descriptor needs a tensor with a shape, but got {value}",
    "pass a PyTorch, NumPy, CuPy or JAX array; for kernel.warmup, give MockTensor(dtype) its shape and strides: "
    "TensorDescriptor(MockTensor('fp32'), shape, strides, block_shape, layout)",
)
DESCRIPTOR_DTYPE = row(
    "descriptor-dtype",
    LaunchError,
    "TMA moves numbers of 8 to 64 bits, but the tensor holds {dtype}",
    "describe the same memory as uint8: tensor.view(torch.uint8)",
)
DESCRIPTOR_RANK = row(
    "descriptor-rank",
    LaunchError,
    "a descriptor has 1 to 5 dimensions, but the tensor has shape {shape}",
    "merge dimensions with reshape, or describe one slice of the tensor",
)
RAGGED_RANK = row(
    "ragged-rank",
    LaunchError,
    "a ragged descriptor is of an array of 2 or 3 dimensions and blocks of as many, but got shape {shape} and blocks {block}",
    "merge dimensions with reshape; two of the 5 dimensions of a descriptor hold the slice",
)
RAGGED_DIM = row(
    "ragged-dim",
    LaunchError,
    "dimension {dim} of an array of shape {shape} cannot be ragged",
    "choose one before the last: slices are whole rows",
)
RAGGED_ROWS = row(
    "ragged-rows",
    LaunchError,
    "dimension {dim} of an array of shape {shape} has more than {most} rows",
    "describe parts of the array",
)
DESCRIPTOR_STRIDES = row(
    "descriptor-strides",
    LaunchError,
    "strides {strides} and shape {shape} differ in length",
    "give one stride in elements for each dimension, outermost first",
)
DESCRIPTOR_EXTENT = row(
    "descriptor-extent",
    LaunchError,
    "dimension {dim} of a tensor of shape {shape} has {size} elements, and a descriptor takes 1 to 2147483647",
    "launch nothing for an empty tensor; describe a longer one in parts",
)
DESCRIPTOR_BASE = row(
    "descriptor-base",
    LaunchError,
    "the tensor starts {over} bytes past a multiple of 16 bytes, but TMA needs a 16-byte aligned base",
    "begin the slice at a multiple of {count} elements, or copy it first: tensor.clone()",
)
DESCRIPTOR_INNER_STRIDE = row(
    "descriptor-inner-stride",
    LaunchError,
    "the last dimension of the tensor has stride {stride}, but TMA needs it to be contiguous",
    "describe the tensor with its contiguous dimension last (tensor.T), or copy it first: tensor.contiguous()",
)
DESCRIPTOR_OUTER_STRIDE = row(
    "descriptor-stride",
    LaunchError,
    "dimension {dim} of the tensor has a stride of {nbytes} bytes, but TMA takes positive multiples of 16 below 2**40",
    "allocate rows of a multiple of {count} elements, and describe a slice of that array",
)

# The block

DESCRIPTOR_BLOCK_RANK = row(
    "descriptor-block-rank",
    LaunchError,
    "block_shape {block} has {got} dimensions, but the tensor of shape {shape} has {rank}",
    "give one size for each dimension of the tensor, 1 for dimensions that the block does not span",
)
DESCRIPTOR_LAYOUT = row(
    "descriptor-layout",
    LaunchError,
    "TMA copies blocks in an NVMMASharedLayout, but got {layout}",
    "write gl.NVMMASharedLayout.get_default_for({block}, gl.{dtype})",
)
DESCRIPTOR_FP4 = row(
    "descriptor-fp4",
    LaunchError,
    "{layout} spreads packed fp4 over padded bytes, but the descriptor is of {what}",
    "describe fp4 as uint8, two to a byte, with TensorDescriptor; without fp4_padded, any bytes are copied as they are",
)
DESCRIPTOR_FP4_STEP = row(
    "descriptor-fp4-step",
    LaunchError,
    "TMA spreads packed fp4 by {step} bytes, but {what} is {got}",
    "{fix}",
)
DESCRIPTOR_PADDING = row(
    "descriptor-padding",
    LaunchError,
    "padding={padding!r} is not a fill value of TMA for elements out of bounds",
    "write padding='zero' or padding='nan'",
)
DESCRIPTOR_PADDING_NAN = row(
    "descriptor-padding-nan",
    LaunchError,
    "padding='nan' needs floats of 16 bits or more, but the tensor holds {dtype}",
    "write padding='zero'",
)

# im2col

DESCRIPTOR_IM2COL_RANK = row(
    "descriptor-im2col-rank",
    LaunchError,
    "an im2col descriptor takes a tensor of N, one to three spatial dimensions and C, but it has shape {shape}",
    "add the missing dimensions with unsqueeze, or use TensorDescriptor",
)
DESCRIPTOR_ROUND = row(
    "descriptor-round",
    LaunchError,
    "round_f32_to_tf32 rounds float32 elements, but the tensor's are {dtype}",
    "leave it out, or describe a float32 tensor",
)
DESCRIPTOR_IM2COL_BLOCK = row(
    "descriptor-im2col-block",
    LaunchError,
    "an im2col block is [pixels, channels] with up to 1024 pixels, but got {block}",
    "write block_shape=[128, 64], for example",
)
DESCRIPTOR_IM2COL_CORNER = row(
    "descriptor-im2col-corner",
    LaunchError,
    "{name}={corner} is not one offset from {low} to {high} for each of the {count} spatial dimensions",
    "write {name}={example}, the default, or offsets in that range",
)
DESCRIPTOR_IM2COL_BOX = row(
    "descriptor-im2col-box",
    LaunchError,
    "the corners {lower} and {upper} leave no pixel of spatial dimension {dim}, which has {size}",
    "move pixel_box_lower_corner down, or pixel_box_upper_corner up",
)
DESCRIPTOR_IM2COL_STEPS = row(
    "descriptor-im2col-steps",
    LaunchError,
    "element_strides={steps} is not one step from 1 to 8 for each of {rank} dimensions, the last of them 1",
    "write element_strides={example}, the default, or the strides of the convolution for its spatial dimensions",
)

# The target

DESCRIPTOR_TARGET = row(
    "descriptor-target",
    CompilationError,
    "argument {parameter} of {name} is a tensor descriptor, but {target} has no TMA",
    "{instead}",
)
DESCRIPTOR_PICKLE = row(
    "descriptor-pickle",
    LaunchError,
    "{got} cannot be pickled or deep-copied: it holds an address of this process's memory",
    "pass the array, and make the descriptor where it arrives: TensorDescriptor.from_tensor(array, block_shape, layout)",
)

# Rows gathered by TMA

GATHER_ROWS = row(
    "gather-rows",
    CompilationError,
    "{what} got {got} for the rows",
    "pass a tile of gl.int32 with one dimension of at least 8 rows",
)
GATHER_BLOCK = row(
    "gather-block",
    CompilationError,
    "{what} moves rows one by one, but the block of {desc} is not a single row of at least 32 bytes",
    "make the descriptor with block_shape=[1, columns], where columns >= {least}",
)
GATHER_BUFFER = row(
    "gather-buffer",
    LayoutError,
    "{what} of {count} rows by {desc} in {desc_layout} moves {want}, but the buffer is {got} in {layout}",
    "allocate it as gl.allocate_shared_memory(desc.dtype, {want}, desc.layout)",
)
