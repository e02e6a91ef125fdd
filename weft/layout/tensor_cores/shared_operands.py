"""Operands of tensor cores in shared memory: canonical layouts, and the fields of a matrix descriptor.

An instruction reads 256 bits along k, some rows of a and some columns of b; *outer* is the dimension that is not k. Without its
swizzle, a function of address bits, an operand is in canonical form: along the contiguous dimension elements are adjacent over
a *span* (the swizzle's width, or 16 bytes), eight lines of the other dimension are one span apart, and further spans and
further groups of eight lines repeat at a stride each. `plan_operand` finds that form in the linear map of a layout, so the
class of the layout does not matter. `wgmma` and `tcgen05` share the form, but their descriptors encode it in different bits
(`weft.layout.tensor_cores.tcgen05`). (PTX ISA, "Shared Memory Matrix Layout" and "Matrix Descriptor Format" of the asynchronous
warpgroup instructions, "Shared Memory Layout and Swizzling" of the tcgen05 instructions.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from weft.layout.base import Unreadable
from weft.layout.distributed.fragments import K_BITS
from weft.layout.linear import f2
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.flat import join
from weft.layout.shared import layouts
from weft.layout.shared.layouts import PaddedSharedLayout, SharedLayout
from weft.layout.shared.sizes import alignment

MODES = {128: 1, 64: 2, 32: 3, 0: 0}
"""Widths of swizzles, the widest first, with their encoding in a matrix descriptor."""
GRANULE = 16
"""The unit, in bytes, of a swizzle, and of addresses and strides in a descriptor."""
LINES = 8
PAD_BIT = 3
"""The offset bit that is 0 for every element of a padded operand: the lower 8 of each 16 bytes hold elements."""
EITHER_WAY = (16,)
"""Widths of elements that `wgmma` reads contiguous along k and along the outer dimension; others lie along k."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix in shared memory in the terms of a matrix descriptor; all sizes in bytes.

    `swizzle` is 0, 32, 64 or 128. `transposed`: contiguous along its outer dimension (m or n), not along k. `leading` and
    `stride` are the descriptor's leading and stride byte offsets. Warp w of a partition begins at the XOR of `warps[i]` over
    the set bits i of w. The lowest two are 0: the warps of a warpgroup begin together.
    """

    swizzle: int
    transposed: bool
    leading: int
    stride: int
    warps: tuple[int, ...]

    @property
    def descriptor_bits(self) -> int:
        """The 64-bit matrix descriptor without the address, whose bits 4 to 17 are its lowest 14."""
        return self.leading >> 4 << 16 | self.stride >> 4 << 32 | MODES[self.swizzle] << 62


@dataclass(frozen=True, slots=True)
class SharedSide:
    """The memory of an operand: the part of `shape` from `start` on of a tile of shape `tile` in `layout`.

    The shape is (M, K) of a left operand and (K, N) of a right one. Its starts are multiples of its lengths.
    """

    layout: SharedLayout
    tile: tuple[int, ...]
    shape: tuple[int, ...]
    start: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Blocks:
    """The parts of an operand that instructions read along its outer dimension, in elements.

    An instruction reads `size` of them; those of warpgroup 0 begin at `starts`, those of warp w at the XOR with `warps[i]`
    over the set bits i of w.
    """

    size: int
    starts: tuple[int, ...]
    warps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OperandPlan:
    """An operand, and the starts of its instructions: `offsets[i][j]` bytes from the start of the tile for the i-th block
    along the outer dimension and the j-th along k."""

    operand: Operand
    offsets: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=4096)
def plan_operand(
    side: SharedSide,
    bits: int,
    k: int,
    blocks: Blocks,
    either_way: tuple[int, ...] = EITHER_WAY,
    padded: bool = False,
) -> OperandPlan | Unreadable:
    """The plan to read an operand of elements of `bits` bits; `k` is its dimension along k, 1 on the left, 0 on the right.

    Elements of widths in `either_way` may be contiguous along the outer dimension. A `padded` operand has bytes of two
    elements each in the lower half of every 16 bytes along k. If several swizzles describe the layout, the widest is chosen. A
    tile begins at a multiple of its layout's alignment.
    """
    fix = _Fix(side, k, padded)
    if isinstance(side.layout, PaddedSharedLayout):
        return Unreadable("padding lies between its elements", fix.line(bits in either_way or k == 1))
    place = OperandOffsets(side, bits // 8)
    along_k, along_outer = place.columns(k), place.columns(1 - k)
    if padded:
        along_k.insert(PAD_BIT, 1 << PAD_BIT)
    transposed = along_outer[:1] == [bits // 8]
    few = f", where an instruction takes {blocks.size} of them" if blocks.size * bits // 8 < GRANULE else ""
    if transposed and (bits not in either_way or few):
        elements = "padded elements" if padded else f"elements of {bits} bits"
        reason = f"it is contiguous along {'nm'[k]}, and {elements} are read along k only{few}"
        return Unreadable(reason, fix.line(k == 1))
    step = f2.log2(K_BITS // bits)
    # Instructions whose size is no power of two begin anywhere among the lines, which must then all be equally far apart.
    size = f2.log2(blocks.size) if f2.is_power_of_two(blocks.size) else len(along_outer)
    read, beyond = (along_k[:step], along_outer[:size]), (*along_k[step:], *along_outer[size:])
    has, needed = alignment(side.layout), 0
    contiguous, lines = read[::-1] if transposed else read
    for swizzle, strides in forms(contiguous, lines, beyond, bits // 8, place.closed):
        if has < swizzle_alignment(swizzle):
            needed = needed or swizzle_alignment(swizzle)
            continue
        # Hardware counts spans from where an instruction begins, so that one that begins within a span cannot leave it.
        span = (swizzle or GRANULE) * 8 // bits
        if transposed and any(at % span and at % span + blocks.size > span for at in blocks.starts):
            continue
        leading, stride = strides[::-1] if transposed and not swizzle else strides
        plain_k, plain_outer = ([swizzled(v, swizzle) for v in columns] for columns in (along_k, along_outer))
        start = swizzled(place.start, swizzle)
        length = 1 << len(plain_k) if padded else side.shape[k]
        firsts = [f2.apply(plain_k, at) for at in range(0, length, 1 << step)]
        offsets = tuple(
            tuple(place.closed(start ^ f2.apply(plain_outer, at) ^ first) for first in firsts) for at in blocks.starts
        )
        warps = tuple(place.closed(f2.apply(plain_outer, at)) for at in blocks.warps)
        return OperandPlan(Operand(swizzle, transposed, leading, stride, warps), offsets)
    reason = misaligned(has, needed) if needed else _misfit(place, k)
    down = (along_k if k == 0 else along_outer)[:1] == [bits // 8]
    return Unreadable(reason, fix.line(not down if bits in either_way else k == 1))


def forms(
    contiguous: Sequence[int], lines: Sequence[int], beyond: Sequence[int], size: int, closed: Callable[[int], int]
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Swizzles, the widest first, that match an instruction's operand, each with the strides between spans and eight lines.

    The arguments are the byte offsets of its bits along the dimension where elements of `size` bytes are contiguous and along
    the other one, and of the bits `beyond` that lead to other instructions; `closed` gives the bytes between two of them. A
    stride that the instruction does not use is `GRANULE`.
    """
    for swizzle in MODES:
        side_by_side, across, rest = ([swizzled(v, swizzle) for v in part] for part in (contiguous, lines, beyond))
        strides = _strides(side_by_side, across, swizzle or GRANULE, size, closed)
        # Offsets of one bit each never carry into one another, so they can be added in any order.
        if strides is not None and all(map(f2.is_power_of_two, (*side_by_side, *across, *rest))):
            yield swizzle, strides


