"""Plans of loads and stores of a distributed tile in tensor memory (tcgen05.ld, tcgen05.st), as data.

A warp can access 32 lanes: those from 32 * (its index % 4) on. One instruction moves a fixed *fragment*, repeated along the
columns, which gives the lane and column of each register of each thread. The table below lists the fragments. It has two uses:
`register_layout` builds the layout of a tile that instructions of one variant move, and `plan_tensor_access` finds the
instructions for a given layout of a tile. (PTX ISA, tcgen05, "Data Movement Shape" and "Access restrictions".)

Addresses are the hardware's: lane << 16 | column of 32 bits. While planning, columns count elements instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import Literal

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.base import WARP_SIZE, WARPGROUP, Unreadable
from weft.layout.cluster import BLOCK, Cga, block_bases, block_shape
from weft.layout.distributed.layouts import DistributedLinearLayout
from weft.layout.linear.columns import basis, combinations, distinct_registers
from weft.layout.linear.f2 import Span, is_power_of_two, log2, solved
from weft.layout.linear.flat import join, xor
from weft.layout.linear.maps import LinearLayout
from weft.layout.tensor_memory.layouts import COLUMN, COLUMN_BITS, LANES, ROW, TensorLayout

Variant = Literal["32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"]
"""Shapes of the instructions: lanes, and bits per lane of a repetition."""
SPLITN = "32x32b_splitn"
"""A register layout of 32x32b in which a thread holds both halves of the columns."""
LANE = 1 << 16
"""The address step from one lane to the next."""
UPPER = 16 * LANE
"""The address step to the lanes that fragments of 16 lanes do not cover."""
SPLIT = -1
"""A step that is an immediate of the instruction (immHalfSplitoff)."""
MOST_WORDS = 128
"""The most 32-bit registers that one instruction moves."""
PACKED_BITS = 16
"""Elements that an instruction packs in pairs, one from each of two columns (pack::16b, unpack::16b)."""
WARP_BITS = log2(WARPGROUP)
"""Bits of a warp's index that select the lanes that it can access."""
NOWHERE = (0, 0)

Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorFragment:
    """One repetition of an instruction: the address steps of the bits of the lane index, and of the register index.

    It is `columns` wide; repetitions follow one another along the columns and in the registers."""

    lanes: tuple[int, int, int, int, int]
    registers: tuple[int, ...]
    columns: int

    @property
    def repeats(self) -> int:
        """The most repetitions."""
        return MOST_WORDS >> len(self.registers)


FRAGMENTS: dict[Variant, TensorFragment] = {
    "32x32b": TensorFragment((LANE, 2 * LANE, 4 * LANE, 8 * LANE, UPPER), (), columns=1),
    "16x64b": TensorFragment((8 * LANE, 1, LANE, 2 * LANE, 4 * LANE), (), columns=2),
    "16x128b": TensorFragment((1, 2, LANE, 2 * LANE, 4 * LANE), (8 * LANE,), columns=4),
    "16x256b": TensorFragment((2, 4, LANE, 2 * LANE, 4 * LANE), (1, 8 * LANE), columns=8),
    "16x32bx2": TensorFragment((LANE, 2 * LANE, 4 * LANE, 8 * LANE, SPLIT), (), columns=1),
}


@dataclass(frozen=True, slots=True)
class TensorSide:
    """The memory of a tile: the part of `shape` from `start` on of a tile of shape `tile` in `layout`.

    Its starts are multiples of its lengths."""

    layout: TensorLayout
    tile: tuple[int, ...]
    shape: tuple[int, ...]
    start: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorAccess:
    """Instructions that move a tile: `variant`, each `repeat` times along the columns.

    Instruction i begins at the address of the whole tile, plus `warps[b]` for each bit b of the warp's number in its partition,
    plus `offsets[i]`, in which the start of the part is included. Its words of 32 bits hold the registers `registers[i]` of the
    tile, `per_word` each, lowest bits first; bits that they do not fill hold nothing. With `packed`, a word holds two elements
    of 16 bits, of neighbouring columns. `split` is how many columns lie between the lower 16 threads' and the upper 16
    threads' of 16x32bx2 (0: both have the same).

    Registers that repeat others are not named: register r of the tile is the one loaded as `result[r]`.
    """

    variant: Variant
    repeat: int
    packed: bool
    split: int
    offsets: tuple[int, ...]
    registers: tuple[tuple[int, ...], ...]
    warps: tuple[int, ...]
    result: tuple[int, ...]

    @property
    def words(self) -> int:
        """Registers of 32 bits that one instruction moves."""
        return words(self.variant, self.repeat)

    @property
    def per_word(self) -> int:
        """Elements in each of them."""
        return len(self.registers[0]) // self.words


