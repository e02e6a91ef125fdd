"""The default configuration of a matmul: a row of the tuned table, else the fastest by a roofline model.

The model estimates the cycles of a wave of programs: MMAs at tensor-core rate or loads at memory rate, whichever is slower,
plus the fixed costs of a tile (prologue, epilogue). Rates are those of `weft.kernels.machines`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import nsmallest
from math import ceil
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
    WIDTH_STEP,
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
OUTSIDE = 2
"""What a row out of bounds takes TMA, in rows."""
BLEND = 3.0
"""How far parts that run side by side hide one another: the exponent of the norm that combines them (infinity: the maximum)."""
PARTIAL_BYTES = 4
"""Size of an element of the partial results of split-K."""
OTHER_WIDTHS = {192: 64, 160: 64, 224: 4, 144: 4, 112: 4, 96: 8, 80: 4, 48: 4}
"""Widths of tiles that are no powers of two, and the most columns of tiles for which they are tried."""
LEAST_BLOCKS = 4
"""Minimum blocks along K of a split; with fewer the pipeline never fills."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The inputs of the choice: sizes, element sizes of operands and output, and `described`: TMA can read both operands.

    `programs` is the device's number of multiprocessors. `fast`: accumulators stay in the tensor core (no promotion). `slow_a`
    and `slow_b`: TMA reads the operand at half speed. `unit`: bytes per copy when warps copy the operands themselves.
    `machine`: the GPU generation. `a_rows`, `b_rows`: shared memory holds the operand's blocks contiguous along its rows."""

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
    a_rows: bool = False
    b_rows: bool = False

    def stored_by(self, config: MatmulConfig) -> int:
        """Size of the elements that the kernel stores: partial results in split-K, otherwise the output's."""
        return PARTIAL_BYTES if config.splits > 1 else self.out_itemsize

    @property
    def transposed(self) -> Problem:
        """The problem with the transposed output."""
        slow, rows = (self.slow_b, self.slow_a), (self.b_rows, self.a_rows)
        return replace(self, m=self.n, n=self.m, slow_a=slow[0], slow_b=slow[1], a_rows=rows[0], b_rows=rows[1])


