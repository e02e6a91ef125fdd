"""What tests of hazards share: kernels that go wrong, and the report that comes of it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.build import Kernel, pointer, run
from weft.errors import Hazard
from weft.ir.types import int32

N = 128
X = np.arange(N, dtype=np.int32)


def report(code: str, kind: type[Exception], k: Kernel, *arguments, **options) -> Hazard:
    """The hazard that running the kernel raises; its text can be shown."""
    with pytest.raises(kind) as caught:
        run(k.done(), *arguments, **options)
    assert caught.value.code == code
    assert caught.value.message in str(caught.value)
    return caught.value


def two_pointers(**attrs) -> Kernel:
    return Kernel(("x", pointer(int32)), ("out", pointer(int32)), **attrs)


def out() -> np.ndarray:
    return np.zeros(N, np.int32)
