"""Which operations give way to approximate instructions, and which stay."""

from __future__ import annotations

import pytest

from weft.ir.build import Builder
from weft.ir.core import FuncAttrs, walk
from weft.ir.types import ScalarType, float16, float32, float64
from weft.ir.verify import verify
from weft.ops import arith, control, libdevice
from weft.passes.tile.fast_math import fast_math


def kinds(listed, dtype=float32):
    """The functions of a kernel that has every kind of operation, after the pass."""
    build = Builder()
    x, y = (build.emit(arith.constant, value=value, type=ScalarType(dtype)) for value in (2.0, 3.0))
    for fn in ("exp2", "tanh", "sqrt", "sqrt_rn", "erf", "neg"):
        build.emit(arith.math, x, fn=fn)
    for kind in (arith.div, arith.div_rn, arith.mul):
        build.emit(kind, x, y)
    if dtype != float16:
        for fn, operands in (("exp10", (x,)), ("sqrt", (x,)), ("pow", (x, y))):
            build.emit(libdevice.call, *operands, fn=fn)
    build.emit(control.return_)
    func = fast_math(build.func("k", (), FuncAttrs(num_warps=4, stage="tile")), listed)
    verify(func)
    ops = [op for op in walk(func.body) if op.kind not in (arith.constant, control.return_)]
    return [op.attrs.get("fn", op.kind.name) for op in ops]


PLAIN = [
    "exp2",
    "tanh",
    "sqrt",
    "sqrt_rn",
    "erf",
    "neg",
    "arith.div",
    "arith.div_rn",
    "arith.mul",
    "exp10",
    "sqrt",
    "pow",
]


@pytest.mark.parametrize(
    ("listed", "changed"),
    [
        ((), {}), (("exp2",), {0: "fast_exp2f"}), (("div", "pow"), {6: "fast_dividef", 11: "fast_powf"}),
        (
            tuple(libdevice.FAST),
            {0: "fast_exp2f", 1: "fast_tanhf", 2: "fast_sqrtf", 6: "fast_dividef", 9: "fast_exp10f", 11: "fast_powf"},
        ),
    ],
)  # fmt: skip
def test_what_changes(listed, changed):
    """libdevice's square root, the last but one, is correctly rounded by definition."""
    assert kinds(listed) == [changed.get(place, name) for place, name in enumerate(PLAIN)]


@pytest.mark.parametrize("dtype", [float16, float64])
def test_other_types_stay(dtype):
    assert kinds(tuple(libdevice.FAST), dtype) == PLAIN[: 9 if dtype == float16 else None]
