"""Which operations of tcgen05 are carried out in the order in which threads start them, and why others are not.

PTX promises an order of few pairs (PTX ISA, "Pipelined tcgen05 Instructions", of the memory consistency model): a product
comes after an earlier one that adds to the same accumulator by instructions of the same shape and kind, and after earlier
copies. All else may be carried out in any order until a commit has arrived on a barrier that somebody waits for.

What a product reads is another matter: kernels of NVIDIA overwrite it without a wait, by copies as well as by other products,
and so may authors. CUTLASS's block-scaled main loop copies the scales of the next step over those of the last one
(sm100_blockscaled_mma_warpspecialized.hpp), and its attention multiplies Q and K into columns that hold the P of the product
before (examples/77_blackwell_fmha). A copy therefore comes after all copies that lie before an earlier product, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.layout.tensor_cores.tcgen05_kinds import Kind
from weft.layout.tensor_memory.layouts import LANES
from weft.layout.tensor_memory.load_store import LANE


@dataclass(frozen=True, slots=True)
class Accumulators:
    """What the instructions of a product add to: their kind, rows (of both blocks of a pair) and columns of each, how many
    columns of a block's memory that takes, and where they begin (lane << 16 | column)."""

    kind: Kind
    shape: tuple[int, int]
    width: int
    starts: tuple[int, ...]

    def disorder(self, later: Accumulators) -> str:
        """Why a later product that adds to some of the same memory does not come after this one; empty where it does."""
        if self.kind != later.kind:
            return f"instructions of kind {later.kind} do not wait for those of kind {self.kind}"
        if self.shape != later.shape:
            before, after = ("x".join(map(str, each.shape)) for each in (self, later))
            return f"instructions of {after} elements do not wait for those of {before}"
        if any(self._apart(start, other) for start in self.starts for other in later.starts):
            return "the accumulators of their instructions overlap, but do not begin at the same column"
        return ""

    def _apart(self, start: int, other: int) -> bool:
        """Whether two instructions of this shape share columns but not the first one."""
        (lane, column), (other_lane, other_column) = divmod(start, LANE), divmod(other, LANE)
        return lane == other_lane and 0 < abs(column - other_column) < self.width


Operation = Accumulators | None
"""What an operation of tcgen05 is: a product, or (None) a copy."""


def accumulators(kind: Kind, m: int, n: int, pair: bool, starts: Iterable[int]) -> Accumulators:
    """Those of instructions of `m` rows of each block and `n` columns, which begin at addresses."""
    shape = (2 * m if pair else m, n)
    return Accumulators(kind, shape, n // 2 if pair and m < LANES else n, tuple(starts))


def disorder(earlier: Operation, writes: bool, later: Operation, reads: bool, multiplied: bool) -> str:
    """Why an operation does not come after an earlier one, both of which access the same tensor memory; empty where it does.

    `writes`: the earlier one writes there; `reads`: the later one reads; `multiplied`: the earlier one's thread has started a
    product since."""
    if not writes:
        return ""
    if earlier is None:
        return "" if later is not None or multiplied else "copies do not wait for one another"
    if later is None:
        return "copies do not wait for products that write"
    if reads:
        return "products do not wait for what others add up and they multiply"
    return earlier.disorder(later)
