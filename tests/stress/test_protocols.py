"""Protocols between programs, right and wrong ones: a right one is never reported, of a wrong one a check finds the fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.stress.programs import kernel_of
from tests.stress.protocols import Case, random_case
from weft.errors import Hazard, hazard

TRIED = 300
ORDERS: tuple[dict[str, Any], ...] = (
    {},
    {"order": "reverse"},
    {"order": "random", "seed": 1},
    {"order": "random", "seed": 2},
)
"""In which orders programs start, as in `weft check`."""
CHANCE = "one buffer"
"""A fault that shows only where a program is overtaken between a wait and its reads: two seeds have found 29 of 32."""
MORE_ORDERS = (*ORDERS, *({"order": "random", "seed": seed} for seed in range(3, 13)))


def hazards_of(case: Case) -> tuple[list[Hazard], list[np.ndarray]]:
    """What the simulator says in all orders together, and what each run that ended leaves in `out`."""
    kernel, options = kernel_of(case.text), {} if case.block is None else {"block": case.block}
    found: list[Hazard] = []
    left: list[np.ndarray] = []
    for order in MORE_ORDERS if case.kind.endswith(CHANCE) else ORDERS:
        arrays = {name: np.zeros(size, np.int32) for name, size in case.sizes.items()}
        with weft.simulate(keep_going=True, progress=False, **order):
            try:
                found += kernel[case.programs](*arrays.values(), **options).report.hazards
                left.append(arrays["out"])
            except Hazard as error:
                found += [*error.earlier, error]
    return found, left


def wrong(case: Case) -> str:
    """How the simulator is wrong about a case; "" where it is right."""
    found, left = hazards_of(case)
    names = sorted({type(each).__name__ for each in found})
    if case.verdict == "correct":
        if found:
            return f"reported: {found[0]}"
        numbers = "" if all(np.array_equal(out, case.wanted) for out in left) else "other numbers"
        return numbers if case.wanted.any() else ""
    if case.verdict == "racy":
        races = [each for each in found if isinstance(each, hazard.GlobalRace | hazard.ThreadRace)]
        return "" if races else f"a race is not found: {names}"
    return "" if any(isinstance(each, hazard.Deadlock) for each in found) else f"a deadlock is not found: {names}"


@pytest.mark.stress
def test_protocols(scale: int, stress_report: Callable[..., None]) -> None:
    tried: Counter[str] = Counter()
    failed: dict[str, list[str]] = {}
    for seed in range(TRIED * scale):
        case = random_case(seed)
        tried[case.kind] += 1
        if how := wrong(case):
            failed.setdefault(case.kind, []).append(f"seed {seed}, {case.kind}: {how}\n{case.text}")
    for kind, count in tried.items():
        stress_report(kind, tried=count, wrong=len(failed.get(kind, ())))
    assert not failed, next(iter(failed.values()))[0]
