"""MMAs of tiles as instructions: the parts of the accumulator and the operands of each `wgmma` or `mma.sync`.

Plans are derived from linear layouts, independent of the class of the layouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

from weft.errors import UserError, fail
from weft.errors import layout as errors
from weft.layout.base import WARPGROUP, Unreadable, whole_shape
from weft.layout.distributed.fragments import (
    K_BITS,
    LANES_INNER,
    LANES_OUTER,
    MMA_ACCUMULATOR,
    MMA_LEFT,
    MMA_RIGHT,
    WARPGROUP_ROWS,
    WGMMA_ACCUMULATOR,
    WGMMA_COLUMNS,
    Fragment,
    fragment_starts,
    joined_starts,
)
from weft.layout.distributed.layouts import DistributedLayout
from weft.layout.distributed.mma import NVMMADistributedLayout, pick_wgmma_layout
from weft.layout.linear.columns import combinations
from weft.layout.linear.ends import count
from weft.layout.linear.maps import LinearLayout
from weft.layout.tensor_cores.shared_operands import Blocks, Operand, SharedSide, plan_operand

WORD_BITS = 32
BYTE = 8
INTEGER_COLUMNS, MOST_EIGHTS = 16, 32
"""Integer instructions of more than 32 columns have a multiple of 16 (PTX ISA, wgmma.mma_async, "Matrix Shape"). Layouts do not
tell integers from fp8."""

Starts = dict[tuple[int, int], int]
"""First register of each instruction's part of a matrix, by the first row and column of that part in warp 0."""
Firsts = dict[int, tuple[int, ...]]
"""The start of an operand, in registers or bytes, for each step along k, by the instruction's first row or column."""


@dataclass(frozen=True, slots=True)
class ProductPlan:
    """The instructions m64n`n`k`k` of an MMA of tiles, as `mma.wgmma` takes them; `left` is None for registers.

    A step is the instruction's first accumulator register, the first register of a or its first byte, the first byte of b,
    and whether it is the first along k of its accumulator. Bytes count from the start of the operand's tile.
    """

    n: int
    k: int
    left: Operand | None
    right: Operand
    steps: tuple[tuple[int, int, int, bool], ...]


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """The instructions m16n8k`k` of an MMA of tiles, as `mma.mma_sync` takes them.

    A step is the instruction's first register of the accumulator, of a and of b. `left` and `right` are the registers of a and
    of b in the order in which the steps count them.
    """

    k: int
    steps: tuple[tuple[int, int, int], ...]
    left: tuple[int, ...]
    right: tuple[int, ...]


