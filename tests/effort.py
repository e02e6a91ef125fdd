"""How much work something is, in function calls: the same on every machine, however busy. Times belong to `benchmarks/`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

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
