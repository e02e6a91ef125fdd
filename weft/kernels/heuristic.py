"""The configuration of a product nobody asked for one of: a row of the tuned table, else what a simple model finds fastest.

The model counts what a round of programs takes, in cycles of a multiprocessor: products at the rate of tensor cores or bytes
at the rate of memory, whichever is slower, and what a tile costs beside them. Rates are those of `weft.kernels.machines`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from weft.kernels.config import (
    LEAST_SHARED,
    LEAST_WIDTH,
    PIECE_BYTES,
    PROGRAM_BYTES,
    PROGRAMS_BYTES,
    SHARED_BYTES,
    TENSOR_ROWS,
    TENSOR_VARIANTS,
    WIDTHS,
    MatmulConfig,
    best_group,
    most_stages,
    most_sums,
)  # fmt: skip
from weft.kernels.machines import HOPPER, Machine
from weft.kernels.tuned import tuned

MOST_SPLITS = 32
MOST_STAGES = 16
LEAST_BLOCKS = 4
"""Blocks along K of a part of the sum at least, or the pipeline never fills."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What the choice depends on: sizes, bytes of an element and of one of the output, and whether both operands have
    descriptors; `programs` is how many multiprocessors the device has, and `fast` whether sums stay in the tensor core.
    `slow_a` and `slow_b` say that TMA reads an operand at half its speed, and `unit` in pieces of how many bytes at
    least warps copy one. `machine` is the generation that the device is of."""

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
    machine: Machine = HOPPER

    def stored_by(self, config: MatmulConfig) -> int:
        """Bytes of an element that the kernel stores: of a part's sum, or of the output."""
        return 4 if config.splits > 1 else self.out_itemsize

    @property
    def turned(self) -> Problem:
        """The problem whose output is the transpose of this one's."""
        return replace(self, m=self.n, n=self.m, slow_a=self.slow_b, slow_b=self.slow_a)


@lru_cache(maxsize=4096)
def choose(problem: Problem) -> MatmulConfig:
    """The configuration for a problem."""
    slow, measured = problem.slow_b, problem.described and problem.machine is HOPPER
    found = tuned(problem.dtype, problem.m, problem.n, problem.k, slow) if measured else None
    if found is not None and _works(problem, found):
        return found
    return min(candidates(problem), key=lambda config: cost(problem, config))


def _works(problem: Problem, config: MatmulConfig) -> bool:
    """Whether a configuration that was measured with outputs as wide as the operands holds these sums and outputs."""
    fits = config.shared_bytes(problem.itemsize, problem.stored_by(config)) <= SHARED_BYTES
    return fits and config.sums_per_thread <= most_sums(problem.fast)


def candidates(problem: Problem) -> Iterator[MatmulConfig]:
    """Configurations worth a try."""
    for swap in (False, True) if problem.m < problem.machine.rows < problem.n else (False,):
        seen = problem.turned if swap else problem
        for tile in _tiles(seen):
            shape = MatmulConfig(**tile, block_k=PIECE_BYTES // problem.itemsize, swap=swap)
            shape = replace(shape, group=best_group(seen.programs // shape.cluster, shape.rows, shape.block_n))
            if shape.sums_per_thread <= most_sums(problem.fast):
                for splits in _splits(seen, shape):
                    yield from _staged(seen, replace(shape, splits=splits))


def _tiles(problem: Problem) -> Iterator[dict[str, Any]]:
    """Variants with their tiles, by each way to shared memory."""
    widths = [n for n in WIDTHS if n == WIDTHS[-1] or n // 2 < problem.n]
    if problem.machine is not HOPPER:
        yield from ({**tile, "pack": not problem.described} for tile in _in_tensor_memory(problem.n))
    elif problem.described:
        yield from _described(widths)
    else:
        yield from ({**tile, "pack": True} for tile in _described(widths))
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


def _in_tensor_memory(columns: int) -> Iterator[dict[str, Any]]:
    for n in (n for n in WIDTHS if n == LEAST_WIDTH or LEAST_WIDTH < n < 2 * columns):
        for cluster in (1, 2) if n >= LEAST_SHARED else (1,):
            for variant in TENSOR_VARIANTS:
                yield {"variant": variant, "block_m": TENSOR_ROWS, "block_n": n, "cluster": cluster}


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
    """Tiles of the output, of which a block of threads computes one at a time."""
    return config.cluster * -(-problem.m // config.rows) * -(-problem.n // config.block_n)


def blocks_of(problem: Problem, config: MatmulConfig) -> int:
    """Blocks along K of a part of the sum."""
    blocks = -(-problem.k // config.block_k)
    return -(-blocks // config.splits)


def alone(config: MatmulConfig) -> int:
    """How large a part of a multiprocessor's registers, or of its tensor memory, a program takes, in halves."""
    return 2 if config.sums_per_thread > 64 or config.consumers > 1 or config.in_tensor_memory else 1


def residents(config: MatmulConfig, itemsize: int, out_itemsize: int) -> int:
    """Programs that a multiprocessor holds at a time, by their shared memory; large tiles have it to themselves."""
    if alone(config) > 1:
        return 1
    return max(1, min(4, PROGRAMS_BYTES // (config.shared_bytes(itemsize, out_itemsize) + PROGRAM_BYTES)))


def cost(problem: Problem, config: MatmulConfig) -> float:
    """Cycles that a product takes, by the model."""
    seen, rates = problem.turned if config.swap else problem, problem.machine.rates
    size = problem.itemsize
    tiles = tiles_of(seen, config) * config.splits
    depth = blocks_of(seen, config) * config.block_k
    beside = min(residents(config, size, problem.stored_by(config)), -(-tiles // problem.programs))
    rounds = -(-tiles // (problem.programs * beside))
    busy = min(tiles, problem.programs)
    held = config.block_m + config.columns_held
    products = config.block_m * max(config.block_n, rates.least_width) * depth / (rates.products * 2 / size)
    rate = min(rates.cache, beside * config.stages * held * config.block_k * size / rates.latency)
    slow_a, slow_b = (seen.slow_a, seen.slow_b) if seen.described else (False, False)
    # What lies beyond the operands is not read.
    rows = min(config.block_m, seen.m) * (1 + slow_a) + min(config.columns_held, seen.n) * (1 + slow_b)
    tile = max(products, held * depth * size / rates.shared, rows * depth * size / rate)
    if not (seen.described or config.pack):
        tile = max(tile, held * depth * rates.copied * size / seen.unit)
    # All programs together read each byte once from memory, and blocks in common from the cache.
    once = (seen.m + seen.n) * seen.k * size / min(rates.memory * problem.programs, rate * busy)
    stored = config.block_m * config.block_n / rates.stored
    added = 0.0
    if config.splits > 1:
        moved = seen.m * seen.n * (config.splits * 8 + problem.out_itemsize)
        added = rates.launch + moved / (rates.cache * problem.programs)
    if config.pack:
        moved = 3 * (seen.m + seen.n) * seen.k * size
        added += rates.launch + moved / (rates.memory * problem.programs)
    # Some variants store a tile while they multiply the next one.
    overlapping = config.in_tensor_memory or config.variant == "ping_pong"
    if config.in_tensor_memory:
        tile = max(tile, stored)
    time = max(rounds * beside * tile, once) + (rates.tile + stored) * (1 if overlapping else rounds) + added
    return time * (1 + rates.uneven) if rounds > 1 and config.variant != "tcgen05_clc" else time
