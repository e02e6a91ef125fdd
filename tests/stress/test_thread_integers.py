"""Random integer expressions of single threads, of every integer type and near overflow, against C's arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import weft
from tests.kernels.harness import run_lowered
from tests.stress.programs import kernel_of
from tests.stress.thread_integers import Case, random_case
from weft.errors import hazard

TRIED = 300


def wrong(case: Case) -> str:
    """At which stage the kernel's numbers differ, and how; "" where they do not, "reported" where an address wraps."""
    kernel = kernel_of(case.text)
    tile, lowered = np.full(case.wanted.shape, -1, np.int64), np.full(case.wanted.shape, -1, np.int64)
    given = [weft.LayoutTensor(values) for values in case.given.values()]
    try:
        with weft.simulate(progress=False, programs=[case.program]):
            compiled = kernel[case.program + 1](weft.LayoutTensor(tile), *given, block=case.block)
    except hazard.WrappedOffset:
        return "reported"
    run_lowered(
        kernel, compiled, case.program + 1, (weft.LayoutTensor(lowered), *given), {}, programs=[(case.program, 0, 0)]
    )
    for stage, out in (("tile", tile), ("lowered", lowered)):
        differs = np.argwhere(out != case.wanted)
        if differs.size:
            row, thread = differs[0]
            return f"{stage}: row {row} of thread {thread} is {out[row, thread]}, not {case.wanted[row, thread]}"
    return ""


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore::weft.errors.PerformanceWarning")
def test_integer_expressions_of_threads(scale: int, stress_report: Callable[..., None]) -> None:
    failed: list[str] = []
    for seed in range(TRIED * scale):
        case = random_case(seed)
        how = wrong(case)
        if how not in ("", "reported"):
            failed.append(f"seed {seed}: {how}\n{case.text}")
    stress_report("integer expressions of threads", tried=TRIED * scale, wrong=len(failed))
    assert not failed, failed[0]
