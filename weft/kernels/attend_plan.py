"""What an attention kernel is compiled for: tiles by head size, kept as data, and the layouts that follow from them. Plans of
decode attention (`decode_plan`) begin with the same rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from weft import language as gl
from weft.errors import attention as errors
from weft.errors import fail
from weft.kernels.plan import DTYPES

ROWS = 64
"""Query rows of a consumer: a warpgroup's MMA has 64."""
SHARED_BYTES = 232448
"""Shared memory of a program on Hopper (CUDA C++ Programming Guide, compute capability 9.0: 227 KiB)."""
BARRIER_BYTES = 1024
ONES = 8
"""Columns of ones beside values: an MMA has a multiple of 8."""
REGISTERS = {1: (24, 24), 2: (240, 24, 24), 3: (160, 160, 32, 32)}
"""Registers of a thread of the second and third consumer, of the producer and of the scheduler, by the number of consumers. The
first consumer has as many as the others: four warpgroups have 512 together, and the last one holds producer and scheduler."""


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """The configuration of an attention kernel.

    A tile has 64 query rows for each of 1 to 3 `consumers`, and blocks of `block_n` keys, a multiple of 16, in `stages` slots.
    With `late` the wait for the results stands behind the exponentials of a block instead of behind its row maxima; with
    `rescale_first` results are scaled before their MMA is issued. With `turns` consumers issue their MMAs one after another, so
    that the exponentials of one run during the MMAs of the others (ping-pong). With `ahead` the first scores of a tile are
    computed while the results of the one before are stored; there are two slots of queries then, and one more of keys."""

    block_n: int
    consumers: int = 2
    stages: int = 2
    late: bool = False
    rescale_first: bool = False
    turns: bool = False
    ahead: bool = False

    def __post_init__(self) -> None:
        rules: dict[str, tuple[Any, bool, str]] = {
            "block_n": (
                self.block_n,
                16 <= self.block_n <= 256 and self.block_n % 16 == 0,
                "a multiple of 16 up to 256",
            ),
            "consumers": (self.consumers, self.consumers in REGISTERS, "1, 2 or 3"),
            "stages": (self.stages, 2 <= self.stages <= 8, "from 2 to 8"),
        }
        for field, (value, good, rule) in rules.items():
            if not good:
                raise fail(errors.CONFIG, field=field, value=value, rule=rule)


TILES: dict[tuple[int, int], tuple[AttentionConfig, AttentionConfig]] = {
    (64, 64): (AttentionConfig(128, 3, turns=True, ahead=True), AttentionConfig(128, stages=4, ahead=True)),
    (96, 96): (AttentionConfig(128), AttentionConfig(128)),
    (128, 128): (AttentionConfig(128), AttentionConfig(128)),
    (192, 128): (AttentionConfig(128, rescale_first=True), AttentionConfig(128, rescale_first=True)),
    (256, 256): (AttentionConfig(64), AttentionConfig(64)),
}
"""Configurations by head size of queries and keys, and of values: without a mask, and with one. Those of 64 and 128 are the
fastest of several on an H200 (`benchmarks/attention.py`); at 256, 80 keys are 1 % faster, but spill. The others follow them.
Tiles begun ahead are faster at 64, with a causal mask by 3 %, and not at 96 and 128.
Registers bound the tiles at head size 64 and 96, where a third consumer leaves 160 to a thread; shared memory does above."""

NARROW_TILES: dict[tuple[int, int], tuple[AttentionConfig, AttentionConfig]] = {
    (64, 64): (AttentionConfig(128, 3, turns=True, ahead=True), AttentionConfig(128, 3, turns=True, ahead=True)),
    (96, 96): (AttentionConfig(128, 3, turns=True, ahead=True), AttentionConfig(128)),
    (128, 128): (AttentionConfig(192, ahead=True), AttentionConfig(128, stages=3, ahead=True)),
    (192, 128): (AttentionConfig(192), AttentionConfig(128)),
    (256, 256): (AttentionConfig(128, rescale_first=True), AttentionConfig(128, rescale_first=True)),
}
"""Those of float8, the fastest of several on an H200. Weights of 8 bits leave registers for wider blocks of keys, which need
fewer exponentials of maxima and fewer waits for each key. With a mask they have more to leave out."""

