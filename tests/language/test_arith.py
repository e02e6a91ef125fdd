"""Operators and functions of numbers: which operations they emit, in which types."""

from __future__ import annotations

import operator

import pytest

from tests.language.support import mistake
from weft import language as gl
from weft.ir.types import with_element

BINARY = {
    operator.add: "arith.add",
    operator.sub: "arith.sub",
    operator.mul: "arith.mul",
    operator.truediv: "arith.div",
    operator.mod: "arith.rem",
    operator.and_: "arith.and",
    operator.or_: "arith.or",
    operator.xor: "arith.xor",
    operator.lshift: "arith.shl",
    operator.rshift: "arith.shr",
    operator.floordiv: "arith.div",
}


@pytest.mark.parametrize(("function", "name"), BINARY.items(), ids=lambda v: getattr(v, "__name__", v))
def test_operators_and_reflected_operators(kernel, function, name):
    x = kernel.tile(gl.int32)
    forward, backward = function(x, 3), function(3, x)
    dtype = gl.float32 if function is operator.truediv else gl.int32
    assert forward.dtype == backward.dtype == dtype
    assert kernel.ops[-1].name == name
    made = [op for op in kernel.ops if op.name == name]
    constants = [op.result for op in kernel.ops if op.name == "arith.constant"]
    assert made[0].operands[1] is constants[0]
    assert made[1].operands[0] is constants[1]


@pytest.mark.parametrize(
    ("function", "predicate", "mirrored"),
    [
        ("__lt__", "lt", "gt"),
        ("__le__", "le", "ge"),
        ("__eq__", "eq", "eq"),
        ("__ne__", "ne", "ne"),
        ("__ge__", "ge", "le"),
    ],
)
def test_comparisons(kernel, function, predicate, mirrored):
    x = kernel.tile(gl.float32)
    result = getattr(x, function)(2)
    assert result.dtype == gl.int1 and result.shape == [128]
    assert kernel.last("arith.cmp").attrs["predicate"] == predicate
    getattr(operator, function)(2, x)
    assert kernel.last("arith.cmp").attrs["predicate"] == mirrored


def test_a_number_becomes_a_constant_of_the_tile(kernel):
    x = kernel.tile(gl.float16)
    y = x * 2
    (constant, product) = kernel.ops
    assert constant.attrs == {"value": 2.0, "type": x.handle.type}
    assert isinstance(constant.attrs["value"], float)
    assert product.operands == (x.handle, constant.result)
    assert y.handle.type == x.handle.type


def test_a_scalar_is_cast_then_splat(kernel):
    x, s = kernel.tile(gl.float32), kernel.scalar(gl.int32)
    y = x + s
    assert kernel.names == ["arith.cast", "tile.splat", "arith.add"]
    assert y.dtype == gl.float32 and y.shape == [128]


def test_two_scalars_stay_scalars(kernel):
    result = kernel.scalar(gl.int32) + kernel.scalar(gl.uint32)
    assert result.dtype == gl.uint32 and result.shape == [] and result.is_scalar


def test_division_of_integers_is_float(kernel):
    assert (kernel.tile(gl.int64) / kernel.tile(gl.int64)).dtype == gl.float32
    assert (kernel.tile(gl.float16) / 2).dtype == gl.float32
    assert (kernel.tile(gl.float64) / kernel.tile(gl.float16)).dtype == gl.float64


def test_remainder_of_half_floats_is_in_float32(kernel):
    assert (kernel.tile(gl.bfloat16) % 2).dtype == gl.float32


def test_floor_division_of_floats(kernel):
    with mistake("language-floor-division") as found:
        _ = kernel.tile(gl.float32) // 2
    assert "gl.floor(x / y)" in found.text


