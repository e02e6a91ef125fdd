"""TMA of images: the pixels that an im2col request brings, against a walk from pixel to pixel."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.pixels import pixels_of
from weft import language as gl
from weft.language.nvidia.hopper import mbarrier, tma
from weft.nvidia.hopper import TensorDescriptorIm2Col

PIXELS, CHANNELS = 64, 8
LAYOUT = gl.BlockedLayout([1, 1], [4, 8], [4, 1], [1, 0])


@weft.jit
def fetched(desc, out, n, h, w, offset_h, offset_w, P: gl.constexpr, C: gl.constexpr, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(desc.dtype, [P, C], desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, desc.block_type.nbytes)
    tma.async_load_im2col(desc, [n, h, w, 0], [offset_h, offset_w], bar, smem)
    mbarrier.wait(bar, 0)
    pixel = gl.arange(0, P, layout=gl.SliceLayout(1, layout))[:, None]
    channel = gl.arange(0, C, layout=gl.SliceLayout(0, layout))[None, :]
    gl.store(out + pixel * C + channel, smem.load(layout))


@pytest.mark.parametrize("swizzle", [0, 32])
@pytest.mark.parametrize("steps", [(1, 1, 1, 1), (1, 2, 2, 1)])
@pytest.mark.parametrize("offsets", [(0, 0), (2, 1)])
@pytest.mark.parametrize(
    ("lower", "upper"), [((-1, -1), (-1, -1)), ((0, 0), (0, 0)), ((-1, 0), (1, -2)), ((0, 0), (1, -2))]
)
def test_pixels(device, lower, upper, offsets, steps, swizzle):
    x = np.random.default_rng(0).standard_normal((3, 7, 9, CHANNELS), dtype=np.float32)
    out = device.full((PIXELS, CHANNELS), np.nan)
    desc = TensorDescriptorIm2Col.from_tensor(
        device.array(x), [PIXELS, CHANNELS], gl.NVMMASharedLayout(swizzle, 32, 2), element_strides=list(steps),
        pixel_box_lower_corner=list(lower), pixel_box_upper_corner=list(upper),
    )  # fmt: skip
    start = (0, lower[0] + 2 * steps[1], lower[1])
    fetched[(1,)](desc, out, *start, *offsets, PIXELS, CHANNELS, LAYOUT)
    np.testing.assert_array_equal(device.numpy(out), pixels_of(x, lower, upper, steps, start, offsets, PIXELS))


@pytest.mark.parametrize(("pixels", "channels", "swizzle"), [(512, 32, 128), (1024, 16, 32), (512, 64, 128)])
def test_columns_of_many_pixels(device, pixels, channels, swizzle):
    """More rows than a tiled box has, and more channels than the swizzle is wide."""
    x = np.random.default_rng(0).standard_normal((2, 20, 31, channels), dtype=np.float32)
    out = device.full((pixels, channels), np.nan)
    layout = gl.NVMMASharedLayout(swizzle, 32, 2)
    desc = TensorDescriptorIm2Col.from_tensor(device.array(x), [pixels, channels], layout)
    fetched[(1,)](desc, out, 0, 3, 7, 0, 0, pixels, channels, LAYOUT)
    zeros, ones = (0, 0), (1, 1, 1, 1)
    np.testing.assert_array_equal(device.numpy(out), pixels_of(x, zeros, zeros, ones, (0, 3, 7), zeros, pixels))
