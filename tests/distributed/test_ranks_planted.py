"""Each planted bug between ranks is reported under its code, in both stages and whichever rank is delayed; its repaired twin
runs clean."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import weft
from tests.distributed.planted import PLANTED, Planted
from tests.distributed.worlds import world
from weft import simulation
from weft.errors import Hazard

WAYS = [(0, "tile"), (5, "lowered"), pytest.param(1, "tile", marks=pytest.mark.matrix)]


@pytest.mark.parametrize("bug", PLANTED, ids=str)
@pytest.mark.parametrize(("seed", "of"), WAYS)
def test_a_bug_between_ranks_is_reported(bug: Planted, seed: int, of: str):
    with weft.simulate(target="sm_90a"), pytest.raises(Hazard) as caught:
        world(partial(bug.host, fixed=False), bug.ranks, seed, of, bug.nvshmem)
    found = caught.value
    assert found.code in bug.codes, found
    assert found.fix
    assert "rank" in found.message or any("rank" in label for label, _ in found.related), found


@pytest.mark.parametrize("bug", PLANTED, ids=str)
@pytest.mark.parametrize(("seed", "of"), WAYS)
def test_its_repaired_twin_is_correct(bug: Planted, seed: int, of: str):
    with weft.simulate(target="sm_90a"):
        for out, wanted in world(partial(bug.host, fixed=True), bug.ranks, seed, of, bug.nvshmem):
            np.testing.assert_array_equal(out, np.full_like(out, wanted))


def test_launches_of_a_rank_run_once_under_a_supervisor():
    """Signals are counted: a supervisor that runs each launch several times must leave these alone."""
    bug = next(bug for bug in PLANTED if str(bug) == "a_dropped_signal")
    seen: list[str] = []

    def twice(name: str, arguments: object, run: Callable[[], Any]) -> Any:
        seen.append(name)
        run()
        return run()

    with simulation.supervised(twice):
        for out, wanted in world(partial(bug.host, fixed=True), bug.ranks):
            np.testing.assert_array_equal(out, np.full_like(out, wanted))
    assert not seen
