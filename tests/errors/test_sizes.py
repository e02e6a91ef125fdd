"""Numbers of layouts, tiles and memory that are of the wrong kind or larger than any hardware: errors of the catalogue."""

from __future__ import annotations

import runpy

import numpy as np
import pytest

import weft
import weft.language as gl
from weft.errors import LayoutError, UserError
from weft.layout import (
    AutoLayout,
    BlockedLayout,
    DistributedLinearLayout,
    DotOperandLayout,
    MBarrierLayout,
    NVMMADistributedLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLinearLayout,
    SliceLayout,
    SwizzledSharedLayout,
)
from weft.layout.base import TILE_ELEMENTS
from weft.layout.distributed.mma import pick_wgmma_layout
from weft.layout.tensor_memory.layouts import TensorMemoryLayout, TensorMemoryScalesLayout

LINE = BlockedLayout([1], [32], [4], [0])
FMA = BlockedLayout([1, 1], [32, 1], [4, 1], [1, 0])
LANES = [[1], [2], [4], [8], [16]]
MANY = [[0]] * 40

FIELDS = [
    ("size_per_thread is 4", lambda: BlockedLayout(4, 32, 4, 0)),
    ("size_per_thread is ['a']", lambda: BlockedLayout(["a"], [32], [4], [0])),
    ("threads_per_warp is [32.0]", lambda: BlockedLayout([1], [32.0], [4], [0])),
    ("order is None", lambda: BlockedLayout([1], [32], [4], None)),
    ("ctas_per_cga is 'ab'", lambda: BlockedLayout([1], [32], [4], [0], "ab")),
    ("cga_layout is 3", lambda: BlockedLayout([1], [32], [4], [0], cga_layout=3)),
    ("dim is 'a'", lambda: SliceLayout("a", LINE)),
    ("reg_bases is [1]", lambda: DistributedLinearLayout([1], LANES, [], [], [32])),
    ("version is 2", lambda: NVMMADistributedLayout(2, [4, 1], [16, 8])),
    ("operand_index is 'a'", lambda: DotOperandLayout("a", FMA, 0)),
    ("k_width is 0.5", lambda: DotOperandLayout(0, FMA, 0.5)),
    ("vec is 'a'", lambda: SwizzledSharedLayout("a", 1, 1, [0])),
    ("swizzle_byte_width is '128'", lambda: NVMMASharedLayout("128", 16)),
    ("transposed is 'no', which is not True or False", lambda: NVMMASharedLayout(128, 16, transposed="no")),
    ("interval_padding_pairs is [4, 4]", lambda: PaddedSharedLayout([4, 4], [], [], [1])),
    ("alignment is 16.0", lambda: SharedLinearLayout([[1]], alignment=16.0)),
    ("cga_layout is 1", lambda: MBarrierLayout(1)),
    ("col_stride is None", lambda: TensorMemoryLayout([128, 64], None)),
    ("cta_split_num is 2", lambda: TensorMemoryScalesLayout(cta_split_num=2)),
]


@pytest.mark.parametrize(("part", "mistake"), FIELDS, ids=[part for part, _ in FIELDS])
def test_fields_of_another_kind(part, mistake):
    with pytest.raises(LayoutError) as caught:
        mistake()
    assert caught.value.code == "layout-field"
    assert part in caught.value.message
    assert caught.value.fix.startswith("write ")


MISTAKES = [
    ("layout-field-limit", "1180591620717411303424", lambda: BlockedLayout([2**70], [32], [4], [0])),
    ("layout-field-limit", "thousands of digits", lambda: BlockedLayout([10**5000], [32], [4], [0])),
    ("layout-field-limit", "col_stride is 2147483648", lambda: TensorMemoryLayout([128, 64], col_stride=2**31)),
    ("layout-field-limit", "vec", lambda: SwizzledSharedLayout(2**40, 1, 1, [0])),
    ("layout-field-limit", "interval_padding", lambda: PaddedSharedLayout([[2**40, 1]], [], [], [1])),
    ("layout-field-limit", "offset_bases", lambda: SharedLinearLayout([[2**40]])),
    ("layout-field-limit", "alignment", lambda: SharedLinearLayout([[1]], alignment=2**40)),
    ("layout-field-limit", "dim", lambda: SliceLayout(2**40, AutoLayout())),
    ("layout-places", "134217728 places", lambda: BlockedLayout([2**20], [32], [4], [0]).to_linear([32])),
    ("layout-places", "copies", lambda: DistributedLinearLayout(MANY, LANES, [], [], [32]).to_linear([32])),
    ("layout-places", "copies", lambda: DistributedLinearLayout([], LANES, MANY, [], [32]).to_linear([32])),
    ("layout-places", "copies", lambda: SharedLinearLayout(MANY).to_linear([1])),
    ("layout-places", "[128, 64]", lambda: TensorMemoryLayout([128, 64], 2**20).to_linear([128, 64])),
    ("layout-places", "67108864", lambda: DotOperandLayout(0, FMA, 0).to_linear([2, 2**19])),
    ("layout-cluster-blocks", "32 blocks", lambda: BlockedLayout([1], [32], [4], [0], [[0]] * 5).to_linear([32])),
    ("layout-cluster-blocks", "at most 16", lambda: MBarrierLayout(MANY).to_linear([1])),
    ("layout-tile-elements", "[2097152]", lambda: LINE.to_linear([2 * TILE_ELEMENTS])),
    ("layout-tile-elements", "[1073741824]", lambda: PaddedSharedLayout.with_identity_for([[4, 4]], [2**30], [0])),
    ("layout-tile-elements", "1099511627776", lambda: pick_wgmma_layout(16, [2**40, 64], 4)),
    ("layout-tile-elements", "64", lambda: NVMMASharedLayout.get_default_for([2**40, 64], gl.float16).to_linear([2**40, 64])),
    ("layout-integers", "['a']", lambda: LINE.to_linear(["a"])),
    ("layout-integers", "is 5", lambda: LINE.to_linear(5)),
    ("layout-integers", "is 8", lambda: LINE.format_tensor_view(8)),
    ("layout-integers", "is '8'", lambda: LINE.format_hardware_view("8")),
    ("layout-integers", "'ab'", lambda: PaddedSharedLayout.with_identity_for([[4, 4]], "ab", [0])),
    ("layout-integers", "order is 0", lambda: PaddedSharedLayout.with_identity_for([[4, 4]], [8], 0)),
    ("layout-integers", "block_shape is 5", lambda: NVMMASharedLayout.get_default_for(5, gl.float16)),
    ("layout-integers", "num_ctas is ['a']", lambda: MBarrierLayout.multicta("a")),
    ("layout-power-of-two", "num_ctas is [3]", lambda: MBarrierLayout.multicta(3)),
    ("layout-no-dimensions", "rank -2", lambda: NVMMASharedLayout(128, 16, rank=-2)),
    ("layout-no-dimensions", "rank 0", lambda: NVMMASharedLayout.get_default_for([], gl.float16)),
    ("layout-slice-dim", "dimension -1", lambda: SliceLayout(-1, AutoLayout())),
    ("layout-mma-warps", "a warps", lambda: pick_wgmma_layout(16, [64, 64], "a")),
    ("layout-element-bits", "is 0", lambda: pick_wgmma_layout(0, [64, 64], 4)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "part", "mistake"), MISTAKES, ids=[f"{m[0]} {m[1]}" for m in MISTAKES])
