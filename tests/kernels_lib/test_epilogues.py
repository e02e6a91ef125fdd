"""Epilogues of `matmul` on every path: all steps, against float64 and within their bounds, with memory around outputs kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from tests.kernels_lib.epilogues import ACTIVATIONS, About, Everything
from tests.kernels_lib.matrices import Adding, Lies, kept_poison, operand, operand_values, output
from tests.kernels_lib.test_blackwell import TILES as TENSOR_TILES
from tests.kernels_lib.test_variants import TILES
from weft import language as gl
from weft.kernels import MatmulConfig, matmul
from weft.kernels.epilogue import suits

MATRIX = pytest.mark.matrix
SMALL = MatmulConfig(block_m=128, block_n=32, block_k=32, stages=3, programs=2)
ALIGNED, WORDS, BYTES = Lies(), Lies(gap=4), Lies(gap=1, first=1)
SIZES = {"sim": (140, 72, 104), "gpu": (1000, 520, 1048)}
PATHS: dict[str, tuple[MatmulConfig | None, str, Lies, Lies]] = {
    **{name: (config, "CF", ALIGNED, ALIGNED) for name, config in TILES.items()},
    "chosen": (None, "CC", ALIGNED, ALIGNED),
    "splits": (replace(SMALL, splits=2), "CF", ALIGNED, ALIGNED),
    "swap": (replace(SMALL, swap=True), "CF", ALIGNED, ALIGNED),
    "swap and splits": (replace(SMALL, swap=True, splits=3), "CC", ALIGNED, ALIGNED),
    "copies": (SMALL, "CF", WORDS, ALIGNED),
    "loads": (SMALL, "FC", BYTES, ALIGNED),
    "packed": (replace(SMALL, variant="persistent", pack=True), "CC", BYTES, ALIGNED),
    "columns first": (SMALL, "CF", ALIGNED, Lies("F")),
    "columns first and splits": (replace(SMALL, splits=2), "CF", ALIGNED, Lies("F")),
    "stored from registers": (SMALL, "CF", ALIGNED, BYTES),
    "stored from registers, columns first": (SMALL, "CF", ALIGNED, Lies("F", 1, 1)),
}  # fmt: skip
"""Configurations with the order of operands in memory, how a lies, and how the output lies."""
QUICK = ("persistent_pipelined", "cooperative", "cooperative, two blocks", "ping_pong", "splits", "swap and splits", "loads",
         "columns first", "stored from registers")  # fmt: skip


def quick(names: Any, few: tuple[str, ...]) -> list[Any]:
    return [pytest.param(name, marks=() if name in few else MATRIX) for name in names]


def operands(device, rng, m, n, k, orders="CF", lies=ALIGNED, dtype="float16"):
    a = operand(device, rng, dtype, (m, k), replace(lies, order=orders[0]))
    return a, operand(device, rng, dtype, (k, n), Lies(orders[1]))


def product(a: np.ndarray, b: np.ndarray, config: MatmulConfig | None) -> tuple[np.ndarray, np.ndarray]:
    """a @ b in float64, and how far off sums may be; parts are added in any number without knowing it."""
    adding = Adding.of(a.dtype.name, a.shape[1], config, True)
    exact, bound = adding.bounds(operand_values(a), operand_values(b))
    return exact, bound + 2.0**-22 * (np.abs(exact) + bound)


@pytest.mark.parametrize("name", quick(PATHS, QUICK))
def test_every_step(device, rng, name):
    config, orders, lies, target = PATHS[name]
    (m, n, k), lies = SIZES[device.name], replace(lies)
    a, b = operands(device, rng, m, n, k, orders, lies)
    every = Everything(device, rng, m, n)
    out, flat = output(device, "float32", (m, n), target)
    matmul(a.array, b.array, out, config=config, **every.options)
    every.of(*product(a.values, b.values, config)).check(device.numpy(out))
    kept_poison(device, flat, (m, n), target)


TENSOR = {**TENSOR_TILES, "splits": replace(TENSOR_TILES["one block"], splits=2),
          "swap": replace(TENSOR_TILES["one block"], swap=True)}  # fmt: skip


@pytest.mark.usefixtures("blackwell")
@pytest.mark.parametrize("name", quick(TENSOR, ("one block", "pairs, handed out")))
def test_every_step_on_blackwell(device, rng, name):
    m, n, k = 300, 104, 144
    a, b = operands(device, rng, m, n, k)
    every = Everything(device, rng, m, n, "bfloat16")
    found = matmul(a.array, b.array, config=TENSOR[name], **every.options)
    exact, bound = tensor_product(a.values, b.values)
    every.of(exact, bound).check(device.numpy(found))


def tensor_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a @ b, within a rounding to float32 for each instruction along K."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    return left @ right, np.abs(left) @ np.abs(right) * (a.shape[1] * a.itemsize // 32 + 3) * 2.0**-24


@pytest.mark.parametrize("name", quick(ACTIVATIONS, ("relu_squared", "gelu", "silu", "tanh")))
@pytest.mark.parametrize("out", ["float32", "float16"])
def test_activation(device, rng, name, out):
    m, n, k = 70, 40, 24
    a, b = operands(device, rng, m, n, k)
    found = matmul(a.array, b.array, activation=name, out_dtype=out, config=SMALL)
    About(*product(a.values, b.values, SMALL)).activated(name, out).check(device.numpy(found))


GATED = {**PATHS, "wide": (MatmulConfig(variant="ping_pong", block_m=64, block_n=256), "CC", ALIGNED, ALIGNED)}
GATED = {
    name: (config, *rest) for name, (config, *rest) in GATED.items()
    if config is None or not (config.swap or config.block_n < 32)
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    quick(GATED, ("chosen", "cooperative, two blocks", "ping_pong", "splits", "loads", "columns first and splits")),
)
@pytest.mark.parametrize("pair", [False, pytest.param(True, marks=MATRIX)])
def test_gated(device, rng, name, pair):
    """SwiGLU of both halves of b, or of two arrays."""
    config, orders, lies, target = GATED[name]
    m, n, k = SIZES[device.name]
    a, b = operands(device, rng, m, 2 * n, k, orders, lies)
    bias, residual = (
        operand(device, rng, "float16", (1, 2 * n), Lies()),
        operand(device, rng, "float16", (m, n), Lies()),
    )
    out, flat = output(device, "bfloat16", (m, n), target)
    given = (b.array[:, :n], b.array[:, n:]) if pair else b.array
    options = {"bias": bias.array, "residual": residual.array, "config": config}
    matmul(a.array, given, out, activation="silu", gated=True, **options)
    exact, bound = product(a.values, b.values, config)
    both = About(exact, bound).add(bias.values)
    gate, up = (About(both.value[:, part], both.off[:, part]) for part in (slice(n), slice(n, 2 * n)))
    gate.activated("silu", "bfloat16").by(up).add(residual.values).check(device.numpy(out))
    kept_poison(device, flat, (m, n), target)


@pytest.mark.usefixtures("blackwell")
@pytest.mark.parametrize("splits", [1, pytest.param(2, marks=MATRIX)])
def test_gated_on_blackwell(device, rng, splits):
    m, n, k = 200, 72, 144
    a, b = operands(device, rng, m, 2 * n, k)
    config = replace(TENSOR_TILES["one block"], splits=splits, block_n=64)
    found = matmul(a.array, b.array, gated=True, config=config, out_dtype="float32")
    both = About(*tensor_product(a.values, b.values))
    gate, up = (About(both.value[:, part], both.off[:, part]) for part in (slice(n), slice(n, 2 * n)))
    gate.by(up).check(device.numpy(found))


@pytest.mark.parametrize("dtype", ["float16", pytest.param("float32", marks=MATRIX)])
@pytest.mark.parametrize("name", quick(("chosen", "cooperative", "splits", "swap", "columns first", "stored from registers"),
                                       ("cooperative", "splits", "stored from registers")))  # fmt: skip
def test_a_residual_that_is_the_output(device, rng, name, dtype):
    """Each element is read before it is written, by the thread that computes it or before its store is issued."""
    config, orders, lies, target = PATHS[name]
    m, n, k = SIZES[device.name]
    a, b = operands(device, rng, m, n, k, orders, lies)
    out, flat = output(device, dtype, (m, n), target)
    residual = operand(device, rng, dtype, (m, n), Lies()).values
    out[...] = device.array(residual)
    matmul(a.array, b.array, out, residual=out, config=config)
    About(*product(a.values, b.values, config)).add(residual).check(device.numpy(out))
    kept_poison(device, flat, (m, n), target)


def test_splits_repeat_bit_by_bit(device, rng):
    m, n, k = 70, 72, 400
    a, b = operands(device, rng, m, n, k)
    every = Everything(device, rng, m, n)
    found = [device.numpy(matmul(a.array, b.array, config=replace(SMALL, splits=5), **every.options)) for _ in range(3)]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@weft.jit
def dropped(x, rows, columns, extras):
    keep = gl.rand(extras.seed, rows * extras.width + columns) >= extras.rate
    return gl.where(keep, x / (1 - extras.rate), 0.0)


def test_dropout_is_the_same_in_every_configuration(device, rng):
    m, n, k = 140, 72, 64
    a, b = operands(device, rng, m, n, k)
    options = {"epilogue": dropped, "extras": {"seed": 7, "width": n, "rate": 0.25}, "out_dtype": "float32"}
    configs = [SMALL, replace(SMALL, swap=True), MatmulConfig(variant="ping_pong", block_m=64, block_n=64, splits=2)]
    kept = [device.numpy(matmul(a.array, b.array, config=config, **options)) != 0 for config in configs]
    np.testing.assert_array_equal(kept[0], kept[1])
    np.testing.assert_array_equal(kept[0], kept[2])
    assert 0.65 < kept[0].mean() < 0.85


def test_functions_of_one_name_are_different_kernels(device, rng):
    a, b = operands(device, rng, 24, 16, 40)

    def scaled_by(factor):
        @weft.jit
        def scaled(x, rows, columns, extras):
            return x * factor

        return matmul(a.array, b.array, epilogue=scaled, out_dtype="float32")

    np.testing.assert_array_equal(device.numpy(scaled_by(2.0)), 2 * device.numpy(scaled_by(1.0)))


def test_sums_of_integers_become_floats(device, rng):
    a, b = operands(device, rng, 70, 40, 48, dtype="int8")
    bias = rng.normal(size=40).astype(np.float32)
    found = matmul(a.array, b.array, scale_a=0.125, bias=device.array(bias), out_dtype="float32", config=SMALL)
    exact = a.values.astype(np.float64) @ b.values.astype(np.float64)
    About(exact, np.zeros_like(exact)).times(0.125).add(bias).check(device.numpy(found))


@pytest.mark.parametrize("gated", [False, True])
def test_the_epilogue_of_nothing(device, rng, gated):
    """Where K is 0 every sum is 0, of which the epilogue is computed."""
    a, b = operands(device, rng, 24, 16 * (2 if gated else 1), 0)
    bias = rng.normal(size=b.values.shape[1]).astype(np.float32)
    found = matmul(a.array, b.array, bias=device.array(bias), activation="silu", gated=gated, out_dtype="float32")
    wide = np.broadcast_to(bias.astype(np.float64), (24, len(bias)))
    value = About(wide[:, :16], np.zeros((24, 16))).activated("silu", "float32")
    value = value.by(About(wide[:, 16:], np.zeros((24, 16)))) if gated else value
    value.check(device.numpy(found))


def test_a_choice_takes_the_epilogue(device, rng):
    """What is chosen where few rows would otherwise be columns."""
    for n in (8, 400):
        a, b = operands(device, rng, 3, 2 * n, 40, orders="CC")
        found = matmul(a.array, b.array, gated=True, out_dtype="float32")
        both = About(*product(a.values, b.values, None))
        gate, up = (About(both.value[:, part], both.off[:, part]) for part in (slice(n), slice(n, 2 * n)))
        gate.by(up).check(device.numpy(found))


def test_no_epilogue_of_a_gated_product_is_transposed():
    assert not suits(replace(SMALL, swap=True), ending(gated=True))
    assert suits(replace(SMALL, swap=True), ending(gated=False))


def ending(gated):
    from weft.kernels.epilogue import Ending
    from weft.kernels.epilogue_plan import Epilogue

    return Ending(Epilogue(gated=gated))
