"""The kernels mean the same at every stage and under every schedule, and no schedule finds a hazard in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import Device
from tests.kernels.harness import Described, Runner, Within, poison
from tests.kernels_lib.matrices import check, random
from tests.kernels_lib.test_variants import TILES
from weft.kernels import MatmulConfig
from weft.kernels.device.epilogue import RESIDUAL
from weft.kernels.epilogue import NOTHING, Given, ending_of
from weft.kernels.operands import matrix
from weft.kernels.product import KERNELS, Product

SIZES = (200, 72, 112)
PATHS = {
    "copies": (MatmulConfig(block_n=32, block_k=32, stages=3, programs=2), (200, 72, 102)),
    "loads": (MatmulConfig(block_n=32, block_k=32, stages=3, programs=2), (200, 72, 101)),
}
CASES = {**{name: (config, SIZES) for name, config in TILES.items()}, **PATHS}
QUICK = ("persistent_pipelined", "cooperative", "cooperative, two blocks", "ping_pong", "copies", "loads")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.matrix) for n in CASES])
@pytest.mark.parametrize("dtype", ["float16", pytest.param("int8", marks=pytest.mark.matrix)])
def test_stages_agree(rng, name, dtype):
    config, (m, n, k) = CASES[name]
    a, b = random(rng, dtype, (m, k)), random(rng, dtype, (n, k))
    out = poison((m, n), np.int32 if dtype == "int8" else np.float16)
    product = Product((matrix("a", a), matrix("b", b)), matrix("out", out), NOTHING, config, 2)
    plan = product.plan
    given = [
        Described(array, list(side.block), side.layout) if side.path == "descriptor" else array
        for array, side in ((a, plan.a), (b, plan.b))
    ]
    target = Described(out, list(plan.out.block), plan.out.layout)
    arguments = (*given, target, None, None, *product.sizes, plan)
    Runner(Device("sim"))(KERNELS[config.variant], product.grid, *arguments, **product.options)
    check(out, a, b.T)


@pytest.mark.parametrize(
    "name", ["ping_pong", *(pytest.param(n, marks=pytest.mark.matrix) for n in ("cooperative", "persistent"))]
)
def test_stages_agree_on_an_epilogue(rng, name):
    """With a residual, which TMA loads, a bias, and statistics of rows."""
    config, (m, n, k) = replace(TILES[name], block_n=128), (140, 136, 72)
    a, b = random(rng, "float16", (m, k)), random(rng, "float16", (n, k))
    bias, out = random(rng, "float16", (n,)), random(rng, "float16", (m, n))
    peaks = poison((m, 2), np.float32)
    residual = out.copy()
    left, target = matrix("a", a), matrix("out", out)
    asked = Given(bias=bias, activation="relu", residual=residual, row_peaks=peaks)
    ending = ending_of(asked, left, n, "float16", target)
    product = Product((left, matrix("b", b)), target, ending, config, 2)
    plan = product.plan
    given = [Described(x, list(side.block), side.layout) for x, side in ((a, plan.a), (b, plan.b))]
    read, place = ending.argument(asked.values) or (), RESIDUAL.value
    assert plan.epilogue.loaded

    def reading(x):
        found = Described(x, list(plan.out.block), plan.out.layout).of(x)
        return *read[:place], found, *read[place + 1 :]

    described = Described(out, list(plan.out.block), plan.out.layout)
    arguments = (*given, described, Within(residual, reading), None, *product.sizes, plan)
    Runner(Device("sim"))(KERNELS[config.variant], product.grid, *arguments, **product.options)
    exact = np.maximum(a.astype(np.float64) @ b.T + bias, 0) + residual
    np.testing.assert_allclose(out, exact, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(peaks[:, 0], np.abs(exact[:, :128]).max(1), rtol=1e-5, atol=1e-4)