def words(variant: Variant, repeat: int) -> int:
    """Registers of 32 bits of each thread that an instruction moves."""
    return repeat << len(FRAGMENTS[variant].registers)


def register_layout(
    bits: int, shape: Sequence[int], layout: TensorLayout, num_warps: int, variant: str = "32x32b", cga: Cga = ()
) -> DistributedLinearLayout:
    """The layout of a tile of `shape`, of elements of `bits` bits, that instructions of a variant move to and from `layout`.

    Warps beyond the first four take other columns, as far as there are any; where a fragment reaches 16 lanes only, they take
    the other 16 first. Threads of lanes that hold nothing take the right half of the columns instead. 32x32b_splitn is 32x32b
    with the halves of the tile's columns in different registers of a thread: the last bit of their number tells them apart.
    `cga` says how blocks share the tile where `layout` does not.

    Raises LayoutError (tmem-variant, tmem-warps, tmem-register-layout) where there is none.
    """
    fragments: dict[str, TensorFragment] = {**FRAGMENTS, SPLITN: FRAGMENTS["32x32b"]}
    if variant not in fragments:
        raise fail(errors.TMEM_VARIANT, variant=variant, known=", ".join(fragments))
    if num_warps < WARPGROUP or not is_power_of_two(num_warps):
        raise fail(errors.TMEM_WARPS, num_warps=num_warps)
    blocks = layout.cga or cga
    memory = layout.to_linear(shape if layout.cga else block_shape(blocks, shape))
    found = _bases(fragments[variant], memory, layout.has_copies, bits, num_warps)
    if found is not None and (variant != SPLITN or _split_columns(found, shape[1] // 2, bits)):
        registers = DistributedLinearLayout(
            found.registers, found.lanes, found.warps, block_bases(blocks, shape), tuple(shape)
        )
        # Scales repeat over the quarters of the lanes, in rows that the fragments of some variants do not reach in order.
        whole = TensorSide(layout, tuple(shape), tuple(shape), (0, 0))
        if not layout.has_copies or isinstance(_plan(registers.to_linear(shape), whole, bits, num_warps), TensorAccess):
            return registers
    raise fail(
        errors.TMEM_REGISTER_LAYOUT, variant=variant, bits=bits, shape=list(shape), layout=layout, num_warps=num_warps
    )


@lru_cache(maxsize=4096)
def plan_tensor_access(tile: LinearLayout, side: TensorSide, bits: int, num_warps: int) -> TensorAccess | Unreadable:
    """The plan of a load or store of a tile in tensor memory, in the fewest instructions.

    `tile` maps register, lane, warp and block to the part, `bits` is the element's width, `num_warps` the partition's."""
    if cut(side.layout.to_linear(side.tile).bases(BLOCK), side.tile, side.shape):
        return Unreadable("it is a slice of what is split over blocks", "slice along another dimension")
    found = _plan(tile, side, bits, num_warps)
    if isinstance(found, TensorAccess):
        return found
    sharing = _sharing(side, bits)
    if sharing:
        apart = "" if side.layout.has_copies else f", or give each its own with col_stride={COLUMN_BITS // bits}"
        reason = f"{sharing} elements share a 32-bit column, and the part has only some of them"
        return Unreadable(reason, f"take parts of whole columns{apart}")
    fits = f"get_tmem_reg_layout(dtype, {list(side.shape)}, {side.layout!r}, num_warps)"
    return Unreadable(found, f"use the layout {fits} for it, and convert_layout from or to another one")


def cut(blocks: Sequence[Vector], tile: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a view of a tile leaves out a part along a dimension that is split over blocks."""
    split = {d for vector in blocks for d, value in enumerate(vector) if value}
    return any(shape[d] != tile[d] for d in split)


def _sharing(side: TensorSide, bits: int) -> int:
    """The number of elements that share a column that a view includes only in part; 0 if there is no such column."""
    word = side.layout.to_linear(side.tile).bases(COLUMN)[: log2(max(COLUMN_BITS // bits, 1))]
    shared = [vector for vector in word if any(vector)]
    beyond = any(at >= size for vector in shared for at, size in zip(vector, side.shape, strict=True))
    return 1 << len(shared) if beyond else 0


# Layouts of registers


@dataclass(frozen=True, slots=True)
class _Bases:
    """The steps in the tile of the bits of register, lane and warp indices."""

    registers: list[Vector]
    lanes: list[Vector]
    warps: list[Vector]


def _bases(fragment: TensorFragment, memory: LinearLayout, copies: bool, bits: int, num_warps: int) -> _Bases | None:
    """The layout within a block; None where the fragment has more columns, or reaches some of the `copies` only, and where
    elements that share a 32-bit column do not lie side by side."""
    rows, columns = memory.bases(ROW), memory.bases(COLUMN)
    packed = bits == PACKED_BITS and len(columns) > 1 and not any(columns[0])
    in_word = log2(COLUMN_BITS // bits) + packed
    word, beyond = [vector for vector in columns[:in_word] if any(vector)], list(columns[in_word:])
    width = log2(fragment.columns)
    if len(beyond) < width or (not packed and word != list(columns[: len(word)])):
        return None
    at = {LANE << bit: vector for bit, vector in enumerate(rows)}
    at |= {1 << bit: vector for bit, vector in enumerate(beyond[:width])}
    upper, lower_only = at[UPPER], UPPER not in fragment.lanes
    if copies and not all(any(at[step]) for step in (*fragment.registers, *[UPPER] * lower_only)):
        return None
    warps, last = list(rows[log2(WARP_SIZE) :]), list[Vector]()
    if lower_only and any(upper):
        (warps if num_warps > WARPGROUP else last).append(upper)
    free = log2(num_warps) - len(warps)
    cut = max(len(beyond) - free, width)
    warps += [*beyond[cut:], *[NOWHERE] * (free - len(beyond[cut:]))]
    more = beyond[width:cut]
    idle = at[SPLIT] = NOWHERE
    if more and (SPLIT in fragment.lanes or (upper == idle and not lower_only and not copies)):
        at[SPLIT] = at[UPPER] = more.pop()
    registers = [*word, *[at[step] for step in fragment.registers], *more, *last]
    return _Bases(registers, [at[step] for step in fragment.lanes], warps)


def _split_columns(found: _Bases, half: int, bits: int) -> bool:
    """Let the last register bit step to the right half of the columns; returns whether that is possible."""
    wanted, registers = (0, half), found.registers
    if wanted in registers:
        registers.append(registers.pop(registers.index(wanted)))
        return True
    if len(registers) <= log2(COLUMN_BITS // bits):
        return False
    # The bits of the first four warps stay: these warps access different lanes.
    for places, first in ((found.lanes, 0), (found.warps, WARP_BITS)):
        if wanted in places[first:]:
            places[places.index(wanted)], registers[-1] = registers[-1], wanted
            return True
    return False


# Plans


@dataclass(frozen=True, slots=True)
class _Held:
    """Addresses, columns counted in elements, of what the bits of a register's, a thread's and a warp's number lead to.

    Registers are those that differ, `numbers[position]` each, and `result` is as in TensorAccess; warps are those beyond the
    first four. `word` are the steps between elements of one 32-bit register, `in_word` the bits of a column's number that it
    takes. Threads of lanes in `copies` may hold what the first lane does, since memory does.
    """

    registers: tuple[int, ...]
    numbers: tuple[int, ...]
    result: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    start: int
    word: tuple[int, ...]
    in_word: int
    packed: bool
    copies: tuple[int, ...]


def _plan(tile: LinearLayout, side: TensorSide, bits: int, num_warps: int) -> TensorAccess | str:
    """The best plan, or the reason why there is none."""
    memory = side.layout.to_linear(side.tile)
    held = _misplaced(tile, memory, bits, num_warps) or _held(tile, memory, side, bits)
    if isinstance(held, str):
        return held
    plans = [plan for variant in FRAGMENTS if (plan := _fit(variant, held, bits))]
    if plans:
        return min(plans, key=lambda plan: len(plan.offsets))
    lanes = ", ".join(str(divmod(_physical(address, bits), LANE)) for address in held.lanes)
    return f"threads 1, 2, 4, 8 and 16 of a warp lie {lanes} lanes and columns from thread 0, as no instruction reads or writes"


def _misplaced(tile: LinearLayout, memory: LinearLayout, bits: int, num_warps: int) -> str | None:
    """The reason why no instruction can access the elements that threads hold."""
    if bits not in (8, 16, COLUMN_BITS):
        return f"elements of {bits} bits do not fit into its columns of {COLUMN_BITS} bits"
    if num_warps % WARPGROUP:
        return f"a partition of {num_warps} warps reaches only some of its {LANES} lanes"
    mine, its = tile.bases(BLOCK), memory.bases(BLOCK)
    if any(a != b for a, b in zip_longest(mine, its, fillvalue=NOWHERE)):
        return f"blocks of the cluster hold elements {list(mine)} of the tile, but {list(its)} in tensor memory"
    mine, its = tile.bases("warp")[:WARP_BITS], memory.bases(ROW)[-WARP_BITS:]
    if mine != its:
        return f"warps 1 and 2 hold elements {list(mine)}, but the lanes that they reach hold {list(its)}"
    return None


def _held(tile: LinearLayout, memory: LinearLayout, side: TensorSide, bits: int) -> _Held | str:
    """Where in memory lies what threads hold, or why it cannot be moved in words of 32 bits."""
    places = Span((*memory.columns[ROW], *memory.columns[COLUMN], *memory.columns[BLOCK]))

    def address(coordinates: Iterable[int]) -> int:
        place = solved(places, join(coordinates, side.tile))
        return place % LANES * LANE + place // LANES

    distinct = distinct_registers(tile.columns["register"])
    registers = tuple([address(tile.coordinates(column)) for column in distinct.columns])
    lanes, warps = (tuple(map(address, tile.bases(dim))) for dim in ("lane", "warp"))
    rows, columns = memory.bases(ROW), memory.bases(COLUMN)
    if any(each % LANE >= 1 << len(columns) for each in (*registers, *lanes, *warps)):
        return "a block holds elements that are in tensor memory of another one"
    in_word, together = log2(COLUMN_BITS // bits), Span(registers)
    word = [1 << bit for bit, vector in enumerate(columns[:in_word]) if any(vector)]
    packed = bits == PACKED_BITS and not word and columns[:1] == (NOWHERE,) and 2 in together
    if packed:
        in_word, word = in_word + 1, [2]
    if not packed and word != [1 << bit for bit in range(len(word))]:
        return "elements that share a 32-bit column do not lie side by side in it"
    if any(step not in together for step in word):
        return "elements that share a 32-bit column are not all in one thread"
    idle = [LANE << bit for bit, row in enumerate(rows) if not any(row)]
    return _Held(
        registers, distinct.numbers, tuple([distinct.numbers[position] for position in distinct.position]),
        lanes, warps[WARP_BITS:], address(side.start), tuple(word), in_word, packed,
        copies=tuple(idle) if side.layout.has_copies else (),
    )  # fmt: skip


def _fit(variant: Variant, held: _Held, bits: int) -> TensorAccess | None:
    """The instructions of a variant that move a tile; None if the variant does not fit the tile's layout."""
    fragment, span = FRAGMENTS[variant], Span(held.registers)

    def step(address: int) -> int:
        return address if address >= LANE else address << held.in_word

    split = held.lanes[-1] if fragment.lanes[-1] == SPLIT else 0
    lanes = [split if address == SPLIT else step(address) for address in fragment.lanes]
    if any(mine != its and (mine or its not in held.copies) for mine, its in zip(held.lanes, lanes, strict=True)):
        return None
    within = [step(address) for address in fragment.registers]
    if split >= LANE or any(each not in span for each in within):
        return None
    if UPPER in held.copies and UPPER not in lanes:
        return None
    repeat = 1
    while repeat < fragment.repeats and step(fragment.columns * repeat) in span:
        within.append(step(fragment.columns * repeat))
        repeat *= 2
    covered = xor((*held.word, *within))
    # The hardware adds these offsets and the plan XORs them, so no two may have a bit in common.
    taken = (1 << held.in_word) - 1 | (LANES - WARP_SIZE) * LANE
    for part in (*within, *lanes, *held.warps):
        if part & taken:
            return None
        taken |= part
    rest = [each & ~covered for each in basis(held.registers, (*held.word, *within))]
    if any(each & taken for each in rest):
        return None

    firsts, inside = combinations(rest), combinations((*held.word, *within))
    return TensorAccess(
        variant, repeat, held.packed, _physical(split, bits),
        offsets=tuple([_physical(held.start + first, bits) for first in firsts]),
        registers=tuple([tuple([held.numbers[solved(span, first ^ each)] for each in inside]) for first in firsts]),
        warps=(WARP_SIZE * LANE, 2 * WARP_SIZE * LANE, *[_physical(warp, bits) for warp in held.warps]),
        result=held.result,
    )  # fmt: skip


def _physical(address: int, bits: int) -> int:
    """The hardware's address, from one whose columns count elements."""
    lane, column = divmod(address, LANE)
    return lane * LANE + column * bits // COLUMN_BITS
