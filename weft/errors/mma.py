"""Mistakes with matrix products on tensor cores: operands, their types and places, accumulators, and waiting for them."""

from __future__ import annotations

from weft.errors.base import CompilationError, LayoutError, row

OPERAND = row(
    "mma-operand",
    CompilationError,
    "{side} of {what} is {got}, not {want}",
    "{fix}",
)
OPERAND_LAYOUT = row(
    "mma-operand-layout",
    LayoutError,
    "{side} of {what} is {got} in {layout}, but beside an accumulator in {parent} it lies in {want}",
    "{fix}",
)
TYPES = row(
    "mma-types",
    CompilationError,
    "{what} does not multiply {left} by {right}",
    "it multiplies {known}; convert one of them with .to(...)",
)
PRECISION = row(
    "mma-precision",
    CompilationError,
    "{what} got precision {got} for {dtype} operands",
    "{fix}",
)
SHAPES = row(
    "mma-shapes",
    CompilationError,
    "{what} of {left} and {right} added to {acc}: {problem}",
    "a [M, K] times b [K, N] is added to an accumulator [M, N]; smem.permute([1, 0]) reads a buffer as its transpose",
)

# Accumulators

ACCUMULATOR = row(
    "mma-accumulator",
    CompilationError,
    "the accumulator of {what} is {got}",
    "make one with gl.zeros([M, N], gl.float32, layout)",
)
ACCUMULATOR_TYPE = row(
    "mma-accumulator-type",
    CompilationError,
    "{what} of {left} and {right} does not add to {got}",
    "use an accumulator of {allowed}",
)
ACCUMULATOR_LAYOUT = row(
    "mma-accumulator-layout",
    LayoutError,
    "the accumulator of {what} is {got} in {layout}, not in an NVMMADistributedLayout of version {version}",
    "give it the layout {example}",
)
LAYOUT_DTYPE = row(
    "mma-layout-dtype",
    CompilationError,
    "warpgroup_mma_layout got {got} for the operands' dtype, which tensor cores do not multiply",
    "pass one of {known}; arrays' dtypes are gl.float16 for numpy.float16 or torch.float16, and so on",
)
INSTRUCTION_K = row(
    "mma-instruction-k",
    LayoutError,
    "the instructions of {layout} take {got} elements along K, but 256 bits of {dtype} are {want}",
    "write instr_shape=[16, {n}, {want}]",
)
IMPRECISE = row(
    "mma-imprecise",
    CompilationError,
    "max_num_imprecise_acc={got} {problem}",
    "{fix}",
)

# Products under way

IN_FLIGHT = row(
    "mma-in-flight",
    CompilationError,
    "{got} is the accumulator of a product under way: it has no value yet",
    "wait first: {name} = warpgroup_mma_wait(0, ({name},))",
)
NO_DEPS = row(
    "mma-wait-deps",
    CompilationError,
    "warpgroup_mma_wait got no deps, so that no accumulator could be read after it",
    "pass the accumulators: acc = warpgroup_mma_wait({count}, (acc,))",
)
NO_ACCUMULATOR = row(
    "mma-wait-operand",
    CompilationError,
    "warpgroup_mma_wait waits for {got}, which is no accumulator of warpgroup_mma",
    "pass what warpgroup_mma returned; buffers that it reads need no mention",
)
