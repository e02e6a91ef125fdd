"""Plans of tcgen05 MMAs (Blackwell) as instructions.

An MMA is split into instructions by the blocks of the accumulator's layout, and along k into 256 bits each. Instructions that
read the same tile of a follow each other, so that the tensor core keeps it in its collector buffer. A plan describes one block.
In a pair of blocks (cta_group::2) the first block issues the instruction: it counts the rows of both, and each block holds half
of the columns of b. (PTX ISA, tcgen05: "Matrix Shape", "Shared memory descriptor", "Data Path Layout Organization", "Block
Scaling for tcgen05.mma.sync".)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product, zip_longest

from weft.layout.base import Unreadable
from weft.layout.cluster import BLOCK
from weft.layout.distributed.fragments import K_BITS
from weft.layout.linear.maps import LinearLayout
from weft.layout.tensor_cores.shared_operands import Blocks, Operand, SharedSide, plan_operand
from weft.layout.tensor_cores.tcgen05_kinds import (
    KINDS,
    RUNS,
    Kind,
    Scaled,
    instruction_descriptor,
    padded,
    plain_kind,
    scaled_kind,
)
from weft.layout.tensor_memory.layouts import (
    COLUMN_BITS,
    LANES,
    SCALES_PER_COLUMN,
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
)
from weft.layout.tensor_memory.load_store import LANE, TensorSide, cut

Tcgen05Step = tuple[int, int, int, bool, int, int, int]
"""One instruction, as `tcgen05.issue` takes it: where the accumulator, a and b begin, whether it is the first along k of its
columns, the instruction descriptor, and the columns of the scales of a and b."""
Offsets = tuple[tuple[int, ...], ...]
"""Starts of instructions, by block along the outer dimension and step along k."""
ScalePlaces = list[list[tuple[int, int]]]
"""Columns, and bytes in them, by block along the outer dimension and step along k."""
Vectors = Sequence[Sequence[int]]

SWIZZLES = {0: 0, 128: 2, 64: 4, 32: 6}
"""Widths of swizzles with their encoding in a matrix descriptor."""
MOST_COLUMNS = 256
"""The most columns of an accumulator of one instruction."""
SCALE_START = 64
"""Rows of scales that two columns hold: those of an instruction begin in an even one."""
EITHER_WAY = (8, 16)
"""Widths of elements in shared memory that may lie contiguous along the outer dimension."""


@dataclass(frozen=True, slots=True)
class MmaPlan:
    """The instructions of an MMA, as `tcgen05.issue` takes them; `left` is None if a is in tensor memory. Each run of `reuse`
    steps reads the same tile of a."""

    kind: Kind
    left: Operand | None
    right: Operand
    steps: tuple[Tcgen05Step, ...]
    reuse: int


def descriptor_bits(operand: Operand) -> int:
    """The 64-bit matrix descriptor without the address, whose bits 4 to 17 are its lowest 14."""
    return operand.leading >> 4 << 16 | operand.stride >> 4 << 32 | 1 << 46 | SWIZZLES[operand.swizzle] << 61


# MMAs


@lru_cache(maxsize=1024)
def plan_mma(
    a: SharedSide | TensorSide,
    b: SharedSide,
    acc: TensorSide,
    types: tuple[str, str, str],
    scaled: Scaled | None = None,
    two_ctas: bool = False,
) -> MmaPlan | Unreadable:
    """The instructions of acc + a @ b; `types` are the IR codes of the elements of a, b and the accumulator.

    Offsets count from where each tile begins, starts of views included: bytes in shared memory, lane << 16 | column in tensor
    memory. Elements of e2m1 are pairs in bytes, so that a and b have half as many along k.
    """
    kind = plain_kind(*types) if scaled is None else scaled_kind(a, b, types, scaled)
    if isinstance(kind, Unreadable):
        return kind
    layout, bits = acc.layout, 16 if types[2] == "f16" else 32
    if not isinstance(layout, TensorMemoryLayout) or layout.col_stride * bits != COLUMN_BITS:
        reason = f"an accumulator of {types[2]} has a column of {COLUMN_BITS} bits for each element, unlike {layout}"
        return Unreadable(reason, f"allocate it in TensorMemoryLayout([{LANES}, N], col_stride={COLUMN_BITS // bits})")
    if layout.two_ctas != two_ctas:
        said = "two blocks of the kernel multiply together" if two_ctas else "each block of the kernel multiplies alone"
        return Unreadable(f"{said}, but the accumulator is in {layout}", f"write two_ctas={two_ctas} in every layout")
    product = _Product(kind, a, b, acc, layout, types, scaled)
    return product.misfit() or product.spread() or product.plan()


class _Product:
    """An MMA: the part in one block, and its instructions of `m` rows (of one block) by `n` columns."""

    def __init__(
        self, kind: Kind, a: SharedSide | TensorSide, b: SharedSide, acc: TensorSide, layout: TensorMemoryLayout,
        types: tuple[str, str, str], scaled: Scaled | None,
    ) -> None:  # fmt: skip
        self._kind: Kind = kind
        self._a, self._b, self._acc, self._layout, self._scaled = a, b, acc, layout, scaled
        self._types = types if scaled is None else (scaled.a, scaled.b, types[2])
        self._row, self._pair = KINDS[kind], layout.two_ctas
        self._blocks = [(row, column) for row, column in linear_of(acc).bases(BLOCK)]
        self._rows, self._columns = _part(self._blocks, acc.shape)
        self._m, self._n = layout.block[0], min(layout.block[1], self._columns)
        self._k = a.shape[1] * (2 if self._types[0] == "e2m1" else 1)

    def misfit(self) -> Unreadable | None:
        """The reason why no instructions fit the MMA."""
        m, n = self._m, self._n
        if self._scaled and m != LANES:
            reason = f"a scaled product takes {LANES} rows of each block, not {m}"
            return Unreadable(reason, f"allocate the accumulator in TensorMemoryLayout([{LANES}, N], col_stride=1)")
        if self._rows % m:
            reason = f"an instruction takes {m} rows, but a block has {self._rows} of the accumulator"
            return Unreadable(reason, "add to all rows of the accumulator")
        least = 16 if m == LANES else 8
        if self._pair or self._scaled:
            least = min(SCALE_START, max(self._columns, 32)) if self._scaled else 32
        if not least <= n <= MOST_COLUMNS:
            reason = f"an instruction of {m} rows takes {least} to {MOST_COLUMNS} columns, not {n}"
            fits = min(max(n, least), MOST_COLUMNS)
            wider = f", and give the accumulator at least {fits} columns" if fits > self._columns else ""
            return Unreadable(reason, f"write TensorMemoryLayout([{m}, {fits}], ...){wider}")
        if self._pair and (n != self._columns or (m != LANES and n != self._layout.block[1])):
            reason = f"two blocks multiply a whole accumulator at once, but here {n} of {self._columns} columns"
            return Unreadable(reason, f"write TensorMemoryLayout([{m}, N], ...) with N columns, at most {MOST_COLUMNS}")
        if self._k % self._row.k:
            reason = f"an instruction takes {self._row.k} elements along k, but there are {self._k}"
            return Unreadable(reason, f"make K a multiple of {self._row.k}")
        return self._unscaled(self._scaled) if self._scaled else None

    def _unscaled(self, scaled: Scaled) -> Unreadable | None:
        """The reason why instructions cannot read the scales."""
        run, taken = RUNS[scaled.dtype], self._row.scales
        for name, side in (("a_scale", scaled.a_scale), ("b_scale", scaled.b_scale)):
            if not isinstance(side.layout, TensorMemoryScalesLayout):
                return Unreadable(f"{name} is in {side.layout}", f"allocate {name} in TensorMemoryScalesLayout()")
            if side.start[0] % SCALE_START:
                reason = f"{name} begins in row {side.start[0]} of its tile, not in a multiple of {SCALE_START}"
                return Unreadable(reason, "begin a slice of scales in such a row")
            if side.shape[1] * run != self._k or side.start[1] % taken:
                reason = f"{name} has {side.shape[1]} scales of a row, from {side.start[1]} on, for {self._k} elements along k"
                return Unreadable(reason, f"{scaled.dtype} needs one for {run}: give {name} {self._k // run} columns")
        return None

    def spread(self) -> Unreadable | None:
        """The reason why blocks of a cluster would need one another's memory."""
        outer = self._blocks
        if self._pair and outer[0] != (self._rows, 0):
            reason = f"two blocks that multiply together have half of the rows each, unlike {self._layout}"
            return Unreadable(reason, "let its cga_layout begin with [1, 0]")
        rows, columns = [(row, 0) for row, _ in outer], [(0, column) for _, column in outer]
        b_rows = [(column, 0) for _, column in outer]
        if self._pair:
            columns[0] = (0, self._n // 2)
        wanted = [("the accumulator", self._acc, outer), ("a", self._a, rows), ("b", self._b, columns)]
        if self._scaled:
            wanted += [("a_scale", self._scaled.a_scale, rows), ("b_scale", self._scaled.b_scale, b_rows)]
        for name, side, needed in wanted:
            has = linear_of(side).bases(BLOCK)
            if any(mine != its for mine, its in zip_longest(needed, has, fillvalue=(0, 0))):
                reason = (
                    f"blocks of the cluster hold what begins at {list(has)} of {name}, but multiply what is at {needed}"
                )
                paired = not self._pair and name == "b" and has[:1] == ((0, self._n // 2),)
                other = ", or write two_ctas=True in the accumulator's layout" if paired else ""
                units = [min((vector[d] for vector in needed if vector[d]), default=1) for d in range(2)]
                cga = [[start // unit for start, unit in zip(vector, units, strict=True)] for vector in needed]
                return Unreadable(reason, f"split {name} as the accumulator is split, by cga_layout={cga}{other}")
            if cut(has, side.tile, side.shape):
                return Unreadable(f"{name} is a slice of what is split over blocks", "slice along another dimension")
        return None

    def plan(self) -> MmaPlan | Unreadable:
        """The instructions."""
        rows, columns = range(0, self._rows, self._m), range(0, self._columns, self._n)
        each = self._n // 2 if self._pair else self._n
        left = self._left(Blocks(self._m, tuple(rows), ()))
        right = self._memory(self._b, 0, Blocks(each, tuple(range(0, each * len(columns), each)), ()))
        if isinstance(left, Unreadable):
            return left
        if isinstance(right, Unreadable):
            return right
        (left_operand, at_a), (right_operand, at_b) = left, right
        majors = left_operand is not None and left_operand.transposed, right_operand.transposed
        accumulator = TensorPlaces(self._acc, COLUMN_BITS // self._layout.col_stride)
        a_scales, b_scales = self._scales(rows, columns)
        reuse, ks = len(columns) if self._m == LANES else 1, range(self._k // self._row.k)
        # Tiles of 64 rows stand in different lanes, between which the collector buffer does not serve.
        order = product(ks, range(len(columns))) if reuse > 1 else ((k, j) for j in range(len(columns)) for k in ks)
        inner, steps = list(order), list[Tcgen05Step]()
        for i, row in enumerate(rows):
            for k, j in inner:
                (a_scale, a_id), (b_scale, b_id) = a_scales[i][k], b_scales[j][k]
                start, descriptor = accumulator.address(row, columns[j]), self._descriptor(majors, (a_id, b_id))
                steps.append((start, at_a[i][k], at_b[j][k], k == 0, descriptor, a_scale, b_scale))
        if left_operand is None and any((acc ^ at) // LANE for acc, at, *_ in steps):
            reason = f"of {self._m} rows each, a and the accumulator begin in other lanes of every 32"
            return Unreadable(reason, "give both layouts blocks of all columns, and slice neither beyond them")
        return MmaPlan(self._kind, left_operand, right_operand, tuple(steps), reuse)

    def _descriptor(self, majors: tuple[bool, bool], scale_ids: tuple[int, int]) -> int:
        m = self._m * (2 if self._pair else 1)
        scale = self._scaled.dtype if self._scaled else ""
        return instruction_descriptor(self._kind, *self._types, m, self._n, *majors, scale, scale_ids)

    def _scales(self, rows: range, columns: range) -> tuple[ScalePlaces, ScalePlaces]:
        """The columns of the instructions' scales, by block of rows (and of columns) and step along k."""
        steps = range(self._k // self._row.k)
        if self._scaled is None:
            nothing = [(0, 0)] * len(steps)
            return [nothing] * len(rows), [nothing] * len(columns)
        a, b = TensorPlaces(self._scaled.a_scale, 8), TensorPlaces(self._scaled.b_scale, 8)
        taken = self._row.scales

        def found(places: TensorPlaces, starts: range) -> ScalePlaces:
            return [[divmod(places.column(at, k * taken), SCALES_PER_COLUMN) for k in steps] for at in starts]

        return found(a, rows), found(b, columns)

    def _left(self, blocks: Blocks) -> tuple[Operand | None, Offsets] | Unreadable:
        """Operand a, and the starts of instructions."""
        side = self._a
        if isinstance(side, SharedSide):
            return self._memory(side, 1, blocks)
        layout, step = side.layout, K_BITS // self._row.bits // (2 if padded(side) else 1)
        rows, columns = layout.block if isinstance(layout, TensorMemoryLayout) and layout.col_stride == 1 else (0, 0)
        if padded(side) and self._scaled is None:
            columns = 0
        if self._pair and self._m != LANES:
            return Unreadable(
                f"a is in tensor memory, but {self._m} rows of each of two blocks", "keep a in shared memory"
            )
        if rows != self._m or columns < step:
            reason = f"a is in {layout}, where it has no {self._m} rows of {step} elements side by side"
            return Unreadable(reason, f"allocate a in TensorMemoryLayout([{self._m}, {side.tile[1]}], col_stride=1)")
        places = TensorPlaces(side, self._row.bits)
        ks = range(0, side.shape[1], step)
        return None, tuple(tuple(places.address(row, k) for k in ks) for row in blocks.starts)

    def _memory(self, side: SharedSide, k: int, blocks: Blocks) -> tuple[Operand, Offsets] | Unreadable:
        """An operand in shared memory, and the starts of instructions."""
        either_way = () if self._types[1 - k] == "e2m1" else EITHER_WAY
        found = plan_operand(side, self._row.bits, k, blocks, either_way, padded(side))
        if isinstance(found, Unreadable):
            return Unreadable(f"{'ba'[k]} is in {side.layout}: {found.reason}", found.fix)
        return found.operand, found.offsets


class TensorPlaces:
    """The addresses of a view's elements, of `bits` bits, in a block's tensor memory."""

    def __init__(self, side: TensorSide, bits: int) -> None:
        self._inverse, self._start, self._bits = linear_of(side).pseudo_invert(), side.start, bits

    def address(self, row: int, column: int) -> int:
        """Lane << 16 | column of an element."""
        lane, at = self._at(row, column)
        return lane * LANE | at * self._bits // COLUMN_BITS

    def column(self, row: int, column: int) -> int:
        """Column of an element, counted in elements."""
        return self._at(row, column)[1]

    def _at(self, row: int, column: int) -> tuple[int, int]:
        lane, at, _ = self._inverse(dim0=self._start[0] ^ row, dim1=self._start[1] ^ column)
        return lane, at


def linear_of(side: SharedSide | TensorSide) -> LinearLayout:
    """The layout of the tile that a view is a part of."""
    return side.layout.to_linear(side.tile)


def _part(blocks: Vectors, shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of a view in one block; the view is whole along the dimensions that are split."""
    rows, columns = (size >> sum(vector[d] > 0 for vector in blocks) for d, size in enumerate(shape))
    return rows, columns
