"""With `WEFT_VERIFY=1`, which this suite sets, the IR is checked after every pass."""

from __future__ import annotations

import pytest

from tests.support import tile_kernel
from weft import settings, targets
from weft.ir.core import Func
from weft.ir.verify import VerificationError
from weft.passes import pipeline


def compiled() -> list[str]:
    """Compile an empty kernel; the names of the passes that ran."""
    k, names = tile_kernel(), list[str]()
    k.attrs["sync"] = "auto"
    pipeline.tile_pipeline(k.done(), targets.get("sm_90a"), lambda name, func, ms: names.append(name))
    return names


def test_each_pass_is_checked_in_this_suite(monkeypatch):
    checked: list[Func] = []
    monkeypatch.setattr(pipeline, "verify", checked.append)
    assert settings.current().verify
    names = compiled()
    assert len(checked) == len(names) > 10
    with settings.using(verify=False):
        compiled()
    assert len(checked) == len(names)


def test_a_pass_that_breaks_the_ir_is_caught(monkeypatch):
    monkeypatch.setattr(pipeline, "dce", lambda func: func.with_attrs(num_warps=0))
    with pytest.raises(VerificationError, match="the attribute num_warps cannot be 0"):
        compiled()
