"""Mistakes in nested layouts: coordinates that do not fit, and operations of the algebra that have no result."""

from __future__ import annotations

from weft.errors.base import LayoutError, row

NUMBER = row(
    "strided-number",
    LayoutError,
    "{value!r} is not a size or stride",
    "write integers, UNKNOWN, or tuples of them",
)
NEGATIVE_SIZE = row(
    "strided-negative-size",
    LayoutError,
    "size {size} in shape {shape} is negative",
    "use sizes of at least 0; for a size known at run time only write UNKNOWN",
)
CONGRUENT = row(
    "strided-congruent",
    LayoutError,
    "shape {shape} and stride {stride} are not congruent: they nest differently",
    "give one stride per size, in the same parentheses",
)
COORDINATE = row(
    "strided-coordinate",
    LayoutError,
    "coordinate {coordinate} does not fit shape {shape} of rank {rank}, {flat} when flattened",
    "give one index, one coordinate per mode (rank {rank}), or all {flat} flattened ones",
)
MODE = row(
    "strided-mode",
    LayoutError,
    "layout {layout} has no mode {mode}; its rank is {rank}",
    "use a mode from 0 to {last}",
)
ORDER = row(
    "strided-order",
    LayoutError,
    "order {order} does not name each of the {rank} modes of {what} once",
    "list every number from 0 to {last} once",
)
SHAPE_DIV = row(
    "strided-shape-div",
    LayoutError,
    "shape {a} cannot be divided by {b}: of two sizes one must divide the other",
    "give sizes of at least 1 that divide one another, and as many modes on both sides",
)
COMPACT_ORDER = row(
    "strided-compact-order",
    LayoutError,
    "order {order} does not nest like shape {shape}",
    "give one number per size, in the same parentheses",
)
ALIKE = row(
    "strided-alike",
    LayoutError,
    "{a} and {b} cannot be expanded alike: {one} stands opposite {other}",
    "expand layouts of equal sizes, whose modes divide one another in the same order",
)

# The algebra.
UNKNOWN = row(
    "strided-unknown",
    LayoutError,
    "{operation} needs all sizes and strides, but {layout} has some that are known at run time only",
    "use a layout whose numbers are all known, or {operation} of its known modes",
)
EMPTY = row(
    "strided-empty",
    LayoutError,
    "{operation} of {layout} is undefined: one of its sizes is 0",
    "use sizes of at least 1",
)
TILER = row(
    "strided-tiler",
    LayoutError,
    "a tiler of {count} modes does not fit {layout}, whose rank is {rank}",
    "give at most {rank} tiles, one per mode",
)
DIVIDE = row(
    "strided-divide",
    LayoutError,
    "cannot compose {outer} with {inner}: mode ({size}:{step}) of the second steps unevenly over mode {mode} of the first",
    "choose a step that divides the size there or is a multiple of it, and a size that fills the mode a whole number of times",
)
CARRY = row(
    "strided-carry",
    LayoutError,
    "cannot compose {outer} with {inner}: modes of the second together run past the end of mode {mode} of the first",
    "compose with a layout whose modes do not overlap, or split {outer} otherwise",
)
COMPLEMENT = row(
    "strided-complement",
    LayoutError,
    "{layout} has no complement: mode ({size}:{step}) steps by {step}, but the modes below it span {span}",
    "use strides of at least 0 that are multiples of the span of the modes of smaller stride; complement() and products also "
    "take larger ones, with gaps",
)
INJECTIVE = row(
    "strided-injective",
    LayoutError,
    "{layout} has no left inverse: mode ({size}:0) puts {size} elements at one offset",
    "drop the modes of stride 0 first: left_inverse(filter_layout(layout))",
)
UPCAST = row(
    "strided-upcast",
    LayoutError,
    "mode ({size}:{step}) of {layout} does not hold whole groups of {count} elements",
    "use a stride that is a multiple of {count}, or one that divides {count} with a size that fills whole groups",
)
TILE_TO_SHAPE = row(
    "strided-tile-to-shape",
    LayoutError,
    "a tile of shape {block} does not fill shape {target}: {size} is not a multiple of {tile}",
    "choose a shape that the tile divides",
)

# Swizzles, linear layouts, pictures.
SWIZZLE = row(
    "strided-swizzle",
    LayoutError,
    "Swizzle({bits}, {base}, {shift}) is invalid: {bits} bits shifted by {shift} overlap, or a number is negative",
    "choose bits and base of at least 0, and a shift of at least {bits} (or at most -{bits})",
)
SWIZZLE_NUMBERS = row(
    "strided-swizzle-numbers",
    LayoutError,
    "Swizzle({bits!r}, {base!r}, {shift!r}) counts bits, so it takes integers",
    "write for example Swizzle(3, 3, 3), or make_swizzle(row_size, vector, element_bytes=2)",
)
SWIZZLE_BITS = row(
    "strided-swizzle-bits",
    LayoutError,
    "Swizzle({bits}, {base}, {shift}) exceeds the {most} bits of an offset",
    "choose bits, base and shift that sum to at most {most}; they count bits, not elements",
)
SWIZZLE_ROW = row(
    "strided-swizzle-row",
    LayoutError,
    "rows of {row} elements do not consist of whole vectors of {vector} in powers of two",
    "choose powers of two with {row} at least {vector}, or pad the rows instead",
)
LINEAR_CARRY = row(
    "strided-linear-carry",
    LayoutError,
    "{layout} is not linear: offsets {first} and {second} of two of its index bits have bits in common and add up with a carry",
    "use sizes and strides that are powers of two, and modes that do not overlap",
)
LINEAR_OUTER = row(
    "strided-linear-outer",
    LayoutError,
    "{layout} is not linear: a linear layout is an inner layout at offset 0 under a Swizzle",
    "convert the inner layout, and add the offset where it is used",
)
LINEAR_XOR = row(
    "strided-linear-xor",
    LayoutError,
    "no strides give this linear layout: bases {first} and {second} have bits in common, so they do not add up",
    "undo the swizzle first, and keep it as ComposedLayout(Swizzle(...), 0, layout)",
)
OFFSETS = row(
    "strided-offsets",
    LayoutError,
    "{layout} reaches from offset {low} to {high}, but an offset in memory has {bits} bits and a sign",
    "use sizes and strides of the array that the view is of",
)
GRID = row(
    "strided-grid",
    LayoutError,
    "a layout of rank {rank} is not a grid: {layout}",
    "print its modes two at a time: layout[:2], or sublayout(layout, i, j)",
)
