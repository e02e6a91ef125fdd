"""How rows lie over the threads of a program: the choice for a row length, and what a kernel is compiled for.

A narrow row lies in a few lanes, so that a warp holds several; a wider one in one warp, in a block, or in the blocks of a
cluster. A thread holds about 64 bytes of each array: four accesses of 16 bytes, all in flight before the first is used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from weft import language as gl
from weft.layout import WARP_SIZE

CLUSTERS = (1, 2, 4, 8, 16)
ACCESS_BYTES = 16
EACH = 32
"""Elements of a row in a thread's registers."""
USUAL_WARPS, MOST_WARPS = 4, 32
FORWARD_REGISTERS, BACKWARD_REGISTERS = 64, 128
"""Registers of a thread: two blocks of 16 warps on a multiprocessor, and one."""
SUMS_REGISTERS, SUMS_PART, SUMS_WARPS = 168, 8192, 8
"""Registers of a thread that adds up two gradients over its rows; columns and warps of its block."""
LEAST_COPY = 4
"""Bytes of the smallest cp.async."""
LARGE_WARPS = 16
"""Warps of a block of which a multiprocessor has two, or with 64 elements in a thread one, by their registers: while it waits
for a row there is nothing else to do. Of rows that fill a tile partly, half as many warps have too few bytes on their way."""
MOMENTS_PART, MOMENTS_LEAST = 2048, 512
"""Columns of a warp that adds up deviations from a mean, with 64 elements in each thread, and the fewest of a row for which it
does."""
USUAL_PART, LONGEST_PART = 16384, 32768
"""Columns of a block: as long as larger clusters exist, and at most."""
LONG_PART = 8192
"""Columns of a block of 4 warps, with 64 elements of a row in a thread."""


@dataclass(frozen=True, slots=True)
class RowConfig:
    """How a row kernel divides rows: a row among `num_ctas` blocks of a cluster, each with `num_warps` warps, or several rows
    to a program.

    `each`: elements of a row that a thread holds, where rows are shorter than `num_warps` such warps. `programs`: how many
    programs (or clusters) are launched; 0 chooses. `ahead`: for how many of its next steps a program copies rows to shared
    memory while it computes, where cp.async can; None chooses."""

    num_ctas: int = 1
    num_warps: int = USUAL_WARPS
    each: int = EACH
    programs: int = 0
    ahead: int | None = None

    def copies(self, usual: int, nbytes: int) -> int:
        """How many rows are copied ahead, in accesses of `nbytes`."""
        return int(usual if self.ahead is None else self.ahead) if nbytes >= LEAST_COPY else 0


