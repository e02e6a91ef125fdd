"""Bad launches, machines that lack something, and caches that others write or damage, each the whole way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from tests.errors.users import LINE, copy, shown, zeros
from weft import settings
from weft.errors import DeviceError, LaunchError
from weft.runtime import driver, fingerprint, nvrtc

ROOT = Path(weft.__file__).parents[1]
needs_nvrtc = pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path):
    """A cache directory of its own for each test."""
    with settings.using(cache_dir=tmp_path / "cache"):
        yield


# Launches


@pytest.mark.parametrize("dtype", ["complex64", ">f4", "datetime64[s]", "O"])
def test_an_array_of_an_unsupported_dtype(dtype):
    text = shown(lambda: copy[1](np.zeros(128, dtype), zeros(), 128, LINE), "launch-array-dtype", kind=LaunchError)
    assert "float32" in text


def test_a_tensor_on_a_device_that_no_kernel_reaches(torch):
    text = shown(lambda: copy[1](torch.zeros(128, device="meta"), zeros(), 128, LINE), "launch-array-device")
    assert "device meta" in text


class OnGpu:
    """An array that says it lies on a GPU."""

    dtype = np.dtype(np.float32)
    device = SimpleNamespace(id=0)

    @property
    def __cuda_array_interface__(self):
        return {"data": (4096, False), "shape": (512,), "typestr": "<f4", "version": 3}


def test_an_ambiguous_launch():
    text = shown(lambda: copy[1](OnGpu(), zeros(), 128, LINE), "launch-ambiguous", kind=LaunchError)
    assert "on the GPU (src) and in host memory (dst)" in text


@pytest.mark.parametrize(
    ("grid", "options", "code"),
    [
        (0, {}, "launch-grid-empty"),
        ((4, 0), {}, "launch-grid-empty"),
        ((1, 65536), {}, "launch-grid-limit"),
        (2**31, {}, "launch-grid-limit"),
        (2**21, {"block": 1024}, "launch-grid-threads"),
        (1, {"num_ctas": 3}, "launch-option-value"),
    ],
)
def test_launches_that_cannot_be(grid, options, code):
    shown(lambda: copy[grid](zeros(), zeros(), 128, LINE, **options), code, kind=LaunchError)


# The machine


@pytest.fixture
def without_cuda(monkeypatch):
    """A machine without `cuda.bindings`, where nothing that was learnt from them is remembered."""
    learnt = (
        driver.bindings, driver.available, driver.device_count, driver.device, nvrtc._library, nvrtc.version,
        fingerprint.toolchain,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setattr(nvrtc, "_DISTRIBUTIONS", ())
    for function in learnt:
        function.cache_clear()
    yield
    for function in learnt:
        function.cache_clear()


def test_no_driver(without_cuda):
    text = shown(lambda: copy[1](OnGpu(), OnGpu(), 128, LINE), "device-no-driver", kind=DeviceError)
    assert "NumPy arrays or CPU tensors to run in the simulator" in text


def test_no_nvrtc_leaves_the_simulator(without_cuda):
    out = zeros()
    copy.forget()
    compiled = copy[1](np.arange(512, dtype=np.float32), out, 128, LINE)
    assert out[:128].tolist() == list(range(128))
    text = shown(lambda: compiled.asm["ptx"], "device-no-nvrtc", kind=DeviceError)
    assert "pip install nvidia-cuda-nvrtc" in text


@needs_nvrtc
def test_an_architecture_that_nvrtc_does_not_know():
    compile_for = lambda: nvrtc.compile_cuda("", name="kernel", arch="sm_1")  # noqa: E731
    assert "sm_1" in shown(compile_for, "nvrtc-architecture", kind=DeviceError)


def test_an_architecture_that_weft_does_not_know():
    text = shown(lambda: copy.warmup("*fp32", "*fp32", 128, LINE, target="sm_75"), "target-unknown", kind=LaunchError)
    assert "sm_90a" in text


# The cache


PROGRAM = """
import numpy as np, weft
from weft import language as gl

@weft.jit
def kernel(out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    gl.store(out + gl.arange(0, N, layout), 1.0)

if __name__ == "__main__":
    import hashlib
    compiled = kernel.warmup("*fp32", 256, target="sm_90a")
    print(hashlib.sha256(compiled.binary.cubin).hexdigest(), "ir" in compiled.asm)
"""


def start(tmp_path: Path) -> subprocess.Popen[str]:
    program = tmp_path / "program.py"
    if not program.exists():
        program.write_text(PROGRAM)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "shared"), "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, str(program)], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def results(processes: list[subprocess.Popen[str]]) -> list[str]:
    ended = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), ended
    assert not any(errors for _, errors in ended), ended
    return [output for output, _ in ended]


DAMAGES = (lambda data: data[: len(data) // 2], lambda data: b"", lambda data: data[:-1] + b"?")


@needs_nvrtc
def test_four_processes_compile_one_kernel_at_once(tmp_path):
    found = results([start(tmp_path) for _ in range(4)])
    assert len(set(found)) == 1
    left = [path.suffix for path in (tmp_path / "shared").glob("??/*")]
    assert sorted(left) == [".entry", ".entry"]  # the cubin, and the list of what the kernel reads


@needs_nvrtc
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_half_written_cache_entry_is_compiled_again(tmp_path, damage):
    with settings.using(cache_dir=tmp_path):
        copy.forget()
        first = copy.warmup("*fp32", "*fp32", 256, LINE, target="sm_90a").binary
        files = {path: path.read_bytes() for path in tmp_path.glob("??/*.entry")}
        assert len(files) == 2
        for path, data in files.items():
            path.write_bytes(damage(data))
        copy.forget()
        assert copy.warmup("*fp32", "*fp32", 256, LINE, target="sm_90a").binary == first
        assert {path: path.read_bytes() for path in tmp_path.glob("??/*.entry")} == files
