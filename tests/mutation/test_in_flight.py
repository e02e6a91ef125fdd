"""Loads that are in flight when the kernel ends: advice, since no result is wrong."""

from __future__ import annotations

from tests.mutation.cases import CASES
from tests.mutation.harness import Launch, recorded
from weft.ir.core import Func, Op, Region, Value
from weft.ops import mbarrier, tma


def launched(name: str) -> Launch:
    with recorded() as launches:
        CASES[name]()
    (launch,) = launches
    return launch


def advised(launch: Launch, func: Func) -> list[str]:
    """Lines of what the simulator finds in flight at the end, under each schedule the same."""
    found = [
        [
            advice.loc.source.strip()
            for advice in launch.run(func, schedule).advice
            if advice.rule == "in-flight-at-exit"
        ]
        for schedule in ("late", "early")
    ]
    assert found[0] == found[1]
    assert launch.result() == launch.after
    return found[0]


def replaced(region: Region, changed: dict[Op, Op]) -> Region:
    """The region with other operations in place of some."""
    ops: list[Op] = []
    for op in region.ops:
        inner = tuple(replaced(each, changed) for each in op.regions)
        same = Op(op.kind, op.operands, op.attrs, op.results, inner, op.loc) if inner else op
        ops.append(changed.get(op, same))
    return Region(region.args, tuple(ops))


def test_loads_of_a_tile_that_does_not_exist():
    """The last loads of a persistent kernel are for the next tile: without their predicate they are in flight at the end."""
    launch = launched("products_persistent")
    func = launch.stages.tile
    assert advised(launch, func) == []
    (loop,) = (op for op in func.body.ops if op.name == "control.for")
    last = [op for op in loop.regions[0].ops if op.kind in (mbarrier.expect, tma.load)][-3:]
    assert [op.kind for op in last] == [mbarrier.expect, tma.load, tma.load]

    def always(op: Op) -> Op:
        pred: Value | None = op.operand("pred")
        assert pred is not None
        operands = tuple(None if value is pred else value for value in op.operands)
        return Op(op.kind, operands, op.attrs, op.results, op.regions, op.loc)

    changed = {op: always(op) for op in last}
    lines = advised(launch, Func(func.name, replaced(func.body, changed), func.attrs, func.loc))
    assert [line.partition("(")[0] for line in lines] == ["tma.async_copy_global_to_shared"] * 2
