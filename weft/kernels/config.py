"""Configurations of a matrix product: which kernel computes it, in which tiles, in which order.

    matmul(a, b, config=MatmulConfig(variant="ping_pong", block_m=128, block_n=128, stages=6))
    for config in matmul_configs(a, b): ...

Nothing here knows of arrays or devices.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import sqrt
from typing import Any, cast

from weft.errors import fail
from weft.errors import kernels as errors
from weft.layout.distributed.fragments import WARPGROUP_ROWS

UNIFORM = ("pipelined", "persistent", "persistent_pipelined")
"""Variants whose warps all do the same."""
HOPPER_VARIANTS = (*UNIFORM, "cooperative", "ping_pong")
TENSOR_VARIANTS = ("tcgen05", "tcgen05_clc")
"""Variants whose sums are in tensor memory, which Blackwell has."""
VARIANTS = HOPPER_VARIANTS + TENSOR_VARIANTS
DESCRIBED = UNIFORM + TENSOR_VARIANTS
"""Variants that ask TMA for every block."""
ORDERS = ("rows", "grouped", "serpentine")
"""Orders of tiles; see `weft.kernels.device.schedules`."""
WIDTHS = (256, 128, 64, 32, 16, 8)
"""Columns of a tile."""
LEAST_SHARED = 32
"""Columns of a tile of which each of two blocks of threads can send half."""
TENSOR_ROWS = 128
"""Rows of tensor memory, which are a block's of a tile."""
LEAST_WIDTH = 16
"""Columns of a tile in tensor memory."""
EITHER_WAY = (2,)
"""Bytes of elements that Hopper's tensor cores read along either dimension; the others along K only."""
PIECE_BYTES = 128
SHARED_BYTES = 227 * 1024
PROGRAM_BYTES = 1024
PROGRAMS_BYTES = SHARED_BYTES + PROGRAM_BYTES
"""What all programs of a multiprocessor share, of which each takes so much for the system."""
BARRIER_BYTES = 1024
"""What barriers and the gaps that alignment leaves take at most."""
MOST_SUMS = 128
"""Sums that a thread can hold without spilling others of its values."""
PROMOTED = 128
"""Elements along K after which sums of fp8 are added in float32, where they are not fast."""
PRODUCER_REGISTERS = 40
MOST_NUMBER = (1 << 31) - 1
"""Kernels count in 32-bit integers."""
REGISTERS = 504
"""What two consumers and a producer, a warpgroup each, have together for one thread of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulConfig:
    """How a matrix product is computed. Sizes are in elements; those of 0 are filled in as `filled` says.

    `variant` is one of `VARIANTS`, of which each runs on Hopper or on Blackwell. A tile of the output measures `block_m` x
    `block_n` and takes `block_k` at a time along K, through `stages` buffers; pieces of it leave through `buffers` more. Tiles
    come in an `order` of `ORDERS`, in bands of `group` (0: the best). With `splits` > 1 the sum along K is cut in so many
    parts, which a second kernel adds. With `swap` the transpose of the output is computed, b.T @ a.T. `consumers` groups of
    four warps multiply, or on Blackwell, where that takes none, store. `programs` is how many programs are launched (0: as many
    as run at a time, or one for each tile). With `pack`, operands that TMA cannot read are first copied to where it can, by
    another kernel. With `cluster=2` a program is two blocks of threads, whose tiles lie in the same columns; each reads half of
    what they multiply of b, for both.
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

    @property
    def persistent(self) -> bool:
        """There are as many programs as run at a time, and each computes several tiles."""
        return self.variant not in ("pipelined", "tcgen05_clc")

    @property
    def in_tensor_memory(self) -> bool:
        """Sums are not in registers."""
        return self.variant in TENSOR_VARIANTS

    @property
    def overlap(self) -> bool:
        """Warps that all do the same ask for the next tile's blocks before they are done with this one's."""
        return self.variant == "persistent_pipelined"

    @property
    def num_warps(self) -> int:
        """Warps of the kernel, which are those of the first consumer, or those that store, in a warp-specialized kernel."""
        return 4 * self.consumers if self.variant in DESCRIBED else 4

    @property
    def rows(self) -> int:
        """Rows of the tiles of all blocks of a cluster together."""
        return self.cluster * self.block_m

    @property
    def columns_held(self) -> int:
        """Columns of b that a block of threads has in its shared memory: tensor cores of Blackwell read the other's too."""
        return self.block_n // self.cluster if self.in_tensor_memory else self.block_n

    @property
    def rows_of_warps(self) -> int:
        """Rows of a piece that is stored at a time: an instruction's, of all warps that work together."""
        return TENSOR_ROWS if self.in_tensor_memory else 16 * self.num_warps

    @property
    def sums_per_thread(self) -> int:
        """Elements of the tile that each multiplying thread holds; none where they are in tensor memory."""
        if self.in_tensor_memory:
            return 0
        warpgroups = 1 if self.variant == "ping_pong" else max(self.consumers, 1)
        return self.block_m * self.block_n // (128 * warpgroups)

    def registers_for(self, described: bool) -> tuple[int, ...] | None:
        """Registers of the second consumer's and the producer's threads; None where all threads have the same.

        Warps that copy need about as many as others do, so then registers stay where they are."""
        if self.variant in DESCRIBED or self.consumers == 1 or not described:
            return None
        return ((REGISTERS - PRODUCER_REGISTERS) // 2, PRODUCER_REGISTERS)

    def shared_bytes(self, itemsize: int, out_itemsize: int) -> int:
        """Shared memory of a program, in bytes, at most."""
        blocks = self.stages * (self.block_m + self.columns_held) * self.block_k * itemsize
        width = min(self.block_n, PIECE_BYTES // out_itemsize)
        stored_by = 1 if self.variant in DESCRIBED else self.consumers
        return blocks + stored_by * self.buffers * self.rows_of_warps * width * out_itemsize + BARRIER_BYTES

    def filled(self, itemsize: int, out_itemsize: int, most: int = MOST_SUMS) -> MatmulConfig:
        """The configuration with no size left open, for operands and an output of elements of so many bytes.

        `block_n` is the widest of which a thread holds `most` sums at most, `block_k` takes 128 bytes, and there are as many
        `stages` as fit, up to 8. Where there is nothing like that the smallest stand in, for `check` to refuse."""
        if self.block_n and self.block_k and self.stages:
            return self
        wide = replace(self, block_k=self.block_k or PIECE_BYTES // itemsize)
        if not self.block_n:
            widths = (replace(wide, block_n=n) for n in WIDTHS)
            wide = next((c for c in widths if c.sums_per_thread <= most), replace(wide, block_n=WIDTHS[-1]))
        return wide if self.stages else replace(wide, stages=most_stages(wide, itemsize, out_itemsize))

    def check(self, itemsize: int, out_itemsize: int, fast: bool = True) -> None:
        """Raises LaunchError: kernels-variant, kernels-config. No size may be open.

        Without `fast` each thread holds a block's sums beside the tile's."""
        if self.variant not in VARIANTS:
            raise fail(errors.VARIANT, variant=self.variant, known=", ".join(VARIANTS))
        for field, good, rule in self._rules(itemsize, out_itemsize, most_sums(fast)):
            if not good:
                raise fail(errors.CONFIG, field=field, value=getattr(self, field), rule=rule, variant=self.variant)

    def _rules(self, itemsize: int, out_itemsize: int, most: int) -> list[tuple[str, bool, str]]:
        """A field, whether it is good, and what it has to be."""
        alone = self.variant == "ping_pong"
        rows = WARPGROUP_ROWS * (1 if alone else self.consumers)
        heights, least = (rows, 2 * rows, 4 * rows), WIDTHS[-1]
        pairs = self.variant == "cooperative" and self.block_m == rows
        if self.in_tensor_memory:
            heights, least, pairs = (TENSOR_ROWS,), LEAST_WIDTH, True
        span, step = PIECE_BYTES // itemsize, 32 // itemsize
        used, held = self.shared_bytes(itemsize, out_itemsize), self.sums_per_thread
        return [
            ("order", self.order in ORDERS, f"one of {', '.join(ORDERS)}"),
            ("consumers", self.consumers in ((2,) if alone else (1, 2)), "2" if alone else "1 or 2"),
            ("block_m", self.block_m in heights, " or ".join(", ".join(map(str, heights)).rsplit(", ", 1))),
            ("block_n", self.block_n in WIDTHS and self.block_n >= least, f"a power of two from {least} to {WIDTHS[0]}"),
            ("block_n", held <= most, f"so small that a thread holds {most} sums at most, not {held}"),
            ("block_k", self.block_k % step == 0 and _power(self.block_k) and self.block_k <= 4 * span,
             f"a power of two from {step} to {4 * span}"),
            ("buffers", self.buffers in (1, 2, 4), "1, 2 or 4"),
            ("stages", self.stages >= 2 and used <= SHARED_BYTES,
             f"at least 2, and so few that a program's {used} bytes of shared memory fit in {SHARED_BYTES}"),
            ("group", self.group >= 0, "at least 0"),
            ("splits", self.splits >= 1, "at least 1"),
            ("block_n", self.cluster == 1 or self.block_n >= LEAST_SHARED, f"at least {LEAST_SHARED} in a cluster"),
            ("cluster", self.cluster == 1 or (self.cluster == 2 and pairs),
             f"1, or 2 in the variant cooperative with tiles of {rows} rows, and on Blackwell"),
            ("programs", self.programs >= 0, "at least 0"),
        ]  # fmt: skip


def most_sums(fast: bool) -> int:
    """Sums of a tile that a thread can hold; without `fast` it holds those of a block beside them."""
    return MOST_SUMS if fast else MOST_SUMS // 2


def most_stages(config: MatmulConfig, itemsize: int, out_itemsize: int, limit: int = 8, programs: int = 1) -> int:
    """Stages that fit in shared memory, at least 2, where a multiprocessor runs so many programs at a time."""
    room = PROGRAMS_BYTES // programs - PROGRAM_BYTES
    fitting = (n for n in range(limit, 2, -1) if replace(config, stages=n).shared_bytes(itemsize, out_itemsize) <= room)
    return next(fitting, 2)


def best_group(programs: int, block_m: int, block_n: int) -> int:
    """How many rows of tiles a band of `grouped` and `serpentine` should have, for rounds of so many programs.

    >>> best_group(132, 128, 256), best_group(132, 128, 128)
    (16, 11)
    """
    return max(1, round(sqrt(programs * block_n / block_m)))


def _power(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def config_of(config: Any, variant: str | None, usual: str) -> MatmulConfig | None:
    """The configuration that a caller asks for: an object, a dictionary of its fields, of the `usual` variant if it names none,
    or None.

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
    """Raises LaunchError (kernels-config) where a number or a condition is something else, even if it compares equal: 128.0."""
    for field in fields(config):
        value: Any = getattr(config, field.name)
        kind: type = type(cast("object", field.default))
        if kind is str or (type(value) is kind and (kind is bool or value <= MOST_NUMBER)):
            continue
        rule = "True or False" if kind is bool else f"an int up to {MOST_NUMBER}"
        raise fail(errors.CONFIG, field=field.name, value=repr(value), rule=rule, variant=config.variant)
