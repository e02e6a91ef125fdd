"""The mistakes of a first launch: wrong order, wrong grid, wrong kind of argument, and texts that are no kernels."""

from __future__ import annotations

import linecache
from zlib import crc32

import numpy as np
import pytest

import weft
from tests.errors.users import LINE, copy, shown, zeros
from weft import language as gl
from weft.errors import LaunchError, UserError


@pytest.mark.parametrize(
    ("launch", "code", "advice"),
    [
        (lambda: copy[1](128, zeros(), zeros(), LINE), "launch-constexpr-kind", "is the order of the arguments that"),
        (lambda: copy[1]([1.0, 2.0], zeros(), 128, LINE), "launch-argument-kind", "numpy.array(src, numpy.float32)"),
        (lambda: copy[1]((1.0, 2.0), zeros(), 128, LINE), "language-operand", "an array is a pointer"),
        (lambda: copy[1](zeros(), object(), 128, LINE), "launch-argument-kind", "pass an array, a number"),
        (lambda: copy[1](zeros(), zeros(), 128), "launch-missing-argument", "src, dst, N, layout"),
        (lambda: copy[1](zeros(), zeros(), LINE, 128), "language-constexpr-needed", "pass a Python integer"),
        (lambda: copy[1](zeros(), zeros(), 128.0, LINE), "language-constexpr-needed", "write 128"),
        (
            lambda: copy[1](3, zeros(), 128, LINE),
            "language-pointer-needed",
            "the launch gives the parameter ptr an array",
        ),
        (lambda: copy[1](zeros(), zeros(), 128, "LINE"), "tile-not-a-layout", "gl.BlockedLayout("),
        (lambda: copy[1](zeros(), zeros(), 128, None), "resolve-open", "layout="),
        (lambda: copy[1](zeros(), zeros(), 128, LINE, num_warps=zeros()), "launch-option-value", "num_warps=4"),
        (lambda: copy[1](zeros(), zeros(), 128, LINE, num_ctas=zeros()), "launch-option-value", "num_ctas=2"),
        (lambda: copy[512 / 128](zeros(), zeros(), 128, LINE), "launch-grid-kind", "weft.cdiv(n, size)"),
        (lambda: copy[lambda: 1](zeros(), zeros(), 128, LINE), "launch-grid-function", "meta['N']"),
        (lambda: copy[lambda m: m["M"]](zeros(), zeros(), 128, LINE), "launch-grid-function", "src, dst, N, layout"),
        (lambda: copy[lambda m: m.N](zeros(), zeros(), 128, LINE), "launch-grid-function", "one dictionary"),
        (
            lambda: copy[1](weft.LayoutTensor(zeros()), zeros(), 128, LINE),
            "thread-vector-tile",
            "without weft.LayoutTensor",
        ),
    ],
)
def test_a_launch_that_cannot_be(launch, code, advice):
    with pytest.raises(UserError) as caught:
        launch()
    assert caught.value.code == code, str(caught.value)
    assert advice in caught.value.fix, str(caught.value)


