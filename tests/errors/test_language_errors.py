"""What authors read when they misuse the language: the message and the fix of each mistake, word for word where it matters."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from tests.language.support import BLOCKED, MATRIX, Kernel, building, jit
from weft import language as gl
from weft.errors import CATALOGUE, CompilationError, LayoutError, Loc, UserError
from weft.language.marks import BUILTIN

OTHER = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])


def x(k: Kernel, element: Any = gl.float32, shape: Any = (16, 32), layout: Any = None) -> gl.tensor:
    return k.tile(element, shape, layout, "x")


# Code: what the author wrote, and what the report must contain.
MISTAKES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "tile-layout-mismatch": (
        lambda k: x(k) + k.tile(shape=(16, 32), layout=OTHER, name="y"),
        (
            "'x' (a float32 tile [16, 32])",
            repr(MATRIX),
            repr(OTHER),
            f"write gl.convert_layout(y, gl.{MATRIX!r}) (cost: ",
        ),
    ),
    "tile-rank-mismatch": (
        lambda k: x(k) * k.tile(shape=(32,), layout=gl.SliceLayout(0, MATRIX), name="bias"),
        ("* combines 'x' (a float32 tile [16, 32]) and 'bias' (a float32 tile [32])", "x[None, :]"),
    ),
    "tile-shape-mismatch": (
        lambda k: gl.where(x(k, gl.int1), x(k), x(k, shape=(16, 8))),
        ("where combines", "dimension 1 is 32 in one and 8 in the other"),
    ),
    "tile-not-trivial": (
        lambda k: gl.convert_layout(x(k), OTHER, assert_trivial=True),
        ("is not free (cost: ", "drop assert_trivial=True"),
    ),
    "tile-expand-slice": (
        lambda k: x(k, shape=(16,), layout=gl.SliceLayout(1, MATRIX))[None, :],
        ("a slice that dropped dimension 1", f"write gl.SliceLayout(0, gl.{MATRIX!r})"),
    ),
    "tile-arange": (
        lambda k: gl.arange(0, 100),
        ("arange(0, 100) has 100 elements", "mask the excess elements"),
    ),
    "layout-num-warps": (
        lambda k: gl.arange(0, 128, gl.BlockedLayout([1], [32], [8], [0])),
        ("spread over 8 warps", "num_warps=4"),
    ),
    "layout-tile-shape": (lambda k: gl.zeros([100], gl.float32), ("[100]", "[128]")),
    "language-truth": (lambda k: 1 if x(k) > 0 else 2, ("an int1 tile [16, 32]", "gl.where")),
    "language-literal-range": (
        lambda k: x(k, gl.uint8) + 300,
        ("the constant 300 is combined with uint8 values, whose range is 0 to 255", "cast the values to a wider type"),
    ),
    "language-fp8-arithmetic": (
        lambda k: x(k, gl.float8e4nv) * 2,
        ("cannot compute in float8e4nv", "x.to(gl.float16)"),
    ),
    "language-pointer-difference": (
        lambda k: k.pointer() - k.pointer(),
        ("cannot subtract a pointer<float32> from a pointer<float32>",),
    ),
    "language-pointer-offset": (
        lambda k: k.pointer() + x(k),
        ("is a float32 tile [16, 32], but offsets are integers", ".to(gl.int32)"),
    ),
    "language-mask-type": (
        lambda k: gl.load(k.pointer() + k.tile(gl.int32), mask=k.tile(gl.int32, name="m")),
        ("the mask of load is 'm' (an int32 tile [128]), not int1", "mask != 0"),
    ),
    "language-tile-at-scalar": (
        lambda k: gl.store(k.pointer(name="out"), x(k)),
        ("store accesses one address, 'out' (a pointer<float32>)", "add a tile of offsets"),
    ),
    "language-other-without-mask": (lambda k: gl.load(k.pointer(), other=0), ("add mask=...",)),
    "language-mixed-signs": (
        lambda k: x(k, gl.int32) % x(k, gl.uint32),
        ("an int32 tile", "a uint32 tile", ".to(...)"),
    ),
    "language-access-order": (
        lambda k: gl.load(k.pointer(), sem="release"),
        ("gl.load has no sem 'release'", "use one of 'relaxed' or 'acquire'", "publish"),
    ),
    "language-access-order-with": (
        lambda k: gl.load(k.pointer(), sem="acquire", volatile=True),
        ("gl.load has sem='acquire' and volatile=True", "leave volatile=True out"),
    ),
    "language-atomic-type": (
        lambda k: gl.atomic_add(k.pointer(gl.int16), 1),
        ("atomic_add does not work on int16", "integers of 32 or 64 bits"),
    ),
    "language-host-call": (None, ("arange was called on the host", "@weft.jit")),
    "tile-combine-result": (
        lambda k: gl.reduce(x(k), 1, jit(lambda a, b: a.to(gl.int32))),
        ("returns an int32 scalar where a float32 scalar is needed", ".to(gl.float32)"),
    ),
}


@pytest.mark.parametrize("code", MISTAKES)
def test_report(code):
    mistake, texts = MISTAKES[code]
    with building() if mistake else nullcontext() as kernel, pytest.raises(UserError) as caught:
        mistake(kernel) if mistake else gl.arange(0, 128)
    assert caught.value.code == code
    for text in texts:
        assert text in str(caught.value)


def test_errors_have_no_place_until_the_reader_gives_them_one():
    with building() as kernel, pytest.raises(CompilationError) as caught:
        _ = kernel.tile() @ kernel.tile()
    assert caught.value.loc is None
    assert "kernel.py:3" in str(caught.value.at(Loc("kernel.py", 3)))


def test_layout_mistakes_are_layout_errors():
    with building() as kernel, pytest.raises(LayoutError):
        _ = x(kernel) + kernel.tile(shape=(16, 32), layout=OTHER)


@pytest.mark.parametrize("code", [code for code in CATALOGUE if code.startswith(("language-", "tile-"))])
def test_messages_are_in_the_words_of_the_language(code):
    entry = CATALOGUE[code]
    for word in ("MLIR", "SSA", "operand type", "opcode", "builder", "handle"):
        assert word not in entry.message + entry.fix


def test_every_public_function_is_marked():
    plain = {"aggregate", "constexpr_function", "must_use_result"}
    functions = [n for n in gl.__all__ if type(getattr(gl, n)).__name__ == "function"]
    assert {n for n in functions if not getattr(getattr(gl, n), BUILTIN, False)} == plain
    assert BLOCKED.num_warps == 4
