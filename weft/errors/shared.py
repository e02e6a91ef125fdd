"""Mistakes with shared memory: allocations, views, and handles where numbers are needed."""

from __future__ import annotations

from weft.errors.base import CompilationError, LayoutError, row

# Handles are no numbers

HANDLE_OPERAND = row(
    "shared-handle-operand",
    CompilationError,
    "{what} needs numbers, but {got} is a handle",
    "take the elements out of memory first, as in smem.load(layout); a barrier is waited for with mbarrier.wait",
)
HANDLE_BRACKETS = row(
    "shared-handle-brackets",
    CompilationError,
    "{got} is a handle, which has no items to take in Python's way",
    "write .index(i) or .slice(start, length, dim) for a part of its memory, and .load(layout) for its elements",
)
IN_THREADS = row(
    "shared-in-threads",
    CompilationError,
    "{got} holds tiles of the whole block, and single threads do not index it",
    "write {array} in the place of gl.allocate_shared_memory",
)
HANDLE_NEEDED = row(
    "shared-handle-needed",
    CompilationError,
    "{what} needs {want}, but got {got}",
    "{fix}",
)

# Allocations

NOT_A_LAYOUT = row(
    "shared-not-a-layout",
    LayoutError,
    "{got} is not a layout of shared memory",
    "pass a layout such as gl.SwizzledSharedLayout(vec=1, per_phase=1, max_phase=1, order=[1, 0]){more}",
)
RANK = row(
    "shared-rank",
    LayoutError,
    "shape {shape} has fewer dimensions than {layout}, which lays out tiles of {rank}",
    "give a shape of {rank} dimensions, or more of them in front for several tiles",
)
STAGES = row(
    "shared-stages",
    LayoutError,
    "shape {shape} has a leading dimension of {count}: {layout} lays out the last {rank}, those in front count tiles",
    "allocate at least one tile",
)
ELEMENT_BITS = row(
    "shared-element-bits",
    LayoutError,
    "elements of {dtype} have {bits} bits, but {layout} is made for {own}",
    "set element_bitwidth={bits}, or write gl.NVMMASharedLayout.get_default_for(shape, gl.{dtype})",
)
BARRIER_ELEMENT = row(
    "shared-barrier-element",
    LayoutError,
    "MBarrierLayout lays out mbarriers, which are gl.int64, not {dtype}",
    "write gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout()), or mbarrier.allocate_mbarrier()",
)

# Views

INDEX = row(
    "shared-index",
    CompilationError,
    "index({index}) of {got}, whose first dimension counts {count}",
    "use an index from 0 to {last}",
)
NO_STAGES = row(
    "shared-no-stages",
    CompilationError,
    "index of {got}, all of whose dimensions lie in its layout",
    "index allocations of several tiles, which have the shape [stages, *tile]; part of a tile is a .slice(start, length, dim)",
)
SLICE = row(
    "shared-slice",
    CompilationError,
    "slice of elements {start} to {end} along dimension {dim} of {got}, which has {size} there",
    "stay between 0 and {size}",
)
SLICE_ALIGNED = row(
    "shared-slice-aligned",
    CompilationError,
    "slice of {length} elements from {start} on along dimension {dim} of {got}: within a tile it could lie in several pieces",
    "take a power of two of elements, from a multiple of that on",
)
SLICE_STAGES = row(
    "shared-slice-stages",
    CompilationError,
    "slice of {length} from {start} on along dimension {dim} of {got}, the inner one of several that count tiles: what is left "
    "would not lie in steps of equal length",
    "choose in the dimensions in front of it first, as in bufs.index(i).slice(start, length)",
)
PERMUTE_STAGES = row(
    "shared-permute-stages",
    CompilationError,
    "permute({order}) of {got} moves one of its {leading} leading dimensions, which no layout places",
    "leave those in front, or take one tile first, as in bufs.index(i).permute([1, 0])",
)
RESHAPE = row(
    "shared-reshape",
    CompilationError,
    "reshape to {shape} of {got}: {problem}",
    "reshape one whole tile into as many elements",
)
REINTERPRET = row(
    "shared-reinterpret",
    CompilationError,
    "_reinterpret of {got}, a part of a tile {tile}, whose bytes lie apart",
    "reinterpret the whole tile, and take a .slice of the result",
)

# Accesses

SEVERAL = row(
    "shared-several-tiles",
    CompilationError,
    "{what} of {got}, which holds several tiles",
    "choose one first, as in bufs.index(i)",
)
STORED = row(
    "shared-store",
    CompilationError,
    "{value} is stored to {got}",
    "store a tile of the same shape and dtype, converted with value.to(gl.{dtype}) where only that differs",
)
GATHER = row(
    "shared-gather",
    CompilationError,
    "{what} along axis {axis} of {got} with {indices} as indices",
    "use a tile of integers of the same rank, which may differ in length along that axis only",
)
SCATTER = row(
    "shared-scatter",
    CompilationError,
    "scatter of {value} to {got} with {indices} as indices",
    "use a value of the element type for each index",
)
BARRIER_ACCESS = row(
    "shared-barrier-access",
    CompilationError,
    "{what} of {got}: an mbarrier is not read or written as a number",
    "use the functions of mbarrier, or ._reinterpret it after mbarrier.invalidate",
)
CONFLICTS = row(
    "shared-bank-conflicts",
    CompilationError,
    "bank_conflicts of {one} and {other}",
    "pass the types of a tile and of a buffer with the same shape and dtype: gl.bank_conflicts(x.type, smem.type)",
)
