"""How tensor cores read an operand in shared memory: canonical layouts, and the fields of a matrix descriptor.

An instruction takes 256 bits along k, some rows of a and some columns of b; *outer* is the dimension that is not k. Swizzled
or not, an operand is plain once the swizzle, a function of address bits, is undone: along the contiguous dimension elements
lie side by side over a *span* (the swizzle's width, or 16 bytes), eight lines of the other dimension lie a span apart, and
what lies beyond a span or eight lines repeats at a stride each. `plan_operand` looks for that form in the linear map of a
layout, so it does not matter how the layout is spelled. The form is that of `wgmma` and of `tcgen05` alike, whose descriptors
spell it with other bits (`weft.layout.tensor_cores.tcgen05`). (PTX ISA, "Shared Memory Matrix Layout" and "Matrix Descriptor
Format" of the asynchronous warpgroup instructions, "Shared Memory Layout and Swizzling" of the tcgen05 instructions.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from weft.layout.base import Unreadable
from weft.layout.distributed.fragments import K_BITS
from weft.layout.linear import f2
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.flat import join
from weft.layout.shared.layouts import PaddedSharedLayout, SharedLayout
from weft.layout.shared.sizes import alignment

MODES = {128: 1, 64: 2, 32: 3, 0: 0}
"""Widths of swizzles, the widest first, with the field of a matrix descriptor that chooses them."""
GRANULE = 16
"""Bytes that a swizzle moves as a whole, and that addresses and strides in a descriptor are multiples of."""
LINES = 8
PAD_BIT = 3
"""Bit of a byte's offset that no element of a padded operand has: of each 16 bytes, the lower 8 hold elements."""
EITHER_WAY = (16,)
"""Widths of elements that `wgmma` reads contiguous along k and along the outer dimension; others lie along k."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix in shared memory as matrix descriptors see it; all sizes in bytes.

    `swizzle` is 0, 32, 64 or 128. `transposed`: contiguous along its outer dimension (m or n), not along k. `leading` and
    `stride` are the descriptor's leading and stride byte offsets. Warp w of a partition begins at the exclusive or of
    `warps[i]` over the set bits i of w, of which the lowest two are 0: the warps of a warpgroup begin together.
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

    The shape is (M, K) of a left operand and (K, N) of a right one. Its lengths divide its starts.
    """

    layout: SharedLayout
    tile: tuple[int, ...]
    shape: tuple[int, ...]
    start: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Blocks:
    """What instructions take of an operand along its outer dimension, in elements.

    One takes `size` of them; those of warpgroup 0 begin at `starts`, those of warp w at the exclusive or with `warps[i]` over
    the set bits i of w.
    """

    size: int
    starts: tuple[int, ...]
    warps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OperandPlan:
    """An operand, and where instructions begin: `offsets[i][j]` bytes from the start of the tile for the i-th block along
    the outer dimension and the j-th along k."""

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
    """How instructions read an operand of elements of `bits` bits; `k` is its dimension along k, 1 on the left, 0 on the right.

    Elements of widths in `either_way` may be contiguous along the outer dimension. A `padded` operand has bytes of two
    elements each in the lower half of every 16 bytes along k. Of the swizzles that describe the layout the widest is taken. A
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
    size = f2.log2(blocks.size)
    read, beyond = (along_k[:step], along_outer[:size]), (*along_k[step:], *along_outer[size:])
    has, needed = alignment(side.layout), 0
    contiguous, lines = read[::-1] if transposed else read
    for swizzle, strides in forms(contiguous, lines, beyond, bits // 8):
        if has < swizzle_alignment(swizzle):
            needed = needed or swizzle_alignment(swizzle)
            continue
        leading, stride = strides[::-1] if transposed and not swizzle else strides
        plain_k, plain_outer = ([swizzled(v, swizzle) for v in columns] for columns in (along_k, along_outer))
        start = swizzled(place.start, swizzle)
        firsts = [f2.apply(plain_k, at) for at in range(0, 1 << len(plain_k), 1 << step)]
        offsets = tuple(tuple(start ^ f2.apply(plain_outer, at) ^ first for first in firsts) for at in blocks.starts)
        warps = tuple(f2.apply(plain_outer, at) for at in blocks.warps)
        return OperandPlan(Operand(swizzle, transposed, leading, stride, warps), offsets)
    reason = misaligned(has, needed) if needed else _misfit(place, k)
    down = (along_k if k == 0 else along_outer)[:1] == [bits // 8]
    return Unreadable(reason, fix.line(not down if bits in either_way else k == 1))


def forms(
    contiguous: Sequence[int], lines: Sequence[int], beyond: Sequence[int], size: int
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Swizzles, the widest first, that explain what an instruction reads, each with the strides beyond a span and eight lines.

    Given are the byte offsets of its bits along the dimension where elements of `size` bytes lie side by side and along the
    other one, and of the bits `beyond` that lead to other instructions. A stride that the instruction does not use is
    `GRANULE`.
    """
    for swizzle in MODES:
        side_by_side, across, rest = ([swizzled(v, swizzle) for v in part] for part in (contiguous, lines, beyond))
        strides = _strides(side_by_side, across, swizzle or GRANULE, size)
        # Offsets of one bit each never carry into one another, so they may be added in any order.
        if strides is not None and all(map(f2.is_power_of_two, (*side_by_side, *across, *rest))):
            yield swizzle, strides


