"""Cluster launch control when lowered: requests by one block, answers on memory."""

from __future__ import annotations

import pytest

from tests.passes.lower.rules.test_shared import alloc
from tests.passes.lower.tensors import TARGET, lowered, only, tensor_kernel
from tests.support import count, ops_of
from weft import targets
from weft.errors import CompilationError
from weft.ir.types import ScalarType, SharedArrayType, int64
from weft.layout import MBarrierLayout, SwizzledSharedLayout
from weft.ops import arith, clc, cluster, control, shared
from weft.passes.lower import lower_tiles

LINE = SwizzledSharedLayout(1, 1, 1, [0])


def stages(k, blocks=1):
    """Answers and barriers of two stages."""
    layout = MBarrierLayout.multicta(blocks) if blocks > 1 else MBarrierLayout()
    return alloc(k, int64, (2, 2), LINE, "answers"), alloc(k, int64, (2, blocks), layout, "bars")


def request(k, stage, blocks=1, **attrs):
    answers, bars = stages(k, blocks)
    answer = k.emit(shared.index, answers, stage, name="answer")
    k.emit(clc.try_cancel, answer, k.emit(shared.index, bars, stage, name="bar"), **attrs)
    return answer


def test_a_request_and_its_answer():
    k = tensor_kernel(columns=0)
    answer = request(k, k.number_in(1))
    low, high = k.emit(clc.load, answer)
    taken = k.emit(clc.is_canceled, low, high)
    x = k.emit(clc.program_id, low, high, dim=0)
    k.output(k.emit(arith.select, taken, x, k.number(-1)))
    func = lowered(k)
    asked, loaded = only(func, clc.try_cancel), only(func, clc.load)
    assert asked in func.body.ops, "a cluster of one block"
    assert asked.operands[0].type == SharedArrayType(int64, 2) and asked.operands[1].type == SharedArrayType(int64, 1)
    assert loaded.operands[0] is asked.operands[0]
    assert tuple(only(func, clc.is_canceled).uses) == tuple(only(func, clc.program_id).uses) == loaded.results
    views = [op for op in ops_of(func, shared.view) if op.result.name == "answer"]
    assert len(views) == 1


@pytest.mark.parametrize("multicast", [False, True])
def test_the_first_block_of_a_cluster_asks(multicast):
    k = tensor_kernel(columns=0, num_ctas=4)
    low, high = k.emit(clc.load, request(k, k.number(1), 4, multicast=multicast))
    k.emit(clc.program_id, low, high, dim=0)
    func = lowered(k)
    (test,) = ops_of(func, control.if_)
    asked = test.regions[0].ops[-2]
    assert asked.kind is clc.try_cancel and asked.attrs == {"multicast": multicast}
    compare = next(op for op in func.body.ops if test.operands[0] in op.results)
    assert compare.operands[0] is only(func, cluster.rank).result and compare.attrs["predicate"] == "eq"
    assert only(func, clc.load) in func.body.ops, "each block reads its own memory"


def test_programs_one_after_another():
    """A loop carries what the answers say."""
    k = tensor_kernel(columns=0)
    answer = request(k, k.number(0))
    types = [ScalarType(int64)] * 2
    first = k.emit(clc.load, answer)
    with k.region(types) as before:
        k.emit(control.condition, k.emit(clc.is_canceled, *before.args), *before.args)
    with k.region(types) as after:
        k.output(k.emit(clc.program_id, *after.args, dim=0))
        k.emit(control.yield_, *k.emit(clc.load, answer))
    k.emit(control.while_, *first, regions=(before.done, after.done))
    func = lowered(k)
    op = only(func, control.while_)
    assert op.operands == ops_of(func, clc.load)[0].results
    assert tuple(op.regions[1].terminator.uses) == ops_of(func, clc.load)[1].results
    assert count(func, clc.load) == 2


@pytest.mark.parametrize("what", ["try_cancel", "load"])
def test_what_hopper_lacks(what):
    k = tensor_kernel(columns=0)
    answers, bars = stages(k)
    answer = k.emit(shared.index, answers, k.number(0))
    if what == "load":
        k.emit(clc.load, answer)
    else:
        k.emit(clc.try_cancel, answer, k.emit(shared.index, bars, k.number(0)))
    with pytest.raises(CompilationError, match="sm_90a") as caught:
        lower_tiles(k.finished(), targets.get("sm_90a"))
    assert caught.value.code == "lower-target"
    assert TARGET.has_cluster_launch_control
