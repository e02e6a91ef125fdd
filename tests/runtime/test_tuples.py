"""Tuples among the arguments of a launch: what a kernel is compiled for, names of compiled kernels, and mistakes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import CompilationError, LaunchError
from weft.runtime.launch import packing
from weft.runtime.specialise import Constexpr, Pointer, Scalar, Tuple, constants, leaves, specialise


class Pair(NamedTuple):
    left: object
    right: object


def test_items_are_specialised_one_by_one():
    found = specialise("k", "x", (np.ones(4, np.float32), 16, 1, None, Pair(2.5, True)))
    assert isinstance(found, Tuple)
    assert found.items[1:4] == (Scalar("int32", True), Constexpr(1), Constexpr(None))
    assert found.items[4] == Tuple((Scalar("float32"), Scalar("bool")), Pair)
    assert [name for name, _ in leaves("x", found)] == ["x.0", "x.1", "x.2", "x.3", "x.4.0", "x.4.1"]
    assert dict(constants({"x": found})) == {"x": (None, None, None, 1, None, (Pair, None, None))}
    assert specialise("k", "x", (16, 1), facts=False) == Tuple((Scalar("int32"), Scalar("int32")))


def test_a_tuple_has_a_slot_for_each_item():
    kinds = [kind for _, kind in leaves("x", Tuple((Pointer("int8"), Constexpr(1), Tuple((Scalar("bool"),)))))]
    assert packing(kinds, ("x.0", "x.1", "x.2.0")).table == (0, 2)


@weft.jit
def total(out, numbers):
    found = numbers[0]
    for number in numbers[1:]:
        found += number
    gl.store(out, found)


def test_each_length_and_each_constant_is_a_kernel_of_its_own():
    total.forget()
    out = np.zeros(1, np.int32)
    for numbers, kernels in (((2, 3), 1), ((5, 6), 1), ((5, 16), 2), ((5, 1), 3), ((5, 6, 7), 4), (Pair(5, 6), 5)):
        total[1](out, numbers)
        assert (out[0], len(total._compiled)) == (sum(numbers), kernels)


def test_dtypes_in_a_tuple_stand_for_arrays():
    assert total.warmup(gl.int32, ("i32", "i32:16", "i32:1"), target="sm_90a").asm["ptx"]
    assert total.warmup("*i32", Pair("i32", 4), target="sm_90a").asm["ptx"]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((1, "x"), r"numbers\[1\] of total is the text 'x'"),
        ((1, (2, {})), r"numbers\[1\]\[1\] of total is a dict"),
        ([1, 2], r"tuple\(numbers\)"),
    ],
)
def test_what_a_tuple_cannot_hold(numbers, text):
    with pytest.raises(LaunchError, match=text) as caught:
        total[1](np.zeros(1, np.int32), numbers)
    assert caught.value.code == "launch-argument-kind"


def test_a_tuple_where_a_pointer_is_meant_is_named_with_its_fix():
    @weft.jit
    def shifted(out, src):
        gl.store(out, gl.load(src + gl.program_id(0)))

    with pytest.raises(CompilationError, match="an array is a pointer") as caught:
        shifted[1](np.zeros(1, np.int32), (1, 2))
    assert caught.value.code == "language-operand"


def test_arrays_in_tuples_decide_where_a_kernel_runs_and_count_for_tuning():
    from weft.tune.key import parts_of

    keys = parts_of("k", ["shape"], ["x", "shape"], frozenset())
    bound = {"x": (np.ones(2, np.int8), np.ones(2, np.float32)), "shape": (3, np.ones((4, 5)))}
    point = keys.point(bound)
    assert point.values == (("shape", (3, (4, 5))),)
    assert dict(point.dtypes) == {"x[0]": "int8", "x[1]": "float32", "shape[1]": "float64"}
    assert keys.quick(bound) != keys.quick({**bound, "shape": (3, np.ones((4, 6)))})


def test_a_kernel_is_named_for_what_it_is_compiled_for():
    def named(specialization):
        return f"total_{specialization.constants['N']}_{specialization.signature['out'].strip('*')}"

    @weft.jit(repr=named)
    def summed(out, numbers, N: gl.constexpr):
        gl.store(out, numbers[0] + N)

    out = np.zeros(1, np.int32)
    compiled = summed[1](out, (3, None), 8)
    assert (out[0], compiled.name) == (11, "total_8_i32")
    assert 'extern "C" __global__' in compiled.asm["cuda"]
    assert "total_8_i32(" in compiled.asm["cuda"]
    seen = {}
    summed._naming = lambda specialization: seen.update(specialization.signature) or "x"
    summed.warmup("*fp16", ("i64", None), 8, target="sm_90a")
    assert seen == {"out": "*fp16", "numbers": ("i64", "constexpr"), "N": "constexpr"}


@pytest.mark.parametrize("name", ["two words", "", 3, "größe", "a-b"])
def test_a_name_that_is_none(name):
    @weft.jit(repr=lambda _: name)
    def nameless(out):
        pass

    with pytest.raises(LaunchError, match="repr=") as caught:
        nameless[1](np.zeros(1, np.int32))
    assert caught.value.code == "launch-option-value"


def test_launches_out_of_resources_have_a_public_name():
    from weft.errors.launch import OutOfResources

    assert weft.OutOfResources is OutOfResources is weft.runtime.errors.OutOfResources
