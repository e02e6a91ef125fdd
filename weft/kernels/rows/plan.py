"""How rows lie over the threads of a program: what divides them, and what a kernel is compiled for.

A narrow row lies in a few lanes, so that a warp holds several; a wider one in one warp, in a block, or in the blocks of a
cluster. A thread holds 64 to 160 bytes of each array, one access of 16 bytes of each tile, all in flight before the first is
used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from weft import language as gl
from weft.errors import fail
from weft.errors import kernels as errors
from weft.layout import WARP_SIZE
from weft.plain import whole

CLUSTERS = (1, 2, 4, 8, 16)
ACCESS_BYTES = 16
EACH = 32
"""Elements of a row in a thread's registers."""
USUAL_WARPS = 4
REGISTERS = 65536
"""Registers of a multiprocessor."""
FORWARD_REGISTERS, MIDDLE_REGISTERS, BACKWARD_REGISTERS = 64, 96, 128
"""Registers of a thread: eight, five and four blocks of 4 warps on a multiprocessor."""
THIRD_REGISTERS, THIRD_EACH = 80, 40
"""Registers of a thread that leave a multiprocessor three blocks of 8 warps, and elements of a softmax that fit into them."""
MIDDLE_EACH, LONG_EACH, MOST_EACH = 48, 64, 80
"""Elements of a row in a thread's registers with more of these."""
SUMS_REGISTERS, SUMS_WARPS = 168, 8
"""Registers of a thread that adds up two gradients over its rows, and the most warps of its block that have them."""
LEAST_COPY = 4
"""Bytes of the smallest cp.async."""
LARGE_WARPS = 16
"""Warps of a block of which a multiprocessor has two, or with 64 elements in a thread one, by their registers: while it waits
for a row there is nothing else to do."""
USUAL_PART, LONGEST_PART = 16384, 32768
"""Columns of a block: as long as larger clusters exist, and at most."""
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

    def __post_init__(self) -> None:
        """Raises LaunchError (kernels-rows-parameter)."""
        for name, value, least in (
            ("num_ctas", self.num_ctas, 1), ("num_warps", self.num_warps, 1), ("each", self.each, 1),
            ("programs", self.programs, 0), ("ahead", self.ahead or 0, 0),
        ):  # fmt: skip
            if whole(value) is None or value < least:
                rule = f"an int that is at least {least}"
                raise fail(errors.ROWS_PARAMETER, op="RowConfig", name=name, got=repr(value), rule=rule)

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
        """Elements of rows that a thread holds."""
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


@cache
def plan_of(
    config: RowConfig, rows: int, cols: int, vec: int, *, ahead: int = 0, numbers: int = 1, align: int = 0,
    single: bool = False, most: int = 0,
) -> RowPlan:  # fmt: skip
    """The plan for `rows` rows of `cols` columns, `vec` elements an access. With `align` rows begin anywhere, and a program has
    one at a time.

    A tile has one access of each thread that a row lies in, and a block as many tiles as the row needs: padding to a power of
    two would take as many instructions as columns of the row. Masks are for the tiles at its ends alone. `single`: one tile as
    long as the row, or with `most` of at most so many elements, and rows may be longer."""
    blocks, warps = config.num_ctas, config.num_warps
    own, each = max(-(-reached(cols, align) // blocks), vec), max(config.each, vec)
    if align and blocks == 1:
        warps = min(warps_of(own, each), warps)
    part = power_of_two(own)
    if most:
        part = min(part, max(vec * WARP_SIZE * warps, power_of_two(most)))
    across, down = warps, (1, 1)
    if blocks == 1:
        across = min(warps_of(min(own, part), each), warps)
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
        lines = down[0] * down[1] * (power_of_two(each // held + 1) // 2 or 1)
        lines = 1 if align else min(lines, max(power_of_two(rows), down[0] * down[1]))
    plan = RowPlan(
        blocks, warps, lines, part, tiles, vec, 0, blocks > 1 or rows % lines == 0, ahead, numbers, down, align=align
    )
    if most:
        return plan
    portion = plan.portion(cols)
    # The last block has the fewest columns.
    return replace(plan, full=min(max(cols - (blocks - 1) * portion, 0), portion) // part)


def warps_of(cols: int, each: int) -> int:
    """Warps of a power of two, the fewest whose threads hold at most `each` of `cols` columns."""
    return power_of_two(-(-cols // (WARP_SIZE * each)))


def reached(cols: int, align: int) -> int:
    """Columns of a tile for rows of `cols`, with what may be before a row that begins anywhere."""
    return cols + align - 1 if align else cols


def most_registers(least: int, warps: int) -> int:
    """The most registers of a thread that leave a multiprocessor as many blocks as `least`, or one block."""
    threads = WARP_SIZE * warps
    return min(REGISTERS // (threads * max(REGISTERS // (threads * least), 1)) // 8 * 8, BACKWARD_REGISTERS)


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least this."""
    return 1 << max(number - 1, 0).bit_length()
