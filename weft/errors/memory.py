"""Mistakes with shared and tensor memory: allocations, views, and handles where numbers are needed."""

from __future__ import annotations

from weft.errors.base import CompilationError, LayoutError, row

# Handles where numbers are needed

SHARED_HANDLE_OPERAND = row(
    "shared-handle-operand",
    CompilationError,
    "{what} needs numbers, but {got} is a handle",
    "load the elements first, as in smem.load(layout); to wait for a barrier call mbarrier.wait",
)
SHARED_HANDLE_BRACKETS = row(
    "shared-handle-brackets",
    CompilationError,
    "{got} is a handle, which brackets do not index",
    "write .index(i) or .slice(start, length, dim) for a part of its memory, and .load(layout) for its elements",
)
SHARED_IN_THREADS = row(
    "shared-in-threads",
    CompilationError,
    "{got} holds tiles of the whole block, which single threads cannot index",
    "write {array} instead of gl.allocate_shared_memory",
)
SHARED_HANDLE_NEEDED = row(
    "shared-handle-needed",
    CompilationError,
    "{what} needs {want}, but got {got}",
    "{fix}",
)

# Allocations

SHARED_NOT_A_LAYOUT = row(
    "shared-not-a-layout",
    LayoutError,
    "{got} is not a layout of shared memory",
    "pass a layout such as gl.SwizzledSharedLayout(vec=1, per_phase=1, max_phase=1, order=[1, 0]){more}",
)
SHARED_RANK = row(
    "shared-rank",
    LayoutError,
    "shape {shape} has fewer dimensions than {layout}, which lays out tiles of {rank}",
    "give a shape of {rank} dimensions, or more of them in front for several tiles",
)
SHARED_STAGES = row(
    "shared-stages",
    LayoutError,
    "shape {shape} has a leading dimension of {count}: {layout} lays out the last {rank}, the ones before count tiles",
    "allocate at least one tile",
)
SHARED_ELEMENT_BITS = row(
    "shared-element-bits",
    LayoutError,
    "elements of {dtype} have {bits} bits, but {layout} is made for {own}",
    "set element_bitwidth={bits}, or write gl.NVMMASharedLayout.get_default_for(shape, gl.{dtype})",
)
SHARED_BARRIER_ELEMENT = row(
    "shared-barrier-element",
    LayoutError,
    "MBarrierLayout lays out mbarriers, which are gl.int64, not {dtype}",
    "write gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout()), or mbarrier.allocate_mbarrier()",
)

# Views

SHARED_INDEX = row(
    "shared-index",
    CompilationError,
    "index({index}) of {got}, whose first dimension counts {count}",
    "use an index from 0 to {last}",
)
SHARED_NO_STAGES = row(
    "shared-no-stages",
    CompilationError,
    "index of {got}, all of whose dimensions lie in its layout",
    "index allocations of several tiles, which have the shape [stages, *tile]; part of a tile is a .slice(start, length, dim)",
)
SHARED_SLICE = row(
    "shared-slice",
    CompilationError,
    "slice of elements {start} to {end} along dimension {dim} of {got}, which has {size} there",
    "stay between 0 and {size}",
)
SHARED_SLICE_ALIGNED = row(
    "shared-slice-aligned",
    CompilationError,
    "slice of {length} elements from {start} on along dimension {dim} of {got}: within a tile its memory could be in several "
    "pieces",
    "take a power of two of elements, starting at a multiple of it (or a multiple of 8, at one of the next power of two)",
)
SHARED_SLICE_STAGES = row(
    "shared-slice-stages",
    CompilationError,
    "slice of {length} from {start} on along dimension {dim} of {got}, the inner one of several that count tiles: the tiles of "
    "the slice would not be one stride apart",
    "index the dimensions before it first, as in bufs.index(i).slice(start, length)",
)
SHARED_PERMUTE_STAGES = row(
    "shared-permute-stages",
    CompilationError,
    "permute({order}) of {got} moves one of its {leading} leading dimensions, which are not part of the layout",
    "leave those in their place, or take one tile first, as in bufs.index(i).permute([1, 0])",
)
SHARED_RESHAPE = row(
    "shared-reshape",
    CompilationError,
    "reshape to {shape} of {got}: {problem}",
    "reshape one whole tile into as many elements",
)
SHARED_REINTERPRET = row(
    "shared-reinterpret",
    CompilationError,
    "reinterpret of {got}, a part of a tile {tile}, whose bytes are not contiguous",
    "reinterpret the whole tile, and take a .slice of the result",
)

# Accesses

SHARED_SEVERAL = row(
    "shared-several-tiles",
    CompilationError,
    "{what} of {got}, which holds several tiles",
    "choose one first, as in bufs.index(i)",
)
SHARED_STORED = row(
    "shared-store",
    CompilationError,
    "{value} cannot be stored to {got}",
    "store a tile of the same shape and dtype, converted with value.to(gl.{dtype}) if only the dtype differs",
)
SHARED_GATHER = row(
    "shared-gather",
    CompilationError,
    "{what} along axis {axis} of {got} with {indices} as indices",
    "use a tile of integers of the same rank, which with the values and the mask may differ in length along that axis only",
)
SHARED_SCATTER = row(
    "shared-scatter",
    CompilationError,
    "{what} of {value} to {got} with {indices} as indices",
    "use a value of the element type for each index",
)
SHARED_BARRIER_ACCESS = row(
    "shared-barrier-access",
    CompilationError,
    "{what} of {got}: an mbarrier is not read or written as a number",
    "use the functions of mbarrier, or .reinterpret it after mbarrier.invalidate",
)
SHARED_CONFLICTS = row(
    "shared-bank-conflicts",
    CompilationError,
    "bank_conflicts of {one} and {other}",
    "pass the types of a tile and of a buffer with the same shape and dtype: gl.bank_conflicts(x.type, smem.type)",
)

# Tensor memory

TMEM_NOT_A_LAYOUT = row(
    "tmem-not-a-layout",
    LayoutError,
    "{got} is not a layout of tensor memory",
    "pass TensorMemoryLayout([128, N], col_stride=1), or for scales TensorMemoryScalesLayout()",
)
TMEM_SHAPE = row(
    "tmem-shape",
    LayoutError,
    "shape {shape} is not valid in tensor memory: {layout} lays out its last two dimensions",
    "give a shape [rows, columns], or [tiles, rows, columns] for several tiles",
)
TMEM_ELEMENT = row(
    "tmem-element",
    LayoutError,
    "elements of {dtype} have {bits} bits, but {layout} holds elements of {allowed}",
    "use one of {known}",
)
TMEM_TWO_CTAS_MIXED = row(
    "tmem-two-ctas-mixed",
    LayoutError,
    "{layout} is for {blocks}, but earlier allocations of tensor memory in this kernel are for {before}",
    "write two_ctas={two_ctas} in all of the kernel's tensor memory layouts",
)
TMEM_ACCESS = row(
    "tmem-access",
    LayoutError,
    "{what} of {got} in {layout} as a tile in {tile}: {reason}",
    "{fix}",
)
TMEM_REINTERPRET = row(
    "tmem-reinterpret",
    CompilationError,
    "reinterpret of {got}, a part of a tile {tile}, whose columns may not be contiguous",
    "reinterpret the whole tile, and take a .slice of the result",
)
