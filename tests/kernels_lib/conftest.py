"""What tests of ready kernels ask for: random numbers of their own."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that follow from the test's name, the same on every device."""
    device = request.node.callspec.params.get("device", "") if hasattr(request.node, "callspec") else ""
    return np.random.default_rng(crc32(request.node.name.replace(device, "").encode()))
