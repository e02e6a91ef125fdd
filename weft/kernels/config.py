"""Configurations of a matmul: which kernel computes it, with which tile shape, in which order of tiles.

    matmul(a, b, config=MatmulConfig(variant="ping_pong", block_m=128, block_n=128, stages=6))
    for config in matmul_configs(a, b): ...

This module does not depend on arrays or devices.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import sqrt
from typing import Any, cast

from weft.errors import fail
from weft.errors import kernels as errors
from weft.layout.distributed.fragments import WARPGROUP_ROWS

UNIFORM = ("pipelined", "persistent", "persistent_pipelined")
"""Variants without warp specialization."""
HOPPER_VARIANTS = (*UNIFORM, "cooperative", "ping_pong")
TENSOR_VARIANTS = ("tcgen05", "tcgen05_clc")
"""Variants with accumulators in tensor memory (Blackwell)."""
VARIANTS = HOPPER_VARIANTS + TENSOR_VARIANTS
DESCRIBED = UNIFORM + TENSOR_VARIANTS
"""Variants that load every block by TMA."""
ORDERS = ("rows", "grouped", "serpentine")
"""Orders of tiles; see `weft.kernels.device.schedulers`."""
WIDTHS = (256, 128, 64, 32, 16, 8)
"""Tile widths (block_n) that are powers of two."""
WIDTH_STEP = 16
"""Other tile widths are multiples of this, up to `MOST_WIDTH`, outside of clusters and tensor memory."""
MOST_WIDTH = 288
"""Maximum tile width on Hopper: 144 accumulators for each thread of two consumers, and shared memory for three stages."""
LEAST_SHARED = 32
"""Minimum tile width in a pair of CTAs on Blackwell, each of which loads half of the columns."""
LEAST_SENT = 8
"""Columns of b that a CTA of a cluster multicasts are a multiple of these: the rows of a swizzle's pattern."""
TENSOR_ROWS = 128
"""Rows (lanes) of tensor memory, and so a CTA's rows of a tile."""
LEAST_WIDTH = 16
"""Minimum tile width in tensor memory."""
TRANSPOSABLE = (2,)
"""Element sizes in bytes that Hopper's wgmma reads from shared memory in either major-ness. PTX has the transpose operands
(imm-trans-a, imm-trans-b) for 16-bit types only; all other operands must be K-major."""
# A row of the widest swizzle (CU_TENSOR_MAP_SWIZZLE_128B), and so the widest box of a TMA copy.
PIECE_BYTES = 128
# sm_90 and sm_100 have 228 KB per multiprocessor, of which a block can address 227 (CUDA C++ Programming Guide, technical
# specifications per compute capability).
SHARED_BYTES = 227 * 1024
PROGRAM_BYTES = 1024
PROGRAMS_BYTES = SHARED_BYTES + PROGRAM_BYTES
"""Shared memory of a multiprocessor for all resident blocks, of which the system reserves `PROGRAM_BYTES` per block."""
BARRIER_BYTES = 1024
"""Upper bound of the bytes taken by barriers and alignment gaps."""
CLUSTERS = (2, 4)
"""CTAs of a cluster that may share the blocks of b."""
SHARES = (1, 2, 4, 8, 16)
"""CTAs of a cluster that may share a tile. Clusters of more than 8 are not portable, but run on sm_90."""
SUM_BYTES = 4
"""Size of a sum in float32 or int32."""
LEAST_SLICE = 8
"""Minimum columns of a slice of a tile: those of the narrowest MMA."""
MOST_ACCUMULATORS = 128
"""Accumulator registers of a thread, for a tile and a block's own together, at which values of an epilogue do not spill yet."""
MOST_HELD = {1: 144, 2: 144, 3: 96}
"""Accumulator registers of a thread that leave enough for others, by the number of consumers. A kernel of three consumers and
a producer has 128 registers a thread to begin with, which bounds the accumulator of an MMA (seen with ptxas)."""
PROMOTED = 128
"""Without `fast_accumulate`, fp8 accumulators are promoted (added to float32 registers) after this many elements along K."""
# The number for `setmaxnreg.dec` of producer warpgroups; it must be a multiple of 8 from 24 to 256 (PTX ISA, setmaxnreg).
PRODUCER_REGISTERS = 40
MOST_NUMBER = (1 << 31) - 1
"""Kernels count tiles and extents in int32."""
REGISTERS = {2: 504, 3: 512}
"""Registers of one thread of each warpgroup together, by the number of consumers, beside which there is a producer: 65,536
registers / 384 threads = 170, rounded down to 168, a multiple of 8 as `setmaxnreg` requires; 3 * 168. Of four warpgroups each
has 128."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulConfig:
    """The configuration of a matmul. Sizes are in elements; sizes of 0 are filled in by `filled`.

    `variant` is one of `VARIANTS`, each of which runs on Hopper or on Blackwell. An output tile is `block_m` x `block_n`; the
    mainloop advances by `block_k` along K with `stages` pipeline stages, and the epilogue stores through `buffers` buffers.
    Tiles are visited in an `order` of `ORDERS`, in bands of `group` rows of tiles (0: the best). With `splits` > 1, K is split
    into that many parts, whose partial results a second kernel adds (split-K). With `swap` the kernel computes the transposed
    output, b.T @ a.T. `consumers` is the number of consumer warpgroups; on Blackwell, where one warp issues the MMAs, it is the
    number of epilogue warpgroups. `programs` is the number of programs launched (0: as many as are resident at a time, or one
    per tile). With `pack`, another kernel first copies operands that TMA cannot read. With `cluster` > 1 a program is a cluster
    of CTAs with tiles in the same columns; each loads its part of the block of b for all. With `shares` > 1 a program is a
    cluster of as many CTAs for one tile: each multiplies a part of K, and they exchange their sums through shared memory.
    """

    variant: str = "cooperative"
    block_m: int = 128
    block_n: int = 0
    block_k: int = 0
    stages: int = 0
    order: str = "grouped"
    group: int = 0
    splits: int = 1
    swap: bool = False
    consumers: int = 2
    buffers: int = 2
    programs: int = 0
    pack: bool = False
    cluster: int = 1
    shares: int = 1

    @property
    def persistent(self) -> bool:
        """The launch has as many programs as are resident at a time, and each computes several tiles."""
        return self.variant not in ("pipelined", "tcgen05_clc") and self.shares == 1

    @property
    def ctas(self) -> int:
        """CTAs of a program."""
        return self.cluster * self.shares

    @property
    def columns_shared(self) -> int:
        """Columns that a CTA adds up and stores: all, or of a tile that it shares slices."""
        if self.shares == 1:
            return self.block_n
        width, _, most = slices_of(self.block_n, self.shares)
        return width * most

    @property
    def in_tensor_memory(self) -> bool:
        """Accumulators are in tensor memory instead of registers."""
        return self.variant in TENSOR_VARIANTS

    @property
    def overlap(self) -> bool:
        """The pipeline runs on across tiles: the next tile's loads are issued before this tile's mainloop ends."""
        return self.variant == "persistent_pipelined"

    @property
    def num_warps(self) -> int:
        """Warps of the default partition: in a warp-specialized kernel the first consumer's, or the epilogue's on Blackwell."""
        return 4 * self.consumers if self.variant in DESCRIBED else 4

    @property
    def rows(self) -> int:
        """Rows of the tiles of all CTAs of a cluster together."""
        return self.cluster * self.block_m

    @property
    def columns_held(self) -> int:
        """Columns of b in a CTA's shared memory. Blackwell's paired MMA reads the other half from the peer CTA."""
        return self.block_n // self.cluster if self.in_tensor_memory else self.block_n

    @property
    def rows_of_warps(self) -> int:
        """Rows of a piece that the epilogue stores at a time: those of one MMA instruction, for all cooperating warps."""
        return TENSOR_ROWS if self.in_tensor_memory else 16 * self.num_warps

    @property
    def accumulators_per_thread(self) -> int:
        """Accumulator elements per consumer thread; zero when they are in tensor memory."""
        if self.in_tensor_memory:
            return 0
        warpgroups = 1 if self.variant == "ping_pong" else max(self.consumers, 1)
        return self.block_m * self.block_n // (128 * warpgroups)

    @property
    def rows_read(self) -> int:
        """Rows of a and columns of b that MMAs read from shared memory per element along K. On Hopper each warpgroup reads its
        64 rows, and all columns."""
        if self.in_tensor_memory:
            return self.block_m + self.columns_held
        return self.block_m // WARPGROUP_ROWS * (WARPGROUP_ROWS + self.block_n)

    def registers_for(self, described: bool) -> tuple[int, ...] | None:
        """Registers per thread of the consumers but the first, and of the producer; None when all warps have the same number.

        A producer that copies with its own threads needs about as many registers as a consumer, so none are moved then."""
        if self.variant in DESCRIBED or self.consumers == 1 or not described:
            return None
        each = (REGISTERS[self.consumers] - PRODUCER_REGISTERS) // self.consumers // 8 * 8
        return (*[each] * (self.consumers - 1), PRODUCER_REGISTERS)

    def shared_bytes(self, itemsize: int, out_itemsize: int, b_rows: bool = False) -> int:
        """Upper bound of a CTA's shared memory in bytes; `b_rows`: see `stage_bytes`."""
        return self.stages * self.stage_bytes(itemsize, b_rows) + self.epilogue_bytes(out_itemsize) + BARRIER_BYTES

    def stage_bytes(self, itemsize: int, b_rows: bool = False) -> int:
        """Shared memory of a stage: a block of a and a block of b, which is contiguous along its columns if `b_rows`."""
        columns = max(self.columns_held, self.columns_loaded(itemsize, b_rows))
        return (self.block_m + columns) * self.block_k * itemsize

    def columns_loaded(self, itemsize: int, b_rows: bool) -> int:
        """Columns of b that a CTA loads; `b_rows`: see `stage_bytes`."""
        return roomy(self.block_n, itemsize) if b_rows and self.cluster == 1 else self.block_n // self.cluster

    def epilogue_bytes(self, out_itemsize: int) -> int:
        """Shared memory of the buffers through which the epilogue stores, and of the sums that a CTA gets from others."""
        if self.shares > 1:
            width = piece_width(slices_of(self.block_n, self.shares)[0], out_itemsize)
            got = self.shares * self.block_m * self.columns_shared * SUM_BYTES
            return got + self.consumers * self.buffers * self.rows_of_warps * width * out_itemsize
        width = piece_width(self.block_n, out_itemsize)
        buffers = self.buffers if _power(self.block_n) else min(self.buffers, self.pieces(width))
        stored_by = 1 if self.variant in DESCRIBED else self.consumers
        return stored_by * buffers * self.rows_of_warps * width * out_itemsize

    def pieces(self, width: int) -> int:
        """Pieces of `width` columns of the part of a tile that a partition stores; of one that is too low for its warps, which
        `check` refuses, 1."""
        return max(self.accumulators_per_thread * 32 * self.num_warps // (self.rows_of_warps * width), 1)

    def filled(
        self, itemsize: int, out_itemsize: int, most: int = MOST_ACCUMULATORS, b_rows: bool = False
    ) -> MatmulConfig:
        """The configuration with all sizes of 0 filled in, for the given element sizes of operands and output; `b_rows`: see
        `stage_bytes`.

        `block_n` is the widest with at most `most` accumulators per thread, `block_k` spans 128 bytes (one swizzle row), and
        `stages` is the number that fits, up to 8. If nothing fits, the smallest values are filled in, which `check` refuses."""
        if self.block_n and self.block_k and self.stages:
            return self
        wide = replace(self, block_k=self.block_k or PIECE_BYTES // itemsize)
        if not self.block_n:
            most = min(most, MOST_HELD.get(self.consumers, most))
            widths = (replace(wide, block_n=n) for n in WIDTHS)
            wide = next((c for c in widths if c.accumulators_per_thread <= most), replace(wide, block_n=WIDTHS[-1]))
        return wide if self.stages else replace(wide, stages=most_stages(wide, itemsize, out_itemsize, b_rows=b_rows))

    def check(self, itemsize: int, out_itemsize: int, fast: bool = True, b_rows: bool = False) -> None:
        """Check the configuration, in which no size may be 0. Raises LaunchError: kernels-variant, kernels-config.

        Without `fast` each thread holds two accumulators: the tensor core's for a block, and the promoted one for the tile."""
        if self.variant not in VARIANTS:
            raise fail(errors.VARIANT, variant=self.variant, known=", ".join(VARIANTS))
        most = min(MOST_HELD[self.consumers], most_accumulators(fast)) if self.consumers in MOST_HELD else 0
        for field, good, rule in self._rules(itemsize, out_itemsize, most, b_rows):
            if not good:
                raise fail(errors.CONFIG, field=field, value=getattr(self, field), rule=rule, variant=self.variant)

    @property
    def _alone(self) -> bool:
        """Nothing but CTAs that share K make up the program."""
        return self.variant == "cooperative" and self.splits == self.cluster == 1

    def _width_fits(self, least: int) -> bool:
        other = self.block_n % WIDTH_STEP == 0 and not self.in_tensor_memory
        return self.block_n >= least and (self.block_n in WIDTHS or (other and self.block_n <= MOST_WIDTH))

    def _rules(self, itemsize: int, out_itemsize: int, most: int, b_rows: bool) -> list[tuple[str, bool, str]]:
        """Rules as (field, whether it holds, text of the rule)."""
        alone, several = self.variant == "ping_pong", self.variant == "cooperative" and self.cluster == 1
        rows = WARPGROUP_ROWS * (1 if alone else self.consumers)
        heights, least = (rows, 2 * rows, 4 * rows), WIDTHS[-1]
        pairs = self.variant == "cooperative" and self.block_m == rows
        if self.in_tensor_memory:
            heights, least, pairs = (TENSOR_ROWS,), LEAST_WIDTH, True
        span, step = PIECE_BYTES // itemsize, 32 // itemsize
        sent = LEAST_SHARED // 2 if b_rows or self.in_tensor_memory else LEAST_SENT
        used, held = self.shared_bytes(itemsize, out_itemsize, b_rows), self.accumulators_per_thread
        return [
            ("order", self.order in ORDERS, f"one of {', '.join(ORDERS)}"),
            ("consumers", self.consumers in ((2,) if alone else (1, 2, 3) if several else (1, 2)),
             "2" if alone else "1, 2 or 3" if several else "1 or 2"),
            ("block_m", self.block_m in heights, " or ".join(", ".join(map(str, heights)).rsplit(", ", 1))),
            ("block_n", self._width_fits(least),
             f"a power of two from {least} to {WIDTHS[0]}, or on Hopper alone a multiple of {WIDTH_STEP} up to {MOST_WIDTH}"),
            ("block_n", held <= most, f"so small that a thread holds {most} sums at most, not {held}"),
            ("block_k", self.block_k % step == 0 and _power(self.block_k) and self.block_k <= 4 * span,
             f"a power of two from {step} to {4 * span}"),
            ("buffers", self.buffers in (1, 2, 4), "1, 2 or 4"),
            ("stages", self.stages >= 2 and used <= SHARED_BYTES,
             f"at least 2, and so few that a program's {used} bytes of shared memory fit in {SHARED_BYTES}"),
            ("group", self.group >= 0, "at least 0"),
            ("splits", self.splits >= 1, "at least 1"),
            ("cluster", self.cluster == 1 or (self.cluster in ((2,) if self.in_tensor_memory else CLUSTERS) and pairs),
             f"1, or 2 or 4 in the variant cooperative with tiles of {rows} rows, and 2 on Blackwell"),
            ("block_n", self.cluster == 1 or self.block_n % (sent * self.cluster) == 0,
             f"a multiple of {sent} for each CTA of a cluster"),
            ("shares", self.shares in SHARES and (self.shares == 1 or self._alone),
             f"1, or one of {SHARES[1:]} in the variant cooperative with splits=1 and cluster=1"),
            ("programs", self.programs >= 0, "at least 0"),
        ]  # fmt: skip


@lru_cache(maxsize=1024)
def piece_width(columns: int, itemsize: int) -> int:
    """The columns of a piece: those of one swizzle span; of a tile whose width is no power of two, 128, 64 or 96 bytes, which
    divide it, or the whole width, because narrower pieces cost too many TMA stores.

    >>> [piece_width(n, 2) for n in (256, 32, 96, 112, 144, 192)]
    [64, 32, 32, 112, 48, 64]
    """
    most = PIECE_BYTES // itemsize
    if _power(columns):
        return min(most, columns)
    return next((n for n in (most, most // 2, most * 3 // 4) if columns % n == 0), columns)


@lru_cache(maxsize=1024)
def roomy(columns: int, itemsize: int) -> int:
    """The columns that memory holds for a block of b that is contiguous along them. An MMA begins with a span of the swizzle,
    and may end within one. So a tile in whose width only spans of 32 bytes fit has whole spans of the widest swizzle, of which
    it multiplies a part: on an H200 that takes 0.64 to 0.94 of the time, but more where spans of 64 bytes fit, or where over a
    third is added. Above 256 the second of two MMAs would begin within a span.

    >>> [roomy(n, 2) for n in (32, 80, 96, 112, 144, 192, 272)], roomy(112, 1)
    ([32, 80, 96, 128, 192, 192, 272], 112)
    """
    span = PIECE_BYTES // itemsize
    whole = -(-columns // span) * span
    own = columns % (span // 2) == 0 or columns > WIDTHS[0] or itemsize not in TRANSPOSABLE
    return columns if own or 3 * whole > 4 * columns else whole


def span_bytes(columns: int, itemsize: int) -> int:
    """The swizzle span of a block that is contiguous along its `columns`: the widest that divides them. TMA copies a row of the
    block in pieces of that size.

    >>> [span_bytes(n, 2) for n in (192, 160, 80, 8)]
    [128, 64, 32, 16]
    """
    return min((columns & -columns) * itemsize, PIECE_BYTES)


@lru_cache(maxsize=1024)
def slices_of(columns: int, shares: int) -> tuple[int, int, int]:
    """How `shares` CTAs divide the columns of a tile: the columns of a slice, a power of two; the CTAs that have slices; and
    the most slices of one of them.

    >>> slices_of(128, 8), slices_of(8, 4), slices_of(96, 2), slices_of(80, 4)
    ((16, 8, 1), (8, 1, 1), (16, 2, 3), (16, 4, 2))
    """
    widths = [n for n in WIDTHS if columns % n == 0 and n * min(shares, columns // LEAST_SLICE) <= columns]
    even = [n for n in widths if n >= 2 * LEAST_SLICE and columns // n % shares == 0]
    width = (even or widths)[0]
    receivers = min(shares, columns // width)
    return width, receivers, -(-columns // (width * receivers))


def most_accumulators(fast: bool) -> int:
    """Maximum accumulators of a tile per thread; without `fast` half of them, since a block's accumulator is held as well."""
    return MOST_HELD[2] if fast else MOST_ACCUMULATORS // 2


def most_stages(config: MatmulConfig, itemsize: int, out_itemsize: int, b_rows: bool = False, limit: int = 8) -> int:
    """Number of stages that fit in shared memory; at least 2."""
    room = room_for_stages(config.epilogue_bytes(out_itemsize), 1)
    return max(2, min(limit, room // config.stage_bytes(itemsize, b_rows)))


def room_for_stages(epilogue_bytes: Any, programs: int) -> Any:
    """Shared memory that a program's epilogue leaves for stages, with `programs` resident programs per multiprocessor."""
    return PROGRAMS_BYTES // programs - PROGRAM_BYTES - BARRIER_BYTES - epilogue_bytes


def best_group(programs: int, block_m: int, block_n: int) -> int:
    """The best height of a band of `grouped` and `serpentine`, in rows of tiles, for waves of `programs` programs.

    A wave of P tiles that is g tiles high reads g row blocks of a and P / g column blocks of b. The sum of their bytes is least
    when both are equal: g * block_m = P / g * block_n.

    >>> best_group(132, 128, 256), best_group(132, 128, 128)
    (16, 11)
    """
    return max(1, round(sqrt(programs * block_n / block_m)))


def _power(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def config_of(config: Any, variant: str | None, usual: str) -> MatmulConfig | None:
    """The configuration that a caller requests: an object, a dictionary of its fields (with the `usual` variant by default), or
    None.

    Raises LaunchError: kernels-config-kind, kernels-config."""
    if config is None:
        return None if variant is None else MatmulConfig(variant=variant)
    if isinstance(config, dict):
        given = cast("dict[str, Any]", config)
        try:
            config = MatmulConfig(**cast("dict[str, Any]", {"variant": usual, **given}))
        except TypeError:
            raise fail(errors.CONFIG_KIND, got=repr(given)) from None
    if not isinstance(config, MatmulConfig):
        raise fail(errors.CONFIG_KIND, got=repr(config))
    config = config if variant is None else replace(config, variant=variant)
    _check_kinds(config)
    return config


def _check_kinds(config: MatmulConfig) -> None:
    """Raises LaunchError (kernels-config) for fields of the wrong type, even if their value compares equal, such as 128.0."""
    for field in fields(config):
        value: Any = getattr(config, field.name)
        kind: type = type(cast("object", field.default))
        if kind is str or (type(value) is kind and (kind is bool or value <= MOST_NUMBER)):
            continue
        rule = "True or False" if kind is bool else f"an int up to {MOST_NUMBER}"
        raise fail(errors.CONFIG, field=field.name, value=repr(value), rule=rule, variant=config.variant)
