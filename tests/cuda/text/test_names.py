"""Names keep to the author's as far as C lets them."""

from __future__ import annotations

import keyword
import re
import runpy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cuda.build import Kernel
from weft import targets
from weft.cuda import emit
from weft.cuda.text.names import BUILTINS, KEYWORDS, Names
from weft.runtime.nvrtc import compile_cuda


@given(st.lists(st.text(max_size=8), max_size=20))
def test_legal_and_unique(wanted):
    names = Names(frozenset())
    given_out = [names.fresh(name) for name in wanted]
    assert len(set(given_out)) == len(given_out)
    for name in given_out:
        assert re.fullmatch(r"[A-Za-z]\w*", name, flags=re.ASCII)
        assert "__" not in name
        assert name not in KEYWORDS | BUILTINS


def test_they_stay_close():
    names = Names(frozenset({"shl"}))
    assert [names.fresh(n) for n in ("x", "x", "x", "")] == ["x", "x_1", "x_2", "t"]
    assert names.fresh("int") == "int_1"
    assert names.fresh("shl") == "shl_1"
    assert names.fresh("r") == "r_1"
    assert names.fresh("mma.acc") == "mma_acc"
    assert names.fresh("load_f32x4") == "my_load_f32x4"


MACROS = ("NULL", "assert", "va_arg", "NV_IS_DEVICE", "NV_PROVIDES_SM_90", "CUDART_VERSION", "CUDARTAPI")
TYPES = ("dim3", "size_t", "float4", "uint32_t", "_Bool")
TAKEN = (*MACROS, *TYPES, "threadIdx", "warpSize", "INT_MAX", "printf", "größe", "名前")


@pytest.mark.parametrize("name", MACROS)
def test_no_name_is_a_macro(name):
    assert Names(frozenset()).fresh(name) == f"my_{name}"


def test_parameters_variables_and_helpers_may_have_any_name(tmp_path):
    """All of the names at once, in a text that NVRTC takes."""
    names = [name for name in TAKEN if not keyword.iskeyword(name)]
    lines = ["import weft", "import weft.language as gl", ""]
    for name in names:
        lines += ["@weft.jit", f"def {name}({name}, n):", f"    return {name} * n + 1", ""]
    lines += ["@weft.jit", f"def kernel(out, {', '.join(f'p_{n}' for n in names)}):", "    s = 0"]
    lines += [f"    s = s + {name}(p_{name}, s)" for name in names] + ["    gl.store(out, s)", ""]
    lines += ["@weft.jit", f"def parameters(out, {', '.join(names)}):"]
    lines += [f"    for {name}_1 in range({name}):\n        {name} = {name} * {name}_1 + 3" for name in names]
    lines += [f"    gl.store(out, {' + '.join(names)})", ""]
    path = tmp_path / "names_of_c.py"
    path.write_text("\n".join(lines), encoding="utf-8")
    module = runpy.run_path(str(path))
    for kernel in (module["kernel"], module["parameters"]):
        compiled = kernel[1,](np.zeros(1, np.int32), *[2 + n for n in range(len(names))])
        assert compiled.asm["ptx"]


RESERVED = [
    "exp",
    "max",
    "main",
    "NULL",
    "dim3",
    "size_t",
    "a__b",
    "u32",
    "shared_memory",
    "scratch",
    "größe",
    "名前",
    "_Bool",
    "int",
]


@pytest.mark.parametrize("name", RESERVED)
def test_a_kernel_may_have_any_name(name):
    """Its symbol is another where CUDA C++ or the text has the name for itself; NVRTC takes the text."""
    text = emit(Kernel(name=name).done(), targets.get("sm_90a"))
    (symbol,) = re.findall(r"^(\w+)\(\) \{$", text, re.MULTILINE)
    assert symbol != name and symbol.isascii() and symbol.endswith("_kernel")
    assert f".entry {symbol}(" in compile_cuda(text, name=name, arch="sm_90a").ptx


def test_other_kernels_keep_their_names():
    for name in ("add_rows", "_add", "Gemm2"):
        assert f"\n{name}() {{" in emit(Kernel(name=name).done(), targets.get("sm_90a"))
