"""Layouts of tensor core operands: accumulators, and the left and right operands of a dot.

They are distributed layouts like any other; the fragments that the instructions dictate are in `fragments`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from numbers import Integral

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.base import Step, check_powers_of_two, check_ranks, check_tile_shape, ints, vectors
from weft.layout.cluster import Cga, block_shape, cga_fields, check_held
from weft.layout.distributed import fragments
from weft.layout.distributed.layouts import BlockedLayout, DistributedLayout, assemble, check_parent
from weft.layout.linear.f2 import is_power_of_two
from weft.layout.linear.maps import LinearLayout

MMA_SYNC = ((2, 0), (2, 1))
"""Versions of `mma.sync`, Ampere's and Turing's; their accumulators are the same."""
WGMMA = (3, 0)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NVMMADistributedLayout(DistributedLayout):
    """Accumulators of tensor core instructions: version [2, 0] is mma.sync (so is [2, 1], its Turing form), [3, 0] is wgmma.

    `instr_shape` is [16, 8] for mma.sync and [16, N, K] for wgmma (16 rows per warp; N a multiple of 8 up to 256).
    `warps_per_cta` warps repeat the instruction per dimension: along rows first for wgmma, along columns first for mma.sync.
    Along the columns they do for N a power of two.
    """

    version: Sequence[int]
    warps_per_cta: Sequence[int]
    instr_shape: Sequence[int]
    ctas_per_cga: Sequence[int] | Sequence[Sequence[int]] | None = None
    cta_split_num: Sequence[int] | None = None
    cta_order: Sequence[int] | None = None
    cga_layout: Sequence[Sequence[int]] | None = None

    def _complete(self) -> None:
        version, warps, instr = ints(self.version), ints(self.warps_per_cta), ints(self.instr_shape)
        check_powers_of_two("warps_per_cta", warps)
        _accumulator(version, instr)
        if version == WGMMA and not is_power_of_two(instr[1]) and warps[-1] > 1:
            raise fail(
                errors.INSTR_ACROSS, instr_shape=list(instr), warps=list(warps), n=instr[1], least=instr[1] & -instr[1]
            )
        clustered = cga_fields(self, len(warps))
        check_held(clustered["cga_layout"], len(warps))
        self._freeze(version=version, warps_per_cta=warps, instr_shape=instr, **clustered)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.warps_per_cta)

    @property
    def num_warps(self) -> int:
        """Product of `warps_per_cta`."""
        return prod(self.warps_per_cta)

    @property
    def cga(self) -> Cga:
        """One vector per block bit, in block tiles."""
        return vectors(self.cga_layout or ())

    @property
    def warp_order(self) -> tuple[int, ...]:
        """Dimensions in the order in which warps are numbered along them, fastest first."""
        last_two = (self.rank - 2, self.rank - 1)
        rows_first = tuple(self.version) == WGMMA
        return (*(last_two if rows_first else last_two[::-1]), *reversed(range(self.rank - 2)))

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """The layout over a tile of this shape."""
        fragment = _accumulator(tuple(self.version), tuple(self.instr_shape))
        warps: list[Step] = [("warp", d, self.warps_per_cta[d]) for d in self.warp_order]
        return assemble([*fragment.steps(self.rank), *warps], shape, _row_major(self.rank), self.cga)

    def copied(self, bits: int) -> NVMMADistributedLayout:
        """With a zero vector for each bit."""
        return replace(self, cga_layout=[[0] * self.rank] * bits)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DotOperandLayout(DistributedLayout):
    """The left (`operand_index` 0, M x K) or right (1, K x N) operand of a dot whose result has the layout `parent`.

    With a BlockedLayout parent (`k_width` 0, dot by fma) every thread holds all of K for its rows or columns. With an
    NVMMADistributedLayout parent the operand lies in instruction fragments; `k_width` elements along K are contiguous
    in a thread (1, 2 and 4 for elements of 32, 16 and 8 bits). Threads that share rows or columns repeat them.
    """

    operand_index: int
    parent: DistributedLayout
    k_width: int

    def _complete(self) -> None:
        check_parent("DotOperandLayout", self.parent)
        if self.operand_index not in (0, 1):
            raise fail(errors.OPERAND_INDEX, index=self.operand_index)
        if not isinstance(self.parent, BlockedLayout | NVMMADistributedLayout):
            raise fail(errors.DOT_PARENT, parent=self.parent)
        by_fma = isinstance(self.parent, BlockedLayout)
        if self.k_width not in ((0,) if by_fma else fragments.MMA_LEFT):
            expected = "0" if by_fma else "1, 2 or 4 for elements of 32, 16 or 8 bits"
            raise fail(errors.K_WIDTH, k_width=self.k_width, parent=self.parent, expected=expected)
        if self.operand_index == 1 and isinstance(self.parent, NVMMADistributedLayout) and self.parent.version[0] == 3:
            raise fail(errors.DOT_SHARED_ONLY)
        self._freeze()

    @property
    def rank(self) -> int:
        """The parent's."""
        return self.parent.rank

    @property
    def num_warps(self) -> int | None:
        """The parent's."""
        return self.parent.num_warps

    @property
    def k_dim(self) -> int:
        """The dimension along which the dot sums."""
        return self.rank - 1 - self.operand_index

    @property
    def cga(self) -> Cga:
        """The parent's, every block holding all of K."""
        return tuple(tuple(0 if d == self.k_dim else v for d, v in enumerate(basis)) for basis in self.parent.cga)

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """The layout over a tile of this shape."""
        parent = self.parent
        if isinstance(parent, BlockedLayout):
            return assemble(self._fma_steps(parent, shape), shape, parent.order, self.cga)
        if not isinstance(parent, NVMMADistributedLayout):
            raise fail(errors.DOT_PARENT, parent=parent)
        rows = fragments.MMA_RIGHT if self.operand_index else fragments.MMA_LEFT
        steps = [*rows[self.k_width].steps(self.rank), *self._spread("warp", parent.warps_per_cta, parent.warp_order)]
        k_first = (self.k_dim, *(d for d in _row_major(self.rank) if d != self.k_dim))
        return assemble(steps, shape, k_first, self.cga)

    def copied(self, bits: int) -> DotOperandLayout:
        """Of the parent's."""
        return replace(self, parent=self.parent.copied(bits))

    def _fma_steps(self, parent: BlockedLayout, shape: Sequence[int]) -> list[Step]:
        held = [shape[d] if d == self.k_dim else size for d, size in enumerate(parent.size_per_thread)]
        return [
            *(("register", d, held[d]) for d in parent.order),
            *self._spread("lane", parent.threads_per_warp, parent.order),
            *self._spread("warp", parent.warps_per_cta, parent.order),
        ]

    def _spread(self, level: str, sizes: Sequence[int], order: Sequence[int]) -> list[Step]:
        """One level of the parent, in which lanes or warps that the parent spreads along the K position repeat elements."""
        return [(level, None if d == self.k_dim else d, sizes[d]) for d in order]


