"""What every test may ask for: golden texts, and one device fixture for both back ends.

def test_text(golden):
    golden(emit(kernel), ".cu")            # tests/golden/<path of the test>/<name of the test>.cu

def test_numbers(device):
    out = device.zeros(1024, np.float32)   # a NumPy array in the simulator, a CUDA tensor under -m gpu
    kernel[8](device.array(x), out)
    np.testing.assert_array_equal(device.numpy(out), x)
"""

from __future__ import annotations

import ctypes
import difflib
import gc
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from weft.settings import using

# Before weft reads the environment, for processes that tests start too: a pass that leaves the IR malformed fails its test.
os.environ.setdefault("WEFT_VERIFY", "1")

# A commit passes or fails always: examples follow from the text of the test, and none is remembered. How many are thrown away,
# and how long they take to make on a busy machine, says nothing about weft.
settings.register_profile(
    "weft", derandomize=True, database=None, deadline=None, max_examples=40,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)  # fmt: skip
# Others in each run, of which a failure prints how to have it again: `make stress`.
settings.register_profile("fresh", settings.get_profile("weft"), derandomize=False, max_examples=100, print_blob=True)
settings.load_profile("weft")

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"
DIFF_LINES = 80
COMPILING = ("cuda", "examples", "kernels", "kernels_lib")
"""Folders whose tests compile kernels, case by case."""
LEFT_OUT = ("gpu", "matrix", "stress", "torch")
"""Markers of what `make test` leaves out."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden texts instead of comparing with them")


@pytest.hookimpl(tryfirst=True)  # before the expression of -m chooses among the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks for PyTorch by its fixture has its marker; a test on a GPU has its own, and asks there."""
    for item in items:
        if "torch" in getattr(item, "fixturenames", ()) and item.get_closest_marker("gpu") is None:
            item.add_marker("torch")
    tests: dict[tuple[Path, str], list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.path.relative_to(TESTS).parts[0] in COMPILING:
            tests.setdefault((item.path, item.originalname), []).append(item)
    for cases in tests.values():
        leave_to_the_matrix(cases)


def leave_to_the_matrix(cases: list[pytest.Function]) -> None:
    """One case per axis: of a test with several `parametrize`, a case has the marker `matrix` if it differs from the first one
    in several of them, and its values do not have the same number in each list of those."""
    tried = [case for case in cases if not any(case.get_closest_marker(name) for name in LEFT_OUT)]
    given = [mark.args[0] for mark in cases[0].iter_markers("parametrize")]
    axes = [names.replace(" ", "").split(",") if isinstance(names, str) else list(names) for names in given]
    if len(axes) < 2 or "golden" in cases[0].fixturenames:
        return
    numbers: list[dict[tuple[int, ...], int]] = [{} for _ in axes]
    for case in tried:
        values = [tuple(id(case.callspec.params[name]) for name in names) for names in axes]
        away = [known.setdefault(value, len(known)) for known, value in zip(numbers, values, strict=True)]
        if len({number for number in away if number}) > 1:
            case.add_marker("matrix")


def pytest_collection_finish() -> None:
    keep_what_stays()


def keep_what_stays() -> None:
    """The collector of garbage need not walk again and again through thousands of tests, and through what files before have
    compiled and kept: a whole walk took 10 s at the end of a run."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Between files of simulated kernels, glibc gives free pages back, of which it would keep hundreds of megabytes."""
    if nextitem is None or nextitem.path == item.path:
        return
    keep_what_stays()
    if item.path.relative_to(TESTS).parts[0] not in COMPILING:
        return
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and (reason := missing_gpu()):
        pytest.skip(reason)


@cache
def missing_gpu() -> str:
    """Why tests on a GPU cannot run here; empty when they can."""
    try:
        import torch
    except ImportError:
        return "needs PyTorch with CUDA (it is not installed)"
    return "" if torch.cuda.is_available() else "needs a GPU (PyTorch sees none)"


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch, or a skip that says how to get it."""
    return pytest.importorskip("torch", reason="needs PyTorch: pip install torch")


@pytest.fixture(scope="session")
def jax() -> ModuleType:
    """JAX, or a skip that says how to get it. `jax[cuda13]` for tests on a GPU."""
    return pytest.importorskip("jax", reason="needs JAX: pip install jax")


# Golden texts


def golden_path(node: pytest.Item, suffix: str, name: str = "") -> Path:
    """`tests/cuda/test_emit.py::test_add[sm_90a]` has its golden at `tests/golden/cuda/test_emit/test_add-sm_90a`."""
    folder = GOLDEN / node.path.relative_to(TESTS).with_suffix("")
    stem = node.name.replace("[", "-").replace("]", "") + (f".{name}" if name else "")
    return folder / (re.sub(r"[^\w.+-]", "_", stem) + suffix)


def difference(expected: str, found: str, path: Path) -> str:
    """A unified diff, cut to a screen or two."""
    lines = list(
        difflib.unified_diff(
            expected.splitlines(), found.splitlines(), f"golden: {path.name}", "found", lineterm="", n=3
        )
    )
    more = len(lines) - DIFF_LINES
    return "\n".join(lines[:DIFF_LINES] + ([f"... {more} more lines of difference"] if more > 0 else []))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare a text with the golden of this test, or rewrite it under --update-golden.

    `golden(text, suffix=".txt", name="")`; a `name` tells several goldens of one test apart. The checkout's own path is
    replaced by `<root>`, so that texts with file names in them are the same everywhere.
    """
    update = request.config.getoption("--update-golden")

    def compare(text: str, suffix: str = ".txt", name: str = "") -> None:
        path = golden_path(request.node, suffix, name)
        found = text.replace(str(TESTS.parent), "<root>").rstrip("\n") + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(found, encoding="utf-8")
            return
        shown = path.relative_to(TESTS.parent)
        if not path.exists():
            pytest.fail(f"{shown} does not exist; `make golden` writes it:\n{found}", pytrace=False)
        expected = path.read_text(encoding="utf-8")
        if expected != found:
            message = f"{shown} differs; if the change is meant, `make golden` accepts it\n"
            pytest.fail(message + difference(expected, found, path), pytrace=False)

    return compare


# Devices


@dataclass(frozen=True)
class Device:
    """A back end under test: arrays of its own kind, made from NumPy's and read back as NumPy's."""

    name: str

    @property
    def is_gpu(self) -> bool:
        return self.name == "gpu"

    def array(self, values: Any, dtype: Any = None) -> Any:
        """A fresh array of this device with these values; ml_dtypes' types become PyTorch's of the same bits."""
        host = np.array(values, dtype=dtype, copy=True)
        return _to_torch(host) if self.is_gpu else host

    def zeros(self, shape: int | tuple[int, ...], dtype: Any = np.float32) -> Any:
        return self.array(np.zeros(shape, dtype))

    def full(self, shape: int | tuple[int, ...], value: Any, dtype: Any = np.float32) -> Any:
        return self.array(np.full(shape, value, dtype))

    def numpy(self, array: Any) -> np.ndarray:
        """The array's values, once all kernels have finished."""
        return _to_numpy(array) if self.is_gpu else np.asarray(array)


ML_DTYPES = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2"})


def _to_torch(host: np.ndarray) -> Any:
    import torch

    if host.dtype.name not in ML_DTYPES:
        return torch.from_numpy(host).cuda()
    bits = torch.from_numpy(host.view(f"i{host.itemsize}"))
    return bits.view(getattr(torch, host.dtype.name)).cuda()


def _to_numpy(tensor: Any) -> np.ndarray:
    import ml_dtypes
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    host = tensor.detach().cpu()
    if name not in ML_DTYPES:
        return host.numpy()
    bits = host.view(torch.int8 if host.element_size() == 1 else torch.int16).numpy()
    return bits.view(getattr(ml_dtypes, name))


@pytest.fixture(params=["sim", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """The simulator, and under `-m gpu` the GPU: one numerical test serves both."""
    return Device(request.param)


@pytest.fixture
def blackwell(device: Device) -> Iterator[None]:
    """The test is for Blackwell: the simulator is one, a GPU of another generation is left out."""
    if not device.is_gpu:
        with using(target="sm_100a"):
            yield
        return
    import torch

    major, minor = torch.cuda.get_device_capability()
    if major != 10:
        pytest.skip(f"needs a Blackwell GPU (sm_100a), this one is sm_{major}{minor}")
    yield