def test_division_of_mixed_signs(kernel):
    with mistake("language-mixed-signs"):
        _ = kernel.tile(gl.int32) // kernel.tile(gl.uint32)
    with mistake("language-mixed-signs"):
        _ = kernel.tile(gl.uint8) % kernel.tile(gl.int32)
    assert (kernel.tile(gl.uint32) // 4).dtype == gl.uint32


def test_arithmetic_on_bools_counts(kernel):
    m = kernel.tile(gl.int1)
    assert (m + m).dtype == gl.int32
    assert (m & m).dtype == gl.int1
    assert (-m).dtype == gl.int32
    assert (m << 1).dtype == gl.int32


def test_fp8_does_not_compute(kernel):
    x = kernel.tile(gl.float8e5)
    with mistake("language-fp8-arithmetic") as found:
        _ = x + x
    assert "x.to(gl.float16)" in found.text
    assert (x + kernel.tile(gl.float8e4nv)).dtype == gl.float16
    assert (x * kernel.tile(gl.float32)).dtype == gl.float32
    _ = x < 1.0
    assert kernel.last("arith.cmp").operands[0].type.element == gl.float16
    assert gl.where(kernel.tile(gl.int1), x, x).dtype == gl.float8e5


def test_negation(kernel):
    _ = -kernel.tile(gl.float32)
    assert kernel.last("arith.math").attrs["fn"] == "neg"
    _ = -kernel.tile(gl.uint32)
    kernel.last("arith.sub")


def test_inversion(kernel):
    for element, ones in ((gl.int32, -1), (gl.uint8, 255), (gl.int1, True)):
        assert (~kernel.tile(element)).dtype == element
        assert kernel.ops[-2].attrs["value"] == ones
        kernel.last("arith.xor")


def test_bits_of_floats(kernel):
    with mistake("language-integer-needed"):
        _ = kernel.tile(gl.int32) & 1.5
    with mistake("language-integer-needed"):
        _ = ~kernel.tile(gl.float32)


def test_power_and_matmul(kernel):
    assert (kernel.tile(gl.float16) ** 2).dtype == gl.float16
    assert (2 ** kernel.tile(gl.float32)).dtype == gl.float32 and kernel.last("arith.math").attrs["fn"] == "exp2"
    assert (kernel.tile(gl.int32) ** 0.5).dtype == gl.float32
    assert (kernel.tile(gl.int8) ** 64).dtype == gl.int8
    assert (kernel.tile(gl.float64) ** kernel.tile(gl.int8)).dtype == gl.float64
    for base, exponent in (
        (2, kernel.tile(gl.int32)), (kernel.tile(gl.int32), -1), (kernel.tile(gl.float16), 0.5),
        (kernel.tile(gl.int32), kernel.tile(gl.int32)), (kernel.tile(gl.int32), 65),
    ):  # fmt: skip
        with mistake("language-power"):
            _ = base**exponent
    with mistake("language-fp8-arithmetic"):
        _ = kernel.tile(gl.float8e5) ** 2
    with mistake("language-matmul"):
        _ = kernel.tile() @ kernel.tile()


def test_minimum_and_maximum(kernel):
    x = kernel.tile(gl.float32)
    gl.maximum(x, 0)
    assert kernel.last("arith.max").attrs["nan"] is False
    gl.minimum(x, 0, propagate_nan=gl.PropagateNan.ALL)
    assert kernel.last("arith.min").attrs["nan"] is True
    with mistake("language-propagate-nan"):
        gl.minimum(x, 0, propagate_nan=True)


def test_clamp(kernel):
    gl.clamp(kernel.tile(gl.float16), 0, 1)
    assert kernel.last("arith.clamp").operands[1].type.element == gl.float16
    gl.clamp(kernel.tile(gl.int32), 0, 1)
    assert kernel.names[-4:] == ["arith.constant", "arith.constant", "arith.max", "arith.min"]


def test_where(kernel):
    x, m = kernel.tile(gl.float16), kernel.tile(gl.int1)
    result = gl.where(m, x, 0.0)
    op = kernel.last("arith.select")
    assert result.dtype == gl.float16
    assert op.operands[:2] == (m.handle, x.handle)


def test_where_with_a_scalar_condition_selects_whole_tiles(kernel):
    c, x = kernel.scalar(gl.int1, "c"), kernel.tile(gl.int32)
    gl.where(c, x, 1)
    assert kernel.last("arith.select").operands[0] is c.handle


def test_where_makes_a_truth_of_a_number(kernel):
    gl.where(kernel.tile(gl.int32), 1, 0)
    op = kernel.last("arith.select")
    assert op.operands[0].type == with_element(op.result.type, gl.int1)


def test_where_between_pointers(kernel):
    p, q = kernel.pointer(gl.float32), kernel.pointer(gl.float32)
    assert gl.where(kernel.scalar(gl.int1), p, q).dtype == gl.pointer_type(gl.float32)
    with mistake("language-pointer-types"):
        gl.where(kernel.scalar(gl.int1), p, kernel.pointer(gl.int32))


def test_logic(kernel):
    s, t = kernel.scalar(gl.int32), kernel.scalar(gl.int1)
    assert gl.logical_and(s, t).dtype == gl.int1
    assert kernel.names == ["arith.cast", "arith.and"]
    assert s.logical_or(0.0).dtype == gl.int1
    assert gl.logical_not(t).dtype == gl.int1
    kernel.last("arith.xor")


def test_cdiv(kernel):
    assert gl.cdiv(100, 32) == 4
    assert gl.cdiv(gl.constexpr(96), 32) == 3
    n = kernel.scalar(gl.int32)
    assert gl.cdiv(n, 32).dtype == gl.int32
    assert kernel.names == ["arith.constant", "arith.add", "arith.constant", "arith.div"]
    assert kernel.ops[0].attrs["value"] == 31
    gl.cdiv(n, n)
    kernel.last("arith.div")


def test_next_power_of_2():
    assert [gl.next_power_of_2(n) for n in (0, 1, 2, 3, 100, 128)] == [1, 1, 2, 4, 128, 128]


def test_math_functions(kernel):
    x = kernel.tile(gl.float32)
    for name in (
        "exp",
        "exp2",
        "log",
        "log2",
        "sin",
        "cos",
        "sqrt",
        "rsqrt",
        "sqrt_rn",
        "erf",
        "floor",
        "ceil",
        "tanh",
    ):
        assert getattr(gl, name)(x).handle.type == x.handle.type
        assert kernel.last("arith.math").attrs["fn"] == name


@pytest.mark.parametrize("element", [gl.float16, gl.int32, gl.float8e5])
def test_math_functions_take_wide_floats(kernel, element):
    with mistake("language-float-needed") as found:
        gl.exp(kernel.tile(element))
    assert element.name in found.text


def test_abs(kernel):
    assert abs(kernel.tile(gl.int8)).dtype == gl.int8
    assert kernel.last("arith.math").attrs["fn"] == "abs"
    u = kernel.tile(gl.uint8)
    assert gl.abs(u) is u


def test_fma_and_quotients(kernel):
    x = kernel.tile(gl.float16)
    assert gl.fma(x, 2, 1.0).dtype == gl.float16
    assert gl.div_rn(x, 3).dtype == gl.float32
    kernel.last("arith.div_rn")
    assert gl.fdiv(kernel.tile(gl.float32), x).dtype == gl.float32
    kernel.last("arith.div")
    gl.fdiv(x, x, ieee_rounding=True)
    kernel.last("arith.div_rn")
    with mistake("language-float-needed"):
        gl.fdiv(kernel.tile(gl.int32), 2)
    with mistake("language-float-needed"):
        gl.fma(kernel.tile(gl.int32), 2, 3)


def test_popcount(kernel):
    assert gl.popcount(kernel.tile(gl.uint32)).dtype == gl.int32
    assert gl.popcount(kernel.scalar(gl.int64)).dtype == gl.int32
    assert gl.popcount(255).dtype == gl.int32
    for refused in (gl.int16, gl.float32):
        with mistake("language-popcount"):
            gl.popcount(kernel.tile(refused))


def test_umulhi(kernel):
    assert gl.umulhi(kernel.tile(gl.uint32), 3).dtype == gl.uint32
    with mistake("language-umulhi"):
        gl.umulhi(kernel.tile(gl.int16), 3)
