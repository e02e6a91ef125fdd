from __future__ import annotations

from weft.ir.build import Builder
from weft.ir.core import Func, FuncAttrs, ParamFacts, Value, walk
from weft.ir.text import format_func
from weft.ir.types import DescriptorType, Pointer, ScalarType, float32, int1, int32
from weft.ir.verify import verify
from weft.layout import NVMMASharedLayout
from weft.ops import arith, control, debug, hints, memory, sync, tma
from weft.passes.dce import dce

I32 = ScalarType(int32)


class Kernel:
    def __init__(self) -> None:
        self.build = Builder()
        self.n, self.b = Value(I32, "n"), Value(ScalarType(int1), "b")
        self.p = Value(ScalarType(Pointer(float32)), "p")
        self.one = self(arith.constant, value=1, type=I32)

    def __call__(self, op, /, *operands, **attrs):
        return self.build.emit(op, *operands, **attrs)

    def keep(self, value):
        self(debug.print_, value, prefix="")

    def run(self) -> Func:
        """The pass's result, well formed, with the old function untouched."""
        self(control.return_)
        attrs = FuncAttrs(num_warps=4, stage="tile", params=(ParamFacts(),) * 3)
        func = self.build.func("k", (self.n, self.b, self.p), attrs)
        text = format_func(func)
        new = dce(func)
        verify(new)
        assert format_func(func) == text
        return new

    def kinds(self):
        return [op.kind for op in walk(self.run().body)]

    def branch(self, then, orelse):
        with self.build.region() as a:
            self(control.yield_, *then())
        with self.build.region() as b:
            self(control.yield_, *orelse())
        return self(control.if_, self.b, regions=(a.done, b.done))

    def loop(self, *inits, body):
        with self.build.region([I32] * (1 + len(inits))) as region:
            self(control.yield_, *body(*region.args))
        return self(control.for_, self.one, self.n, self.one, *inits, descending=False, regions=(region.done,))

    def add(self, a, b):
        return self(arith.add, a, b)


def made(func: Func, kind):
    (op,) = (op for op in walk(func.body) if op.kind is kind)
    return op


def test_chains_of_dead_operations_go():
    k = Kernel()
    k.add(k.add(k.n, k.one), k.n)
    assert k.kinds() == [control.return_]


def test_a_live_function_is_returned_as_it_is():
    k = Kernel()
    k.keep(k.add(k.n, k.one))
    k(control.return_)
    func = k.build.func("k", (k.n,), FuncAttrs(num_warps=4, stage="tile", params=(ParamFacts(),)))
    assert dce(func) is func


def test_reads_go_and_effects_stay():
    k = Kernel()
    x = k(memory.load, k.p, None, None)
    k(memory.load, k.p, None, None)
    k(memory.load, k.p, None, None, volatile=True)
    k(memory.store, k.p, x, None)
    k(memory.atomic, k.p, x, None, kind="add")
    k(sync.barrier)
    k(hints.assume, k.b)
    kinds = k.kinds()
    assert kinds == [
        memory.load, memory.load, memory.store, memory.atomic, sync.barrier, hints.assume, control.return_,
    ]  # fmt: skip


def test_prefetches_stay():
    k, desc = Kernel(), Value(DescriptorType(float32, (64,), NVMMASharedLayout(0, 32, 1)), "desc")
    k(tma.prefetch, desc)
    k(control.return_)
    func = dce(k.build.func("k", (desc,), FuncAttrs(num_warps=4, stage="lowered", params=(ParamFacts(),))))
    assert [op.kind for op in walk(func.body)] == [tma.prefetch, control.return_]


def test_dead_control_flow_goes():
    k = Kernel()
    k.loop(k.n, body=lambda i, a: [k.add(a, i)])
    k.branch(lambda: [k.add(k.n, k.one)], lambda: [k.n])
    assert k.kinds() == [control.return_]


def test_control_flow_with_effects_stays():
    k = Kernel()
    k.loop(body=lambda i: k.branch(lambda: k.keep(k.n) or [], list) or [])
    assert control.for_ in k.kinds()
    k = Kernel()
    with k.build.region() as before:
        k(control.condition, k.b)
    with k.build.region() as after:
        k(control.yield_)
    k(control.while_, regions=(before.done, after.done))
    assert control.while_ in k.kinds()


def test_values_that_a_loop_carries_for_nobody():
    """`a` is wanted; `b` feeds it; `c` feeds only itself; `d` feeds `c`, and `e` is printed inside."""
    k = Kernel()

    def body(i, a, b, c, d, e):
        k.keep(e)
        return [k.add(a, b), k.add(b, i), k.add(c, d), k.add(d, i), k.add(e, i)]

    a, *_ = k.loop(k.n, k.one, k.n, k.one, k.n, body=body)
    k.keep(a)
    func = k.run()
    loop = made(func, control.for_)
    assert (len(loop.results), len(loop.operands), len(loop.regions[0].args)) == (3, 6, 4)
    assert [op.kind for op in loop.regions[0].ops] == [debug.print_, arith.add, arith.add, arith.add, control.yield_]
    assert loop.results[0] is a


def test_a_result_that_is_live_in_an_outer_loop():
    k = Kernel()
    result = k.loop(k.n, k.one, body=lambda i, a, b: k.loop(a, b, body=lambda j, c, d: [k.add(c, d), d]))[0]
    k.keep(result)
    loops = [op for op in walk(k.run().body) if op.kind is control.for_]
    assert [len(op.results) for op in loops] == [2, 2]


def test_results_of_branches():
    k = Kernel()
    x, _ = k.branch(lambda: [k.n, k.add(k.n, k.n)], lambda: [k.one, k.one])
    k.keep(x)
    func = k.run()
    assert len(made(func, control.if_).results) == 1
    assert arith.add not in {op.kind for op in walk(func.body)}


def test_values_that_a_while_carries():
    """Of three values one decides, one is a result, and one does nothing; an unused constant is carried."""
    k = Kernel()
    with k.build.region([I32] * 3, ["go", "sum", "dead"]) as before:
        go, total, dead = before.args
        k(control.condition, k(arith.cmp, go, k.n, predicate="lt"), go, total, dead, k.one)
    with k.build.region([I32] * 4) as after:
        go, total, dead, _ = after.args
        k(control.yield_, k.add(go, k.one), k.add(total, go), k.add(dead, go))
    _, total, _, _ = k(control.while_, k.n, k.n, k.n, regions=(before.done, after.done))
    k.keep(total)
    func = k.run()
    op = made(func, control.while_)
    assert (len(op.operands), len(op.results)) == (2, 2)
    assert [a.name for a in op.regions[0].args] == ["go", "sum"]
    assert total in op.results
