"""Shared layouts: the offset in shared memory of each element of a tile.

Their meaning for a tile of a given shape is `to_linear(shape)`, a linear layout from ("offset", "block") to ("dim0",
"dim1", ...): the element at an offset, which counts elements. Padding is not a linear map, so a layout may also have `pads`,
which are applied to offsets: those of `PaddedSharedLayout`, and those that close the holes behind a size that is no power of
two. Leading dimensions of an allocation (such as pipeline stages) are not part of a layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, Protocol

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.base import (
    Step,
    TileLayout,
    check_bases,
    check_onto,
    check_order,
    check_places,
    check_powers_of_two,
    check_ranks,
    check_shape_for,
    check_tile_shape,
    cover,
    ints,
    is_tile_size,
    tile_dims,
    vectors,
    whole_shape,
)
from weft.layout.cluster import Cga, block_bases, block_shape, cga_fields
from weft.layout.linear.f2 import is_power_of_two, log2
from weft.layout.linear.maps import LinearLayout

# (interval, padding) pairs: how many places, a power of two, are followed by how many unused ones. A negative padding says
# how many places at the end of each interval hold nothing, and are left out.
Pads = tuple[tuple[int, int], ...]


def padded(offset: Any, pads: Pads) -> Any:
    """The padded offset: every `interval` places are followed by `padding` unused ones, for each pair.

    For offsets without common bits, the padded sum is the sum of the padded offsets.
    """
    return sum((offset // interval * padding for interval, padding in pads), start=offset)


IN_DIMS = ("offset", "block")


class SharedLayout(TileLayout):
    """Base of the layouts of tiles in shared memory."""

    __slots__ = ()

    ENDS: ClassVar[str] = "offset"

    @property
    def cga(self) -> Cga:
        """One vector per block bit, in block tiles; () for a single block."""
        return ()

    def pads_of(self, shape: Sequence[int]) -> Pads:
        """What is left between the offsets of `to_linear(shape)` in memory, or left out."""
        return ()


class ElementType(Protocol):
    """The properties of an element type that a layout needs."""

    @property
    def primitive_bitwidth(self) -> int:
        """Bits of an element."""
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SwizzledSharedLayout(SharedLayout):
    """Rows one after another, with the columns of each XORed by a function of the row.

    Along the fastest dimension of `order`, groups of `vec` elements stay together; in row r (the next dimension of `order`)
    group g lies at g ^ (r // `per_phase` % `max_phase`). `max_phase` 1 is the plain layout.
    """

    vec: int
    per_phase: int
    max_phase: int
    order: Sequence[int]
    ctas_per_cga: Sequence[int] | Sequence[Sequence[int]] | None = None
    cta_split_num: Sequence[int] | None = None
    cta_order: Sequence[int] | None = None
    cga_layout: Sequence[Sequence[int]] | None = None

    def _complete(self) -> None:
        for field in ("vec", "per_phase", "max_phase"):
            value: int = getattr(self, field)
            if not is_power_of_two(value):
                raise fail(errors.POWER_OF_TWO, what=field, value=value, found=value)
        order = ints(self.order)
        check_order("order", order, len(order))
        self._freeze(order=order, **cga_fields(self, len(order)))

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.order)

    @property
    def cga(self) -> Cga:
        """One vector per block bit, in block tiles."""
        return vectors(self.cga_layout or ())

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """The layout over a tile of this shape."""
        part = block_shape(self.cga, shape)
        steps: list[Step] = [("offset", d, part[d]) for d in self.order]
        bases = cover(steps, part, IN_DIMS)["offset"]
        if self.rank > 1:
            self._swizzle(bases, part)
        return _shared(bases, block_bases(self.cga, shape), shape)

    def _swizzle(self, bases: list[list[int]], part: Sequence[int]) -> None:
        column, row = self.order[:2]
        for basis in bases:
            phase = basis[row] // self.per_phase % self.max_phase
            basis[column] ^= phase * self.vec % part[column]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NVMMASharedLayout(SharedLayout):
    """The layout that TMA writes and tensor cores read: boxes as wide as the swizzle, one after another.

    The contiguous dimension (the last; with `transposed`, which swaps the last two, the one before) is cut into boxes of
    `swizzle_byte_width` bytes, each of which spans all rows. Within a box, chunks of 16 bytes are XORed by the row: by row
    % 8 for 128 bytes, row // 2 % 4 for 64, row // 4 % 2 for 32. Width 0 is unswizzled. A box measures at most 256
    elements in any dimension. With `fp4_padded`, elements are bytes (pairs of fp4) and of each 16 bytes of memory 8 hold data.
    """

    swizzle_byte_width: int
    element_bitwidth: int
    rank: int = 2  # pyright: ignore[reportIncompatibleMethodOverride] a field here, a property elsewhere
    transposed: bool = False
    fp4_padded: bool = False
    ctas_per_cga: Sequence[int] | Sequence[Sequence[int]] | None = None
    cta_split_num: Sequence[int] | None = None
    cta_order: Sequence[int] | None = None
    cga_layout: Sequence[Sequence[int]] | None = None

    WIDTHS: ClassVar[tuple[int, ...]] = (0, 32, 64, 128)
    BITS: ClassVar[tuple[int, ...]] = (8, 16, 32, 64)
    ROWS: ClassVar[int] = 8
    CHUNK_BYTES: ClassVar[int] = 16
    BOX_LIMIT: ClassVar[int] = 256

    def _complete(self) -> None:
        if self.swizzle_byte_width not in self.WIDTHS:
            raise fail(errors.SWIZZLE_WIDTH, width=self.swizzle_byte_width, allowed="0, 32, 64 or 128")
        allowed = self.BITS[:1] if self.fp4_padded else self.BITS
        if self.element_bitwidth not in allowed:
            expected = "8 (a pair of fp4)" if self.fp4_padded else "8, 16, 32 or 64"
            raise fail(errors.ELEMENT_BITS, bits=self.element_bitwidth, allowed=expected)
        if self.rank < 1:
            raise fail(errors.NO_DIMENSIONS, rank=self.rank)
        self._freeze(**cga_fields(self, self.rank))

    @staticmethod
    def get_default_for(
        block_shape: Sequence[int],
        dtype: ElementType,
        transposed: bool = False,
        fp4_padded: bool = False,
        cga_layout: Sequence[Sequence[int]] | None = None,
    ) -> NVMMASharedLayout:
        """The layout with the widest swizzle that divides the contiguous bytes of a block of this shape and type.

        Host code calls it at every launch, so results are cached."""
        cga = None if cga_layout is None else vectors(cga_layout)
        return _default(ints(block_shape, "block_shape"), dtype.primitive_bitwidth, transposed, fp4_padded, cga)

    @property
    def cga(self) -> Cga:
        """One vector per block bit, in block tiles."""
        return vectors(self.cga_layout or ())

    @property
    def order(self) -> tuple[int, ...]:
        """Dimensions, the contiguous one first."""
        last, *others = reversed(range(self.rank))
        if not (self.transposed and others):
            return (last, *others)
        return (others[0], last, *others[1:])

    def pads_of(self, shape: Sequence[int]) -> Pads:
        """The pads that close the holes: the offsets beyond a dimension's end, before those of the dimensions behind it."""
        shape = ints(shape, "the shape of a tile")
        return () if whole_shape(shape) == shape else _closing(self, block_shape(self.cga, shape))

    @property
    def element_bytes(self) -> int:
        """Bytes of memory per element, padding included."""
        return self.element_bitwidth // 8 * (2 if self.fp4_padded else 1)

    def widest(self, shape: Sequence[int]) -> int:
        """The widest swizzle, in bytes, that a tile of this shape allows."""
        rows, row_bytes = self._extent(block_shape(self.cga, shape))
        if rows < self.ROWS or self.rank < 2:
            return 0
        return next(width for width in reversed(self.WIDTHS) if width == 0 or row_bytes % width == 0)

    def _extent(self, part: Sequence[int]) -> tuple[int, int]:
        rows = 1
        for d in self.order[1:]:
            rows *= part[d]
        return rows, part[self.order[0]] * self.element_bytes

    def check(self, shape: Sequence[int]) -> None:
        """Raise what `to_linear` raises for a tile of this shape. Hosts create descriptors, and need no linear layout."""
        shape = ints(shape, "the shape of a tile")
        check_shape_for(self, shape)
        part = self._part(shape)
        check_places(self, shape, 1 << len(self.cga), prod(part) * (2 if self.fp4_padded else 1))

    def _part(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a block's part of a tile, which the swizzle must fit."""
        part = block_shape(self.cga, shape)
        largest = self.widest(shape)
        if self.swizzle_byte_width > largest:
            rows, row_bytes = self._extent(part)
            width = self.swizzle_byte_width
            raise fail(
                errors.SWIZZLE_FIT, shape=list(part), rows=rows, row_bytes=row_bytes, width=width, largest=largest
            )
        return part

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """The layout over a tile of this shape."""
        part = self._part(shape)
        bases = cover(self._boxes(part), part, IN_DIMS)["offset"]
        self._swizzle(bases, part)
        return _shared(self._padded(bases), block_bases(self.cga, shape), shape)

    def check_end(self, shape: tuple[int, ...]) -> None:
        """The swizzle divides the rows of the tile itself (layout-swizzle-fit)."""
        self._part(shape)

    def box(self, part: Sequence[int]) -> tuple[int, ...]:
        """Shape of the boxes that a block's part of a tile is cut into.

        A size that is no power of two is cut evenly, and along slower dimensions there is one box for each index. Where there
        are slower ones and the size is cut, all boxes begin at multiples of a power of two: the places of the first
        `BOX_LIMIT` indices lie together, and before them those of the slower dimensions."""
        box, whole = list(part), True
        _, *others = self.order
        for i, d in enumerate(others):
            cut = part[d] > self.BOX_LIMIT and any(part[slower] > 1 for slower in others[i + 1 :])
            most = min(part[d] & -part[d], self.BOX_LIMIT) if cut else self.BOX_LIMIT
            box[d] = _evenly(part[d], most) if whole else 1
            whole = whole and is_power_of_two(part[d])
        column = self.order[0]
        box[column] = min(box[column], self.BOX_LIMIT)
        if self.swizzle_byte_width:
            box[column] = min(box[column], self.swizzle_byte_width // self.element_bytes)
        return tuple(box)

    @property
    def box_order(self) -> tuple[int, ...]:
        """The order of dimensions in which boxes follow one another, fastest first: the contiguous one is last."""
        column, *others = self.order
        return (*others, column)

    def _boxes(self, part: Sequence[int]) -> list[Step]:
        """The box, then the boxes along every dimension."""
        box = self.box(part)
        inside: list[Step] = [("offset", d, box[d]) for d in self.order]
        return [*inside, *(("offset", d, part[d] // box[d]) for d in self.box_order)]

    def _swizzle(self, bases: list[list[int]], part: Sequence[int]) -> None:
        """XOR the 16-byte chunk index of the column with the row's; rows count over all dimensions but the last."""
        if not self.swizzle_byte_width:
            return
        phases = self.swizzle_byte_width // self.CHUNK_BYTES
        chunk = self.CHUNK_BYTES // self.element_bytes
        for basis in bases:
            row, stride = 0, 1
            for d in self.order[1:]:
                row += basis[d] * stride
                stride *= part[d]
            basis[self.order[0]] ^= row * phases // self.ROWS % phases * chunk

    def _padded(self, bases: list[list[int]]) -> list[list[int]]:
        """Offsets count bytes here when padded: the upper half of every 16 repeats the lower."""
        if not self.fp4_padded:
            return bases
        data = log2(self.CHUNK_BYTES // 2)
        return [*bases[:data], [0] * self.rank, *bases[data:]]


@lru_cache(maxsize=1024)
def _closing(layout: NVMMASharedLayout, part: tuple[int, ...]) -> Pads:
    """The pads of a block's part of a tile. Offsets count the steps of the whole tile, each in a power of two; in memory a step
    is as long as all that there is of the faster ones."""
    whole, column = whole_shape(part), layout.order[0]
    box = layout.box(whole)
    steps = [(d, box[d], min(part[d], box[d])) for d in layout.order]
    steps += [(d, whole[d] // box[d], -(-part[d] // box[d])) for d in layout.box_order]
    pads: list[tuple[int, int]] = []
    interval = length = layout.element_bytes * 8 // layout.element_bitwidth
    for i, (d, places, count) in enumerate(steps):
        # A row begins at a power of two, so that vectors of any row are aligned.
        interval, length = interval * places, length * (places if i == 0 and d == column else count)
        missing = length - padded(interval, tuple(pads))
        if missing and any(later > 1 for _, later, _ in steps[i + 1 :]):
            pads.append((interval, missing))
    return tuple(pads)


def _evenly(size: int, most: int) -> int:
    """The largest part, of at most `most`, that divides a size: a power of two, or a multiple of 8."""
    counts = range(-(-size // most), size + 1)
    return next(size // count for count in counts if size % count == 0 and is_tile_size(size // count))


@lru_cache(maxsize=256)
def _default(
    shape: tuple[int, ...], bits: int, transposed: bool, fp4_padded: bool, cga: Cga | None
) -> NVMMASharedLayout:
    plain = NVMMASharedLayout(0, bits, len(shape), transposed, fp4_padded, cga_layout=cga)
    return NVMMASharedLayout(plain.widest(shape), bits, len(shape), transposed, fp4_padded, cga_layout=cga)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PaddedSharedLayout(SharedLayout):
    """A linear layout whose offsets are then spread out: after every `interval` elements come `padding` unused ones.

    `interval_padding_pairs` lists [interval, padding] pairs of powers of two with distinct intervals; their paddings add up. A
    padding may be negative, a multiple of 8: the last places of each interval hold nothing, and are left out.
    `offset_bases` and `block_bases` are coordinates of a tile of `shape`.
    """

    interval_padding_pairs: Sequence[Sequence[int]]
    offset_bases: Sequence[Sequence[int]]
    block_bases: Sequence[Sequence[int]]
    shape: Sequence[int]

    _keywords: ClassVar[bool] = True

    def _complete(self) -> None:
        pairs, shape = vectors(self.interval_padding_pairs), ints(self.shape)
        for pair in pairs:
            known = len(pair) == 2 and is_power_of_two(pair[0]) and _is_padding(pair[1], pair[0])
            if not known or sum(pair[0] == other[0] for other in pairs) > 1:
                raise fail(errors.PADDING, pair=list(pair))
        check_tile_shape(shape)
        check_powers_of_two("the shape of PaddedSharedLayout", shape)
        offsets, blocks = vectors(self.offset_bases), vectors(self.block_bases)
        check_bases("offset_bases", offsets, shape)
        check_bases("block_bases", blocks, shape)
        check_onto(_shared(offsets, blocks, shape))
        self._freeze(interval_padding_pairs=tuple(sorted(pairs)), offset_bases=offsets, block_bases=blocks, shape=shape)

    @staticmethod
    def with_identity_for(
        interval_padding_pairs: Sequence[Sequence[int]], shape: Sequence[int], order: Sequence[int]
    ) -> PaddedSharedLayout:
        """Padding over the plain layout of a tile of this shape, the first dimension of `order` fastest."""
        check_tile_shape(shape)
        shape = whole_shape(ints(shape))
        order = ints(order, "order")
        check_ranks("PaddedSharedLayout", shape=shape, order=order)
        check_order("order", order, len(shape))
        bases = cover([("offset", d, shape[d]) for d in order], shape, IN_DIMS)["offset"]
        return PaddedSharedLayout(interval_padding_pairs, bases, [], shape)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def pads_of(self, shape: Sequence[int]) -> Pads:
        """The pairs, by interval."""
        return tuple((interval, padding) for interval, padding in self.interval_padding_pairs)

    def pad(self, offset: Any) -> Any:
        """The memory offset, in elements, of the element at a linear offset; generic over ints and integer arrays."""
        return padded(offset, self.pads_of(()))

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """The linear part: offsets before padding."""
        return _spelled(self, self.offset_bases, self.block_bases, self.shape, shape)


def _is_padding(padding: int, interval: int) -> bool:
    return is_power_of_two(padding) or (-interval < padding < 0 and padding % 8 == 0)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SharedLinearLayout(SharedLayout):
    """A shared layout spelled by its bases: per offset bit (and block bit) the coordinates it moves to.

    The shape of its tile follows from them. `alignment` is in bytes.
    """

    offset_bases: Sequence[Sequence[int]]
    block_bases: Sequence[Sequence[int]] = ()
    alignment: int = 16

    def _complete(self) -> None:
        offsets, blocks = vectors(self.offset_bases), vectors(self.block_bases)
        if not is_power_of_two(self.alignment):
            raise fail(errors.ALIGNMENT, alignment=self.alignment)
        shape = _shape_of((*offsets, *blocks))
        check_bases("offset_bases", offsets, shape)
        check_bases("block_bases", blocks, shape)
        check_onto(_shared(offsets, blocks, shape))
        self._freeze(offset_bases=offsets, block_bases=blocks)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tile."""
        return _shape_of((*vectors(self.offset_bases), *vectors(self.block_bases)))

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """The layout over a tile of this shape."""
        return _spelled(self, self.offset_bases, self.block_bases, self.shape, shape)


def _shape_of(bases: Sequence[Sequence[int]]) -> tuple[int, ...]:
    rank = len(bases[0]) if bases else 0
    return tuple(1 << max(max(basis[d : d + 1], default=0).bit_length() for basis in bases) for d in range(rank))


def _shared(offsets: Iterable[Sequence[int]], blocks: Iterable[Sequence[int]], shape: Sequence[int]) -> LinearLayout:
    bases: Mapping[str, Sequence[Sequence[int]]] = {"offset": list(offsets), "block": list(blocks)}
    return LinearLayout.make(bases, tile_dims(shape))


def _spelled(
    layout: SharedLayout,
    offsets: Iterable[Sequence[int]],
    blocks: Iterable[Sequence[int]],
    own: Sequence[int],
    shape: Sequence[int],
) -> LinearLayout:
    if tuple(own) != tuple(shape):
        raise fail(errors.LINEAR_SHAPE, layout=layout, own=list(own), shape=list(shape))
    return _shared(offsets, blocks, shape)
