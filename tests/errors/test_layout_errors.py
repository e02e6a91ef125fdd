"""One test per mistake with layouts: the code, and the author's own numbers in the message."""

from __future__ import annotations

import re

import pytest

from weft.errors import LayoutError
from weft.layout import (
    AutoLayout,
    BlockedLayout,
    CoalescedLayout,
    DistributedLinearLayout,
    DotOperandLayout,
    LinearLayout,
    MBarrierLayout,
    NVMMADistributedLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLinearLayout,
    SliceLayout,
    SwizzledSharedLayout,
    check_num_warps,
    plan_access,
    plan_conversion,
    plan_ordered_reduction,
    plan_reduction,
    plan_scan,
)
from weft.layout.distributed import infer
from weft.layout.parse import parse_layout, parse_shape
from weft.layout.shared.tma import boxes
from weft.layout.shared.views import reinterpreted
from weft.layout.show.text import format_tensor_view
from weft.layout.tensor_cores.mma import plan_sync
from weft.layout.tensor_memory.layouts import TensorMemoryLayout

BLOCK = BlockedLayout([2, 4], [16, 2], [2, 2], [1, 0])
LINE = BlockedLayout([1], [32], [4], [0])
MMA = NVMMADistributedLayout([2, 0], [2, 2], [16, 8])
WGMMA = NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])


def across_blocks():
    """Two layouts of a tile of 96 columns that give the two blocks of a cluster different rows."""
    halves, copies = (BlockedLayout([1, 4], [16, 2], [2, 1], [1, 0], cga_layout=cga) for cga in ([[1, 0]], [[0, 0]]))
    return halves.to_linear((64, 96)), copies.to_linear((64, 96))


FOUR = LinearLayout.identity(4, "a", "x")
LANES = [[1], [2], [4], [8], [16]]
PADDED = PaddedSharedLayout.with_identity_for([[32, 4]], [64], [0])
CLUSTER = {"ctas_per_cga": [2, 1], "cta_split_num": [2, 1], "cta_order": [1, 0]}


def blocked(**changes):
    fields = {"size_per_thread": [2, 4], "threads_per_warp": [16, 2], "warps_per_cta": [2, 2], "order": [1, 0]}
    return BlockedLayout(**{**fields, **changes})


def linear(**changes):
    fields = {"reg_bases": [], "lane_bases": LANES, "warp_bases": [], "block_bases": [], "shape": [32]}
    return DistributedLinearLayout(**{**fields, **changes})


def convert(src, dst, warps=4):
    return plan_conversion(LINE.to_linear(src), BlockedLayout([1], [32], [warps], [0]).to_linear(dst), 32)


def clustered():
    """An access by two blocks of a cluster that hold half a tile each to shared memory that has a copy in each block."""
    block = blocked(cga_layout=[[1, 0]]).to_linear([128, 16])
    return plan_access(
        block, SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=[[0, 0]]), (128, 16), (128, 16), (0, 0), 32
    )


def mixed():
    """Lane bits that move along both dimensions at once."""
    return linear(lane_bases=[[0, 1], [1, 1], [2, 0], [4, 0], [0, 2]], shape=[8, 4]).to_linear([8, 4])


