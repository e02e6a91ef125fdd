"""What kernel tests ask for: a random generator of their own, and a way to run a kernel with every cross-check."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

from tests.conftest import Device
from tests.kernels.harness import Runner


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that follow from the test's name, the same on every device."""
    device = request.node.callspec.params.get("device", "") if hasattr(request.node, "callspec") else ""
    return np.random.default_rng(crc32(request.node.name.replace(device, "").encode()))


@pytest.fixture
def run(device: Device) -> Runner:
    """`run(kernel, grid, out, x, n, ...)`: see `tests.kernels.harness`."""
    return Runner(device)
