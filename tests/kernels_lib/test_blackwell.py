"""Products in tensor memory: the variants of Blackwell on all types, orders, sizes and outputs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import Device
from tests.kernels.harness import Described, Runner, poison
from tests.kernels_lib.matrices import (
    DEFAULTS,
    TYPES,
    Lies,
    close,
    kept_poison,
    operand,
    operand_values,
    output,
    random,
)  # fmt: skip
from weft import settings
from weft.kernels import ORDERS, MatmulConfig, chosen_config, matmul
from weft.kernels.config import TENSOR_VARIANTS
from weft.kernels.epilogue import NOTHING
from weft.kernels.machines import BLACKWELL
from weft.kernels.operands import matrix
from weft.kernels.product import KERNELS, Product

pytestmark = pytest.mark.usefixtures("blackwell")
MATRIX = pytest.mark.matrix

TILES = {
    "one block": MatmulConfig(variant="tcgen05", block_n=32, block_k=32, stages=3, programs=2),
    "one block, handed out": MatmulConfig(variant="tcgen05_clc", block_n=64, block_k=64, stages=2, consumers=1),
    "pairs": MatmulConfig(variant="tcgen05", block_n=64, block_k=32, stages=3, cluster=2, programs=1),
    "pairs, handed out": MatmulConfig(variant="tcgen05_clc", block_n=32, block_k=64, stages=4, cluster=2),
}
"""Small tiles for the simulator, several of them for each program."""
PAIRS = [("float16", "float16"), ("bfloat16", "bfloat16"), ("float32", "float32"), ("float8_e4m3fn", "float8_e5m2"),
         ("uint8", "int8")]  # fmt: skip
ALIGNED, WORDS, BYTES = Lies(), Lies(gap=4), Lies(gap=1, first=1)


def check(found, a, b, scale_a=None, scale_b=None, out=None):
    """Every element, within a rounding to float32 for each instruction along K, and one to the output's type."""
    assert found.dtype == TYPES[out or DEFAULTS[a.dtype.name]]
    if found.dtype.kind in "iu":
        np.testing.assert_array_equal(found, (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64))
        return
    left, right = (operand_values(x).astype(np.float64) for x in (a, b))
    roundings = left.shape[1] * a.itemsize // 32 + 2
    bound = np.abs(left) @ np.abs(right) * roundings * 2.0**-24
    close(found, left @ right, bound, scale_a, scale_b)


def multiplied(device, rng, config, pair=PAIRS[0], sizes=(300, 104, 144), orders="CF", lies=ALIGNED, **options):
    m, n, k = sizes
    a = operand(device, rng, pair[0], (m, k), replace(lies, order=orders[0]))
    b = operand(device, rng, pair[1], (k, n), replace(lies, order=orders[1]))
    check(device.numpy(matmul(a.array, b.array, config=config, **options)), a.values, b.values)


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_variant(device, rng, name, pair):
    config, size = TILES[name], np.dtype(TYPES[pair[0]]).itemsize
    multiplied(device, rng, replace(config, block_k=2 * config.block_k // size), pair, (300, 112, 144))


def test_every_variant_is_tested():
    tested = {(config.variant, config.cluster) for config in TILES.values()}
    assert tested == set(itertools.product(TENSOR_VARIANTS, (1, 2)))


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if "," in n else MATRIX) for n in TILES])
def test_a_size_that_nothing_divides(device, rng, name):
    multiplied(device, rng, TILES[name], sizes=(300, 520, 200), orders="CC")


