"""Mistakes in calls of the kernel library (`weft.kernels`)."""

from __future__ import annotations

from weft.errors.base import CompilationError, LaunchError, row

ARRAY = row(
    "kernels-array",
    LaunchError,
    "a matrix is needed, but {name} is {got}",
    "pass a PyTorch, NumPy, CuPy or JAX array of two dimensions; matmul takes batches, [.., rows, columns]",
)
TOPK_ARRAY = row(
    "kernels-topk-array",
    LaunchError,
    "topk takes an array with rows at one distance from each other, but got {got}",
    "pass a PyTorch, NumPy, CuPy or JAX array of at least one dimension, made contiguous",
)
TOPK_DTYPE = row(
    "kernels-topk-dtype",
    LaunchError,
    "topk does not take elements of {got}",
    "convert them to one of {known}",
)
TOPK_K = row(
    "kernels-topk-k",
    LaunchError,
    "topk got k={k} for rows of {columns} elements",
    "give an int from 1 to the length of a row, and at most {most}; sort the rows for more",
)
SCHEDULE = row(
    "kernels-schedule",
    LaunchError,
    "a Schedule has {field}={value}",
    "{field} is {rule}",
)
BATCH = row(
    "kernels-batch",
    LaunchError,
    "the batch axes of a are {a} and those of b {b}: along axis {axis} a has {first} matrices and b {second}",
    "make them equal, or 1 where one matrix serves all",
)
BATCH_WRITTEN = row(
    "kernels-batch-written",
    LaunchError,
    "{name} has an element for each row, and all products of the batch {axes} would write it",
    "multiply the matrices of the batch one by one, each with {name} of its own",
)
SHAPES = row(
    "kernels-shapes",
    LaunchError,
    "a has shape {a} and b has shape {b}: rows of a have {columns} elements, columns of b {rows}",
    "transpose one of them: a.T and b.T cost nothing",
)
DTYPES = row(
    "kernels-dtypes",
    LaunchError,
    "tensor cores do not multiply {a} by {b}",
    "convert {which} to {to}; matmul supports {known}",
)
DEVICES = row(
    "kernels-devices",
    LaunchError,
    "a lies on {first}, {name} on {other}",
    "move one of them; arrays of the host go to the simulator, arrays of a GPU to that GPU",
)
EMPTY = row(
    "kernels-empty",
    LaunchError,
    "the product {shape} needs no kernel: K is 0, or it has no elements",
    "pass operands with elements; matmul itself takes empty ones",
)
OUT_SHAPE = row(
    "kernels-out-shape",
    LaunchError,
    "out has shape {got}, but the product of {a} and {b} has shape {want}",
    "make out of that shape, or leave it out",
)
OUT_DTYPE = row(
    "kernels-out-dtype",
    LaunchError,
    "the product of {a} and {b} cannot be {got}",
    "take one of {allowed}",
)
OUT_DTYPES_DIFFER = row(
    "kernels-out-dtype-differs",
    LaunchError,
    "out holds {got}, but out_dtype asks for {want}",
    "leave one of the two out",
)
OUT_NEEDED = row(
    "kernels-out-needed",
    LaunchError,
    "there is no way known to make an array like {got}",
    "pass out=, an array of shape {shape}, or arrays of PyTorch, NumPy, CuPy or JAX, for which outputs are allocated",
)
OUT_OVERLAPS = row(
    "kernels-out-overlaps",
    LaunchError,
    "out shares memory with {name}, which is read while out is written",
    "pass a separate array",
)
OUT_REPEATS = row(
    "kernels-out-repeats",
    LaunchError,
    "elements of out share memory: shape {shape}, strides {strides}",
    "write to an array whose elements do not overlap in memory",
)
SCALE = row(
    "kernels-scale",
    LaunchError,
    "{name} is {got}, but it must be one number for the whole product or one for each of {want} {what}",
    "pass a number, or a contiguous float32 array of shape [1] or [{want}] on the device of a",
)
EXTRA = row(
    "kernels-extra",
    LaunchError,
    "{name} {problem}, but it must broadcast over {want}",
    "pass a number, an array of that shape, [1, columns] or [columns] for one element per column, or [rows, 1]",
)
EXTRA_DTYPE = row(
    "kernels-extra-dtype",
    LaunchError,
    "{name} holds {got}, with which the epilogue does not compute",
    "convert it: float64 to float32, bool to uint8",
)
EXTRAS = row(
    "kernels-extras",
    LaunchError,
    "matmul cannot use these extras: {problem}",
    "pass extras=(x, y) or extras={{'x': x, 'y': y}} together with epilogue=, a function (x, rows, columns, extras)",
)
ACTIVATION = row(
    "kernels-activation",
    LaunchError,
    "there is no activation {got}",
    "take one of {known}, or a @weft.jit function of x",
)
EPILOGUE = row(
    "kernels-epilogue",
    LaunchError,
    "matmul cannot apply this epilogue: {problem}",
    "decorate it with @weft.jit, and let it take (x, rows, columns, extras)",
)
EPILOGUE_RESULT = row(
    "kernels-epilogue-result",
    CompilationError,
    "the epilogue {name} returns {got}, but it is applied to a piece {want}",
    "return a tile of the shape of x: compute element by element, with rows, columns and extras, which broadcast over x",
)
WRITTEN = row(
    "kernels-written",
    LaunchError,
    "{name} is {got}, but it holds one number for each row and {group} columns of the output",
    "pass a float32 array of shape {want} on the device of a",
)
WRITTEN_OVERLAPS = row(
    "kernels-written-overlaps",
    LaunchError,
    "{name} is written, but shares memory with {other}",
    "pass a separate array",
)
SQUARES = row(
    "kernels-squares",
    LaunchError,
    "rms_factors takes sums of squares [rows, any] in float32 and the length of a row, but got {got}",
    "pass the row_squares of a matmul, and as columns the columns of its output",
)
OUT_SCALES = row(
    "kernels-out-scales",
    LaunchError,
    "out_scales are computed for outputs of fp8 without another scale, but {problem}",
    "pass out_dtype=float8_e4m3fn or float8_e5m2 with out_scales, or out_scale, one number for the whole output",
)
GATED = row(
    "kernels-gated",
    LaunchError,
    "a gated product has two operands b of one shape, type and strides, but b is {got}",
    "pass b [K, 2 N] with the columns of the gate first, or b=(gate, up)",
)
SCAN_ARRAY = row(
    "kernels-scan-array",
    LaunchError,
    "cumsum sums the rows of a matrix or one vector of float32 or int32, but {name} is {got}",
    "convert it, or reshape it to one or two dimensions",
)
SCAN_AXIS = row(
    "kernels-scan-axis",
    LaunchError,
    "cumsum sums along the last axis, but axis is {got} for an array of shape {shape}",
    "take axis=-1; for another axis pass a contiguous transpose",
)
SCAN_STRIDES = row(
    "kernels-scan-strides",
    LaunchError,
    "rows of {name} are not contiguous: shape {shape}, strides {strides}",
    "pass a contiguous copy, as of x.contiguous() or np.ascontiguousarray(x), which reads and writes {nbytes} bytes in all",
)
SCAN_OUT = row(
    "kernels-scan-out",
    LaunchError,
    "out is {got}, but the prefix sums are {want}",
    "make out of that shape and type, or leave it out",
)
VARIANT = row("kernels-variant", LaunchError, "there is no variant {variant!r}", "take one of {known}")
VARIANT_PATH = row(
    "kernels-variant-path",
    LaunchError,
    "variant {variant} loads every block by TMA, but {name} has no descriptor: {reason}",
    "{fix}",
)
VARIANT_TARGET = row(
    "kernels-variant-target",
    LaunchError,
    "variant {variant} is not for {target}, which multiplies with {has}",
    "take {known}, or leave the choice to matmul",
)
CONFIG = row(
    "kernels-config",
    LaunchError,
    "{field} is {value} in variant {variant}, but it must be {rule}",
    "weft.kernels.matmul_configs(a, b) lists configurations that work",
)
CONFIG_KIND = row(
    "kernels-config-kind",
    LaunchError,
    "config is a MatmulConfig, or a dictionary of its fields, not {got}",
    "write weft.kernels.MatmulConfig(variant='cooperative', block_m=128, block_n=256, block_k=64, stages=4)",
)
TARGET = row(
    "kernels-target",
    LaunchError,
    "matmul multiplies with wgmma or tcgen05.mma, and {target} has neither",
    "run it on a Hopper or Blackwell GPU, or in the simulator with WEFT_TARGET=sm_90a or sm_100a",
)
SCALED_TARGET = row(
    "kernels-scaled-target",
    LaunchError,
    "block-scaled matmul needs tcgen05.mma, which {target} does not have",
    "run it on a Blackwell GPU, or in the simulator with weft.simulate(target='sm_100a'); elsewhere convert the operands to "
    "float16 and call matmul, or to fp8 with a scale for each row, its scale_a and scale_b",
)
SCALED_FORMAT = row(
    "kernels-scaled-format", LaunchError, "matmul has no block-scaled format {format!r}", "take one of {known}"
)
SCALED_ELEMENTS = row(
    "kernels-scaled-elements",
    LaunchError,
    "{name} holds {got}, but elements of {format} are stored as {want}",
    "weft.nvidia.scaled.quantise(x, ...) makes such arrays; a format with two elements per byte is stored in uint8",
)
SCALED_PATH = row(
    "kernels-scaled-path",
    LaunchError,
    "TMA cannot read {name}: {reason}",
    "give an array whose rows of bytes along K (for b its columns) are contiguous and a multiple of 16 bytes apart, as "
    "weft.nvidia.scaled.quantise makes it of rows that are padded with zeros",
)
SCALED_SCALES = row(
    "kernels-scaled-scales",
    LaunchError,
    "{name} is {got}, but {format} has {dtype} scales for {rows} rows of {runs} runs, in contiguous blocks of shape {want}",
    "weft.nvidia.scaled.scale_blocks(scales) rearranges scales [rows, runs] to that order",
)
SCALED_FACTOR = row(
    "kernels-scaled-factor",
    LaunchError,
    "factor is {got}, but it must be one number for the whole product",
    "pass a number, or a float32 array of one element on the device of a",
)

