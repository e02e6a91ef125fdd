"""Bad input as a user meets it: a kernel of this file, launched, and the report read.

The families have their own files with every row; here each kind of mistake goes the whole way once, from the author's line
to the text that is shown.
"""

# ruff: noqa: F841 (kernels under test are wrong on purpose)

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import language as gl
from weft import settings
from weft.errors import CompilationError, DeviceError, ErrorGroup, LaunchError, LayoutError, UserError, hazard
from weft.runtime import driver, fingerprint, nvrtc

LINE = gl.BlockedLayout([1], [32], [4], [0])
PAIRS = gl.BlockedLayout([2], [32], [4], [0])
MATRIX = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
ROOT = Path(weft.__file__).parents[1]
needs_nvrtc = pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")


def zeros(count: int = 512, dtype: type = np.float32) -> np.ndarray:
    return np.zeros(count, dtype)


@weft.jit
def copy(src, dst, N: gl.constexpr, layout: gl.constexpr):
    offsets = gl.arange(0, N, layout)
    gl.store(dst + offsets, gl.load(src + offsets))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path):
    """A cache directory of its own for each test."""
    with settings.using(cache_dir=tmp_path / "cache"):
        yield


def shown(launch, code: str, line: str = "", kind: type[UserError] = UserError) -> str:
    """What the user reads of a mistake, which must have this code, point into this line, and say what to write."""
    with pytest.raises(kind) as caught:
        launch()
    error = caught.value
    assert error.code == code, str(error)
    assert error.fix
    text = str(error)
    if line:
        assert error.loc is not None
        assert error.loc.file == __file__
        assert error.loc.source.strip() == line
        assert f"\n      {line}\n" in text
        assert "^" in text
    return text


# Layouts and shapes


def test_a_layout_that_does_not_fit_the_warp():
    @weft.jit
    def kernel(out):
        layout: gl.constexpr = gl.BlockedLayout([1], [16], [4], [0])
        gl.store(out + gl.arange(0, 64, layout), 1.0)

    line = "layout: gl.constexpr = gl.BlockedLayout([1], [16], [4], [0])"
    text = shown(lambda: kernel[1](zeros()), "layout-warp-size", line, LayoutError)
    assert "threads_per_warp [16] multiplies to 16, but a warp has 32 threads" in text


def test_a_layout_that_does_not_fit_num_warps():
    line = "offsets = gl.arange(0, N, layout)"
    text = shown(lambda: copy[1](zeros(), zeros(), 128, LINE, num_warps=8), "layout-num-warps", line, LayoutError)
    assert "4 warps, but the kernel runs with num_warps=8" in text
    assert "launch with num_warps=4" in text


def test_an_order_that_is_no_permutation():
    text = shown(lambda: gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 1]), "layout-order", kind=LayoutError)
    assert "order [1, 1]" in text


def test_a_shape_that_is_no_power_of_two():
    line = "offsets = gl.arange(0, N, layout)"
    text = shown(lambda: copy[1](zeros(), zeros(), 100, LINE), "tile-arange", line)
    assert "100 elements" in text


def test_ranks_that_differ():
    @weft.jit
    def kernel(out):
        column = gl.arange(0, 64, gl.SliceLayout(1, MATRIX))
        total = gl.zeros([64, 32], gl.int32, MATRIX) + column

    line = "total = gl.zeros([64, 32], gl.int32, MATRIX) + column"
    text = shown(lambda: kernel[1](zeros()), "tile-rank-mismatch", line, LayoutError)
    assert "an int32 tile [64, 32]" in text
    assert "'column' (an int32 tile [64])" in text
    assert "x[:, None]" in text


def test_shapes_that_differ():
    @weft.jit
    def kernel(out):
        total = gl.zeros([64], gl.float32, LINE) + gl.zeros([128], gl.float32, LINE)

    line = "total = gl.zeros([64], gl.float32, LINE) + gl.zeros([128], gl.float32, LINE)"
    text = shown(lambda: kernel[1](zeros()), "tile-shape-mismatch", line, LayoutError)
    assert "dimension 0 is 64 in one and 128 in the other" in text


