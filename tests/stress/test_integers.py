"""Random integer expressions with numbers near overflow: values, masks and the elements that are written, at both stages."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import numpy as np
import pytest

import weft
from tests.stress.integers import random_case
from tests.stress.programs import kernel_of
from weft import compiler, sim
from weft.errors import hazard
from weft.runtime.arguments import host_buffer
from weft.sim.machine import wraps

TRIED = 300


@pytest.fixture
def masks_unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks that depend on wrapped integers are computed as they stand; addresses that do are reported as ever."""
    check = wraps.check

    def only_addresses(task: Any, op: Any, data: Any, entry: Any, *rest: Any) -> None:
        if entry is not hazard.WRAPPED_MASK:
            check(task, op, data, entry, *rest)

    monkeypatch.setattr(wraps, "check", only_addresses)


def run_case(seed: int) -> tuple[str, str]:
    """Which stage differs from NumPy ("" where none does, "reported" where an address wraps), and the kernel."""
    text, program, given, want = random_case(seed)
    kernel = kernel_of(text)
    start = np.full(want.size, -1, np.int64)
    arguments = (given["x"], given["n"], given["k"])
    tile, lowered = start.copy(), start.copy()
    try:
        with weft.simulate(programs=[program]):
            compiled = kernel[program + 1](tile, *arguments)
    except hazard.WrappedOffset:
        return "reported", text
    if not np.array_equal(tile, want):
        return "tile", text
    stages = compiled.front
    named = {"out": host_buffer(lowered), "x": host_buffer(given["x"]), "n": given["n"], "k": given["k"]}
    named = {name: value for name, value in named.items() if name in compiled.request.run_time}
    values = compiler.given(stages.lowered, named)
    sim.run(
        stages.lowered,
        (program + 1, 1, 1),
        values,
        target=stages.target,
        programs=[(program, 0, 0)],
        stdout=StringIO(),
        progress=False,
    )
    return ("" if np.array_equal(lowered, want) else "lowered"), text


@pytest.mark.stress
@pytest.mark.usefixtures("masks_unreported")
def test_integer_expressions(scale: int, stress_report: Callable[..., None]) -> None:
    found = [(seed, *run_case(seed)) for seed in range(TRIED * scale)]
    wrong = [(seed, stage, text) for seed, stage, text in found if stage not in ("", "reported")]
    stress_report("integer expressions of tiles", tried=len(found), wrong=len(wrong))
    assert not wrong, "\n".join(map(str, wrong[0]))
