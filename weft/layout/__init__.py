"""Layouts: pure algebra of where the elements of a tile lie. Other packages import from here."""

from weft.layout import infer
from weft.layout.base import WARP_SIZE, TileLayout, check_tile_shape
from weft.layout.convert import Plan, describe, is_trivial, plan_conversion
from weft.layout.cost import coalescing
from weft.layout.distributed import (
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
from weft.layout.linear import LinearLayout
from weft.layout.mbarrier import MBarrierLayout
from weft.layout.mma import DotOperandLayout, NVMMADistributedLayout, pick_wgmma_layout
from weft.layout.reduction import (
    LaneScan,
    LaneStep,
    ReductionPlan,
    RegisterScan,
    ScanPlan,
    WarpStep,
    plan_reduction,
    plan_scan,
)
from weft.layout.shared import (
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLayout,
    SharedLinearLayout,
    SwizzledSharedLayout,
)
from weft.layout.shared_access import SharedAccess, bank_conflicts, plan_access

__all__ = [
    "WARP_SIZE",
    "AutoLayout",
    "BlockedLayout",
    "CoalescedLayout",
    "DistributedLayout",
    "DistributedLinearLayout",
    "DotOperandLayout",
    "LaneScan",
    "LaneStep",
    "TileLayout",
    "LinearLayout",
    "MBarrierLayout",
    "NVMMADistributedLayout",
    "NVMMASharedLayout",
    "PaddedSharedLayout",
    "Plan",
    "ReductionPlan",
    "RegisterScan",
    "ScanPlan",
    "SharedAccess",
    "SharedLayout",
    "SharedLinearLayout",
    "SliceLayout",
    "SwizzledSharedLayout",
    "WarpStep",
    "bank_conflicts",
    "check_num_ctas",
    "check_num_warps",
    "in_cluster",
    "check_tile_shape",
    "coalescing",
    "describe",
    "infer",
    "is_trivial",
    "pick_wgmma_layout",
    "plan_access",
    "plan_conversion",
    "plan_reduction",
    "plan_scan",
]