@lru_cache(maxsize=1024)
def plan_product(
    accumulator: DistributedLayout,
    shape: tuple[int, int, int],
    bits: int,
    left: SharedSide | DistributedLayout,
    right: SharedSide,
) -> ProductPlan:
    """The plan of a wgmma of an M x K tile and a K x N tile; `shape` is (M, N, K), elements of both have `bits` bits.

    `left` is memory, or the layout of a tile in registers. Instructions are as wide as the registers of the accumulator and
    the memory of b allow. Consecutive instructions use different accumulators, so that none waits for the one before. In a
    cluster each block multiplies the parts that it holds. Raises LayoutError (layout-mma-*) if the layouts do not match.
    """
    product = _Product(accumulator, shape, bits)
    product.check_size(WARPGROUP_ROWS, min(WGMMA_ACCUMULATOR))
    warps = product.linear.in_size("warp")
    if warps < WARPGROUP:
        raise fail(errors.MMA_WARPS, layout=accumulator, warps=warps)
    widths = reversed(WGMMA_COLUMNS if not product.linear.is_whole else sorted(WGMMA_ACCUMULATOR))
    candidates = [(n, starts) for n in widths if (starts := _warpgroup_starts(product.linear, n, bits))]
    if not candidates:
        raise product.misfit("wgmma", pick_wgmma_layout(bits, shape[:2], warps, accumulator.cga or None))
    tried = [(n, starts, product.memory(right, 0, n, starts)) for n, starts in candidates]
    n, starts, columns = next((each for each in tried if not isinstance(each[2], Unreadable)), tried[-1])
    if isinstance(columns, Unreadable):
        raise _unreadable("b", right, columns)
    if isinstance(left, SharedSide):
        rows = product.memory(left, 1, WARPGROUP_ROWS, starts)
        if isinstance(rows, Unreadable):
            raise _unreadable("a", left, rows)
    else:
        rows = None, product.registers(left, 1, starts)
    steps = tuple(
        (register, rows[1][row][i], columns[1][column][i], i == 0)
        for i in range(shape[2] // product.step)
        for (row, column), register in starts.items()
    )
    return ProductPlan(n, product.step, rows[0], columns[0], steps)


@lru_cache(maxsize=1024)
def plan_sync(
    accumulator: DistributedLayout,
    shape: tuple[int, int, int],
    bits: int,
    left: DistributedLayout,
    right: DistributedLayout,
) -> SyncPlan:
    """The plan of an mma.sync of an M x K tile and a K x N tile in registers; `shape` is (M, N, K), elements have `bits` bits.

    Instructions of one accumulator follow one another along k, in the order of `k_order`. Raises LayoutError (layout-mma-*) if
    the layouts do not match.
    """
    product = _Product(accumulator, shape, bits)
    product.check_size(MMA_ACCUMULATOR.outer_size, MMA_ACCUMULATOR.inner_size)
    if whole_shape(shape) != shape:
        raise fail(errors.MMA_SYNC_END, m=shape[0], n=shape[1], k=shape[2])
    starts = _unique_starts(product.linear, MMA_ACCUMULATOR)
    if starts is None:
        warps = product.linear.in_size("warp")
        raise product.misfit("mma.sync", NVMMADistributedLayout([2, 0], [warps, 1], [16, 8]))
    (rows, left_order), (columns, right_order) = product.sync_registers(left, right, starts)
    steps = tuple(
        (register, a, b)
        for (row, column), register in starts.items()
        for a, b in zip(rows[row], columns[column], strict=True)
    )
    return SyncPlan(product.step, steps, left_order, right_order)


@lru_cache(maxsize=1024)
def k_order(layout: DistributedLayout, shape: tuple[int, int], k: int, bits: int) -> tuple[int, ...] | None:
    """The elements along k in the order in which `mma.sync` multiplies an operand in registers; None if no order fits.

    Any order gives the same sum of products, up to rounding, as long as both operands have it. With the instruction's own
    `k_width` it is 0, 1, 2 and so on; with a wider one (16 contiguous bytes per thread, say) a thread's neighbours along k are
    multiplied by different instructions.
    """
    along = _along(layout.to_linear(shape), k, WORD_BITS // bits)
    return None if along is None else tuple(combinations(along))


def _along(linear: LinearLayout, k: int, width: int) -> tuple[int, ...] | None:
    """The steps along k of each bit of the instructions' k: within a register, across lanes, then the other registers.

    None if these are not all steps along k, each once."""
    steps = [basis[k] for basis in linear.bases("register") if basis[k] and not basis[1 - k]]
    lanes = [basis[k] for basis in linear.bases("lane")[: LANES_INNER.bit_length() - 1]]
    within = width.bit_length() - 1
    along = (*steps[:within], *lanes, *steps[within:])
    all_steps = [1 << bit for bit in range(len(along))]
    if steps[:within] != all_steps[:within] or sorted(along) != all_steps or 1 << len(along) != linear.out_sizes[k]:
        return None
    return along


def _in_order(
    linear: LinearLayout, k: int, along: tuple[int, ...], fragment: Fragment
) -> tuple[LinearLayout, tuple[int, ...]]:
    """The layout with k counted as `along` does, and registers in the order of the instructions' fragments.

    The second result is those registers."""
    new = {step: 1 << bit for bit, step in enumerate(along)}
    registers = linear.bases("register")
    rows = [bit for bit, basis in enumerate(registers) if basis[1 - k]][
        : (fragment.outer_size // LANES_OUTER).bit_length() - 1
    ]
    within = fragment.width.bit_length() - 1
    columns = [bit for bit, basis in enumerate(registers) if basis[k]]
    first = [*columns[:within], *rows, *columns[within : within + 1]]
    order = [*first, *(bit for bit in range(len(registers)) if bit not in first)]
    bases = {
        level: [[new.get(at, 0) if d == k else at for d, at in enumerate(basis)] for basis in linear.bases(level)]
        for level in linear.in_dims
    }
    bases["register"] = [bases["register"][bit] for bit in order]
    return LinearLayout.make(bases, linear.outs), tuple(combinations([1 << bit for bit in order]))


class _Product:
    """An MMA: its accumulator, the shape (M, N, K), the bits of elements, and the elements along k of an instruction."""

    def __init__(self, accumulator: DistributedLayout, shape: tuple[int, int, int], bits: int) -> None:
        self.accumulator, self.shape, self.bits = accumulator, shape, bits
        self.linear = accumulator.to_linear(shape[:2])
        self.step = K_BITS // bits

    def check_size(self, rows: int, columns: int) -> None:
        """Raise unless an instruction with this number of rows and columns fits."""
        m, n, k = self.shape
        for dim, size, least in (("M", m, rows), ("N", n, columns), ("K", k, self.step)):
            if size % least:
                raise fail(errors.MMA_SHAPE, m=m, n=n, k=k, dim=dim, least=least)

    def misfit(self, instruction: str, expected: DistributedLayout) -> UserError:
        """The error for an accumulator that is not made of the instruction's fragments."""
        shape = list(self.shape[:2])
        return fail(
            errors.MMA_ACCUMULATOR, layout=self.accumulator, shape=shape, instruction=instruction, expected=expected
        )

    def memory(self, side: SharedSide, k: int, size: int, starts: Starts) -> tuple[Operand, Firsts] | Unreadable:
        """An operand in shared memory, of which instructions read `size` elements along the dimension that is not `k`.

        Raises if blocks of a cluster would need one another's memory."""
        outer = 1 - k
        needed, has = self._reached("block", k), side.layout.to_linear(side.tile).bases("block")
        if any(mine != its for mine, its in zip_longest(needed, has, fillvalue=(0, 0))):
            name = "ba"[k]
            raise fail(errors.MMA_BLOCKS, operand=name, layout=side.layout, needed=list(needed), has=list(has))
        firsts = sorted({start[outer] for start in starts})
        warps = (0, 0, *(basis[outer] for basis in self.linear.bases("warp")[2:]))
        found = plan_operand(side, self.bits, k, Blocks(size, tuple(firsts), warps))
        if isinstance(found, Unreadable):
            return found
        return found.operand, dict(zip(firsts, found.offsets, strict=True))

    def sync_registers(
        self, left: DistributedLayout, right: DistributedLayout, starts: Starts
    ) -> tuple[tuple[Firsts, tuple[int, ...]], tuple[Firsts, tuple[int, ...]]]:
        """First registers of both operands of `mma.sync`, and each operand's registers in the order in which they count.

        Raises unless both are in the instructions' fragments, up to one order of k that both have."""
        m, n, length = self.shape
        width = WORD_BITS // self.bits
        sides = (left, left.to_linear((m, length)), 1, MMA_LEFT), (right, right.to_linear((length, n)), 0, MMA_RIGHT)
        first, second = (_along(linear, k, width) for _, linear, k, _ in sides)
        found: list[tuple[Firsts, tuple[int, ...]]] = []
        for layout, linear, k, fragments in sides:
            registers = tuple(range(linear.in_size("register")))
            if first is not None and first == second:
                linear, registers = _in_order(linear, k, first, fragments[width])
            found.append((self._firsts(layout, linear, k, starts), registers))
        return found[0], found[1]

    def registers(self, layout: DistributedLayout, k: int, starts: Starts) -> Firsts:
        """First registers of an operand whose dimension along k is `k`. Raises unless it is in the instructions' fragments."""
        linear = layout.to_linear([self.shape[2] if d == k else self.shape[d] for d in (0, 1)])
        return self._firsts(layout, linear, k, starts)

    def _firsts(self, layout: DistributedLayout, linear: LinearLayout, k: int, starts: Starts) -> Firsts:
        outer = 1 - k
        width = WORD_BITS // self.bits
        held = fragment_starts(linear, (MMA_RIGHT, MMA_LEFT)[k][width])
        same_warps = linear.bases("warp") == self._reached("warp", k)
        same_blocks = linear.bases("block") == self._reached("block", k)
        if held is None or not (same_warps and same_blocks):
            expected = f"DotOperandLayout({outer}, {self.accumulator}, k_width={width})"
            raise fail(errors.MMA_REGISTERS, operand="ba"[k], layout=layout, bits=self.bits, expected=expected)
        ks = range(0, self.shape[2], self.step)
        at = sorted({start[outer] for start in starts})
        return {first: tuple(held[(first, i) if k else (i, first)] for i in ks) for first in at}

    def _reached(self, level: str, k: int) -> tuple[tuple[int, ...], ...]:
        """Bases of the accumulator's warps or blocks in an operand, which has all of k in each."""
        return tuple(tuple(0 if d == k else at for d, at in enumerate(basis)) for basis in self.linear.bases(level))


def _warpgroup_starts(linear: LinearLayout, n: int, bits: int) -> Starts | None:
    """Instructions of n columns in an accumulator whose lowest two warp bits step by 16 and 32 rows."""
    if linear.bases("warp")[:2] != ((16, 0), (32, 0)):
        return None
    if linear.is_whole:
        return _unique_starts(linear, WGMMA_ACCUMULATOR[n])
    columns, most = linear.sizes[1], linear.sizes[1] & -linear.sizes[1]
    if columns % n or (bits == BYTE and columns % INTEGER_COLUMNS == 0 and n % INTEGER_COLUMNS):
        return None
    part = min(n & -n, most)
    starts = _unique_starts(linear, WGMMA_ACCUMULATOR[part])
    return starts and joined_starts(starts, part, n)


def _unique_starts(linear: LinearLayout, fragment: Fragment) -> Starts | None:
    """The fragments of an accumulator; None if it is not made of them, or repeats elements in a thread's registers."""
    starts = fragment_starts(linear, fragment)
    registers = fragment.inner_size * fragment.outer_size // 32
    return starts if starts and len(starts) * registers == count(linear) else None


def _unreadable(name: str, side: SharedSide, why: Unreadable) -> UserError:
    shape = list(side.shape)
    return fail(errors.MMA_READ, operand=name, shape=shape, layout=side.layout, reason=why.reason, fix=why.fix)
