"""`gl.constexpr[T]` is `gl.constexpr` in every place and spelling of an annotation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

import numpy as np
import pytest

import weft
from tests.lang.support import INT, POINTER, build, jit, mistake, pointed
from weft import errors
from weft import language as gl
from weft.language.aggregate import fields_of

if TYPE_CHECKING:
    from collections.abc import Sequence

SPELLINGS = {
    "an object": gl.constexpr[int],
    "an object of a text": gl.constexpr["int | None"],
    "a text": "gl.constexpr[int]",
    "a quoted text": "'gl.constexpr[int]'",
    "a text with dots within": "gl.constexpr[gl.layout.BlockedLayout]",
    "an imported name": "constexpr[tuple[int, ...]]",
}


def fill(out, value):
    gl.store(out + gl.arange(0, 32, gl.BlockedLayout([1], [32], [1], [0])), value)


@pytest.mark.parametrize("annotation", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_parameter_of_a_kernel(annotation):
    kernel = weft.jit(fill)
    fill.__annotations__["value"] = annotation
    assert [p.constexpr for p in kernel.params] == [False, True]
    out = np.zeros(32, np.float32)
    kernel[1](out, 3, num_warps=1)
    assert (out == 3).all()


def test_other_annotations_are_no_constants():
    kernel = weft.jit(lambda_like)
    assert [p.constexpr for p in kernel.params] == [False, False, False]


def lambda_like(a: list[gl.constexpr], b: gl.tensor, c: int):
    pass


@jit
def helper(x, factor: gl.constexpr[int]):
    return x * factor


def test_a_helper_wants_a_constant():
    @jit
    def kernel(n):
        helper(n, n)

    with pytest.raises(errors.CompilationError) as caught:
        build(kernel, n=INT)
    assert caught.value.code == "lang-not-constexpr"


@pytest.mark.parametrize("quoted", [False, True])
def test_a_variable_is_a_constant(quoted):
    @jit
    def plain(n):
        wide: gl.constexpr[int] = n
        gl.static_assert(wide == 3)

    @jit
    def in_quotes(n):
        wide: "gl.constexpr[int]" = n  # noqa: UP037 - what is tested
        gl.static_assert(wide == 3)

    with pytest.raises(errors.CompilationError) as caught:
        build(in_quotes if quoted else plain, n=INT)
    assert caught.value.code == "lang-not-constexpr"


@gl.aggregate
class Known:
    size: gl.constexpr[int]
    more: gl.constexpr[int] | None
    value: gl.tensor


def test_field_of_an_aggregate():
    assert fields_of(Known) == {"size": gl.constexpr, "more": Union[gl.constexpr, None], "value": gl.tensor}  # noqa: UP007

    @jit
    def kernel(n):
        Known(n, None, n)

    with pytest.raises(errors.CompilationError) as caught:
        build(kernel, n=INT)
    assert caught.value.code == "language-field-type"


@gl.aggregate
class Misspelt:
    size: gl.constxpr[int]
    value: gl.tensor


def test_field_of_an_aggregate_is_declared_what_does_not_exist():
    @jit
    def kernel(n):
        Misspelt(3, n)

    error = mistake(kernel, "language-field-annotation", n=INT)
    assert (pointed(error), "did you mean 'constexpr'?" in error.fix) == ("Misspelt(3, n)", True)


def test_field_of_an_aggregate_by_object():
    kind = type("Known", (), {"__annotations__": {"size": gl.constexpr[int], "more": gl.constexpr[int] | None}})
    made = gl.aggregate(kind)(3, gl.constexpr(4))
    assert (made.size, made.more) == (3, 4)


@weft.jit
def fill_annotated(buffer: gl.constexpr, value, layout: gl.constexpr):
    buffer.store(gl.full([128], value, gl.float32, layout))


@weft.jit
def buffers_as_constants(out, n, layout: gl.constexpr):
    buffer = gl.allocate_shared_memory(gl.float32, [2, 128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    fill_annotated(buffer.index(n), 3.0, layout)
    gl.store(out + gl.arange(0, 128, layout), buffer.index(n).load(layout))


def test_a_buffer_may_be_passed_to_a_parameter_annotated_as_constant():
    """As Gluon's kernels do; only its address is known at run time."""
    out = np.zeros(128, np.float32)
    buffers_as_constants[1](out, 1, gl.BlockedLayout([1], [32], [4], [0]))
    assert (out == 3.0).all()


def test_a_variable_is_declared_what_does_not_exist():
    @jit
    def attribute(out, n):
        total: out.ElementTyp = 0
        gl.store(out, total)

    @jit
    def name(out, n):
        total: flaot = 0  # noqa: F821 - what is tested
        gl.store(out, total)

    @jit
    def alone(out, n):
        total: gl.flaot32  # noqa: F842 - what is tested
        gl.store(out, n)

    error = mistake(attribute, "lang-attribute", out=POINTER, n=INT)
    assert pointed(error) == "out.ElementTyp"
    error = mistake(name, "lang-undefined-name", out=POINTER, n=INT)
    assert (pointed(error), "did you mean 'float'?" in error.fix) == ("flaot", True)
    error = mistake(alone, "lang-attribute", out=POINTER, n=INT)
    assert (pointed(error), "did you mean 'float32'?" in error.fix) == ("gl.flaot32", True)


def test_a_parameter_is_declared_what_does_not_exist():
    """Misspelt, `gl.constexpr` would be one of the annotations that the compiler ignores."""

    @jit
    def helper(x, factor: gl.constxpr) -> gl.tensor:
        return x * factor

    @jit
    def kernel(n):
        helper(n, 3)

    @jit
    def result(n) -> gl.tensr:
        pass

    error = mistake(kernel, "lang-attribute", n=INT)
    assert (pointed(error), "did you mean 'constexpr'?" in error.fix) == ("gl.constxpr", True)
    assert error.loc is not None and error.loc.caller is not None
    assert pointed(mistake(result, "lang-attribute", n=INT)) == "gl.tensr"


def test_annotations_that_only_checkers_know_are_left_alone():
    class Local:
        pass

    @jit
    def helper(x: Local, rows: "numbers", name: Sequence[gl.nothing], other: "unknown") -> Sequence:  # noqa: F821, UP037
        count: Local = 3
        more: Sequence = 4
        either: int | gl.nothing = 5
        return x + rows + count + more + either

    @jit
    def kernel(n):
        helper(n, 1, 2, 3)

    build(kernel, n=INT)
