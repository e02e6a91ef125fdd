"""Mistakes where views and tiles meet: views loaded and stored as tiles, their descriptors, tiles as views of registers."""

from __future__ import annotations

from weft.errors.base import CompilationError, LaunchError, LayoutError, row

# Views as tiles

SIZES = row(
    "bridge-sizes",
    CompilationError,
    "{what} of {view}, whose shape {shape} is not that of a tile: sizes are powers of two, known at compile time",
    "take a tile of it, as in {what}({view}.tile[{tile}]({coordinates})); where its sizes do not divide the view's, make the "
    "view with masked=True",
)
VECTORS = row(
    "bridge-vectors",
    CompilationError,
    "{what} of {view}, whose elements are vectors of {width} numbers",
    "take the view as it was before vectorize: the layout of a tile says how many numbers a thread has in a row",
)
SPACE = row(
    "bridge-space",
    CompilationError,
    "{what} of {view}, which is in {space} memory: tiles are loaded from global memory and stored there",
    "{instead}",
)
SHAPES = row(
    "bridge-shapes",
    CompilationError,
    "{value} is stored to {view}, whose shape is {shape}",
    "take the part of the view that the tile belongs to, as in view.tile[{tile}]({coordinates})",
)
LAYOUT_OF_ADDRESSES = row(
    "bridge-layout-of-addresses",
    CompilationError,
    "load with layout={layout!r} of {got}, which is no view: what is loaded has the layout of its addresses",
    "leave layout= out and make the addresses in that layout, or load a view (weft.LayoutTensor)",
)

# Descriptors of views

DESCRIPTOR_VIEW = row(
    "bridge-descriptor-view",
    LaunchError,
    "a descriptor is made of a view, but got {got}",
    "pass a weft.LayoutTensor; of an array write TensorDescriptor.from_tensor",
)
DESCRIPTOR_TENSOR = row(
    "bridge-descriptor-tensor",
    LaunchError,
    "from_tensor describes a whole array, but got the view {got}",
    "write TensorDescriptor.from_view(view, block_shape, layout)",
)
DESCRIPTOR_NESTED = row(
    "bridge-descriptor-nested",
    LayoutError,
    "a descriptor of {view} with layout {layout}: along axis {axis} its elements are not one stride apart, as TMA needs",
    "make it of a tile that ends where the layout's own tiles do, or view the array with one size and stride per axis",
)
DESCRIPTOR_VECTORS = row(
    "bridge-descriptor-vectors",
    LayoutError,
    "a descriptor of {view}, whose elements are vectors of {width} numbers",
    "make it of the view before vectorize",
)
DESCRIPTOR_SPACE = row(
    "bridge-descriptor-space",
    CompilationError,
    "a descriptor of {view}, which is in {space} memory",
    "TMA describes global memory: make it of a view of an argument of the kernel",
)
DESCRIPTOR_ARGUMENTS = row(
    "bridge-descriptor-arguments",
    CompilationError,
    "make_tensor_descriptor of {base} {problem}",
    "write make_tensor_descriptor(view, block_shape=..., layout=...), or for a pointer make_tensor_descriptor(pointer, shape, "
    "strides, block_shape, layout)",
)

# Tiles as views of registers

FRAGMENT_OPEN = row(
    "bridge-fragment-open",
    CompilationError,
    "a fragment of {value}, whose layout {layout!r} is still to be found, so nothing is known of its registers",
    "give it a layout, where it is made or with gl.set_auto_layout(x, layout)",
)
FRAGMENT_VIEW = row(
    "bridge-fragment-view",
    CompilationError,
    "gl.from_fragment makes a tile from a view of a thread's registers, but got {got}",
    "pass what gl.fragment(tile) gave, or a view from LayoutTensor.stack_allocation of the same shape",
)
FRAGMENT_SHAPE = row(
    "bridge-fragment-shape",
    LayoutError,
    "{view} has layout {got}, but of a tile {shape} in {layout!r} a thread holds {want}",
    "pass a view of single numbers with as many along each axis, as gl.fragment makes it of such a tile",
)
