"""Accesses to shared memory as data: the elements and registers of each thread, as wide as possible.

A *side* is a distributed layout as shared memory sees it: its columns are element offsets. `spell` turns a side into an
`VectorAccess`. Conversions and the author's own loads and stores are planned alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft.layout import cost
from weft.layout.linear import f2
from weft.layout.linear.columns import Columns, Registers, basis, combinations, distinct_registers
from weft.layout.linear.f2 import Span, solved
from weft.layout.shared.layouts import Pads, padded


@dataclass(frozen=True, slots=True)
class VectorAccess:
    """The stores or loads of each thread, `vec` elements at a time.

    Access i of a thread covers the elements from `thread_offset(lane, warp) ^ offsets[i]` on (`thread_offset` is the XOR
    of `lane_bases` and `warp_bases` over the set bits) and moves registers `registers[i]`, in that order. A thread with a
    bit of `lane_mask` or `warp_mask` set in its lane or warp holds copies only and is inactive.

    `pads` are (interval, padding) pairs, applied to offsets as by `PaddedSharedLayout.pad`; `address` is the padded offset.
    Vectors stay contiguous and aligned.
    """

    vec: int
    lane_bases: tuple[int, ...]
    warp_bases: tuple[int, ...]
    offsets: tuple[int, ...]
    registers: tuple[tuple[int, ...], ...]
    lane_mask: int = 0
    warp_mask: int = 0
    pads: Pads = ()

    @property
    def thread_bits(self) -> int:
        """Offset bits that depend on the thread; the other bits of `offsets[i]` can be added instead of XORed."""
        bits = 0
        for base in self.lane_bases + self.warp_bases:
            bits |= base
        return bits

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """`offsets` split in two per access, (xor, add): it begins at `address(thread_offset ^ xor) + add`.

        `add` is padded already. Accesses of one `xor` share all arithmetic at run time; usually it is 0 for all.
        """
        mask = self.thread_bits
        return tuple((offset & mask, self.address(offset & ~mask)) for offset in self.offsets)

    def thread_offset(self, lane: Any, warp: Any) -> Any:
        """The thread's part of the offset, in elements; for ints and for integer arrays."""
        return _chosen(self.lane_bases, lane) ^ _chosen(self.warp_bases, warp)

    def address(self, offset: Any) -> Any:
        """The padded offset, in elements; for ints and for integer arrays."""
        return padded(offset, self.pads)

    def phase_wavefronts(self, bits: int) -> Iterator[int]:
        """Wavefronts of each phase of each access of each warp; without padding, all are as one access of warp 0."""
        size = cost.element_bytes(bits)
        lanes = combinations(self.lane_bases)
        warps = combinations(self.warp_bases) if self.pads else [0]
        for start in (warp ^ offset for warp in warps for offset in (self.offsets if self.pads else [0])):
            addresses = [
                None if lane & self.lane_mask else self.address(offset ^ start) * size
                for lane, offset in enumerate(lanes)
            ]
            yield from cost.phase_wavefronts(addresses, self.vec * size)

    def wavefronts(self, bits: int) -> int:
        """Wavefronts that the slowest access takes for a whole warp; without padding, all take as many."""
        phases = cost.phases(self.vec * cost.element_bytes(bits))
        counts = list(self.phase_wavefronts(bits))
        return max(sum(counts[first : first + phases]) for first in range(0, len(counts), phases))

    def conflicts(self, bits: int) -> int:
        """Wavefronts that bank conflicts add to each access."""
        return max(self.wavefronts(bits) - cost.phases(self.vec * cost.element_bytes(bits)), 0)

    def quarters(self, bits: int) -> int:
        """Price of all accesses of a warp, as `weft.layout.cost` counts."""
        return len(self.offsets) * (cost.ISSUE + cost.WAVEFRONT * self.wavefronts(bits))


@dataclass(frozen=True, slots=True)
class Side:
    """A layout as one side sees it: columns of distinct registers, lanes and warps; bits that stay out are in the masks."""

    registers: Registers
    lane: tuple[int, ...]
    warp: tuple[int, ...]
    lane_mask: int = 0
    warp_mask: int = 0

    @property
    def thread(self) -> tuple[int, ...]:
        """Columns of the thread index: lane bits, then warp bits."""
        return self.lane + self.warp

    @property
    def result(self) -> tuple[int, ...]:
        """For each register of the layout, the one that is loaded for it: itself, unless it is redundant."""
        return tuple(self.registers.numbers[position] for position in self.registers.position)

    def phase(self, vector_bytes: int) -> tuple[int, ...]:
        """Columns of the lanes that shared memory serves together."""
        return self.lane[: f2.log2(cost.lanes_per_phase(vector_bytes))]

    def mapped(self, image: Callable[[int], int]) -> Side:
        """The same side with every column replaced by its image under an injective linear map."""
        columns = tuple(map(image, self.registers.columns))
        return replace(
            self,
            registers=replace(self.registers, columns=columns),
            lane=tuple(map(image, self.lane)),
            warp=tuple(map(image, self.warp)),
        )


