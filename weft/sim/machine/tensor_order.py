"""The pairs of asynchronous tcgen05 operations that execute in issue order, and the reason why others do not.

PTX guarantees the order of few pairs (PTX ISA, "Pipelined tcgen05 Instructions"): an MMA executes after an earlier MMA on the
same accumulator with the same shape and kind, and after earlier `tcgen05.cp` copies. All other pairs may execute in any order
until a commit has arrived on an mbarrier and a thread has waited for it.

The simulator is more lenient about operands in tensor memory: NVIDIA's own kernels overwrite what an MMA reads without a wait,
by copies as well as by other MMAs. CUTLASS's block-scaled mainloop copies the scale factors of the next k step over those of
the last one (sm100_blockscaled_mma_warpspecialized.hpp), and its attention writes Q K^T to columns that hold the P of the
preceding MMA (examples/77_blackwell_fmha). It follows that a copy also executes after all copies that precede an earlier MMA.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.layout.tensor_cores.tcgen05_kinds import Kind
from weft.layout.tensor_memory.layouts import LANES
from weft.layout.tensor_memory.load_store import LANE


@dataclass(frozen=True, slots=True)
class Accumulators:
    """The accumulators of an MMA's instructions: the kind, the shape of each (rows of both blocks of a pair, columns), its
    width in columns of one block's tensor memory, and the start addresses (lane << 16 | column)."""

    kind: Kind
    shape: tuple[int, int]
    width: int
    starts: tuple[int, ...]

    def disorder(self, later: Accumulators) -> str:
        """Why a later MMA with an overlapping accumulator is not ordered after this one; empty if it is."""
        if self.kind != later.kind:
            return f"an MMA of kind {later.kind} is not ordered after one of kind {self.kind}"
        if self.shape != later.shape:
            before, after = ("x".join(map(str, each.shape)) for each in (self, later))
            return f"an MMA of shape {after} is not ordered after one of shape {before}"
        if any(self._apart(start, other) for start in self.starts for other in later.starts):
            return "the accumulators of their MMA instructions overlap, but start at different columns"
        return ""

    def _apart(self, start: int, other: int) -> bool:
        """True if the accumulators of two instructions of this shape overlap but begin at different columns."""
        (lane, column), (other_lane, other_column) = divmod(start, LANE), divmod(other, LANE)
        return lane == other_lane and 0 < abs(column - other_column) < self.width


Operation = Accumulators | None
"""A tcgen05 operation: an MMA, or a copy (None)."""


def accumulators(kind: Kind, m: int, n: int, pair: bool, starts: Iterable[int]) -> Accumulators:
    """The accumulators, at these start addresses, of instructions with `m` rows per block and `n` columns."""
    shape = (2 * m if pair else m, n)
    return Accumulators(kind, shape, n // 2 if pair and m < LANES else n, tuple(starts))


def disorder(earlier: Operation, writes: bool, later: Operation, reads: bool, multiplied: bool) -> str:
    """Why an operation is not ordered after an earlier one on the same tensor memory; empty if it is.

    `writes`: the earlier one writes there. `reads`: the later one reads there. `multiplied`: the thread of the earlier one has
    issued an MMA since."""
    if not writes:
        return ""
    if earlier is None:
        return "" if later is not None or multiplied else "copies are not ordered after earlier copies"
    if later is None:
        return "copies are not ordered after MMAs that write there"
    if reads:
        return "an MMA is not ordered after an earlier MMA whose accumulator it reads as an operand"
    return earlier.disorder(later)
