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

from weft.kernels.config import BARRIER_BYTES, PIECE_BYTES, PROGRAM_BYTES, PROGRAMS_BYTES, MatmulConfig, span_bytes
from weft.kernels.machines import HOPPER, Machine, programs_at_a_time
from weft.kernels.operands import LINE
from weft.runtime.arguments import HOST

WRITTEN = 2
"""What a byte written to DRAM takes, in bytes read."""
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
    columns of it that one of them stores, columns of b that a CTA holds and loads, bytes of a span in which TMA copies b, rows
    that MMAs read per element along K, halves of a multiprocessor that a program occupies, bytes of a stage and of the epilogue
    (for outputs and for partial results), where accumulators are, and whether epilogues are hidden, operands are packed, and
    programs steal tiles.

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
    span: Number
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
        loaded = config.columns_loaded(itemsize, b_rows)
        return Traits(
            config.block_m,
            config.block_n,
            config.block_k,
            config.rows,
            config.cluster,
            config.shares,
            config.columns_shared,
            config.columns_held,
            loaded,
            span_bytes(loaded, itemsize) if b_rows else PIECE_BYTES,
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

    The first three run side by side in a multiprocessor, so that the slowest counts most (`blend`, see `Rates`): `tensor`:
    MMAs. `shared`: shared memory that MMAs read. `loads`: operands that TMA brings, or warps copy, into shared memory. `steps`
    is what blocks along K take besides. Beside all of that run `cache`: what L2 gives to all multiprocessors, and `memory`:
    every byte from DRAM once. `ends`: what nothing overlaps, the fill of the pipeline and the epilogue. `reduction`: the
    partial results of split-K, written and added, or exchanged by CTAs that share a tile. `packing`: operands copied to where
    TMA can read them. `launches`: those of the further kernels. `lag`: of the slowest program, relative. `waves`: the tiles, or
    parts of them, that a program computes one after the other.

    `cycles` computes arrays of each for an array of configurations."""

    tensor: float
    shared: float
    loads: float
    steps: float
    cache: float
    memory: float
    ends: float
    reduction: float
    packing: float
    launches: float
    lag: float
    waves: float
    blend: float

    @property
    def total(self) -> float:
        """The whole product."""
        inside = self._blended(self.tensor, self.shared, self.loads) + self.steps
        whole = self._blended(inside, self.cache, self.memory)
        return (whole + self.ends) * (1 + self.lag) + self.reduction + self.packing + self.launches

    def _blended(self, *parts: float) -> float:
        """Parts that run side by side."""
        return sum(part**self.blend for part in parts) ** (1 / self.blend)


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
    blocks = blocks_of(seen, traits)
    # Floating-point numbers, because products of three sizes exceed 64 bits.
    depth = blocks * 1.0 * traits.block_k
    epilogue: Number = _where(split, traits.partial_bytes, traits.epilogue_bytes)
    shared_bytes: Number = traits.stages * traits.stage_bytes + epilogue + BARRIER_BYTES
    resident: Number = np.minimum(_residents(traits.halves, shared_bytes), -(-tiles // seen.programs))
    ctas = traits.cluster * traits.shares
    at_a_time = programs_at_a_time(ctas, seen.programs) * ctas * resident
    waves = -(-tiles // at_a_time)
    area = traits.block_m * traits.block_n
    finished = area * seen.finish / LANES
    own = traits.block_m * traits.columns_shared
    stored = own / rates.stored + _where(split, 0.0, finished) * own / area
    got = own * traits.shares * PARTIAL_BYTES
    exchanged = _where(traits.shares > 1, rates.meeting + got / rates.sent, 0.0)
    moved = float(seen.batch * seen.m * seen.n) * (traits.splits * 8 + seen.out_itemsize)
    read = float(seen.batch * (seen.m + seen.n) * seen.k * size)
    memory = rates.memory * seen.programs
    # Elements along K of all tiles that a multiprocessor computes.
    long = waves * resident * depth
    shared: Number = long * traits.rows_read * size / rates.shared
    # With accumulators in tensor memory the epilogue runs beside the next tile's mainloop, and may take longer.
    shared = _where(traits.in_tensor_memory, np.maximum(shared, waves * resident * stored), shared)
    tensor: Number = long * area * size / (2 * rates.products)
    loads: Number = long * _loads(seen, traits, resident, waves)
    cache = _from_cache(seen, traits)
    # Of two consumers in ping-pong one stores while the other multiplies, which hides what takes no longer.
    end, mainloops = rates.tile + stored, np.maximum(tensor, np.maximum(loads, cache))
    beyond = np.maximum(waves * resident * end - mainloops, 0) / 2
    ends = _where(traits.in_tensor_memory, end, _where(traits.hidden, end + beyond, end * waves))
    written = float(seen.batch * seen.m * seen.n) * seen.out_itemsize
    # What few programs of a last wave load does not keep DRAM busy.
    tail = 1 + _where(waves > 1, rates.tail * (waves * at_a_time / tiles - 1), 0.0)
    return Cycles(
        tensor=tensor,
        shared=shared,
        loads=loads,
        steps=waves * resident * blocks * rates.step,
        cache=cache,
        memory=(read + WRITTEN * _where(split, 0.0, written)) / memory * tail,
        ends=ends + _where(traits.cluster > 1, rates.joined, 0),
        reduction=_where(split, moved / memory + finished * tiles_of(seen, traits) / seen.programs, waves * exchanged),
        packing=_where(traits.packed, 3 * read / memory, 0.0),
        launches=rates.launch * (_where(split, 1, 0) + _where(traits.packed, 1, 0)),
        lag=_where((waves > 1) & np.logical_not(traits.stolen), rates.uneven, 0.0),
        waves=waves,
        blend=rates.blend,
    )


def _loads(seen: Problem, traits: Traits, resident: Number, waves: Number) -> Number:
    """Cycles in which a multiprocessor gets the operands of one element along K."""
    rates, size = seen.machine.rates, seen.itemsize
    flying = np.minimum(traits.block_m, seen.m) + np.minimum(traits.columns_held, seen.n)
    in_flight = resident * (traits.stages - 1) * flying * traits.block_k * size / rates.latency
    # Each CTA of a cluster fills its part of the block of b with what is out of bounds.
    rows = _rows(traits.block_m, seen.m, traits.cluster, waves, rates.outside)
    columns = _rows(traits.columns_held, seen.n, 1, waves, 1 + (rates.outside - 1) / traits.cluster)
    by_bytes = (rows + columns) * size / np.minimum(rates.port, in_flight)
    # TMA takes as long for a piece of a narrow swizzle span as for one of 128 bytes: on an H200, tiles of 128 x 160 took 1.14
    # times as long with b along N, in spans of 64 bytes, as along K, and tiles of 256 x 96 1.06 times
    # (benchmarks/results/nvidia-h200/tiles.md). Blocks of a have spans of 128 bytes, because they are 64 rows high or more.
    by_pieces = (rows + columns * PIECE_BYTES / traits.span) * size / rates.port
    by_tma = np.maximum(by_bytes, by_pieces)
    if seen.described:
        return by_tma
    copied = (traits.block_m + traits.columns_held) * rates.copied * size / seen.unit
    return _where(traits.packed, by_tma, np.maximum(by_bytes, copied))


def _rows(block: Number, extent: int, cluster: Number, waves: Number, outside: Number) -> Number:
    """Rows of a block that a program loads, in units of what TMA needs for a row. Rows out of bounds are not read, but filling
    them takes longer than reading would, and in the last wave all wait for the programs whose blocks have some (145 x 6144 x
    4096 took 39 us in tiles of 128 x 96, and 25 us in others, on an H200)."""
    count = -(-extent // block)
    blocks = -(-count // cluster) * cluster
    inside: Number = _where(blocks > count, 0, extent - (count - 1) * block)
    inside = np.minimum(inside, np.minimum(block, extent))
    mean, last = extent / blocks, inside + outside * (block - inside)
    mean = mean + outside * (block - mean)
    return mean + np.maximum(np.maximum(last, np.minimum(block, extent)) - mean, 0) / waves


def _from_cache(seen: Problem, traits: Traits) -> Number:
    """Cycles in which L2 gives the operands of all tiles: each block of a for every column of tiles, and of b for every row,
    which the CTAs of a cluster share."""
    rates, size = seen.machine.rates, seen.itemsize
    down, across = -(-seen.m // traits.rows), -(-seen.n // traits.block_n)
    # L2 takes longer for rows that do not begin at its lines; those of packed operands begin there.
    by_start = (rates.cache, rates.sectors, rates.unaligned)
    slow_a, slow_b = (seen.slow_a, seen.slow_b) if seen.described else (0, 0)
    columns: Number = seen.n
    rate_b: Number = by_start[slow_b]
    if seen.b_rows:
        columns = seen.n * traits.columns_loaded * traits.cluster / traits.block_n
        # So it does for parts of rows that begin between two lines, as those of tiles of 144 columns do, but the first.
        between = (traits.block_n // traits.cluster * size % LINE != 0) & (seen.n > traits.block_n)
        rate_b = np.minimum(rate_b, _where(between, rates.sectors, rates.cache))
    rows = across * seen.m / by_start[slow_a] + down * columns / rate_b
    return rows * (float(seen.batch * seen.k * size) / seen.programs)
