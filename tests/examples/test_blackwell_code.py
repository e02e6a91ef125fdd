"""Machine code of the examples for Blackwell: the instructions that each is about are there, and nothing is spilled."""

from __future__ import annotations

import re
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import weft
from benchmarks import twin
from tests.cuda.build import needs_nvrtc
from tests.examples.machine_code import mnemonics

LADDER, BLACKWELL = twin.load("matmul_ladder"), twin.load("matmul_blackwell")
SCALED, GATHER = twin.load("matmul_scaled"), twin.load("tma_gather")
PLACE = twin.load("workbench").Place(gpu=False)
LARGE = (128, 256, 64)
SCALED_PRODUCTS = {"mxfp8e4m3": "UTCQMMA", "mxfp8e5m2": "UTCQMMA", "mxfp4": "UTCOMMA", "nvfp4": "UTCOMMA"}
pytestmark = needs_nvrtc


def built(launch, *arrays):
    """The names of a kernel's instructions, once each; it spills nothing, and ptxas has nothing to say."""
    with weft.simulate(target="sm_100a"):
        compiled = launch(*arrays)
        names = mnemonics(compiled.asm["sass"])
    assert compiled.n_spills == 0
    assert not any(re.match(r"LDL|STL", name) for name in names)
    return set(names)


def has(names, *beginnings):
    assert [start for start in beginnings if not any(name.startswith(start) for name in names)] == []


def operands(dtype=np.float16):
    return np.ones((128, 64), dtype), np.ones((64, 256), dtype), np.zeros((128, 256), np.float16)


@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize("rung", LADDER.RUNGS)
def test_ladder(rung, num_warps):
    function, settings = LADDER.RUNGS[rung]
    settings = {"num_buffers": 3, "num_warps": num_warps, **settings}
    names = built(lambda *arrays: function(*arrays, *LARGE, **settings), *operands())
    has(names, "UTCHMMA", "UTCBAR", "LDTM", "UTMALDG.2D", "UTMASTG.2D")


@cache
def specialized(name, dtype=np.float16):
    return built(lambda *arrays: BLACKWELL.matmul(*arrays, **BLACKWELL.RUNS[name]), *operands(dtype))


@pytest.mark.parametrize("name", BLACKWELL.RUNS)
def test_warp_specialized(name):
    names, pairs = specialized(name), ".2CTA" if "pairs" in name else ""
    has(names, f"UTCHMMA{pairs}", f"UTCBAR{pairs}", f"UTMALDG.2D{pairs}", "LDTM.x64", "UTMASTG.2D")
    assert ("UGETNEXTWORKID" in " ".join(names)) == ("claimed" in name)
    assert pairs or not any("2CTA" in each for each in names)


@pytest.mark.parametrize("name", BLACKWELL.RUNS)
def test_matmul_on_fp8(name):
    pairs = ".2CTA" if "pairs" in name else ""
    has(specialized(name, ml_dtypes.float8_e4m3fn), f"UTCQMMA{pairs}", f"UTCBAR{pairs}", "LDTM.x64")


@cache
def scaled(formats, two_ctas):
    a, b = (SCALED.quantised(PLACE, np.ones((256, 256)), name)[0] for name in formats)
    return built(lambda C: SCALED.matmul_scaled(a, b, C, two_ctas=two_ctas), np.zeros((256, 256), np.float16))


@pytest.mark.parametrize("two_ctas", [False, True])
@pytest.mark.parametrize("formats", SCALED.FORMATS)
def test_scaled(formats, two_ctas):
    """Of two formats the wider decides."""
    pairs = ".2CTA" if two_ctas else ""
    product = "UTCQMMA" if "mxfp8e4m3" in formats else SCALED_PRODUCTS[formats[0]]
    has(
        scaled(formats, two_ctas),
        f"{product}{pairs}",
        f"UTCCP.T.S{pairs}",
        f"UTCBAR{pairs}",
        f"UTMALDG.4D{pairs}",
        "LDTM",
    )


def test_rows_are_moved_by_tma_alone():
    src, rows = np.zeros((64, 128), np.float16), np.arange(64, dtype=np.int32)
    names = built(GATHER.by_tma, src, rows, src.copy(), rows)
    has(names, "UTMALDG.2D.GATHER4", "UTMASTG.2D.SCATTER4")
    assert not any(re.match(r"LDS|STS|STG", name) for name in names)
