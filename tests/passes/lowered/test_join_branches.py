"""Neighbouring branches of one condition become one."""

from __future__ import annotations

import pytest

import weft.ops  # noqa: F401 the parser knows operations that are defined
from weft.ir.core import walk
from weft.ir.parse import parse_func
from weft.ir.text import format_func
from weft.ops import control, debug
from weft.passes.lowered.join_branches import join_branches

HEAD = 'func @f(%a: i1, %b: i1, %n: i32) {num_warps = 4, stage = "lowered", target = "sm_90a"} {\n'


def branch(condition: str, text: str) -> str:
    return (
        f"  control.if %{condition} then {{\n    {text}\n    control.yield\n  }} orelse {{\n    control.yield\n  }}\n"
    )


def note(message: str) -> str:
    return f'debug.assert %b, _ {{message = "{message}"}}'


def joined(*parts: str):
    func = parse_func(f"{HEAD}{''.join(parts)}  control.return\n}}\n")
    return join_branches(func)


def messages(func) -> list[list[str]]:
    """Of each branch, what it says in order."""
    branches = [op for op in walk(func.body) if op.kind is control.if_]
    return [[op.attrs["message"] for op in each.regions[0].ops if op.kind is debug.assert_] for each in branches]


def test_neighbours_become_one():
    func = joined(branch("a", note("1")), branch("a", note("2")), branch("a", note("3")))
    assert messages(func) == [["1", "2", "3"]]


def test_arithmetic_between_them_goes_ahead():
    func = joined(branch("a", note("1")), "  %m = arith.add %n, %n : i32\n", branch("a", note("2")))
    assert messages(func) == [["1", "2"]]
    assert [op.name for op in func.body.ops] == ["arith.add", "control.if", "control.return"]


@pytest.mark.parametrize(
    "between", [f"  {note('x')}\n", branch("b", note("x"))], ids=["an effect", "another condition"]
)
def test_others_keep_them_apart(between):
    func = joined(branch("a", note("1")), between, branch("a", note("2")))
    assert [each for each in messages(func) if each != ["x"]] == [["1"], ["2"]]


def test_branches_inside_of_joined_ones_are_joined_as_well():
    inner = branch("b", note("1")), branch("b", note("2"))
    func = joined(*(branch("a", each) for each in inner))
    assert messages(func)[-1] == ["1", "2"] and len(messages(func)) == 2


def test_what_is_not_alike_stays_as_it_was():
    func = parse_func(f"{HEAD}{branch('a', note('1'))}{branch('b', note('2'))}  control.return\n}}\n")
    assert format_func(join_branches(func)) == format_func(func)
