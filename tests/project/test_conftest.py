"""The tools that other tests rely on, tested once."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROBE = """
import pytest

@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_text(golden, target):
    golden(f"{target}\\nTEXT", ".cu")
"""
GOLDENS = "golden/cuda/test_emit"


@pytest.fixture
def probe(pytester: pytest.Pytester) -> Path:
    """A small tree with the project's conftest and one test with two goldens."""
    tests = pytester.mkdir("tests")
    (tests / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tests / "cuda").mkdir()
    (tests / "cuda" / "test_emit.py").write_text(PROBE)
    pytester.makeini("[pytest]\nmarkers = gpu: needs a GPU\n")
    return tests


def test_golden_is_missing_then_written_then_compared(pytester: pytest.Pytester, probe: Path) -> None:
    first = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    first.assert_outcomes(failed=2)
    first.stdout.fnmatch_lines(["*test_text-sm_80.cu does not exist; `make golden` writes it:*"])

    pytester.runpytest_subprocess("--update-golden").assert_outcomes(passed=2)
    assert (probe / GOLDENS / "test_text-sm_90a.cu").read_text() == "sm_90a\nTEXT\n"
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


def test_golden_difference_is_a_readable_diff(pytester: pytest.Pytester, probe: Path) -> None:
    pytester.runpytest_subprocess("--update-golden")
    (probe / GOLDENS / "test_text-sm_80.cu").write_text("sm_80\nanother\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*if the change is meant, `make golden` accepts it", "-another", "+TEXT"])


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint32", "bool", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_a_device_gives_back_what_it_was_given(device, dtype):
    values = np.array([0, 1, 0, 2]).astype(getattr(ml_dtypes, dtype, dtype))
    array = device.array(values)
    result = device.numpy(array)
    assert result.dtype == values.dtype
    np.testing.assert_array_equal(result.view(np.uint8), values.view(np.uint8))


def test_a_device_copies(device):
    values = np.arange(4.0)
    array = device.array(values)
    array[0] = 7
    assert values[0] == 0
    assert device.numpy(array)[0] == 7


GRID = """
import pytest

@pytest.mark.parametrize("a", "xyz")
@pytest.mark.parametrize(("b", "c"), [(1, 1), (1, 2), (2, 3)])
def test_grid(a, b, c):
    pass
"""


def test_one_case_per_axis(pytester: pytest.Pytester, probe: Path) -> None:
    """The nine less those in which both axes have later values, of other numbers; not in other folders."""
    for folder in ("kernels", "ir"):
        (probe / folder).mkdir()
        (probe / folder / f"test_{folder}.py").write_text(GRID)
    pytester.makeini("[pytest]\nmarkers = matrix: left out by default")
    found = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-m", "matrix", "--collect-only", "-q", "tests")
    found.stdout.fnmatch_lines(["*kernels*test_grid[[]1-2-z]", "*kernels*test_grid[[]2-3-y]", "2/* tests collected*"])
