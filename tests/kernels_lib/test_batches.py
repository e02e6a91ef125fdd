"""Batches of products: every variant and path, broadcast and merged axes, empty ones, outputs that are given, and mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels_lib.matrices import DEFAULTS, POISON, TYPES, random
from tests.kernels_lib.test_blackwell import TILES as TENSOR_TILES
from tests.kernels_lib.test_variants import TILES
from weft import settings
from weft.errors import LaunchError
from weft.kernels import MatmulConfig, chosen_config, compile_matmul, matmul, matmul_configs, multiply
from weft.kernels.batches import batch_of
from weft.kernels.product import Product

MATRIX = pytest.mark.matrix
SMALL = MatmulConfig(block_m=128, block_n=32, block_k=32, stages=3, programs=3)


@dataclass(frozen=True)
class Made:
    """An array of a batch on a device, and its values."""

    array: Any
    values: np.ndarray


def made(device, rng, dtype, shape, order="C", gap=0, apart=0, first=0) -> Made:
    """Random matrices; `gap` elements of poison behind each row (column, in order F), `apart` rows between matrices."""
    *axes, rows, columns = shape
    long, count = (rows, columns) if order == "C" else (columns, rows)
    values = random(rng, dtype, (*axes, long, count))
    flat = np.full(first + prod(axes) * (long + apart) * (count + gap), POISON, TYPES[dtype])

    def view(whole):
        found = whole[first:].reshape(*axes, long + apart, count + gap)[..., :long, :count]
        return found if order == "C" else found.swapaxes(-1, -2)

    view(flat)[...] = values if order == "C" else values.swapaxes(-1, -2)
    return Made(view(device.array(flat)), values if order == "C" else values.swapaxes(-1, -2))


def check(device, found, a, b, scale=1.0, add=0.0):
    """Every element is within what tensor cores and the output's type may lose."""
    out = device.numpy(found)
    wide = [x.astype(np.float64) for x in (a, b)]
    if a.dtype == np.float32:
        wide = [(x.astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for x in (a, b)]
    want = wide[0] @ wide[1] * scale + add
    assert out.shape == want.shape
    if out.dtype.kind in "iu":
        np.testing.assert_array_equal(out, want)
        return
    lost = np.abs(wide[0]) @ np.abs(wide[1]) * np.abs(scale) * 2.0 ** (-9 if a.itemsize == 1 else -17)
    allowed = lost + np.abs(want) * float(ml_dtypes.finfo(out.dtype).eps) + 1e-6
    off = np.abs(out.astype(np.float64) - want)
    assert np.all(off <= allowed), f"off by {np.nanmax(off - allowed)} at {np.argwhere(~(off <= allowed))[0]}"


@pytest.fixture
def launches(monkeypatch):
    """The products that are launched."""
    found = []
    run = Product.run

    def counted(self, *arguments):
        found.append(self)
        return run(self, *arguments)

    monkeypatch.setattr(Product, "run", counted)
    return found


def multiplied(device, rng, config=None, shapes=((3, 150, 72), (3, 72, 80)), dtype="float16", orders="CC", **options):
    """A product into a poisoned output, whose surroundings stay as they are."""
    lies = {name: options.pop(name, 0) for name in ("gap", "apart", "first")}
    out_order, out_gap = options.pop("out_order", "C"), options.pop("out_gap", 0)
    a, b = (made(device, rng, dtype, shape, order, **lies) for shape, order in zip(shapes, orders, strict=True))
    axes = np.broadcast_shapes(a.values.shape[:-2], b.values.shape[:-2])
    rows, columns = a.values.shape[-2], b.values.shape[-1]
    long, count = (rows, columns) if out_order == "C" else (columns, rows)
    flat = device.array(np.full((*axes, long + 1, count + out_gap), POISON, TYPES[DEFAULTS[dtype]]))
    part = flat[..., :long, :count]
    out = part if out_order == "C" else part.swapaxes(-1, -2)
    assert matmul(a.array, b.array, out, config=config, **options) is out
    check(device, out, a.values, b.values)
    around = np.array(device.numpy(flat)).astype(np.float64)
    around[..., :long, :count] = POISON
    np.testing.assert_array_equal(around, POISON, "memory around the output was written")


@pytest.mark.parametrize("name", TILES)
def test_variants(device, rng, launches, name):
    multiplied(device, rng, TILES[name], shapes=((3, 150, 72), (3, 72, 64)))
    assert len(launches) == 1


PATHS = {
    "copies": {"gap": 2},
    "loads": {"gap": 1},
    "loads, turned": {"dtype": "float32", "orders": "FC", "shapes": ((2, 70, 40), (2, 40, 36))},
    "fp8": {"dtype": "float8_e4m3fn", "orders": "CF", "shapes": ((3, 150, 80), (3, 80, 80))},
    "integers": {"dtype": "int8", "orders": "CF", "shapes": ((3, 150, 80), (3, 80, 80))},
    "both column by column": {"orders": "FF", "shapes": ((3, 144, 72), (3, 72, 80))},
    "matrices apart": {"apart": 3},
    "matrices apart by odd steps": {"shapes": ((3, 13, 9), (3, 9, 7))},
    "output column by column": {"out_order": "F", "shapes": ((3, 144, 72), (3, 72, 80))},
    "output of rows apart": {"out_gap": 3},
}


@pytest.mark.parametrize("name", PATHS)
def test_paths(device, rng, launches, name):
    options = dict(PATHS[name])
    config = MatmulConfig(block_m=128, block_n=32, stages=3, programs=3)
    multiplied(device, rng, config, **options)
    assert len(launches) == 1


CONFIGS = {
    "splits": MatmulConfig(block_n=32, block_k=32, stages=2, splits=2),
    "splits, swapped": MatmulConfig(block_n=32, block_k=32, stages=2, splits=3, swap=True),
    "swap": MatmulConfig(block_m=64, block_n=64, block_k=32, stages=3, consumers=1, swap=True),
    "wide": MatmulConfig(block_n=96, block_k=32, stages=2),
    "serpentine": MatmulConfig(block_n=16, block_k=32, stages=2, order="serpentine", group=2, programs=2),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations(device, rng, name):
    multiplied(device, rng, CONFIGS[name])


@pytest.mark.parametrize("splits", [1, 2])
def test_packed_operands(device, rng, splits):
    config = MatmulConfig(block_n=64, block_k=32, stages=2, pack=True, splits=splits)
    multiplied(device, rng, config, gap=1)
    multiplied(device, rng, config, gap=1, shapes=((150, 72), (3, 72, 80)))


@pytest.mark.parametrize("name", TENSOR_TILES)
@pytest.mark.usefixtures("blackwell")
def test_tensor_memory(device, rng, launches, name):
    multiplied(device, rng, TENSOR_TILES[name], shapes=((3, 150, 72), (3, 72, 80)))
    multiplied(device, rng, TENSOR_TILES[name], shapes=((150, 72), (3, 72, 80)), out_gap=1)
    assert len(launches) == 2


@pytest.mark.parametrize("fast", [True, False])
def test_fp8_with_scales(device, rng, fast):
    a = made(device, rng, "float8_e4m3fn", (3, 140, 160))
    b = made(device, rng, "float8_e4m3fn", (3, 160, 48), "F")
    rows, columns = rng.uniform(0.5, 2, 140).astype(np.float32), rng.uniform(0.5, 2, 48).astype(np.float32)
    scales = {"scale_a": device.array(rows), "scale_b": device.array(columns)}
    config = MatmulConfig(block_n=32, block_k=64, stages=3)
    for splits in (1, 2):
        found = matmul(
            a.array, b.array, **scales, fast_accumulate=fast, config=multiply.replace(config, splits=splits),
            out_dtype="float32",
        )  # fmt: skip
        check(device, found, a.values, b.values, rows[:, None] * columns)


@pytest.mark.parametrize("splits", [1, 2])
def test_an_epilogue_is_that_of_each_product(device, rng, splits):
    a, b = made(device, rng, "float16", (2, 150, 72)), made(device, rng, "float16", (72, 40))
    bias, residual = rng.normal(size=40).astype(np.float32), rng.normal(size=(150, 40)).astype(np.float32)
    given = {"bias": device.array(bias), "residual": device.array(residual)}
    config = MatmulConfig(block_n=32, block_k=32, stages=3, splits=splits)
    found = matmul(a.array, b.array, **given, config=config, out_dtype="float32")
    check(device, found, a.values, b.values, add=bias + residual)
    nothing = matmul(a.array[..., :0], b.array[:0], **given, out_dtype="float32")
    np.testing.assert_allclose(device.numpy(nothing), np.broadcast_to(bias + residual, (2, 150, 40)), rtol=1e-6)


# Axes

AXES = {
    "one matrix b for all, as one product": ((5, 30, 72), (72, 40), 1),
    "one matrix a for all": ((30, 72), (5, 72, 40), 1),
    "two axes as one": ((2, 3, 30, 72), (2, 3, 72, 40), 1),
    "axes of one element": ((1, 3, 1, 30, 72), (3, 1, 72, 40), 1),
    "outer axis of a alone": ((2, 3, 30, 72), (3, 72, 40), 2),
    "crossed": ((2, 1, 30, 72), (1, 3, 72, 40), 2),
    "many": ((2, 1, 2, 2, 30, 40), (3, 1, 2, 40, 16), 12),
}


@pytest.mark.parametrize("name", AXES)
def test_axes(device, rng, launches, name):
    first, second, count = AXES[name]
    a, b = made(device, rng, "float16", first), made(device, rng, "float16", second)
    check(device, matmul(a.array, b.array, config=SMALL), a.values, b.values)
    assert len(launches) == count


def test_heads_between_rows(device, rng, launches):
    """As attention has them: [batch, rows, heads, K], of which no step leads from one head of the last batch to the next."""
    a, b = made(device, rng, "float16", (2, 40, 3, 64)), made(device, rng, "float16", (2, 48, 3, 64))
    left, right = a.array.swapaxes(1, 2), b.array.swapaxes(1, 2).swapaxes(-1, -2)
    found = matmul(left, right, config=SMALL)
    check(device, found, a.values.swapaxes(1, 2), b.values.swapaxes(1, 2).swapaxes(-1, -2))
    assert len(launches) == 2
    one = matmul(left[0], right[0], config=SMALL)
    np.testing.assert_array_equal(device.numpy(one), device.numpy(found)[0])
    assert len(launches) == 3


def test_products_apart_take_the_options_of_the_call(device, rng, launches):
    a, b = made(device, rng, "float8_e4m3fn", (2, 1, 40, 256)), made(device, rng, "float8_e4m3fn", (1, 3, 256, 32), "F")
    found = matmul(a.array, b.array, scale_a=0.5, out_dtype="float32", fast_accumulate=False)
    check(device, found, a.values, b.values, 0.5)
    assert [product.fast for product in launches] == [False] * 2


def test_empty_batches(device):
    for first, second in (((0, 8, 16), (0, 16, 8)), ((0, 8, 16), (16, 8)), ((2, 0, 16), (2, 16, 8))):
        found = matmul(device.zeros(first, np.float16), device.zeros(second, np.float16))
        assert tuple(found.shape) == (*first[:-2], first[-2], 8)
    found = matmul(device.zeros((3, 8, 0), np.float16), device.zeros((3, 0, 8), np.float16))
    np.testing.assert_array_equal(device.numpy(found), np.zeros((3, 8, 8)))


@pytest.mark.stress
def test_random_batches(device, rng):
    for _ in range(40):
        axes = [int(n) for n in rng.integers(1, 4, rng.integers(1, 4))]
        m, n, k = (int(size) for size in rng.integers(1, 90, 3))
        shapes = []
        for shape in ((m, k), (k, n)):
            own = [1 if rng.random() < 0.3 else extent for extent in axes]
            shapes.append((*own[int(rng.integers(0, len(own) + 1)) :], *shape))
        dtype = str(rng.choice(["float16", "bfloat16", "float8_e4m3fn", "int8"]))
        orders, lies = (
            "".join(rng.choice(["C", "F"], 2)),
            {"gap": int(rng.integers(0, 3)), "apart": int(rng.integers(0, 3))},
        )
        multiplied(device, rng, None, shapes, dtype, orders, **lies, out_gap=int(rng.integers(0, 2)))


# What is chosen, and mistakes


def test_the_choice_counts_all_products():
    a, b = np.ones((64, 128, 256), np.float16), np.ones((64, 256, 128), np.float16)
    one, many = (multiply.problem(x, y) for x, y in ((a[0], b[0]), (a, b)))
    assert (one.batch, many.batch) == (1, 64)
    assert chosen_config(a, b).splits == 1, "there are tiles enough"
    assert (
        chosen_config(a, b, explain=True).chosen.cycles.memory
        > chosen_config(a[0], b[0], explain=True).chosen.cycles.memory
    )
    assert chosen_config(a, b) in list(matmul_configs(a, b))
    assert compile_matmul(a, b).name.startswith("matmul")
    folded = multiply.problem(a, b[0])
    assert (folded.m, folded.batch) == (64 * 128, 1)


def test_steps_of_a_batch():
    a, b = np.ones((6, 8, 16), np.float16), np.ones((1, 16, 8), np.float16)
    found = batch_of(a, b, None)
    assert (found.left.batches, found.left.step) == (6, 128) and (found.right.batches, found.right.step) == (1, 0)
    assert found.shape == (6, 8, 8) and not found.apart
    assert found.folded().left.shape == (48, 16)
    assert batch_of(a[::-1], b, None).left.step == -128
    assert batch_of(a[:, :4], b, None).folded().left.shape == (4, 16), "rows do not continue from matrix to matrix"


def test_backward_batches(device, rng):
    if device.is_gpu:
        pytest.skip("PyTorch has no negative strides")
    a, b = made(device, rng, "float16", (3, 40, 72)), made(device, rng, "float16", (3, 72, 40))
    check(device, matmul(a.array[::-1], b.array, config=SMALL), a.values[::-1], b.values)


def refused(code, *arguments, **options):
    with pytest.raises(LaunchError) as caught:
        matmul(*arguments, **options)
    assert caught.value.code == code
    return caught.value.message


def test_mistakes():
    a, b = np.ones((2, 3, 8, 16), np.float16), np.ones((4, 16, 8), np.float16)
    message = refused("kernels-batch", a, b)
    assert message == "the batch axes of a are [2, 3] and those of b [4]: along axis -3 a has 3 matrices and b 4"
    assert "along axis -4 a has 2 matrices and b 5" in refused("kernels-batch", a, np.ones((5, 3, 16, 8), np.float16))
    assert "rows of a have 16 elements" in refused("kernels-shapes", a, b[:3, :8])
    good = b[:3]
    message = refused("kernels-out-shape", a, good, np.ones((3, 8, 8), np.float16))
    assert "out has shape [3, 8, 8]" in message and "has shape [2, 3, 8, 8]" in message
    refused("kernels-out-repeats", a, good, np.broadcast_to(np.ones((3, 8, 8), np.float16), (2, 3, 8, 8)))
    refused("kernels-out-overlaps", a, good, a[..., :8])
    refused("kernels-array", a[0, 0, 0], good)
    message = refused("kernels-batch-written", a, good, row_squares=np.ones(8, np.float32))
    assert message.startswith("row_squares has an element for each row, and all products of the batch [2, 3]")
    message = refused("kernels-gated", a, (good, b[:1]), gated=True)
    assert "float16 [3, 16, 8] with strides [128, 8, 1] and float16 [1, 16, 8]" in message


@pytest.mark.parametrize(
    ("axes", "others", "config"),
    [
        ((3,), (3,), {"block_m": 128, "block_n": 64, "block_k": 32, "stages": 3}),
        ((2, 2), (2,), None),
        ((3,), (1,), {"variant": "pipelined", "block_m": 128, "block_n": 32, "block_k": 32, "stages": 3}),
        ((2,), (2,), {"block_m": 128, "block_n": 32, "block_k": 32, "stages": 3, "splits": 2}),
    ],
)
@pytest.mark.parametrize("odd", [False, True])
def test_gated(device, rng, axes, others, config, odd):
    """One matrix with both halves side by side; without descriptors too."""
    columns = 24 - odd
    a, b = (
        made(device, rng, "float16", shape)
        for shape in ((*axes, 40, 72 - odd), (*others, 72 - odd, 2 * columns))
    )  # fmt: skip
    if odd and config is not None and "variant" in config:
        config = {**config, "pack": True}
    out = device.array(np.full((*np.broadcast_shapes(axes, others), 40, columns), POISON, np.float16))
    matmul(a.array, b.array, out, activation="silu", gated=True, config=config)
    product = a.values.astype(np.float64) @ b.values.astype(np.float64)
    gate, up = product[..., :columns], product[..., columns:]
    np.testing.assert_allclose(device.numpy(out), gate / (1 + np.exp(-gate)) * up, rtol=1e-2, atol=2e-2)


def test_a_batch_that_tma_cannot_step_through_says_so():
    flat = np.ones(4096, np.float16)
    a = np.lib.stride_tricks.as_strided(flat, (3, 8, 16), (2 * 132, 32, 2))
    message = refused("kernels-variant-path", a, np.ones((3, 16, 8), np.float16), variant="pipelined")
    assert "the matrices of its batch are 264 bytes apart, which is no positive multiple of 16 bytes" in message


def test_settings_of_the_target(rng):
    a, b = np.ones((2, 40, 64), np.float16), np.ones((2, 64, 32), np.float16)
    with settings.using(target="sm_100a"):
        np.testing.assert_array_equal(matmul(a, b), np.full((2, 40, 32), 64.0))