LONG_TILES = {(128, 128): AttentionConfig(224, ahead=True)}
LONG = 12_288
"""Those of float8 with a causal mask and nothing else from so many queries on, most of whose blocks need no mask: 5 % faster
than blocks of 128 keys at 16,384 queries, and from 0 % at 8,192 to 8 % at 1,000 slower (H200)."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a kernel's text.

    `right`, `left`, `prefix` and `documents` bound the keys that a query sees; `sequences`: lengths are variable. `softcap`,
    `alibi` and `score_mod` change scores, `mask_mod` masks some, `sinks` add to sums. `lse`: log-sum-exp is stored. `blocks`:
    tiles visit the blocks of keys that a block mask lists for them. `out` is the type of results, where it is not that of q.
    `key_scales`: every block of keys has a scale."""

    right: bool = False
    left: bool = False
    prefix: bool = False
    documents: bool = False
    sequences: bool = False
    softcap: bool = False
    alibi: bool = False
    sinks: bool = False
    lse: bool = False
    score_mod: Any = None
    mask_mod: Any = None
    blocks: bool = False
    out: Any = None
    key_scales: bool = False

    @property
    def bounded(self) -> bool:
        """True if queries see different intervals of keys."""
        return self.right or self.left or self.documents

    @property
    def exact(self) -> bool:
        """True if sums of weights are results of their own, and not only divisors of results."""
        return self.lse or self.sinks

    @property
    def masks(self) -> bool:
        """True if more blocks than the last one may need a mask."""
        return self.bounded or self.mask_mod is not None


