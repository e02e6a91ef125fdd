"""Views keep every element where it lies."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import powers, shared_tiles
from weft.layout import (
    MBarrierLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLinearLayout,
    SwizzledSharedLayout,
)
from weft.layout.shared.layouts import padded
from weft.layout.shared.sizes import alignment, stage_bytes
from weft.layout.shared.views import contiguous, permuted, reinterpreted, reshaped

laws = settings(deadline=None, max_examples=examples(120))


def places(layout, shape):
    """Where each element lies, as an array of the tile's shape: block and padded offset."""
    back = layout.to_linear(shape).pseudo_invert()
    out = np.empty(shape, dtype=object)
    for place in product(*map(range, shape)):
        offset, block = back(**{f"dim{d}": value for d, value in enumerate(place)})
        out[place] = (padded(offset, layout.pads_of(shape)), block)
    return out


@given(shared_tiles(), st.randoms(use_true_random=False))
@laws
def test_permuted_elements_stay(case, rng):
    layout, shape, bits = case
    order = rng.sample(range(len(shape)), len(shape))
    view = permuted(layout, order, shape)
    moved = [shape[d] for d in order]
    assert (places(view, moved) == places(layout, shape).transpose(order)).all()
    assert stage_bytes(view, moved, bits) == stage_bytes(layout, shape, bits)
    assert alignment(view) == alignment(layout)


@given(shared_tiles(), st.data())
@laws
def test_reshaped_elements_stay(case, data):
    layout, shape, bits = case
    rank = data.draw(st.integers(1, 4))
    new = [data.draw(powers(6)) for _ in range(rank - 1)]
    assume(prod(shape) % prod(new) == 0)
    new.insert(data.draw(st.integers(0, rank - 1)), prod(shape) // prod(new))
    view = reshaped(layout, shape, new)
    assert (places(view, new) == places(layout, shape).reshape(new)).all()
    assert stage_bytes(view, new, bits) == stage_bytes(layout, shape, bits)
    assert alignment(view) == alignment(layout)


@pytest.mark.parametrize(
    ("layout", "order", "shape", "expected"),
    [
        (NVMMASharedLayout(128, 16), [1, 0], [64, 128], NVMMASharedLayout(128, 16, transposed=True)),
        (NVMMASharedLayout(128, 16, transposed=True), [1, 0], [128, 64], NVMMASharedLayout(128, 16)),
        (NVMMASharedLayout(64, 8, 3), [0, 2, 1], [2, 8, 64], NVMMASharedLayout(64, 8, 3, True)),
        (
            NVMMASharedLayout(128, 16, cga_layout=[[1, 0]]),
            [1, 0],
            [128, 64],
            NVMMASharedLayout(128, 16, 2, True, cga_layout=[[0, 1]]),
        ),
        (SwizzledSharedLayout(8, 1, 8, [1, 0]), [1, 0], [64, 64], SwizzledSharedLayout(8, 1, 8, [0, 1])),
        (SwizzledSharedLayout(1, 1, 1, [2, 0, 1]), [1, 2, 0], [4, 8, 16], SwizzledSharedLayout(1, 1, 1, [1, 2, 0])),
        (MBarrierLayout(), [0], [1], MBarrierLayout()),
    ],
)
def test_permuted_layouts_are_spelled_as_an_author_would(layout, order, shape, expected):
    assert permuted(layout, order, shape) == expected


@pytest.mark.parametrize(
    ("layout", "shape", "new", "expected"),
    [
        (NVMMASharedLayout(128, 16, 3), [1, 64, 64], [64, 64], NVMMASharedLayout(128, 16)),
        (NVMMASharedLayout(128, 16), [64, 64], [4, 16, 64], NVMMASharedLayout(128, 16, 3)),
        (SwizzledSharedLayout(1, 1, 1, [1, 0]), [64, 64], [4096], SwizzledSharedLayout(1, 1, 1, [0])),
        (SwizzledSharedLayout(1, 1, 1, [1, 0]), [64, 64], [64, 64], SwizzledSharedLayout(1, 1, 1, [1, 0])),
        (SwizzledSharedLayout(1, 1, 1, [0, 1]), [2, 4], [8], SharedLinearLayout([[4], [1], [2]])),
    ],
)
def test_reshaped_layouts_are_spelled_as_an_author_would(layout, shape, new, expected):
    assert reshaped(layout, shape, new) == expected


def test_other_views_keep_the_alignment_of_the_tile():
    view = reshaped(NVMMASharedLayout(128, 16), [64, 128], [64 * 128])
    assert isinstance(view, SharedLinearLayout)
    assert view.alignment == 1024
    single = permuted(SharedLinearLayout([[0, 0]], alignment=64), [1, 0], [1, 1])
    assert (single.rank, alignment(single)) == (2, 64)


def test_memory_is_reinterpreted_where_its_alignment_allows():
    target = NVMMASharedLayout(64, 32)
    assert reinterpreted(NVMMASharedLayout(128, 16), target) is target


@pytest.mark.parametrize(
    ("layout", "shape", "part", "count"),
    [
        (SwizzledSharedLayout(1, 1, 1, [1, 0]), (64, 32), (16, 32), 512),
        (SwizzledSharedLayout(1, 1, 1, [1, 0]), (64, 32), (64, 16), 0),
        (SwizzledSharedLayout(4, 1, 8, [1, 0]), (64, 32), (1, 32), 32),
        (SwizzledSharedLayout(4, 1, 8, [1, 0]), (64, 32), (2, 16), 0),
        (NVMMASharedLayout(128, 16), (64, 128), (64, 64), 4096),
        (NVMMASharedLayout(128, 16), (64, 128), (32, 64), 2048),
        (NVMMASharedLayout(128, 16), (64, 128), (32, 128), 0),
        (SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=[[1, 0]]), (64, 32), (32, 32), 0),
        (SwizzledSharedLayout(1, 1, 1, [0, 1], cga_layout=[[1, 0]]), (64, 32), (64, 8), 256),
        (PaddedSharedLayout.with_identity_for([[32, 4]], [64, 32], [1, 0]), (64, 32), (32, 32), 0),
    ],
)
def test_contiguous_slices(layout, shape, part, count):
    """Against all offsets of the slice that starts in the middle, which are a run of that many."""
    assert contiguous(layout, shape, part) == count
    inverse = layout.to_linear(shape).pseudo_invert()
    start = [size // 2 if size != own else 0 for size, own in zip(shape, part, strict=True)]
    at = [first + np.arange(own) for first, own in zip(start, part, strict=True)]
    offset, block = inverse(dim0=at[0][:, None], dim1=at[1][None, :])
    offset, block = np.broadcast_arrays(offset, block)
    for own in (offset[block == b] for b in np.unique(block)):
        assert count in (0, own.size)
        if count:
            assert sorted(own) == list(range(own.min() // count * count, own.min() // count * count + count))