@dataclass(frozen=True, slots=True)
class RowPlan:
    """`lines` rows of a program, or of a cluster one row in as many parts; `part` columns of a block, `vec` of them an access.

    `whole`: these are all columns. `even`: programs have `lines` rows each, none less. `ahead`: for how many steps rows are
    copied to shared memory meanwhile. `numbers`: how many numbers of a row the warps that have it exchange at a time. `down`:
    lanes and warps that lie across rows. `tickets`: programs draw their rows (`Rows.draw`). `align`: if not 0, rows begin
    anywhere, and each tile at the multiple of `align` elements before its row."""

    blocks: int
    warps: int
    lines: int
    part: int
    vec: int
    whole: bool
    even: bool
    ahead: int
    numbers: int
    down: tuple[int, int]
    tickets: bool = False
    align: int = 0

    @property
    def layout(self) -> Any:
        """The rows in registers."""
        lanes, warps = self.down
        return gl.BlockedLayout(
            [1, self.vec], [lanes, WARP_SIZE // lanes], [warps, self.warps // warps], [1, 0], cga_layout=self._spread
        )

    @property
    def held(self) -> Any:
        """The rows in shared memory."""
        return gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=self._spread)

    @property
    def unit(self) -> int:
        """What the columns of each block of a cluster are a multiple of: with accesses of 16 bytes a line of L2."""
        return 8 * self.vec

    @property
    def across(self) -> int:
        """Warps that a row, or a block's part of it, lies in."""
        return max(min(self.warps // self.down[1], self.part // self.span), 1)

    @property
    def span(self) -> int:
        """Columns that follow one another in a warp."""
        return min(WARP_SIZE // self.down[0] * self.vec, self.part)

    @property
    def gathered(self) -> Any:
        """The numbers [lines, across, numbers] of all warps that have a row, in registers of each of them."""
        lanes = min(self.across, WARP_SIZE)
        if self.blocks == 1:
            return gl.BlockedLayout([1, 1, self.numbers], [1, WARP_SIZE, 1], [self.down[1], self.across, 1], [2, 1, 0])
        return gl.BlockedLayout(
            [1, 1, self.numbers], [WARP_SIZE // lanes, lanes, 1], [1, self.warps, 1], [2, 1, 0], cga_layout=self._copies
        )

    @property
    def sent(self) -> Any:
        """The same in shared memory, of each block of a cluster."""
        return gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0], cga_layout=self._copies)

    @property
    def registers(self) -> int:
        """Registers of a thread in a forward pass. With 64 elements of a row a softmax needs about 100 (64 spill 300 to 640
        bytes)."""
        lines = 1 if self.blocks > 1 else self.lines
        return FORWARD_REGISTERS if self.part * lines <= EACH * WARP_SIZE * self.warps else BACKWARD_REGISTERS

    @property
    def options(self) -> dict[str, Any]:
        """Launch options."""
        return {"num_ctas": self.blocks, "num_warps": self.warps}

    @property
    def _spread(self) -> list[list[int]]:
        return [[1 << bit, 0] for bit in range(self.blocks.bit_length() - 1)]

    @property
    def _copies(self) -> list[list[int]]:
        return [[0, 0, 0]] * (self.blocks.bit_length() - 1)


def chosen_rows(cols: int, usual: int = USUAL_PART) -> RowConfig:
    """The configuration for rows of `cols` elements, `usual` columns to a block as long as larger clusters exist."""
    blocks = next((blocks for blocks in CLUSTERS if cols <= blocks * usual), CLUSTERS[-1])
    part = power_of_two(-(-cols // blocks))
    return RowConfig(blocks, min(max(part // (WARP_SIZE * EACH), USUAL_WARPS), MOST_WARPS))


def long_rows(cols: int, most: int = CLUSTERS[-1]) -> RowConfig:
    """The configuration for rows of `cols` elements, 64 of them in a thread, which share the instructions of a row, and by a
    cluster of up to `most` blocks, as small as can be: they leave one another the multiprocessor while they wait."""
    blocks = 1 if cols <= USUAL_PART else min(power_of_two(-(-cols // LONG_PART)), most)
    part = power_of_two(-(-cols // blocks))
    return RowConfig(blocks, min(max(part // (2 * EACH * WARP_SIZE), USUAL_WARPS), MOST_WARPS), 2 * EACH)


def chosen_moments(cols: int, *, few: bool) -> RowConfig:
    """The configuration where deviations from a mean are added up. For rows that take a cluster, 32 elements with their mean,
    weight and bias are too many for the registers of large blocks: of a copy's rate on an H200 0.94 instead of 0.77 (65,536),
    0.92 instead of 0.64 (131,072; with 16 blocks 0.90).

    `few`: an element takes few registers, which is one array of 16 bits, in vectors. Then few warps share what they do for a
    row, and copy the next one meanwhile: 0.96 to 0.99 instead of 0.76 to 0.86 (640, 768, 1,024), 0.87 to 0.91 instead of 0.78
    to 0.82 (2,560, 5,120, 6,144). One warp of up to 2,048 columns does not copy: 0.94 instead of 0.85 (1,536). Rows that fill a
    larger tile gain nothing (4,096: 0.95), and short ones lose (128: 0.92 instead of 0.96)."""
    part = power_of_two(cols)
    if cols <= USUAL_PART:
        if not few or cols < MOMENTS_LEAST or cols == part >= MOMENTS_PART:
            return chosen_rows(cols)
        return RowConfig(1, max(part // MOMENTS_PART, 1), 2 * EACH, ahead=int(part != MOMENTS_PART))
    return long_rows(cols, 8 if cols <= 16 * LONG_PART else CLUSTERS[-1])


@cache
def plan_of(
    config: RowConfig, rows: int, cols: int, vec: int, *, ahead: int = 0, numbers: int = 1, most: int = 1 << 30,
    align: int = 0,
) -> RowPlan:  # fmt: skip
    """The plan for `rows` rows of `cols` columns, `vec` elements an access; at most `most` elements of a block are held. With
    `align` rows begin anywhere, and a program has one at a time."""
    blocks, warps = config.num_ctas, config.num_warps
    part = max(power_of_two(-(-reached(cols, align) // blocks)), vec)
    if align:
        warps = min(max(part // (WARP_SIZE * config.each), 1), warps)
    part = min(part, max(vec * WARP_SIZE * warps, power_of_two(most)))
    across = min(max(part // (WARP_SIZE * config.each), 1), warps)
    down = (1, 1)
    if blocks == 1:
        down = max(WARP_SIZE * vec // part, 1), warps // across
    elif part < vec * WARP_SIZE * warps:
        part = vec * WARP_SIZE * warps
    held = max(part * down[0] * down[1] // (WARP_SIZE * warps), 1)
    lines = blocks if blocks > 1 else down[0] * down[1] * max(config.each // held, 1)
    lines = lines if blocks > 1 else min(lines, max(power_of_two(rows), down[0] * down[1]))
    if align and blocks == 1:
        lines = 1
    even = blocks > 1 or rows % lines == 0
    whole = part * blocks == cols and not align
    return RowPlan(blocks, warps, lines, part, vec, whole, even, ahead, numbers, down, align=align)


def partly(config: RowConfig, cols: int) -> bool:
    """Whether rows leave a part of the tiles of a configuration empty."""
    return cols < power_of_two(-(-cols // config.num_ctas)) * config.num_ctas


def reached(cols: int, align: int) -> int:
    """Columns of a tile for rows of `cols`, with what may be before a row that begins anywhere."""
    return cols + align - 1 if align else cols


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least this."""
    return 1 << max(number - 1, 0).bit_length()
