"""The kernel language: `from weft import language as gl`.

Its functions take run-time values (`tensor`: scalars and tiles) and Python objects as constants. They check, promote and
broadcast operands, and append operations (`weft.ops`), which convert nothing implicitly, to the kernel under construction. This
package neither reads Python source nor generates code.
"""

from typing import TYPE_CHECKING

from weft.language import block, extra, math, nvidia, warp
from weft.language.access_order import fence
from weft.language.aggregate import aggregate, aggregate_replace
from weft.language.arith import (
    PropagateNan,
    add,
    cdiv,
    clamp,
    floordiv,
    maximum,
    minimum,
    mod,
    mul,
    negative,
    next_power_of_2,
    sub,
    truediv,
)  # fmt: skip
from weft.language.asm import fp4_to_fp, inline_asm, inline_asm_elementwise, int4_to_fp
from weft.language.atomics import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_load,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_poll,
    atomic_store,
    atomic_xchg,
    atomic_xor,
)  # fmt: skip
from weft.language.cache_policy import CachePolicy
from weft.language.casts import cast
from weft.language.clusters import (
    block_rank_in_cluster,
    cluster_arrive,
    cluster_dim,
    cluster_idx,
    cluster_sync,
    cluster_wait,
    elect_one_sync,
)  # fmt: skip
from weft.language.copies import (
    copy_dram_to_local,
    copy_dram_to_sram,
    copy_dram_to_sram_async,
    copy_local_to_dram,
    copy_local_to_shared,
    copy_sram_to_dram,
    copy_sram_to_local,
    outer_product_acc,
)  # fmt: skip
from weft.language.creation import arange, full, full_like, zeros, zeros_like
from weft.language.debug import device_assert, device_print, expect_zero, static_assert, static_print
from weft.language.dtypes import (
    bfloat16,
    distributed_type,
    dtype,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    pointer_type,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from weft.language.fragments import fragment, from_fragment
from weft.language.hints import assume, max_constancy, max_contiguous, multiple_of
from weft.language.kinds import base_type, base_value, tuple, tuple_type
from weft.language.layouts import (
    AutoLayout,
    BlockedLayout,
    CoalescedLayout,
    DistributedLayout,
    DistributedLinearLayout,
    DotOperandLayout,
    NVMMADistributedLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLayout,
    SharedLinearLayout,
    SliceLayout,
    SwizzledSharedLayout,
    convert_layout,
    set_auto_layout,
    to_linear_layout,
)  # fmt: skip
from weft.language.limits import max_finite, min_finite
from weft.language.logic import logical_and, logical_not, logical_or, where
from weft.language.marks import constexpr_function, must_use_result
from weft.language.math import (
    abs,
    ceil,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    exp2_polynomial,
    expm1,
    fdiv,
    floor,
    fma,
    log,
    log1p,
    log2,
    popcount,
    pow,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    tanh,
    umulhi,
)  # fmt: skip
from weft.language.memory import load, store
from weft.language.multimem import multimem_ld_reduce, multimem_red, multimem_st
from weft.language.partitions import warp_specialize
from weft.language.program import (
    barrier,
    lane_id,
    num_ctas,
    num_programs,
    num_warps,
    program_id,
    schedule_barrier,
    static_range,
    thread_barrier,
    uniform,
    warp_id,
)  # fmt: skip
from weft.language.promote import to_tensor
from weft.language.random import (
    pair_uniform_to_normal,
    philox,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    uint_to_uniform_float,
)
from weft.language.reduction import argmax, argmin, max, min, reduce, reduce_or, sum, xor_sum
from weft.language.scan import associative_scan, cumprod, cumsum, dot_fma, gather, histogram, map_elementwise
from weft.language.shape import (
    broadcast,
    broadcast_to,
    cat,
    expand_dims,
    join,
    permute,
    ravel,
    reshape,
    slice,
    split,
    trans,
)  # fmt: skip
from weft.language.shared_memory import (
    allocate_shared_memory,
    bank_conflicts,
    peer_memory,
    shared_memory_descriptor,
    shared_memory_descriptor_type,
)  # fmt: skip
from weft.language.sorting import bitonic_merge, sort, topk
from weft.language.symmetric import put, quiet, signal, symmetric, wait_signal, wait_value
from weft.language.tensor import tensor
from weft.language.tensor_core import TensorCore
from weft.language.thread import (
    WARP_SIZE,
    async_copy_wait_all,
    block_dim,
    block_idx,
    global_idx,
    grid_dim,
    shuffle_down,
    shuffle_idx,
    shuffle_up,
    shuffle_xor,
    simd_width_of,
    syncwarp,
    thread_idx,
    warp_broadcast,
    warp_max,
    warp_min,
    warp_prefix_sum,
    warp_sum,
)  # fmt: skip
from weft.language.thread_barriers import (
    mbarrier_arrive,
    mbarrier_arrive_expect_tx_shared,
    mbarrier_init,
    mbarrier_inval,
    mbarrier_test_wait,
    mbarrier_test_wait_parity,
)
from weft.language.vector import SIMD
from weft.language.vectorize import vectorize
from weft.language.views import (
    UNKNOWN,
    AddressSpace,
    All,
    ComposedLayout,
    Coord,
    Idx,
    Index,
    Layout,
    LayoutTensor,
    LayoutTensorIter,
    Swizzle,
    TileTensor,
    col_major,
    row_major,
    stack_allocation,
    stack_allocation_like,
)  # fmt: skip

if TYPE_CHECKING:
    from weft.language.checkers import constexpr
else:
    from weft.language.marks import constexpr

    def __getattr__(name: str) -> object:
        why = ": it compiles for NVIDIA's GPUs (weft.language.nvidia)" if name == "amd" else ""
        raise AttributeError(f"module 'weft.language' has no attribute {name!r}{why}", name=name)


__all__ = [
    # Layouts
    "AutoLayout", "BlockedLayout", "CoalescedLayout", "DistributedLayout", "DistributedLinearLayout", "DotOperandLayout",
    "NVMMADistributedLayout", "NVMMASharedLayout", "PaddedSharedLayout", "SharedLayout", "SharedLinearLayout",
    "SliceLayout", "SwizzledSharedLayout", "convert_layout", "set_auto_layout", "to_linear_layout",
    # Types and values
    "base_type", "base_value", "bfloat16", "distributed_type", "dtype", "float8e4nv", "float8e5", "float16", "float32",
    "float64", "int1", "int8", "int16", "int32", "int64", "pointer_type", "uint8", "uint16", "uint32", "uint64",
    "aggregate", "aggregate_replace", "constexpr", "constexpr_function",
    "max_finite", "min_finite", "must_use_result", "tensor", "to_tensor", "tuple", "tuple_type", "cast",
    # Programs
    "barrier", "lane_id", "num_ctas", "num_programs", "num_warps", "program_id", "schedule_barrier", "static_range",
    "thread_barrier", "uniform", "warp_id", "warp_specialize",
    # Views of memory
    "AddressSpace", "All", "ComposedLayout", "Coord", "Idx", "Index", "Layout", "LayoutTensor", "LayoutTensorIter", "Swizzle",
    "TileTensor", "UNKNOWN", "col_major", "fragment", "from_fragment", "row_major", "stack_allocation", "stack_allocation_like",
    "copy_dram_to_local", "copy_dram_to_sram", "copy_dram_to_sram_async", "copy_local_to_dram", "copy_local_to_shared",
    "copy_sram_to_dram", "copy_sram_to_local", "outer_product_acc",
    # Threads
    "block_rank_in_cluster", "cluster_arrive", "cluster_dim", "cluster_idx", "cluster_sync", "cluster_wait", "elect_one_sync",
    "TensorCore", "mbarrier_arrive", "mbarrier_arrive_expect_tx_shared", "mbarrier_init", "mbarrier_inval",
    "mbarrier_test_wait", "mbarrier_test_wait_parity",
    "SIMD", "WARP_SIZE", "async_copy_wait_all", "block", "block_dim", "block_idx", "global_idx", "grid_dim", "shuffle_down",
    "shuffle_idx", "shuffle_up", "shuffle_xor", "simd_width_of", "syncwarp", "thread_idx", "warp", "warp_broadcast", "warp_max",
    "warp_min", "warp_prefix_sum", "warp_sum", "vectorize",
    # Shared memory, and what one vendor's GPUs have
    "allocate_shared_memory", "bank_conflicts", "nvidia", "peer_memory", "shared_memory_descriptor",
    "shared_memory_descriptor_type",
    # Making tiles, memory
    "CachePolicy",
    "arange", "full", "full_like", "zeros", "zeros_like", "load", "store", "fence", "atomic_add", "atomic_and", "atomic_cas",
    "atomic_load", "atomic_max", "atomic_min", "atomic_or", "atomic_poll", "atomic_store", "atomic_xchg", "atomic_xor",
    # Arithmetic and logic
    "PropagateNan", "add", "cdiv", "clamp", "floordiv", "maximum", "minimum", "mod", "mul", "negative", "next_power_of_2",
    "sub", "truediv", "logical_and", "logical_not", "logical_or", "where",
    # Mathematics
    "abs", "ceil", "cos", "div_rn", "erf", "exp", "exp2", "exp2_polynomial", "expm1", "extra", "fdiv", "floor", "fma", "log",
    "log1p", "log2", "math", "pow", "rsqrt", "sin", "sqrt", "sqrt_rn", "tanh", "popcount", "umulhi",
    # Random numbers
    "pair_uniform_to_normal", "philox", "rand", "rand4x", "randint", "randint4x", "randn", "randn4x", "uint_to_uniform_float",
    # Other ranks
    "multimem_ld_reduce", "multimem_red", "multimem_st", "put", "quiet", "signal", "symmetric", "wait_signal",
    "wait_value",
    # Shapes
    "broadcast", "broadcast_to", "cat", "expand_dims", "join", "permute", "ravel", "reshape", "slice", "split", "trans",
    # Combining elements
    "argmax", "argmin", "associative_scan", "bitonic_merge", "cumprod", "cumsum", "dot_fma", "gather", "histogram",
    "map_elementwise", "max", "min", "reduce", "reduce_or", "sort", "sum", "topk", "xor_sum",
    # PTX, hints, messages
    "fp4_to_fp", "inline_asm", "inline_asm_elementwise", "int4_to_fp", "assume", "max_constancy", "max_contiguous",
    "multiple_of", "device_assert", "device_print", "expect_zero", "static_assert", "static_print",
]  # fmt: skip
