"""Products by tiles whose width is no power of two."""

from __future__ import annotations

import pytest

from tests.kernels_lib.matrices import Lies, check, kept_poison, operand, output
from tests.kernels_lib.test_variants import multiplied
from weft.errors import LaunchError
from weft.kernels import MatmulConfig, matmul

CONFIGS = {
    "cooperative": MatmulConfig(variant="cooperative", block_m=128, block_n=96, block_k=64, stages=2, programs=2),
    "wide": MatmulConfig(variant="cooperative", block_m=128, block_n=288, block_k=32, stages=2, programs=2),
    "tall": MatmulConfig(variant="cooperative", block_m=256, block_n=112, block_k=32, stages=2, programs=2),
    "one consumer": MatmulConfig(variant="cooperative", consumers=1, block_m=64, block_n=160, block_k=32, stages=2),
    "ping-pong": MatmulConfig(variant="ping_pong", block_m=64, block_n=192, block_k=32, stages=2, programs=2),
    "pipelined": MatmulConfig(variant="pipelined", block_m=128, block_n=80, block_k=32, stages=2),
    "persistent": MatmulConfig(
        variant="persistent_pipelined", block_m=128, block_n=144, block_k=32, stages=3, programs=1
    ),
}
SIZES = {"sim": (140, 208, 80), "gpu": (2000, 1000, 2000)}


@pytest.mark.parametrize("name", CONFIGS)
def test_variants(device, rng, name):
    multiplied(device, rng, CONFIGS[name], sizes=SIZES[device.name])


@pytest.mark.parametrize("name", ["cooperative", "ping-pong"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32", "int8"])
def test_types(device, rng, name, dtype):
    multiplied(device, rng, CONFIGS[name], dtype, SIZES[device.name])


@pytest.mark.parametrize("width", [96, 112, 160])
@pytest.mark.parametrize(("a_lies", "b_lies"), [("C", "C"), ("F", "F"), ("F", "C")])
def test_orders_of_operands(device, rng, width, a_lies, b_lies):
    m, n, k = SIZES[device.name]
    config = MatmulConfig(consumers=1, block_m=64, block_n=width, block_k=64, stages=2, programs=2)
    a, b = operand(device, rng, "float16", (m, k), Lies(a_lies)), operand(device, rng, "float16", (k, n), Lies(b_lies))
    check(device.numpy(matmul(a.array, b.array, config=config)), a.values, b.values, config=config)


@pytest.mark.parametrize("width", [112, 176])
@pytest.mark.parametrize("lies", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_operands_that_tma_cannot_read(device, rng, width, lies, dtype):
    """Rows of an odd number of elements: cp.async or registers copy blocks, and threads store the output."""
    m, n, k = 75, 2 * width - 31, 77
    config = MatmulConfig(consumers=1, block_m=64, block_n=width, block_k=64, stages=2, programs=2)
    a, b = operand(device, rng, dtype, (m, k), Lies("C")), operand(device, rng, dtype, (k, n), Lies(lies))
    check(device.numpy(matmul(a.array, b.array, config=config)), a.values, b.values, config=config)


@pytest.mark.parametrize("width", [96, 112])
def test_outputs_by_column_and_in_splits(device, rng, width):
    m, n, k = SIZES[device.name]
    for splits in (1, 2):
        config = MatmulConfig(consumers=1, block_m=64, block_n=width, block_k=32, stages=2, splits=splits, programs=3)
        a, b = operand(device, rng, "float16", (m, k), Lies()), operand(device, rng, "float16", (k, n), Lies("F"))
        out, flat = output(device, "float16", (m, n), Lies("F", 16))
        matmul(a.array, b.array, out=out, config=config)
        check(device.numpy(out), a.values, b.values, config=config)
        kept_poison(device, flat, (m, n), Lies("F", 16))


@pytest.mark.parametrize(
    ("width", "cluster", "order", "words"),
    [
        (72, 1, "F", "multiple of 16 up to"), (304, 1, "F", "multiple of 16 up to"), (80, 4, "F", "multiple of 8 for each"),
        (96, 4, "C", "multiple of 16 for each"),
    ],
)  # fmt: skip
def test_widths_that_are_refused(device, rng, width, cluster, order, words):
    a, b = operand(device, rng, "float16", (64, 64), Lies()), operand(device, rng, "float16", (64, 64), Lies(order))
    with pytest.raises(LaunchError, match=words):
        matmul(a.array, b.array, config=MatmulConfig(block_n=width, cluster=cluster))
