"""Mistakes with tiles: shapes, layouts and ranks that do not go together, and functions of elements that do not fit."""

from __future__ import annotations

from weft.errors.base import CompilationError, LayoutError, row

# Shapes and layouts

RANK_MISMATCH = row(
    "tile-rank-mismatch",
    LayoutError,
    "{what} meets {left} and {right}, whose ranks differ",
    "add dimensions, as in x[:, None] or x[None, :], with layouts that are slices of one parent",
)
SHAPE_MISMATCH = row(
    "tile-shape-mismatch",
    LayoutError,
    "{what} meets {left} and {right}: dimension {dim} is {left_size} in one and {right_size} in the other",
    "make the sizes equal, or 1 in one of them",
)
LAYOUT_MISMATCH = row(
    "tile-layout-mismatch",
    LayoutError,
    "{what} meets {left} in {left_layout} and {right} in {right_layout}",
    "write gl.convert_layout({value}, {left_layout}) (cost: {cost})",
)
NOT_A_LAYOUT = row(
    "tile-not-a-layout",
    LayoutError,
    "{got} is not a layout of tiles",
    "pass a layout such as gl.BlockedLayout([1], [32], [4], [0])",
)
LAYOUT_KNOWN = row(
    "tile-layout-known",
    LayoutError,
    "set_auto_layout got {value}, which already lies in {layout}",
    "use gl.convert_layout to move it to another layout",
)
NOT_TRIVIAL = row(
    "tile-not-trivial",
    LayoutError,
    "converting {value} from {source} to {target} is not free (cost: {cost})",
    "make the layouts equal, or drop assert_trivial=True",
)
EXPAND_SLICE = row(
    "tile-expand-slice",
    LayoutError,
    "a new dimension {axis} is asked of {value}, which lies in {layout}, a slice that dropped dimension {dim}",
    "write gl.SliceLayout({axis}, {parent}), or add dimension {dim}",
)
ARANGE = row(
    "tile-arange",
    CompilationError,
    "arange({start}, {end}) has {length} elements, but tiles have a positive power of two",
    "choose bounds 1, 2, 4, 8 and so on apart, and mask what lies beyond",
)
ARANGE_RANGE = row(
    "tile-arange-range",
    CompilationError,
    "arange({start}, {end}) goes beyond the int32 of its elements",
    "start lower and add the rest as an int64 scalar, as in gl.arange(0, {length}).to(gl.int64) + {start}",
)
TRANSPOSE = row(
    "tile-transpose",
    CompilationError,
    "{value} has no two axes to exchange",
    "use a tile of two dimensions or more",
)
ITEM = row(
    "tile-item",
    CompilationError,
    "item takes a tile of one element, but got {value}",
    "reduce it first",
)
INDEX = row(
    "tile-index",
    CompilationError,
    "[{key}] does not index {value}",
    "{instead}",
)
INDEX_RANK = row(
    "tile-index-rank",
    CompilationError,
    "{colons} colons index {value}",
    "write one colon per dimension, and None for each new one",
)

# Functions of elements

COMBINE_FUNCTION = row(
    "tile-combine-function",
    CompilationError,
    "{what} got {got}, which is no kernel function",
    "decorate it with @weft.jit, or use one of the language such as gl.maximum",
)
COMBINE_COUNT = row(
    "tile-combine-count",
    CompilationError,
    "the function given to {what} returns {got} values for {want} operands",
    "return one scalar per operand",
)
COMBINE_RESULT = row(
    "tile-combine-result",
    CompilationError,
    "the function given to {what} returns {got} where a {want} scalar is needed",
    "cast the result with .to(gl.{want})",
)
INDEX_AXIS = row(
    "tile-index-axis",
    CompilationError,
    "{what} finds positions along one axis, but got axis=None",
    "pass an axis, or gl.ravel(x) and axis 0",
)
HISTOGRAM = row(
    "tile-histogram",
    CompilationError,
    "histogram counts integers of a one-dimensional tile, but got {value}",
    "use gl.ravel(x) and integers",
)
GATHER_SHAPE = row(
    "tile-gather-shape",
    CompilationError,
    "gather along axis {axis} got {src} and the index {index}, whose other axes differ",
    "make all axes but {axis} equal",
)
MAP_PACK = row(
    "tile-map-pack",
    CompilationError,
    "map_elementwise got {operands} operands and pack={pack}",
    "pass at least one operand, and a pack of 1 or more",
)
MAP_RESULT = row(
    "tile-map-result",
    CompilationError,
    "the function given to map_elementwise returns {got}, with pack={pack}",
    "return {pack} scalars of one type per result",
)
DOT_SHAPE = row(
    "tile-dot-shape",
    CompilationError,
    "dot_fma cannot multiply {a} by {b} into {acc}",
    "use shapes [M, K], [K, N] and [M, N]",
)
DOT_TYPE = row(
    "tile-dot-type",
    CompilationError,
    "dot_fma got {a}, {b} and {acc}, but computes in one float type",
    "cast the operands to the accumulator's type",
)
ASM_CONSTRAINTS = row(
    "tile-asm-constraints",
    CompilationError,
    "constraints {given} name {outputs} outputs and {inputs} inputs, but the values take {want_out} and {want_in} registers",
    "write one per register, outputs first, with = before each output",
)
ASM_OPERANDS = row(
    "tile-asm-operands",
    CompilationError,
    "inline_asm_elementwise got {operands} operands and pack={pack}",
    "pass at least one operand, and a pack of 1 or more",
)
FP4 = row(
    "tile-fp4",
    CompilationError,
    "fp4_to_fp unpacks bytes into floats of 16 bits or more, but got {src} and {dtype}",
    "pass an int8 or uint8 tile, and gl.float16, gl.bfloat16 or gl.float32",
)
