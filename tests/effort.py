"""How much work something is, in function calls: the same on every machine, however busy. Times belong to `benchmarks/`.

And how much of what could be tried the default suite tries: `crossed` leaves points of a matrix to `make test-all`, `examples`
random ones to `make stress`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
from hypothesis import settings

from weft.settings import using


def calls(work: Callable[[], Any]) -> int:
    """Calls of Python and C functions in one run of `work`, after a run that fills the caches; without the checks of the IR
    that this suite adds (`WEFT_VERIFY`)."""
    with using(verify=False):
        return _calls(work)


def _calls(work: Callable[[], Any]) -> int:
    work()
    count = 0

    def see(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    collecting = gc.isenabled()
    gc.disable()  # a collection would call finalizers that are none of this work's
    before = sys.getprofile()
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()
    return count


def crossed(*axes: Iterable[Any]) -> list[Any]:
    """All combinations of the values of several parameters. One case per axis is tried by default: those that differ from the
    first values of all axes in one at most; the others have the marker `matrix`."""
    lists = [list(axis) for axis in axes]
    return [
        pytest.param(
            *(axis[i] for axis, i in zip(lists, at, strict=True)), marks=[pytest.mark.matrix] * (sum(map(bool, at)) > 1)
        )
        for at in product(*(range(len(axis)) for axis in lists))
    ]


def some(values: Iterable[Any], step: int) -> list[Any]:
    """All values, of which the default suite tries one in `step`; the others have the marker `matrix`."""
    return [pytest.param(value, marks=[pytest.mark.matrix] if i % step else []) for i, value in enumerate(values)]


def examples(count: int) -> int:
    """Examples of a random test: `count` fresh ones by `make stress`; a third of them by default, the same in each run."""
    return count if settings.get_current_profile_name() == "fresh" else -(-count // 3)
