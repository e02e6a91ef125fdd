"""The mistakes of a first hour: each is reported once, in its line, and what the report says to write compiles and runs."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.errors.beginners import (
    THREAD_MISTAKES,
    TILE_MISTAKES,
    Mistake,
    kernel_of,
    launch_threads,
    launch_tiles,
)
from weft import language as gl
from weft.errors import ErrorGroup, UserError
from weft.lang import otherwise


def refused(launch, mistake: Mistake) -> None:
    with pytest.raises(UserError) as caught:
        launch(mistake.wrong)
    error = caught.value
    assert not isinstance(error, ErrorGroup), f"one mistake has one report:\n{error}"
    assert error.code == mistake.code, str(error)
    assert mistake.advice in error.fix, str(error)
    begins = mistake.mark or mistake.wrong.split("\n")[0]
    assert error.loc is not None and error.loc.source.strip().startswith(begins), str(error)


@pytest.mark.parametrize("mistake", TILE_MISTAKES, ids=lambda m: m.title)
def test_a_mistake_with_tiles(mistake):
    refused(launch_tiles, mistake)
    launch_tiles(mistake.right)


@pytest.mark.parametrize("mistake", THREAD_MISTAKES, ids=lambda m: m.title)
def test_a_mistake_with_threads(mistake):
    refused(launch_threads, mistake)
    launch_threads(mistake.right)


OPERANDS = {"shape": "[128]", "dtype": "gl.float32", "layout": "LINE", "value": "1.0", "x": "t", "y": "t"}
INTEGERS = {**OPERANDS, "x": "n", "y": "n"}
SQUARES = {**OPERANDS, "x": "gl.full([16, 16], 1.0, gl.float32, gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0]))"}


@pytest.mark.parametrize("name", otherwise.EXPRESSIONS)
def test_what_stands_in_for_a_function_compiles(name):
    values = {"divmod": INTEGERS, "transpose": SQUARES}.get(name, OPERANDS)
    found = [
        each
        for each in re.split(r", or | and | for its | where ", otherwise.EXPRESSIONS[name])
        if re.match(r"gl\.\w+\(|\(?[\dx]", each)
    ]
    assert found
    for each in found:
        launch_tiles("z = " + re.sub(r"(?<![.\w])\w+(?!\w|=)", lambda m: values.get(m.group(), m.group()), each))


@pytest.mark.parametrize("name", sorted({*otherwise.CLAUSES, *otherwise.CUDA}))
def test_names_in_advice_exist(name):
    text = otherwise.instead(name)
    for path in re.findall(r"\bgl\.(\w+)", text):
        assert hasattr(gl, path), text


def test_a_nested_function_and_a_list_that_grows_have_no_consequences():
    """What follows from a reported mistake is not reported; another mistake is."""
    body = "def f(x):\n    return x\nxs = [1]\nxs.append(f(t))\ny = xs[1] + f(xs[0])\nz = lenght"
    with pytest.raises(ErrorGroup) as caught:
        launch_tiles(body)
    assert [error.code for error in caught.value.errors] == ["lang-unsupported", "lang-undefined-name"]


ADVICE = """\
@weft.jit
def kernel(dst, n):
    i = gl.arange(0, 128, LINE)
    gl.store(dst + i, {body})
"""


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("(i - 5) // 3", "-5 // 3 is -1, truncated towards zero as in C, and -2 in Python"),
        ("(i - 5) % 4", "-5 % 4 is -1, truncated towards zero as in C, and 3 in Python"),
        ("i % -4", "1 % -4 is 1, truncated towards zero as in C, and -3 in Python"),
        ("-n // 3", "-4 // 3 is -1, truncated towards zero as in C, and -2 in Python"),
        ("i // -1", ""),
        ("(i * 4 - 8) // 4", ""),
        ("(i * 4 - 8) % 4", ""),
        ("-n % 4", ""),
        ("(i - 500) // (0 - n)", ""),  # of one sign
    ],
)
def test_advice_on_division_where_it_differs_from_pythons(body, shown):
    dst = np.zeros(128, np.int32)
    report = kernel_of(ADVICE, body)[1](dst, 4).report
    found = [advice.message for advice in report.advice if advice.rule == "negative-division"]
    assert bool(found) == bool(shown), found
    if not found:
        return
    assert shown in found[0]
    x, _, n = body.rpartition(" ")[0].rpartition(" ")[0], *body.split(" ")[-2:]
    if int(n) < 0:
        return  # the advice is for positive divisors
    instead = found[0].partition("write ")[2]
    fixed = re.sub(r"\bn\b", n, re.sub(r"\bx\b", f"({x})", instead).replace("(-n)", "(-4)"))
    kernel_of(ADVICE, fixed)[1](dst, 4)
    expected = eval(body, {"i": np.arange(128), "n": 4})  # noqa: S307
    np.testing.assert_array_equal(dst, np.broadcast_to(expected, dst.shape))