# Arrays quantised with one scale for each run of elements

QUANTISED_FORMAT = row(
    "scaled-format",
    LaunchError,
    "there is no block-scaled format {format!r}",
    "use one of {known}",
)
QUANTISED_RUNS = row(
    "scaled-runs",
    LaunchError,
    "{format} has a scale for each {run} elements of a row, but rows of an array of shape {shape} have {k}",
    "pad rows with zeros to a multiple of {run} elements",
)
QUANTISED_SCALES = row(
    "scaled-scales",
    LaunchError,
    "scales are a matrix of bytes, rows by runs, but got {dtype} of shape {shape}",
    "give the .scales of weft.nvidia.scaled.quantise(x, format) of a matrix x",
)

# softmax

SOFTMAX_COLUMNS = row(
    "kernels-softmax-columns",
    LaunchError,
    "rows have {cols} elements, but the blocks of a cluster hold at most {most}",
    "compute longer rows in two passes, as softmax_online of examples/softmax.py does",
)

# Rows of a model: norms, losses, rotary embeddings, gates, sampling

ROWS_ARRAY = row(
    "kernels-rows-array",
    LaunchError,
    "{op} works on rows along the last axis, but {name} is {got}",
    "pass an array of PyTorch, NumPy, CuPy or JAX with at least one dimension",
)
ROWS_DTYPE = row(
    "kernels-rows-dtype",
    LaunchError,
    "{op} does not take {got} for {name}",
    "convert it to one of {known}",
)
ROWS_STRIDES = row(
    "kernels-rows-strides",
    LaunchError,
    "{op} reads rows of contiguous elements, at one distance from each other: {name} has shape {shape} and strides {strides}",
    "pass a contiguous copy, as of x.contiguous() or np.ascontiguousarray(x), which reads and writes {nbytes} bytes in all",
)
ROWS_SHAPE = row(
    "kernels-rows-shape",
    LaunchError,
    "{op}: {name} has shape {got}, but with {x} of shape {of} it must have {want}",
    "pass an array of shape {want}",
)
ROWS_DEVICES = row(
    "kernels-rows-devices",
    LaunchError,
    "{op}: {x} lies on {first}, {name} on {other}",
    "move one of them; arrays of the host go to the simulator, arrays of a GPU to that GPU",
)
ROWS_COLUMNS = row(
    "kernels-rows-columns",
    LaunchError,
    "{op}: rows have {cols} elements, which {blocks} blocks of a cluster do not hold",
    "rows of at most {most} elements lie in a cluster of 16 blocks; split longer ones",
)
ROWS_PARAMETER = row(
    "kernels-rows-parameter",
    LaunchError,
    "{op} got {name}={got}",
    "give {rule}",
)
RANKS_SYMMETRIC = row(
    "kernels-ranks-symmetric",
    LaunchError,
    "{what} needs a symmetric tensor for {name}, and got {got}",
    "make it once for the tensor, shared = weft.Symmetric(t), and pass that",
)
RANKS_ARRAY = row(
    "kernels-ranks-array",
    LaunchError,
    "{what} takes contiguous arrays, and {name} is {got}",
    "pass an array whose elements lie one after another",
)
RANKS_DTYPE = row(
    "kernels-ranks-dtype",
    LaunchError,
    "{what} does not add elements of {got}",
    "convert them to one of {known}",
)
RANKS_SHAPE = row(
    "kernels-ranks-shape",
    LaunchError,
    "{what} needs {name} to be {wanted}, and it is {got}",
    "allocate it so, on every rank",
)
RANKS_FLAGS = row(
    "kernels-ranks-flags",
    LaunchError,
    "{what} with {programs} programs signals on {flags} flags, and the signal pad has {most}",
    "use fewer programs, alike on all ranks",
)
RANKS_GROUP = row(
    "kernels-ranks-group",
    LaunchError,
    "{what} got {name} of the group {got!r} and {other} of the group {known!r}, whose signals are others",
    "pass symmetric tensors of one group: weft.Symmetric(t, group)",
)
RANKS_CONFIG = row(
    "kernels-ranks-config",
    LaunchError,
    "all_gather_matmul got a config with {got}, whose loads cannot wait for rows of other ranks",
    'use a "cooperative" or "ping_pong" variant with splits=1, shares=1, cluster=1, and without pack',
)
RANKS_CAPTURE = row(
    "kernels-ranks-capture",
    LaunchError,
    "the first call of {what} on a group makes symmetric memory on all ranks, which a graph that is being captured cannot",
    "call it once on all ranks before the capture",
)
RANKS_CHUNK = row(
    "kernels-ranks-chunk",
    LaunchError,
    "{what} got chunk={got} for {rows} rows of each rank, which are sent in up to {most} chunks",
    "pass a number of rows from {least} on, or leave it out",
)
RANKS_EXPERTS = row(
    "kernels-ranks-experts",
    LaunchError,
    "{what} got {got} experts for {ranks} ranks",
    "every rank has as many experts: pass a multiple of {ranks}, up to {most}",
)
RANKS_METHOD = row(
    "kernels-ranks-method",
    LaunchError,
    "{what} got method={got} for {size}",
    'use "two_shot", "one_shot"{limit}, None to choose by size, or for an all_reduce "pushed"',
)
RANKS_MULTICAST = row(
    "kernels-ranks-multicast",
    LaunchError,
    "{what} got method={got}, which needs NVLink multicast and a multiple of {multiple} elements, and {why}",
    "leave method out; weft.distributed.simulate(..., multicast=True) simulates a group with multicast addresses",
)
