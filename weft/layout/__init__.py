"""Layouts: pure algebra of where the elements of a tile lie. Other packages import from here."""

from weft.layout import infer
from weft.layout.base import WARP_SIZE, Layout, check_tile_shape
from weft.layout.convert import Plan, describe, is_trivial, plan_conversion
from weft.layout.cost import bank_conflicts, coalescing
from weft.layout.distributed import (
    AutoLayout,
    BlockedLayout,
    CoalescedLayout,
    DistributedLayout,
    DistributedLinearLayout,
    SliceLayout,
    check_num_warps,
)
from weft.layout.linear import LinearLayout
from weft.layout.mma import DotOperandLayout, NVMMADistributedLayout
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
    "Layout",
    "LinearLayout",
    "NVMMADistributedLayout",
    "NVMMASharedLayout",
    "PaddedSharedLayout",
    "Plan",
    "ReductionPlan",
    "RegisterScan",
    "ScanPlan",
    "SharedLayout",
    "SharedLinearLayout",
    "SliceLayout",
    "SwizzledSharedLayout",
    "WarpStep",
    "bank_conflicts",
    "check_num_warps",
    "check_tile_shape",
    "coalescing",
    "describe",
    "infer",
    "is_trivial",
    "plan_conversion",
    "plan_reduction",
    "plan_scan",
]
