from __future__ import annotations

import pytest

from weft.analysis.scopes import scopes
from weft.errors import CompilationError, Loc
from weft.ir.build import Builder
from weft.ir.core import FuncAttrs, ParamFacts, Value
from weft.ir.types import Pointer, ScalarType, float32, int1, int32, tile_type
from weft.layout import BlockedLayout
from weft.ops import arith, control, hints, memory, program, sync, tile

I32, BOOL = ScalarType(int32), ScalarType(int1)
LINE = BlockedLayout([1], [32], [4], [0])


class Kernel:
    """A function under construction; each operation stands in a line of its own."""

    def __init__(self) -> None:
        self.build = Builder()
        self.n, self.p = Value(I32, "n"), Value(ScalarType(Pointer(float32)), "p")
        self.line = 0
        self.lane, self.warp = self(program.lane_id), self(program.warp_id)
        self.one = self(arith.constant, value=1, type=I32)

    def __call__(self, kind, *operands, **attrs):
        self.line += 1
        self.build.loc = Loc("kernel.py", self.line)
        return self.build.emit(kind, *operands, **attrs)

    def less(self, x):
        return self(arith.cmp, x, self.n, predicate="lt")

    def branch(self, condition, *ops):
        """An if with one operation in it: `ops` are a kind and its operands."""
        with self.build.region() as then:
            if ops:
                self(*ops)
            self(control.yield_)
        with self.build.region() as orelse:
            self(control.yield_)
        self(control.if_, condition, regions=(then.done, orelse.done))

    def scopes(self):
        self(control.return_)
        return scopes(
            self.build.func(
                "k", (self.n, self.p), FuncAttrs(num_warps=4, stage="tile", params=(ParamFacts(), ParamFacts()))
            )
        )


def test_operands_are_joined():
    k = Kernel()
    values = [k(arith.add, x, y) for x, y in [(k.n, k.one), (k.n, k.warp), (k.warp, k.lane)]]
    claimed = k(hints.uniform, k.lane)
    at = k(memory.load, k(memory.addptr, k.p, k.lane), None, None)
    found = k.scopes()
    assert [found[v] for v in values] == ["block", "warp", "thread"]
    assert found[claimed] == "block"
    assert found[at] == "thread"
    assert found[k.n] == "block"


@pytest.mark.parametrize("what", ["one", "warp", "lane"])
def test_branches_join_what_decides(what):
    k = Kernel()
    with k.build.region() as then:
        inner = k(arith.add, k.n, k.one)
        k(control.yield_, inner)
    with k.build.region() as orelse:
        k(control.yield_, k.n)
    result = k(control.if_, k.less(getattr(k, what)), regions=(then.done, orelse.done))
    found = k.scopes()
    assert found[result] == {"one": "block", "warp": "warp", "lane": "thread"}[what]
    assert found[inner] == "block"


def loop(k, upper, init, step):
    with k.build.region([I32, I32]) as body:
        k(control.yield_, step(*body.args))
    return body.args, k(control.for_, k.one, upper, k.one, init, descending=False, regions=(body.done,))


def test_loops_join_their_bounds_and_what_they_carry():
    k = Kernel()
    (i, a), plain = loop(k, k.n, k.one, lambda i, a: k(arith.add, i, a))
    (j, b), often = loop(k, k.lane, k.one, lambda i, a: k(arith.add, a, k.one))
    (_, c), grown = loop(k, k.n, k.one, lambda i, a: k(arith.add, a, k.warp))
    found = k.scopes()
    assert [found[v] for v in (i, a, plain)] == ["block"] * 3
    assert [found[v] for v in (j, b, often)] == ["thread"] * 3
    assert [found[v] for v in (c, grown)] == ["warp"] * 2


def spin(k, change):
    with k.build.region([I32]) as before:
        k(control.condition, k.less(before.args[0]), before.args[0])
    with k.build.region([I32]) as after:
        k(control.yield_, change(after.args[0]))
    return k(control.while_, k.one, regions=(before.done, after.done))


def test_whiles_are_decided_by_what_they_carry():
    k = Kernel()
    plain = spin(k, lambda x: k(arith.add, x, k.one))
    own = spin(k, lambda x: k(arith.add, x, k.lane))
    found = k.scopes()
    assert (found[plain], found[own]) == ("block", "thread")


def refused(k) -> CompilationError:
    with pytest.raises(CompilationError) as error:
        k.scopes()
    assert error.value.code == "control-scope"
    return error.value


@pytest.mark.parametrize("what", ["warp", "lane"])
def test_a_barrier_needs_the_block(what):
    k = Kernel()
    k.branch(k.less(getattr(k, what)), sync.barrier)
    error = refused(k)
    assert "gl.barrier() must be executed by the whole block" in error.message
    assert f"may differ in each {'thread' if what == 'lane' else 'warp'}" in error.message
    barrier = k.line - 4
    assert (error.loc.line, error.related[0][1].line) == (barrier, k.line - 1)


def test_block_wide_conditions_and_claims_are_fine():
    k = Kernel()
    k.branch(k.less(k.n), sync.barrier)
    k.branch(k(hints.uniform, k.less(k.lane)), sync.barrier)
    k.branch(k.less(k.lane), arith.add, k.n, k.lane)
    k.branch(k.less(k.lane), memory.load, k.p, None, None)
    k.scopes()


def test_tiles_need_the_block():
    k = Kernel()
    x = k(tile.splat, k.n, shape=(128,), layout=LINE)
    k.branch(k.less(k.lane), arith.add, x, x)
    assert "arith.add" in refused(k).message


def test_writes_of_the_program_need_the_block():
    k = Kernel()
    k.branch(k.less(k.lane), memory.store, k.p, k(arith.constant, value=1.0, type=ScalarType(float32)), None)
    assert "memory.store" in refused(k).message


def test_inner_conditions_do_not_widen():
    k = Kernel()
    with k.build.region() as then:
        k.branch(k.less(k.n), sync.barrier)
        k(control.yield_)
    with k.build.region() as orelse:
        k(control.yield_)
    k(control.if_, k.less(k.lane), regions=(then.done, orelse.done))
    refused(k)


@pytest.mark.parametrize("make", [
    lambda k: loop(k, k.lane, k.one, lambda i, a: k(sync.barrier) or a),
    lambda k: spin(k, lambda x: k(sync.barrier) or k(arith.add, x, k.lane)),
])  # fmt: skip
def test_loops_that_threads_leave_one_by_one(make):
    k = Kernel()
    make(k)
    refused(k)


def test_functions_of_elements_are_each_threads_own():
    k = Kernel()
    x = k(arith.constant, value=1.0, type=tile_type(float32, (128,), LINE))
    with k.build.region([ScalarType(float32)] * 2) as combine:
        k(control.yield_, k(arith.add, *combine.args))
    total = k(tile.reduce, x, axis=0, regions=(combine.done,))
    found = k.scopes()
    assert found[total] == "block"
    assert found[combine.args[0]] == "thread"


def test_a_barrier_in_a_function_of_elements():
    k = Kernel()
    x = k(arith.constant, value=1.0, type=tile_type(float32, (128,), LINE))
    with k.build.region([ScalarType(float32)] * 2) as combine:
        k(sync.barrier)
        k(control.yield_, combine.args[0])
    k(tile.reduce, x, axis=0, regions=(combine.done,))
    refused(k)
