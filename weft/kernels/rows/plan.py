"""How rows lie over the threads of a program: the choice for a row length, and what a kernel is compiled for.

A narrow row lies in a few lanes, so that a warp holds several; a wider one in one warp, in a block, or in the blocks of a
cluster. A thread holds about 64 bytes of each array: four accesses of 16 bytes, all in flight before the first is used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from weft import language as gl
from weft.layout import WARP_SIZE

CLUSTERS = (1, 2, 4, 8, 16)
ACCESS_BYTES = 16
EACH = 32
"""Elements of a row in a thread's registers."""
USUAL_WARPS, MOST_WARPS = 4, 32
REGISTERS = 65536
"""Registers of a multiprocessor."""
FORWARD_REGISTERS, MIDDLE_REGISTERS, BACKWARD_REGISTERS = 64, 96, 128
"""Registers of a thread: eight, five and four blocks of 4 warps on a multiprocessor."""
THIRD_REGISTERS, THIRD_EACH = 80, 40
"""Registers of a thread that leave a multiprocessor three blocks of 8 warps, and elements of a softmax that fit into them."""
MIDDLE_EACH, LONG_EACH, MOST_EACH = 48, 64, 80
"""Elements of a row in a thread's registers with more of these."""
SUMS_REGISTERS, SUMS_PART, SUMS_WARPS = 168, 4096, 8
"""Registers of a thread that adds up two gradients over its rows; columns of its block, and the most warps that have them."""
LEAST_COPY = 4
"""Bytes of the smallest cp.async."""
LARGE_WARPS = 16
"""Warps of a block of which a multiprocessor has two, or with 64 elements in a thread one, by their registers: while it waits
for a row there is nothing else to do."""
FEW_LEAST, FEW_MOST, FOUR_LEAST, FOUR_MOST = 256, 2048, 3072, 8192
"""Columns of rows that norms have by two warps, and by four: more than so many, up to so many."""
MOMENTS = ((512, 2, 32), (1280, 2, 64), (3072, 2, 40), (9216, 4, 72))
"""Up to so many columns, so many warps that add up deviations from a mean, and elements of each thread."""
USUAL_PART, LONGEST_PART = 16384, 32768
"""Columns of a block: as long as larger clusters exist, and at most."""
LONG_PART = 8192
"""Columns of a block of 4 warps, with 64 elements of a row in a thread."""
MIDDLE_PART, WAITING_PART = 10240, 12288
"""Columns of a block of 8 warps, with 40 and 48 elements of a row in a thread."""
MOST_TILES = 16
"""Tiles that a block's columns are divided into: the time to compile grows with them."""


