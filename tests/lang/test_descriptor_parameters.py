"""Descriptors as parameters of kernels: what they become in the IR, and what the kernel sees of them."""

from __future__ import annotations

import pytest

from weft import language as gl
from weft import targets
from weft.errors import CompilationError
from weft.ir.core import ParamFacts
from weft.ir.types import DescriptorType, ScalarType, float32, int32, int64
from weft.lang import DescriptorParam, RuntimeParam, build_kernel

LAYOUT = gl.NVMMASharedLayout(128, 32, 2)
TYPE = DescriptorType(float32, (32, 64), LAYOUT)
NAMES = ("a", "a.shape_0", "a.shape_1", "a.stride_0", "a.stride_1")


def build(fn, target="sm_90a", **params):
    return build_kernel(fn, params, num_warps=4, target=targets.get(target)).func


def test_what_a_descriptor_becomes():
    def kernel(a, n):
        gl.static_assert(a.dtype == gl.float32)
        gl.static_assert(a.block_shape == [32, 64])
        gl.static_assert(a.layout == gl.NVMMASharedLayout(128, 32, 2))
        gl.static_assert(a.block_type.nbytes == 32 * 64 * 4)
        gl.static_assert(a.type.block_type.element_ty == gl.float32)
        gl.device_print("n", a.shape[1] + n)

    func = build(kernel, a=DescriptorParam(TYPE, NAMES, 4), n=RuntimeParam(int32, 16))
    wide, narrow = ScalarType(int64), ScalarType(int32)
    assert [(p.name, p.type) for p in func.params] == [
        ("a", TYPE), ("a.shape_0", narrow), ("a.shape_1", narrow), ("a.stride_0", wide), ("a.stride_1", wide), ("n", narrow),
    ]  # fmt: skip
    optional = ParamFacts(optional=True)
    assert func.attrs.params == (
        ParamFacts(), optional, optional, ParamFacts(4, optional=True), optional, ParamFacts(16),
    )  # fmt: skip


def test_a_target_without_tma():
    def kernel(n, a):
        gl.device_print("n", n)

    with pytest.raises(CompilationError) as caught:
        build(kernel, "sm_80", n=RuntimeParam(int32), a=DescriptorParam(TYPE, NAMES))
    error = caught.value
    assert error.code == "descriptor-target"
    assert "argument a of kernel" in error.message
    assert "cp.async" in error.fix
    assert "def kernel(n, a):" in str(error)