MISTAKES = [
    ("layout-linear-dim", "'lane'", lambda: FOUR.in_size("lane")),
    ("layout-linear-dim", "'y'", lambda: FOUR.out_size("y")),
    ("layout-linear-basis", "[4]", lambda: LinearLayout.make({"a": [[4]]}, [("x", 4)])),
    ("layout-linear-compose", "{'y': 4}", lambda: FOUR.compose(LinearLayout.identity(4, "y", "z"))),
    ("layout-linear-compose", "('y',)", lambda: FOUR.permute_outs(["y"])),
    ("layout-linear-reshape", "4", lambda: FOUR.reshape_outs([("x", 8)])),
    ("layout-not-invertible", "rank 0", lambda: LinearLayout.zeros(4, "a", "x").invert()),
    ("layout-not-surjective", "1 of the 4", lambda: LinearLayout.make({"a": []}, [("x", 4)]).pseudo_invert()),
    ("layout-not-surjective", "32 of the 64", lambda: linear(shape=[64])),
    ("layout-no-factor", "other", lambda: FOUR.invert_and_compose(LinearLayout.make({"b": []}, [("x", 4)]))),
    ("layout-power-of-two", "3", lambda: blocked(size_per_thread=[3, 4])),
    ("layout-power-of-two", "0", lambda: blocked(warps_per_cta=[0, 4])),
    ("layout-power-of-two", "num_warps is 3", lambda: check_num_warps(BLOCK, 3)),
    ("layout-power-of-two", "vec is 6", lambda: SwizzledSharedLayout(6, 1, 1, [1, 0])),
    ("layout-power-of-two", "(6,)", lambda: LinearLayout.make({}, [("x", 6)])),
    ("layout-tile-shape", "[64, 44]", lambda: SwizzledSharedLayout(1, 1, 1, [1, 0]).to_linear([64, 44])),
    ("layout-tile-shape", "multiple of 8", lambda: linear(shape=[44])),
    ("layout-power-of-two", "48", lambda: linear(shape=[48])),
    ("layout-power-of-two", "48", lambda: PaddedSharedLayout([[32, 8]], [[1]], [], [48])),
    ("layout-tile-end", "dimension 1 is 16 elements, and 24 is not", lambda: BLOCK.to_linear([64, 24])),
    ("layout-tile-end", "choose 64 or 128", lambda: BLOCK.to_linear([96, 64])),
    ("layout-tile-end", "choose 64 or 128", lambda: SwizzledSharedLayout(8, 1, 8, [1, 0]).to_linear([64, 96])),
    ("layout-tile-whole", "dimension 1 has size 48", lambda: TensorMemoryLayout([128, 64]).to_linear([128, 48])),
    ("layout-reshape-end", "[8, 48]", lambda: infer.reshape(BlockedLayout([1], [32], [4], [0]), [384], [8, 48])),
    ("layout-convert-end-blocks", "[64, 96]", lambda: plan_conversion(*across_blocks(), 32)),
    ("layout-mma-sync-end", "N 48", lambda: plan_sync(MMA, (32, 48, 16), 16, MMA, MMA)),
    ("layout-instr-across", "warps [4, 2]", lambda: NVMMADistributedLayout([3, 0], [4, 2], [16, 96, 16])),
    ("layout-tma-row-end", "rows of 80 bytes", lambda: boxes((64, 80), NVMMASharedLayout(0, 8), 8)),
    ("layout-swizzle-fit", "128", lambda: NVMMASharedLayout(128, 16).to_linear([64, 96])),
    ("layout-field-rank", "order has 1", lambda: blocked(order=[0])),
    ("layout-field-rank", "warps_per_cta has 3", lambda: blocked(warps_per_cta=[1, 2, 2])),
    ("layout-rank", "[64]", lambda: BLOCK.to_linear([64])),
    ("layout-rank", "[4, 4]", lambda: infer.broadcast(LINE, [4], [4, 4])),
    ("layout-order", "[1, 2]", lambda: blocked(order=[1, 2])),
    ("layout-order", "[0, 0]", lambda: SwizzledSharedLayout(1, 1, 1, [0, 0])),
    ("layout-order", "[1]", lambda: infer.permute(BLOCK, [64, 16], [1])),
    ("layout-warp-size", "multiplies to 16", lambda: blocked(threads_per_warp=[4, 4])),
    ("layout-num-warps", "4 warps, but the kernel runs with num_warps=8", lambda: check_num_warps(BLOCK, 8)),
    ("layout-unresolved", "AutoLayout()", lambda: AutoLayout().to_linear([4])),
    ("layout-unresolved", "CoalescedLayout()", lambda: CoalescedLayout().to_linear([4])),
    ("layout-slice-dim", "dimension 2", lambda: SliceLayout(2, BLOCK)),
    ("layout-slice-dim", "dimension -1", lambda: SliceLayout(-1, BLOCK)),
    ("layout-not-distributed", "SliceLayout", lambda: SliceLayout(1, NVMMASharedLayout(128, 16))),
    ("layout-not-distributed", "DotOperandLayout", lambda: DotOperandLayout(0, "blocked", 0)),
    ("layout-operand-index", "2", lambda: DotOperandLayout(2, BLOCK, 0)),
    ("layout-dot-parent", "SliceLayout", lambda: DotOperandLayout(0, SliceLayout(1, BLOCK), 0)),
    ("layout-k-width", "k_width 2", lambda: DotOperandLayout(0, BLOCK, 2)),
    ("layout-k-width", "k_width 3", lambda: DotOperandLayout(0, MMA, 3)),
    ("layout-dot-shared-only", "shared memory", lambda: DotOperandLayout(1, WGMMA, 2)),
    ("layout-mma-version", "[5, 0]", lambda: NVMMADistributedLayout([5, 0], [4, 1], [16, 64, 16])),
    ("layout-instr-shape", "[8, 8]", lambda: NVMMADistributedLayout([2, 0], [4, 1], [8, 8])),
    ("layout-instr-shape", "[16, 44, 16]", lambda: NVMMADistributedLayout([3, 0], [4, 1], [16, 44, 16])),
    ("layout-instr-shape", "[16, 64, 64]", lambda: NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 64])),
    ("layout-cga-twice", "cta_order", lambda: blocked(cga_layout=[[1, 0]], cta_order=[1, 0])),
    ("layout-cga-missing", "cta_split_num is missing", lambda: blocked(ctas_per_cga=[2, 1], cta_order=[1, 0])),
    ("layout-cga-split", "[4, 1]", lambda: blocked(**{**CLUSTER, "cta_split_num": [4, 1]})),
    ("layout-field-rank", "ctas_per_cga has 1", lambda: blocked(**{**CLUSTER, "ctas_per_cga": [2]})),
    ("layout-bases", "[1]", lambda: blocked(cga_layout=[[1]])),
    ("layout-cga-gaps", "256 parts, of which the blocks hold only 2", lambda: blocked(cga_layout=[[128, 0]])),
    ("layout-bases", "[32]", lambda: linear(lane_bases=[*LANES[:4], [32]])),
    ("layout-bases", "[1, 0]", lambda: linear(reg_bases=[[1, 0]])),
    ("layout-bases", "[0]", lambda: SharedLinearLayout([[0, 1], [0]])),
    ("layout-lane-count", "4 bases", lambda: linear(lane_bases=LANES[:4])),
    ("layout-linear-shape", "[32]", lambda: linear(lane_bases=[[17], [2], [4], [8], [16]]).to_linear([16])),
    ("layout-linear-shape", "[4]", lambda: SharedLinearLayout([[1], [2]]).to_linear([8])),
    ("layout-swizzle-width", "16", lambda: NVMMASharedLayout(16, 16)),
    ("layout-element-bits", "12", lambda: NVMMASharedLayout(128, 12)),
    ("layout-element-bits", "16", lambda: NVMMASharedLayout(128, 16, fp4_padded=True)),
    ("layout-swizzle-fit", "64 rows of 64 bytes", lambda: NVMMASharedLayout(128, 16).to_linear([64, 32])),
    (
        "layout-reinterpret",
        "aligned to 16 bytes",
        lambda: reinterpreted(SwizzledSharedLayout(1, 1, 1, [0]), NVMMASharedLayout(128, 16)),
    ),
    ("layout-barrier-shape", "shape [4, 1]", lambda: MBarrierLayout().to_linear([4])),
    (
        "layout-tma-transposed",
        "dimension 0 contiguous",
        lambda: boxes([64, 8], NVMMASharedLayout(128, 16, 2, True), 16),
    ),
    ("layout-tma-rank", "shape [1, 1, 1, 1, 1, 64]", lambda: boxes([1] * 5 + [64], NVMMASharedLayout(0, 16, 6), 16)),
    ("layout-tma-inner", "has 8 bytes of it", lambda: boxes([32, 4], NVMMASharedLayout(0, 16), 16)),
    ("layout-tma-element", "elements of 16 bits", lambda: boxes([32, 64], NVMMASharedLayout(128, 16), 32)),
    ("layout-swizzle-fit", "4 rows", lambda: NVMMASharedLayout(128, 16).to_linear([4, 64])),
    ("layout-padding", "[24, 4]", lambda: PaddedSharedLayout.with_identity_for([[24, 4]], [64], [0])),
    ("layout-padding", "[32, 4]", lambda: PaddedSharedLayout.with_identity_for([[32, 4], [32, 8]], [64], [0])),
    ("layout-alignment", "24", lambda: SharedLinearLayout([[1]], alignment=24)),
    ("layout-axis", "axis 2", lambda: infer.slice_of(BLOCK, 2)),
    ("layout-axis", "axis 3", lambda: infer.expand_dims(BLOCK, [64, 16], 3)),
    ("layout-axis", "axis -3", lambda: plan_reduction(BLOCK.to_linear([64, 16]), -3)),
    ("layout-reshape", "1024 elements", lambda: infer.reshape(BLOCK, [64, 16], [64, 32])),
    ("layout-split-shape", "[64, 16]", lambda: infer.split(BLOCK, [64, 16])),
    ("layout-split", "threads", lambda: infer.split(BlockedLayout([1, 1], [16, 2], [4, 1], [1, 0]), [64, 2])),
    ("layout-slice", "cut at multiples of 16", lambda: infer.extract(BLOCK, [64, 64], [0, 8], [64, 16])),
    (
        "layout-slice",
        "such as gl.BlockedLayout([1, 16], [32, 1]",
        lambda: infer.extract(BLOCK, [64, 16], [0, 0], [64, 8]),
    ),
    ("layout-slice", "with other offsets", lambda: infer.extract(SliceLayout(1, BLOCK), [64], [0], [8])),
    ("layout-broadcast", "dimension 0 is 4", lambda: infer.broadcast(BLOCK, [4, 1], [8, 4])),
    ("layout-reduce-blocks", "axis 0", lambda: plan_reduction(blocked(cga_layout=[[1, 0]]).to_linear([128, 16]), 0)),
    ("layout-reduce-blocks", "axis 0", lambda: plan_scan(blocked(cga_layout=[[1, 0]]).to_linear([128, 16]), 0)),
    ("layout-scan", "axis 1", lambda: plan_scan(mixed(), 1)),
    ("layout-reduce-order", "axis 1", lambda: plan_ordered_reduction(mixed(), 1)),
    ("convert-shape", "[32] to a layout of shape [64]", lambda: convert([32], [64])),
    ("convert-threads", "4 and 8 warps", lambda: convert([128], [128], warps=8)),
    ("convert-blocks", "bases are [(64, 0)] before and [(0, 0)] after", clustered),
    ("show-unresolved", "AutoLayout()", lambda: format_tensor_view(AutoLayout(), [4])),
    ("show-padded", "PaddedSharedLayout", lambda: format_tensor_view(PADDED, [64])),
    ("show-shape", "[32], not [64]", lambda: format_tensor_view(LINE.to_linear([32]), [64])),
    ("show-too-large", "2097152 elements", lambda: format_tensor_view(LINE, [2**21])),
    ("show-text", "no layout 'Blocked'", lambda: parse_layout("Blocked([1])")),
    ("show-text", "constructor", lambda: parse_layout("[1, 2]")),
    ("show-shape-text", "'32xx8'", lambda: parse_shape("32xx8")),
]


@pytest.mark.parametrize(("code", "words", "mistake"), MISTAKES, ids=[f"{code}-{words}" for code, words, _ in MISTAKES])
def test_mistake(code, words, mistake):
    with pytest.raises(LayoutError, match=re.escape(words)) as error:
        mistake()
    assert error.value.code == code
    assert error.value.fix


def test_the_message_names_both_sides_and_the_fix():
    with pytest.raises(LayoutError) as error:
        blocked(threads_per_warp=[8, 2])
    assert str(error.value) == (
        "threads_per_warp [8, 2] multiplies to 16, but a warp has 32 threads [layout-warp-size]\n"
        "fix: choose powers of two whose product is 32"
    )