@dataclass(frozen=True, slots=True, eq=False)
class TilePlan(ABC):
    """What the plans of all attention kernels hold: types, head sizes, and blocks of keys. The 64 rows of a consumer are
    `length` consecutive queries of each of some query heads, which share their keys and values; consumers with different rows
    lie `heads_step` heads or `queries_step` queries apart.

    A plan adds rules to these, and defines those that are abstract. It has no other rule of the same name."""

    dtype: Any
    size: int
    v_size: int
    config: AttentionConfig
    parts: Parts
    length: int

    @property
    def rows(self) -> int:
        """Rows of a consumer."""
        return ROWS

    @property
    def consumers(self) -> int:
        """Consumer warpgroups."""
        return self.config.consumers

    @property
    def heads_step(self) -> int:
        """Query heads from a consumer to the next."""
        return ROWS // self.length if self.length < ROWS else 0

    @property
    def queries_step(self) -> int:
        """Queries from a consumer to the next."""
        return 0 if self.length < ROWS else ROWS

    @property
    def stages(self) -> int:
        """Slots of values, and of keys in kernels that do not start ahead."""
        return self.config.stages

    @property
    def block_n(self) -> int:
        """Keys of a block."""
        return self.config.block_n

    @property
    def axes(self) -> tuple[int, int, int]:
        """The axes of a block's columns in registers, in lanes, and again in registers; in one, where no tile has such axes."""
        return (self.block_n // 8, 4, 2) if self.block_n % 64 == 0 else (self.block_n, 1, 1)

    @property
    def float8(self) -> bool:
        """True for queries of float8: with scales, and values [head size, keys] (`weft.kernels.device.attend_narrow`)."""
        return self.dtype.itemsize == 1

    @property
    def ones(self) -> bool:
        """True if values of float8 have further columns of ones, so that the second product has the sums of weights too: where
        an MMA has room for them, and only results are divided by the sums, whose weights are rounded."""
        return self.float8 and not self.parts.exact and self.v_size + ONES <= 256

    @property
    def k_block(self) -> tuple[int, int]:
        """A block of keys."""
        return self.block_n, self.size

    def layout(self, block: tuple[int, ...], dtype: Any = None) -> Any:
        """The shared-memory layout of a block of q, k and v, or of another type."""
        return gl.NVMMASharedLayout.get_default_for(block, dtype or self.dtype)

    @property
    def out_dtype(self) -> Any:
        """The type of results."""
        return self.parts.out or self.dtype

    @property
    def q_dtype(self) -> Any:
        """The type by which the memory of queries is allocated, which then takes results."""
        return self.out_dtype if self.float8 else self.dtype

    @property
    def q_room(self) -> tuple[int, int]:
        """The block by which it is allocated: the larger one."""
        return self.o_block if self.float8 else self.q_block

    @property
    def q_layout(self) -> Any:
        """Its layout."""
        return gl.NVMMASharedLayout.get_default_for(self.q_room, self.q_dtype)

    @property
    def ahead(self) -> bool:
        """True if the first scores of a tile are computed at the end of the tile before. Without one more slot of keys
        consumers would wait for them with results that they could store."""
        return self.config.ahead

    @property
    def k_stages(self) -> int:
        """Slots of keys."""
        return self.stages + self.ahead

    def sums_of(self, columns: int) -> Any:
        """The layout of a warpgroup's accumulator with `columns` columns."""
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 32 // self.dtype.itemsize])

    @property
    def p_registers(self) -> Any:
        """The layout of weights, as the left operand of the MMA of results."""
        return gl.DotOperandLayout(0, self.o_registers, 4 // self.dtype.itemsize)

    @property
    @abstractmethod
    def tile_heads(self) -> int:
        """Query heads of a tile."""

    @property
    @abstractmethod
    def tile_queries(self) -> int:
        """Queries of a tile of one head."""

    @property
    @abstractmethod
    def warps(self) -> tuple[int, ...]:
        """Warps of the further consumers, and of the producer."""

    @property
    @abstractmethod
    def registers(self) -> tuple[int, ...]:
        """Registers of their threads."""

    @property
    @abstractmethod
    def arrivals(self) -> int:
        """Arrivals on the barrier of a slot of keys or values that complete it."""

    @property
    @abstractmethod
    def q_stages(self) -> int:
        """Slots of queries."""

    @property
    @abstractmethod
    def q_block(self) -> tuple[int, int]:
        """Queries in shared memory: a consumer's, or a tile's."""

    @property
    @abstractmethod
    def o_block(self) -> tuple[int, int]:
        """Results there."""

    @property
    @abstractmethod
    def q_box(self) -> tuple[int, ...]:
        """Queries, as TMA loads them: batch, heads of keys, query heads of each, queries, head size."""

    @property
    @abstractmethod
    def o_box(self) -> tuple[int, ...]:
        """Results, as TMA stores them."""

    @property
    @abstractmethod
    def s_registers(self) -> Any:
        """The layout of scores."""

    @property
    @abstractmethod
    def o_registers(self) -> Any:
        """The layout of results."""

    @property
    @abstractmethod
    def shared_bytes(self) -> int:
        """Shared memory of a program."""


@dataclass(frozen=True, slots=True, eq=False)
class AttentionPlan(TilePlan):
    """Everything that an attention kernel is specialised on."""

    @property
    def arrivals(self) -> int:
        """One, of a TMA load."""
        return 1

    @property
    def tickets(self) -> bool:
        """True if tiles differ in length, and programs take them by tickets."""
        return self.parts.bounded or self.parts.sequences or self.parts.blocks

    @property
    def tile_heads(self) -> int:
        """Query heads of a tile."""
        return max(self.consumers * self.heads_step, 1)

    @property
    def tile_queries(self) -> int:
        """Queries of a tile of one head."""
        return max(self.consumers * self.queries_step, self.length)

    @property
    def warps(self) -> tuple[int, ...]:
        """Warps of the further consumers, of the producer, and of the scheduler."""
        return (*[4] * (self.consumers - 1), 1, 1)

    @property
    def registers(self) -> tuple[int, ...]:
        """Registers of their threads."""
        return REGISTERS[self.consumers]

    # Shared memory

    @property
    def q_block(self) -> tuple[int, int]:
        """A consumer's queries."""
        return ROWS, self.size

    @property
    def o_columns(self) -> int:
        """Columns of the second product."""
        return self.v_size + ONES if self.ones else self.v_size

    @property
    def v_block(self) -> tuple[int, int]:
        """A block of values."""
        return (self.o_columns, self.block_n) if self.float8 else (self.block_n, self.v_size)

    @property
    def o_block(self) -> tuple[int, int]:
        """A consumer's results."""
        return ROWS, self.v_size

    @property
    def q_box(self) -> tuple[int, ...]:
        """A consumer's queries, as TMA loads them: batch, heads of keys, query heads of each, queries, head size."""
        return 1, 1, ROWS // self.length, self.length, self.size

    @property
    def o_box(self) -> tuple[int, ...]:
        """A consumer's results, as TMA stores them."""
        return 1, 1, ROWS // self.length, self.length, self.v_size

    @property
    def q_stages(self) -> int:
        """Slots of queries: two where shared memory has room, so that those of the next tile arrive during this one."""
        return 2 if self.ahead or self._bytes(2) <= SHARED_BYTES else 1

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a program."""
        return self._bytes(self.q_stages)

    def _bytes(self, q_stages: int) -> int:
        rows, columns = self.q_room
        queries = q_stages * self.consumers * rows * columns * self.q_dtype.itemsize
        blocks = self.block_n * (self.k_stages * self.size + self.stages * self.o_columns) * self.dtype.itemsize
        return queries + blocks + BARRIER_BYTES

    # Registers

    @property
    def s_registers(self) -> Any:
        """The layout of scores."""
        return self.sums_of(self.block_n)

    @property
    def o_registers(self) -> Any:
        """The layout of results."""
        return self.sums_of(self.o_columns)


@lru_cache(maxsize=1024)
def make_attention_plan(
    dtype: str, size: int, v_size: int, config: AttentionConfig, parts: Parts, length: int
) -> AttentionPlan:
    """The plan of an attention kernel; equal plans are one object, which launches compare by identity."""
    return AttentionPlan(DTYPES[dtype], size, v_size, config, parts, length)


def last_columns(columns: int, rows: int, processors: int) -> int:
    """How many of the last columns of tiles are computed behind all others, where the work of a tile decreases along the
    columns: they have about a wave's part of the work of all `rows`, which evens out when processors finish."""
    return int(columns * min(1.0, (processors / (rows * columns)) ** 0.5))
