"""`cumsum`: prefix sums along the last axis, in one pass over memory (`weft.kernels.device.scan`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device import scan as device
from weft.kernels.machines import machine_of, multiprocessors_of, place_of, target_of
from weft.kernels.memory import empty_like, used_on
from weft.plain import whole
from weft.runtime.arguments import array, extents
from weft.runtime.dtypes import ITEMSIZE

DTYPES = ("float32", "int32")
SIZES: tuple[tuple[int, int], ...] = ((8, 8), (4, 8), (1, 4))
"""Sizes of a tile, the largest first: groups of 128 elements of each warp, and warps."""
TILES = 1024
"""As many tiles of a size are enough to keep a GPU busy; with fewer, a smaller size is taken."""
LOOK = 1
"""A program looks back at this many times 32 tiles at a time."""
RESIDENT = 16
"""Warps of a multiprocessor, with 128 registers a thread."""
CLEARED = 1024
"""Words that a program clears."""


@dataclass(frozen=True, slots=True)
class Lines:
    """An array as rows of contiguous elements: canonical dtype, number of rows, length and pitch of a row in elements, address,
    device."""

    dtype: str
    rows: int
    length: int
    pitch: int
    address: int
    device: int

    @property
    def span(self) -> tuple[int, int]:
        """The bytes between the first element and the last."""
        count = (self.rows - 1) * self.pitch + self.length if self.rows and self.length else 0
        return self.address, self.address + count * ITEMSIZE[self.dtype]


def cumsum(x: Any, axis: int = -1, out: Any = None, *, stream: Any = None) -> Any:
    """Prefix sums of a vector, or of each row of a matrix, in one pass: each element is read once and written once.

    `x` is a float32 or int32 array [N] or [M, N] of PyTorch, NumPy, CuPy or any other array type, contiguous along its last
    axis, which is the only `axis`. Host arrays are simulated. `out`, an array of the same shape and type, may be `x` itself.
    int32 wraps. `stream` is as for launches.

    Sums of integers are exact. Sums of float32 are not repeatable to the bit: how many tiles a program adds up depends on what
    other programs have published when it looks back (`weft.kernels.device.scan`).

    Raises LaunchError: kernels-scan-array, kernels-scan-axis, kernels-scan-strides, kernels-scan-out, kernels-devices,
    kernels-out-overlaps, kernels-out-needed.
    """
    source, shape = _lines("x", x)
    if whole(axis) not in (-1, len(shape) - 1):
        raise fail(errors.SCAN_AXIS, got=repr(axis), shape=list(shape))
    if out is None:
        out = _empty(x, shape, source.dtype)
    target, got = _lines("out", out)
    if target.device != source.device:
        raise fail(errors.DEVICES, first=place_of(source.device), name="out", other=place_of(target.device))
    if got != shape or target.dtype != source.dtype:
        raise fail(errors.SCAN_OUT, got=f"{target.dtype} {list(got)}", want=f"{source.dtype} {list(shape)}")
    same = target.address == source.address and target.pitch == source.pitch
    (low, high), (first, end) = source.span, target.span
    if low < end and first < high and not same:
        raise fail(errors.OUT_OVERLAPS, name="x")
    if source.rows and source.length:
        _launch(x, out, source, target, stream)
    return out


def tile_of(rows: int, length: int) -> tuple[int, int]:
    """Groups and warps of the tiles of a scan."""
    for groups, warps in SIZES:
        tile = 128 * groups * warps
        if rows * -(-length // tile) >= TILES and tile < 2 * length:
            return groups, warps
    return SIZES[-1]


def _launch(x: Any, out: Any, source: Lines, target: Lines, stream: Any) -> None:
    groups, warps = tile_of(source.rows, source.length)
    tiles = -(-source.length // (128 * groups * warps))
    count = source.rows * tiles + 1
    words = empty_like(x, (1, count), "int64")
    device.clear[-(-count // CLEARED)](words, count, CLEARED, stream=stream)
    # The pitch of a single row is never used; 0 keeps accesses wide.
    pitches = (target.pitch, source.pitch) if source.rows > 1 else (0, 0)
    resident = multiprocessors_of(source.device, machine_of(target_of(source.device))) * RESIDENT // warps
    programs = min(resident, count - 1)
    # Programs with one tile each wait only for programs that have started.
    together = programs < count - 1
    given = (out, x, words, source.length, tiles, count - 1, *pitches, groups, warps, LOOK, source.rows > 1, together)
    device.scan[programs](
        *given, block=32 * warps, maxnreg=128, launch_cooperative_grid=together, stream=stream
    )  # fmt: skip
    used_on(words, stream)


def _lines(name: str, value: Any) -> tuple[Lines, tuple[int, ...]]:
    """An array as rows, and its shape. Raises LaunchError: kernels-scan-array, kernels-scan-strides."""
    found, measured = array(value), extents(value)
    if found is None or measured is None:
        raise fail(errors.SCAN_ARRAY, name=name, got=f"a {type(value).__name__}")
    shape, strides = measured
    if len(shape) not in (1, 2) or found.dtype not in DTYPES:
        raise fail(errors.SCAN_ARRAY, name=name, got=f"a {found.dtype} array of shape {list(shape)}")
    rows, length = (1, *shape)[-2:]
    pitch = int(strides[0]) if len(shape) == 2 else length
    if rows and ((length > 1 and strides[-1] != 1) or (rows > 1 and pitch < length)):
        raise fail(errors.SCAN_STRIDES, name=name, shape=list(shape), strides=list(strides))
    return Lines(found.dtype, rows, length, pitch, found.pointer, found.device), tuple(shape)


def _empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    made = empty_like(like, (1, *shape)[-2:], dtype)
    return made[0] if len(shape) == 1 else made
