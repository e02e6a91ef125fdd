"""Mistakes with what Blackwell has: handles to tensor memory, tcgen05 products, cluster launch control, gathered rows."""

from __future__ import annotations

from weft.errors.base import CompilationError, LayoutError, row

# Tensor memory

NOT_A_LAYOUT = row(
    "tmem-not-a-layout",
    LayoutError,
    "{got} is not a layout of tensor memory",
    "pass TensorMemoryLayout([128, N], col_stride=1), or for scales TensorMemoryScalesLayout()",
)
SHAPE = row(
    "tmem-shape",
    LayoutError,
    "shape {shape} is not that of tiles in tensor memory, whose last two dimensions {layout} lays out",
    "give a shape [rows, columns], with a number of tiles in front where there are several",
)
ELEMENT = row(
    "tmem-element",
    LayoutError,
    "elements of {dtype} have {bits} bits, but {layout} holds elements of {allowed}",
    "use one of {known}",
)
PARTITION = row(
    "tmem-partition",
    CompilationError,
    "tensor memory is allocated in the partition {partition} of warp_specialize, but the block allocates it as a whole",
    "allocate it before warp_specialize, and pass the handle to the partition's function",
)
TWO_CTAS_MIXED = row(
    "tmem-two-ctas-mixed",
    LayoutError,
    "{layout} is for {blocks}, but tensor memory of this kernel that was allocated before is for {before}",
    "write two_ctas={two_ctas} in all of the kernel's tensor memory layouts",
)
ACCESS = row(
    "tmem-access",
    LayoutError,
    "{what} of {got} in {layout} as a tile in {tile}: {reason}",
    "{fix}",
)
REINTERPRET = row(
    "tmem-reinterpret",
    CompilationError,
    "reinterpret of {got}, a part of a tile {tile}, whose columns may lie apart",
    "reinterpret the whole tile, and take a .slice of the result",
)

# Products

ACCUMULATOR = row(
    "tcgen05-accumulator",
    CompilationError,
    "the accumulator of {what} is {got}",
    "make one with allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([128, N], col_stride=1)); of several tiles "
    "choose one, as in accs.index(i)",
)
ACCUMULATOR_LAYOUT = row(
    "tcgen05-accumulator-layout",
    LayoutError,
    "the accumulator of {what} is {got} in {layout}, which is no TensorMemoryLayout",
    "allocate it in TensorMemoryLayout([128, N], col_stride=1)",
)
LAYOUTS = row(
    "tcgen05-layouts",
    LayoutError,
    "{what} of {left} and {right} added to {acc}: {reason}",
    "{fix}",
)
BARRIERS = row(
    "tcgen05-barriers",
    CompilationError,
    "mbarriers of {what} is {got}, not a list of mbarriers",
    "write mbarriers=[bar]",
)
PREDICATES = row(
    "tcgen05-predicates",
    CompilationError,
    "{what} got {got} for mbarrier_preds, but {count} for mbarriers",
    "give one condition for each barrier, or leave mbarrier_preds out",
)
DESCRIPTORS = row(
    "tcgen05-descriptors",
    CompilationError,
    "{what} got {got} among the operands whose layouts say which blocks are told",
    "pass a list of handles to shared or tensor memory, as in descs=[a_smem, b_smem]",
)

# Products with scales

FORMAT = row(
    "tcgen05-format",
    CompilationError,
    "{side}_type of tcgen05_mma_scaled is {got}",
    "pass one of {known}",
)
FORMAT_ELEMENT = row(
    "tcgen05-format-element",
    CompilationError,
    "{side} of tcgen05_mma_scaled is {got}, but elements of {format} are kept in gl.{dtype}",
    "{fix}",
)
SCALE = row(
    "tcgen05-scale",
    CompilationError,
    "{side}_scale of tcgen05_mma_scaled is {got}",
    "keep it in tensor memory: allocate_tensor_memory(gl.uint8, [rows, K // 32], TensorMemoryScalesLayout())",
)
SCALE_LAYOUT = row(
    "tcgen05-scale-layout",
    LayoutError,
    "{side}_scale of tcgen05_mma_scaled is {got} in {layout}, which is no TensorMemoryScalesLayout",
    "allocate it in TensorMemoryScalesLayout()",
)
SCALE_TYPES = row(
    "tcgen05-scale-types",
    CompilationError,
    "tcgen05_mma_scaled does not scale {left} by {a_scale} and {right} by {b_scale}",
    "use gl.uint8 for both (powers of two, each for 32 elements along K), or for e2m1 times e2m1 gl.float8e4nv (each for 16)",
)
SCALE_SHAPE = row(
    "tcgen05-scale-shape",
    CompilationError,
    "{side}_scale of tcgen05_mma_scaled is {got}, but {operand} with one scale for {run} elements along K has {want}",
    "allocate it with the shape {want}",
)
SCALED_BLOCK = row(
    "tcgen05-scaled-block",
    LayoutError,
    "the accumulator of tcgen05_mma_scaled is {got} in {layout}, but products with scales have blocks of 128 rows",
    "write TensorMemoryLayout([128, N], col_stride=1)",
)

# Copies

COPY = row(
    "tcgen05-copy",
    CompilationError,
    "tcgen05_copy copies {src} to {dst}",
    "use one tile in shared memory and one in tensor memory, of the same shape and dtype",
)
COPY_LAYOUTS = row(
    "tcgen05-copy-layouts",
    LayoutError,
    "tcgen05_copy cannot copy {src} in {src_layout} to {dst} in {dst_layout}: {reason}",
    "{fix}",
)

# Cluster launch control

CLC_RESULT = row(
    "clc-result",
    CompilationError,
    "{what} got {got} for the answer",
    "use gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0])); of several choose one, as in "
    "results.index(i)",
)
CLC_DIMENSION = row(
    "clc-dimension",
    CompilationError,
    "program_id({dim}) of an answer, but a grid has 3 dimensions",
    "pass 0, 1 or 2",
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
    "{what} moves rows one by one, but {desc} is not one of single rows of at least 32 bytes",
    "make the descriptor with block_shape=[1, columns], where columns >= {least}",
)
GATHER_BUFFER = row(
    "gather-buffer",
    LayoutError,
    "{what} of {count} rows by {desc} in {desc_layout} moves {want}, but the buffer is {got} in {layout}",
    "allocate it as gl.allocate_shared_memory(desc.dtype, {want}, desc.layout)",
)
