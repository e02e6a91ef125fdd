"""The configuration of a product nobody asked for one of: a row of the tuned table, else what a simple model finds fastest.

The model counts what a round of programs takes, in cycles of a multiprocessor: products at the rate of tensor cores or bytes
at the rate of memory, whichever is slower, and what a tile costs beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from weft.kernels.config import PIECE_BYTES, SHARED_BYTES, MatmulConfig, best_group
from weft.kernels.tuned import tuned

MOST_SPLITS = 32
LEAST_BLOCKS = 4
"""Blocks along K of a part of the sum at least, or the pipeline never fills."""
SMALL_M = 64
"""Rows of a up to which the transpose of the output is computed: then an instruction's 64 rows are columns of b."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What the choice depends on: sizes, bytes of an element and of one of the output, and whether both operands have
    descriptors; `programs` is how many multiprocessors the device has."""

    m: int
    n: int
    k: int
    dtype: str
    itemsize: int
    out_itemsize: int
    described: bool
    programs: int

    @property
    def turned(self) -> Problem:
        """The problem whose output is the transpose of this one's."""
        return replace(self, m=self.n, n=self.m)


# Of an H100 or H200, for each multiprocessor and cycle: products of fp16, bytes of memory where all ask for some and where a
# few do, and bytes of the second-level cache.
PRODUCTS_PER_CYCLE = 1600
BYTES_PER_CYCLE = 20.0
BYTES_ALONE = 32.0
CACHE_BYTES_PER_CYCLE = 40.0
TILE_CYCLES = 900
"""What begins and ends a tile: the first blocks' way, and the last pieces' way out, where nothing else goes on."""
LAUNCH_CYCLES = 4500
"""A further kernel, which adds the parts of sums or copies operands."""
COPIED_CYCLES = 0.15
"""What warps take to copy an element to shared memory."""


@lru_cache(maxsize=4096)
def choose(problem: Problem) -> MatmulConfig:
    """The configuration for a problem."""
    found = tuned(problem.dtype, problem.m, problem.n, problem.k) if problem.described else None
    if found is not None:
        return found
    return min(candidates(problem), key=lambda config: cost(problem, config))


def candidates(problem: Problem) -> Iterator[MatmulConfig]:
    """Configurations worth a try, the plain ones first."""
    swap = problem.m <= SMALL_M < problem.n
    seen = problem.turned if swap else problem
    depth = PIECE_BYTES // problem.itemsize
    tiles = list(_tiles(seen, problem.described))
    if not problem.described:
        tiles += [{**tile, "pack": True} for tile in _tiles(seen, described=True)]
    for tile in tiles:
        shape = MatmulConfig(**tile, block_k=depth, swap=swap)
        for splits in _splits(seen, shape):
            config = replace(shape, splits=splits, group=best_group(seen.programs, shape.block_m, shape.block_n))
            out = 4 if splits > 1 else problem.out_itemsize
            yield replace(config, stages=most_stages(config, problem.itemsize, out))


def most_stages(config: MatmulConfig, itemsize: int, out_itemsize: int, limit: int = 8) -> int:
    """Stages that fit in shared memory, at least 2."""
    return next(
        (
            n
            for n in range(limit, 2, -1)
            if replace(config, stages=n).shared_bytes(itemsize, out_itemsize) <= SHARED_BYTES
        ),
        2,
    )


def _tiles(problem: Problem, described: bool) -> Iterator[dict[str, Any]]:
    """Variants with their tiles."""
    widths = [n for n in (256, 128, 64, 32, 16, 8) if n == 8 or n // 2 < problem.n]
    if not described:
        yield from ({"variant": "cooperative", "block_m": 128, "block_n": n} for n in widths if n <= 128)
        return
    for n in widths:
        yield {"variant": "cooperative", "block_m": 128, "block_n": n}
        if n == 128:
            yield {"variant": "ping_pong", "block_m": 128, "block_n": n}
            yield {"variant": "cooperative", "block_m": 256, "block_n": n}
        if n == 256:
            yield {"variant": "ping_pong", "block_m": 64, "block_n": n}
        yield {"variant": "cooperative", "block_m": 64, "block_n": n, "consumers": 1}


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


def residents(config: MatmulConfig, itemsize: int, out_itemsize: int) -> int:
    """Programs that a multiprocessor holds at a time, by their shared memory; large tiles have it to themselves."""
    if config.sums_per_thread > 64 or config.consumers > 1:
        return 1
    return max(1, min(4, SHARED_BYTES // config.shared_bytes(itemsize, out_itemsize)))


def cost(problem: Problem, config: MatmulConfig) -> float:
    """Cycles that a product takes, by the model."""
    seen = problem.turned if config.swap else problem
    tiles = tiles_of(seen, config) * config.splits
    blocks = -(-seen.k // config.block_k)
    depth = -(-blocks // config.splits) * config.block_k
    # An instruction takes 64 rows however narrow the tile; below 64 columns its reading of a is what takes time.
    products = config.block_m * max(config.block_n, 64) * depth / (PRODUCTS_PER_CYCLE * 2 / problem.itemsize)
    nbytes = (config.block_m + config.block_n) * depth * problem.itemsize
    rounds = -(-tiles // problem.programs)
    busy = min(tiles, problem.programs)
    # All programs together read each byte once from memory, and blocks in common from the cache.
    rate = min(BYTES_PER_CYCLE * problem.programs, BYTES_ALONE * busy)
    once = (seen.m + seen.n) * seen.k * problem.itemsize / rate
    tile = max(products, nbytes / CACHE_BYTES_PER_CYCLE)
    alone = TILE_CYCLES * (1 if config.variant == "ping_pong" else rounds)
    added = 0.0
    if config.splits > 1:
        moved = seen.m * seen.n * (config.splits * 8 + problem.out_itemsize)
        added = LAUNCH_CYCLES + moved / (CACHE_BYTES_PER_CYCLE * busy)
    if config.pack:
        added += LAUNCH_CYCLES + 4 * (seen.m + seen.n) * seen.k * problem.itemsize / (
            BYTES_PER_CYCLE * problem.programs
        )
    elif not problem.described:
        # Warps that copy take so long for an element, whichever operand it is of; both are counted.
        tile = max(tile, (config.block_m + config.block_n) * depth * COPIED_CYCLES)
    return max(rounds * tile, once) + alone + added
