"""The performance model of a matmul: the cycles that each resource needs for a configuration.

It estimates the busiest multiprocessor's waves of programs: MMAs at tensor-core rate or loads at memory rate, whichever is
slower, plus the fixed costs of a tile (prologue, epilogue). Rates are those of `weft.kernels.machines`.

The same arithmetic serves one configuration and arrays of hundreds: `Traits` holds numbers, or NumPy arrays of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np

from weft.kernels.config import BARRIER_BYTES, PIECE_BYTES, PROGRAM_BYTES, PROGRAMS_BYTES, MatmulConfig
from weft.kernels.machines import HOPPER, Machine, programs_at_a_time
from weft.kernels.operands import LINE
from weft.runtime.arguments import HOST

OUTSIDE = 2
"""What a row out of bounds takes TMA, in rows."""
WRITTEN = 2
"""What a byte written to DRAM takes, in bytes read."""
BLEND = 3.0
"""How far parts that run side by side hide one another: the exponent of the norm that combines them (infinity: the maximum)."""
PARTIAL_BYTES = 4
"""Size of an element of the partial results of split-K."""
MOST_RESIDENT = 4
"""Maximum resident programs per multiprocessor that the model counts on."""
Number: TypeAlias = Any
"""A number, or an array of numbers, one for each configuration."""
_where: Callable[..., Number] = np.where
LANES = 128
"""Threads whose instructions a multiprocessor issues in a cycle: those of four schedulers."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The inputs of the choice: sizes, element sizes of operands and output, and `described`: TMA can read both operands.

    `programs` is the device's number of multiprocessors. `fast`: accumulators stay in the tensor core (no promotion). `slow_a`
    and `slow_b`: how slowly L2 gives the operand to TMA (`read_slowly`). `unit`: bytes per copy when warps copy the operands
    themselves. `machine`: the GPU generation. `a_rows`, `b_rows`: shared memory holds the operand's blocks contiguous along its
    rows. `device` is the GPU's ordinal, or `HOST`. `finish`: issue slots of a thread for the epilogue of an element of the
    output. `batch` is the number of such products in a launch."""

    m: int
    n: int
    k: int
    dtype: str
    itemsize: int
    out_itemsize: int
    described: bool
    programs: int
    fast: bool = True
    slow_a: int = 0
    slow_b: int = 0
    unit: int = 16
    machine: Machine = HOPPER
    a_rows: bool = False
    b_rows: bool = False
    device: int = HOST
    finish: float = 0.0
    batch: int = 1

    def stored_by(self, config: MatmulConfig) -> int:
        """Size of the elements that the kernel stores: partial results in split-K, otherwise the output's."""
        return PARTIAL_BYTES if config.splits > 1 else self.out_itemsize

    @property
    def transposed(self) -> Problem:
        """The problem with the transposed output."""
        slow, rows = (self.slow_b, self.slow_a), (self.b_rows, self.a_rows)
        return replace(self, m=self.n, n=self.m, slow_a=slow[0], slow_b=slow[1], a_rows=rows[0], b_rows=rows[1])

    def seen_by(self, config: MatmulConfig) -> Problem:
        """The problem as the kernel of a configuration computes it."""
        return self.transposed if config.swap else self


@dataclass(frozen=True, slots=True)
class Traits:
    """What the model reads of configurations: sizes of a tile, CTAs of a cluster that share b, CTAs that share a tile and the
    columns of it that one of them stores, columns of b that a CTA holds and loads, rows that MMAs read per element along K,
    halves of a multiprocessor that a program occupies, bytes of a stage and of the epilogue (for outputs and for partial
    results), where accumulators are, and whether epilogues are hidden, operands are packed, and programs steal tiles.

    `splits` and `stages` are those of the configuration."""

    block_m: Number
    block_n: Number
    block_k: Number
    rows: Number
    cluster: Number
    shares: Number
    columns_shared: Number
    columns_held: Number
    columns_loaded: Number
    rows_read: Number
    halves: Number
    stage_bytes: Number
    epilogue_bytes: Number
    partial_bytes: Number
    in_tensor_memory: Number
    hidden: Number
    packed: Number
    stolen: Number
    splits: Number
    stages: Number

    @staticmethod
    def of(config: MatmulConfig, itemsize: int, out_itemsize: int, b_rows: bool) -> Traits:
        """The traits of one configuration, for the given element sizes of operands and output; `b_rows`: see `Problem`."""
        return Traits(
            config.block_m,
            config.block_n,
            config.block_k,
            config.rows,
            config.cluster,
            config.shares,
            config.columns_shared,
            config.columns_held,
            config.columns_loaded(itemsize, b_rows),
            config.rows_read,
            halves_occupied(config),
            config.stage_bytes(itemsize, b_rows),
            config.epilogue_bytes(out_itemsize),
            config.epilogue_bytes(PARTIAL_BYTES),
            config.in_tensor_memory,
            config.in_tensor_memory or config.variant == "ping_pong",
            config.pack,
            config.variant == "tcgen05_clc",
            config.splits,
            config.stages,
        )

    @staticmethod
    def stacked(each: list[Traits]) -> Traits:
        """The traits of several configurations as arrays."""
        return Traits(*(np.array([getattr(traits, field.name) for traits in each]) for field in fields(Traits)))

    def picked(self, which: Number, splits: Number, stages: Number) -> Traits:
        """The traits of configurations of these arrays, with splits and stages."""
        return replace(self, **{name: getattr(self, name)[which] for name in _FIXED}, splits=splits, stages=stages)


