"""Each planted bug is reported under its code and at its lines, in both stages and any order; its repaired twin runs clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

import numpy as np
import pytest

import weft
from tests.kernels.harness import run_lowered
from tests.sim.planted.bug import PLANTED, Planted
from weft.errors import UserError, hazard

for family in ("copies", "partitions", "programs", "hand_over", "threads", "clusters", "tensor"):
    import_module(f"tests.sim.planted.{family}")

Run = Callable[[], tuple[np.ndarray, np.ndarray]]


def ways(bug: Planted, fixed: bool) -> Iterator[tuple[str, Run]]:
    """Ways to run a kernel by name; each gives the result and what that should be."""
    options = {**bug.options, "FIXED": fixed}

    def tiles(seed: int) -> tuple[np.ndarray, np.ndarray]:
        args, out, wanted = bug.launch()
        with weft.simulate(seed=seed):
            bug.kernel[bug.grid](*args, **options)
        return out, wanted

    def lowered() -> tuple[np.ndarray, np.ndarray]:
        args, out, wanted = bug.launch()
        # Compiled up to lowered IR: nothing runs, and no machine code is made.
        with weft.simulate(programs=[]):
            compiled = bug.kernel[bug.grid](*args, **options)
        run_lowered(bug.kernel, compiled, bug.grid, args, options)
        return out, wanted

    yield "tiles", lambda: tiles(0)
    yield "tiles in another order", lambda: tiles(1)
    if bug.lowered or fixed:
        yield "lowered", lowered


@pytest.mark.parametrize("bug", PLANTED, ids=str)
def test_a_planted_bug_is_reported_where_it_is(bug: Planted):
    with weft.simulate(target=bug.target):
        for way, run in ways(bug, fixed=False):
            with pytest.raises(UserError) as caught:
                run()
            found = caught.value
            words = f"{way}, {sorted(bug.earlier)} and {sorted(bug.here)} expected: {found}"
            assert found.code in bug.codes, words
            assert found.fix
            if isinstance(found, hazard.Deadlock):
                assert {loc.line for _, loc in found.related} >= bug.here, words
                continue
            assert found.loc is not None, words
            assert found.loc.line in bug.here, words
            first = {loc.line for _, loc in found.related[:1]}
            assert first <= bug.earlier and bool(first) == bool(bug.earlier), words


@pytest.mark.parametrize("bug", PLANTED, ids=str)
def test_its_repaired_twin_is_correct(bug: Planted):
    with weft.simulate(target=bug.target):
        for way, run in ways(bug, fixed=True):
            out, wanted = run()
            np.testing.assert_array_equal(out, wanted, err_msg=way)
