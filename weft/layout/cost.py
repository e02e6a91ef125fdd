"""The cost of an access: sectors of global memory, wavefronts of shared memory, and the prices of conversions.

The model counts hardware events, not time. Global memory moves 32-byte sectors of 128-byte lines. Shared memory has 32 banks
of 4 bytes; a warp's request is served in phases of 128 bytes (all lanes for up to 4 bytes each, half a warp for 8, a quarter
for 16), and a phase takes one wavefront more for each additional word that its busiest bank must deliver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from weft.layout.base import WARP_SIZE
from weft.layout.linear.columns import Columns, basis, columns, combinations
from weft.layout.linear.f2 import Span
from weft.layout.linear.maps import LinearLayout

SECTOR_BYTES = 32
SECTORS_PER_LINE = 4
BANK_BYTES = 4
WAVEFRONT_BYTES = 128
MAX_VECTOR_BYTES = 16

# Prices in quarter cycles of a multiprocessor for one warp. Shared memory and shuffles go through one pipe, a warp's 128
# bytes a cycle; selects run on half of the lanes of four schedulers; each memory instruction takes an issue slot besides.
# The barrier's price is its latency as far as other warps do not hide it. That of a cluster
# takes four warps 175 to 186 ns with 2 to 16 blocks, sixteen 224 to 232, and `relaxed` a quarter of that (an H200 at 1.98 GHz,
# where the barrier of a block takes them 10 and 22 ns).
SHUFFLE = 4
SELECT = 2
WAVEFRONT = 4
ISSUE = 1
BARRIER = 120
CLUSTER_BARRIER = 1400


@dataclass(frozen=True, order=True, slots=True)
class Cost:
    """A comparable price, in quarter cycles per warp, and its description."""

    quarters: int
    text: str = field(compare=False)

    def __str__(self) -> str:
        return self.text


def element_bytes(bits: int) -> int:
    """Bytes of an element in memory: at least one."""
    return max(bits, 8) // 8


def words(bits: int) -> int:
    """32-bit registers that an element takes."""
    return max(bits, 32) // 32


def lanes_per_phase(vector_bytes: int) -> int:
    """Lanes of a warp that shared memory serves together."""
    return min(WARP_SIZE, WAVEFRONT_BYTES // max(vector_bytes, BANK_BYTES))


def phases(vector_bytes: int) -> int:
    """Phases of a warp-wide access: the wavefronts that it takes without bank conflicts."""
    return WARP_SIZE // lanes_per_phase(vector_bytes)


def wavefronts(addresses: Sequence[int | None], vector_bytes: int) -> int:
    """Wavefronts of one warp-wide shared access: `addresses` are bytes, one per lane, None for an inactive lane."""
    return sum(phase_wavefronts(addresses, vector_bytes))


def phase_wavefronts(addresses: Sequence[int | None], vector_bytes: int) -> list[int]:
    """Wavefronts of each phase of such an access: one if no bank must deliver two words."""
    lanes = lanes_per_phase(vector_bytes)
    firsts = range(0, len(addresses), lanes)
    return [_phase_wavefronts(addresses[first : first + lanes], vector_bytes) for first in firsts]


def _phase_wavefronts(addresses: Sequence[int | None], vector_bytes: int) -> int:
    span = max(vector_bytes // BANK_BYTES, 1)
    touched = {address // BANK_BYTES + word for address in addresses if address is not None for word in range(span)}
    banks = [word % (WAVEFRONT_BYTES // BANK_BYTES) for word in touched]
    return max((banks.count(bank) for bank in set(banks)), default=0)


@dataclass(frozen=True, slots=True)
class Coalescing:
    """The global memory traffic of one warp's loads or stores of a tile, summed over its requests.

    `vec` is elements per request and thread, `requests` the instructions per warp, `sectors` and `lines` the totals that they
    access, `ideal` the number of sectors if every fetched byte were used.
    """

    vec: int
    requests: int
    sectors: int
    lines: int
    ideal: int

    @property
    def efficiency(self) -> float:
        """Fraction of the fetched bytes that the warp requested, at most 1."""
        return self.ideal / self.sectors


def coalescing(layout: LinearLayout, shape: Sequence[int], strides: Sequence[int], element_bytes: int) -> Coalescing:
    """Sectors, lines and vector width of a distributed tile read from an array with `strides` (in elements).

    The tile is assumed to start at a line-aligned address; warp 0 of block 0 represents all warps.
    """
    tile = columns(layout)
    vec = _contiguous(tile, shape, strides, MAX_VECTOR_BYTES // element_bytes)
    requests = list(_requests(tile, shape, strides, vec))
    touched = [_sectors(request, vec, element_bytes) for request in requests]
    return Coalescing(
        vec=vec,
        requests=len(requests),
        sectors=sum(map(len, touched)),
        lines=sum(len({sector // SECTORS_PER_LINE for sector in sectors}) for sectors in touched),
        ideal=sum(-(-len(set(request)) * vec * element_bytes // SECTOR_BYTES) for request in requests),
    )


def _sectors(request: Sequence[int], vec: int, size: int) -> set[int]:
    """Sectors that one request touches; an element never straddles two."""
    return {element * size // SECTOR_BYTES for first in request for element in range(first, first + vec)}


def _requests(tile: Columns, shape: Sequence[int], strides: Sequence[int], vec: int) -> Iterator[list[int]]:
    """For each request, the address (in elements) of each lane's first element."""
    step, _ = _inner_run(shape, strides)
    within = [step << bit for bit in range(vec.bit_length() - 1)]
    lanes = combinations(tile.lane)
    for register in combinations(basis(tile.register, within)):
        yield [_address(register ^ lane, shape, strides) & -vec for lane in lanes]


def _contiguous(tile: Columns, shape: Sequence[int], strides: Sequence[int], limit: int) -> int:
    """Elements per access: registers that are contiguous along the dimension of stride 1, and equal in all others."""
    step, length = _inner_run(shape, strides)
    held = Span(tile.register)
    others = [stride for size, stride in zip(shape, strides, strict=True) if size > 1 and stride != 1]
    vec = 1
    while (
        vec < min(limit, length)
        and vec * step in held
        and not any(column & vec * step for column in tile.thread)
        and not any(stride % (2 * vec) for stride in others)
    ):
        vec *= 2
    return vec


def _inner_run(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The dimension of stride 1: how far the row-major element index moves along it, and its size; (0, 1) for none."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if stride == 1 and size > 1:
            return step, size
        step *= size
    return 0, 1


def _address(index: int, shape: Sequence[int], strides: Sequence[int]) -> int:
    address = 0
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        address += index % size * stride
        index //= size
    return address
