"""Casts: which operation, between which types, with which rounding."""

from __future__ import annotations

import itertools

import pytest

from tests.language.support import mistake
from weft import language as gl
from weft.ir.types import DTYPES


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(DTYPES, 2)), ids=lambda d: d.name)
def test_every_number_converts_to_every_other(kernel, source, target):
    assert kernel.tile(source).to(target).dtype == target
    assert kernel.last("arith.cast").attrs == {"dtype": target, "rounding": "rn"}


def test_the_same_type_costs_nothing(kernel):
    x = kernel.tile(gl.int8)
    assert x.to(gl.int8) is x and x.to(gl.int8, bitcast=True) is x
    assert kernel.names == []


def test_rounding(kernel):
    x = kernel.tile(gl.float32)
    x.to(gl.float16, fp_downcast_rounding="rtz")
    assert kernel.last("arith.cast").attrs["rounding"] == "rz"
    x.cast(gl.bfloat16, "rtne")
    assert kernel.last("arith.cast").attrs["rounding"] == "rn"
    for target, rounding in ((gl.float64, "rtz"), (gl.int32, "rtz"), (gl.float8e5, "rtz"), (gl.float16, "up")):
        with mistake("language-cast-rounding"):
            x.to(target, fp_downcast_rounding=rounding)


def test_bitcast(kernel):
    assert kernel.tile(gl.float32).to(gl.uint32, bitcast=True).dtype == gl.uint32
    kernel.last("arith.bitcast")
    with mistake("language-bitcast") as found:
        kernel.tile(gl.float32).to(gl.int16, bitcast=True)
    assert "32 bits, the other 16" in found.text


def test_pointers(kernel):
    pointer = gl.pointer_type(gl.float32)
    p = kernel.pointer(gl.float32)
    assert p.to(gl.int64).dtype == gl.int64
    assert kernel.scalar(gl.uint64).to(pointer).dtype == pointer
    assert p.to(gl.pointer_type(gl.int8)).dtype == gl.pointer_type(gl.int8)
    assert set(kernel.names) == {"arith.bitcast"}
    assert kernel.scalar(gl.int32).to(pointer).dtype == pointer
    assert kernel.names[-2:] == ["arith.cast", "arith.bitcast"]
    assert p.to(gl.int1).dtype == gl.int1
    assert kernel.names[-2:] == ["arith.bitcast", "arith.cast"]
    for target in (gl.int32, gl.float64):
        with mistake("language-cast-pointer"):
            p.to(target)


def test_cast_of_a_number(kernel):
    assert gl.cast(3, gl.float32).dtype == gl.float32
    assert gl.to_tensor(3).dtype == gl.int32
    assert gl.to_tensor(True).dtype == gl.int1


def test_cast_to_what_is_no_type(kernel):
    with mistake("language-dtype"):
        kernel.tile().to("float16")
