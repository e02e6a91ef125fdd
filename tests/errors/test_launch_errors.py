"""One test for each mistake in a launch, and for each thing a machine may lack."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from tests.runtime import fake_driver
from tests.runtime.fake_driver import CUresult, FakeArray, FakeTensor
from weft.errors import CompilationError, DeviceError, LaunchError, UserError
from weft.kernel import jit
from weft.runtime import driver, nvrtc
from weft.runtime.errors import OutOfResources
from weft.runtime.specialise import MockTensor

gl = SimpleNamespace(constexpr=type("constexpr", (), {}))
X, Y = FakeTensor(0x1000), FakeTensor(0x2000)
HOST = np.zeros(8, np.float32)


@jit
def scale(x, y, n, BLOCK: gl.constexpr = 64):
    pass


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_driver.FakeCuda]:
    fake_driver.install_compiler(monkeypatch)
    scale.forget()
    yield fake_driver.install_driver(monkeypatch, devices=2)
    fake_driver.forget_devices()


def caught(launch, kind: type[UserError] = LaunchError) -> UserError:
    with pytest.raises(kind) as info:
        launch()
    error = info.value
    assert error.fix, "says what to write instead"
    return error


def code(launch, kind: type[UserError] = LaunchError) -> str:
    return caught(launch, kind).code


def positional_only(x, /):
    pass


# Calling


def test_calling_a_kernel_like_a_function():
    error = caught(lambda: scale(X, Y, 8))
    assert error.code == "launch-host-call"
    assert "scale[grid](...)" in error.fix


@pytest.mark.parametrize("fn", [lambda *xs: None, lambda **xs: None, lambda *, x: None, positional_only])
def test_parameters_that_are_no_fixed_list(fn):
    assert code(lambda: jit(fn)[1](X)) == "launch-signature"


def test_a_parameter_named_stream():
    assert code(lambda: jit(lambda x, stream: None)[1](X, 1)) == "launch-reserved-parameter"


def test_missing_arguments():
    error = caught(lambda: scale[1](X, n=8))
    assert error.code == "launch-missing-argument"
    assert "without y" in error.message
    assert code(lambda: scale.warmup(X)) == "launch-missing-argument"


def test_too_many_arguments():
    error = caught(lambda: scale[1](X, Y, 8, 64, 9, 10))
    assert error.code == "launch-too-many-arguments"
    assert "6 positional" in error.message
    assert code(lambda: scale.warmup(X, Y, 8, 64, 9)) == "launch-too-many-arguments"


def test_an_argument_given_twice():
    error = caught(lambda: scale[1](X, Y, 8, n=9))
    assert error.code == "launch-duplicate-argument"
    assert "got n twice" in error.message
    assert code(lambda: scale.warmup(X, Y, 8, n=9)) == "launch-duplicate-argument"


def test_an_unknown_keyword():
    error = caught(lambda: scale[1](X, Y, 8, BLOK=64))
    assert error.code == "launch-unknown-keyword"
    assert "did you mean BLOCK?" in error.message
    assert "num_warps" in error.fix
    assert code(lambda: scale.warmup(X, Y, 8, num_stages=3)) == "launch-unknown-keyword"


def test_binding_errors_come_after_a_good_launch_too():
    scale[1](X, Y, 8)
    assert code(lambda: scale[1](X, Y)) == "launch-missing-argument"
    assert code(lambda: scale[1](X, Y, 8, warps=4)) == "launch-unknown-keyword"


# Grid


@pytest.mark.parametrize("grid", [1.5, "4", (), (1, 2, 3, 4), (1, None), lambda bound: "x"])
def test_what_is_no_grid(grid):
    assert code(lambda: scale[grid](X, Y, 8)) == "launch-grid-kind"


@pytest.mark.parametrize("grid", [0, (4, 0), (1, 1, -1), lambda bound: (bound["n"] - 8,)])
def test_an_empty_grid(grid):
    assert code(lambda: scale[grid](X, Y, 8)) == "launch-grid-empty"


@pytest.mark.parametrize(("grid", "dim"), [(2**31, 0), ((1, 65536), 1), ((1, 1, 65536), 2)])
def test_a_grid_beyond_limits(grid, dim):
    error = caught(lambda: scale[grid](X, Y, 8))
    assert error.code == "launch-grid-limit"
    assert f"dimension {dim}" in error.message


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"num_warps": 3},
        {"num_warps": 64},
        {"num_warps": "4"},
        {"num_ctas": 0},
        {"num_ctas": 3},
        {"num_ctas": 32},
        {"maxnreg": 8},
        {"maxnreg": "x"},
    ],
)
def test_option_values(options):
    error = caught(lambda: scale[1](X, Y, 8, **options))
    assert error.code == "launch-option-value"
    assert next(iter(options)) in error.message


def test_a_sync_mode_that_is_none():
    assert code(lambda: jit(sync="manual")(lambda x: None)) == "launch-option-value"


def test_clusters_are_refused_where_the_target_has_none():
    error = caught(lambda: scale.warmup(X, Y, 8, num_ctas=2, target="sm_80"))
    assert error.code == "launch-clusters"
    assert "sm_80 has clusters of at most 1" in error.message


def test_what_is_no_stream():
    assert code(lambda: scale[1](X, Y, 8, stream="default")) == "launch-stream"


# Arguments


@pytest.mark.parametrize("value", [object(), "text", 1j, {"a": 1}, [1, 2], print, np.float32])
def test_what_a_kernel_cannot_take(value):
    error = caught(lambda: scale[1](X, Y, value))
    assert error.code == "launch-argument-kind"
    assert "n: gl.constexpr" in error.fix


def test_an_integer_beyond_64_bits():
    assert code(lambda: scale[1](X, Y, 2**64)) == "launch-argument-range"
    assert code(lambda: scale[1](X, Y, -(2**63) - 1)) == "launch-argument-range"


def test_a_float_beyond_fp32():
    scale[1](X, Y, 1.0)
    error = caught(lambda: scale[1](X, Y, 1e300))
    assert error.code == "launch-argument-range"
    assert "n=1e+300" in error.message
    assert "float32" in error.message


@pytest.mark.parametrize("value", [FakeArray(0, "<c8"), np.zeros(2, complex), np.zeros(2, object)])
def test_an_array_of_an_unsupported_dtype(value):
    assert code(lambda: scale[1](value, value, 8)) == "launch-array-dtype"


def test_an_array_on_a_device_of_another_kind():
    value = FakeTensor(64)
    value.device.type = "mps"
    assert code(lambda: scale[1](value, Y, 8)) == "launch-array-device"


def test_arrays_on_different_devices():
    error = caught(lambda: scale[1](X, FakeTensor(64, device=1), 8))
    assert error.code == "launch-device-mismatch"
    assert "x is on cuda:0, y is on cuda:1" in error.message


@pytest.mark.parametrize("arguments", [(X, HOST, 8), (HOST, FakeArray(64), 8)])
def test_an_ambiguous_launch(arguments):
    assert code(lambda: scale[1](*arguments)) == "launch-ambiguous"


def test_a_constexpr_that_cannot_be_compared():
    assert code(lambda: scale[1](X, Y, 8, {"a": 1})) == "launch-constexpr-kind"
    assert code(lambda: scale[1](X, Y, 8, BLOCK=np.zeros(2))) == "launch-constexpr-kind"


def test_launching_with_stand_ins():
    assert code(lambda: scale[1](MockTensor("fp32"), Y, 8)) == "launch-mock-argument"


def test_a_type_text_that_names_nothing():
    assert code(lambda: scale.warmup("*float", "*fp32", "i32")) == "launch-type-text"


def test_a_target_that_weft_has_not():
    assert code(lambda: scale.warmup("*fp32", "*fp32", "i32", target="sm_75")) == "target-unknown"


# Resources


def test_too_much_dynamic_shared_memory(monkeypatch):
    fake_driver.install_compiler(monkeypatch).dynamic_shared = 300_000
    assert code(lambda: scale[1](X, Y, 8), OutOfResources) == "launch-shared-memory"


def test_too_many_registers_to_start(machine):
    machine.results = [CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    error = caught(lambda: scale[1](X, Y, 8, num_warps=32), OutOfResources)
    assert error.code == "launch-registers"
    assert "1024 threads of 32 registers" in error.message


# Machine


def test_a_kernel_for_another_architecture(machine):
    machine.load_result = CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU
    error = caught(lambda: scale[1](X, Y, 8), DeviceError)
    assert error.code == "device-wrong-architecture"
    assert "Fake H200 (sm_90)" in error.message


def test_a_failure_of_the_driver(machine):
    machine.results = [CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    error = caught(lambda: scale[1](X, Y, 8), DeviceError)
    assert error.code == "device-driver-error"
    assert "CUDA_ERROR_ILLEGAL_ADDRESS (as the fake driver says)" in error.message


@pytest.fixture
def real_driver(monkeypatch):
    """The driver module as it is, over a `cuda.bindings` that the test supplies."""
    monkeypatch.undo()
    driver.bindings.cache_clear()
    yield monkeypatch
    driver.bindings.cache_clear()


def put_cuda(monkeypatch, **names):
    fake = SimpleNamespace(**names)
    monkeypatch.setattr("cuda.bindings.driver", fake, raising=False)
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings.driver", fake)


def test_no_driver(real_driver):
    def missing(flags):
        raise RuntimeError("Failure finding libcuda.so\nand more")

    put_cuda(real_driver, cuInit=missing)
    error = caught(driver.bindings, DeviceError)
    assert error.code == "device-no-driver"
    assert "simulator" in error.fix
    assert "more" not in error.message


def test_a_driver_without_a_gpu(real_driver):
    texts = {"cuGetErrorName": lambda s: (0, b"CUDA_ERROR_NO_DEVICE"), "cuGetErrorString": lambda s: (0, b"no GPU")}
    put_cuda(real_driver, cuInit=lambda flags: (100,), **texts)
    assert code(driver.bindings, DeviceError) == "device-none"


def test_no_nvrtc(monkeypatch):
    nvrtc._library.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings", None)
    assert code(lambda: nvrtc.compile_cuda("", name="k", arch="sm_90a"), DeviceError) == "device-no-nvrtc"
    assert not nvrtc.available()
    nvrtc._library.cache_clear()


def test_nvrtc_rejecting_the_text():
    if not nvrtc.available():
        pytest.skip("needs NVRTC (pip install nvidia-cuda-nvrtc)")
    assert code(lambda: nvrtc.compile_cuda("what?", name="k", arch="sm_90a"), CompilationError) == "nvrtc-rejected"
