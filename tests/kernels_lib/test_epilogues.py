"""Epilogues of `matmul` on every path: all steps, against float64 and within their bounds, with memory around outputs kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.kernels_lib.epilogues import ACTIVATIONS, About, Everything
from tests.kernels_lib.matrices import TYPES, Adding, Lies, kept_poison, operand, operand_values, output
from tests.kernels_lib.test_blackwell import TILES as TENSOR_TILES
from tests.kernels_lib.test_variants import TILES
from weft import language as gl
from weft.errors import LaunchError
from weft.kernels import MatmulConfig, matmul, rms_factors
from weft.kernels.epilogue import Ending, suits
from weft.kernels.epilogue_plan import Epilogue

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
STACKED = MatmulConfig(block_m=128, block_n=8, block_k=32, stages=3, consumers=1, swap=True, programs=3)
GATED = {
    name: (config, *rest) for name, (config, *rest) in GATED.items()
    if config is None or not (config.swap or config.block_n < 32 * config.cluster or config.block_n & config.block_n - 1)
} | {
    "swapped": (STACKED, "FC", ALIGNED, ALIGNED),
    "swapped, two consumers": (replace(STACKED, block_m=256, block_n=48, consumers=2), "CF", ALIGNED, Lies("F")),
    "swapped, tall": (replace(STACKED, block_m=256, block_n=32), "CF", ALIGNED, BYTES),
    "swapped, shared": (replace(STACKED, block_n=16, shares=4, programs=0), "CF", ALIGNED, ALIGNED),
    "swapped, copies": (STACKED, "CC", WORDS, ALIGNED),
    "swapped, loads": (replace(STACKED, block_n=64), "FC", BYTES, ALIGNED),
    "swapped, packed": (replace(STACKED, pack=True), "FC", BYTES, ALIGNED),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    quick(GATED, ("chosen", "cooperative, two blocks", "splits", "loads", "swapped, two consumers", "swapped, shared")),
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


def test_which_epilogues_are_transposed():
    """Each consumer of a gated product needs rows of both halves, and statistics are of rows of the output itself."""
    assert suits(replace(SMALL, swap=True), Ending(Epilogue()))
    assert not suits(replace(SMALL, swap=True), Ending(Epilogue(gated=True)))
    assert suits(STACKED, Ending(Epilogue(gated=True)))
    assert not suits(STACKED, Ending(Epilogue(gated=True, written=("row_peaks",))))


# What is written of rows


GROUPED = {
    "chosen": None,
    "cooperative": replace(SMALL, block_n=128),
    "two blocks": MatmulConfig(block_m=128, block_n=128, block_k=32, stages=3, cluster=2),
    "ping_pong": MatmulConfig(variant="ping_pong", block_m=64, block_n=256, block_k=32, stages=3),
    "splits": replace(SMALL, splits=2),
    "persistent": replace(SMALL, variant="persistent", block_n=128),
}
TENSOR_GROUPED = {
    "one block": MatmulConfig(variant="tcgen05", block_n=128, block_k=32, stages=3),
    "pairs": MatmulConfig(variant="tcgen05", block_n=256, block_k=32, stages=3, cluster=2),
}


def groups(x: np.ndarray) -> np.ndarray:
    """[M, groups, 128], with zeros behind the last column."""
    m, n = x.shape
    across = -(-n // 128)
    return np.pad(x, ((0, 0), (0, across * 128 - n))).reshape(m, across, 128)


def measured(device, rng, config, product_of, out):
    """Statistics and scales of the rows of a product with a residual."""
    m, n, k = 140, 200, 96
    a, b = operands(device, rng, m, n, k)
    residual = rng.normal(size=n).astype(np.float32)
    poisoned = {
        name: output(device, "float32", (m, 2), Lies(gap=1)) for name in ("row_squares", "row_peaks", "out_scales")
    }
    given = {name: array for name, (array, _) in poisoned.items() if name != "out_scales" or out.startswith("float8")}
    found = matmul(a.array, b.array, residual=device.array(residual), config=config, out_dtype=out, **given)
    x = About(*product_of(a.values, b.values, config)).add(residual)
    value, off = groups(x.value), groups(x.off)
    got = {name: device.numpy(array).astype(np.float64) for name, array in given.items()}
    off_squares = (2 * np.abs(value) * off + off**2).sum(2) + (value**2).sum(2) * 2.0**-16
    assert np.all(np.abs(got["row_squares"] - (value**2).sum(2)) <= off_squares)
    peaks = np.abs(value).max(2)
    assert np.all(np.abs(got["row_peaks"] - peaks) <= off.max(2))
    for name, array in given.items():
        kept_poison(device, poisoned[name][1], array.shape, Lies(gap=1))
    if "out_scales" not in given:
        x.check(device.numpy(found))
        return
    scales, top = got["out_scales"], float(ml_dtypes.finfo(TYPES[out]).max)
    assert np.all(np.abs(scales - peaks / top) <= (off.max(2) + peaks * 2.0**-22) / top)
    wide = np.repeat(scales, 128, axis=1)[:, :n]
    About(x.value / wide, x.off / wide + np.abs(x.value / wide) * 2.0**-20).check(device.numpy(found))


@pytest.mark.parametrize("name", quick(GROUPED, ("two blocks", "ping_pong", "splits")))
@pytest.mark.parametrize(
    "out", ["float8_e4m3fn", pytest.param("float16", marks=MATRIX), pytest.param("float8_e5m2", marks=MATRIX)]
)
def test_rows_are_measured(device, rng, name, out):
    measured(device, rng, GROUPED[name], product, out)


def test_rows_of_16_bits_are_measured(device, rng):
    """A group of columns is two pieces."""
    measured(device, rng, GROUPED["cooperative"], product, "bfloat16")


@pytest.mark.usefixtures("blackwell")
@pytest.mark.parametrize("name", quick(TENSOR_GROUPED, ("pairs",)))
def test_rows_are_measured_on_blackwell(device, rng, name):
    measured(device, rng, TENSOR_GROUPED[name], lambda a, b, _: tensor_product(a, b), "float8_e4m3fn")


@pytest.mark.parametrize("kind", ["number", "one"])
def test_a_scale_of_the_output(device, rng, kind):
    a, b = operands(device, rng, 70, 40, 48)
    scale = 0.25 if kind == "number" else device.array(np.full(1, 0.25, np.float32))
    found = matmul(a.array, b.array, out_scale=scale, out_dtype="float8_e5m2", config=SMALL)
    About(*product(a.values, b.values, SMALL)).times(4.0).check(device.numpy(found))


def test_rows_of_a_gated_product_are_measured(device, rng):
    m, n, k = 70, 130, 48
    a, b = operands(device, rng, m, 2 * n, k)
    peaks = device.array(np.full((m, 2), 77, np.float32))
    found = matmul(a.array, b.array, gated=True, row_peaks=peaks, out_dtype="float32")
    np.testing.assert_array_equal(device.numpy(peaks), np.abs(groups(device.numpy(found))).max(2))


def test_rows_of_zeros_have_a_scale(device):
    a, b = device.array(np.zeros((4, 16), np.float16)), device.array(np.zeros((16, 8), np.float16))
    scales = device.array(np.full((4, 1), 77, np.float32))
    found = device.numpy(matmul(a, b, out_dtype="float8_e4m3fn", out_scales=scales))
    assert not found.astype(np.float32).any()
    assert (device.numpy(scales) > 0).all()


@pytest.mark.parametrize("shape", [(300, 5), (1, 1), (0, 4)])
def test_factors_of_rows(device, rng, shape):
    squares = rng.uniform(0, 9, shape).astype(np.float32)
    found = device.numpy(rms_factors(device.array(squares), 640, eps=1e-3))
    exact = 1 / np.sqrt(squares.astype(np.float64).sum(1) / 640 + 1e-3)
    np.testing.assert_allclose(found, exact, rtol=2.0**-20)


# Shapes, paths and epilogues drawn at random


SEEDS = [pytest.param(seed, marks=() if seed < 2 else pytest.mark.stress) for seed in range(60)]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_products(device, seed):
    """Sizes from 1, any order and alignment of operands and output, any tile of Hopper, any subset of the steps."""
    rng = np.random.default_rng(seed)
    most = 700 if device.is_gpu else 150
    m, n, k = (int(np.exp(rng.uniform(0, np.log(most)))) for _ in range(3))
    gated = bool(rng.integers(2))
    lies, target = (Lies("CF"[rng.integers(2)], *[(0, 0), (4, 0), (1, 1)][rng.integers(3)]) for _ in range(2))
    a, b = operands(device, rng, m, n * (2 if gated else 1), k, lies.order + "CF"[rng.integers(2)], lies)
    names = [None, *TILES, "splits"] if device.is_gpu or not gated else [None, "splits", "ping_pong"]
    names += ["swapped"] if gated else []
    config = {**TILES, "splits": replace(SMALL, splits=2), "swapped": STACKED}.get(names[rng.integers(len(names))])
    if config is not None and config.variant not in ("cooperative", "ping_pong"):
        config = replace(config, pack=True)
    if config is not None and config.cluster > 1:
        config = replace(config, pack=True, block_n=64)
    if config is not None and gated and not config.swap:
        least = 32 * config.cluster
        if config.block_n < least or config.block_n & config.block_n - 1:
            config = replace(config, block_n=max(64, least))
    exact, bound = product(a.values, b.values, config)
    x, options = About(exact, bound), {}
    if rng.integers(2):
        bias = rng.normal(size=exact.shape[1]).astype(np.float32)
        options["bias"], x = device.array(bias), x.add(bias)
    if gated:
        up = About(x.value[:, n:], x.off[:, n:])
        x = About(x.value[:, :n], x.off[:, :n])
    name = [None, "relu", "silu", "gelu", "gelu_tanh"][rng.integers(5)]
    if name is not None:
        options["activation"], x = name, x.activated(name, "bfloat16")
    x = x.by(up) if gated else x
    out, flat = output(device, "bfloat16", (m, n), target)
    kind = rng.integers(3)
    if kind:
        values = operand(device, rng, "bfloat16", (m, n), Lies())
        options["residual"], x = values.array, x.add(values.values)
    if kind == 2:
        out[...] = values.array
        options["residual"] = out
    matmul(a.array, b.array, out, gated=gated, config=config, **options)
    x.check(device.numpy(out))
    kept_poison(device, flat, (m, n), target)


def test_prepared_products_of_tensors(torch):
    """Calls that share a prepared product have numbers, arrays and addresses of their own; others are prepared anew."""
    rng = np.random.default_rng(3)
    a, b = (torch.from_numpy(rng.normal(size=shape).astype(np.float16)) for shape in ((24, 40), (40, 32)))
    exact = a.numpy().astype(np.float64) @ b.numpy().astype(np.float64)
    memory = torch.from_numpy(rng.normal(size=24 * 32 + 8).astype(np.float32))

    @weft.jit
    def shifted(x, rows, columns, extras):
        return x * extras[0] + extras[1]

    def close(found, want):
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-5, atol=1e-4)

    for first, factor in ((0, 2.0), (0, 3.0), (4, 3.0), (1, 0.5)):
        residual = memory[first : first + 24 * 32].reshape(24, 32)
        found = matmul(a, b, epilogue=shifted, extras=(factor, residual), out_dtype=torch.float32)
        close(found, exact * factor + residual.numpy())
        out = residual.clone()
        close(matmul(a, b, out, residual=out, bias=factor), exact + factor + residual.numpy())
    halves = (b[:, :16], b[:, 16:])
    for pair, sign in ((halves, 1), (b, 1), (halves[::-1], -1)):
        gate, up = (exact[:, :16], exact[:, 16:])[::sign]
        found = matmul(a, pair, gated=True, activation="relu", out_dtype=torch.float32)
        close(found, np.maximum(gate, 0) * up)
    peaks = torch.empty(24, 1)
    for column in (16, 32):
        matmul(a, b[:, :column], row_peaks=peaks, out_dtype=torch.float32)
        close(peaks[:, 0], np.abs(exact[:, :column]).max(1))
    with pytest.raises(LaunchError, match="kernels-written-overlaps"):
        matmul(a, b, row_peaks=a.view(torch.float32)[:, :1])
    with pytest.raises(LaunchError, match="kernels-written-overlaps"):
        matmul(a, b, row_peaks=a.view(torch.float32)[:, :1])
