"""`import weft` is quick and starts nothing."""

from __future__ import annotations

import statistics
import subprocess
import sys

import pytest

import weft

BUDGET_S = 0.15
RUNS = 7


def python(code: str) -> str:
    """Run code in a fresh interpreter and give back what it printed."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_time():
    code = "from time import perf_counter as t; s = t(); import weft; print(t() - s)"
    assert statistics.median(float(python(code)) for _ in range(RUNS)) < BUDGET_S


def test_import_loads_no_heavy_package():
    code = "import sys, weft; print(*{'numpy', 'cuda', 'torch', 'ml_dtypes', 'rich'} & sys.modules.keys())"
    assert python(code).split() == []


def test_writing_a_kernel_loads_no_gpu_package():
    code = "import sys, weft; from weft import language; weft.jit; print(*{'cuda', 'torch'} & sys.modules.keys())"
    assert python(code).split() == []


@pytest.mark.parametrize("name", weft.__all__)
def test_every_public_name_is_there(name):
    assert getattr(weft, name) is getattr(weft, name)
    assert name in dir(weft)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'jot'"):
        _ = weft.jot
