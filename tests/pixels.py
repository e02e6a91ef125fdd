"""im2col by a walk from pixel to pixel, for what checks the copy engine's against it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def pixels_of(
    x: np.ndarray, lower: Sequence[int], upper: Sequence[int], steps: Sequence[int], start: Sequence[int],
    offsets: Sequence[int], count: int,
) -> np.ndarray:  # fmt: skip
    """`count` pixels of images (N, H, W, C) one after another: (count, channels).

    Zeros where an offset leads out of the image, and after the last image."""
    images, height, width, channels = x.shape
    n, h, w = start
    out = np.zeros((count, channels), x.dtype)
    for pixel in range(count):
        at = n, h + offsets[0], w + offsets[1]
        if all(0 <= place < extent for place, extent in zip(at, (images, height, width), strict=True)):
            out[pixel] = x[at]
        w += steps[2]
        if w > width - 1 + upper[1]:
            w, h = lower[1], h + steps[1]
        if h > height - 1 + upper[0]:
            h, n = lower[0], n + 1
    return out
