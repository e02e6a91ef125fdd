"""Layouts: a pure algebra that maps registers, lanes, warps, blocks and memory offsets to the elements of a tile."""

from weft.layout.base import WARP_SIZE, TileLayout, check_tile_shape
from weft.layout.convert.plans import Plan, describe, is_trivial, plan_conversion
from weft.layout.cost import coalescing
from weft.layout.distributed import infer
from weft.layout.distributed.layouts import (
    AutoLayout,
    BlockedLayout,
    CoalescedLayout,
    DistributedLayout,
    DistributedLinearLayout,
    SliceLayout,
    check_num_ctas,
    check_num_warps,
    in_cluster,
)
from weft.layout.distributed.mma import DotOperandLayout, NVMMADistributedLayout, pick_wgmma_layout
from weft.layout.linear.maps import LinearLayout
from weft.layout.nested import int_tuple
from weft.layout.nested.algebra import (
    coalesce,
    complement,
    composition,
    downcast,
    filter_layout,
    left_inverse,
    make_ordered_layout,
    right_inverse,
    sublayout,
    transpose,
    upcast,
)
from weft.layout.nested.composed import ComposedLayout, Swizzle, make_swizzle
from weft.layout.nested.divide import (
    blocked_product,
    flat_divide,
    flat_product,
    logical_divide,
    logical_product,
    raked_product,
    tile_to_shape,
    tiled_divide,
    tiled_product,
    zipped_divide,
    zipped_divide_by_shape,
    zipped_product,
)
from weft.layout.nested.int_tuple import UNKNOWN, crd2idx, idx2crd
from weft.layout.nested.layouts import Layout, make_layout
from weft.layout.nested.linear import from_linear, to_linear
from weft.layout.reduction import (
    LaneScan,
    LaneStep,
    OrderedPlan,
    ReductionPlan,
    RegisterScan,
    ScanPlan,
    WarpStep,
    plan_ordered_reduction,
    plan_reduction,
    plan_scan,
)
from weft.layout.shared.layouts import (
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLayout,
    SharedLinearLayout,
    SwizzledSharedLayout,
)
from weft.layout.shared.load_store import SharedAccess, bank_conflicts, plan_access
from weft.layout.shared.mbarrier import MBarrierLayout
from weft.layout.show.nested_svg import format_layout_svg
from weft.layout.show.nested_text import format_layout
from weft.layout.tensor_memory.layouts import TensorLayout, TensorMemoryLayout, TensorMemoryScalesLayout
from weft.layout.tensor_memory.load_store import TensorAccess, TensorSide, plan_tensor_access, register_layout

__all__ = [
    "UNKNOWN",
    "WARP_SIZE",
    "AutoLayout",
    "BlockedLayout",
    "CoalescedLayout",
    "ComposedLayout",
    "DistributedLayout",
    "DistributedLinearLayout",
    "DotOperandLayout",
    "LaneScan",
    "LaneStep",
    "Layout",
    "LinearLayout",
    "MBarrierLayout",
    "NVMMADistributedLayout",
    "NVMMASharedLayout",
    "PaddedSharedLayout",
    "Plan",
    "OrderedPlan",
    "ReductionPlan",
    "RegisterScan",
    "ScanPlan",
    "SharedAccess",
    "SharedLayout",
    "SharedLinearLayout",
    "SliceLayout",
    "Swizzle",
    "SwizzledSharedLayout",
    "TensorAccess",
    "TensorLayout",
    "TensorMemoryLayout",
    "TensorMemoryScalesLayout",
    "TensorSide",
    "TileLayout",
    "WarpStep",
    "bank_conflicts",
    "blocked_product",
    "check_num_ctas",
    "check_num_warps",
    "check_tile_shape",
    "coalesce",
    "coalescing",
    "complement",
    "composition",
    "crd2idx",
    "describe",
    "downcast",
    "filter_layout",
    "flat_divide",
    "flat_product",
    "format_layout",
    "format_layout_svg",
    "from_linear",
    "idx2crd",
    "in_cluster",
    "infer",
    "int_tuple",
    "is_trivial",
    "left_inverse",
    "logical_divide",
    "logical_product",
    "make_layout",
    "make_ordered_layout",
    "make_swizzle",
    "pick_wgmma_layout",
    "plan_access",
    "plan_conversion",
    "plan_ordered_reduction",
    "plan_reduction",
    "plan_scan",
    "plan_tensor_access",
    "raked_product",
    "register_layout",
    "right_inverse",
    "sublayout",
    "tile_to_shape",
    "tiled_divide",
    "tiled_product",
    "to_linear",
    "transpose",
    "upcast",
    "zipped_divide",
    "zipped_divide_by_shape",
    "zipped_product",
]
