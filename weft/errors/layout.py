"""Mistakes in layouts: impossible parameters, layouts that do not fit their tile or operation, conversions, pictures."""

from __future__ import annotations

from weft.errors.base import LayoutError, row

LINEAR_DIM = row(
    "layout-linear-dim",
    LayoutError,
    "this linear layout has no {side} dimension {dim!r}; it has {known}",
    "use one of {known}",
)
LINEAR_BASIS = row(
    "layout-linear-basis",
    LayoutError,
    "basis {basis} of {dim!r} is outside of shape {shape}",
    "give one coordinate per dimension, each at least 0 and below the size of its dimension",
)
LINEAR_COMPOSE = row(
    "layout-linear-compose",
    LayoutError,
    "cannot compose: the outputs of the inner map are {inner}, but the inputs of the outer map are {outer}",
    "rename or reshape one of them so that the dimensions agree",
)
LINEAR_RESHAPE = row(
    "layout-linear-reshape",
    LayoutError,
    "cannot reshape {old} elements into {new}",
    "choose dimensions whose product is {old}",
)
NOT_INVERTIBLE = row(
    "layout-not-invertible",
    LayoutError,
    "this linear layout cannot be inverted: rank {rank}, {inputs} input bits, {outputs} output bits",
    "invert a layout whose rank equals both, or use pseudo_invert on one that is surjective",
)
NOT_SURJECTIVE = row(
    "layout-not-surjective",
    LayoutError,
    "the layout reaches only {reached} of the {total} elements of shape {shape}",
    "add bases until every element has a place",
)
NO_FACTOR = row(
    "layout-no-factor",
    LayoutError,
    "the other layout does not reach every element that this one holds",
    "compose layouts over the same elements",
)