def swizzle_alignment(swizzle: int) -> int:
    """The alignment, in bytes, that a tile needs for the hardware to apply its swizzle correctly."""
    return max(GRANULE, LINES * swizzle)


def misaligned(has: int, needed: int) -> str:
    """The error for a layout whose alignment is below that of its swizzle."""
    return f"tiles in it are aligned to {has} bytes, but its swizzle needs {needed}"


def swizzled(offset: int, swizzle: int) -> int:
    """The swizzled byte offset of a plain one; the swizzle is its own inverse.

    The index of a 16-byte chunk within `swizzle` bytes is XORed with that of its 128-byte line."""
    return offset ^ (offset >> 7 & max(swizzle // GRANULE, 1) - 1) << 4


class OperandOffsets:
    """Byte offsets of the elements of an operand in its tile, which XOR together until they are `closed`."""

    def __init__(self, side: SharedSide, size: int) -> None:
        linear = side.layout.to_linear(side.tile)
        self._whole = linear.out_sizes
        self._span = Span((*linear.columns["offset"], *linear.columns["block"]))
        self._side, self._size, self._pads = side, size, side.layout.pads_of(side.tile)
        self.start = self.byte(side.start)

    def columns(self, dim: int) -> list[int]:
        """Offsets of the powers of two along a dimension."""
        sizes = range((self._side.shape[dim] - 1).bit_length())
        return [self.byte([0 if d != dim else 1 << bit for d in (0, 1)]) for bit in sizes]

    def byte(self, coordinates: Sequence[int]) -> int:
        """Offset of an element of the tile."""
        return solved(self._span, join(coordinates, self._whole)) * self._size

    def closed(self, offset: int) -> int:
        """The place in memory of an offset, swizzled or plain: without the holes of sizes that are no powers of two. Holes are
        periods of the swizzle, and offsets of different bits can be added before or after."""
        return layouts.padded(offset // self._size, self._pads) * self._size


def _strides(
    contiguous: Sequence[int], lines: Sequence[int], span: int, size: int, closed: Callable[[int], int]
) -> tuple[int, int] | None:
    """Strides between spans and between groups of eight lines, from the plain offsets of an instruction's bits.

    None if no instruction can read the operand.
    """
    across, eight = f2.log2(span // size), f2.log2(LINES)
    side_by_side = all(offset == size << bit for bit, offset in enumerate(contiguous[:across]))
    a_span_apart = all(offset == span << bit for bit, offset in enumerate(lines[:eight]))
    beyond = [[closed(offset) for offset in part] for part in (contiguous[across:], lines[eight:])]
    repeat = all(offset == part[0] << bit for part in beyond for bit, offset in enumerate(part))
    if not (side_by_side and a_span_apart and repeat):
        return None
    first, second = (part[0] if part else GRANULE for part in beyond)
    return first, second


def _misfit(place: OperandOffsets, k: int) -> str:
    """The error for a layout without a canonical form."""
    along_k, along_outer = place.columns(k), place.columns(1 - k)
    (first, dim), (line, other) = sorted([(along_k[0], "k"), (along_outer[0], "nm"[k])])
    return (
        f"it has {first} bytes from one {dim} to the next and {line} from one {other} to the next, and that is neither a "
        "swizzle of 128, 64 or 32 bytes nor unswizzled rows of 16"
    )


@dataclass(frozen=True, slots=True)
class _Fix:
    """Layouts that can be read: contiguous along k, or if the element allows it, along the present contiguous dimension."""

    side: SharedSide
    k: int
    padded: bool

    def line(self, as_it_is: bool) -> str:
        """The text of the fix; unless `as_it_is`, the tile must be stored with its dimensions swapped."""
        shape, padded = list(self.side.tile), ", fp4_padded=True" if self.padded else ""
        if as_it_is:
            return f"allocate it in NVMMASharedLayout.get_default_for({shape}, dtype{padded})"
        turned, along = shape[::-1], ", contiguous along k," if self.k == 0 else ""
        return (
            f"keep it as {turned} in NVMMASharedLayout.get_default_for({turned}, dtype{padded}){along} "
            "and pass its permute((1, 0))"
        )
