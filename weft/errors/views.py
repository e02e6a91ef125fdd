"""Mistakes with views: LayoutTensors that cannot be made, accesses and partitions that do not fit, views used as tiles."""

from __future__ import annotations

from weft.errors.base import CompilationError, LaunchError, LayoutError, UserError, row


class ViewError(UserError, ValueError):
    """A view that cannot be made as written, or an operation that it does not allow."""


class ViewIndexError(ViewError, IndexError):
    """An index into a view that names no element."""


# Making views

OPEN = row(
    "view-open",
    ViewError,
    "{got} has no memory that a LayoutTensor can view",
    "pass an array (NumPy, torch, CuPy, DLPack){example}, or in a kernel a pointer or a shared handle",
)
ALLOCATION = row(
    "view-allocation",
    ViewError,
    "there is no memory of {space} to allocate here",
    "on the host allocate AddressSpace.GENERIC, or let an array library allocate and view its array; in a kernel "
    "AddressSpace.SHARED and AddressSpace.LOCAL can be allocated",
)
LAYOUT = row(
    "view-layout",
    ViewError,
    "{got} is not a nested layout",
    "{instead}",
)
LAYOUT_NEEDED = row(
    "view-layout-needed",
    ViewError,
    "{what} has no shape, so the view needs a layout",
    "pass one, as in LayoutTensor(pointer, Layout.row_major(16, 16))",
)
UNKNOWN_NUMBER = row(
    "view-unknown-number",
    ViewError,
    "{what} of layout {layout} is UNKNOWN, and {source} does not give it",
    "pass {argument}=(...) with a number for each mode",
)
NUMBER_COUNT = row(
    "view-number-count",
    ViewError,
    "{argument}={given} has {count} numbers, layout {layout} has {modes} modes",
    "give one number per mode of the flattened layout",
)
NUMBER_DIFFERS = row(
    "view-number-differs",
    ViewError,
    "{argument}={given} says {number} where layout {layout} says {known}",
    "make them agree, or write UNKNOWN in the layout",
)
EXTENT = row(
    "view-extent",
    ViewError,
    "layout {layout} reaches elements {low} to {high}, but the memory has elements {first} to {last}",
    "use a layout that stays inside",
)
UNKNOWN_LAYOUT = row(
    "view-unknown-layout",
    ViewError,
    "layout {layout} has numbers that are known at run time only, but {what}",
    "{instead}",
)

# Memory

DEVICE_MEMORY = row(
    "view-device-memory",
    ViewError,
    "{array} lies in GPU memory, whose elements the host cannot {verb}",
    "copy it and view the copy: {fix}; a kernel takes the view as it is",
)
READ_ONLY = row(
    "view-read-only",
    ViewError,
    "{array} is read-only",
    "view a copy, or set array.flags.writeable",
)
MEMORY_GONE = row(
    "view-memory-gone",
    ViewError,
    "the memory of {array} is gone: {reason}",
    "make the view again over the array as it is now, and keep buffers open while views of them are used",
)
STRIDES = row(
    "view-array-strides",
    ViewError,
    "strides of {strides} bytes are not multiples of the {itemsize} bytes of a {dtype} element",
    "view a copy: np.ascontiguousarray(array)",
)
ELEMENT_TYPE = row(
    "view-element-type",
    ViewError,
    "elements of type {dtype} cannot be viewed",
    "convert the array to a type of numbers",
)
FORM = row("view-array-form", ViewError, "{what} cannot be viewed: {why}", "view {instead}")
DEVICE_KIND = row(
    "view-device-kind",
    ViewError,
    "an array on device {device} is neither in CUDA's memory nor in the host's",
    "copy it to one of them first",
)

# Elements

