"""The machine code of the kernels as they are shipped: sums stay in registers, and products follow one another."""

from __future__ import annotations

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from weft import settings
from weft.kernels import MatmulConfig, compile_matmul
from weft.runtime import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")
MATRIX = pytest.mark.matrix
FP8, SIZE = ml_dtypes.float8_e4m3fn, 1024
WIDE = MatmulConfig(block_n=256, block_k=64, stages=4)
SQUARE = MatmulConfig(variant="ping_pong", block_n=128, block_k=64, stages=6)
BIASED, RESIDUAL = {"bias": np.zeros(SIZE, np.float16)}, np.zeros((SIZE, SIZE), np.float16)
SERIALISED = re.compile(r"C75\d\d.*")


def operands(dtype, rows_first=False, k=SIZE):
    """Operands as most callers have them: fp8 contiguous along K, others row by row."""
    a, b = np.zeros((SIZE, k), dtype), np.zeros((SIZE, k), dtype).T
    return (a, b) if np.dtype(dtype).itemsize == 1 and not rows_first else (a, np.zeros((k, SIZE), dtype))


CASES = {
    "cooperative": (operands(np.float16), WIDE, {}),
    "ping pong": (operands(np.float16), SQUARE, {}),
    "tall": (operands(np.float16), MatmulConfig(block_m=256, block_n=128), {}),
    "one consumer": (operands(np.float16), MatmulConfig(consumers=1, block_m=64, block_n=128, stages=6), {}),
    "two blocks": (operands(np.float16), replace(WIDE, cluster=2), {}),
    "two blocks, parts": (operands(np.float16), replace(WIDE, cluster=2, splits=2), {}),
    "two blocks, fp8, sums in float32": (operands(FP8), MatmulConfig(cluster=2), {"fast_accumulate": False}),
    "pipelined": (operands(np.float16), replace(WIDE, variant="pipelined"), {}),
    "persistent": (operands(np.float16), replace(WIDE, variant="persistent"), {}),
    "persistent pipelined": (operands(np.float16), replace(WIDE, variant="persistent_pipelined"), {}),
    "bfloat16": (operands(ml_dtypes.bfloat16), WIDE, {}),
    "fp8": (operands(FP8), replace(WIDE, block_k=128), {}),
    "fp8 ping pong": (operands(FP8), replace(SQUARE, block_k=128), {}),
    "fp8 with scales": (
        operands(FP8), replace(WIDE, block_k=128), {"scale_a": np.ones(SIZE, np.float32), "scale_b": 0.5}
    ),
    "fp8, sums in float32": (operands(FP8), MatmulConfig(), {"fast_accumulate": False}),
    "fp8 ping pong, sums in float32": (operands(FP8), MatmulConfig(variant="ping_pong"), {"fast_accumulate": False}),
    "fp8 uniform, sums in float32": (
        operands(FP8), MatmulConfig(variant="persistent_pipelined"), {"fast_accumulate": False}
    ),
    "int8": (operands(np.int8), replace(WIDE, block_k=128), {}),
    "parts": (operands(np.float16), replace(WIDE, splits=2), {}),
    "few rows": (tuple(x.T for x in operands(np.float16)[::-1]), MatmulConfig(swap=True, block_n=16, stages=6), {}),
    "96 columns": (operands(np.float16), MatmulConfig(variant="ping_pong", block_n=96), {}),
    "112 columns": (operands(np.float16), MatmulConfig(block_m=256, block_n=112), {}),
    "160 columns": (operands(np.float16), MatmulConfig(block_n=160), {}),
    "192 columns": (operands(ml_dtypes.bfloat16), MatmulConfig(block_n=192), {}),
    "176 columns, pipelined": (operands(np.float16), MatmulConfig(variant="pipelined", block_n=176), {}),
    "96 columns, fp8, sums in float32": (operands(FP8), MatmulConfig(block_n=96), {"fast_accumulate": False}),
    "144 columns, int8": (operands(np.int8), MatmulConfig(block_n=144), {}),
    "96 columns, parts": (operands(np.float16), MatmulConfig(block_n=96, splits=2), {}),
    "112 columns, copies": (operands(np.float16, k=SIZE - 2), MatmulConfig(block_n=112), {}),
    "112 columns, loads": (operands(np.float16, k=SIZE - 1), MatmulConfig(block_n=112), {}),
    "96 columns, turned over": (operands(FP8, rows_first=True), MatmulConfig(block_n=96, block_k=128), {}),
    "GELU, bias, residual": (operands(np.float16), WIDE, {**BIASED, "activation": "gelu", "residual": RESIDUAL}),
    "GELU, bias, residual, ping pong": (
        operands(np.float16), SQUARE, {**BIASED, "activation": "gelu_tanh", "residual": RESIDUAL}
    ),
    "GELU, bias, residual, uniform": (
        operands(np.float16), replace(WIDE, variant="persistent_pipelined"),
        {**BIASED, "activation": "gelu", "residual": RESIDUAL},
    ),
    "SwiGLU": (operands(np.float16), WIDE, {"activation": "silu", "gated": True}),
    "fp8 with computed scales": (
        operands(np.float16), WIDE, {"out_dtype": "float8_e4m3fn", "out_scales": np.ones((SIZE, SIZE // 128), np.float32)}
    ),
    "copies": (operands(np.float16, k=SIZE - 2), MatmulConfig(block_n=128), {}),
    "loads": (operands(np.float16, k=SIZE - 1), MatmulConfig(block_n=128), {}),
    "turned over": (operands(FP8, rows_first=True), MatmulConfig(block_n=128, block_k=128), {}),
}  # fmt: skip
QUICK = (
    "cooperative",
    "two blocks",
    "ping pong",
    "persistent pipelined",
    "fp8",
    "fp8, sums in float32",
    "loads",
    "192 columns",
    "GELU, bias, residual, ping pong",
)


SLOTS = {
    "gelu_tanh": ({"activation": "gelu_tanh"}, 6.2),
    "gelu": ({"activation": "gelu"}, 15.2),
    "silu": ({"activation": "silu"}, 5.2),
    "bias": (BIASED, 2.8),
    "residual": ({"residual": RESIDUAL}, 2.9),
}
"""Epilogues, and the most instructions for an element that each may take beside a plain product's."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "silu" else MATRIX) for name in SLOTS])
def test_instructions_of_an_epilogue(name):
    options, most = SLOTS[name]
    texts = [compile_matmul(*operands(np.float16), config=WIDE, **given).asm["sass"] for given in ({}, options)]
    counts = [sum(";" in line and "NOP" not in line for line in text.splitlines()) for text in texts]
    # Two consumers of 128 elements a thread.
    assert 0 < (counts[1] - counts[0]) / 256 <= most


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else MATRIX) for name in CASES])
def test_machine_code(name):
    (a, b), config, options = CASES[name]
    made = compile_matmul(a, b, config=config, **options).front.machine_code
    assert (made.n_spills, made.stack) == (0, 0)
    assert SERIALISED.findall(made.log) == []


def test_a_cluster_reads_b_once():
    """Requests of b are for both blocks; a slot is given to them without a fence for the whole GPU."""
    compiled = compile_matmul(*operands(np.float16), config=replace(WIDE, cluster=2))
    loads = re.findall(r"UTMALDG\.2D(?:\.MULTICAST)?", compiled.asm["sass"])
    # A block of b is 256 columns wide, 64 to a request, and each block sends half of them; a block of a is each consumer's.
    assert (loads.count("UTMALDG.2D.MULTICAST"), loads.count("UTMALDG.2D")) == (4, 2)
    assert "release.cluster" not in re.sub("fence_mbar_init.*", "", compiled.asm["cuda"])
    assert "fence_cluster" not in compiled.asm["cuda"]


@pytest.mark.parametrize("config", [WIDE, replace(WIDE, variant="pipelined")], ids=lambda config: config.variant)
def test_descriptors_are_fetched_while_the_launch_before_ends(config):
    text = compile_matmul(*operands(np.float16), config=config).asm["sass"]
    found = re.findall(r"UTMACCTL\.PF|ACQBULK|UTMALDG", text)
    assert found[:4] == [*["UTMACCTL.PF"] * 3, "ACQBULK"]
    assert found.count("UTMACCTL.PF") == 3


def test_nothing_stands_between_the_products_of_a_block():
    """Of the four products of a block of K no one waits for the one before, and loads and stores are TMA's."""
    text = compile_matmul(*operands(np.float16), config=WIDE).asm["sass"]
    waits = [line for line in text.splitlines() if re.search("HGMMA|DEPBAR.LE gsb", line)]
    products = re.findall("(?:HGMMA|DEPBAR)", " ".join(waits))
    assert "HGMMA HGMMA HGMMA HGMMA" in " ".join(products)
    for instruction in ("UTMALDG", "UTMASTG", "STSM", "SYNCS"):
        assert instruction in text


TENSOR = MatmulConfig(variant="tcgen05")
TENSOR_CASES = {
    "tcgen05": (operands(np.float16), TENSOR, {}, "UTCHMMA"),
    "one group stores": (operands(np.float16), replace(TENSOR, consumers=1), {}, "UTCHMMA"),
    "handed out": (operands(np.float16), replace(TENSOR, variant="tcgen05_clc"), {}, "UTCHMMA"),
    "pairs": (operands(np.float16), replace(TENSOR, cluster=2), {}, "UTCHMMA.2CTA"),
    "pairs, handed out": (operands(np.float16), replace(TENSOR, variant="tcgen05_clc", cluster=2), {}, "UTCHMMA.2CTA"),
    "tf32": (tuple(x.T for x in operands(np.float32)[::-1])[::-1], replace(TENSOR, pack=True), {}, "UTCHMMA"),
    "fp8": (operands(FP8, rows_first=True), replace(TENSOR, cluster=2), {"scale_b": 0.5}, "UTCQMMA.2CTA"),
    "int8": (operands(np.int8), TENSOR, {}, "UTCIMMA"),
    "parts": (operands(np.float16), replace(TENSOR, splits=2), {}, "UTCHMMA"),
    "stored from registers": (operands(np.float16), TENSOR, {"out": np.zeros((SIZE, SIZE + 1), np.float16)[:, :-1]}, "UTCHMMA"),
}  # fmt: skip
QUICK_TENSOR = ("tcgen05", "pairs, handed out", "fp8", "int8", "stored from registers")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK_TENSOR else MATRIX) for name in TENSOR_CASES]
)
def test_machine_code_of_blackwell(name):
    """Products are started by one thread, several to a block of K; sums come from tensor memory; nothing is spilt."""
    (a, b), config, options, product = TENSOR_CASES[name]
    with settings.using(target="sm_100a"):
        compiled = compile_matmul(a, b, config=config, **options)
    made, code = compiled.front.machine_code, compiled.asm["sass"]
    assert (made.n_spills, made.stack) == (0, 0)
    # A block of K is 128 bytes wide, and an instruction takes 32.
    assert len(re.findall(rf"{re.escape(product)}\b", code)) == 4
    assert {"LDTM", "UTCBAR", "UTMALDG"} <= set(re.findall(r"\b(LDTM|UTCBAR|UTMALDG)", code))
    assert ("UGETNEXTWORKID" in code) == (config.variant == "tcgen05_clc")
    assert ("UTMASTG" in code) == ("out" not in options)