def test_a_grid_function_that_raises_is_the_cause():
    with pytest.raises(LaunchError, match="KeyError: 'M'") as caught:
        copy[lambda meta: meta["M"]](zeros(), zeros(), 128, LINE)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(ZeroDivisionError):
        copy[lambda meta: meta["N"] // 0](zeros(), zeros(), 128, LINE)


def test_the_advice_for_a_grid_function_can_be_followed():
    src, dst = np.ones(512, np.float32), zeros()
    copy[lambda meta: (weft.cdiv(512, meta["N"]),)](src, dst, 512, LINE)
    assert dst.all()


def of_text(text: str):
    name = f"<launched {crc32(text.encode())}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space = {"weft": weft, "gl": gl, "np": np, "__name__": "launched"}
    exec(compile(text, name, "exec"), space)  # noqa: S102
    return space["kernel"]


def test_an_async_kernel_is_told_so_in_its_line():
    kernel = of_text("@weft.jit\nasync def kernel(out):\n    gl.store(out, 1.0)\n")
    text = shown(lambda: kernel[1](zeros()), "lang-unsupported")
    assert "async def is not supported" in text
    assert ":2 in kernel" in text


FORM_FEEDS = {
    "above": "x = 1\n\f\n@weft.jit\ndef kernel(out):\n    gl.store(out, 1.0)\n",
    "before the decorator": "x = 1\n\f@weft.jit\ndef kernel(out):\n    gl.store(out, 1.0)\n",
    "before def": "@weft.jit\n\fdef kernel(out):\n    gl.store(out, 1.0)\n",
    "within the body": "@weft.jit\ndef kernel(out):\n    x = 1.0\n\f\n    gl.store(out, x)\n",
    "before a statement": "@weft.jit\ndef kernel(out):\n    x = 1.0\n\f    gl.store(out, x)\n",
    "in a nested definition": "if True:\n    x = 1\n\f    @weft.jit\n    def kernel(out):\n        gl.store(out, 1.0)\n",
    "below": "@weft.jit\ndef kernel(out):\n    gl.store(out, 1.0)\n\f\nx = 1\n",
    "before the next statement": "@weft.jit\ndef kernel(out):\n    gl.store(out, 1.0)\n\fx = 1\n",
}


@pytest.mark.parametrize("place", FORM_FEEDS)
def test_a_form_feed_is_no_change_of_the_file(place, tmp_path):
    text = FORM_FEEDS[place]
    path = tmp_path / "script.py"
    path.write_text(text, "utf-8")
    space = {"weft": weft, "gl": gl, "__name__": "fed"}
    exec(compile(text, str(path), "exec"), space)  # noqa: S102
    out = zeros()
    space["kernel"][1](out)
    assert out[0] == 1


@pytest.mark.parametrize(
    ("parameters", "advice"),
    [
        ("out, *, n", "leave out the *"),
        ("out, n, /", "leave out the /"),
        ("*out", "its own parameter"),
        ("out, **n", "its own parameter"),
    ],
)
def test_parameters_that_no_kernel_has(parameters, advice):
    kernel = of_text(f"@weft.jit\ndef kernel({parameters}):\n    pass\n")
    assert advice in shown(lambda: kernel[1](zeros()), "launch-signature", kind=LaunchError)


ANNOTATIONS = """\
@weft.jit
def kernel(out: np.ndarray, x: int, y: "gl.tensor", z: float = 2.0, size: gl.constexpr = 4) -> None:
    i: int = x
    j: "unknown" = y
    gl.store(out, i + j + z + size)
"""


def test_type_hints_say_nothing_but_constexpr():
    out = zeros()
    of_text(ANNOTATIONS)[1](out, 1, 2)
    assert out[0] == 9


def test_type_annotations_of_double_arrays_are_no_errors():
    """A kernel takes the types of its arguments: float64 in, float64 computed, float32 stored."""
    src, dst = np.full(512, 0.1), zeros()
    copy[1](src, dst, 512, LINE)
    np.testing.assert_array_equal(dst, src.astype(np.float32))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("num_stages", "pipelining is written in the kernel"),
        ("num_consumer_groups", "gl.warp_specialize"),
        ("waves_per_eu", "AMD"),
        ("grid", "kernel[grid](...)"),
        ("num_warp", "did you mean num_warps?"),
    ],
)
def test_an_option_of_another_language(option, said):
    """It is told apart from a slip of the pen, where a kernel is launched and where it is made."""
    with pytest.raises(LaunchError) as caught:
        copy[1](zeros(), zeros(), 128, LINE, **{option: 2})
    assert caught.value.code == "launch-unknown-keyword" and said in caught.value.message
    with pytest.raises(LaunchError) as caught:
        weft.jit(**{option: 2})
    assert caught.value.code == "launch-no-option-of-jit" and said in caught.value.message
    assert "did you mean num_ctas" not in caught.value.message


@pytest.mark.parametrize(("option", "value"), [("num_warps", 8), ("block", (16, 16)), ("num_ctas", 2), ("maxnreg", 64)])
def test_launch_options_in_the_decorator(option, value):
    with pytest.raises(LaunchError) as caught:
        weft.jit(**{option: value})(copy.fn)
    assert caught.value.code == "launch-option-of-jit"
    assert f"kernel[grid](..., {option}={value!r})" in caught.value.fix