INDEX_COUNT = row(
    "view-index-count",
    ViewIndexError,
    "{view} takes {flat} and got {count}: its layout {layout} has rank {rank}, flattened {flat_rank}",
    "give one index per mode of the flattened layout, as in {example}, or one per axis",
)
INDEX = row(
    "view-index",
    ViewIndexError,
    "index {index} along {axis} of {view}, which has {size} there",
    "use an index from 0 to one less than the size",
)
INDEX_KIND = row(
    "view-index-kind",
    ViewIndexError,
    "{index} is not an index of {view}",
    "{instead}",
)
ITERATION = row(
    "view-iteration",
    ViewError,
    "{view} is not a sequence, so a loop cannot iterate over it",
    "loop over indices, as in `for i in range(view.dim(0)):`, or over the parts that .split(n)() gives",
)
VECTOR_LENGTH = row(
    "view-vector-length",
    ViewError,
    "a value of {count} numbers is stored where {width} are taken",
    "store a value of {width} numbers, or one number for all of them",
)
LOAD_VECTORS = row(
    "view-load-vectors",
    ViewError,
    "{what} counts single numbers, but elements of {view} are vectors of {width}",
    "index it as view[i, j], or load from the view before .vectorize",
)
LOAD_WIDTH = row(
    "view-load-width",
    ViewError,
    "{what} asks for {width} numbers at once",
    "give a whole number of at least 1 in the brackets, as in .load[4](i, j)",
)
LOAD_CONTIGUOUS = row(
    "view-load-contiguous",
    ViewError,
    "{what} needs {width} contiguous numbers, but no axis of {view} is known to have stride 1 (layout {layout})",
    "load single numbers, or make vectors along an axis with .vectorize[...]()",
)
ALIGNED = row(
    "view-vector-aligned",
    ViewError,
    "vectors of {width} of {view} would start at offset {offset}, which is not a multiple of {alignment}",
    "use a width that divides every stride of the layout and the first offset, or pad the rows",
)

ALIGNMENT = row(
    "view-alignment",
    ViewError,
    "{what} is told of an alignment of {alignment} bytes",
    "give a power of two of at least the {itemsize} bytes of a {dtype}, or leave the alignment out: it is that of the vector",
)

# Parts

TILE_RANK = row(
    "view-tile-rank",
    ViewError,
    "{what} is of rank {count}, but {view} is of rank {rank}",
    "give one number per axis",
)
TILE_SIZE = row(
    "view-tile-size",
    ViewError,
    "{what} asks for {size!r} along axis {axis}",
    "sizes in brackets are whole numbers of at least 1, known at compile time",
)
TILE_NESTED = row(
    "view-tile-nested",
    ViewError,
    "{what}: {part} does not match the tiles of {view} along axis {axis}, whose layout is {layout}",
    "use a size that ends where one of its tiles ends: {sizes}",
)
TILE_INDEX = row(
    "view-tile-index",
    ViewIndexError,
    "{what}: there is no tile {index} along axis {axis} of {view}, which has {count} there",
    "tile coordinates count tiles, from 0",
)
SPLIT = row(
    "view-split",
    ViewError,
    "{count} parts do not divide the {size} elements along axis {axis} of {view}",
    "split into a number of parts that divides the axis",
)
AXIS = row(
    "view-axis",
    ViewError,
    "{view} has no axis {axis!r}; its rank is {rank}",
    "use an axis from 0 to {last}",
)
UNKNOWN_SIZE = row(
    "view-unknown-size",
    ViewError,
    "{what} needs sizes that are known at compile time, but {view} has layout {layout}",
    "take a tile or a fragment of known size first",
)
SLICE = row(
    "view-slice",
    ViewError,
    "slice {part} is not valid for axis {axis} of {view}, which has {size} elements there",
    "slice with bounds from 0 to the size, the first not above the second, and a known step of at least 1; a nested axis "
    "is kept whole, or divided by .tile[...](i)",
)
RESHAPE_COUNT = row(
    "view-reshape-count",
    ViewError,
    "{view} has {size} elements, and {shape} has {count}",
    "reshape to as many elements",
)
RESHAPE = row(
    "view-reshape",
    ViewError,
    "{view} of layout {layout} cannot be viewed as {shape} without a copy",
    "copy it into a view of that shape with copy_from",
)
RESHAPE_MASKED = row(
    "view-reshape-masked",
    ViewError,
    "{view} is masked, so the elements out of bounds have no place in another shape",
    "reshape before making tiles, or reshape a whole tile",
)
ORDER = row(
    "view-transpose-order",
    ViewError,
    "{order} is not an order of the {rank} axes of {view}",
    "name each axis once",
)
VECTOR_DIVIDES = row(
    "view-vector-divides",
    ViewError,
    "{what}: vectors of {part} do not divide the {size} elements along axis {axis} of {view}",
    "use a width that divides the axis",
)
VECTOR_STRIDE = row(
    "view-vector-stride",
    ViewError,
    "{what}: the stride of axis {axis} of {view} is known at run time only, so its vectors have no static layout",
    "make vectors along the axis whose stride is 1",
)
THREADS_RANK = row(
    "view-threads-rank",
    ViewError,
    "thread layout {threads} is of rank {count}, but {view} is of rank {rank}",
    "give the thread layout one axis per axis of the view, or name one of them with axis=",
)
THREADS = row(
    "view-threads",
    ViewError,
    "thread layout {threads} has {count} threads along axis {axis} of {view}, which has {size} elements there",
    "use a thread layout whose sizes divide those of the view, or a masked view",
)
THREADS_MASKED = row(
    "view-threads-masked",
    ViewError,
    "thread layout {threads} divides axis {axis} of {view} mode by mode, but the axis ends within a mode there",
    "use a thread layout with one size along this axis, or tiles that divide the view",
)
THREADS_UNKNOWN = row(
    "view-threads-unknown",
    ViewError,
    "{threads} is not a thread layout, which is a nested layout of known strides and of known sizes of at least 1",
    "write one such as Layout.row_major(8, 4)",
)
THREAD_INDEX = row(
    "view-thread-index",
    ViewIndexError,
    "thread {index} of thread layout {threads}, which has {count} threads",
    "pass the number of a thread in the layout, such as lane_id() or thread_idx.x",
)
THREADS_FEW = row(
    "view-threads-few",
    ViewError,
    "thread layout {threads} has {count} threads, but the block has {block}",
    "use a thread layout of at most {block} threads",
)
SWIZZLE = row(
    "view-swizzle",
    ViewError,
    "{swizzle} does not repeat over the fragments of {view} under thread layout {threads}: elements of one fragment are "
    "swizzled differently",
    "use threads that span whole periods of the swizzle, or copy with copy_dram_to_sram(..., swizzle=...), which swizzles "
    "each access",
)
SWIZZLE_STRIDE = row(
    "view-swizzle-stride",
    ViewError,
    "a swizzle permutes elements of {width} numbers each, so {view} of layout {layout} needs known sizes and strides that are "
    "multiples of {width}",
    "swizzle views of shared memory, with vectors along the axis of stride 1",
)
SWIZZLE_VECTORS = row(
    "view-swizzle-vectors",
    ViewError,
    "{swizzle} moves vectors of {width} numbers of {view} to offsets that are no multiples of {width}",
    "give the swizzle a base of log2({width}) bits or more, since copies count offsets in numbers",
)

