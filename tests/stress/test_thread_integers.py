"""Random integer expressions of single threads, of every integer type and near overflow, against C's arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import weft
from tests.stress.programs import kernel_of
from tests.stress.thread_integers import Case, random_case
from weft.errors import hazard

TRIED = 300


def wrong(case: Case) -> str:
    """How the kernel's numbers differ; "" where they do not, "reported" where an address wraps."""
    out = np.full(case.wanted.shape, -1, np.int64)
    arguments = {name: weft.LayoutTensor(values) for name, values in case.given.items()}
    try:
        with weft.simulate(progress=False, programs=[case.program]):
            kernel_of(case.text)[case.program + 1](weft.LayoutTensor(out), **arguments, block=case.block)
    except hazard.WrappedOffset:
        return "reported"
    differs = np.argwhere(out != case.wanted)
    if not differs.size:
        return ""
    row, thread = differs[0]
    return f"row {row} of thread {thread} is {out[row, thread]}, not {case.wanted[row, thread]}"


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
