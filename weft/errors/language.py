"""Mistakes in calls of the language: operands, element types, pointers, masks, tiles and their layouts, aggregates."""

from __future__ import annotations

from weft.errors.base import CompilationError, LayoutError, row

# Host and kernel

HOST_CALL = row(
    "language-host-call",
    CompilationError,
    "{name} was called on the host, but it works inside kernels only",
    "call it in a @weft.jit function, and launch that as kernel[grid](...)",
)
CONSTEXPR_NEEDED = row(
    "language-constexpr-needed",
    CompilationError,
    "{what} needs an integer or a condition that is known at compile time, but got {got}",
    "{instead}",
)
NOT_CONSTEXPR = row(
    "language-not-constexpr",
    CompilationError,
    "Python needs a plain number here, but {what} exists at run time only",
    "declare what it comes from as gl.constexpr, or use functions of the language on it",
)
TRUTH = row(
    "language-truth",
    CompilationError,
    "{what} is used as a condition of Python, but its value exists at run time only",
    "use gl.where for tiles, & | ~ instead of and, or, not, and a scalar as the condition of an if",
)
ITERATION = row(
    "language-iteration",
    CompilationError,
    "Python cannot iterate over {what}",
    "use whole-tile operations, gl.split, or a loop over gl.static_range",
)
OPERAND = row(
    "language-operand",
    CompilationError,
    "{what} takes numbers, scalars and tiles, but got {got} of type {kind}",
    "pass a number or a run-time value{hint}",
)
TILE_NEEDED = row(
    "language-tile-needed",
    CompilationError,
    "{what} needs a tile, but got {got}",
    "make a tile with gl.full, gl.arange or gl.load first{more}",
)
EXTREME = row(
    "language-extreme",
    CompilationError,
    "{what} looks for one element along an axis of a tile, but got {got}",
    "of two numbers write {what}(a, b) without gl, or gl.{what}imum(a, b); over the threads of a warp gl.warp_{what}({name})",
)
POINTER_INDEX = row(
    "language-pointer-index",
    CompilationError,
    "{got} is indexed by one integer, not by {key}",
    "write pointer[i] for the element at pointer + i; for several indices pass a view of the array, "
    "weft.LayoutTensor(array), or open one here, gl.LayoutTensor(pointer, layout)",
)
SHAPE_INDEX = row(
    "language-shape-index",
    CompilationError,
    ".shape[{key}] of {got}, which has no dimensions{why}",
    "{instead}",
)
VECTORIZE = row(
    "language-vectorize",
    CompilationError,
    "vectorize got {function} for vectors of {width}",
    "in a kernel pass a @weft.jit function, on the host a plain one, that takes an index and simd_width; and a width of at "
    "least 1",
)
UNIFORM_SCOPE = row(
    "language-uniform-scope",
    CompilationError,
    "gl.uniform claims that a value is equal in the threads of a block or of a warp, not of {scope}",
    'write gl.uniform(x) for the block, or gl.uniform(x, "warp") for each warp',
)
SCALAR_NEEDED = row(
    "language-scalar-needed",
    CompilationError,
    "{what} needs a scalar, but got {got}",
    "reduce the tile first, or take x.item() of a tile of one element",
)
INTEGER_SCALAR = row(
    "language-integer-scalar",
    CompilationError,
    "{what} needs an integer, but got {got}",
    "{instead}",
)
PREDICATE = row(
    "language-predicate",
    CompilationError,
    "the predicate of {what} is {got}, not one condition",
    "pass True, False or a scalar condition such as i < n",
)

# Element types

