"""`import weft` is quick and starts nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import weft


def python(code: str) -> str:
    """Run code in a fresh interpreter and give back what it printed."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_loads_one_file():
    """Everything else comes when it is first asked for; what that saves is timed in `benchmarks/front.py`."""
    code = "import sys, weft; print(*sorted(name for name in sys.modules if name.partition('.')[0] == 'weft'))"
    assert python(code).split() == ["weft"]


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


def test_names_that_are_loaded_on_first_use_are_not_those_of_modules():
    """The import of a module would put it in the place of what has its name."""
    modules = {path.stem for path in Path(weft.__file__).parent.iterdir()}
    assert modules.isdisjoint(weft._HOMES)  # pyright: ignore[reportPrivateUsage]
