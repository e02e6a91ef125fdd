"""Block-scaled products: every format and variant, odd sizes, all outputs, what is chosen, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.conftest import Device
from tests.kernels.harness import Described, Runner, poison
from tests.kernels_lib.epilogues import Everything
from tests.kernels_lib.matrices import Lies, close, kept_poison, output
from weft import settings
from weft.errors import LaunchError
from weft.kernels import MatmulConfig, compile_scaled, matmul_scaled
from weft.kernels.epilogue import NOTHING
from weft.kernels.machines import BLACKWELL
from weft.kernels.model import Problem
from weft.kernels.operands import matrix
from weft.kernels.scaled import ScaledProduct, choose
from weft.kernels.scaled_plan import FORMATS
from weft.nvidia.scaled import quantise, scale_blocks
from weft.runtime import nvrtc

pytestmark = pytest.mark.usefixtures("blackwell")

MATRIX = pytest.mark.matrix
PAIRS = {
    "mxfp8": ("mxfp8e4m3", "mxfp8e5m2"), "mxfp8, e4m3": ("mxfp8e4m3", "mxfp8e4m3"), "mxfp4": ("mxfp4", "mxfp4"),
    "nvfp4": ("nvfp4", "nvfp4"),
}  # fmt: skip
TILES = {
    "one block": MatmulConfig(variant="tcgen05", block_n=128, stages=3, programs=2),
    "one block, handed out": MatmulConfig(variant="tcgen05_clc", block_n=256, stages=2, consumers=1),
    "pairs": MatmulConfig(variant="tcgen05", block_n=256, stages=2, cluster=2, programs=1),
    "pairs, handed out": MatmulConfig(variant="tcgen05_clc", block_n=128, stages=3, cluster=2),
}


class Operand:
    """A quantised matrix whose runs differ in magnitude, rows by K: as `a` and transposed as `b`, and its scales in blocks."""

    def __init__(self, device, rng, name, rows, k):
        spread = np.exp2(rng.integers(-6, 7, (rows, -(-k // 16)))).repeat(16, axis=-1)[:, :k]
        self.quantised = quantise(rng.normal(size=(rows, k)) * spread, name)
        self.values = self.quantised.values()
        self.elements = device.array(self.quantised.elements)
        self.scales = device.array(scale_blocks(self.quantised.scales))


def operands(device, rng, name, sizes):
    m, n, k = sizes
    left, right = PAIRS[name]
    return Operand(device, rng, left, m, k), Operand(device, rng, right, n, k)


def multiplied(device, rng, name, sizes, config=None, **options):
    a, b = operands(device, rng, name, sizes)
    found = matmul_scaled(
        a.elements, b.elements.T, a.scales, b.scales, format=name.partition(",")[0], config=config, **options
    )
    check(device.numpy(found), a, b, options.get("factor"))


def check(found, a, b, factor=None):
    """Within a rounding to float32 for each instruction, and one to the output's type."""
    roundings = a.values.shape[1] // 32 + 2
    bound = np.abs(a.values) @ np.abs(b.values).T * roundings * 2.0**-24
    close(found, a.values @ b.values.T, bound, factor, None)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("tile", TILES)
def test_formats_and_variants(device, rng, name, tile):
    multiplied(device, rng, name, (300, 264, 320), TILES[tile], out_dtype="float32")


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("sizes", [(300, 520, 192), (1, 8, 32), (129, 65, 96)])
def test_sizes_that_nothing_divides(device, rng, name, sizes):
    """What is chosen without asking, and outputs of bfloat16."""
    multiplied(device, rng, name, sizes)


