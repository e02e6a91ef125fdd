"""Mistakes with MMAs on tensor cores: operands, their types and layouts, accumulators, and waits for them."""

from __future__ import annotations

from weft.errors.base import CompilationError, LayoutError, row

MMA_OPERAND = row(
    "mma-operand",
    CompilationError,
    "{side} of {what} is {got}, not {want}",
    "{fix}",
)
MMA_OPERAND_LAYOUT = row(
    "mma-operand-layout",
    LayoutError,
    "{side} of {what} is {got} in {layout}, but an accumulator in {parent} needs it in {want}",
    "{fix}",
)
MMA_TYPES = row(
    "mma-types",
    CompilationError,
    "{what} does not multiply {left} by {right}",
    "it multiplies {known}; convert one of them with .to(...)",
)
MMA_PRECISION = row(
    "mma-precision",
    CompilationError,
    "{what} got precision {got} for {dtype} operands",
    "{fix}",
)
MMA_SHAPES = row(
    "mma-shapes",
    CompilationError,
    "{what} of {left} and {right} added to {acc}: {problem}",
    "a [M, K] times b [K, N] is added to an accumulator [M, N]; smem.permute([1, 0]) reads a buffer as its transpose",
)

# Accumulators

MMA_ACCUMULATOR = row(
    "mma-accumulator",
    CompilationError,
    "the accumulator of {what} is {got}",
    "make one with gl.zeros([M, N], gl.float32, layout)",
)
MMA_ACCUMULATOR_TYPE = row(
    "mma-accumulator-type",
    CompilationError,
    "{what} of {left} and {right} cannot accumulate in {got}",
    "use an accumulator of {allowed}",
)
MMA_ACCUMULATOR_LAYOUT = row(
    "mma-accumulator-layout",
    LayoutError,
    "the accumulator of {what} is {got} in {layout}, not in an NVMMADistributedLayout of version {version}",
    "give it the layout {example}",
)
MMA_LAYOUT_DTYPE = row(
    "mma-layout-dtype",
    CompilationError,
    "warpgroup_mma_layout got {got} for the operands' dtype, which tensor cores do not multiply",
    "pass one of {known}; arrays' dtypes are gl.float16 for numpy.float16 or torch.float16, and so on",
)
MMA_INSTRUCTION_K = row(
    "mma-instruction-k",
    LayoutError,
    "the instructions of {layout} take {got} elements along K, but 256 bits of {dtype} are {want}",
    "write instr_shape=[16, {n}, {want}]",
)
MMA_INTEGER_COLUMNS = row(
    "mma-integer-columns",
    LayoutError,
    "warpgroup_mma of {dtype} operands has {n} columns, and instructions of integers have multiples of {step} above 32",
    "make N a multiple of {step}",
)
MMA_IMPRECISE = row(
    "mma-imprecise",
    CompilationError,
    "max_num_imprecise_acc={got} {problem}",
    "{fix}",
)

# MMAs in flight

MMA_IN_FLIGHT = row(
    "mma-in-flight",
    CompilationError,
    "{got} is the accumulator of an MMA in flight: it has no value yet",
    "wait first: {name} = warpgroup_mma_wait(0, ({name},))",
)
MMA_NO_DEPS = row(
    "mma-wait-deps",
    CompilationError,
    "warpgroup_mma_wait got no deps, so no accumulator could be read after it",
    "pass the accumulators: acc = warpgroup_mma_wait({count}, (acc,))",
)
MMA_NO_ACCUMULATOR = row(
    "mma-wait-operand",
    CompilationError,
    "warpgroup_mma_wait waits for {got}, which is not an accumulator of warpgroup_mma",
    "pass the results of warpgroup_mma; the buffers that it reads are not listed",
)

# MMAs of tcgen05

