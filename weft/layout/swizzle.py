"""Conversions through shared memory: one store, one barrier, one load, with a swizzle computed for this pair of layouts.

The swizzle is a basis of the tile: offset bit i stands for one vector of element indices, lowest bit first.

- *Vector bits* come first: vectors that both sides hold in registers make both accesses wide; after them may follow some
  that one side holds in registers and the other spreads over lanes of one phase, which make only the first side wider.
- *Bank bits* tell apart the lanes that shared memory serves together, on either side.
- *Row bits*, each a step of 128 bytes, are the rest: a common complement of both sides' phases. No sum of a phase's
  lanes lies in it, so no two lanes of a phase meet in a bank with different words. It exists because both have the
  dimension of the bank bits, or less (the argument of the paper "Linear Layouts", section on optimal swizzling).

Elements that several threads or registers hold are stored by the first of them only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.layout import cost, f2
from weft.layout.columns import (
    Columns,
    Registers,
    basis,
    combinations,
    common_complement,
    distinct_registers,
    intersection,
    kernel,
)
from weft.layout.cost import Cost
from weft.layout.f2 import Span


@dataclass(frozen=True, slots=True)
class Access:
    """One side of a round trip: what each thread stores or loads, `vec` elements at a time.

    Access i of a thread touches the elements from `thread_offset(lane, warp) ^ offsets[i]` on (`thread_offset` is the XOR
    of `lane_bases` and `warp_bases` over the set bits) and moves registers `registers[i]`, in that order. A thread with a
    bit of `lane_mask` or `warp_mask` set in its lane or warp holds nothing of its own and does nothing.
    """

    vec: int
    lane_bases: tuple[int, ...]
    warp_bases: tuple[int, ...]
    offsets: tuple[int, ...]
    registers: tuple[tuple[int, ...], ...]
    lane_mask: int = 0
    warp_mask: int = 0

    @property
    def thread_bits(self) -> int:
        """Offset bits that the thread decides; the other bits of `offsets[i]` may be added rather than XORed."""
        bits = 0
        for base in self.lane_bases + self.warp_bases:
            bits |= base
        return bits

    def thread_offset(self, lane: Any, warp: Any) -> Any:
        """The thread's part of the offset, in elements; for ints and for integer arrays."""
        return _chosen(self.lane_bases, lane) ^ _chosen(self.warp_bases, warp)

    def wavefronts(self, bits: int) -> int:
        """Wavefronts that each access takes for a whole warp; every access and every warp takes as many."""
        size = cost.element_bytes(bits)
        offsets = combinations(self.lane_bases)
        addresses = [None if lane & self.lane_mask else offset * size for lane, offset in enumerate(offsets)]
        return cost.wavefronts(addresses, self.vec * size)

    def conflicts(self, bits: int) -> int:
        """Wavefronts that bank conflicts add to each access."""
        return max(self.wavefronts(bits) - cost.phases(self.vec * cost.element_bytes(bits)), 0)


@dataclass(frozen=True, slots=True)
class SharedRoundTrip:
    """A conversion through `bytes` of shared memory: `store`, barrier, `load`, then register copies.

    After the load, destination register r is the loaded register `result[r]` (itself, unless it is redundant). The scratch
    may be reused only after another barrier.
    """

    bits: int
    elements: int
    store: Access
    load: Access
    result: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Scratch size."""
        return self.elements * cost.element_bytes(self.bits)

    @property
    def conflicts(self) -> int:
        """Wavefronts that bank conflicts add, per thread's accesses of both sides."""
        return sum(side.conflicts(self.bits) * len(side.offsets) for side in (self.store, self.load))

    def cost(self) -> Cost:
        """Price and words."""
        quarters = cost.BARRIER
        for side in (self.store, self.load):
            quarters += len(side.offsets) * (cost.ISSUE + cost.WAVEFRONT * side.wavefronts(self.bits))
        conflicts = f"{self.conflicts} wavefronts of bank conflicts" if self.conflicts else "no bank conflicts"
        counts = f"{_count(self.store, 'store')} and {_count(self.load, 'load')} per thread"
        return Cost(quarters, f"{_size(self.bytes)} through shared memory, {counts}, {conflicts}")