def test_two_layouts_in_one_operation_inside_a_helper():
    @weft.jit
    def add(a, b):
        return a + b

    @weft.jit
    def kernel(out):
        wide = gl.load(out + gl.arange(0, 512, PAIRS))
        add(gl.zeros([512], gl.float32, LINE), wide)

    text = shown(lambda: kernel[1](zeros()), "tile-layout-mismatch", "return a + b", LayoutError)
    assert repr(LINE) in text
    assert repr(PAIRS) in text
    assert f"write gl.convert_layout(wide, {LINE!r}) (cost: 2 KiB through shared memory" in text
    assert f"called from {__file__}:" in text


def test_two_layouts_of_values_without_a_name():
    @weft.jit
    def kernel(x):
        gl.store(x + gl.arange(0, 512, PAIRS), gl.zeros([512], gl.float32, LINE))

    text = shown(lambda: kernel[1](zeros()), "tile-layout-mismatch")
    assert f"write gl.convert_layout(value, {PAIRS!r})" in text


def test_a_conversion_that_is_not_trivial():
    @weft.jit
    def kernel(out):
        value = gl.convert_layout(gl.zeros([512], gl.float32, LINE), PAIRS, assert_trivial=True)

    line = "value = gl.convert_layout(gl.zeros([512], gl.float32, LINE), PAIRS, assert_trivial=True)"
    text = shown(lambda: kernel[1](zeros()), "tile-not-trivial", line, LayoutError)
    assert "is not free (cost: 2 KiB through shared memory" in text


# Control flow and Python


@weft.aggregate
class Pair:
    acc: gl.tensor
    rounds: gl.constexpr


def both_lines(text: str, before: str, after: str) -> None:
    assert text.index(after) < text.index("before the loop:") < text.index(before)


def test_a_layout_that_changes_in_a_loop():
    @weft.jit
    def kernel(out, n):
        pair = Pair(gl.zeros([512], gl.float32, LINE), 3)
        for _ in range(n):
            pair = Pair(gl.convert_layout(pair.acc, PAIRS), 3)

    line = "pair = Pair(gl.convert_layout(pair.acc, PAIRS), 3)"
    text = shown(lambda: kernel[1](zeros(), 4), "lang-carried", line, CompilationError)
    assert f"pair.acc is a float32 tile [512] in {LINE!r} before the loop" in text
    assert f"gl.convert_layout(pair.acc, {LINE!r})" in text
    both_lines(text, "pair = Pair(gl.zeros([512], gl.float32, LINE), 3)", line)


def test_a_type_that_changes_in_a_loop():
    @weft.jit
    def kernel(out, n):
        acc = gl.load(out)
        for _ in range(n):
            acc = acc.to(gl.float64) + 1

    text = shown(lambda: kernel[1](zeros(), 4), "lang-carried", "acc = acc.to(gl.float64) + 1", CompilationError)
    assert "acc is a float32 scalar before the loop" in text
    both_lines(text, "acc = gl.load(out)", "acc = acc.to(gl.float64) + 1")


def test_a_constexpr_field_that_changes_in_a_loop():
    @weft.jit
    def kernel(out, n):
        pair = Pair(gl.zeros([512], gl.float32, LINE), 3)
        for _ in range(n):
            pair = Pair(pair.acc, pair.rounds + 1)

    line = "pair = Pair(pair.acc, pair.rounds + 1)"
    text = shown(lambda: kernel[1](zeros(), 4), "lang-carried", line, CompilationError)
    assert "pair.rounds is 3 before the loop" in text
    assert "but 4 at the end of its body" in text
    both_lines(text, "pair = Pair(gl.zeros([512], gl.float32, LINE), 3)", line)


def test_unsupported_python():
    @weft.jit
    def kernel(out):
        table = {"a": 1}

    text = shown(lambda: kernel[1](zeros()), "lang-unsupported", 'table = {"a": 1}', CompilationError)
    assert "a dictionary is not supported" in text
    assert "use separate variables" in text