DTYPE = row(
    "language-dtype",
    CompilationError,
    "{got} is not an element type",
    "{instead}",
)
INTEGER_RANGE = row(
    "language-integer-range",
    CompilationError,
    "the integer {value} does not fit 64 bits",
    "use a smaller constant",
)
LITERAL_RANGE = row(
    "language-literal-range",
    CompilationError,
    "the constant {value} is combined with {dtype} values, whose range is {low} to {high}",
    "cast the values to a wider type first, or use a constant in range",
)
MIXED_SIGNS = row(
    "language-mixed-signs",
    CompilationError,
    "{what} mixes signed and unsigned: {left} and {right}",
    "cast one of them with .to(...) so that both have the same sign",
)
FLOOR_DIVISION = row(
    "language-floor-division",
    CompilationError,
    "// divides integers, but got {left} and {right}",
    "write gl.floor(x / y)",
)
POWER = row(
    "language-power",
    CompilationError,
    "** of these computes in float32 or float64, but got {base} and {exponent}",
    "write {instead}",
)
DERIVATIVE = row(
    "language-derivative",
    CompilationError,
    "gradients need the derivative of this, and there is none of {what}",
    "write it by + - * /, gl.where, gl.minimum, gl.maximum and {known}, without branches and loops on run-time values",
)
MATMUL = row(
    "language-matmul",
    CompilationError,
    "@ is not an operator of tiles",
    "write gl.dot_fma(a, b, acc), or mma_v2 or warpgroup_mma of weft.language.nvidia",
)
FP8_ARITHMETIC = row(
    "language-fp8-arithmetic",
    CompilationError,
    "{what} cannot compute in {dtype}, which is for storage only",
    "convert first: x.to(gl.float16) or x.to(gl.float32)",
)
INTEGER_NEEDED = row(
    "language-integer-needed",
    CompilationError,
    "{what} works on integers and bools, but got {got}",
    "cast with .to(gl.int32), or reinterpret the bits with .to(gl.int32, bitcast=True)",
)
FLOAT_NEEDED = row(
    "language-float-needed",
    CompilationError,
    "{what} takes {allowed}, but got {got}",
    "convert first: x.to(gl.float32)",
)
UMULHI = row(
    "language-umulhi",
    CompilationError,
    "umulhi multiplies 32- or 64-bit integers, not {dtype}",
    "cast with .to(gl.uint32)",
)
POPCOUNT = row(
    "language-popcount",
    CompilationError,
    "popcount counts bits of 32- or 64-bit integers, not of {dtype}",
    "cast with .to(gl.uint32); a negative integer is extended with its sign",
)
LIBDEVICE_TYPES = row(
    "language-libdevice-types",
    CompilationError,
    "libdevice.{what} takes {accepted}, but got {got}",
    "convert the operands with .to(...); a Python number takes the type that fits",
)
PROPAGATE_NAN = row(
    "language-propagate-nan",
    CompilationError,
    "propagate_nan is {got}",
    "use gl.PropagateNan.NONE or gl.PropagateNan.ALL",
)
BITCAST = row(
    "language-bitcast",
    CompilationError,
    "cannot bitcast {value} to {dtype}: the one has {bits} bits, the other {other}",
    "choose a type of {bits} bits, or leave bitcast out to convert the numbers",
)
CAST_ROUNDING = row(
    "language-cast-rounding",
    CompilationError,
    "fp_downcast_rounding={rounding} is not valid for a cast of {value} to {dtype}",
    "use 'rtne' or 'rtz' where a float becomes a narrower float ('rtne' only for fp8), and leave it out elsewhere",
)
CAST_POINTER = row(
    "language-cast-pointer",
    CompilationError,
    "cannot convert {value} to {dtype}",
    "pointers convert to and from gl.int64 and gl.uint64",
)

# Pointers

