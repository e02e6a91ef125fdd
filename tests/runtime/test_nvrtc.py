"""CUDA text to a cubin, without a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import compiler
from weft import language as gl
from weft.errors import CompilationError, DeviceError, PerformanceWarning
from weft.runtime import nvrtc, sass
from weft.runtime.errors import OutOfResources

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")

SOURCE = """
extern "C" __global__ void twice(const float* x, float* y, int n) {
  __shared__ float s[64];
  int i = threadIdx.x;
  s[i] = i < n ? x[i] : 0.f;
  __syncthreads();
  y[i] = s[63 - i] * 2.f + 1.f;
}
"""
SPILLING = """
extern "C" __global__ void spill(float* x) {
  float a[96];
  for (int i = 0; i < 96; ++i) a[i] = x[i * 32 + threadIdx.x];
  __syncthreads();
  for (int r = 0; r < 8; ++r) for (int i = 0; i < 96; ++i) a[i] = a[i] * a[(i + 7) % 96] + a[(i * 5) % 96];
  for (int i = 0; i < 96; ++i) x[i * 32 + threadIdx.x] = a[i];
}
"""


@pytest.fixture(scope="module")
def twice():
    return nvrtc.compile_cuda(SOURCE, name="twice", arch="sm_90a")


def test_a_kernel_compiles(twice):
    assert twice.cubin[:4] == b"\x7fELF"
    assert ".target sm_90a" in twice.ptx
    assert 4 < twice.n_regs < 64
    assert (twice.n_spills, twice.shared) == (0, 256)


def test_products_and_sums_stay_apart(twice):
    text = sass.disassemble(twice.cubin)
    assert "FFMA" not in text


@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_other_architectures(arch):
    assert f".target {arch}" in nvrtc.compile_cuda(SOURCE, name="twice", arch=arch).ptx


def test_a_register_cap_spills():
    free = nvrtc.compile_cuda(SPILLING, name="spill", arch="sm_90a")
    capped = nvrtc.compile_cuda(SPILLING.replace("void", "void __maxnreg__(32)"), name="spill", arch="sm_90a")
    assert capped.n_regs <= 32 < free.n_regs
    assert capped.n_spills > 0 == free.n_spills


def test_debug_keeps_variables():
    assert ".target sm_90a, debug" in nvrtc.compile_cuda(SOURCE, name="twice", arch="sm_90a", debug=True).ptx


def test_an_error_points_at_the_python_line():
    text = f'extern "C" __global__ void bad() {{\n#line 5 "{__file__}"\n  undeclared = 1;\n}}'
    with pytest.raises(CompilationError) as caught:
        nvrtc.compile_cuda(text, name="bad", arch="sm_90a")
    error = caught.value
    assert error.code == "nvrtc-rejected"
    assert (error.loc.file, error.loc.line) == (__file__, 5)
    assert "undeclared" in str(error)


def test_an_unknown_architecture():
    with pytest.raises(DeviceError) as caught:
        nvrtc.compile_cuda(SOURCE, name="twice", arch="sm_999")
    assert caught.value.code == "nvrtc-architecture"


def test_too_much_static_shared_memory():
    text = SOURCE.replace("s[64]", "s[65536]")
    with pytest.raises(OutOfResources) as caught:
        nvrtc.compile_cuda(text, name="twice", arch="sm_90a")
    assert caught.value.code == "compile-shared-memory"


def test_version_names_a_release():
    assert nvrtc.version().split(".")[0].isdigit()


def test_an_empty_text_is_not_written_into_a_byte_string_that_python_shares():
    def write(program: None, buffer: bytes) -> None:
        assert len(buffer) > 1, "strings of one byte are shared by the whole process"

    texts = {nvrtc._text(lambda program, size=size: (0, size), write, None) for size in (0, 1, 2, 100)}
    assert texts == {""}


def test_a_second_compilation_says_as_much_as_the_first():
    first, second = (nvrtc.compile_cuda(SOURCE, name="twice", arch="sm_90a") for _ in range(2))
    assert first.cubin == second.cubin
    assert first.n_regs == second.n_regs > 0


def identity(x):
    return x


@weft.jit
def wrong_ptx(out, n):
    a = n + 1
    b = gl.inline_asm_elementwise("add.s32 $0, $1, 1;", "=r,r", [a], gl.int32, is_pure=True, pack=1)
    c = gl.inline_asm_elementwise("add.s33 $0, $1, 1;", "=r,r", [b], gl.int32, is_pure=True, pack=1, sim=identity)
    gl.store(out, c)


def test_an_error_of_ptxas_is_at_the_line_of_the_inline_ptx():
    compiled = wrong_ptx[1,](np.zeros(1, np.int32), 3)
    with pytest.raises(CompilationError) as caught:
        _ = compiled.asm["ptx"]
    assert caught.value.code == "nvrtc-rejected"
    assert caught.value.loc is not None
    assert "add.s33" in str(caught.value.loc.source)


@weft.jit
def add_one(out, n):
    gl.store(out, n + 1)


def test_a_slow_compilation_is_said_at_the_kernel_s_line(monkeypatch):
    monkeypatch.setattr(compiler, "SLOW_S", 0.0)
    compiled = add_one[1,](np.zeros(1, np.int32), 3)
    with pytest.warns(PerformanceWarning) as caught:
        _ = compiled.asm["ptx"]
    (warning,) = caught
    assert warning.message.code == "nvrtc-slow"
    assert "for add_one, whose CUDA text has" in warning.message.message
    assert warning.filename == __file__
    assert "def add_one" in warning.message.loc.source


def test_a_quick_compilation_says_nothing(recwarn):
    _ = add_one[1,](np.zeros(1, np.int32), 3).asm["ptx"]
    assert not recwarn.list
