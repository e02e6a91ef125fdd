"""Products that start while the launch before them ends: each waits before it reads and writes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import weft
from tests.kernels_lib.matrices import random
from weft.errors import hazard
from weft.kernels import MatmulConfig, compile_matmul, matmul
from weft.kernels.device import producer

CONFIGS = {
    "cooperative": MatmulConfig(block_n=32, block_k=32, stages=3),
    "ping_pong": MatmulConfig(variant="ping_pong", block_m=64, block_n=32, block_k=32, stages=3),
    "persistent": MatmulConfig(variant="persistent", block_n=32, block_k=32, stages=3),
    "splits": MatmulConfig(block_n=32, block_k=32, stages=3, splits=2),
    "packed": MatmulConfig(block_n=32, block_k=32, stages=3, pack=True),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_chain_of_products(device, rng, name):
    """Each reads what the one before has written, into memory that the one before has read."""
    size = 75 if name == "packed" else 72
    weights = [random(rng, "float16", (size, size)) / 8 for _ in range(3)]
    x = random(rng, "float16", (40, size))
    ring = [device.array(x), device.array(np.empty_like(x))]
    exact = x.astype(np.float64)
    for number, w in enumerate(weights):
        matmul(ring[number % 2], device.array(w), ring[1 - number % 2], config=CONFIGS[name])
        exact = exact @ w.astype(np.float64)
    found = device.numpy(ring[len(weights) % 2]).astype(np.float64)
    np.testing.assert_allclose(found, exact, rtol=2e-2, atol=2e-2)


@weft.jit
def forgotten(plan):
    return


def test_loads_ahead_of_the_wait_are_reported(rng, monkeypatch):
    a, b, c = (random(rng, "float16", (64, 64)) for _ in range(3))
    config = MatmulConfig(block_n=64, block_k=16, stages=2)
    monkeypatch.setattr(producer, "chain", SimpleNamespace(join=forgotten))
    with pytest.raises(hazard.DependentLaunch):
        matmul(matmul(a, b, config=config), c, config=config)


def test_the_first_instructions_do_not_wait():
    """Barriers are initialised ahead of the wait, and each warp of the producer and of the consumers waits once."""
    a, b = np.zeros((256, 256), np.float16), np.zeros((256, 256), np.float16)
    compiled = compile_matmul(a, b, config=MatmulConfig(block_n=128, stages=3))
    text = compiled.asm["cuda"]
    assert compiled.request.options.launch_pdl
    assert text.index("mbar_init(bars, 1)") < text.index("    gdc_wait();")
    assert text.count(" gdc_wait();") == 3