@pytest.mark.parametrize("sizes", [(1, 8, 16), (1, 1, 1), (129, 65, 33), (63, 33, 65), (1, 129, 17)])
@pytest.mark.parametrize("name", ["one block, handed out", "pairs"])
def test_odd_sizes(device, rng, name, sizes):
    multiplied(device, rng, replace(TILES[name], pack=True), sizes=sizes)


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("pair", [PAIRS[0], *PAIRS[2:]], ids="-".join)
@pytest.mark.parametrize(("name", "lies"), [("pairs", ALIGNED), ("one block", WORDS), ("pairs", BYTES)])
def test_operands_however_they_lie(device, rng, pair, orders, name, lies):
    """Elements of one and of two bytes are read along either dimension; what TMA cannot read is copied first."""
    size = np.dtype(TYPES[pair[0]]).itemsize
    config = replace(TILES[name], block_k=64 // size, pack=lies != ALIGNED or size == 4)
    multiplied(device, rng, config, pair, (160, 80, 112), orders, lies)


def test_what_tensor_cores_read_as_it_lies():
    a, b = np.ones((64, 96), np.int8), np.ones((96, 32), np.int8)
    assert not chosen_config(a, b).pack
    assert not chosen_config(np.asfortranarray(a), b).pack
    assert chosen_config(a.astype(np.float32), b.astype(np.float32)).pack, "32-bit elements are read along K only"
    assert chosen_config(a[:, 1:], b[1:]).pack


@pytest.mark.parametrize("lies", [Lies(), Lies(gap=1), Lies("F"), Lies("F", gap=3, first=1), Lies(gap=4)], ids=str)
@pytest.mark.parametrize(
    ("name", "splits", "out"),
    [("one block", 1, "float32"), ("pairs", 1, "float16"), ("pairs, handed out", 2, "bfloat16"),
     pytest.param("one block, handed out", 3, "float32", marks=MATRIX)],
)  # fmt: skip
def test_outputs(device, rng, lies, name, splits, out):
    m, n, k = 136, 104, 128
    a, b = operand(device, rng, "float16", (m, k), Lies()), operand(device, rng, "float16", (k, n), Lies())
    found, flat = output(device, out, (m, n), lies)
    matmul(a.array, b.array, found, config=replace(TILES[name], splits=splits))
    check(device.numpy(found), a.values, b.values, out=out)
    kept_poison(device, flat, (m, n), lies)


@pytest.mark.parametrize("name", ["one block", "pairs, handed out"])
@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("swap", [False, True])
def test_scales(device, rng, name, splits, swap):
    m, n, k = 140, 72, 256
    a, b = (operand(device, rng, "int8", shape, Lies(order)) for shape, order in (((m, k), "C"), ((k, n), "F")))
    scale_a, scale_b = (rng.uniform(0.5, 2, size).astype(np.float32) / 256 for size in (m, n))
    config = replace(TILES[name], splits=splits, swap=swap)
    found = matmul(a.array, b.array, scale_a=device.array(scale_a), scale_b=device.array(scale_b), out_dtype="float16",
                   config=config)  # fmt: skip
    check(device.numpy(found), a.values, b.values, scale_a, scale_b, "float16")


@pytest.mark.parametrize("order", ORDERS)
def test_orders_of_tiles(device, rng, order):
    multiplied(device, rng, replace(TILES["one block"], order=order, group=2))


def test_a_whole_accumulator(device, rng):
    """Two tiles of 256 columns take all of tensor memory."""
    for cluster in (1, 2):
        multiplied(device, rng, MatmulConfig(variant="tcgen05", cluster=cluster), sizes=(136, 304, 72), orders="FC")


@pytest.mark.parametrize("sizes", [(200, 136, 264), (8, 264, 520), (129, 65, 33)])
@pytest.mark.parametrize("pair", PAIRS[::3], ids="-".join)
def test_what_is_chosen_without_asking(device, rng, sizes, pair):
    multiplied(device, rng, None, pair, sizes)


def test_fp8_needs_no_other_sums(device, rng):
    a, b = (operand(device, rng, "float8_e4m3fn", shape, Lies()) for shape in ((40, 512), (512, 48)))
    fast, slow = (
        device.numpy(matmul(a.array, b.array, out_dtype="float32", fast_accumulate=fast)) for fast in (True, False)
    )
    np.testing.assert_array_equal(fast, slow)
    check(fast, a.values, b.values, out="float32")


def test_fields_without_a_variant(device, rng):
    """They are those of the machine's usual one."""
    multiplied(device, rng, {"block_n": 32, "stages": 2})


def test_a_tensor_of_pytorch_goes_where_the_simulator_is(torch, rng):
    """What is known of a product on one target says nothing of another."""
    a, b = (torch.from_numpy(random(rng, "float16", shape)) for shape in ((40, 64), (64, 24)))
    found = []
    for target in ("sm_90a", "sm_100a", "sm_90a"):
        with settings.using(target=target):
            found.append(matmul(a, b, out_dtype="float32").numpy())
            check(found[-1], a.numpy(), b.numpy(), out="float32") if target == "sm_100a" else None
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("name", TILES)
def test_stages_agree(rng, name):
    """Numbers and verdicts are those of the lowered kernel too, under every schedule."""
    config, (m, n, k) = TILES[name], (200, 72, 112)
    a, b = random(rng, "float16", (m, k)), random(rng, "float16", (n, k))
    out = poison((m, n), np.float16)
    product = Product((matrix("a", a), matrix("b", b)), matrix("out", out), NOTHING, config, 4, machine=BLACKWELL)
    plan = product.plan
    given = [Described(x, list(side.block), side.layout) for x, side in ((a, plan.a), (b, plan.b))]
    target = Described(out, list(plan.out.block), plan.out.layout)
    arguments = (*given, target, None, None, *product.sizes, plan)
    Runner(Device("sim"))(KERNELS[config.variant], product.grid, *arguments, **product.options)
    check(out, a, b.T)
