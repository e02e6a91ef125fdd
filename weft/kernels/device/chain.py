"""Chains of launches: a matmul may follow one that packs its operands, and precede one that adds its split-K results. Each may
start while the one before it ends (programmatic dependent launch), which hides the time to start it.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.language.extra.cuda import gdc_launch_dependents, gdc_wait


@jit
def join(plan: gl.constexpr):
    """The beginning of a matmul: wait for packed operands, and let the launch start that adds split-K results. That one waits
    for this one in turn, and its programs occupy little while they do."""
    if plan.packed:
        gdc_wait()
    if plan.splits > 1:
        gdc_launch_dependents()