def plan_shared(src: Columns, dst: Columns, bits: int) -> SharedRoundTrip:
    """The round trip between two layouts of one tile within a block; `bits` is the element's width."""
    storing, loading = _storing(src), _loading(dst)
    stored, loaded = _vectors(storing, loading, cost.element_bytes(bits))
    swizzle = Span(_swizzle(storing, loading, stored, loaded, cost.element_bytes(bits)))
    return SharedRoundTrip(
        bits=bits,
        elements=1 << swizzle.rank,
        store=_access(storing, swizzle, stored),
        load=_access(loading, swizzle, loaded),
        result=tuple(loading.registers.numbers[position] for position in loading.registers.position),
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """A layout as one side sees it; columns of lanes and warps that stay out are 0, their bits are in the masks."""

    registers: Registers
    lane: tuple[int, ...]
    warp: tuple[int, ...]
    lane_mask: int = 0
    warp_mask: int = 0

    @property
    def thread(self) -> tuple[int, ...]:
        return self.lane + self.warp

    def phase(self, vector_bytes: int) -> tuple[int, ...]:
        """Columns of the lanes that shared memory serves together."""
        return self.lane[: f2.log2(cost.lanes_per_phase(vector_bytes))]


def _storing(layout: Columns) -> _Side:
    """Every element once: thread bits that lead to nothing new stay 0."""
    registers = distinct_registers(layout.register)
    fresh = f2.independent((*registers.columns, *layout.thread)) >> len(registers.columns)
    out = ~fresh & ((1 << len(layout.thread)) - 1)
    columns = [0 if out >> bit & 1 else column for bit, column in enumerate(layout.thread)]
    lanes = len(layout.lane)
    return _Side(registers, tuple(columns[:lanes]), tuple(columns[lanes:]), out & ((1 << lanes) - 1), out >> lanes)


def _loading(layout: Columns) -> _Side:
    return _Side(distinct_registers(layout.register), layout.lane, layout.warp)


def _vectors(storing: _Side, loading: _Side, size: int) -> tuple[list[int], list[int]]:
    """Vector bits of the store and of the load, one a prefix of the other: as few accesses as possible."""
    limit = f2.log2(cost.MAX_VECTOR_BYTES // size)
    held = intersection(storing.registers.columns, loading.registers.columns)
    common = basis(held, (*storing.thread, *loading.thread))[:limit]
    vector_bytes = size << len(common)
    wide_store = [*common, *_one_sided(storing, loading.phase(vector_bytes), common)][:limit]
    wide_load = [*common, *_one_sided(loading, storing.phase(vector_bytes), common)][:limit]
    by_store = _accesses(storing, wide_store) + _accesses(loading, common)
    by_load = _accesses(storing, common) + _accesses(loading, wide_load)
    return (wide_store, common) if by_store < by_load else (common, wide_load)


def _accesses(side: _Side, vectors: Sequence[int]) -> int:
    return len(side.registers.numbers) >> len(vectors)


def _one_sided(wide: _Side, phase: Sequence[int], common: Sequence[int]) -> list[int]:
    """What one side holds in registers and the other in the lanes of a phase, apart from what its own threads reach."""
    return basis(intersection(wide.registers.columns, phase), (*common, *wide.thread))


def _swizzle(storing: _Side, loading: _Side, stored: Sequence[int], loaded: Sequence[int], size: int) -> list[int]:
    """Basis of the tile, one vector per offset bit, from the vector bits of both sides.

    Linear algebra runs in coordinates: bit i stands for vector bit i of the wider side, or for a vector of a complement in
    which that side's threads lie, and the other side's up to vector bits that only the wider side has.
    """
    wide, other = (storing, loading) if len(stored) > len(loaded) else (loading, storing)
    common, vectors = sorted((stored, loaded), key=len)
    everything = (*wide.thread, *other.thread, *wide.registers.columns)
    space = [*vectors, *basis(everything, vectors)]
    word = f2.log2(max(cost.BANK_BYTES // size, 1))
    first_bank = max(word, len(vectors))
    units = [1 << i for i in range(len(vectors), len(space))]
    bank_bits = min(f2.log2(cost.WAVEFRONT_BYTES // size) - first_bank, len(units))

    coordinates = Span(space)
    phase = [_solved(coordinates, column) for column in wide.phase(size << len(vectors))]
    other_phase = [_solved(coordinates, column) for column in other.phase(size << len(common))]
    other_phase = _same_vector(other_phase, range(max(len(common), word), len(vectors)))
    above_vector = [column >> len(vectors) << len(vectors) for column in other_phase]

    banks = basis([*phase, *above_vector, *units])[:bank_bits]
    other_banks = basis([*above_vector, *phase, *units])[:bank_bits]
    rows = common_complement(banks, other_banks, units)
    in_word = first_bank - len(vectors)
    order = [*(1 << i for i in range(len(vectors))), *rows[:in_word], *banks, *rows[in_word:]]
    return [f2.apply(space, coordinate) for coordinate in order]


def _same_vector(phase: Sequence[int], bits: Sequence[int]) -> list[int]:
    """Basis of the sums of a phase's lanes whose coordinates at `bits` are 0: lanes that those bits do not tell apart."""
    mask = sum(1 << bit for bit in bits)
    return basis(f2.apply(phase, lanes) for lanes in kernel([column & mask for column in phase]))


def _access(side: _Side, swizzle: Span, vectors: Sequence[int]) -> Access:
    """Spell one side: offsets of threads and of register groups, each group ordered as its vector lies in memory."""
    registers = side.registers
    held = Span(registers.columns)
    within = [_solved(held, vector) for vector in vectors]
    vec = 1 << len(vectors)
    group_bits: list[int] = []
    group_offsets: list[int] = []
    for bit in basis([1 << i for i in range(len(registers.columns))], within):
        offset = _solved(swizzle, f2.apply(registers.columns, bit))
        # A group starts where its vector does: registers of the vector itself bring it there.
        group_bits.append(bit ^ f2.apply(within, offset & (vec - 1)))
        group_offsets.append(offset & -vec)
    groups = [[first ^ step for step in combinations(within)] for first in combinations(group_bits)]
    return Access(
        vec=vec,
        lane_bases=tuple(_solved(swizzle, column) for column in side.lane),
        warp_bases=tuple(_solved(swizzle, column) for column in side.warp),
        offsets=tuple(combinations(group_offsets)),
        registers=tuple(tuple(registers.numbers[position] for position in group) for group in groups),
        lane_mask=side.lane_mask,
        warp_mask=side.warp_mask,
    )


def _solved(span: Span, element: int) -> int:
    generators = span.solve(element)
    if generators is None:
        raise ValueError(f"element {element} lies outside the tile of this block")
    return generators


def _chosen(bases: Sequence[int], index: Any) -> Any:
    """Sum of the bases that the bits of an int, or of each entry of an array, choose."""
    total: Any = 0
    for bit, base in enumerate(bases):
        total = total ^ (index >> bit & 1) * base
    return total


def _count(side: Access, verb: str) -> str:
    width = f" of {side.vec} elements" if side.vec > 1 else ""
    return f"{len(side.offsets)} {verb}{'' if len(side.offsets) == 1 else 's'}{width}"


def _size(count: int) -> str:
    return f"{count // 1024} KiB" if count >= 1024 and count % 1024 == 0 else f"{count} bytes"
