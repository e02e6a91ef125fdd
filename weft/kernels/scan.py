"""`cumsum`: prefix sums along the last axis, in one pass over memory (`weft.kernels.device.scan`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device import scan as device
from weft.kernels.machines import machine_of, multiprocessors_of, place_of, target_of
from weft.kernels.rows.calls import empty_like, launched, prepared, zeros_kept
from weft.layout import WARP_SIZE
from weft.plain import whole
from weft.runtime.arguments import array, extents
from weft.runtime.dtypes import ITEMSIZE
from weft.targets import Target

DTYPES = ("float32", "int32")


WARPS, REGISTERS = 32, 64
"""Resident warps of a multiprocessor, and registers of a thread."""
AHEAD, BEHIND = 2, 4
"""Tiles of a program that are being copied, and tiles that wait for the sum of those before them."""
ENOUGH = (8192, 1024)
"""Tiles of the largest size, and of the next, with fewer of which smaller ones are taken."""
SUMS_BYTES = 1024
"""At least the shared memory of a program besides its tiles."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile has `groups` times 128 elements for each of `warps` warps."""

    groups: int
    warps: int

    @property
    def elements(self) -> int:
        """Elements of a tile."""
        return 128 * self.groups * self.warps

    @property
    def threads(self) -> int:
        """Threads of a program."""
        return WARP_SIZE * self.warps


TILES = (Tile(2, 32), Tile(2, 16), Tile(2, 8), Tile(1, 8), Tile(1, 4))
"""Tiles, the largest first. A row of one tile waits for nothing; tiles of longer rows are of the first three sizes."""


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


@prepared("out")
def cumsum(x: Any, axis: int = -1, out: Any = None, *, stream: Any = None) -> Any:
    """Prefix sums of a vector, or of each row of a matrix, in one pass: each element is read once and written once.

    `x` is a float32 or int32 array [N] or [M, N] of PyTorch, NumPy, CuPy or any other array type, contiguous along its last
    axis, which is the only `axis`. Host arrays are simulated. `out`, an array of the same shape and type, may be `x` itself.
    int32 wraps. `stream` is as for launches.

    Sums of integers are exact. The order of additions depends only on the shape and on how many multiprocessors the GPU has, so
    sums of float32 are repeatable to the bit.

    Raises LaunchError: kernels-scan-array, kernels-scan-axis, kernels-scan-strides, kernels-scan-out, kernels-devices,
    kernels-out-overlaps, kernels-out-needed.
    """
    source, shape = _lines("x", x)
    if whole(axis) not in (-1, len(shape) - 1):
        raise fail(errors.SCAN_AXIS, got=repr(axis), shape=list(shape))
    if out is None:
        out = empty_like(x, shape, source.dtype)
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


def tile_of(rows: int, length: int) -> Tile:
    """The tiles of a scan."""
    short = [tile for tile in TILES if length <= tile.elements]
    if short:
        return short[-1]
    found = (tile for tile, least in zip(TILES, ENOUGH, strict=False) if rows * -(-length // tile.elements) >= least)
    return next(found, TILES[len(ENOUGH)])


def _launch(x: Any, out: Any, source: Lines, target: Lines, stream: Any) -> None:
    tile = tile_of(source.rows, source.length)
    tiles = -(-source.length // tile.elements)
    total = source.rows * tiles
    alone, many = tiles == 1, source.rows > 1
    gpu = target_of(source.device)
    multiprocessors = multiprocessors_of(source.device, machine_of(gpu))
    resident = multiprocessors * WARPS // tile.warps
    # The first program answers the others, with a thread for each.
    programs = min(resident, total) if alone else min(resident - 1, total, tile.threads)
    behind = 0 if alone else min(BEHIND, _room(tile, -(-(programs + 1) // multiprocessors), gpu) - 1 - AHEAD)
    words = zeros_kept(x, programs * (AHEAD + 1 + behind), stream, "int64")
    # The pitch of a single row is never used; 0 keeps accesses wide.
    pitches = (target.pitch, source.pitch) if many else (0, 0)
    given = (out, x, words, source.length, tiles, total, *pitches)
    constants = (tile.groups, tile.warps, AHEAD, behind, many, alone)
    options = {"block": tile.threads, "maxnreg": REGISTERS, "launch_cooperative_grid": not alone}
    launched(device.scan, programs + (not alone), (*given, *constants), options, stream)


def _room(tile: Tile, programs: int, gpu: Target) -> int:
    """How many tiles each of the `programs` of a multiprocessor has room for."""
    shared = gpu.shared_bytes_per_sm // programs - gpu.reserved_shared_bytes - SUMS_BYTES
    return shared // (ITEMSIZE["float32"] * tile.elements)


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
        nbytes = 2 * rows * length * ITEMSIZE[found.dtype]
        raise fail(errors.SCAN_STRIDES, name=name, shape=list(shape), strides=list(strides), nbytes=nbytes)
    return Lines(found.dtype, rows, length, pitch, found.pointer, found.device), tuple(shape)