POWER_OF_TWO = row(
    "layout-power-of-two",
    LayoutError,
    "{what} is {value}, but {found} is not a power of two",
    "use 1, 2, 4, 8 and so on",
)
TILE_SHAPE = row(
    "layout-tile-shape",
    LayoutError,
    "a tile of shape {shape} is not possible: {found} is neither a power of two nor a multiple of {least}",
    "round the block size up to {rounded} and mask the excess elements",
)
RESHAPE_END = row(
    "layout-reshape-end",
    LayoutError,
    "a tile of shape {src} cannot be reshaped to {dst}: a dimension that is no power of two is split or joined with others "
    "only where it, or the part of it that is none, is the slowest of them",
    "keep that dimension as it is, or put it first by permute",
)
CONVERT_END_BLOCKS = row(
    "layout-convert-end-blocks",
    LayoutError,
    "a tile of shape {shape}, which has sizes that are no powers of two, cannot be converted between layouts that give the "
    "blocks of a cluster different parts",
    "choose powers of two, or the same blocks in both layouts",
)
MMA_SYNC_END = row(
    "layout-mma-sync-end",
    LayoutError,
    "mma.sync multiplies tiles of powers of two, and this product has M {m}, N {n}, K {k}",
    "round the tiles up, or use warpgroup_mma, whose N is any multiple of 8 and K any multiple of 256 bits",
)
INSTR_ACROSS = row(
    "layout-instr-across",
    LayoutError,
    "an accumulator with instr_shape {instr_shape} cannot be spread over warps {warps}: {n} columns for each warp are no power "
    "of two",
    "spread the warps over rows, or choose N {least}",
)
TMA_ROW_END = row(
    "layout-tma-row-end",
    LayoutError,
    "TMA cannot copy a block of shape {shape} without a swizzle: its rows of {row_bytes} bytes would follow one another, and "
    "the layout places them a power of two of bytes apart",
    "choose a row of a multiple of 32 bytes and a swizzle that divides it, as NVMMASharedLayout.get_default_for does",
)
TILE_END = row(
    "layout-tile-end",
    LayoutError,
    "a tile of shape {shape} is not possible in {layout}: a size that is no power of two is a multiple of what threads, blocks "
    "and swizzles cover, which along dimension {axis} is {step} elements, and {size} is not",
    "choose {near} along dimension {axis}, or a layout with fewer threads along it",
)
TILE_WHOLE = row(
    "layout-tile-whole",
    LayoutError,
    "a tile of shape {shape} is not possible in {layout}: it takes powers of two, and dimension {axis} has size {size}",
    "choose a power of two, and mask the excess elements",
)
TILE_ELEMENTS = row(
    "layout-tile-elements",
    LayoutError,
    "a tile of shape {shape} has more than the {limit} elements that a tile may have",
    "use a smaller block, and cover the data by more programs or by a loop",
)
PLACES = row(
    "layout-places",
    LayoutError,
    "{layout} spreads a tile of shape {shape} over {places} places in each block, copies included, but the limit is {limit}",
    "use smaller numbers in the layout: a layout larger than its tile stores copies of the elements",
)
CLUSTER_BLOCKS = row(
    "layout-cluster-blocks",
    LayoutError,
    "{layout} is spread over {blocks} blocks, but a cluster has at most {most}",
    "give cga_layout (or block_bases) a vector for each bit of the block's number: four for 16 blocks",
)
FIELD = row(
    "layout-field",
    LayoutError,
    "{layout}: {field} is {value}, which is not {kind}",
    "write {example}",
)
FIELD_LIMIT = row(
    "layout-field-limit",
    LayoutError,
    "{layout}: {field} is {value}, but a tile has at most {limit} elements",
    "use a smaller number",
)
INTEGERS = row(
    "layout-integers",
    LayoutError,
    "{what} is {value}, which is not a list of integers",
    "write integers in a list, as in [16, 32]",
)
FIELD_RANK = row(
    "layout-field-rank",
    LayoutError,
    "{layout}: {field} has {got} entries, but {reference} has {rank}",
    "give {field} {rank} entries, one per dimension",
)
RANK = row(
    "layout-rank",
    LayoutError,
    "{layout} describes tiles of {rank} dimensions, but the tile has shape {shape}",
    "use a layout of rank {got}",
)
ORDER = row(
    "layout-order",
    LayoutError,
    "{field} {order} does not name each of the dimensions 0 to {last} once",
    "list every dimension once, the fastest first, for example {example}",
)
WARP_SIZE = row(
    "layout-warp-size",
    LayoutError,
    "threads_per_warp {threads} multiplies to {product}, but a warp has {size} threads",
    "choose powers of two whose product is {size}",
)
NUM_WARPS = row(
    "layout-num-warps",
    LayoutError,
    "{layout} is spread over {layout_warps} warps, but {who} runs with num_warps={num_warps}",
    "{ask} num_warps={layout_warps}, or make the layout's warps multiply to {num_warps}",
)
NUM_CTAS = row(
    "layout-num-ctas",
    LayoutError,
    "{layout} is spread over {own} blocks, but the kernel runs with num_ctas={num_ctas}",
    "launch with num_ctas={own}, or give cga_layout {bits} vectors; a zero vector gives blocks copies of the tile",
)
UNRESOLVED = row(
    "layout-unresolved",
    LayoutError,
    "{layout} does not say where elements lie until the compiler has resolved it",
    "use it inside a kernel, or write a layout that spells out registers, lanes and warps",
)

SLICE_DIM = row(
    "layout-slice-dim",
    LayoutError,
    "SliceLayout drops dimension {dim}, but its parent {parent} has dimensions 0 to {last}",
    "choose a dimension between 0 and {last}",
)
NOT_DISTRIBUTED = row(
    "layout-not-distributed",
    LayoutError,
    "{owner} needs a layout of registers as its parent, but got {parent}",
    "pass a BlockedLayout, NVMMADistributedLayout, SliceLayout or DistributedLinearLayout",
)
OPERAND_INDEX = row(
    "layout-operand-index",
    LayoutError,
    "operand_index is {index}, but a dot has operands 0 (left) and 1 (right)",
    "use 0 or 1",
)
DOT_PARENT = row(
    "layout-dot-parent",
    LayoutError,
    "DotOperandLayout cannot have {parent} as its parent",
    "give it the layout of the dot's result: a BlockedLayout or an NVMMADistributedLayout",
)
K_WIDTH = row(
    "layout-k-width",
    LayoutError,
    "k_width {k_width} is not valid for the parent {parent}",
    "use {expected}",
)
DOT_SHARED_ONLY = row(
    "layout-dot-shared-only",
    LayoutError,
    "the right operand of a warpgroup MMA is read from shared memory, so it has no register layout",
    "store it to shared memory, or use operand_index=0",
)
MMA_VERSION = row(
    "layout-mma-version",
    LayoutError,
    "NVMMADistributedLayout version {version} is not known",
    "use version [2, 0] (mma.sync) or [3, 0] (wgmma)",
)
INSTR_SHAPE = row(
    "layout-instr-shape",
    LayoutError,
    "instr_shape {instr_shape} is not an instruction of version {version}",
    "use {expected}",
)