POINTER_OPERAND = row(
    "language-pointer-operand",
    CompilationError,
    "{what} does not take {pointer}",
    "load through it first, or add integers to it to move it",
)
POINTER_OFFSET = row(
    "language-pointer-offset",
    CompilationError,
    "the offset added to {pointer} is {offset}, but offsets are integers that count elements",
    "{instead}",
)
POINTER_DIFFERENCE = row(
    "language-pointer-difference",
    CompilationError,
    "- cannot subtract {right} from {left}",
    "subtract integers from a pointer, or the offsets from each other",
)
POINTER_TYPES = row(
    "language-pointer-types",
    CompilationError,
    "where cannot choose between {left} and {right}",
    "cast one with .to(gl.pointer_type(dtype))",
)
POINTER_NEEDED = row(
    "language-pointer-needed",
    CompilationError,
    "{what} needs a pointer, but got {got}",
    "{instead}",
)
OTHER_WITHOUT_MASK = row(
    "language-other-without-mask",
    CompilationError,
    "load got other without a mask, so it would never be used",
    "add mask=..., or drop other",
)
MASK_TYPE = row(
    "language-mask-type",
    CompilationError,
    "the mask of {what} is {got}, not int1",
    "write a condition such as offsets < n, or mask != 0",
)
TILE_AT_SCALAR = row(
    "language-tile-at-scalar",
    CompilationError,
    "{what} accesses one address, {pointer}, but got {value}",
    "add a tile of offsets to the pointer, or pass scalars",
)
CACHE_MODIFIER = row(
    "language-cache-modifier",
    CompilationError,
    "{what} has no cache modifier {got}",
    "use one of {known}, or leave it out",
)
EVICTION_POLICY = row(
    "language-eviction-policy",
    CompilationError,
    "there is no eviction policy {got}",
    "use evict_first or evict_last, or leave it out",
)
CACHE_AND_EVICTION = row(
    "cuda-cache-and-eviction",
    CompilationError,
    "this access has the cache modifier {cache!r} and the eviction policy {eviction!r}, but an instruction takes only one",
    "keep one of the two",
)
POLICY = row(
    "language-cache-policy",
    CompilationError,
    "{what} has no {field} {got}",
    "write {known}",
)
POLICY_EMPTY = row(
    "language-cache-policy-empty",
    CompilationError,
    "CachePolicy() sets nothing",
    "give it cache_modifier=, l1=, l2= or l2_prefetch_size=, or leave cache_policy= out",
)
POLICY_NEEDED = row(
    "language-cache-policy-needed",
    CompilationError,
    "cache_policy of {what} is a CachePolicy, but got {got}",
    'write CachePolicy(l2=FractionalEvictionPolicy("evict_first", 1.0)), with the names of weft.language.nvidia.ampere',
)
POLICY_PART = row(
    "language-cache-policy-part",
    CompilationError,
    "{what} takes no {part} of a cache policy",
    "set {known} only",
)
POLICY_TWICE = row(
    "language-cache-policy-twice",
    CompilationError,
    "{what} got both cache_policy and {name}={value!r}",
    "say it in the cache_policy, or leave that out",
)
ACCESS_ORDER = row(
    "language-access-order",
    CompilationError,
    "gl.{what} has no {field} {got}",
    "use one of {known}{more}",
)
ACCESS_ORDER_WITH = row(
    "language-access-order-with",
    CompilationError,
    "gl.{what} has {given} and {other}, which cannot be combined",
    "{fix}",
)
PACKED_TYPE = row(
    "language-packed-type",
    CompilationError,
    "{what} computes pairs of {known}, not of {dtype}",
    "convert the operands, as in x.to(gl.float16), or pass dtype=",
)
FLOAT2_VALUE = row(
    "language-float2-value",
    CompilationError,
    "the value of a Float2Tensor is a tile of int64, of two float32 each, not {got}",
    "make pairs of float32 tiles with float2.pack(x, axis) or float2.pack2(x, y)",
)
ATOMIC_TYPE = row(
    "language-atomic-type",
    CompilationError,
    "atomic_{kind} does not work on {dtype} in memory",
    "use {allowed}",
)
ATOMIC_ORDER = row(
    "language-atomic-order",
    CompilationError,
    "an atomic has no {field} {got}",
    "use one of {known}",
)

POLL_ORDER = row(
    "language-poll-order",
    CompilationError,
    "a poll has no sem {got}",
    "use {known}: a poll only reads; the store that it waits for releases",
)
POLL_TIMEOUT = row(
    "language-poll-timeout",
    CompilationError,
    "a timeout is a number of nanoseconds, at least 0, but got {got}",
    "pass an integer, as in timeout_ns=1_000_000, or leave it out to wait without a limit",
)

# Programs, hints, messages

GRID_AXIS = row(
    "language-grid-axis",
    CompilationError,
    "{what} got axis {axis}, but a grid has axes 0, 1 and 2",
    "use 0, 1 or 2",
)
ASSUME_FALSE = row(
    "language-assume-false",
    CompilationError,
    "assume got a condition that is false at compile time",
    "remove it, or correct the condition",
)
HINT = row(
    "language-hint",
    CompilationError,
    "{what} got {values} for {value}",
    "give one positive integer per axis ({axes}), for integers or pointers",
)
HINT_RANGE = row(
    "language-hint-range",
    CompilationError,
    "{what} got {values} for {value}, whose type holds at most {most}",
    "give integers of at most {most}",
)
PRINT_PREFIX = row(
    "language-print-prefix",
    CompilationError,
    "device_print starts with a string, but got {got}",
    'write gl.device_print("x", x)',
)
ASSERT_TEXT = row(
    "language-assert-text",
    CompilationError,
    "device_assert got {got} as its message",
    "pass a string",
)
STATIC_ASSERT = row(
    "language-static-assert",
    CompilationError,
    "a static assertion failed{message}",
    "change what the condition depends on",
)

# Aggregates

