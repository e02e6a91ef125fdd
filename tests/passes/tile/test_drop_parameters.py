from __future__ import annotations

from weft.ir.build import Builder
from weft.ir.core import FuncAttrs, ParamFacts, Value
from weft.ir.parse import parse_func
from weft.ir.text import format_func
from weft.ir.types import ScalarType, int32
from weft.ir.verify import verify
from weft.ops import arith, control, debug
from weft.passes.tile.drop_parameters import drop_parameters

I32 = ScalarType(int32)
OPTIONAL = ParamFacts(optional=True)


def kernel(facts, uses):
    """A function of as many parameters as there are facts; those numbered `uses` are printed inside a branch."""
    build, params = Builder(), tuple(Value(I32, f"a.{i}") for i in range(len(facts)))
    with_one = build.emit(arith.constant, value=1, type=I32)
    for i in uses:
        build.emit(debug.print_, params[i], prefix="")
    build.emit(debug.print_, with_one, prefix="")
    build.emit(control.return_)
    return build.func("k", params, FuncAttrs(num_warps=4, stage="tile", params=tuple(facts)))


def test_optional_parameters_without_use_go():
    func = kernel([ParamFacts(), OPTIONAL, ParamFacts(4, optional=True), OPTIONAL], uses=[2])
    text = format_func(func)
    new = drop_parameters(func)
    verify(new)
    assert [param.name for param in new.params] == ["a.0", "a.2"]
    assert new.attrs.params == (ParamFacts(), ParamFacts(4, optional=True))
    assert format_func(func) == text, "the old function is untouched"
    assert format_func(parse_func(format_func(new))) == format_func(new)


def test_what_is_used_or_asked_for_stays():
    func = kernel([ParamFacts(), OPTIONAL, ParamFacts()], uses=[1])
    assert drop_parameters(func) is func


def test_twice_is_once():
    new = drop_parameters(kernel([OPTIONAL, OPTIONAL], uses=[1]))
    assert drop_parameters(new) is new