MMA_WARPS = row(
    "layout-mma-warps",
    LayoutError,
    "a warpgroup MMA runs on 1, 2, 4 or 8 groups of 4 warps, but {layout} has {warps} warps",
    "use num_warps=4, 8 or 16, and warps_per_cta=[4, 1], [8, 1] or [4, 2]",
)
MMA_SHAPE = row(
    "layout-mma-shape",
    LayoutError,
    "an MMA of M {m}, N {n}, K {k} is not possible: instructions for these operands need {dim} to be a multiple of {least}",
    "make {dim} a multiple of {least}",
)
MMA_ACCUMULATOR = row(
    "layout-mma-accumulator",
    LayoutError,
    "an accumulator of shape {shape} in {layout} does not consist of whole {instruction} fragments",
    "use {expected}",
)
MMA_REGISTERS = row(
    "layout-mma-registers",
    LayoutError,
    "operand {operand} is a tile of {bits}-bit elements in {layout}, which is not the fragment layout of the instructions",
    "write gl.convert_layout({operand}, {expected})",
)
MMA_READ = row(
    "layout-mma-read",
    LayoutError,
    "wgmma cannot read operand {operand} of shape {shape} in {layout}: {reason}",
    "{fix}",
)
MMA_BLOCKS = row(
    "layout-mma-blocks",
    LayoutError,
    "the MMA needs operand {operand} split over the cluster at {needed}, but {layout} splits it at {has}",
    "split the operand over blocks as the accumulator is split, and never along K",
)

CGA_TWICE = row(
    "layout-cga-twice",
    LayoutError,
    "the blocks of a cluster are given twice: cga_layout and {field}",
    "keep cga_layout, or keep ctas_per_cga, cta_split_num and cta_order",
)
CGA_MISSING = row(
    "layout-cga-missing",
    LayoutError,
    "{field} is missing: ctas_per_cga, cta_split_num and cta_order must be given together",
    "give all three, or cga_layout instead",
)
CGA_GAPS = row(
    "layout-cga-gaps",
    LayoutError,
    "cga_layout {bases} divides a tile into {parts} parts, of which the blocks hold only {held}",
    "count in parts, not in elements: over the blocks of one dimension [1], [2], [4] and so on, and 0 where blocks hold copies",
)
CGA_SPLIT = row(
    "layout-cga-split",
    LayoutError,
    "cta_split_num {split} does not divide ctas_per_cga {ctas}",
    "split each dimension over at most as many blocks as it has",
)
BASES = row(
    "layout-bases",
    LayoutError,
    "{field} holds {basis}, which is not a coordinate of a tile of shape {shape}",
    "give one number per dimension, each at least 0 and below the size of its dimension",
)
LANE_COUNT = row(
    "layout-lane-count",
    LayoutError,
    "lane_bases has {got} bases, but the {size} threads of a warp need {need}",
    "give {need} bases; [0, ..., 0] repeats elements across lanes",
)
LINEAR_SHAPE = row(
    "layout-linear-shape",
    LayoutError,
    "{layout} was made for shape {own}, but the tile has shape {shape}",
    "make the layout for {shape}, or reshape the tile",
)

