"""No operation on numbers, tiles or registers is without a rule for what is known of its result."""

from __future__ import annotations

import pytest

from weft.analysis.facts import rules
from weft.ir.define import OPS
from weft.ops import control, memory, program, reduce, regs, tile

PLACES = (program.program_id, program.num_programs, program.warp_id, program.lane_id, program.thread_id)
"""Known by where a thread is (`weft.analysis.facts.infer`)."""
NOTHING = {
    memory.atomic: "what memory held",
    memory.atomic_cas: "what memory held",
    regs.narrow: "floats",
    regs.dot: "floats",
    reduce.dot_fma: "floats",
    reduce.reduce: "what a function of the author's makes",
    reduce.scan: "what a function of the author's makes",
    control.trips: "as many as the bounds say, which nobody asks for",
}
"""Operations of whose results nothing is known, with what those are."""
NO_RESULT = (
    tile.assume, memory.store, program.barrier, program.fence_async, program.block_barrier, program.warp_barrier,
    program.named_barrier,
)  # fmt: skip
FAMILIES = ("arith", "memory", "program", "regs", "tile", "value", "warp")


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.name.partition(".")[0] in FAMILIES], ids=str)
def test_each_has_one_rule(op):
    ruled = op in rules.HULLS or op in rules.STRUCTURAL or op in rules.ELEMENTWISE
    without = op in PLACES or op in NOTHING or op in NO_RESULT
    assert ruled != without, f"{op.name}: give it a rule in weft/analysis/facts/rules.py, or say here why there is none"