def test_sizes_on_the_host(code, part, mistake):
    with pytest.raises(LayoutError) as caught:
        mistake()
    assert caught.value.code == code
    assert part in caught.value.message


def test_numbers_of_arrays_are_taken():
    assert BlockedLayout([np.int64(1)], np.array([32]), (4,), [0]) == LINE
    assert NVMMASharedLayout(128, 16, transposed=np.bool_(True)) == NVMMASharedLayout(128, 16, transposed=True)
    assert LINE.to_linear(np.array([64])) is LINE.to_linear([64])


def test_the_largest_tile():
    assert BlockedLayout([1], [32], [1], [0]).to_linear([TILE_ELEMENTS]).in_size("register") == TILE_ELEMENTS // 32


KERNELS = {
    "gl.arange(0, 2**40)": "layout-tile-elements",
    "gl.arange(2**40, 2**40 + 16)": "tile-arange-range",
    "gl.full([2**10, 2**11], 1, gl.int32)": "layout-tile-elements",
    "gl.zeros([2**40], gl.int32)": "layout-tile-elements",
    "gl.zeros([2**70], gl.int32)": "language-integer-range",
    "gl.arange(0, 2**15)[:, None] + gl.arange(0, 2**15)[None, :]": "layout-tile-elements",
    "gl.broadcast_to(gl.zeros([1], gl.int32), 2**21)": "layout-tile-elements",
    "gl.join(gl.arange(0, 2**20), gl.arange(0, 2**20))": "layout-tile-elements",
    "gl.reshape(gl.arange(0, 32), [2**40])": "layout-tile-elements",
    "gl.histogram(gl.arange(0, 32), 2**40)": "layout-tile-elements",
    "gl.arange(0, 32, gl.BlockedLayout([2**70], [32], [4], [0]))": "layout-field-limit",
    "gl.arange(0, 32, gl.BlockedLayout([2**20], [32], [4], [0]))": "layout-places",
    "gl.arange(0, 32, gl.BlockedLayout(1, 32, 4, 0))": "layout-field",
    "gl.allocate_shared_memory(gl.int32, [2**40], PLAIN)": "layout-tile-elements",
    "gl.allocate_shared_memory(gl.int32, [2**20000, 64], PLAIN)": "language-integer-range",
    "gl.program_id(0) + 2**20000": "language-integer-range",
    "gl.multiple_of(gl.program_id(0), 2**40)": "language-hint-range",
    "LayoutTensor.stack_allocation(gl.int32, Layout((2**40,)), address_space=AddressSpace.LOCAL)": "thread-local-bytes",
    "LayoutTensor.stack_allocation(gl.int32, Layout((0,)), address_space=AddressSpace.LOCAL)": "thread-no-elements",
    "LayoutTensor.stack_allocation(gl.int32, Layout((0,)), address_space=AddressSpace.SHARED)": "thread-no-elements",
    "LayoutTensor(p, Layout((2**40,), (2**50,)))": "strided-offsets",
}

SOURCE = """
import weft
import weft.language as gl
from weft import AddressSpace, Layout, LayoutTensor

PLAIN = gl.SwizzledSharedLayout(1, 1, 1, [0])

@weft.jit
def kernel(p):
    {line}
"""


@pytest.mark.parametrize("line", KERNELS)
def test_sizes_in_kernels(line, tmp_path):
    path = tmp_path / "sizes.py"
    path.write_text(SOURCE.format(line=line), "utf-8")
    kernel = runpy.run_path(str(path))["kernel"]
    with weft.simulate(), pytest.raises(UserError) as caught:
        kernel[(1,)](np.zeros(64, np.int32))
    assert caught.value.code == KERNELS[line]
    assert any(loc.file == str(path) for loc in caught.value.loc.chain())
