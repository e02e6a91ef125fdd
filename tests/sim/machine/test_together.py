"""Operations that threads execute together, under conditions at which they part: the misplaced one is reported at its line."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.sim.both import compiled_for, run_stage
from tests.sim.build import Kernel, run
from tests.support import ops_of
from weft import language as gl
from weft.errors import hazard
from weft.ir.core import Func, Op, Region
from weft.ir.types import ScalarType, int32
from weft.ops import arith, cluster, control, memory, program, sync, warp

TOGETHER = {
    "barrier": lambda k: k.emit(sync.barrier),
    "block": lambda k: k.emit(sync.block_barrier),
    "named": lambda k: k.emit(sync.named_barrier, number=1, warps=4),
    "arrival": lambda k: k.emit(sync.named_barrier, number=1, warps=4, arrive=True),
    "cluster": lambda k: k.emit(cluster.arrive, relaxed=False),
    "warp": lambda k: k.emit(sync.warp_barrier),
    # Lane 0 takes the value of lane 1, and lane 1 that of lane 0: what is missing are the others that the mask names.
    "shuffle": lambda k: k.emit(warp.shuffle_xor, k.emit(program.lane_id), mask=1),
}
CONDITIONS = {
    "none": lambda k: k.cmp("lt", k.emit(program.thread_id), k.number(1024)),
    "block": lambda k: k.cmp("eq", k.emit(program.program_id, axis=0), k.number(0)),
    "warp": lambda k: k.cmp("eq", k.emit(program.warp_id), k.number(1)),
    "thread": lambda k: k.cmp("lt", k.emit(program.lane_id), k.number(2)),
}
BY_WARP = ("warp", "shuffle")


def under(condition: str, what: str) -> Func:
    """A kernel of the lowered stage with an operation under a condition, at lines 5 and 6."""
    k = Kernel(stage="lowered", num_ctas=1)
    with k.region() as then:
        TOGETHER[what](k.at(6))
        k.emit(control.yield_)
    with k.region() as orelse:
        k.emit(control.yield_)
    held = CONDITIONS[condition](k.at(4))
    k.at(5).emit(control.if_, held, regions=(then.done, orelse.done))
    return k.done()


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("what", TOGETHER)
def test_a_branch(what, condition):
    """A condition that is the same for all is fine, even if that is not evident, and so are whole warps at what warps do."""
    func = under(condition, what)
    if condition in ("none", "block") or (condition == "warp" and what in BY_WARP):
        run(func)
        return
    with pytest.raises(hazard.MissingThreads) as caught:
        run(func)
    error = caught.value
    assert error.code == "hazard-missing-threads"
    assert error.loc.line == 6 and [loc.line for _, loc in error.related] == [5]
    whole, away = ("of a warp", 2) if what in BY_WARP else ("of the block", 0 if condition == "warp" else 2)
    assert f"all threads {whole}, but thread {32 if condition == 'warp' else 0} reaches" in error.message
    assert f"and thread {away} does not" in error.message


@pytest.mark.parametrize("alike", [True, False])
def test_a_loop(alike):
    """Warps that go round a different number of times, and all warps equally often."""
    k = Kernel(stage="lowered")
    with k.region([ScalarType(int32)]) as body:
        k.at(7).emit(sync.barrier)
        k.emit(control.yield_)
    last = k.emit(arith.div, k.emit(program.warp_id), k.number(8 if alike else 2))
    k.at(6).emit(
        control.for_, k.number(0), k.add(last, k.number(1)), k.number(1), descending=False, regions=(body.done,)
    )
    if alike:
        run(k.done())
        return
    with pytest.raises(hazard.MissingThreads, match="thread 64 reaches it and thread 0 does not") as caught:
        run(k.done())
    assert caught.value.loc.line == 7 and caught.value.related[0][1].line == 6


@weft.jit
def count_some(counts, x):
    if gl.load(x + gl.thread_idx.x) > 3:
        gl.atomic_add(counts, 1)


def with_barrier(func: Func, inside: bool) -> Func:
    """The function with a barrier before its atomic, as a pass would place it: in the branch, or before it."""
    (atomic,) = ops_of(func, memory.atomic_regs)
    barrier = Op(sync.barrier, (), {"reason": "before the atomic"}, (), (), atomic.loc)
    ops: list[Op] = []
    for op in func.body.ops:
        if op.kind is control.if_:
            then, orelse = op.regions
            if inside:
                both = Region(then.args, (barrier, *then.ops)), orelse
                op = Op(op.kind, op.operands, op.attrs, op.results, both, op.loc)
            else:
                ops.append(barrier)
        ops.append(op)
    return func.with_body(Region(func.body.args, tuple(ops)))


def test_a_barrier_that_a_pass_has_misplaced():
    args = np.zeros(1, np.int32), np.arange(64, dtype=np.int32) % 9
    compiled = compiled_for(count_some, args, {"block": 64})
    lowered = compiled.front.lowered
    run_stage(with_barrier(lowered, inside=False), count_some, compiled, args, 1)
    assert args[0] == np.sum(args[1] > 3)
    with pytest.raises(hazard.MissingThreads) as caught:
        run_stage(with_barrier(lowered, inside=True), count_some, compiled, args, 1)
    error = caught.value
    assert "sync.barrier, inserted before the atomic, needs all threads of the block" in error.message
    assert "but thread (4, 0, 0) reaches it and thread (0, 0, 0) does not" in error.message
    assert "gl.atomic_add(counts, 1)" in str(error) and "if gl.load(" in str(error)