def store_side(layout: Columns) -> Side:
    """The side with every element once: free thread bits are masked, with columns 0."""
    registers = distinct_registers(layout.register)
    fresh = f2.independent((*registers.columns, *layout.thread)) >> len(registers.columns)
    out = ~fresh & ((1 << len(layout.thread)) - 1)
    columns = [0 if out >> bit & 1 else column for bit, column in enumerate(layout.thread)]
    lanes = len(layout.lane)
    return Side(registers, tuple(columns[:lanes]), tuple(columns[lanes:]), out & ((1 << lanes) - 1), out >> lanes)


def load_side(layout: Columns) -> Side:
    """The side of a load: every thread reads all its elements, each once."""
    return Side(distinct_registers(layout.register), layout.lane, layout.warp)


def widest_vector(side: Side, limit: int) -> int:
    """Largest power of two up to `limit` of consecutive aligned offsets that the registers of every thread hold."""
    held = Span(side.registers.columns)
    vec = 1
    while vec < limit and vec in held and not any(column & vec for column in side.thread):
        vec *= 2
    return vec


@dataclass(frozen=True, slots=True)
class Groups:
    """The registers of a side in groups of consecutive offsets: bits of positions within a group, and from one to the next.

    A group begins at an offset that is a multiple of its length; `first` is the position that lies there in group 0, and
    `offsets` (with `start`, of group 0) say where the others do.
    """

    within: tuple[int, ...]
    bits: tuple[int, ...]
    offsets: tuple[int, ...]
    first: int
    start: int


def grouped(side: Side, vec: int, start: int = 0) -> Groups:
    """Groups of `vec` registers, each beginning where its vector does; all offsets are moved by `start` (XOR)."""
    columns = side.registers.columns
    held = Span(columns)
    within = [solved(held, 1 << bit) for bit in range(f2.log2(vec))]
    bits = basis([1 << i for i in range(len(columns))], within)
    offsets = [f2.apply(columns, bit) for bit in bits]
    # If a group begins inside a vector, permuting the registers of the vector moves the group to its front.
    return Groups(
        within=tuple(within),
        bits=tuple(bit ^ f2.apply(within, offset & (vec - 1)) for bit, offset in zip(bits, offsets, strict=True)),
        offsets=tuple(offset & -vec for offset in offsets),
        first=f2.apply(within, start & (vec - 1)),
        start=start & -vec,
    )


def spell(side: Side, vec: int, start: int = 0, pads: Pads = ()) -> VectorAccess:
    """The access of a side whose columns are offsets, `vec` elements at a time, all offsets moved by `start` (XOR)."""
    groups = grouped(side, vec, start)
    numbers = side.registers.numbers
    firsts = combinations(groups.bits)
    steps = combinations(groups.within)
    return VectorAccess(
        vec=vec,
        lane_bases=side.lane,
        warp_bases=side.warp,
        offsets=tuple(groups.start ^ offset for offset in combinations(groups.offsets)),
        registers=tuple(tuple(numbers[groups.first ^ first ^ step] for step in steps) for first in firsts),
        lane_mask=side.lane_mask,
        warp_mask=side.warp_mask,
        pads=pads,
    )


def repeated(accesses: Sequence[VectorAccess], registers: Sequence[Sequence[int]]) -> VectorAccess:
    """The accesses of a tile's pieces one after another, which differ in their offsets only; `registers[p][r]` is the register
    of the tile that is register r of piece p."""
    moved = [
        tuple([own[r] for r in group])
        for access, own in zip(accesses, registers, strict=True)
        for group in access.registers
    ]
    offsets = [offset for access in accesses for offset in access.offsets]
    return replace(accesses[0], offsets=tuple(offsets), registers=tuple(moved))


def spread(results: Sequence[Sequence[int]], registers: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """For each register of a tile, the one that is loaded for it, from the same of each piece (see `repeated`)."""
    loaded = {own[r]: own[at] for result, own in zip(results, registers, strict=True) for r, at in enumerate(result)}
    return tuple([loaded[r] for r in range(len(loaded))])


def _chosen(bases: Sequence[int], index: Any) -> Any:
    """Sum of the bases that the bits of an int, or of each entry of an array, choose."""
    total: Any = 0
    for bit, base in enumerate(bases):
        total = total ^ (index >> bit & 1) * base
    return total
