"""What kernel tests ask for: a random generator of their own, and a way to run a kernel with every cross-check."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import numpy as np
import pytest

from tests.conftest import Device
from tests.kernels.harness import Runner
from weft import settings


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that follow from the test's name, the same on every device."""
    device = request.node.callspec.params.get("device", "") if hasattr(request.node, "callspec") else ""
    return np.random.default_rng(crc32(request.node.name.replace(device, "").encode()))


@pytest.fixture
def run(device: Device) -> Runner:
    """`run(kernel, grid, out, x, n, ...)`: see `tests.kernels.harness`."""
    return Runner(device)


@pytest.fixture
def blackwell(device: Device) -> Iterator[None]:
    """The test is for Blackwell: the simulator is one, a GPU of another generation is left out."""
    if not device.is_gpu:
        with settings.using(target="sm_100a"):
            yield
        return
    import torch

    major, minor = torch.cuda.get_device_capability()
    if major != 10:
        pytest.skip(f"needs a Blackwell GPU (sm_100a), this one is sm_{major}{minor}")
    yield
