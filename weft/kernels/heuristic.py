"""The configuration of a product nobody asked for one of: a row of the tuned table, else what a simple model finds fastest.

The model counts what a round of programs takes, in cycles of a multiprocessor: products at the rate of tensor cores or bytes
at the rate of memory, whichever is slower, and what a tile costs beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from weft.kernels.config import (
    PIECE_BYTES,
    PROGRAM_BYTES,
    PROGRAMS_BYTES,
    SHARED_BYTES,
    WIDTHS,
    MatmulConfig,
    best_group,
    most_stages,
    most_sums,
)  # fmt: skip
from weft.kernels.tuned import tuned
from weft.layout.fragments import WARPGROUP_ROWS

MOST_SPLITS = 32
MOST_STAGES = 16
LEAST_BLOCKS = 4
"""Blocks along K of a part of the sum at least, or the pipeline never fills."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What the choice depends on: sizes, bytes of an element and of one of the output, and whether both operands have
    descriptors; `programs` is how many multiprocessors the device has, and `fast` whether sums stay in the tensor core.
    `slow_a` and `slow_b` say that TMA reads an operand at half its speed, and `unit` in pieces of how many bytes at
    least warps copy one."""

    m: int
    n: int
    k: int
    dtype: str
    itemsize: int
    out_itemsize: int
    described: bool
    programs: int
    fast: bool = True
    slow_a: bool = False
    slow_b: bool = False
    unit: int = 16

    def stored_by(self, config: MatmulConfig) -> int:
        """Bytes of an element that the kernel stores: of a part's sum, or of the output."""
        return 4 if config.splits > 1 else self.out_itemsize

    @property
    def turned(self) -> Problem:
        """The problem whose output is the transpose of this one's."""
        return replace(self, m=self.n, n=self.m, slow_a=self.slow_b, slow_b=self.slow_a)


# Of an H100 or H200, for each multiprocessor and cycle: products of fp16, bytes of memory where all ask for some, and bytes of
# the second-level cache.
PRODUCTS_PER_CYCLE = 1650
BYTES_PER_CYCLE = 20.0
CACHE_BYTES_PER_CYCLE = 48.0
LATENCY_CYCLES = 1100
"""From the request for a block to its arrival: what is asked for in that time bounds the rate."""
LEAST_WIDTH = 32
"""Columns below which an instruction takes as long as with so many: it reads a all the same."""
TILE_CYCLES = 900
"""What begins and ends a tile: the first blocks' way, and the last pieces' way out, where nothing else goes on."""
STORED_PER_CYCLE = 40
"""Elements of a tile that leave in a cycle."""
LAUNCH_CYCLES = 3500
"""A further kernel, which adds the parts of sums or copies operands."""
COPIED_CYCLES = 0.15
"""What warps take to copy a piece, of the bytes that are aligned together, to shared memory."""


@lru_cache(maxsize=4096)
def choose(problem: Problem) -> MatmulConfig:
    """The configuration for a problem."""
    slow = problem.slow_b
    found = tuned(problem.dtype, problem.m, problem.n, problem.k, slow) if problem.described else None
    if found is not None and _works(problem, found):
        return found
    return min(candidates(problem), key=lambda config: cost(problem, config))


def _works(problem: Problem, config: MatmulConfig) -> bool:
    """Whether a configuration that was measured with outputs as wide as the operands holds these sums and outputs."""
    fits = config.shared_bytes(problem.itemsize, problem.stored_by(config)) <= SHARED_BYTES
    return fits and config.sums_per_thread <= most_sums(problem.fast)


