"""Every variant of Hopper, order of tiles, number of parts and form of output computes the same product."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import Device
from tests.kernels_lib.matrices import Lies, check, kept_poison, operand, output, random
from weft.kernels import ORDERS, MatmulConfig, chosen_config, matmul
from weft.kernels.config import HOPPER_VARIANTS

SIZES = {"sim": (300, 104, 144), "gpu": (2000, 1000, 2000)}
OTHER_SIZES = {"sim": (300, 112, 144), "gpu": (1000, 528, 1040)}
"""Rows of elements of one byte are multiples of 16 bytes too."""
MATRIX = pytest.mark.matrix
DTYPE = "float8_e4m3fn"
TILES = {
    "pipelined": MatmulConfig(variant="pipelined", block_m=128, block_n=32, block_k=32, stages=3),
    "pipelined, four warps": MatmulConfig(
        variant="pipelined", consumers=1, block_m=64, block_n=64, block_k=32, stages=2, buffers=1
    ),
    "persistent": MatmulConfig(variant="persistent", block_m=128, block_n=32, block_k=32, stages=3, programs=2),
    "persistent_pipelined": MatmulConfig(
        variant="persistent_pipelined", block_m=128, block_n=32, block_k=32, stages=4, programs=3
    ),
    "cooperative": MatmulConfig(variant="cooperative", block_m=128, block_n=128, block_k=64, stages=3, programs=2),
    "cooperative, tall": MatmulConfig(variant="cooperative", block_m=256, block_n=64, block_k=32, stages=2, programs=2),
    "cooperative, one consumer": MatmulConfig(
        variant="cooperative", consumers=1, block_m=64, block_n=32, block_k=32, stages=4, programs=3
    ),
    "cooperative, two blocks": MatmulConfig(block_m=128, block_n=64, block_k=32, stages=3, programs=2, cluster=2),
    "cooperative, two blocks of one consumer": MatmulConfig(
        consumers=1, block_m=64, block_n=32, block_k=32, stages=2, programs=3, cluster=2
    ),
    "cooperative, three consumers": MatmulConfig(
        block_m=192, consumers=3, block_n=48, block_k=32, stages=3, programs=2
    ),
    "cooperative, four blocks": MatmulConfig(block_m=128, block_n=64, block_k=32, stages=2, programs=1, cluster=4),
    "ping_pong": MatmulConfig(variant="ping_pong", block_m=64, block_n=64, block_k=32, stages=4, programs=2),
    "ping_pong, tall": MatmulConfig(variant="ping_pong", block_m=128, block_n=64, block_k=64, stages=3, programs=1),
}
"""Small tiles for the simulator, several of them for each program."""


def multiplied(device, rng, config, dtype="float16", sizes=None, **options):
    m, n, k = sizes or SIZES[device.name]
    a, b = operand(device, rng, dtype, (m, k), Lies()), operand(device, rng, dtype, (k, n), Lies("F"))
    used = config or chosen_config(a.array, b.array)
    check(device.numpy(matmul(a.array, b.array, config=config, **options)), a.values, b.values, config=used)


@pytest.mark.parametrize("name", TILES)
def test_variant(device, rng, name):
    multiplied(device, rng, TILES[name])


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32", "int8"])
@MATRIX
def test_variant_of_other_types(device, rng, name, dtype):
    multiplied(device, rng, TILES[name], dtype, OTHER_SIZES[device.name])


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=MATRIX if "," in n else ()) for n in TILES if n != "cooperative"]
)
@pytest.mark.parametrize("splits", [1, 2])
def test_sums_of_fp8_in_float32(device, rng, name, splits):
    """The sums are those of short products, and nearer to the exact ones than the tensor core's own."""
    config = replace(TILES[name], splits=splits)
    m, n, k = OTHER_SIZES[device.name]
    a, b = operand(device, rng, DTYPE, (m, 4 * k), Lies()), operand(device, rng, DTYPE, (4 * k, n), Lies("F"))
    found = {
        fast: device.numpy(matmul(a.array, b.array, config=config, out_dtype="float32", fast_accumulate=fast))
        for fast in (True, False)
    }
    exact = a.values.astype(np.float64) @ b.values.astype(np.float64)
    for fast, values in found.items():
        check(values, a.values, b.values, out="float32", config=config, fast=fast)
    off = {fast: np.abs(values - exact).mean() for fast, values in found.items()}
    assert off[False] < off[True] / 2


def test_sums_of_other_types_are_fast_anyway(rng):
    a, b = (random(rng, "float16", (64, 64)) for _ in range(2))
    config = MatmulConfig(block_m=128, block_n=256)
    np.testing.assert_array_equal(matmul(a, b, config=config), matmul(a, b, config=config, fast_accumulate=False))


def test_every_variant_is_tested():
    assert {config.variant for config in TILES.values()} == set(HOPPER_VARIANTS)


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "cooperative" else MATRIX) for name in TILES])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("group", [1, 2, 5])
def test_orders_of_tiles(device, rng, name, order, group):
    multiplied(device, rng, replace(TILES[name], order=order, group=group))


