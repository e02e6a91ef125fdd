"""Configurations of a matrix product: which kernel computes it, in which tiles, in which order.

    matmul(a, b, config=MatmulConfig(variant="ping_pong", block_m=128, block_n=128, stages=6))
    for config in matmul_configs(a, b): ...

Nothing here knows of arrays or devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, cast

from weft.errors import fail
from weft.errors import kernels as errors

VARIANTS = ("pipelined", "persistent", "persistent_pipelined", "cooperative", "ping_pong")
UNIFORM = VARIANTS[:3]
"""Variants whose warps all do the same."""
ORDERS = ("rows", "grouped", "serpentine")
"""Orders of tiles; see `weft.kernels.device.schedules`."""
WARPGROUP_ROWS = 64
PIECE_BYTES = 128
SHARED_BYTES = 227 * 1024
BARRIER_BYTES = 1024
"""What barriers and the gaps that alignment leaves take at most."""
MOST_SUMS = 128
"""Sums that a thread can hold without spilling others of its values."""
PRODUCER_REGISTERS = 40
REGISTERS = 504
"""What two consumers and a producer, a warpgroup each, have together for one thread of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulConfig:
    """How a matrix product is computed. Sizes are in elements.

    `variant` is one of `VARIANTS`. A tile of the output measures `block_m` x `block_n` and takes `block_k` at a time along K,
    through `stages` buffers; pieces of it leave through `buffers` more. Tiles come in an `order` of
    `ORDERS`, in bands of `group` (0: the best). With `splits` > 1 the sum along K is cut in so many
    parts, which a second kernel adds. With `swap` the transpose of the output is computed, b.T @ a.T. `consumers` groups of
    four warps multiply. `programs` is how many programs are launched (0: as many as run at a time, or one for each tile). With
    `pack`, operands that TMA cannot read are first copied to where it can, by another kernel.
    """

    variant: str = "cooperative"
    block_m: int = 128
    block_n: int = 256
    block_k: int = 64
    stages: int = 4
    order: str = "grouped"
    group: int = 0
    splits: int = 1
    swap: bool = False
    consumers: int = 2
    buffers: int = 2
    programs: int = 0
    pack: bool = False

    @property
    def persistent(self) -> bool:
        """A program computes several tiles."""
        return self.variant != "pipelined"

    @property
    def overlap(self) -> bool:
        """Warps that all do the same ask for the next tile's blocks before they are done with this one's."""
        return self.variant == "persistent_pipelined"

    @property
    def num_warps(self) -> int:
        """Warps of the kernel, which are those of the first consumer where warps have trades."""
        return 4 * self.consumers if self.variant in UNIFORM else 4

    @property
    def rows_of_warps(self) -> int:
        """Rows of a piece that is stored at a time: an instruction's, of all warps that work together."""
        return 16 * self.num_warps

    @property
    def sums_per_thread(self) -> int:
        """Elements of the tile that each multiplying thread holds."""
        warpgroups = 1 if self.variant == "ping_pong" else self.consumers
        return self.block_m * self.block_n // (128 * warpgroups)

    def registers_for(self, described: bool) -> tuple[int, ...] | None:
        """Registers of the second consumer's and the producer's threads; None where all threads have the same.

        Warps that copy need about as many as others do, so then registers stay where they are."""
        if self.variant in UNIFORM or self.consumers == 1 or not described:
            return None
        return ((REGISTERS - PRODUCER_REGISTERS) // 2, PRODUCER_REGISTERS)

    def shared_bytes(self, itemsize: int, out_itemsize: int) -> int:
        """Shared memory of a program, in bytes, at most."""
        blocks = self.stages * (self.block_m + self.block_n) * self.block_k * itemsize
        width = min(self.block_n, PIECE_BYTES // out_itemsize)
        stored_by = 1 if self.variant in UNIFORM else self.consumers
        return blocks + stored_by * self.buffers * self.rows_of_warps * width * out_itemsize + BARRIER_BYTES

    def check(self, itemsize: int, out_itemsize: int) -> None:
        """Raises LaunchError: kernels-variant, kernels-config."""
        if self.variant not in VARIANTS:
            raise fail(errors.VARIANT, variant=self.variant, known=", ".join(VARIANTS))
        for field, good, rule in self._rules(itemsize, out_itemsize):
            if not good:
                raise fail(errors.CONFIG, field=field, value=getattr(self, field), rule=rule, variant=self.variant)

    def _rules(self, itemsize: int, out_itemsize: int) -> list[tuple[str, bool, str]]:
        """A field, whether it is good, and what it has to be."""
        alone = self.variant == "ping_pong"
        rows = WARPGROUP_ROWS * (1 if alone else self.consumers)
        span, step = PIECE_BYTES // itemsize, 32 // itemsize
        used, held = self.shared_bytes(itemsize, out_itemsize), self.sums_per_thread
        return [
            ("order", self.order in ORDERS, f"one of {', '.join(ORDERS)}"),
            ("consumers", self.consumers in ((2,) if alone else (1, 2)), "2 (1 or 2 in other variants than ping_pong)"),
            ("block_m", self.block_m in (rows, 2 * rows, 4 * rows), f"{rows}, {2 * rows} or {4 * rows}"),
            ("block_n", self.block_n in (8, 16, 32, 64, 128, 256), "a power of two from 8 to 256"),
            ("block_n", held <= MOST_SUMS, f"so small that a thread holds {MOST_SUMS} sums at most, not {held}"),
            ("block_k", self.block_k % step == 0 and _power(self.block_k) and self.block_k <= 4 * span,
             f"a power of two from {step} to {4 * span}"),
            ("buffers", self.buffers in (1, 2, 4), "1, 2 or 4"),
            ("stages", self.stages >= 2 and used <= SHARED_BYTES,
             f"at least 2, and so few that a program's {used} bytes of shared memory fit in {SHARED_BYTES}"),
            ("group", self.group >= 0, "at least 0"),
            ("splits", self.splits >= 1, "at least 1"),
            ("programs", self.programs >= 0, "at least 0"),
        ]  # fmt: skip


def best_group(programs: int, block_m: int, block_n: int) -> int:
    """How many rows of tiles a band of `grouped` and `serpentine` should have, for rounds of so many programs.

    >>> best_group(132, 128, 256), best_group(132, 128, 128)
    (16, 11)
    """
    return max(1, round(sqrt(programs * block_n / block_m)))


def _power(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def config_of(config: Any, variant: str | None) -> MatmulConfig | None:
    """The configuration that a caller asks for: an object, a dictionary of its fields, or None.

    Raises LaunchError (kernels-config-kind)."""
    if config is None:
        return None if variant is None else MatmulConfig(variant=variant)
    if isinstance(config, dict):
        fields = cast("dict[str, Any]", config)
        try:
            config = MatmulConfig(**fields)
        except TypeError:
            raise fail(errors.CONFIG_KIND, got=repr(fields)) from None
    if not isinstance(config, MatmulConfig):
        raise fail(errors.CONFIG_KIND, got=repr(config))
    return config if variant is None else replace(config, variant=variant)