AGGREGATE_FIELDS = row(
    "language-aggregate-fields",
    CompilationError,
    "the aggregate {name} has no annotated field",
    "annotate each field, as in value: gl.tensor",
)
AGGREGATE_NEEDED = row(
    "language-aggregate-needed",
    CompilationError,
    "aggregate_replace copies instances of @aggregate classes, but got {got}",
    "pass an instance of a class that is decorated with @aggregate",
)
FIELD_MISSING = row(
    "language-field-missing",
    CompilationError,
    "{cls}.__init__ did not set the field {field!r}",
    "assign self.{field} on every path",
)
FIELD_TYPE = row(
    "language-field-type",
    CompilationError,
    "{cls}.{field} is declared {want}, but got {got}",
    "pass a value of that kind, or change the annotation",
)
FIELD_ANNOTATION = row(
    "language-field-annotation",
    CompilationError,
    "{field} is declared {kind}, but module {module} has no attribute {name!r}",
    "declare a type that exists{hint}",
)
FIELD_ARGUMENTS = row(
    "language-field-arguments",
    CompilationError,
    "{cls} was not made from its fields: {reason}",
    "pass {fields}",
)

# Tiles: shapes, layouts and ranks that do not match

# Shapes and layouts

TILE_RANK_MISMATCH = row(
    "tile-rank-mismatch",
    LayoutError,
    "{what} combines {left} and {right}, whose ranks differ",
    "add dimensions, as in x[:, None] or x[None, :], with layouts that are slices of one parent",
)
TILE_SHAPE_MISMATCH = row(
    "tile-shape-mismatch",
    LayoutError,
    "{what} combines {left} and {right}: dimension {dim} is {left_size} in one and {right_size} in the other",
    "make the sizes equal, or 1 in one of them",
)
TILE_LAYOUT_MISMATCH = row(
    "tile-layout-mismatch",
    LayoutError,
    "{what} combines {left} in {left_layout} and {right} in {right_layout}",
    "write gl.convert_layout({value}, {left_layout}) (cost: {cost})",
)
TILE_NOT_A_LAYOUT = row(
    "tile-not-a-layout",
    LayoutError,
    "{got} is not a layout of tiles",
    "pass a layout such as gl.BlockedLayout([1], [32], [4], [0])",
)
TILE_LAYOUT_KNOWN = row(
    "tile-layout-known",
    LayoutError,
    "set_auto_layout got {value}, which already has the layout {layout}",
    "use gl.convert_layout to move it to another layout",
)
TILE_NOT_TRIVIAL = row(
    "tile-not-trivial",
    LayoutError,
    "converting {value} from {source} to {target} is not free (cost: {cost})",
    "make the layouts equal, or drop assert_trivial=True",
)
TILE_EXPAND_SLICE = row(
    "tile-expand-slice",
    LayoutError,
    "cannot insert dimension {axis} into {value}: its layout {layout} is a slice that dropped dimension {dim}",
    "write gl.SliceLayout({axis}, {parent}), or add dimension {dim}",
)
TILE_ARANGE = row(
    "tile-arange",
    CompilationError,
    "arange({start}, {end}) has {length} elements, but tiles have a positive power of two or a multiple of 8",
    "choose bounds that are 1, 2, 4 or 8n apart, and mask the excess elements",
)
TILE_ARANGE_RANGE = row(
    "tile-arange-range",
    CompilationError,
    "arange({start}, {end}) exceeds the range of int32, the type of its elements",
    "start lower and add the rest as an int64 scalar, as in gl.arange(0, {length}).to(gl.int64) + {start}",
)
TILE_TRANSPOSE = row(
    "tile-transpose",
    CompilationError,
    "{value} has fewer than two axes to transpose",
    "use a tile of two dimensions or more",
)
TILE_ITEM = row(
    "tile-item",
    CompilationError,
    "item takes a tile of one element, but got {value}",
    "reduce it first",
)
TILE_INDEX = row(
    "tile-index",
    CompilationError,
    "[{key}] does not index {value}",
    "{instead}",
)
TILE_INDEX_RANK = row(
    "tile-index-rank",
    CompilationError,
    "{value} is indexed with {colons} colons",
    "write one colon per dimension, and None for each new one",
)
TILE_SLICE = row(
    "tile-slice",
    CompilationError,
    "elements {start} to {end} are no part of dimension {axis} of {value}, which has {size}",
    "take at least one element, from 0 up to {size}",
)
TILE_SLICE_RANK = row(
    "tile-slice-rank",
    CompilationError,
    "slice got shape {shape} and offsets {offsets} for {value}",
    "give {rank} sizes and {rank} offsets",
)
TILE_CAT = row(
    "tile-cat",
    CompilationError,
    "cat got {left} and {right}, whose shapes differ",
    "concatenate tiles of one shape",
)

# Functions of elements

