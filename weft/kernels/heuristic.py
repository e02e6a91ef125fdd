"""The default configuration of a matmul: measured on this GPU, else a row of the tuned table, else the fastest by the model of
`weft.kernels.model`.

Candidates are the tile shapes that the operands' paths allow, times the numbers of splits of K, times the numbers of stages
that fit. There are hundreds of them, so they are columns of numbers until one of them is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from weft.kernels import measured
from weft.kernels.config import (
    CLUSTERS,
    LEAST_SENT,
    LEAST_SHARED,
    LEAST_WIDTH,
    MOST_HELD,
    MOST_WIDTH,
    PIECE_BYTES,
    SHARED_BYTES,
    SHARES,
    TENSOR_ROWS,
    TENSOR_VARIANTS,
    WIDTH_STEP,
    WIDTHS,
    MatmulConfig,
    best_group,
    most_accumulators,
    room_for_stages,
)  # fmt: skip
from weft.kernels.explanation import Explanation, Modelled
from weft.kernels.machines import HOPPER, Machine
from weft.kernels.model import Number, Problem, Traits, cycles, cycles_of, tiles_of
from weft.kernels.tuned import tuned
from weft.layout.distributed.fragments import WARPGROUP_ROWS

MOST_SPLITS = 32
LEAST_STAGES, MOST_STAGES = 3, 16
OTHER_WIDTHS = [n for n in range(48, MOST_WIDTH + 1, WIDTH_STEP) if n not in WIDTHS]
"""Widths of tiles that are no powers of two."""
SPLIT_WIDTHS = (*WIDTHS, 192, 160, 96, 48)
"""Widths of tiles of split-K."""
_SPLIT = np.isin(np.arange(MOST_WIDTH + 1), SPLIT_WIDTHS)
MOST_ACROSS = 512
"""Maximum columns of tiles for which these are tried."""
FEW_WAVES = 8
"""Waves of tiles of 128 x 128 above which both roles of the operands are equally good."""
HIDDEN_K = 8064
"""With an epilogue that takes time, a longer K is looked up as this one: there ping-pong, which hides it, is as fast as other
variants without an epilogue (K = 8192, 16384 on an H200, benchmarks/results/nvidia-h200/matmul-bf16.md)."""
LEAST_BLOCKS = 4
"""Minimum blocks along K of a split; with fewer the pipeline never fills."""


@lru_cache(maxsize=4096)
def choose(problem: Problem) -> MatmulConfig:
    """The configuration for a problem."""
    return measured.find(problem) or built_in(problem)[1]


def built_in(problem: Problem) -> tuple[str, MatmulConfig]:
    """The configuration without measurements on this GPU, and where it comes from: "table" or "model"."""
    alone = problem.batch == 1 and problem.machine is HOPPER
    fast = alone and problem.described and not (problem.slow_a or problem.slow_b)
    k = min(problem.k, HIDDEN_K) if problem.finish else problem.k
    found = tuned(problem.dtype, problem.m, problem.n, k) if fast else None
    return ("table", found) if found is not None and _fits(problem, found) else ("model", ranked(problem, 1)[0])


def explain(problem: Problem) -> Explanation:
    """The choice for a problem, the model's best other configuration, and their modelled parts."""
    best = ranked(problem, 2)
    known = measured.find(problem)
    source, chosen = built_in(problem) if known is None else ("measured", known)
    others = [config for config in best if config != chosen]
    runner_up = Modelled(others[0], cycles_of(problem, others[0])) if others else None
    return Explanation(problem, source, Modelled(chosen, cycles_of(problem, chosen)), runner_up)


def _fits(problem: Problem, config: MatmulConfig) -> bool:
    """Whether a tuned configuration fits this problem. The table was measured with outputs as wide as the operands; a wider
    output or promoted accumulators may exceed shared memory or registers."""
    fits = (
        config.shared_bytes(problem.itemsize, problem.stored_by(config), problem.seen_by(config).b_rows) <= SHARED_BYTES
    )
    return fits and _holds(config, problem.fast)


