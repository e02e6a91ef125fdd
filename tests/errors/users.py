"""What the end-to-end tests of mistakes share: a kernel, arrays, and how a report is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import UserError

LINE = gl.BlockedLayout([1], [32], [4], [0])


def zeros(count: int = 512, dtype: type = np.float32) -> np.ndarray:
    return np.zeros(count, dtype)


@weft.jit
def copy(src, dst, N: gl.constexpr, layout: gl.constexpr):
    offsets = gl.arange(0, N, layout)
    gl.store(dst + offsets, gl.load(src + offsets))


def shown(launch, code: str, line: str = "", kind: type[UserError] = UserError) -> str:
    """What the user reads of a mistake, which must have this code, point into this line, and say what to write."""
    with pytest.raises(kind) as caught:
        launch()
    error = caught.value
    assert error.code == code, str(error)
    assert error.fix
    text = str(error)
    if line:
        assert error.loc is not None
        assert Path(error.loc.file).parent == Path(__file__).parent
        assert error.loc.source.strip() == line
        assert f"\n      {line}\n" in text
        assert "^" in text
    return text