def candidates(problem: Problem) -> Iterator[MatmulConfig]:
    """Configurations worth a try."""
    for swap in (False, True) if problem.m < WARPGROUP_ROWS < problem.n else (False,):
        seen = problem.turned if swap else problem
        for tile in _tiles(seen):
            group = best_group(seen.programs, tile["block_m"], tile["block_n"])
            shape = MatmulConfig(**tile, block_k=PIECE_BYTES // problem.itemsize, swap=swap, group=group)
            if shape.sums_per_thread <= most_sums(problem.fast):
                for splits in _splits(seen, shape):
                    yield from _staged(seen, replace(shape, splits=splits))


def _tiles(problem: Problem) -> Iterator[dict[str, Any]]:
    """Variants with their tiles, by each way to shared memory."""
    widths = [n for n in WIDTHS if n == WIDTHS[-1] or n // 2 < problem.n]
    if problem.described:
        yield from _described(widths)
    else:
        yield from ({**tile, "pack": True} for tile in _described(widths))
    if not problem.described:
        for n in widths:
            if n <= 128:
                yield {"variant": "cooperative", "block_m": 128, "block_n": n}
                yield {"variant": "cooperative", "block_m": 64, "block_n": n, "consumers": 1}
            if n == 64:
                yield {"variant": "cooperative", "block_m": 256, "block_n": n}


def _described(widths: list[int]) -> Iterator[dict[str, Any]]:
    for n in widths:
        yield {"variant": "cooperative", "block_m": 128, "block_n": n}
        if n == 256:
            yield {"variant": "ping_pong", "block_m": 64, "block_n": n}
        if n == 128:
            yield {"variant": "ping_pong", "block_m": 128, "block_n": n}
        if n in (64, 128):
            yield {"variant": "cooperative", "block_m": 256, "block_n": n}
            yield {"variant": "cooperative", "block_m": 128, "block_n": n, "consumers": 1}
        yield {"variant": "cooperative", "block_m": 64, "block_n": n, "consumers": 1}


def _staged(problem: Problem, config: MatmulConfig) -> Iterator[MatmulConfig]:
    """With as many stages as fit where a multiprocessor runs one program, and as fit where it runs two."""
    blocks = blocks_of(problem, config)
    known: set[int] = set()
    for programs in (1, 2) if alone(config) < 2 else (1,):
        found = most_stages(config, problem.itemsize, problem.stored_by(config), MOST_STAGES, programs)
        # More than the blocks of a part would never be used.
        stages = min(found, max(blocks, LEAST_BLOCKS))
        if stages not in known and (stages > 2 or programs == 1):
            known.add(stages)
            yield replace(config, stages=stages)


def _splits(problem: Problem, config: MatmulConfig) -> Iterator[int]:
    """Numbers of parts that leave none empty."""
    blocks = -(-problem.k // config.block_k)
    tiles = tiles_of(problem, config)
    known: set[int] = set()
    for wanted in range(1, MOST_SPLITS + 1):
        each = -(-blocks // wanted)
        parts = -(-blocks // each)
        if parts not in known and (parts == 1 or (each >= LEAST_BLOCKS and tiles * parts <= 2 * problem.programs)):
            known.add(parts)
            yield parts


def tiles_of(problem: Problem, config: MatmulConfig) -> int:
    """Tiles of the output."""
    return -(-problem.m // config.block_m) * -(-problem.n // config.block_n)


def blocks_of(problem: Problem, config: MatmulConfig) -> int:
    """Blocks along K of a part of the sum."""
    blocks = -(-problem.k // config.block_k)
    return -(-blocks // config.splits)


def alone(config: MatmulConfig) -> int:
    """How large a part of a multiprocessor's registers a program takes, in halves."""
    return 2 if config.sums_per_thread > 64 or config.consumers > 1 else 1


def residents(config: MatmulConfig, itemsize: int, out_itemsize: int) -> int:
    """Programs that a multiprocessor holds at a time, by their shared memory; large tiles have it to themselves."""
    if alone(config) > 1:
        return 1
    return max(1, min(4, PROGRAMS_BYTES // (config.shared_bytes(itemsize, out_itemsize) + PROGRAM_BYTES)))


def cost(problem: Problem, config: MatmulConfig) -> float:
    """Cycles that a product takes, by the model."""
    seen = problem.turned if config.swap else problem
    size = problem.itemsize
    tiles = tiles_of(seen, config) * config.splits
    depth = blocks_of(seen, config) * config.block_k
    beside = min(residents(config, size, problem.stored_by(config)), -(-tiles // problem.programs))
    rounds = -(-tiles // (problem.programs * beside))
    busy = min(tiles, problem.programs)
    products = config.block_m * max(config.block_n, LEAST_WIDTH) * depth / (PRODUCTS_PER_CYCLE * 2 / size)
    asked = beside * config.stages * (config.block_m + config.block_n) * config.block_k * size
    rate = min(CACHE_BYTES_PER_CYCLE, asked / LATENCY_CYCLES)
    slow_a, slow_b = (seen.slow_a, seen.slow_b) if seen.described else (False, False)
    # What lies beyond the operands is not read.
    rows = min(config.block_m, seen.m) * (1 + slow_a) + min(config.block_n, seen.n) * (1 + slow_b)
    tile = max(products, rows * depth * size / rate)
    if not (seen.described or config.pack):
        tile = max(tile, (config.block_m + config.block_n) * depth * COPIED_CYCLES * size / seen.unit)
    # All programs together read each byte once from memory, and blocks in common from the cache.
    once = (seen.m + seen.n) * seen.k * size / min(BYTES_PER_CYCLE * problem.programs, rate * busy)
    ends = TILE_CYCLES + config.block_m * config.block_n / STORED_PER_CYCLE
    added = 0.0
    if config.splits > 1:
        moved = seen.m * seen.n * (config.splits * 8 + problem.out_itemsize)
        added = LAUNCH_CYCLES + moved / (CACHE_BYTES_PER_CYCLE * problem.programs)
    if config.pack:
        moved = 3 * (seen.m + seen.n) * seen.k * size
        added += LAUNCH_CYCLES + moved / (BYTES_PER_CYCLE * problem.programs)
    return max(rounds * beside * tile, once) + ends * (1 if config.variant == "ping_pong" else rounds) + added