# Copies

COPY_COUNT = row(
    "view-copy-count",
    ViewError,
    "cannot copy to {view}, which has {count} elements, from {other}, which has {others}",
    "copy between views of equally many elements, for example tiles of one size",
)
SHAPES = row(
    "view-shapes",
    ViewError,
    "{view} has shape {shape}, {other} has shape {others}",
    "combine views of one shape",
)
SOURCE = row(
    "view-source",
    ViewError,
    "{what} takes a LayoutTensor, not {got}",
    "make a view of it, LayoutTensor(array); to set all elements to one number use fill(number)",
)
SPACE = row(
    "view-space",
    ViewError,
    "{what} copies from {source} to {target}, but {view} is in {space}",
    "copy between the memories that the name says, or use copy_from",
)
ASYNC_HOST = row(
    "view-async-host",
    ViewError,
    "asynchronous copies go from global to shared memory of a GPU, and {view} is in {space}",
    "use copy_from, or call copy_from_async in a kernel",
)
ASYNC_TYPE = row(
    "view-async-type",
    ViewError,
    "an asynchronous copy moves bytes as they are, but {other} has elements of {others} and {view} of {dtype}",
    "use copy_from, which converts, or allocate shared memory of the same type",
)
ASYNC_WIDTH = row(
    "view-async-width",
    ViewError,
    "an asynchronous copy moves 4, 8 or 16 bytes at once, but {width} of {dtype} from {other} to {view} are {nbytes}",
    "vectorize both views by the same width along an axis of stride 1, such as .vectorize[1, {want}]()",
)

# Iterators

ITERATOR_FOR = row(
    "view-iterator-for",
    ViewError,
    "a LayoutTensorIter has no end, so `for` cannot iterate over it",
    "write `for i in range(count):` and take `it.next(i)[()]`, or `it[()]` and `it += 1`",
)
ITERATOR_KEY = row(
    "view-iterator-key",
    ViewError,
    "it[{key!r}] is not a tile of an iterator",
    "write it[()] or it.get() for its current tile, it.next(k)[()] for the tile k further on",
)
ITERATOR_END = row(
    "view-iterator-end",
    ViewIndexError,
    "{view} is past its end, at tile {index} of {count}",
    "stop at the last tile, or make the iterator with circular=True",
)
ITERATOR_BOUND = row(
    "view-iterator-bound",
    ViewError,
    "an iterator over {bound} elements with tiles of {size}, {stride} apart, has no tile",
    "give a bound of at least one tile",
)
IMMUTABLE = row(
    "view-immutable",
    ViewError,
    "the field {field!r} of a {what} cannot be set",
    "make another view; to set elements write view[i, j] = value or view.fill(value)",
)

