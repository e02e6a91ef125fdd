"""What tests of tensor memory and tcgen05 share: a simulated Blackwell, matrices, and how their kernels begin and end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import Hazard
from weft.language.nvidia.blackwell import mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor


@pytest.fixture(autouse=True)
def blackwell() -> Iterator[None]:
    """For all tests of a module that imports it."""
    with weft.simulate(target="sm_100a"):
        yield


def described(array: np.ndarray, element: Any, block: list[int] | None = None, **options: Any) -> TensorDescriptor:
    """A descriptor of blocks (the whole array), in the layout that products read."""
    block = block or list(array.shape)
    return TensorDescriptor.from_tensor(array, block, gl.NVMMASharedLayout.get_default_for(block, element, **options))


def poisoned(m: int, n: int, kind: Any = np.float32) -> np.ndarray:
    return np.full((m, n), 77 if np.dtype(kind).kind == "i" else np.nan, kind)


def close(out: np.ndarray, a: np.ndarray, b: np.ndarray, step: int, before: np.ndarray | float = 0.0) -> None:
    """Each instruction rounds once: half a unit in the last place of a sum no larger than that of the magnitudes."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    largest = np.abs(x) @ np.abs(y) + np.abs(before)
    bound = largest * np.finfo(out.dtype).eps / 2 * (x.shape[1] // step)
    assert np.all(np.abs(out.astype(np.float64) - (before + x @ y)) <= bound)


def refused(found: Hazard | None, code: str, *words: str) -> None:
    """The report has a code, both lines, and these words."""
    assert found is not None
    assert found.code == found.rule == code, str(found)
    assert found.first is not None, str(found)
    assert found.second is found.loc
    assert found.fix
    for word in words:
        assert word in str(found), str(found)


@weft.jit
def keep(out, c):
    """Store a tile, one row behind the other."""
    rows: gl.constexpr = c.shape[0]
    columns: gl.constexpr = c.shape[1]
    layout: gl.constexpr = c.type.layout
    i = gl.arange(0, rows, gl.SliceLayout(1, layout))
    gl.store(out + i[:, None] * columns + gl.arange(0, columns, gl.SliceLayout(0, layout))[None, :], c)


@weft.jit
def barriers(count: gl.constexpr):
    """Barriers of one arrival each."""
    bars = mbarrier.allocate_mbarrier(batch=count)
    for i in gl.static_range(count):
        mbarrier.init(bars.index(i), count=1)
    gl.barrier()
    return bars


@weft.jit
def brought(bar, desc, buffer, phase):
    """Load a block and wait for it."""
    mbarrier.expect(bar, desc.block_type.nbytes)
    tma.async_copy_global_to_shared(desc, [0, 0], bar, buffer)
    mbarrier.wait(bar, phase)
