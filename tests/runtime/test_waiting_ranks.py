"""Launches whose programs wait for other ranks, and cooperative ones: all programs have to fit on the GPU at once."""

from __future__ import annotations

import pytest

from tests.runtime.fake_driver import FakeTensor
from weft.errors import LaunchError
from weft.kernel import jit


def test_a_launch_whose_programs_do_not_fit_on_the_gpu(cuda, compiler):
    @jit
    def meets(x):
        """Take an array."""

    compiler.waits = 1
    meets[16 * 132](FakeTensor(0x1000), num_warps=4)
    assert len(cuda.launches) == 1
    with pytest.raises(LaunchError) as found:
        meets[16 * 132 + 1](FakeTensor(0x1000), num_warps=4)
    assert found.value.code == "launch-programs-wait"
    assert "of its 2113 programs only 2112 fit" in found.value.message
    assert len(cuda.launches) == 1


def test_a_cooperative_launch(cuda, compiler):
    @jit
    def meets(x):
        """Take an array."""

    for together in (False, True) * 3:
        meets[16 * 132](FakeTensor(0x1000), launch_cooperative_grid=together)
    assert [launched.cooperative for launched in cuda.launches] == [False, True] * 3
    meets[16 * 132 + 1](FakeTensor(0x1000))
    with pytest.raises(LaunchError) as found:
        meets[16 * 132 + 1](FakeTensor(0x1000), launch_cooperative_grid=True)
    assert found.value.code == "launch-cooperative-grid"
    assert "of its 2113 programs only 2112 run at the same time" in found.value.message
    assert len(cuda.launches) == 7