TCGEN05_ACCUMULATOR = row(
    "tcgen05-accumulator",
    CompilationError,
    "the accumulator of {what} is {got}",
    "make one with allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([128, N], col_stride=1)); of several tiles "
    "choose one, as in accs.index(i)",
)
TCGEN05_ACCUMULATOR_LAYOUT = row(
    "tcgen05-accumulator-layout",
    LayoutError,
    "the accumulator of {what} is {got} in {layout}, which is not a TensorMemoryLayout",
    "allocate it in TensorMemoryLayout([128, N], col_stride=1)",
)
TCGEN05_LAYOUTS = row(
    "tcgen05-layouts",
    LayoutError,
    "{what} of {left} and {right} added to {acc}: {reason}",
    "{fix}",
)
TCGEN05_BARRIERS = row(
    "tcgen05-barriers",
    CompilationError,
    "mbarriers of {what} is {got}, not a list of mbarriers",
    "write mbarriers=[bar]",
)
TCGEN05_PREDICATES = row(
    "tcgen05-predicates",
    CompilationError,
    "{what} got {got} for mbarrier_preds, but {count} for mbarriers",
    "give one condition for each barrier, or leave mbarrier_preds out",
)
TCGEN05_DESCRIPTORS = row(
    "tcgen05-descriptors",
    CompilationError,
    "{what} got {got} among the operands whose layouts determine which blocks are signalled",
    "pass a list of handles to shared or tensor memory, as in descs=[a_smem, b_smem]",
)

# Block-scaled MMAs

TCGEN05_FORMAT = row(
    "tcgen05-format",
    CompilationError,
    "{side}_type of tcgen05_mma_scaled is {got}",
    "pass one of {known}",
)
TCGEN05_FORMAT_ELEMENT = row(
    "tcgen05-format-element",
    CompilationError,
    "{side} of tcgen05_mma_scaled is {got}, but elements of {format} are stored in gl.{dtype}",
    "{fix}",
)
TCGEN05_SCALE = row(
    "tcgen05-scale",
    CompilationError,
    "{side}_scale of tcgen05_mma_scaled is {got}",
    "keep it in tensor memory: allocate_tensor_memory(gl.uint8, [rows, K // 32], TensorMemoryScalesLayout())",
)
TCGEN05_SCALE_LAYOUT = row(
    "tcgen05-scale-layout",
    LayoutError,
    "{side}_scale of tcgen05_mma_scaled is {got} in {layout}, which is not a TensorMemoryScalesLayout",
    "allocate it in TensorMemoryScalesLayout()",
)
TCGEN05_SCALE_TYPES = row(
    "tcgen05-scale-types",
    CompilationError,
    "tcgen05_mma_scaled does not scale {left} by {a_scale} and {right} by {b_scale}",
    "use gl.uint8 for both (powers of two, each for 32 elements along K), or for e2m1 times e2m1 gl.float8e4nv (each for 16)",
)
TCGEN05_SCALE_SHAPE = row(
    "tcgen05-scale-shape",
    CompilationError,
    "{side}_scale of tcgen05_mma_scaled is {got}, but {operand} with one scale for {run} elements along K has {want}",
    "allocate it with the shape {want}",
)
TCGEN05_SCALED_BLOCK = row(
    "tcgen05-scaled-block",
    LayoutError,
    "the accumulator of tcgen05_mma_scaled is {got} in {layout}, but block-scaled MMAs need blocks of 128 rows",
    "write TensorMemoryLayout([128, N], col_stride=1)",
)

# Copies

TCGEN05_COPY = row(
    "tcgen05-copy",
    CompilationError,
    "tcgen05_copy copies {src} to {dst}",
    "use one tile in shared memory and one in tensor memory, of the same shape and dtype",
)
TCGEN05_COPY_LAYOUTS = row(
    "tcgen05-copy-layouts",
    LayoutError,
    "tcgen05_copy cannot copy {src} in {src_layout} to {dst} in {dst_layout}: {reason}",
    "{fix}",
)
