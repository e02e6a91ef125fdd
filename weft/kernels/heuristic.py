"""The default configuration of a matmul: a row of the tuned table, else the fastest by a roofline model.

The model estimates the cycles of a wave of programs: MMAs at tensor-core rate or loads at memory rate, whichever is slower,
plus the fixed costs of a tile (prologue, epilogue). Rates are those of `weft.kernels.machines`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import nsmallest
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
    most_accumulators,
    most_stages,
)  # fmt: skip
from weft.kernels.machines import HOPPER, Machine
from weft.kernels.tuned import tuned

MOST_SPLITS = 32
MOST_STAGES = 16
LEAST_BLOCKS = 4
"""Minimum blocks along K of a split; with fewer the pipeline never fills."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The inputs of the choice: sizes, element sizes of operands and output, and `described`: TMA can read both operands.

    `programs` is the device's number of multiprocessors. `fast`: accumulators stay in the tensor core (no promotion). `slow_a`
    and `slow_b`: TMA reads the operand at half speed. `unit`: bytes per copy when warps copy the operands themselves.
    `machine`: the GPU generation."""

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
        """Size of the elements that the kernel stores: partial results in split-K, otherwise the output's."""
        return 4 if config.splits > 1 else self.out_itemsize

    @property
    def transposed(self) -> Problem:
        """The problem with the transposed output."""
        return replace(self, m=self.n, n=self.m, slow_a=self.slow_b, slow_b=self.slow_a)


@lru_cache(maxsize=4096)
def choose(problem: Problem) -> MatmulConfig:
    """The configuration for a problem."""
    slow, measured = problem.slow_b, problem.described and problem.machine is HOPPER
    found = tuned(problem.dtype, problem.m, problem.n, problem.k, slow) if measured else None
    if found is not None and _fits(problem, found):
        return found
    return min(candidates(problem), key=lambda config: cost(problem, config))


def ranked(problem: Problem, count: int) -> list[MatmulConfig]:
    """The model's `count` best configurations, best first."""
    return nsmallest(count, candidates(problem), key=lambda config: cost(problem, config))


def _fits(problem: Problem, config: MatmulConfig) -> bool:
    """Whether a tuned configuration fits this problem. The table was measured with outputs as wide as the operands; a wider
    output or promoted accumulators may exceed shared memory or registers."""
    fits = config.shared_bytes(problem.itemsize, problem.stored_by(config)) <= SHARED_BYTES
    return fits and config.accumulators_per_thread <= most_accumulators(problem.fast)


def candidates(problem: Problem) -> Iterator[MatmulConfig]:
    """Configurations to compare."""
    for swap in (False, True) if problem.m < problem.machine.rows < problem.n else (False,):
        seen = problem.transposed if swap else problem
        for tile in _tiles(seen):
            shape = MatmulConfig(**tile, block_k=PIECE_BYTES // problem.itemsize, swap=swap)
            shape = replace(shape, group=best_group(seen.programs // shape.cluster, shape.rows, shape.block_n))
            if shape.accumulators_per_thread <= most_accumulators(problem.fast):
                for splits in _splits(seen, shape):
                    yield from _staged(seen, replace(shape, splits=splits))


def _tiles(problem: Problem) -> Iterator[dict[str, Any]]:
    """Variants with their tile shapes, for the paths to shared memory that the operands allow."""
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
    """The configuration with the stages that fit at one resident program per multiprocessor, and those that fit at two."""
    blocks = blocks_of(problem, config)
    known: set[int] = set()
    for programs in (1, 2) if halves_occupied(config) < 2 else (1,):
        found = most_stages(config, problem.itemsize, problem.stored_by(config), MOST_STAGES, programs)
        # More stages than blocks along K would never be used.
        stages = min(found, max(blocks, LEAST_BLOCKS))
        if stages not in known and (stages > 2 or programs == 1):
            known.add(stages)
            yield replace(config, stages=stages)


def _splits(problem: Problem, config: MatmulConfig) -> Iterator[int]:
    """Numbers of splits of K that leave none empty."""
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
    """Number of output tiles, counted per CTA."""
    return config.cluster * -(-problem.m // config.rows) * -(-problem.n // config.block_n)


def blocks_of(problem: Problem, config: MatmulConfig) -> int:
    """Blocks along K of one split."""
    blocks = -(-problem.k // config.block_k)
    return -(-blocks // config.splits)


def halves_occupied(config: MatmulConfig) -> int:
    """Halves of a multiprocessor's registers, or tensor memory, that a program occupies (1 or 2)."""
    return 2 if config.accumulators_per_thread > 64 or config.consumers > 1 or config.in_tensor_memory else 1


def residents(config: MatmulConfig, itemsize: int, out_itemsize: int) -> int:
    """Resident programs per multiprocessor (occupancy), limited by registers, tensor memory and shared memory."""
    if halves_occupied(config) > 1:
        return 1
    return max(1, min(4, PROGRAMS_BYTES // (config.shared_bytes(itemsize, out_itemsize) + PROGRAM_BYTES)))


def cost(problem: Problem, config: MatmulConfig) -> float:
    """Estimated cycles of a matmul."""
    seen, rates = problem.transposed if config.swap else problem, problem.machine.rates
    size = problem.itemsize
    tiles = tiles_of(seen, config) * config.splits
    depth = blocks_of(seen, config) * config.block_k
    resident = min(residents(config, size, problem.stored_by(config)), -(-tiles // problem.programs))
    waves = -(-tiles // (problem.programs * resident))
    busy = min(tiles, problem.programs)
    held = config.block_m + config.columns_held
    products = config.block_m * max(config.block_n, rates.least_width) * depth / (rates.products * 2 / size)
    rate = min(rates.cache, resident * config.stages * held * config.block_k * size / rates.latency)
    slow_a, slow_b = (seen.slow_a, seen.slow_b) if seen.described else (False, False)
    # TMA does not read out-of-bounds rows.
    rows = min(config.block_m, seen.m) * (1 + slow_a) + min(config.columns_held, seen.n) * (1 + slow_b)
    tile = max(products, held * depth * size / rates.shared, rows * depth * size / rate)
    if not (seen.described or config.pack):
        tile = max(tile, held * depth * rates.copied * size / seen.unit)
    # Lower bound: each byte is read once from DRAM; shared blocks come from L2.
    once = (seen.m + seen.n) * seen.k * size / min(rates.memory * problem.programs, rate * busy)
    stored = config.block_m * config.block_n / rates.stored
    extra = 0.0
    if config.splits > 1:
        moved = seen.m * seen.n * (config.splits * 8 + problem.out_itemsize)
        extra = rates.launch + moved / (rates.cache * problem.programs)
    if config.pack:
        moved = 3 * (seen.m + seen.n) * seen.k * size
        extra += rates.launch + moved / (rates.memory * problem.programs)
    # Variants that overlap the epilogue of a tile with the mainloop of the next pay for it once.
    overlapping = config.in_tensor_memory or config.variant == "ping_pong"
    if config.in_tensor_memory:
        tile = max(tile, stored)
    time = max(waves * resident * tile, once) + (rates.tile + stored) * (1 if overlapping else waves) + extra
    return time * (1 + rates.uneven) if waves > 1 and config.variant != "tcgen05_clc" else time
