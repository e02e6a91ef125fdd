"""What a decode attention kernel is compiled for: the pages of the cache, the kind of it, and partial results."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from weft import language as gl
from weft.kernels.attend_plan import BARRIER_BYTES, ROWS, SHARED_BYTES, AttentionConfig, Parts, TilePlan
from weft.kernels.plan import DTYPES

TILES: dict[tuple[int, int], AttentionConfig] = {
    (64, 64): AttentionConfig(128, 1, 5),
    (96, 96): AttentionConfig(128, 1, 3),
    (128, 128): AttentionConfig(128, 1, 3),
    (192, 128): AttentionConfig(64, 1, 4),
    (256, 256): AttentionConfig(64, 1, 3),
}
"""Configurations by head size of queries and keys, and of values: as many slots as shared memory has room for, since the bytes
in flight are what bounds the rate."""
LATENT = (576, 512)
"""Head sizes of a latent cache."""
LATENT_TILES = AttentionConfig(64, 2, 2)
LATENT_REGISTERS = {1: (216, 80), 4: (192, 112)}
"""Registers of a thread of the second consumer and of the producer, by its warps."""
PIECE = 8
"""TMA fills pieces of a latent block that have a multiple of 8 rows, the rows that a swizzle spans."""
PRODUCER_REGISTERS = 168
"""Registers of a thread of the producer."""
SLACK = 1.04
"""Teams that visit heads side by side may make the longest run longer by this factor: 128 of 132 multiprocessors, say, were
faster with any cache (H200), since what bounds the rate is memory."""
CHUNK = 128
"""Lengths that a producer reads at a time."""
LEAST_BLOCKS = 8
"""Blocks of a sequence whose first one is brought to L2 ahead."""
HELD = 96
"""Elements of partial results that a thread loads at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodePlan(TilePlan):
    """What a decode attention kernel is specialised on, with a cache of either kind. `page` is the number of positions in a
    page of the cache, 0 where a sequence's lie behind one another. `group` is the number of query heads in a tile, as a power
    of two. With `narrow` the cache holds 8-bit floats, which the producer's threads convert."""

    page: int
    group: int
    narrow: bool = False

    @property
    def tile_heads(self) -> int:
        """Query heads of a tile."""
        return ROWS // self.length

    @property
    def alone(self) -> bool:
        """Whether a tile surely has all query heads that share a head of keys."""
        return self.group < self.tile_heads

    @property
    def tile_queries(self) -> int:
        """Queries of a tile of one head."""
        return self.length

    @property
    def used(self) -> int:
        """Queries of a tile, a power of two: the others are zeros. At least 4, one for each warp."""
        return max(self.group * self.length, 4)

    @property
    def q_block(self) -> tuple[int, int]:
        """A tile's queries."""
        return self.columns, self.size

    @property
    def o_block(self) -> tuple[int, int]:
        """A tile's results."""
        return self.columns, self.v_size

    @property
    def q_box(self) -> tuple[int, ...]:
        """A tile's queries, as TMA loads them."""
        return 1, 1, self.columns // self.length, self.length, self.size

    @property
    def o_box(self) -> tuple[int, ...]:
        """A tile's results, as TMA stores them."""
        return 1, 1, self.columns // self.length, self.length, self.v_size

    @property
    def arrivals(self) -> int:
        """Arrivals on the barrier of a slot: one of a TMA load, or of each thread that copies."""
        return 32 * self.warps[-1] if self.gathered else 1

    @property
    @abstractmethod
    def together(self) -> int:
        """Blocks that are visited together."""

    @property
    def many(self) -> int:
        """Partial results that are loaded at a time."""
        return max(1, min(16, HELD * 128 // (self.used * self.wide)))

    @property
    def wide(self) -> int:
        """Columns of partial results that are combined at a time."""
        return self.v_size if self.used * self.v_size <= 8192 else self.v_size // 2

    def line_registers(self, elements: int, size: int | None = None) -> Any:
        """A layout of rows of values, or of rows of `size` elements, of which a thread has some neighbouring ones."""
        count = (self.v_size if size is None else size) // elements
        lanes = min(32, count & -count)
        return gl.BlockedLayout([1, elements], [32 // lanes, lanes], [4, 1], [1, 0])

    @property
    @abstractmethod
    def gathered(self) -> bool:
        """Whether threads copy keys and values, and not TMA."""

    @property
    @abstractmethod
    def columns(self) -> int:
        """Rows of a tile's memory, which hold its queries."""

    @property
    @abstractmethod
    def shares(self) -> int:
        """Consumers that have different columns of the results."""


@dataclass(frozen=True, slots=True, eq=False)
class CachePlan(DecodePlan):
    """A plan with caches of keys and of values: one consumer, whose MMAs have keys, or columns of values, as rows."""

    @property
    def gathered(self) -> bool:
        """By `cp.async`, which reads memory 9% faster than TMA in any boxes (H200)."""
        return not self.narrow

    @property
    def shares(self) -> int:
        """One."""
        return 1

    @property
    def together(self) -> int:
        """One."""
        return 1

    @property
    def warps(self) -> tuple[int, ...]:
        """Warps of the producer."""
        return (4,)

    @property
    def registers(self) -> tuple[int, ...]:
        """Registers of the producer's threads."""
        return (PRODUCER_REGISTERS,)

    @property
    def columns(self) -> int:
        """Columns of an MMA: the queries of a tile, and 8 at least."""
        return max(self.used, 8)

    @property
    def v_room(self) -> int:
        """Columns of a block of values, which are the rows of an MMA: a multiple of 64."""
        return -(-self.v_size // ROWS) * ROWS

    @property
    def v_block(self) -> tuple[int, int]:
        """A block of values."""
        return self.block_n, self.v_room

    @property
    def p_block(self) -> tuple[int, int]:
        """The weights of a block."""
        return self.columns, self.block_n

    @property
    def s_registers(self) -> Any:
        """The layout of scores, [keys, queries]."""
        return self.sums_of(self.columns)

    @property
    def o_registers(self) -> Any:
        """The layout of results, [columns of values, queries]."""
        return self.s_registers

    @property
    def q_stages(self) -> int:
        """Slots of queries: two where shared memory has room."""
        return 2 if self._bytes(2) <= SHARED_BYTES else 1

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a program."""
        return self._bytes(self.q_stages)

    def _bytes(self, q_stages: int) -> int:
        elements = q_stages * self.columns * self.size + self.block_n * self.columns
        elements += self.stages * self.block_n * (self.size + self.v_room)
        return elements * self.dtype.itemsize + BARRIER_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class LatentPlan(DecodePlan):
    """A plan with a latent cache: keys of `size` elements, of which each of two consumers has `v_size` as values."""

    @property
    def gathered(self) -> bool:
        """Each position, where TMA cannot fill pieces of a block by pages."""
        if not self.page or self.page % self.block_n == 0:
            return False
        return self.page % PIECE > 0 or self.block_n % self.page > 0

    @property
    def shares(self) -> int:
        """All consumers."""
        return self.consumers

    @property
    def together(self) -> int:
        """A pair, of which each consumer has the scores of one."""
        return self.consumers

    @property
    def piece(self) -> int:
        """Rows that a TMA load fills: a block, or of a smaller page all."""
        return min(self.page or self.block_n, self.block_n)

    @property
    def pieces(self) -> int:
        """Pieces of a block."""
        return self.block_n // self.piece

    @property
    def columns(self) -> int:
        """The rows of an MMA."""
        return ROWS

    @property
    def s_registers(self) -> Any:
        """The layout of scores, [queries, keys]."""
        return self.sums_of(self.block_n)

    @property
    def o_registers(self) -> Any:
        """The layout of results, [queries, columns of values]."""
        return self.sums_of(self.v_size)

    @property
    def warps(self) -> tuple[int, ...]:
        """Warps of the second consumer, and of the producer."""
        return (4, 4 if self.gathered else 1)

    @property
    def registers(self) -> tuple[int, ...]:
        """Registers of their threads."""
        return LATENT_REGISTERS[self.warps[1]]

    @property
    def q_stages(self) -> int:
        """Slots of queries."""
        return 1

    @property
    def pairs(self) -> int:
        """Pairs of blocks in shared memory."""
        return max(1, self.stages // 2)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a program."""
        elements = ROWS * self.size + 2 * self.pairs * self.block_n * self.size
        return elements * self.dtype.itemsize + 2 * self.consumers * ROWS * 4 + BARRIER_BYTES


def heads_abreast(kv_heads: int, blocks: int, tiles: int, programs: int) -> int:
    """Heads of keys that a team visits side by side, where each has `blocks` blocks and its queries `tiles` tiles: as many as
    possible, a divisor of all, as long as teams of that size do not make the longest run longer than SLACK times."""
    shortest = -(-kv_heads * blocks // max(1, programs // tiles))
    for count in range(kv_heads, 1, -1):
        teams = programs // (tiles * count)
        if kv_heads % count == 0 and teams and -(-(kv_heads // count) * blocks // teams) <= SLACK * shortest:
            return count
    return 1


def guesses(batch: int, keys: int, plan: DecodePlan) -> bool:
    """Whether programs bring blocks to L2 before the launch before is complete. That takes the consumer a microsecond, or more
    where lengths are read in turns: too long if sequences are short."""
    return batch <= CHUNK and keys >= LEAST_BLOCKS * plan.block_n


@lru_cache(maxsize=1024)
def make_decode_plan(
    dtype: str,
    size: int,
    v_size: int,
    config: AttentionConfig,
    parts: Parts,
    length: int,
    page: int,
    members: int,
    narrow: bool,
) -> DecodePlan:  # fmt: skip
    """The plan of a decode attention kernel; equal plans are one object, which launches compare by identity."""
    group = min(ROWS // length, 1 << (members - 1).bit_length())
    if (size, v_size) == LATENT:
        return LatentPlan(DTYPES[dtype], size, v_size // config.consumers, config, parts, length, page, group)
    return CachePlan(DTYPES[dtype], size, v_size, config, parts, length, page, group, narrow)