# Views as tiles

BRIDGE_SIZES = row(
    "bridge-sizes",
    CompilationError,
    "{what} of {view}, whose shape {shape} is not that of a tile: sizes of tiles are powers of two, known at compile time",
    "take a tile of it, as in {what}({view}.tile[{tile}]({coordinates})); where its sizes do not divide the view's, make the "
    "view with masked=True",
)
BRIDGE_VECTORS = row(
    "bridge-vectors",
    CompilationError,
    "{what} of {view}, whose elements are vectors of {width} numbers",
    "use the view from before vectorize: the layout of a tile sets how many contiguous numbers a thread has",
)
BRIDGE_SPACE = row(
    "bridge-space",
    CompilationError,
    "{what} of {view}, which is in {space} memory: tiles are loaded from global memory and stored there",
    "{instead}",
)
BRIDGE_SHAPES = row(
    "bridge-shapes",
    CompilationError,
    "{value} cannot be stored to {view}, whose shape is {shape}",
    "take the part of the view that the tile belongs to, as in view.tile[{tile}]({coordinates})",
)
BRIDGE_LAYOUT_OF_ADDRESSES = row(
    "bridge-layout-of-addresses",
    CompilationError,
    "load with layout={layout!r} of {got}, which is not a view: the loaded tile has the layout of its pointers",
    "leave layout= out and make the pointers in that layout, or load a view (weft.LayoutTensor)",
)

# Descriptors of views

BRIDGE_DESCRIPTOR_VIEW = row(
    "bridge-descriptor-view",
    LaunchError,
    "from_view makes a descriptor of a view, but got {got}",
    "pass a weft.LayoutTensor; of an array write TensorDescriptor.from_tensor",
)
BRIDGE_DESCRIPTOR_TENSOR = row(
    "bridge-descriptor-tensor",
    LaunchError,
    "from_tensor describes a whole array, but got the view {got}",
    "write TensorDescriptor.from_view(view, block_shape, layout)",
)
BRIDGE_DESCRIPTOR_NESTED = row(
    "bridge-descriptor-nested",
    LayoutError,
    "a descriptor of {view} with layout {layout}: along axis {axis} its elements are not one stride apart, as TMA needs",
    "make it of a tile that ends where the layout's own tiles do, or view the array with one size and stride per axis",
)
BRIDGE_DESCRIPTOR_VECTORS = row(
    "bridge-descriptor-vectors",
    LayoutError,
    "a descriptor of {view}, whose elements are vectors of {width} numbers",
    "make it of the view before vectorize",
)
BRIDGE_DESCRIPTOR_SPACE = row(
    "bridge-descriptor-space",
    CompilationError,
    "a descriptor of {view}, which is in {space} memory",
    "TMA describes global memory: make it of a view of an argument of the kernel",
)
BRIDGE_DESCRIPTOR_ARGUMENTS = row(
    "bridge-descriptor-arguments",
    CompilationError,
    "make_tensor_descriptor of {base} {problem}",
    "write make_tensor_descriptor(view, block_shape=..., layout=...), or for a pointer make_tensor_descriptor(pointer, shape, "
    "strides, block_shape, layout)",
)

# Tiles as views of registers

BRIDGE_FRAGMENT_OPEN = row(
    "bridge-fragment-open",
    CompilationError,
    "a fragment of {value}, whose layout {layout!r} is not resolved yet, so its registers are unknown",
    "give it a layout, where it is made or with gl.set_auto_layout(x, layout)",
)
BRIDGE_FRAGMENT_VIEW = row(
    "bridge-fragment-view",
    CompilationError,
    "gl.from_fragment makes a tile from a view of a thread's registers, but got {got}",
    "pass what gl.fragment(tile) gave, or a view from LayoutTensor.stack_allocation of the same shape",
)
BRIDGE_FRAGMENT_SHAPE = row(
    "bridge-fragment-shape",
    LayoutError,
    "{view} has layout {got}, but of a tile {shape} in {layout!r} a thread holds {want}",
    "pass a view of single numbers with as many along each axis, as gl.fragment makes it of such a tile",
)
