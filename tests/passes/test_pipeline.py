"""With `WEFT_VERIFY=1`, which this suite sets, the IR is checked after every pass."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support import tile_kernel
from weft import settings, targets
from weft.ir.core import Func
from weft.ir.verify import VerificationError, verify
from weft.passes import pipeline


def compiled() -> list[Func]:
    """Compile an empty kernel; what each pass made of it."""
    k, made = tile_kernel(), list[Func]()
    k.attrs["sync"] = "auto"
    pipeline.tile_pipeline(k.done(), targets.get("sm_90a"), lambda name, func, ms: made.append(func))
    return made


def test_each_pass_is_checked_in_this_suite(monkeypatch):
    checked: list[Func] = []

    def check(func, known):
        checked.append(func)
        return verify(func, known)

    monkeypatch.setattr(pipeline, "verify", check)
    assert settings.current().verify
    different = [func for before, func in pairwise([None, *compiled()]) if func is not before]
    assert checked == different != []
    with settings.using(verify=False):
        compiled()
    assert checked == different


def test_a_pass_that_breaks_the_ir_is_caught(monkeypatch):
    monkeypatch.setattr(pipeline, "dce", lambda func: func.with_attrs(num_warps=0))
    with pytest.raises(VerificationError, match="the attribute num_warps cannot be 0"):
        compiled()