def test_several_mistakes_are_reported_together():
    @weft.jit
    def kernel(out, n):
        out.fill(0)
        gl.store(out, lenght)  # noqa: F821

    with pytest.raises(ErrorGroup) as caught:
        kernel[1](zeros(), 4)
    assert [error.code for error in caught.value.errors] == ["lang-attribute", "lang-undefined-name"]


def test_a_constexpr_that_is_not_one():
    @weft.jit
    def kernel(out, n):
        gl.store(out + gl.arange(0, n, LINE), 1.0)

    line = "gl.store(out + gl.arange(0, n, LINE), 1.0)"
    text = shown(lambda: kernel[1](zeros(), 128), "language-constexpr-needed", line, CompilationError)
    assert "gl.constexpr parameter" in text


def test_an_unknown_keyword():
    @weft.jit
    def kernel(out):
        gl.load(out, maks=True)

    text = shown(lambda: kernel[1](zeros()), "lang-call-arguments", "gl.load(out, maks=True)", CompilationError)
    assert "mask=None" in text
    text = shown(lambda: copy[1](zeros(), zeros(), 128, LINE, num_warp=4), "launch-unknown-keyword", kind=LaunchError)
    assert "did you mean num_warps?" in text


def test_numpy_in_a_kernel():
    @weft.jit
    def kernel(out):
        gl.store(out, np.exp(gl.load(out)))

    line = "gl.store(out, np.exp(gl.load(out)))"
    assert "use gl.exp" in shown(lambda: kernel[1](zeros()), "lang-host-function", line, CompilationError)


def test_a_function_of_the_language_called_as_a_method():
    @weft.jit
    def kernel(out):
        gl.store(out, gl.load(out).sqrt())

    line = "gl.store(out, gl.load(out).sqrt())"
    assert "did you mean gl.sqrt(...)?" in shown(lambda: kernel[1](zeros()), "lang-attribute", line, CompilationError)


def test_a_promise_of_contiguity_that_does_not_hold():
    @weft.jit
    def kernel(src, dst, stride):
        offsets = gl.max_contiguous(gl.arange(0, 128, LINE) * stride, 128)
        gl.store(dst + gl.arange(0, 128, LINE), gl.load(src + offsets))

    line = "offsets = gl.max_contiguous(gl.arange(0, 128, LINE) * stride, 128)"
    text = shown(lambda: kernel[1](zeros(), zeros(), 2), "hazard-hint", line, hazard.BrokenPromise)
    assert "the element at index 1 is 2" in text


def test_a_kernel_without_source_says_where_it_looked():
    space = {"weft": weft, "gl": gl}
    exec("@weft.jit\ndef kernel(out):\n    gl.store(out, 1.0)\n", space)  # noqa: S102
    text = shown(lambda: space["kernel"][1](zeros()), "lang-no-source", kind=CompilationError)
    assert "the source of kernel cannot be read from <string>" in text
    assert "put the kernel into a file" in text


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
    __cuda_array_interface__ = {"data": (4096, False), "shape": (512,), "typestr": "<f4", "version": 3}

    class device:  # noqa: N801
        id = 0


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
        (1, {"num_ctas": 2}, "launch-clusters"),
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
    copy._forget()
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


@needs_nvrtc
def test_eight_processes_compile_one_kernel_at_once(tmp_path):
    found = results([start(tmp_path) for _ in range(8)])
    assert len(set(found)) == 1
    left = [path.suffix for path in (tmp_path / "shared").glob("??/*")]
    assert sorted(left) == [".entry", ".entry"]  # the cubin, and the list of what the kernel reads


@needs_nvrtc
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: data[:-1] + b"?"])
def test_a_damaged_or_half_written_cache_entry_is_compiled_again(tmp_path, damage):
    with settings.using(cache_dir=tmp_path):
        copy._forget()
        first = copy.warmup("*fp32", "*fp32", 256, LINE, target="sm_90a").binary
        files = {path: path.read_bytes() for path in tmp_path.glob("??/*.entry")}
        assert len(files) == 2
        for path, data in files.items():
            path.write_bytes(damage(data))
        copy._forget()
        assert copy.warmup("*fp32", "*fp32", 256, LINE, target="sm_90a").binary == first
        assert {path: path.read_bytes() for path in tmp_path.glob("??/*.entry")} == files