TILE_COMBINE_FUNCTION = row(
    "tile-combine-function",
    CompilationError,
    "{what} got {got}, which is not a kernel function",
    "decorate it with @weft.jit, or use one of the language such as gl.maximum",
)
TILE_COMBINE_COUNT = row(
    "tile-combine-count",
    CompilationError,
    "the function given to {what} returns {got} values for {want} operands",
    "return one scalar per operand",
)
TILE_COMBINE_RESULT = row(
    "tile-combine-result",
    CompilationError,
    "the function given to {what} returns {got} where a {want} scalar is needed",
    "cast the result with .to(gl.{want})",
)
TILE_INDEX_AXIS = row(
    "tile-index-axis",
    CompilationError,
    "{what} finds positions along one axis, but got axis=None",
    "pass an axis, or gl.ravel(x) and axis 0",
)
TILE_TOPK = row(
    "tile-topk",
    CompilationError,
    "topk of {value} got k={k}; its axis {axis} has {size} elements",
    "give a power of two up to {size}, and slice off what is not wanted",
)
TILE_SORT_END = row(
    "tile-sort-end",
    CompilationError,
    "{what} of {value}: its axis {axis} has {size} elements, and sorts are of powers of two",
    "load a power of two of elements, with other= a number that sorts behind all others",
)
TILE_HISTOGRAM = row(
    "tile-histogram",
    CompilationError,
    "histogram counts integers of a one-dimensional tile, but got {value}",
    "use gl.ravel(x) and integers",
)
TILE_GATHER_SHAPE = row(
    "tile-gather-shape",
    CompilationError,
    "gather along axis {axis} got {src} and the index {index}, whose other axes differ",
    "make all axes but {axis} equal",
)
TILE_MAP_PACK = row(
    "tile-map-pack",
    CompilationError,
    "map_elementwise got {operands} operands and pack={pack}",
    "pass a pack of 1 or more, and of 1 where there are no operands",
)
TILE_MAP_RESULT = row(
    "tile-map-result",
    CompilationError,
    "the function given to map_elementwise returns {got}, with pack={pack}",
    "return {pack} scalars of one type per result",
)
TILE_DOT_SHAPE = row(
    "tile-dot-shape",
    CompilationError,
    "dot_fma cannot multiply {a} by {b} into {acc}",
    "use shapes [M, K], [K, N] and [M, N], or the same with one leading dimension in all three",
)
TILE_DOT_TYPE = row(
    "tile-dot-type",
    CompilationError,
    "dot_fma got {a}, {b} and {acc}, but computes in one float type",
    "cast the operands to the accumulator's type",
)
TILE_ASM_CONSTRAINTS = row(
    "tile-asm-constraints",
    CompilationError,
    "constraints {given} name {outputs} outputs and {inputs} inputs, but the values take {want_out} and {want_in} registers",
    "write one per register, outputs first, with = before each output",
)
TILE_ASM_OPERANDS = row(
    "tile-asm-operands",
    CompilationError,
    "inline_asm_elementwise got {operands} operands and pack={pack}",
    "pass a pack of 1 or more, and of 1 where there are no operands",
)
TILE_ASM_RESULT = row(
    "tile-asm-result",
    CompilationError,
    "inline_asm has a result of type {got}, which has no registers in a known layout",
    "give the type of a tile, as x.type or gl.distributed_type(dtype, shape, layout)",
)
TILE_ASM_BUFFERS = row(
    "tile-asm-buffers",
    CompilationError,
    "inline_asm takes up to three buffers, each a whole tile in shared memory, and has effects then; it got {reason}",
    "index a buffer of several tiles, pass the whole tile, and leave is_pure out",
)
EXP2_DEGREE = row(
    "language-exp2-degree",
    CompilationError,
    "exp2_polynomial has polynomials of degree 3, 4 and 5, not {degree}",
    "write degree=3 for results of 16 bits, or gl.exp2 for full precision",
)
RANDOM = row(
    "language-random",
    CompilationError,
    "{what} takes integers, but got {got}",
    "pass an integer, or a tile of them such as the elements' offsets",
)
TILE_INT4 = row(
    "tile-int4",
    CompilationError,
    "int4_to_fp unpacks bytes or 32-bit words into floats of 16 bits or more, but got {src} and {dtype}",
    "pass a tile of int8, uint8, int32 or uint32, and gl.float16, gl.bfloat16 or gl.float32",
)
TILE_INT4_ORDER = row(
    "tile-int4-order",
    CompilationError,
    "int4_to_fp(..., interleaved=True) is an order of the eight numbers of a 32-bit word, but got {src}",
    "pass a tile of int32 or uint32, or leave interleaved out: a byte holds the two numbers in their order",
)
TILE_FP4 = row(
    "tile-fp4",
    CompilationError,
    "fp4_to_fp unpacks bytes into floats of 16 bits or more, but got {src} and {dtype}",
    "pass an int8 or uint8 tile, and gl.float16, gl.bfloat16 or gl.float32",
)
