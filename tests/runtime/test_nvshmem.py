"""Kernels that call NVSHMEM: compiled without it, linked with the wheel if it is installed, and initialised when loaded."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from weft import language as gl
from weft import settings
from weft.errors import DeviceError
from weft.runtime import driver, nvrtc, nvshmem
from weft.runtime.compiled import CompiledKernel


def why_not() -> str:
    """Why nothing can be linked on this machine; empty if it can."""
    try:
        nvshmem.installed()
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except DeviceError as error:
        return error.message
    except (ImportError, OSError, RuntimeError) as error:
        return str(error).partition("\n")[0]
    return ""


MISSING = why_not()
can_link = pytest.mark.skipif(bool(MISSING), reason=f"needs weft[nvshmem]: {MISSING}")
needs_nvrtc = pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")


@weft.jit
def put_once(x: gl.symmetric):
    other = 1 - x.rank
    gl.put(x, other, x.local, 32, 32)
    gl.signal(x, other)
    gl.wait_signal(x, other)
    gl.quiet(x)


@pytest.fixture(scope="module")
def kernel() -> CompiledKernel:
    """The kernel, compiled for what two simulated ranks pass."""

    def on(rank: int) -> Any:
        return put_once[1](weft.Symmetric(weft.distributed.empty(64, np.float32)))

    with weft.simulate(target="sm_90a"):
        return weft.distributed.simulate(on, nvshmem=True)[0]


@needs_nvrtc
def test_a_kernel_is_compiled_without_it(kernel: CompiledKernel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(nvshmem, "installed", lambda: pytest.fail("looked for NVSHMEM"))
    assert kernel.binary.nvshmem == 1
    assert kernel.binary.waits == 1
    assert "weft_nvshmem_put" in kernel.asm["cuda"]


@needs_nvrtc
@can_link
def test_a_kernel_is_linked(kernel: CompiledKernel):
    code = nvshmem.linked(kernel.binary.cubin, kernel.name, "sm_90a")
    assert len(code) > len(kernel.binary.cubin)
    # What `nvshmemx_cumodule_init` looks for.
    assert b"nvshmemi_device_state_d" in code
    assert b"nvshmemi_device_lib_version_d" in code


@needs_nvrtc
@can_link
def test_a_linked_kernel_is_kept(kernel: CompiledKernel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with settings.using(cache=True, cache_dir=tmp_path):
        first = nvshmem.linked(kernel.binary.cubin, kernel.name, "sm_90a")
        monkeypatch.setattr(nvshmem, "_link", lambda *_: pytest.fail("linked again"))
        assert nvshmem.linked(kernel.binary.cubin, kernel.name, "sm_90a") == first


@needs_nvrtc
@can_link
def test_what_cannot_be_linked():
    made = nvrtc.compile_cuda(
        'extern "C" __device__ void nowhere(); extern "C" __global__ void kernel() { nowhere(); }',
        name="kernel", arch="sm_90a", relocatable=True,
    )  # fmt: skip
    with pytest.raises(DeviceError) as found:
        nvshmem.linked(made.cubin, "kernel", "sm_90a")
    assert found.value.code == "nvshmem-link"
    assert "nowhere" in found.value.message


@needs_nvrtc
def test_headers_that_nvrtc_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    found = nvshmem.Installed(tmp_path, (9, 9, 9), (tmp_path,), False)
    monkeypatch.setattr(nvshmem, "installed", lambda: found)
    with pytest.raises(DeviceError) as error:
        nvshmem.linked(b"kernel", "kernel", "sm_90a")
    assert error.value.code == "nvshmem-link"
    assert "NVSHMEM 9.9.9" in error.value.message
    assert "nvidia-cuda-cccl" in error.value.fix


@pytest.mark.parametrize("part", ["wheel", "library", "headers"])
def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str):
    header, library = tmp_path / "nvshmem/include/nvshmem.h", tmp_path / "nvshmem/lib/libnvshmem_device.a"
    version = tmp_path / "nvshmem/include/non_abi/nvshmem_version.h"
    text = "".join(f"#define NVSHMEM_VENDOR_{name}_VERSION 3\n" for name in ("MAJOR", "MINOR", "PATCH"))
    for path, written in ((header, ""), (library, ""), (version, text)):
        if part != "wheel" and not (part == "library" and path is library):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(written)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    nvshmem.installed.cache_clear()
    with pytest.raises(DeviceError) as found:
        nvshmem.installed()
    nvshmem.installed.cache_clear()
    assert found.value.code == "device-no-nvshmem"
    words = {"wheel": "nvidia-nvshmem-cu13 is not", "library": "libnvshmem_device.a", "headers": "nvidia-cuda-runtime"}
    assert words[part] in found.value.message


class Host:
    """Poses as the host library."""

    def __init__(self, version: tuple[int, int, int] = (3, 4, 5), status: int = 2, answer: int = 0) -> None:
        self.version, self.status, self.answer = version, status, answer
        self.modules: list[int] = []

    def nvshmemx_vendor_get_version_info(self, *numbers: Any) -> None:
        for number, value in zip(numbers, self.version, strict=True):
            ctypes.cast(number, ctypes.POINTER(ctypes.c_int))[0] = value

    def nvshmemx_init_status(self) -> int:
        return self.status

    def nvshmemx_cumodule_init(self, module: ctypes.c_void_p) -> int:
        self.modules.append(module.value or 0)
        return self.answer


def initialised(monkeypatch: pytest.MonkeyPatch, host: Host | None) -> None:
    def load(name: str, mode: int) -> Host:
        if host is None:
            raise OSError(name)
        return host

    monkeypatch.setattr(nvshmem, "installed", lambda: nvshmem.Installed(Path(), (3, 4, 5), (), False))
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(driver, "current_context", lambda device: pytest.MonkeyPatch.context())
    nvshmem.initialise(SimpleNamespace(module=0x1234, device=None), "kernel")  # pyright: ignore[reportArgumentType]


def test_a_module_is_initialised(monkeypatch: pytest.MonkeyPatch):
    host = Host()
    initialised(monkeypatch, host)
    assert host.modules == [0x1234]


@pytest.mark.parametrize(
    ("host", "code", "words"),
    [
        (None, "nvshmem-init", "this process has not loaded libnvshmem_host.so.3"),
        (Host(version=(3, 6, 0)), "nvshmem-version", "is linked with NVSHMEM 3.4.5, and this process runs 3.6.0"),
        (Host(status=1), "nvshmem-init", "nvshmemx_init_status() is 1"),
        (Host(answer=7), "nvshmem-init", "nvshmemx_cumodule_init() answered 7"),
    ],
)
def test_a_module_that_cannot_be_initialised(monkeypatch: pytest.MonkeyPatch, host: Host | None, code: str, words: str):
    with pytest.raises(DeviceError) as found:
        initialised(monkeypatch, host)
    assert found.value.code == code
    assert words in found.value.message