NO_DIMENSIONS = row(
    "layout-no-dimensions",
    LayoutError,
    "NVMMASharedLayout has rank {rank}, but tiles in shared memory have at least one dimension",
    "use rank=2 for a matrix, or NVMMASharedLayout.get_default_for(shape, dtype)",
)
SWIZZLE_WIDTH = row(
    "layout-swizzle-width",
    LayoutError,
    "swizzle_byte_width is {width}, but the hardware swizzles over {allowed} bytes",
    "use one of {allowed}, or NVMMASharedLayout.get_default_for(shape, dtype)",
)
ELEMENT_BITS = row(
    "layout-element-bits",
    LayoutError,
    "element_bitwidth is {bits}, but elements have {allowed} bits",
    "pass dtype.primitive_bitwidth",
)
SWIZZLE_FIT = row(
    "layout-swizzle-fit",
    LayoutError,
    "a tile of shape {shape} has {rows} rows of {row_bytes} bytes, too small for a swizzle of 8 rows of {width} bytes",
    "use swizzle_byte_width={largest}, or a larger tile",
)
PADDING = row(
    "layout-padding",
    LayoutError,
    "interval_padding_pairs holds {pair}, but intervals are distinct powers of two and paddings powers of two",
    "write pairs such as [[32, 4]]: 4 elements of padding after every 32",
)
ALIGNMENT = row(
    "layout-alignment",
    LayoutError,
    "alignment is {alignment} bytes, which is not a power of two",
    "use 16, or the larger power of two that the access needs",
)

REINTERPRET = row(
    "layout-reinterpret",
    LayoutError,
    "memory of {layout} is aligned to {has} bytes, but {target} needs {needs}",
    "allocate the buffer in the layout of larger alignment, and reinterpret it as the other",
)
BARRIER_SHAPE = row(
    "layout-barrier-shape",
    LayoutError,
    "MBarrierLayout describes one barrier per block ({blocks} here), but the tile has shape {shape}",
    "allocate {count} barriers with shape [{count}, {blocks}] and take one with index(i)",
)

TMA_TRANSPOSED = row(
    "layout-tma-transposed",
    LayoutError,
    "TMA moves blocks whose last dimension is contiguous, but {layout} has dimension {inner} contiguous",
    "use transposed=False, and permute the handle of the loaded block",
)
TMA_RANK = row(
    "layout-tma-rank",
    LayoutError,
    "TMA moves blocks of 1 to 5 dimensions, but the block has shape {shape}",
    "merge dimensions of the array before making the descriptor",
)
TMA_INNER = row(
    "layout-tma-inner",
    LayoutError,
    "TMA moves 16 bytes or more of the last dimension, but a block of shape {shape} has {got} bytes of it",
    "make the last dimension of the block at least {least} elements",
)
TMA_ELEMENT = row(
    "layout-tma-element",
    LayoutError,
    "{layout} describes elements of {own} bits, but the descriptor's elements have {bits} bits",
    "use NVMMASharedLayout.get_default_for(block_shape, dtype) with the dtype of the array",
)

AXIS = row(
    "layout-axis",
    LayoutError,
    "axis {axis} does not exist in a tile of {rank} dimensions",
    "choose an axis between {first} and {last}",
)
RESHAPE = row(
    "layout-reshape",
    LayoutError,
    "cannot reshape {src} ({src_numel} elements) to {dst} ({dst_numel} elements)",
    "choose a shape of {src_numel} elements",
)
SPLIT_SHAPE = row(
    "layout-split-shape",
    LayoutError,
    "split needs a last dimension of size 2, but the tile has shape {shape}",
    "reshape the tile so that its last dimension is 2",
)
SPLIT_LAYOUT = row(
    "layout-split",
    LayoutError,
    "split needs both halves of the last dimension in the same thread, but {layout} spreads them over threads",
    "convert_layout first, to a layout with size_per_thread 2 in the last dimension",
)
SLICE = row(
    "layout-slice",
    LayoutError,
    "elements {start} to {end} of dimension {dim} cannot be taken without moving data: {layout} spreads each run of "
    "{unit} of its {whole} elements over threads",
    "{fix}",
)
BROADCAST = row(
    "layout-broadcast",
    LayoutError,
    "cannot broadcast {src} to {dst}: dimension {dim} is {size}, not 1",
    "make the shapes equal or 1 in every dimension",
)
REDUCE_BLOCKS = row(
    "layout-reduce-blocks",
    LayoutError,
    "axis {axis} is spread over the blocks of a cluster, so one block cannot combine it",
    "split the tile over another dimension",
)
REDUCE_ORDER = row(
    "layout-reduce-order",
    LayoutError,
    "axis {axis} is interleaved with other dimensions in this layout, so it cannot be reduced in order by a function that does "
    "not commute",
    "convert_layout to a BlockedLayout first",
)
SCAN_LAYOUT = row(
    "layout-scan",
    LayoutError,
    "axis {axis} is interleaved with other dimensions in this layout, so it cannot be scanned in order",
    "convert_layout to a BlockedLayout first",
)