def pick_wgmma_layout(
    element_bits: int, shape: Sequence[int], num_warps: int, cga_layout: Sequence[Sequence[int]] | None = None
) -> NVMMADistributedLayout:
    """The accumulator layout of a wgmma with a result of this shape: the widest instructions that divide it.

    `element_bits` are those of the operands. Warpgroups split the rows as long as each has 64 of them, then the columns.
    Raises LayoutError (layout-mma-warps) if the warps do not form warpgroups.
    """
    if element_bits not in (8, 16, 32):
        raise fail(errors.ELEMENT_BITS, bits=element_bits, allowed="8, 16 or 32")
    if not isinstance(num_warps, Integral) or num_warps % 4 or not is_power_of_two(num_warps):
        raise fail(errors.MMA_WARPS, layout="the accumulator", warps=num_warps)
    check_ranks("the accumulator", dimensions=range(2), shape=shape)
    check_tile_shape(shape)
    rows, columns = block_shape(vectors(cga_layout or ()), shape)
    down = 4
    while down < num_warps and rows > 16 * down:
        down *= 2
    across = num_warps // down
    own = max(columns // across, min(fragments.WGMMA_COLUMNS))
    own = own if across == 1 else own & -own
    n = max(n for n in fragments.WGMMA_COLUMNS if own % n == 0)
    return NVMMADistributedLayout(
        [3, 0], [down, across], [16, n, fragments.K_BITS // element_bits], cga_layout=cga_layout
    )


def _accumulator(version: tuple[int, ...], instr_shape: tuple[int, ...]) -> fragments.Fragment:
    if version in MMA_SYNC:
        if instr_shape[-2:] != (16, 8) or prod(instr_shape) != 16 * 8:
            raise fail(errors.INSTR_SHAPE, instr_shape=list(instr_shape), version=list(version), expected="[16, 8]")
        return fragments.MMA_ACCUMULATOR
    if version != WGMMA:
        raise fail(errors.MMA_VERSION, version=list(version))
    fits = len(instr_shape) == 3 and instr_shape[0] == 16 and instr_shape[1] in fragments.WGMMA_COLUMNS
    if not fits or instr_shape[2] not in (8, 16, 32):
        expected = "[16, N, K] with N a multiple of 8 from 8 to 256 and K 256 bits of elements"
        raise fail(errors.INSTR_SHAPE, instr_shape=list(instr_shape), version=list(version), expected=expected)
    return fragments.wgmma_accumulator(instr_shape[1])


def _row_major(rank: int) -> tuple[int, ...]:
    return tuple(reversed(range(rank)))