def ranked(problem: Problem, count: int) -> list[MatmulConfig]:
    """The model's `count` best configurations, best first; of equals the first candidate."""
    tables = [_table(problem, swap) for swap in _orientations(problem)]
    costs = np.concatenate([table.costs() for table in tables])
    if count == 1:
        best = [int(costs.argmin())]
    else:
        best = [int(number) for number in costs.argsort(kind="stable")[:count]]
    first = len(tables[0])
    return [tables[0].config(number) if number < first else tables[1].config(number - first) for number in best]


def candidates(problem: Problem) -> Iterator[MatmulConfig]:
    """Configurations to compare."""
    for swap in _orientations(problem):
        table = _table(problem, swap)
        yield from map(table.config, range(len(table)))


def _orientations(problem: Problem) -> tuple[bool, ...]:
    """Whether to compute the output or its transpose: both where the operands' roles matter. Few rows are better columns, of
    which a tile can have any number; and an operand that TMA reads slowly is better the one with the smaller block."""
    tiles = problem.batch * -(-problem.m // TENSOR_ROWS) * -(-problem.n // TENSOR_ROWS)
    few = tiles < FEW_WAVES * problem.programs and problem.machine is HOPPER
    if few or problem.m < problem.machine.rows < problem.n or problem.slow_a != problem.slow_b:
        return False, True
    return (False,)


@dataclass(frozen=True, slots=True)
class Table:
    """The candidates in one orientation as columns: the tile shape's number in `shapes`, splits, and stages."""

    seen: Problem
    swap: bool
    shapes: Shapes
    shape: Number
    splits: Number
    stages: Number

    def __len__(self) -> int:
        return len(self.shape)

    def costs(self) -> Number:
        """The modelled cycles of each."""
        return cycles(self.seen, self.shapes.traits.picked(self.shape, self.splits, self.stages)).total

    def config(self, number: int) -> MatmulConfig:
        """A candidate's configuration."""
        shape = self.shapes.configs[int(self.shape[number])]
        splits, stages = int(self.splits[number]), int(self.stages[number])
        group = best_group(self.seen.programs // shape.ctas, shape.rows, shape.block_n)
        return replace(shape, splits=splits, stages=stages, group=group, swap=self.swap)


def _table(problem: Problem, swap: bool) -> Table:
    """The candidates in one orientation: for each tile shape and number of splits, the stages that fit at one resident program
    per multiprocessor, and at two."""
    seen = problem.transposed if swap else problem
    shapes = _shapes(seen.machine, seen.itemsize, seen.out_itemsize, seen.described, seen.fast, seen.b_rows)
    blocks = -(-seen.k // (PIECE_BYTES // seen.itemsize))
    wanted, parts = (np.array(numbers) for numbers in _splits(blocks))
    allowed = np.zeros(MOST_WIDTH + 1, np.bool_)
    allowed[_widths(seen)] = True
    tiles, shares = tiles_of(seen, shapes.traits), shapes.traits.shares
    # Splits fill the device anyway, so that few widths suffice for them.
    split = (shares == 1) & _SPLIT[shapes.traits.block_n]
    parts_at_most = np.where(split, np.minimum(MOST_SPLITS, 2 * seen.programs // tiles), 0)
    # CTAs share tiles where each has some of K, and all of them run at a time, and blocks of b where each has rows.
    useful: Number = (shares == 1) | ((shares * LEAST_BLOCKS <= blocks) & (tiles <= 2 * seen.programs))
    useful &= shapes.traits.cluster <= -(-seen.m // shapes.traits.block_m)
    if seen.b_rows:
        # The parts of b that the CTAs of a cluster load have the widest swizzle (on an H200 others take 1.4 times as long).
        useful &= (shapes.traits.cluster == 1) | (shapes.traits.span == PIECE_BYTES)
    each: Number = (allowed[shapes.traits.block_n] & useful)[:, None] & (
        (wanted == 1) | (wanted <= parts_at_most[:, None])
    )
    shape, split = np.nonzero(each)
    splits: Number = parts[split]
    # More stages than blocks along K would never be used.
    fitting = shapes.stages[(splits > 1).astype(np.int8), :, shape].T
    # Of CTAs that share a tile each has a short part of K, with a pipeline to fill.
    enough = fitting[0] >= LEAST_STAGES + (shares[shape] > 1)
    shape, splits, fitting = shape[enough], splits[enough], fitting[:, enough]
    useful = np.maximum(-(-blocks // (splits * shares[shape])), LEAST_BLOCKS)
    shared: Number = np.minimum(fitting[1], useful)
    # CTAs that share a tile have one tile. Where two of them fit side by side, the next launch starts while the first ones end
    # (16 x 4096 x 8192 took 18.4 us with 8 stages and 18.8 with 16, of which 16 are those of its bytes).
    beside = np.where((shares[shape] > 1) & (shared > LEAST_STAGES), np.minimum(shared, MOST_STAGES // 2), MOST_STAGES)
    alone: Number = np.minimum(np.minimum(fitting[0], useful), beside)
    twice: Number = (shapes.traits.halves[shape] < 2) & (shared != alone) & (shared > 2)
    number, program = np.nonzero(np.stack([np.ones_like(twice), twice], axis=1))
    return Table(seen, swap, shapes, shape[number], splits[number], np.where(program, shared[number], alone[number]))


@dataclass(frozen=True, slots=True)
class Shapes:
    """Tile shapes: configurations without splits and stages, their traits, and the stages that fit, [2, 2, shapes]: for outputs
    and for partial results, at one resident program per multiprocessor and at two."""

    configs: tuple[MatmulConfig, ...]
    traits: Traits
    stages: Number


@lru_cache(maxsize=64)
def _shapes(machine: Machine, itemsize: int, out_itemsize: int, described: bool, fast: bool, b_rows: bool) -> Shapes:
    """All tile shapes of a kind of problem, of every width."""
    every = (MatmulConfig(**tile, block_k=PIECE_BYTES // itemsize, stages=2) for tile in _tiles(machine, described))
    held = [config for config in every if _holds(config, fast)]
    traits = Traits.stacked([Traits.of(config, itemsize, out_itemsize, b_rows) for config in held])
    stored = np.maximum(traits.epilogue_bytes, traits.partial_bytes)
    fitting = np.flatnonzero(2 * traits.stage_bytes <= room_for_stages(stored, 1))
    traits = traits.picked(fitting, traits.splits[fitting], traits.stages[fitting])
    rooms = np.array([
        [room_for_stages(stored, programs) for programs in (1, 2)] for stored in (traits.epilogue_bytes, traits.partial_bytes)
    ])  # fmt: skip
    stages = np.clip(rooms // traits.stage_bytes, 2, MOST_STAGES)
    return Shapes(tuple(held[number] for number in fitting), traits, stages)


def _holds(config: MatmulConfig, fast: bool) -> bool:
    """Whether the threads of a configuration can hold its tile."""
    return config.accumulators_per_thread <= min(most_accumulators(fast), MOST_HELD[config.consumers])


def _tiles(machine: Machine, described: bool) -> Iterator[dict[str, Any]]:
    """Variants with their tile shapes, for the paths to shared memory that the operands allow."""
    widths = [*WIDTHS, *OTHER_WIDTHS]
    if machine is not HOPPER:
        yield from ({**tile, "pack": not described} for tile in _in_tensor_memory())
    elif described:
        yield from _described(widths)
        yield from _shared(widths)
        yield from _clusters(widths)
    else:
        yield from ({**tile, "pack": True} for tile in _described(widths))
        for n in WIDTHS:
            if n <= 128:
                yield {"variant": "cooperative", "block_m": 128, "block_n": n}
                yield {"variant": "cooperative", "block_m": 64, "block_n": n, "consumers": 1}
            if n == 64:
                yield {"variant": "cooperative", "block_m": 256, "block_n": n}


def _widths(problem: Problem) -> list[int]:
    """Widths of tiles: powers of two, and those of `OTHER_WIDTHS` that are the narrowest for their number of columns of tiles.

    A block of b that is contiguous along its columns has a narrow swizzle above 256, which costs bandwidth, and its MMAs are
    narrow too, as those of elements of one byte are where half of the width is odd in steps."""
    least = WIDTHS[-1] if problem.machine is HOPPER else LEAST_WIDTH
    widths = [n for n in WIDTHS if n == least or n // 2 < problem.n]
    if problem.machine is HOPPER:
        for n in OTHER_WIDTHS:
            across = -(-problem.n // n)
            narrowest = -(-problem.n // across) > n - WIDTH_STEP
            odd = n % (2 * WIDTH_STEP) > 0 and problem.itemsize == 1
            narrow = n > WIDTHS[0] and (problem.b_rows or odd)
            if narrowest and across <= MOST_ACROSS and not narrow:
                widths.append(n)
    return widths


def _described(widths: list[int]) -> Iterator[dict[str, Any]]:
    for n in widths:
        yield {"variant": "cooperative", "block_m": 128, "block_n": n}
        # Its epilogue is what ping-pong hides, and takes long where pieces of the output are narrow or are not swizzled.
        if n > 128 and n % (2 * WIDTH_STEP) == 0:
            yield {"variant": "ping_pong", "block_m": 64, "block_n": n}
        if 64 < n <= 128 and n % (2 * WIDTH_STEP) == 0:
            yield {"variant": "ping_pong", "block_m": 128, "block_n": n}
        if 64 <= n <= 144:
            yield {"variant": "cooperative", "block_m": 256, "block_n": n}
            yield {"variant": "cooperative", "block_m": 128, "block_n": n, "consumers": 1}
        if 96 <= n <= 192:
            # One buffer makes room for a fourth stage.
            buffers = 2 if n < 192 else 1
            yield {"variant": "cooperative", "block_m": 192, "block_n": n, "consumers": 3, "buffers": buffers}
        yield {"variant": "cooperative", "block_m": 64, "block_n": n, "consumers": 1}


def _clusters(widths: list[int]) -> Iterator[dict[str, Any]]:
    """Tiles whose b the CTAs of a cluster share."""
    for cluster in CLUSTERS:
        for n in widths:
            if n % (LEAST_SENT * cluster) == 0:
                for consumers in (1, 2):
                    tile = {"block_m": WARPGROUP_ROWS * consumers, "block_n": n, "consumers": consumers}
                    yield {"variant": "cooperative", **tile, "cluster": cluster}


def _shared(widths: list[int]) -> Iterator[dict[str, Any]]:
    """Tiles that the CTAs of a cluster share."""
    for shares in SHARES[1:]:
        for n in widths:
            if n <= 256:
                yield {"variant": "cooperative", "block_m": 64, "block_n": n, "consumers": 1, "shares": shares}
            if n <= 192:
                yield {"variant": "cooperative", "block_m": 128, "block_n": n, "shares": shares}


def _in_tensor_memory() -> Iterator[dict[str, Any]]:
    for n in (n for n in WIDTHS if n >= LEAST_WIDTH):
        for cluster in (1, 2) if n >= LEAST_SHARED else (1,):
            for variant in TENSOR_VARIANTS:
                yield {"variant": variant, "block_m": TENSOR_ROWS, "block_n": n, "cluster": cluster}


@lru_cache(maxsize=1024)
def _splits(blocks: int) -> tuple[list[int], list[int]]:
    """Splits of `blocks` blocks along K: numbers to ask for, and the splits that each gives, none of them empty."""
    found = {1: 1}
    for wanted in range(2, MOST_SPLITS + 1):
        each = -(-blocks // wanted)
        if each < LEAST_BLOCKS:
            break
        found.setdefault(-(-blocks // each), wanted)
    return list(found.values()), list(found)