# Conversions

CONVERT_SHAPE = row(
    "convert-shape",
    LayoutError,
    "cannot convert a tile of shape {src} to a layout of shape {dst}",
    "make the second layout for shape {src}, or reshape the tile first",
)
CONVERT_THREADS = row(
    "convert-threads",
    LayoutError,
    "cannot convert between layouts of {src} and {dst} warps",
    "use layouts of as many warps as the tile has now, {src}",
)
CONVERT_BLOCKS = row(
    "convert-blocks",
    LayoutError,
    "this conversion moves elements between the blocks of a cluster: their bases are {src} before and {dst} after",
    "keep the same ctas_per_cga, cta_split_num and cta_order in both layouts",
)

# Layouts of tensor memory

TMEM_BLOCK = row(
    "tmem-block",
    LayoutError,
    "a block of tensor memory is 64 or 128 rows by a power of two of columns, not {block}",
    "write TensorMemoryLayout([128, N], col_stride=1)",
)
TMEM_TWO_CTAS_BLOCKS = row(
    "tmem-two-ctas",
    LayoutError,
    "two_ctas=True spreads a tile over two blocks of a cluster, but the layout with {layout} has no cga_layout",
    "add cga_layout=[[1, 0]], and launch with num_ctas=2",
)
TMEM_BLOCK_SHAPE = row(
    "tmem-block-shape",
    LayoutError,
    "the part of the tile in each block of the cluster, {shape}, is not a multiple of the block {block} of {layout!r}",
    "choose a block that divides it",
)
TMEM_VARIANT = row(
    "tmem-variant",
    LayoutError,
    "there is no instruction {variant!r} between tensor memory and registers",
    "choose one of {known}",
)
TMEM_WARPS = row(
    "tmem-warps",
    LayoutError,
    "tensor memory is accessed by 4, 8, 16 or 32 warps, not by {num_warps}: each warp accesses a quarter of the lanes",
    "launch with num_warps=4 or 8, or give the partition 4 or 8 warps",
)
TMEM_REGISTER_LAYOUT = row(
    "tmem-register-layout",
    LayoutError,
    "instructions {variant} do not fit a tile of {shape} elements of {bits} bits in {layout!r} on {num_warps} warps",
    'use instr_variant="32x32b" and convert_layout; col_stride is 1, or 32 / bits to give each element a column',
)

# Pictures

SHOW_UNRESOLVED = row(
    "show-unresolved",
    LayoutError,
    "{layout} cannot be drawn: the compiler resolves it when it compiles a kernel that uses it",
    "draw the layout that the compiler chose, which is in the compiled kernel's .asm['ir']",
)
SHOW_PADDED = row(
    "show-padded",
    LayoutError,
    "{layout} cannot be drawn: its padding leaves holes between the elements, so it is not a linear map from offsets to a tile",
    "draw SharedLinearLayout(offset_bases, block_bases), the same order of elements without the padding",
)
SHOW_SHAPE = row(
    "show-shape",
    LayoutError,
    "this linear layout covers a tile of shape {own}, not {shape}",
    "draw it for {own}",
)
SHOW_TOO_LARGE = row(
    "show-too-large",
    LayoutError,
    "a tile of shape {shape} has {elements} elements, too many for a picture (at most {most})",
    "draw a smaller tile in the same layout",
)
SHOW_TEXT = row(
    "show-text",
    LayoutError,
    "cannot read {text!r} as a layout: {reason}",
    "write it as in Python, for example 'BlockedLayout([2, 4], [16, 2], [2, 2], [1, 0])'",
)
SHOW_SHAPE_TEXT = row(
    "show-shape-text",
    LayoutError,
    "cannot read {text!r} as the shape of a tile",
    "write the sizes with an x between them, for example 32x8",
)