_FIXED = tuple(field.name for field in fields(Traits) if field.name not in ("splits", "stages"))


def tiles_of(problem: Problem, traits: Traits | MatmulConfig) -> Number:
    """Number of output tiles of all products, counted per CTA."""
    ctas = traits.cluster * traits.shares
    return problem.batch * ctas * -(-problem.m // traits.rows) * -(-problem.n // traits.block_n)


def blocks_of(problem: Problem, traits: Traits) -> Number:
    """Blocks along K of one split, or of the share of a CTA."""
    blocks = -(-problem.k // traits.block_k)
    return -(-blocks // (traits.splits * traits.shares))


def halves_occupied(config: MatmulConfig) -> int:
    """Halves of a multiprocessor's registers, or tensor memory, that a program occupies (1 or 2)."""
    return 2 if config.accumulators_per_thread > 64 or config.consumers > 1 or config.in_tensor_memory else 1


def residents(config: MatmulConfig, itemsize: int, out_itemsize: int, b_rows: bool) -> int:
    """Resident programs per multiprocessor (occupancy), limited by registers, tensor memory and shared memory."""
    return int(_residents(halves_occupied(config), config.shared_bytes(itemsize, out_itemsize, b_rows)))


def _residents(halves: Number, shared: Number) -> Number:
    at_most: Number = _where(np.equal(halves, 2), 1, MOST_RESIDENT)
    return np.maximum(1, np.minimum(at_most, PROGRAMS_BYTES // (shared + PROGRAM_BYTES)))


@dataclass(frozen=True, slots=True)
class Cycles:
    """The modelled parts of a product's time, in cycles of a multiprocessor.

    The first four run side by side, so the slowest counts most: `tensor`: MMAs. `shared`: shared memory that MMAs read.
    `loads`: operands from L2, or copied by warps. `memory`: every byte from DRAM once. `ends`: what nothing overlaps, the fill
    of the pipeline and the epilogue. `reduction`: the partial results of split-K, written and added, or exchanged by CTAs that
    share a tile. `packing`: operands copied to where TMA can read them. `launches`: those of the further kernels. `lag`: of the
    slowest program, relative. `waves`: the tiles, or parts of them, that a program computes one after the other.

    `cycles` computes arrays of each for an array of configurations."""

    tensor: float
    shared: float
    loads: float
    memory: float
    ends: float
    reduction: float
    packing: float
    launches: float
    lag: float
    waves: float

    @property
    def total(self) -> float:
        """The whole product."""
        side_by_side = sum(part**BLEND for part in (self.tensor, self.shared, self.loads, self.memory)) ** (1 / BLEND)
        return (side_by_side + self.ends) * (1 + self.lag) + self.reduction + self.packing + self.launches


def cost(problem: Problem, config: MatmulConfig) -> float:
    """Estimated cycles of a matmul."""
    return cycles_of(problem, config).total


def cycles_of(problem: Problem, config: MatmulConfig) -> Cycles:
    """The model for one configuration."""
    seen = problem.seen_by(config)
    found = cycles(seen, Traits.of(config, seen.itemsize, seen.out_itemsize, seen.b_rows))
    return Cycles(*(float(getattr(found, field.name)) for field in fields(Cycles)))


def cycles(seen: Problem, traits: Traits) -> Cycles:
    """The model: what each resource needs for the tiles that the busiest multiprocessor computes. `seen` is the problem as the
    kernels compute it."""
    rates, size = seen.machine.rates, seen.itemsize
    split = traits.splits > 1
    tiles = tiles_of(seen, traits) * traits.splits
    # Floating-point numbers, because products of three sizes exceed 64 bits.
    depth = blocks_of(seen, traits) * 1.0 * traits.block_k
    epilogue: Number = _where(split, traits.partial_bytes, traits.epilogue_bytes)
    shared_bytes: Number = traits.stages * traits.stage_bytes + epilogue + BARRIER_BYTES
    resident: Number = np.minimum(_residents(traits.halves, shared_bytes), -(-tiles // seen.programs))
    ctas = traits.cluster * traits.shares
    waves = -(-tiles // (programs_at_a_time(ctas, seen.programs) * ctas * resident))
    flying: Number = np.minimum(traits.block_m, seen.m) + np.minimum(traits.columns_held, seen.n)
    rate: Number = np.minimum(
        rates.cache, resident * (traits.stages - 1) * flying * traits.block_k * size / rates.latency
    )
    area = traits.block_m * traits.block_n
    finished = area * seen.finish / LANES
    own = traits.block_m * traits.columns_shared
    stored = own / rates.stored + _where(split, 0.0, finished) * own / area
    got = own * traits.shares * PARTIAL_BYTES
    exchanged = _where(traits.shares > 1, rates.meeting + got / rates.sent, 0.0)
    moved = float(seen.batch * seen.m * seen.n) * (traits.splits * 8 + seen.out_itemsize)
    read = float(seen.batch * (seen.m + seen.n) * seen.k * size)
    # Elements along K of all tiles that a multiprocessor computes.
    long = waves * resident * depth
    shared: Number = long * traits.rows_read * size / rates.shared
    # With accumulators in tensor memory the epilogue runs beside the next tile's mainloop, and may take longer.
    shared = _where(traits.in_tensor_memory, np.maximum(shared, waves * resident * stored), shared)
    tensor: Number = long * area * size / (2 * rates.products)
    loads: Number = long * _loads(seen, traits, rate)
    # Of two consumers in ping-pong one stores while the other multiplies, which hides what takes no longer.
    end, mainloops = rates.tile + stored, np.maximum(tensor, loads)
    beyond = np.maximum(waves * resident * end - mainloops, 0) / 2
    ends = _where(traits.in_tensor_memory, end, _where(traits.hidden, end + beyond, end * waves))
    memory = rates.memory * seen.programs
    written = float(seen.batch * seen.m * seen.n) * seen.out_itemsize / memory
    return Cycles(
        tensor=tensor,
        shared=shared,
        loads=loads,
        # Blocks that several tiles need come from L2.
        memory=read / np.minimum(memory, np.minimum(rate, rates.alone) * np.minimum(tiles, seen.programs))
        + WRITTEN * _where(split, 0.0, written),
        ends=ends,
        reduction=_where(
            split,
            moved / (rates.cache * seen.programs) + finished * tiles_of(seen, traits) / seen.programs,
            waves * exchanged,
        ),
        packing=_where(traits.packed, 3 * read / (rates.memory * seen.programs), 0.0),
        launches=rates.launch * (_where(split, 1, 0) + _where(traits.packed, 1, 0)),
        lag=_where((waves > 1) & np.logical_not(traits.stolen), rates.uneven, 0.0),
        waves=waves,
    )


def _loads(seen: Problem, traits: Traits, rate: Number) -> Number:
    """Cycles in which the operands of one step along K arrive, at most `rate` bytes each."""
    rates, size = seen.machine.rates, seen.itemsize
    # Each CTA of a cluster loads its part of the block of b.
    sides = ((traits.block_m, seen.m), (traits.columns_loaded, seen.n))
    rows_a, rows_b = (_rows_loaded(block, extent) for block, extent in sides)
    if seen.b_rows:
        # A TMA request of a row of b is as long as the swizzle span.
        part = traits.columns_loaded
        rows_b = rows_b * (1 + rates.narrow * (np.maximum(PIECE_BYTES / (part & -part) / size, 1) - 1))
    loads: Number = (rows_a + rows_b) * size / rate
    # L2 takes longer for rows that do not begin at its lines; those of packed operands begin there.
    by_start = (rates.lines, rates.sectors, rates.unaligned)
    slow_a, slow_b = (seen.slow_a, seen.slow_b) if seen.described else (0, 0)
    rate_b: Number = by_start[slow_b]
    if seen.b_rows:
        # So it does for parts of rows that begin between two lines, as those of tiles of 144 columns do, but the first.
        between = (traits.block_n // traits.cluster * size % LINE != 0) & (seen.n > traits.block_n)
        rate_b = np.minimum(rate_b, _where(between, rates.sectors, rates.lines))
    by_tma = np.maximum(loads, (rows_a / by_start[slow_a] + rows_b / rate_b) * size)
    if seen.described:
        return by_tma
    copied = (traits.block_m + traits.columns_held) * rates.copied * size / seen.unit
    return _where(traits.packed, by_tma, np.maximum(loads, copied))


def _rows_loaded(block: Number, extent: int) -> Number:
    """Rows of a block in units of what TMA needs for a row. Rows out of bounds are not read, but filling them takes longer than
    reading would (seen on an H200, with 3 and 24 rows of 64)."""
    inside = np.minimum(block, extent)
    return inside + OUTSIDE * (block - inside)
