"""How `wgmma` reads an operand in shared memory: canonical layouts, and the fields of a matrix descriptor.

An instruction takes 256 bits along k, 64 rows of a and n columns of b; *outer* is the dimension that is not k. Swizzled or
not, an operand is plain once the swizzle, a function of address bits, is undone: along the contiguous dimension elements lie
side by side over a *span* (the swizzle's width, or 16 bytes), eight lines of the other dimension lie a span apart, and what
lies beyond a span or eight lines repeats at a stride each. `plan_operand` looks for that form in the linear map of a layout,
so it does not matter how the layout is spelled. (PTX ISA, "Shared Memory Matrix Layout" and "Matrix Descriptor Format" of the
asynchronous warpgroup instructions.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from weft.layout import f2
from weft.layout.access import solved
from weft.layout.f2 import Span
from weft.layout.flat import join
from weft.layout.fragments import K_BITS
from weft.layout.shared import PaddedSharedLayout, SharedLayout
from weft.layout.shared_size import alignment

MODES = {128: 1, 64: 2, 32: 3, 0: 0}
"""Widths of swizzles, the widest first, with the field of a matrix descriptor that chooses them."""
GRANULE = 16
"""Bytes that a swizzle moves as a whole, and that addresses and strides in a descriptor are multiples of."""
LINES = 8
TRANSPOSABLE_BITS = 16
"""Only elements of this width may lie contiguous along the outer dimension."""


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


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why `wgmma` cannot read an operand, and what to write instead."""

    reason: str
    fix: str


@lru_cache(maxsize=4096)
def plan_operand(side: SharedSide, bits: int, k: int, blocks: Blocks) -> OperandPlan | Unreadable:
    """How instructions read an operand of elements of `bits` bits; `k` is its dimension along k, 1 on the left, 0 on the right.

    Of the swizzles that describe the layout the widest is taken. A tile begins at a multiple of its layout's alignment.
    """
    if isinstance(side.layout, PaddedSharedLayout):
        return Unreadable("padding lies between its elements", _fix(side, k, bits))
    place = _Places(side, bits // 8)
    along_k, along_outer = place.columns(k), place.columns(1 - k)
    transposed = along_outer[:1] == [bits // 8]
    if transposed and bits != TRANSPOSABLE_BITS:
        reason = f"it is contiguous along {'nm'[k]}, and elements of {bits} bits are read along k only"
        return Unreadable(reason, _fix(side, k, bits))
    step = K_BITS // bits
    has, needed = alignment(side.layout), 0
    for swizzle in MODES:
        plain_k, plain_outer = ([swizzled(v, swizzle) for v in columns] for columns in (along_k, along_outer))
        contiguous, lines = plain_k[: f2.log2(step)], plain_outer[: f2.log2(blocks.size)]
        if transposed:
            contiguous, lines = lines, contiguous
        strides = _strides(contiguous, lines, swizzle or GRANULE, bits // 8)
        # Offsets of one bit each never carry into one another, so they may be added in any order.
        if strides is None or not all(map(f2.is_power_of_two, (*plain_k, *plain_outer))):
            continue
        if has < max(GRANULE, LINES * swizzle):
            needed = needed or max(GRANULE, LINES * swizzle)
            continue
        leading, stride = strides[::-1] if transposed and not swizzle else strides
        start = swizzled(place.start, swizzle)
        firsts = [f2.apply(plain_k, at) for at in range(0, side.shape[k], step)]
        offsets = tuple(tuple(start ^ f2.apply(plain_outer, at) ^ first for first in firsts) for at in blocks.starts)
        warps = tuple(f2.apply(plain_outer, at) for at in blocks.warps)
        return OperandPlan(Operand(swizzle, transposed, leading, stride, warps), offsets)
    reason = f"tiles in it are aligned to {has} bytes, but its swizzle needs {needed}" if needed else _misfit(place, k)
    down = (along_k if k == 0 else along_outer)[:1] == [bits // 8]
    return Unreadable(reason, _fix(side, k, bits, down))


def swizzled(offset: int, swizzle: int) -> int:
    """Where the hardware puts what a plain layout has at this byte offset; also the other way round.

    Of the chunks of 16 bytes in `swizzle`, the lines of 128 bytes choose one by exclusive or."""
    return offset ^ (offset >> 7 & max(swizzle // GRANULE, 1) - 1) << 4


class _Places:
    """Byte offsets of the elements of an operand in its tile, which XOR together."""

    def __init__(self, side: SharedSide, size: int) -> None:
        linear = side.layout.to_linear(side.tile)
        self._span = Span((*linear.columns["offset"], *linear.columns["block"]))
        self._side, self._size = side, size
        self.start = self._byte(side.start)

    def columns(self, dim: int) -> list[int]:
        """Offsets of the powers of two along a dimension."""
        sizes = range(f2.log2(self._side.shape[dim]))
        return [self._byte([0 if d != dim else 1 << bit for d in (0, 1)]) for bit in sizes]

    def _byte(self, coordinates: Sequence[int]) -> int:
        return solved(self._span, join(coordinates, self._side.tile)) * self._size


def _strides(contiguous: Sequence[int], lines: Sequence[int], span: int, size: int) -> tuple[int, int] | None:
    """Strides beyond a span and beyond eight lines, given the plain offsets of an instruction's bits along both dimensions.

    None where no instruction reads so. A stride that the instruction does not use is `GRANULE`.
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


def _misfit(place: _Places, k: int) -> str:
    """What is wrong with a layout that has no canonical form."""
    along_k, along_outer = place.columns(k), place.columns(1 - k)
    (first, dim), (line, other) = sorted([(along_k[0], "k"), (along_outer[0], "nm"[k])])
    return (
        f"it has {first} bytes from one {dim} to the next and {line} from one {other} to the next, and that is neither a "
        "swizzle of 128, 64 or 32 bytes nor unswizzled rows of 16"
    )


def _fix(side: SharedSide, k: int, bits: int, down: bool = False) -> str:
    """A layout that can be read: contiguous along k, or where the element allows along the dimension that memory has it now.

    `down`: that is the first one, as of a buffer that was permuted."""
    shape = list(side.tile)
    as_it_is = not down if bits == TRANSPOSABLE_BITS else k == 1
    if as_it_is:
        return f"allocate it in NVMMASharedLayout.get_default_for({shape}, dtype)"
    turned, along = shape[::-1], ", contiguous along k," if k == 0 else ""
    return (
        f"keep it as {turned} in NVMMASharedLayout.get_default_for({turned}, dtype){along} and pass its permute((1, 0))"
    )