@pytest.mark.parametrize("lies", [Lies(), Lies(gap=1), Lies("F", gap=4)], ids=str)
@pytest.mark.parametrize(
    ("config", "out"),
    [({"block_n": 128}, "bfloat16"), ({"splits": 2, "cluster": 2}, "float32"), ({"swap": True, "block_n": 128}, "float16")],
)  # fmt: skip
def test_outputs(device, rng, lies, config, out):
    a, b = operands(device, rng, "nvfp4", (136, 104, 512))
    found, flat = output(device, out, (136, 104), lies)
    factor = device.array(np.array([2.0**-3], np.float32))
    given = matmul_scaled(
        a.elements, b.elements.T, a.scales, b.scales, found, format="nvfp4", factor=factor, config=config
    )
    assert given is found
    check(device.numpy(found), a, b, np.array([2.0**-3]))
    kept_poison(device, flat, (136, 104), lies)


@pytest.mark.parametrize(
    "config",
    [
        TILES["pairs, handed out"],
        pytest.param({"splits": 2}, marks=MATRIX), pytest.param({"swap": True, "block_n": 128}, marks=MATRIX),
    ],
    ids=str,
)  # fmt: skip
def test_every_step_of_an_epilogue(device, rng, config):
    m, n, k = 140, 104, 256
    a, b = operands(device, rng, "mxfp8", (m, n, k))
    every = Everything(device, rng, m, n, "bfloat16")
    options = {name: value for name, value in every.options.items() if name not in ("scale_a", "scale_b")}
    found = matmul_scaled(
        a.elements, b.elements.T, a.scales, b.scales, format="mxfp8", factor=0.25, config=config, **options
    )
    exact = a.values @ b.values.T
    every.values |= {"scale_a": np.full(m, 0.25), "scale_b": np.ones(n)}
    every.of(exact, np.abs(a.values) @ np.abs(b.values).T * (k // 32 + 2) * 2.0**-24).check(device.numpy(found))


def test_scales_of_rows_for_the_next_product(device, rng):
    """An output of fp8, whose scales for each row and 128 columns the kernel computes."""
    m, n, k = 70, 130, 128
    a, b = operands(device, rng, "nvfp4", (m, n, k))
    scales = device.array(np.full((m, 2), 7, np.float32))
    found = matmul_scaled(
        a.elements, b.elements.T, a.scales, b.scales, format="nvfp4", out_dtype="float8_e4m3fn", out_scales=scales
    )
    want = a.values @ b.values.T
    wide = np.repeat(device.numpy(scales), 128, axis=1)[:, :n]
    tops = [np.abs(want[:, part]).max(1) / 448 for part in (slice(128), slice(128, n))]
    np.testing.assert_allclose(device.numpy(scales), np.stack(tops, 1), rtol=1e-4)
    assert np.all(np.abs(device.numpy(found).astype(np.float64) * wide - want) <= np.abs(want) / 15 + wide * 2.0**-9)


@pytest.mark.parametrize("tile", ["one block", "pairs"])
def test_bytes_that_are_contiguous_along_rows(device, rng, tile):
    """Tensor cores read elements of a byte along either dimension."""
    a, b = operands(device, rng, "mxfp8", (144, 160, 192))
    left = device.array(a.quantised.elements.T).T
    right = device.array(b.quantised.elements.T)
    found = matmul_scaled(
        left, right, a.scales, b.scales, format="mxfp8", config=TILES[tile], factor=0.5, out_dtype="float32"
    )
    check(device.numpy(found), a, b, 0.5)


@pytest.mark.parametrize("sizes", [(0, 5, 32), (5, 0, 32), (5, 6, 0)])
def test_nothing_to_multiply(sizes):
    m, n, k = sizes
    x, y = np.zeros((m, k), ml_dtypes.float8_e4m3fn), np.zeros((n, k), ml_dtypes.float8_e4m3fn)
    scales = [scale_blocks(np.zeros((rows, k // 32), np.uint8)) for rows in (m, n)]
    found = matmul_scaled(x, y.T, *scales, format="mxfp8")
    assert found.shape == (m, n)
    assert not found.any()
    ended = matmul_scaled(x, y.T, *scales, format="mxfp8", bias=np.full(n, -3, np.float32), activation="relu_squared")
    assert not ended.any()
    assert (
        matmul_scaled(x, y.T, *scales, format="mxfp8", factor=2.0, residual=np.full((m, n), 5.0, np.float32)) == 5
    ).all()
    refused("kernels-empty", lambda: compile_scaled(x, y.T, *scales, format="mxfp8"), str([m, n]))


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
@pytest.mark.parametrize("tile", ["one block", "pairs, handed out"])
def test_stages_agree(rng, name, tile):
    """Numbers and verdicts are those of the lowered kernel too, under every schedule."""
    m, n, k = 200, 136, 256
    a, b = operands(Device("sim"), rng, name, (m, n, k))
    out, config = poison((m, n), np.float32), replace(TILES[tile], block_k=128)
    sides = (matrix("a", a.elements), matrix("b", b.elements))
    product = ScaledProduct(sides, matrix("out", out), NOTHING, config, 4, machine=BLACKWELL, format=name)
    plan = product.plan
    blocks = [x.scales.reshape(*x.scales.shape[:2], 32, 16) for x in (a, b)]
    given = [Described(x.elements, list(side.block), side.layout) for x, side in ((a, plan.a), (b, plan.b))]
    given += [
        Described(x, list(side.block), side.layout)
        for x, side in zip(blocks, (plan.a_scales, plan.b_scales), strict=True)
    ]
    target = Described(out, list(plan.out.block), plan.out.layout)
    Runner(Device("sim"))(
        product.kernel, product.grid, *given, target, None, None, *product.sizes, plan, **product.options
    )
    check(out, a, b)


# Choice


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_chosen(name):
    """Large products go to pairs of blocks, and short ones with a long K are cut."""

    def chosen(m, n, k):
        problem = Problem(m, n, k // row.per_byte, "uint8", 1, 2, True, BLACKWELL.multiprocessors, machine=BLACKWELL)
        config = choose(problem, row)
        config.check(1, problem.stored_by(config))
        return config

    row = FORMATS[name]
    large = chosen(8192, 8192, 8192)
    assert (large.variant, large.cluster, large.block_n, large.splits) == ("tcgen05_clc", 2, 256, 1)
    assert (chosen(16, 300, 512).variant, chosen(16, 300, 512).splits) == ("tcgen05", 1)
    assert chosen(128, 256, 65536).splits > 16


# Machine code


@pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")
@pytest.mark.parametrize(
    ("name", "tile", "product"),
    [("mxfp8", "one block", "UTCQMMA"), ("mxfp4", "pairs, handed out", "UTCOMMA.2CTA"), ("nvfp4", "pairs", "UTCOMMA.2CTA")],
)  # fmt: skip
def test_machine_code(rng, name, tile, product):
    a, b = operands(Device("sim"), rng, name, (512, 512, 512))
    config = replace(TILES[tile], stages=0)
    compiled = compile_scaled(a.elements, b.elements.T, a.scales, b.scales, format=name, config=config)
    made, code = compiled.front.machine_code, compiled.asm["sass"]
    assert (made.n_spills, made.stack) == (0, 0)
    assert len(re.findall(rf"{re.escape(product)}\b", code)) == 4
    row = FORMATS[name]
    # One copy for 512 bytes of scales: 128 rows by four runs.
    assert len(re.findall(r"\bUTCCP", code)) == row.words * (1 + config.block_n // 128)


# Mistakes


def refused(code, call, *words):
    with pytest.raises(LaunchError) as caught:
        call()
    assert caught.value.code == code
    assert caught.value.fix
    assert [word for word in words if word not in str(caught.value)] == []


def given(rng, name="mxfp8", sizes=(40, 48, 64), **changes):
    """Operands of a call, some of them changed."""
    a, b = operands(Device("sim"), rng, name, sizes)
    made = {"a": a.elements, "b": b.elements.T, "scale_a": a.scales, "scale_b": b.scales, "format": name}
    return {**made, **changes}


def test_a_target_without_tensor_memory(rng):
    with settings.using(target="sm_90a"):
        refused("kernels-scaled-target", lambda: matmul_scaled(**given(rng)), "sm_90a", "float16", "scale_a")


def test_an_unknown_format(rng):
    refused("kernels-scaled-format", lambda: matmul_scaled(**given(rng) | {"format": "mxfp6"}), "'mxfp6'", "'nvfp4'")


def test_elements_of_another_format(rng):
    call = lambda: matmul_scaled(**given(rng) | {"format": "mxfp4"})  # noqa: E731
    refused("kernels-scaled-elements", call, "a holds float8_e4m3fn", "uint8")
    refused(
        "kernels-scaled-elements", lambda: matmul_scaled(**given(rng, "nvfp4") | {"format": "mxfp8"}), "float8_e5m2"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[0], "shape [1, 32, 4, 4]"), (lambda x: x.view(np.int8), "int8"), (lambda x: 1.0, "a float"),
        (lambda x: np.zeros((2, *x.shape[1:]), x.dtype), "shape [2, 1, 32, 4, 4]"),
        (lambda x: np.asfortranarray(x), "strides"),
        (lambda x: np.zeros(x.size + 8, x.dtype)[8:].reshape(x.shape), "8 bytes behind"),
    ],
)  # fmt: skip
def test_scales_of_another_shape(rng, change, words):
    good = given(rng)
    refused(
        "kernels-scaled-scales", lambda: matmul_scaled(**good | {"scale_b": change(good["scale_b"])}),
        "scale_b", words, "48 rows of 2 runs", "[1, 1, 32, 4, 4]", "scale_blocks",
    )  # fmt: skip


def test_operands_that_tma_cannot_read(rng):
    good = given(rng, "nvfp4")
    refused(
        "kernels-scaled-path", lambda: matmul_scaled(**good | {"b": np.ascontiguousarray(good["b"])}), "b", "along K"
    )
    apart = np.zeros((40, 72), good["a"].dtype)[:, :32]
    refused("kernels-scaled-path", lambda: matmul_scaled(**good | {"a": apart}), "a", "72 bytes apart", "zeros")


def test_epilogues_that_do_not_fit(rng):
    good = given(rng)
    refused("kernels-extra", lambda: matmul_scaled(**good, bias=np.ones(7, np.float32)), "bias", "7 columns of 48")
    refused("kernels-activation", lambda: matmul_scaled(**good, activation="swish"), "'swish'")
    out = np.zeros((40, 48), np.float32)
    refused("kernels-out-overlaps", lambda: matmul_scaled(**good, out=out, bias=out[0]), "bias")
    call = lambda: matmul_scaled(**good, row_peaks=np.zeros((40, 1), np.float32), config={"swap": True, "block_n": 128})  # noqa: E731
    refused("kernels-config", call, "swap", "128 columns")


def test_a_factor_for_each_row(rng):
    refused("kernels-scaled-factor", lambda: matmul_scaled(**given(rng, factor=np.ones(40, np.float32))), "[40]")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("block_n", 64, "128 or 256"), ("block_k", 64, "128, in bytes"), ("pack", True, "False"),
        ("stages", 7, "shared memory"), ("block_m", 256, "128"),
    ],
)  # fmt: skip
def test_configurations_that_do_not_work(rng, field, value, words):
    call = lambda: matmul_scaled(**given(rng, config={"block_n": 128, field: value}))  # noqa: E731
    refused("kernels-config", call, field, str(value), words)


def test_mistakes_that_matmul_knows(rng):
    refused("kernels-variant-target", lambda: matmul_scaled(**given(rng, variant="ping_pong")), "tcgen05")
    refused("kernels-shapes", lambda: matmul_scaled(**given(rng) | {"b": given(rng, sizes=(40, 48, 96))["b"]}), "64")
    refused("kernels-out-dtype", lambda: matmul_scaled(**given(rng, out_dtype="int32")), "bfloat16")
