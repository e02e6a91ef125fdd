"""Vectors of single threads: what operators, functions and methods make of them, and what they refuse."""

from __future__ import annotations

import pytest

from tests.language.support import mistake
from weft import language as gl
from weft.ir.core import Value
from weft.ir.types import RegsType, ScalarType


def vector(element=gl.float32, size=4, name="v"):
    return gl.SIMD(Value(RegsType(element, size), name))


def test_what_a_vector_says_of_itself(kernel):
    v = vector(gl.float16, 8)
    assert (v.size, len(v), v.numel, v.dtype, v.is_scalar) == (8, 8, 8, gl.float16, False)
    assert v.describe() == "a vector of 8 float16"


def test_operators_work_element_by_element_in_the_promoted_type(kernel):
    v, s = vector(), kernel.scalar(gl.int32)
    for made in (v + 1, 2 * v, v - s, v * v, v / 3, -v, gl.exp(v), gl.maximum(v, s), gl.fma(v, 2, s), abs(v)):
        assert isinstance(made, gl.SIMD)
        assert made.handle.type == RegsType(gl.float32, 4)
    assert (vector(gl.int32) + v).dtype == gl.float32
    assert (vector(gl.int32) & 3).dtype == gl.int32
    assert (v > s).handle.type == RegsType(gl.int1, 4)
    assert v.to(gl.float16).handle.type == RegsType(gl.float16, 4)


def test_a_scalar_is_cast_before_it_is_splat(kernel):
    vector() + kernel.scalar(gl.int32)
    assert kernel.names == ["arith.cast", "regs.splat", "arith.add"]


def test_a_number_becomes_a_vector_of_constants(kernel):
    vector() * 2
    assert kernel.names == ["arith.constant", "arith.mul"]
    assert kernel.ops[0].result.type == RegsType(gl.float32, 4)


def test_where_takes_a_condition_for_each_element_or_for_all(kernel):
    v = vector()
    assert gl.where(v > 0, v, 0.0).handle.type == RegsType(gl.float32, 4)
    assert gl.where(kernel.scalar(gl.int1), v, 1).handle.type == RegsType(gl.float32, 4)
    assert (v > 0).select(1.0, v).handle.type == RegsType(gl.float32, 4)


def test_an_element_is_a_scalar(kernel):
    v = vector()
    assert v[0].handle.type == ScalarType(gl.float32)
    assert [op.attrs["index"] for op in kernel.ops] == [0]
    v[-1]
    assert kernel.last("regs.extract").attrs["index"] == 3


def test_a_scalar_is_its_own_first_element(kernel):
    s = kernel.scalar(gl.float32)
    assert s[0] is s
    assert s[-1] is s


def test_parts(kernel):
    v = vector()
    assert v[1:3].handle.type == RegsType(gl.float32, 2)
    assert kernel.last("regs.gather").attrs["table"] == (1, 2)
    v.slice(2, 2)
    assert kernel.last("regs.gather").attrs["table"] == (2, 3)
    v.shuffle(3, 2, 1, 0)
    assert kernel.last("regs.gather").attrs["table"] == (3, 2, 1, 0)
    assert v[:] is v
    assert v.slice(1, 1).handle.type == ScalarType(gl.float32)


def test_join_promotes(kernel):
    made = vector(gl.float16, 2).join(vector(gl.float32, 4))
    assert made.handle.type == RegsType(gl.float32, 6)
    assert vector().join(1).handle.type == RegsType(gl.float32, 5)


def test_a_vector_is_made_of_values(kernel):
    s = kernel.scalar(gl.int32)
    assert gl.SIMD[gl.float32, 4](1).handle.type == RegsType(gl.float32, 4)
    assert kernel.names == ["arith.constant"]
    assert gl.SIMD[gl.float32, 4](s).handle.type == RegsType(gl.float32, 4)
    assert gl.SIMD[gl.float32, 3](1, s, 2.5).handle.type == RegsType(gl.float32, 3)
    assert gl.SIMD[gl.float32, 2]([1, s]).handle.type == RegsType(gl.float32, 2)
    assert gl.SIMD[gl.float16, 4](vector()).handle.type == RegsType(gl.float16, 4)
    assert gl.SIMD[gl.float32, 1](s).handle.type == ScalarType(gl.float32)


def test_reductions_combine_neighbours_first(kernel):
    made = vector(size=5).reduce_add()
    assert made.handle.type == ScalarType(gl.float32)
    assert kernel.names == ["regs.extract"] * 5 + ["arith.add"] * 4
    pairs = [tuple(value.name or value for value in op.uses) for op in kernel.ops[5:7]]
    assert pairs == [tuple(op.result for op in kernel.ops[i : i + 2]) for i in (0, 2)]
    for name, kind in (("reduce_max", "arith.max"), ("reduce_min", "arith.min"), ("reduce_mul", "arith.mul")):
        getattr(vector(size=2), name)()
        assert kernel.ops[-1].name == kind


def test_a_run_time_index_says_what_to_do(kernel):
    with mistake("thread-vector-index") as found:
        vector()[kernel.scalar(gl.int32, "i")]
    assert "gl.static_range" in found.text
    assert "'v' (a vector of 4 float32)" in found.text


@pytest.mark.parametrize("index", [4, -5])
def test_an_index_outside(kernel, index):
    with mistake("thread-vector-range") as found:
        vector()[index]
    assert "0 to 3" in found.text


def test_sizes_that_differ(kernel):
    with mistake("thread-vector-size") as found:
        vector(name="v") + vector(size=2, name="w")
    assert "'v' (a vector of 4 float32)" in found.text
    assert "'w' (a vector of 2 float32)" in found.text


def test_a_vector_meets_a_tile(kernel):
    for left, right in ((vector(), kernel.tile()), (kernel.tile(), vector())):
        with mistake("thread-vector-tile"):
            left + right


def test_what_is_no_type_of_vectors(kernel):
    for key in (gl.float32, (4, gl.float32), (gl.float32, 0), (gl.float32, 4, 4)):
        with mistake("thread-vector-type") as found:
            gl.SIMD[key]
        assert "gl.SIMD[gl.float32, 4]" in found.text


def test_values_that_are_not_one_for_each_element(kernel):
    for values in ((1, 2), (vector(size=2),), (vector(), vector())):
        with mistake("thread-vector-values") as found:
            gl.SIMD[gl.float32, 4](*values)
        assert "4 elements" in found.text


def test_functions_of_tiles_refuse_vectors(kernel):
    for call in (lambda v: gl.sum(v), lambda v: v.T, lambda v: v.max(), lambda v: v.layout):
        with mistake("language-tile-needed") as found:
            call(vector())
        assert "a vector of 4 float32" in found.text


def test_several_addresses_of_one_thread(kernel):
    for call in (lambda p: gl.load(p), lambda p: gl.store(p, 1.0), lambda p: gl.atomic_add(p, 1.0)):
        with mistake("thread-vector-address") as found:
            call(kernel.pointer() + vector(gl.int32))
        assert "LayoutTensor" in found.text


def test_printing_goes_by_elements(kernel):
    gl.device_print("v", vector(size=2))
    assert kernel.names == ["regs.extract", "regs.extract", "debug.print"]
