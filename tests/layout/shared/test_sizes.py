"""Bytes and alignment of tiles in shared memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.effort import examples
from tests.layout.strategies import powers
from weft.layout import (
    MBarrierLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLinearLayout,
    SwizzledSharedLayout,
)
from weft.layout.shared.sizes import alignment, allocation_bytes, stage_bytes, tile_bytes

PADDED = PaddedSharedLayout.with_identity_for([[32, 4]], [4, 32], [1, 0])


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (NVMMASharedLayout(128, 16), 1024),
        (NVMMASharedLayout(64, 16), 512),
        (NVMMASharedLayout(32, 16), 256),
        (NVMMASharedLayout(0, 16), 128),
        (SharedLinearLayout([[1]], alignment=64), 64),
        (MBarrierLayout(), 8),
        (SwizzledSharedLayout(8, 1, 8, [1, 0]), 16),
        (PADDED, 16),
    ],
)
def test_alignment(layout, expected):
    assert alignment(layout) == expected


def test_bytes_of_a_tile():
    assert tile_bytes(NVMMASharedLayout(128, 32), [32, 64], 32) == 8192
    assert tile_bytes(SwizzledSharedLayout(1, 1, 1, [0]), [8], 1) == 8
    assert tile_bytes(MBarrierLayout(), [1], 64) == 8
    # 128 elements with three gaps between them; nothing follows the last.
    assert tile_bytes(PADDED, [4, 32], 16) == 2 * (128 + 3 * 4)
    assert tile_bytes(NVMMASharedLayout(128, 8, fp4_padded=True), [8, 64], 8) == 8 * 128
    assert tile_bytes(NVMMASharedLayout(128, 16, cga_layout=[[1, 0]]), [128, 64], 16) == 64 * 128


def test_stages_are_aligned():
    assert stage_bytes(NVMMASharedLayout(0, 16), [1, 8], 16) == 128
    assert stage_bytes(PADDED, [4, 32], 16) == 288
    assert stage_bytes(MBarrierLayout(), [1], 64) == 8
    assert allocation_bytes(NVMMASharedLayout(128, 16), [2, 3, 64, 64], 16) == 6 * 8192
    assert allocation_bytes(MBarrierLayout(), [4, 1], 64) == 32
    assert allocation_bytes(SwizzledSharedLayout(1, 1, 1, [0]), [4], 8) == 16


@given(powers(4), powers(5), powers(4))
@settings(deadline=None, max_examples=examples(40))
def test_padding_takes_what_its_last_element_needs(interval, padding, rows):
    layout = PaddedSharedLayout.with_identity_for([[interval, padding]], [rows, 8], [1, 0])
    ends = [layout.pad(offset) + 1 for offset in range(rows * 8)]
    assert tile_bytes(layout, [rows, 8], 32) == 4 * max(ends)
