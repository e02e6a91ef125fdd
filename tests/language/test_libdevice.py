"""Functions of CUDA's device library: the types that they take, give and refuse."""

from __future__ import annotations

import pytest

from tests.language.support import mistake
from weft import language as gl
from weft.language.extra import libdevice
from weft.language.marks import is_builtin
from weft.ops.libdevice import FUNCTIONS

EVERY = [(name, overload) for name, function in FUNCTIONS.items() for overload in function.overloads]


def test_every_function_is_a_name_of_the_module():
    assert FUNCTIONS.keys() <= set(libdevice.__all__)
    assert all(is_builtin(getattr(libdevice, name)) for name in libdevice.__all__)
    assert all(getattr(libdevice, name).__name__ == name for name in FUNCTIONS)


@pytest.mark.parametrize(("name", "overload"), EVERY, ids=lambda x: x if isinstance(x, str) else x.cuda)
def test_versions(kernel, name, overload):
    function = getattr(libdevice, name)
    found = function(*(kernel.tile(dtype) for dtype in overload.arguments))
    assert found.dtype == overload.result
    assert kernel.last("libdevice.call").attrs == {"fn": name}
    assert function(*(kernel.scalar(dtype) for dtype in overload.arguments)).shape == []


def test_what_the_language_has_is_its_own():
    for name in ("abs", "ceil", "div_rn", "floor", "fma", "sqrt_rn"):
        assert getattr(libdevice, name) is getattr(gl, name)
    assert libdevice.fmax is gl.maximum
    assert libdevice.fmin is gl.minimum


def test_python_numbers_take_the_type_that_fits(kernel):
    x, n = kernel.tile(gl.float64), kernel.tile(gl.int32)
    assert libdevice.hypot(x, 3).dtype == gl.float64
    assert [v.type.element for v in kernel.last("libdevice.call").uses] == [gl.float64, gl.float64]
    assert libdevice.sad(n, 7, 0).dtype == gl.int32
    assert [v.type.element for v in kernel.last("libdevice.call").uses] == [gl.int32, gl.int32, gl.uint32]
    for exponent, dtype in ((2, gl.int32), (2.0, gl.float64)):
        assert libdevice.pow(x, exponent).dtype == gl.float64
        assert kernel.last("libdevice.call").uses[1].type.element == dtype
    assert libdevice.ceil(1.5).dtype == libdevice.acos(1).dtype == gl.float32
    assert libdevice.clz(1 << 40).dtype == gl.int32


def test_operands_are_promoted_and_broadcast(kernel):
    tile, scalar = kernel.tile(gl.float32), kernel.scalar(gl.float64)
    found = libdevice.atan2(tile, scalar)
    assert (found.dtype, found.shape) == (gl.float64, tile.shape)
    assert libdevice.fmod(tile, kernel.scalar(gl.int32)).dtype == gl.float32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k: libdevice.acos(k.tile(gl.float16)), "libdevice.acos takes float32 or float64, but got float16"),
        (lambda k: libdevice.clz(k.tile(gl.uint32)), "libdevice.clz takes int32 or int64, but got uint32"),
        (lambda k: libdevice.saturatef(k.tile(gl.float64)), "libdevice.saturatef takes float32, but got float64"),
        (
            lambda k: libdevice.ldexp(k.tile(gl.float32), k.tile(gl.float32)),
            "libdevice.ldexp takes (float32, int32) or (float64, int32), but got (float32, float32)",
        ),
        (lambda k: libdevice.popc(1.5), "libdevice.popc takes int32 or int64, but got float32"),
    ],
)
def test_other_types_are_refused(kernel, call, message):
    with mistake("language-libdevice-types") as found:
        call(kernel)
    assert message in found.text


def test_pointers_are_refused(kernel):
    with mistake("language-pointer-operand"):
        libdevice.acos(kernel.pointer())