@dataclass(frozen=True, slots=True)
class RowConfig:
    """How a row kernel divides rows: a row among `num_ctas` blocks of a cluster, each with `num_warps` warps, or several rows
    to a program.

    `each`: elements of a row that a thread holds at most, where rows are shorter than `num_warps` such warps. `programs`: how
    many programs (or clusters) are launched; 0 chooses. `ahead`: for how many of its next steps a program copies rows to shared
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
    """`lines` rows of a program, or of a cluster one row in as many parts; a block has its columns in so many `tiles` of `part`
    columns, a power of two, `vec` of them an access.

    `full`: how many tiles, the first ones, have no columns but those of the row, in every block. `even`: programs have `lines`
    rows each, none less. `ahead`: for how many steps rows are copied to shared memory meanwhile. `numbers`: how many numbers
    of a row the warps that have it exchange at a time. `down`: lanes and warps that lie across rows. `tickets`: programs draw
    their rows (`Rows.draw`). `align`: if not 0, rows begin anywhere, and the first tile at the multiple of `align` elements
    before."""

    blocks: int
    warps: int
    lines: int
    part: int
    tiles: int
    vec: int
    full: int
    even: bool
    ahead: int
    numbers: int
    down: tuple[int, int]
    tickets: bool = False
    align: int = 0

    @property
    def whole(self) -> bool:
        """Whether the tiles have no columns but those of the row."""
        return self.full == self.tiles and not self.align

    @property
    def layout(self) -> Any:
        """A tile of the rows in registers."""
        lanes, warps = self.down
        return gl.BlockedLayout(
            [1, self.vec], [lanes, WARP_SIZE // lanes], [warps, self.warps // warps], [1, 0], cga_layout=self._spread
        )

    @property
    def held(self) -> Any:
        """A tile of the rows in shared memory."""
        return gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=self._spread)

    @property
    def unit(self) -> int:
        """What the columns of each block of a cluster are a multiple of: with accesses of 16 bytes a line of L2."""
        return 8 * self.vec

    def portion(self, cols: int) -> int:
        """Columns of each block of a cluster; the last ones may have fewer."""
        return -(-reached(cols, self.align) // (self.blocks * self.unit)) * self.unit

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
    def each(self) -> int:
        """Elements of a thread."""
        lines = 1 if self.blocks > 1 else self.lines
        return self.part * self.tiles * lines // (WARP_SIZE * self.warps)

    @property
    def registers(self) -> int:
        """Registers of a thread in a forward pass: 64 for 32 elements, 96 for 48 or the most that leave as many blocks on a
        multiprocessor, and 128 for more."""
        if self.each <= EACH:
            return FORWARD_REGISTERS
        if self.each > MIDDLE_EACH:
            return BACKWARD_REGISTERS
        return most_registers(MIDDLE_REGISTERS, self.warps)

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


SUMS = (
    (768, 1024, RowConfig(1, 4, 8)),
    (1536, 2048, RowConfig(1, 4, 16)),
    (3072, 4096, RowConfig(1, 8, 16)),
    (7168, 10240, RowConfig(4, 4)),
)
"""Configurations of gradients of rows of more than so many columns, up to so many; the first two also of two sums."""


def chosen_rows(cols: int, usual: int = USUAL_PART) -> RowConfig:
    """The configuration for rows of `cols` elements, `usual` columns to a block as long as larger clusters exist."""
    blocks = next((blocks for blocks in CLUSTERS if cols <= blocks * usual), CLUSTERS[-1])
    part = power_of_two(-(-cols // blocks))
    return RowConfig(blocks, min(max(part // (WARP_SIZE * EACH), USUAL_WARPS), MOST_WARPS))


def long_rows(cols: int, most: int = CLUSTERS[-1], each: int = LONG_EACH) -> RowConfig:
    """The configuration for rows of `cols` elements, `each` of them at most in a thread, which share the instructions of a row,
    and by a cluster of up to `most` blocks, as small as can be: they leave one another the multiprocessor while they wait."""
    blocks = 1 if cols <= USUAL_PART else min(power_of_two(-(-cols // LONG_PART)), most)
    return RowConfig(blocks, min(max(_warps(-(-cols // blocks), each), USUAL_WARPS), MOST_WARPS), each)


def chosen_norm(cols: int, *, short: bool) -> RowConfig:
    """The configuration of a norm of rows. Short rows take two warps alone: of a copy's rate on an H200, RMSNorm of 2,048
    columns 0.98 instead of 0.96 by four. Longer ones of 16 bits (`short`) take four with up to 64 elements in a thread: with a
    residual, 4,096 columns 0.98 instead of 0.97."""
    if FEW_LEAST < cols <= FEW_MOST:
        return RowConfig(num_warps=2)
    return RowConfig(each=LONG_EACH) if short and FOUR_LEAST < cols <= FOUR_MOST else chosen_rows(cols)


def chosen_sums(cols: int, *, both: bool) -> RowConfig:
    """The configuration of gradients of norms, which add up that of the weight over their rows, or `both` it and the bias's.

    Of a copy's rate on an H200, bfloat16: with 8 and 16 elements in each thread of a block that has one row at a time, instead
    of 32 and several rows, 0.94 instead of 0.80 (1,024 columns), 0.95 instead of 0.91 (2,048), 0.92 instead of 0.90 (4,096); by
    clusters of small blocks 0.94 instead of 0.90 (8,192). Both: 0.87 instead of 0.82 (1,024 and 2,048); by blocks of 4 warps
    0.85 instead of 0.71 (5,120), 0.88 instead of 0.82 (8,192 and 16,384)."""
    for least, most, config in SUMS[: 2 if both else None]:
        if least < cols <= most:
            return config
    return chosen_rows(cols, SUMS_PART if both else USUAL_PART)


def chosen_moments(cols: int, *, few: bool, short: bool) -> RowConfig:
    """The configuration where deviations from a mean are added up. For rows that take a cluster, 32 elements with their mean,
    weight and bias are too many for the registers of large blocks: of a copy's rate on an H200 0.94 instead of 0.77 (65,536),
    0.92 instead of 0.64 (131,072; with 16 blocks 0.90).

    `few`: an element takes few registers, which is one array of 16 bits, in vectors. Then few warps share what they do for a
    row, without copying the next one: 0.97 instead of 0.88 (1,024 columns), 0.98 instead of 0.95 (2,048), 0.96 instead of 0.94
    (6,144)."""
    if cols > USUAL_PART:
        return long_rows(cols, 8 if cols <= 16 * LONG_PART else CLUSTERS[-1])
    if not few or cols <= FEW_LEAST or cols == USUAL_PART:
        return chosen_norm(cols, short=short)
    for most, warps, each in MOMENTS:
        if cols <= most:
            return RowConfig(1, warps, each, ahead=0)
    return long_rows(cols)


@cache
def plan_of(
    config: RowConfig, rows: int, cols: int, vec: int, *, ahead: int = 0, numbers: int = 1, align: int = 0,
    single: bool = False, most: int = 0,
) -> RowPlan:  # fmt: skip
    """The plan for `rows` rows of `cols` columns, `vec` elements an access. With `align` rows begin anywhere, and a program has
    one at a time.

    A tile has one access of each thread that a row lies in, and a block as many tiles as the row needs: what a power of two
    leaves empty would take as many instructions as the row. Masks are for the tiles at its ends alone. `single`: one tile as
    long as the row, or with `most` of at most so many elements, and rows may be longer."""
    blocks, warps = config.num_ctas, config.num_warps
    own = max(-(-reached(cols, align) // blocks), vec)
    if align:
        warps = min(_warps(own, config.each), warps)
    part = power_of_two(own)
    if most:
        part = min(part, max(vec * WARP_SIZE * warps, power_of_two(most)))
    across, down = warps, (1, 1)
    if blocks == 1:
        across = min(_warps(min(own, part), config.each), warps)
        down = max(WARP_SIZE * vec // part, 1), warps // across
    access = vec * WARP_SIZE * across
    part = max(part, access) if blocks > 1 else part
    tiles = 1
    if not (single or most) and part > access:
        part = access
        while -(-own // part) > MOST_TILES:
            part *= 2
        tiles = -(-own // part)
    held = max(part * tiles * down[0] * down[1] // (WARP_SIZE * warps), 1)
    lines = blocks
    if blocks == 1:
        lines = down[0] * down[1] * (power_of_two(config.each // held + 1) // 2 or 1)
        lines = 1 if align else min(lines, max(power_of_two(rows), down[0] * down[1]))
    plan = RowPlan(
        blocks, warps, lines, part, tiles, vec, 0, blocks > 1 or rows % lines == 0, ahead, numbers, down, align=align
    )
    if most:
        return plan
    return replace(plan, full=min(max(cols - (blocks - 1) * plan.portion(cols), 0), plan.portion(cols)) // part)


def _warps(cols: int, each: int) -> int:
    """Warps of a power of two, the fewest whose threads hold at most `each` of `cols` columns."""
    return power_of_two(-(-cols // (WARP_SIZE * each)))


def reached(cols: int, align: int) -> int:
    """Columns of a tile for rows of `cols`, with what may be before a row that begins anywhere."""
    return cols + align - 1 if align else cols


def most_registers(least: int, warps: int) -> int:
    """The most registers of a thread, at least `least`, that leave a multiprocessor as many blocks."""
    threads = WARP_SIZE * warps
    return min(REGISTERS // (threads * max(REGISTERS // (threads * least), 1)) // 8 * 8, BACKWARD_REGISTERS)


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least this."""
    return 1 << max(number - 1, 0).bit_length()