@lru_cache(maxsize=4096)
def choose(problem: Problem) -> MatmulConfig:
    """The configuration for a problem."""
    measured = problem.described and problem.machine is HOPPER and not (problem.slow_a or problem.slow_b)
    found = tuned(problem.dtype, problem.m, problem.n, problem.k) if measured else None
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
    for swap in _orientations(problem):
        seen = problem.transposed if swap else problem
        for tile in _tiles(seen):
            shape = MatmulConfig(**tile, block_k=PIECE_BYTES // problem.itemsize, swap=swap)
            shape = replace(shape, group=best_group(seen.programs // shape.cluster, shape.rows, shape.block_n))
            if shape.accumulators_per_thread <= most_accumulators(problem.fast):
                for splits in _splits(seen, shape):
                    yield from _staged(seen, shape, splits)


def _orientations(problem: Problem) -> tuple[bool, ...]:
    """Whether to compute the output or its transpose: both where the operands' roles matter. Few rows are better columns, of
    which an MMA can have fewer; and an operand that TMA reads slowly is better the one with the smaller block."""
    few = problem.m < 2 * WIDTHS[0] < problem.n and problem.machine is HOPPER
    if few or problem.m < problem.machine.rows < problem.n or problem.slow_a != problem.slow_b:
        return False, True
    return (False,)


def _tiles(problem: Problem) -> Iterator[dict[str, Any]]:
    """Variants with their tile shapes, for the paths to shared memory that the operands allow."""
    widths = _widths(problem)
    if problem.machine is not HOPPER:
        yield from ({**tile, "pack": not problem.described} for tile in _in_tensor_memory(problem.n))
    elif problem.described:
        yield from _described(widths)
        if problem.slow_a or problem.slow_b:
            for n in widths:
                if n >= 128 and n in WIDTHS:
                    yield {"variant": "cooperative", "block_m": 128, "block_n": n, "cluster": 2}
    else:
        yield from ({**tile, "pack": True} for tile in _described(widths))
        for n in widths:
            if n <= 128 and n in WIDTHS:
                yield {"variant": "cooperative", "block_m": 128, "block_n": n}
                yield {"variant": "cooperative", "block_m": 64, "block_n": n, "consumers": 1}
            if n == 64:
                yield {"variant": "cooperative", "block_m": 256, "block_n": n}


def _widths(problem: Problem) -> list[int]:
    """Widths of tiles: powers of two, and those of `OTHER_WIDTHS` that are the narrowest for their number of columns of tiles.

    A block of b that is contiguous along its columns has a swizzle as wide as the largest power of two that divides it, and
    a narrow one costs bandwidth."""
    widths = [n for n in WIDTHS if n == WIDTHS[-1] or n // 2 < problem.n]
    if problem.machine is HOPPER:
        for n, fewest in OTHER_WIDTHS.items():
            across = -(-problem.n // n)
            narrowest = -(-problem.n // across) > n - WIDTH_STEP
            if narrowest and across <= fewest and not (problem.b_rows and n % (PIECE_BYTES // 4)):
                widths.append(n)
    return widths


def _described(widths: list[int]) -> Iterator[dict[str, Any]]:
    for n in widths:
        yield {"variant": "cooperative", "block_m": 128, "block_n": n}
        if 128 < n <= 256:
            yield {"variant": "ping_pong", "block_m": 64, "block_n": n}
        if 64 < n <= 128:
            yield {"variant": "ping_pong", "block_m": 128, "block_n": n}
        if 64 <= n <= 128:
            yield {"variant": "cooperative", "block_m": 256, "block_n": n}
            yield {"variant": "cooperative", "block_m": 128, "block_n": n, "consumers": 1}
        yield {"variant": "cooperative", "block_m": 64, "block_n": n, "consumers": 1}


def _in_tensor_memory(columns: int) -> Iterator[dict[str, Any]]:
    for n in (n for n in WIDTHS if n == LEAST_WIDTH or LEAST_WIDTH < n < 2 * columns):
        for cluster in (1, 2) if n >= LEAST_SHARED else (1,):
            for variant in TENSOR_VARIANTS:
                yield {"variant": variant, "block_m": TENSOR_ROWS, "block_n": n, "cluster": cluster}


def _staged(problem: Problem, config: MatmulConfig, splits: int) -> Iterator[MatmulConfig]:
    """The configuration with splits, and with the stages that fit at one resident program per multiprocessor, and at two."""
    blocks = -(-ceil(problem.k / config.block_k) // splits)
    stored = PARTIAL_BYTES if splits > 1 else problem.out_itemsize
    known = 0
    for programs in (1, 2) if halves_occupied(config) < 2 else (1,):
        found = most_stages(config, problem.itemsize, stored, MOST_STAGES, programs)
        # More stages than blocks along K would never be used.
        stages = min(found, max(blocks, LEAST_BLOCKS))
        if stages != known and (stages > 2 or programs == 1):
            known = stages
            yield replace(config, splits=splits, stages=stages)


def _splits(problem: Problem, config: MatmulConfig) -> Iterator[int]:
    """Numbers of splits of K that leave none empty, with two waves of programs at most."""
    blocks = -(-problem.k // config.block_k)
    most = min(MOST_SPLITS, 2 * problem.programs // tiles_of(problem, config))
    yield 1
    known = {1}
    for wanted in range(2, most + 1):
        each = -(-blocks // wanted)
        if each < LEAST_BLOCKS:
            return
        parts = -(-blocks // each)
        if parts not in known:
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


@dataclass(frozen=True, slots=True)
class Cycles:
    """The modelled parts of a product's time, in cycles of a multiprocessor.

    The first four run side by side, so the slowest counts most: `tensor`: MMAs. `shared`: shared memory that MMAs read.
    `loads`: operands from L2, or copied by warps. `memory`: every byte from DRAM once. `ends`: what nothing overlaps, the fill
    of the pipeline and the epilogue. `passes`: reduction of split-K and packing. `lag`: of the slowest program."""

    tensor: float
    shared: float
    loads: float
    memory: float
    ends: float
    passes: float
    lag: float = 0.0

    @property
    def total(self) -> float:
        """The whole product."""
        side_by_side = sum(part**BLEND for part in (self.tensor, self.shared, self.loads, self.memory)) ** (1 / BLEND)
        return (side_by_side + self.ends) * (1 + self.lag) + self.passes


def cost(problem: Problem, config: MatmulConfig) -> float:
    """Estimated cycles of a matmul."""
    return cycles(problem, config).total


def cycles(problem: Problem, config: MatmulConfig) -> Cycles:
    """The model: what each resource needs for the tiles that the busiest multiprocessor computes."""
    seen, rates = problem.transposed if config.swap else problem, problem.machine.rates
    size, held = problem.itemsize, config.block_m + config.columns_held
    tiles = tiles_of(seen, config) * config.splits
    depth = blocks_of(seen, config) * config.block_k
    resident = min(residents(config, size, problem.stored_by(config)), -(-tiles // problem.programs))
    waves = -(-tiles // (problem.programs * resident))
    slow_a, slow_b = (seen.slow_a, seen.slow_b) if seen.described else (False, False)
    # Each CTA of a cluster loads its part of the block of b.
    rows = _rows_loaded(config.block_m, seen.m, slow_a) + _rows_loaded(config.block_n // config.cluster, seen.n, slow_b)
    flying = min(config.block_m, seen.m) + min(config.columns_held, seen.n)
    rate = min(rates.cache, resident * config.stages * flying * config.block_k * size / rates.latency)
    loads = rows * size / rate
    if not (seen.described or config.pack):
        loads = max(loads, held * rates.copied * size / seen.unit)
    stored = config.block_m * config.block_n / rates.stored
    passes = 0.0
    if config.splits > 1:
        moved = seen.m * seen.n * (config.splits * 8 + problem.out_itemsize)
        passes = rates.launch + moved / (rates.cache * problem.programs)
    if config.pack:
        moved = 3 * (seen.m + seen.n) * seen.k * size
        passes += rates.launch + moved / (rates.memory * problem.programs)
    # Elements along K of all tiles that a multiprocessor computes.
    long = waves * resident * depth
    shared = long * config.rows_read * size / rates.shared
    if config.in_tensor_memory:
        # The epilogue runs beside the next tile's mainloop, and may take longer.
        shared = max(shared, waves * resident * stored)
    return Cycles(
        tensor=long * config.block_m * config.block_n * size / (2 * rates.products),
        shared=shared,
        loads=long * loads,
        # Blocks that several tiles need come from L2.
        memory=(seen.m + seen.n)
        * seen.k
        * size
        / min(rates.memory * problem.programs, rate * min(tiles, problem.programs)),
        ends=(rates.tile + stored) * (1 if config.in_tensor_memory or config.variant == "ping_pong" else waves),
        passes=passes,
        lag=rates.uneven if waves > 1 and config.variant != "tcgen05_clc" else 0.0,
    )


def _rows_loaded(block: int, extent: int, slow: bool) -> int:
    """Rows of a block in units of what TMA needs for a row. Rows out of bounds are not read, but filling them takes longer than
    reading would (seen on an H200, with 3 and 24 rows of 64)."""
    inside = min(block, extent)
    return inside * (1 + slow) + OUTSIDE * (block - inside)