@pytest.mark.parametrize("name", [pytest.param(name, marks=MATRIX if "," in name else ()) for name in TILES])
@pytest.mark.parametrize("splits", [2, 5])
def test_parts_of_sums(device, rng, name, splits):
    multiplied(device, rng, replace(TILES[name], splits=splits, block_k=16, stages=3))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("block_n", "block_k"), [(32, 16), (64, 32), (128, 64)])
def test_halves_that_blocks_send(device, rng, order, block_n, block_k):
    """Halves of a block of b lie in shared memory as the whole block does, in either order and with every swizzle."""
    m, n, k = SIZES[device.name]
    a, b = operand(device, rng, "float16", (m, k), Lies()), operand(device, rng, "float16", (k, n), Lies(order))
    config = MatmulConfig(block_n=block_n, block_k=block_k, stages=3, cluster=2, programs=2)
    check(device.numpy(matmul(a.array, b.array, config=config)), a.values, b.values, config=config)


@pytest.mark.parametrize(("block_n", "cluster"), [(48, 2), (32, 4), (96, 4)])
def test_narrow_parts_that_blocks_send(device, rng, block_n, cluster):
    """Along K the parts of a block of b are any multiple of 8 columns."""
    config = MatmulConfig(consumers=1, block_m=64, block_n=block_n, block_k=32, stages=3, programs=1, cluster=cluster)
    multiplied(device, rng, config)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("rows", [1, 5, 16, 64])
def test_the_transpose_is_computed(device, rng, rows, splits):
    width = max(8, 1 << (rows - 1).bit_length())
    config = MatmulConfig(swap=True, block_m=128, block_n=width, block_k=32, stages=4, splits=splits)
    multiplied(device, rng, config, sizes=(rows, 200, 136))


@pytest.mark.parametrize("name", ["pipelined", "cooperative", "cooperative, two blocks", "ping_pong"])
@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_sums_shorter_than_the_pipeline(device, rng, name, blocks):
    config = TILES[name]
    multiplied(device, rng, config, sizes=(300, 104, blocks * config.block_k - 8))


OUTPUTS = [
    Lies(), Lies(gap=8), Lies(gap=1), Lies(first=3), Lies("F"), Lies("F", gap=12), Lies("F", gap=3, first=1),
    Lies(gap=4), Lies(gap=2, first=2), Lies("F", gap=4),
]  # fmt: skip


@pytest.mark.parametrize("lies", OUTPUTS, ids=str)
@pytest.mark.parametrize(
    ("name", "splits", "out"),
    [("cooperative", 1, "float16"), ("cooperative", 2, "float16"), ("pipelined", 1, "float32"),
     ("cooperative, two blocks", 1, "float16"), pytest.param("cooperative, two blocks", 2, "float32", marks=MATRIX),
     pytest.param("ping_pong", 1, "bfloat16", marks=MATRIX), pytest.param("persistent", 3, "float32", marks=MATRIX)],
)  # fmt: skip
def test_outputs(device, rng, lies, name, splits, out):
    m, n, k = (136, 104, 64) if not device.is_gpu else (1000, 520, 320)
    a, b = operand(device, rng, "float16", (m, k), Lies()), operand(device, rng, "float16", (k, n), Lies())
    found, flat = output(device, out, (m, n), lies)
    config = replace(TILES[name], splits=splits)
    assert matmul(a.array, b.array, found, config=config) is found
    check(device.numpy(found), a.values, b.values, out=out, config=config)
    kept_poison(device, flat, (m, n), lies)


@pytest.mark.parametrize("sizes", [(129, 65, 33), (63, 33, 65), (300, 7, 31), (1, 129, 17)])
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=MATRIX if "," in n else ()) for n in TILES if n.startswith(("cooperative", "ping"))],
)
def test_odd_sizes(device, rng, name, sizes):
    config = TILES[name]
    multiplied(device, rng, replace(config, pack=config.cluster > 1), sizes=sizes)


@pytest.mark.parametrize("sizes", [(200, 136, 264), (8, 264, 520), (129, 65, 33)])
@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_what_is_chosen_without_asking(device, rng, sizes, dtype):
    multiplied(device, rng, None, dtype, sizes)


@pytest.mark.parametrize("variant", HOPPER_VARIANTS)
@pytest.mark.gpu
def test_a_variant_with_its_usual_tile(rng, variant):
    multiplied(Device("gpu"), rng, MatmulConfig(variant=variant), sizes=(2048, 4104, 2000))


def test_cpu_tensors_of_pytorch(torch, rng):
    a, b = (torch.from_numpy(rng.normal(size=shape).astype(np.float16)) for shape in ((40, 64), (24, 64)))
    for _ in range(2):
        found = matmul(a, b.T)
        check(found.numpy(), a.numpy(), b.numpy().T)
    assert found.dtype == torch.float16
