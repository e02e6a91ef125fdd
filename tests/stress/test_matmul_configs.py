"""Random configurations of matmul for random operands: each is refused with its rule, or compiles."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from weft.errors import LaunchError
from weft.kernels import MatmulConfig
from weft.kernels.config import HOPPER_VARIANTS, ORDERS, TENSOR_VARIANTS, WIDTH_STEP
from weft.kernels.multiply import compile_matmul
from weft.settings import using

CASES = 500
TYPES = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float32, np.int8)
REFUSED = ("kernels-config", "kernels-variant-path")
VARIANTS = {"sm_90a": HOPPER_VARIANTS, "sm_100a": TENSOR_VARIANTS}
HEIGHTS = {"sm_90a": (64, 128, 256), "sm_100a": (128,)}


def matrix(rng, kind, shape):
    """Zeros in any order and alignment."""
    rows, columns = turned = shape if rng.integers(2) else shape[::-1]
    first, gap = (int(rng.choice([0, 0, 0, 4, 1])) for _ in range(2))
    made = np.zeros(rows * (columns + gap) + first, kind)[first:].reshape(rows, columns + gap)[:, :columns]
    return made if turned == shape else made.T


def case(rng, target):
    """Operands and options of a product."""

    def pick(*values):
        return values[rng.integers(len(values))]

    kind = TYPES[rng.integers(len(TYPES))]
    m, n, k = (int(np.exp(rng.uniform(0, np.log(600)))) for _ in range(3))
    whole = kind is not np.int8
    gated = whole and pick(True, False)
    config = MatmulConfig(
        variant=pick(*VARIANTS[target]), block_m=pick(*HEIGHTS[target]), block_n=pick(8, *range(WIDTH_STEP, 257, WIDTH_STEP)),
        block_k=pick(0, 32, 64, 128, 256, 512) // np.dtype(kind).itemsize, stages=pick(0, 2, 3, 4), order=pick(*ORDERS),
        splits=pick(1, 1, 2, 3), swap=pick(False, False, True), consumers=pick(1, 2, 2), buffers=pick(1, 2, 4),
        pack=pick(True, False), cluster=pick(1, 2),
    )  # fmt: skip
    options = {"config": config, "gated": gated}
    if whole:
        options["out_dtype"] = pick(None, "float32", "bfloat16")
        options["activation"] = pick(None, None, "silu")
        options["bias"] = pick(None, np.zeros(2 * n if gated else n, np.float32))
        options["residual"] = pick(None, matrix(rng, ml_dtypes.bfloat16, (m, n)))
    if kind is ml_dtypes.float8_e4m3fn:
        options["fast_accumulate"] = pick(True, False)
    return (matrix(rng, kind, (m, k)), matrix(rng, kind, (k, 2 * n if gated else n))), options


@pytest.mark.parametrize("target", VARIANTS)
def test_what_is_accepted_compiles(target, scale, stress_report):
    compiled = 0
    for seed in range(CASES * scale):
        operands, options = case(np.random.default_rng(seed), target)
        try:
            with using(target=target):
                compile_matmul(*operands, **options)
        except LaunchError as refused:
            if refused.code not in REFUSED:
                raise
        else:
            compiled += 1
    stress_report(f"configurations of matmul, {target}", compiled, 0)
    assert compiled > CASES * scale // 20