def swizzle_alignment(swizzle: int) -> int:
    """Bytes that a tile begins at a multiple of, for the hardware to see its swizzle."""
    return max(GRANULE, LINES * swizzle)


def misaligned(has: int, needed: int) -> str:
    """What is wrong with a layout whose tiles are aligned less than its swizzle needs."""
    return f"tiles in it are aligned to {has} bytes, but its swizzle needs {needed}"


def swizzled(offset: int, swizzle: int) -> int:
    """Where the hardware puts what a plain layout has at this byte offset; also the other way round.

    Of the chunks of 16 bytes in `swizzle`, the lines of 128 bytes choose one by exclusive or."""
    return offset ^ (offset >> 7 & max(swizzle // GRANULE, 1) - 1) << 4


class OperandOffsets:
    """Byte offsets of the elements of an operand in its tile, which XOR together."""

    def __init__(self, side: SharedSide, size: int) -> None:
        linear = side.layout.to_linear(side.tile)
        self._span = Span((*linear.columns["offset"], *linear.columns["block"]))
        self._side, self._size = side, size
        self.start = self.byte(side.start)

    def columns(self, dim: int) -> list[int]:
        """Offsets of the powers of two along a dimension."""
        sizes = range(f2.log2(self._side.shape[dim]))
        return [self.byte([0 if d != dim else 1 << bit for d in (0, 1)]) for bit in sizes]

    def byte(self, coordinates: Sequence[int]) -> int:
        """Offset of an element of the tile."""
        return solved(self._span, join(coordinates, self._side.tile)) * self._size


def _strides(contiguous: Sequence[int], lines: Sequence[int], span: int, size: int) -> tuple[int, int] | None:
    """Strides beyond a span and beyond eight lines, given the plain offsets of an instruction's bits along both dimensions.

    None where no instruction reads so.
    """
    across, eight = f2.log2(span // size), f2.log2(LINES)
    side_by_side = all(offset == size << bit for bit, offset in enumerate(contiguous[:across]))
    a_span_apart = all(offset == span << bit for bit, offset in enumerate(lines[:eight]))
    beyond = contiguous[across:], lines[eight:]
    repeat = all(offset == part[0] << bit for part in beyond for bit, offset in enumerate(part))
    if not (side_by_side and a_span_apart and repeat):
        return None
    first, second = (part[0] if part else GRANULE for part in beyond)
    return first, second


def _misfit(place: OperandOffsets, k: int) -> str:
    """What is wrong with a layout that has no canonical form."""
    along_k, along_outer = place.columns(k), place.columns(1 - k)
    (first, dim), (line, other) = sorted([(along_k[0], "k"), (along_outer[0], "nm"[k])])
    return (
        f"it has {first} bytes from one {dim} to the next and {line} from one {other} to the next, and that is neither a "
        "swizzle of 128, 64 or 32 bytes nor unswizzled rows of 16"
    )


@dataclass(frozen=True, slots=True)
class _Fix:
    """Layouts that can be read: contiguous along k, or where the element allows along the dimension that memory has it now."""

    side: SharedSide
    k: int
    padded: bool

    def line(self, as_it_is: bool) -> str:
        """What to write; not `as_it_is`, the tile is kept with its dimensions the other way round."""
        shape, padded = list(self.side.tile), ", fp4_padded=True" if self.padded else ""
        if as_it_is:
            return f"allocate it in NVMMASharedLayout.get_default_for({shape}, dtype{padded})"
        turned, along = shape[::-1], ", contiguous along k," if self.k == 0 else ""
        return (
            f"keep it as {turned} in NVMMASharedLayout.get_default_for({turned}, dtype{padded}){along} "
            "and pass its permute((1, 0))"
        )
