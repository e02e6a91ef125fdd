"""Conversions through shared memory: one store, one barrier, one load, with a swizzle computed for this pair of layouts.

The swizzle is a basis of the tile: offset bit i stands for one vector of element indices, lowest bit first.

- *Vector bits* come first. Those that both sides hold in registers vectorise both accesses. They may be followed by bits that
  one side holds in registers and the other spreads over lanes of one phase, which widen the first side's access only.
- *Bank bits* distinguish the lanes of a phase (those that shared memory serves together), on either side.
- *Row bits*, each a step of 128 bytes, are the rest: a common complement of both sides' phases. It contains no nonzero XOR
  of a phase's lanes, so no two lanes of a phase access different words of one bank. It exists because the dimension of
  both is at most that of the bank bits (the argument of the paper "Linear Layouts", section on optimal swizzling).

Of several threads or registers that hold an element, only the first stores it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.layout import cost
from weft.layout.cost import Cost
from weft.layout.linear import f2
from weft.layout.linear.columns import Columns, basis, common_complement, intersection, kernel
from weft.layout.linear.f2 import Span, solved
from weft.layout.shared.vectors import Side, VectorAccess, load_side, spell, store_side


@dataclass(frozen=True, slots=True)
class SharedRoundTrip:
    """A conversion through `bytes` of shared memory: `store`, barrier, `load`, then register copies.

    After the load, destination register r is the loaded register `result[r]` (itself, unless it is redundant). The scratch
    memory can be reused only after another barrier.
    """

    bits: int
    elements: int
    store: VectorAccess
    load: VectorAccess
    result: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Scratch size."""
        return self.elements * cost.element_bytes(self.bits)

    @property
    def conflicts(self) -> int:
        """Wavefronts added by bank conflicts, over the accesses of both sides."""
        return _conflicts(self.store, self.load, self.bits)

    def cost(self) -> Cost:
        """Price and words."""
        quarters = cost.BARRIER
        for side in (self.store, self.load):
            quarters += side.quarters(self.bits)
        return Cost(quarters, traffic(self.bytes, "shared memory", self.store, self.load, self.bits))


def plan_shared(src: Columns, dst: Columns, bits: int) -> SharedRoundTrip:
    """The round trip between two layouts of one tile within a block; `bits` is the element's width."""
    from_source, to_target = store_side(src), load_side(dst)
    swizzle, stored, loaded = place_sides(from_source, to_target, cost.element_bytes(bits))

    def offset(element: int) -> int:
        return solved(swizzle, element)

    return SharedRoundTrip(
        bits=bits,
        elements=1 << swizzle.rank,
        store=spell(from_source.mapped(offset), stored),
        load=spell(to_target.mapped(offset), loaded),
        result=to_target.result,
    )


def place_sides(storing: Side, loading: Side, size: int, mask: int = -1) -> tuple[Span, int, int]:
    """The swizzle that places elements of `size` bytes in memory, and how many of them a store and a load move at a time.

    The bits of `loading`'s columns outside `mask` name a memory, not a place in it: a vector has none of them."""
    placed = loading if mask == -1 else loading.mapped(lambda column: column & mask)
    stored, loaded = _vectors(storing, replace(placed, registers=loading.registers), size)
    return Span(_swizzle(storing, placed, stored, loaded, size)), 1 << len(stored), 1 << len(loaded)


def _vectors(storing: Side, loading: Side, size: int) -> tuple[list[int], list[int]]:
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


def _accesses(side: Side, vectors: Sequence[int]) -> int:
    return len(side.registers.numbers) >> len(vectors)


def _one_sided(wide: Side, phase: Sequence[int], common: Sequence[int]) -> list[int]:
    """The vectors that one side holds in registers and the other in lanes of a phase, modulo those of its own threads."""
    return basis(intersection(wide.registers.columns, phase), (*common, *wide.thread))


def _swizzle(storing: Side, loading: Side, stored: Sequence[int], loaded: Sequence[int], size: int) -> list[int]:
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
    phase = [solved(coordinates, column) for column in wide.phase(size << len(vectors))]
    other_phase = [solved(coordinates, column) for column in other.phase(size << len(common))]
    other_phase = _same_vector(other_phase, range(max(len(common), word), len(vectors)))
    above_vector = [column >> len(vectors) << len(vectors) for column in other_phase]

    banks = basis([*phase, *above_vector, *units])[:bank_bits]
    other_banks = basis([*above_vector, *phase, *units])[:bank_bits]
    rows = common_complement(banks, other_banks, units)
    in_word = first_bank - len(vectors)
    order = [*(1 << i for i in range(len(vectors))), *rows[:in_word], *banks, *rows[in_word:]]
    return [f2.apply(space, coordinate) for coordinate in order]


def _same_vector(phase: Sequence[int], bits: Sequence[int]) -> list[int]:
    """Basis of the XORs of a phase's lanes whose coordinates at `bits` are 0: lanes that those bits do not distinguish."""
    mask = sum(1 << bit for bit in bits)
    return basis(f2.apply(phase, lanes) for lanes in kernel([column & mask for column in phase]))


def traffic(size: int, where: str, store: VectorAccess, load: VectorAccess, bits: int) -> str:
    """What goes through memory, as text."""
    conflicts = _conflicts(store, load, bits)
    counts = f"{_count(store, 'store')} and {_count(load, 'load')} per thread"
    added = f"{conflicts} wavefronts of bank conflicts" if conflicts else "no bank conflicts"
    return f"{_size(size)} through {where}, {counts}, {added}"


def _conflicts(store: VectorAccess, load: VectorAccess, bits: int) -> int:
    return sum(side.conflicts(bits) * len(side.offsets) for side in (store, load))


def _count(side: VectorAccess, verb: str) -> str:
    width = f" of {side.vec} elements" if side.vec > 1 else ""
    return f"{len(side.offsets)} {verb}{'' if len(side.offsets) == 1 else 's'}{width}"


def _size(count: int) -> str:
    return f"{count // 1024} KiB" if count >= 1024 and count % 1024 == 0 else f"{count} bytes"
