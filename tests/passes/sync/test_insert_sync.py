from __future__ import annotations

import pytest

from weft.ir.build import Builder
from weft.ir.core import FuncAttrs, ParamFacts, Value, walk
from weft.ir.types import Pointer, RegsType, ScalarType, float32, int1, int32
from weft.ir.verify import verify
from weft.ops import arith, control, debug, memory, regs, shared, sync
from weft.passes.sync.insert_sync import insert_sync

I32 = ScalarType(int32)


class Kernel:
    """`a` and `b` are scratch memory at different bytes, `c` overlaps `b`."""

    def __init__(self) -> None:
        self.build = Builder()
        self.n, self.p = Value(I32, "n"), Value(ScalarType(Pointer(float32)), "p")
        self.zero = self(arith.constant, value=0, type=I32)
        self.x = self(arith.constant, value=0.0, type=RegsType(float32, 1))
        self.at = self(regs.splat, self.p, count=1)
        self.a, self.b, self.c = (self.alloc(tag, offset) for tag, offset in enumerate((0, 64, 112)))

    def __call__(self, op, /, *operands, **attrs):
        return self.build.emit(op, *operands, **attrs)

    def alloc(self, tag, offset):
        return self(shared.scratch, dtype=float32, count=16, tag=tag, offset=offset)

    def write(self, memory):
        self(shared.store_regs, memory, self.zero, self.x, None, offsets=(0,), registers=((0,),), vec=1)

    def read(self, memory):
        self(shared.load_regs, memory, self.zero, offsets=(0,), registers=((0,),), vec=1)

    def load(self):
        self(memory.load_regs, self.p, None, None, offsets=((0,),), registers=((0,),), vec=1, count=1)

    def store(self):
        self(memory.store_regs, self.p, self.x, None, offsets=((0,),), registers=((0,),), vec=1)

    def atomic(self, order):
        self(memory.atomic_regs, self.at, self.x, None, kind="add", order=order, scope="gpu")

    def loop(self, *steps):
        with self.build.region([I32]) as body:
            self.steps(steps)
            self(control.yield_)
        self(control.for_, self.zero, self.n, self.n, descending=False, regions=(body.done,))

    def spin(self, before, after):
        with self.build.region() as condition:
            self.steps(before)
            self(control.condition, self(arith.constant, value=True, type=ScalarType(int1)))
        with self.build.region() as body:
            self.steps(after)
            self(control.yield_)
        self(control.while_, regions=(condition.done, body.done))

    def branch(self, then, orelse):
        with self.build.region() as a:
            self.steps(then)
            self(control.yield_)
        with self.build.region() as b:
            self.steps(orelse)
            self(control.yield_)
        self(control.if_, self(arith.constant, value=True, type=ScalarType(int1)), regions=(a.done, b.done))

    def steps(self, steps):
        """`Wa` writes scratch `a`, `Ra` reads it, `|` is a barrier, `L`, `S` access global memory, words: atomics' orders."""
        for step in steps:
            if step == "|":
                self(sync.barrier)
            elif step[0] in "WR":
                (self.write if step[0] == "W" else self.read)(getattr(self, step[1]))
            elif step in ("L", "S"):
                (self.load if step == "L" else self.store)()
            else:
                self.atomic(step)

    def shown(self) -> str:
        """Accesses and barriers of the function after the pass; `!` is one that was inserted."""
        self(control.return_)
        func = self.build.func(
            "k", (self.n, self.p), FuncAttrs(num_warps=4, stage="lowered", params=(ParamFacts(), ParamFacts()))
        )
        before = [op for op in walk(func.body) if op.kind is not sync.barrier]
        new = insert_sync(func)
        verify(new)
        ops = list(walk(new.body))
        assert [op.kind for op in ops if op.kind is not sync.barrier] == [op.kind for op in before]
        return " ".join(filter(None, map(self._show, ops)))

    def _show(self, op):
        if op.kind is sync.barrier:
            return "!" if op.attrs["reason"] else "|"
        if op.kind in (control.for_, control.while_, control.if_):
            return op.kind.name.removeprefix("control.") + "("
        if op.kind in (control.yield_, control.condition):
            return ")"
        if op.kind in (shared.load_regs, shared.store_regs):
            return ("R" if op.kind is shared.load_regs else "W") + "abc"[[self.a, self.b, self.c].index(op.operands[0])]
        return {memory.load_regs: "L", memory.store_regs: "S", memory.atomic_regs: op.attrs.get("order")}.get(
            op.kind, ""
        )


@pytest.mark.parametrize(
    ("steps", "shown"),
    [
        ("Wa Ra", "Wa ! Ra"),
        ("Wa Wa", "Wa ! Wa"),
        ("Ra Wa", "Ra ! Wa"),
        ("Ra Ra", "Ra Ra"),
        ("Wa Rb", "Wa Rb"),
        ("Wb Rc", "Wb ! Rc"),
        ("Wa Wb Ra Rb", "Wa Wb ! Ra Rb"),
        ("Wa | Ra", "Wa | Ra"),
        ("Wa Ra Wa", "Wa ! Ra ! Wa"),
        ("S L S", "S L S"),
        ("S release", "S ! release"),
        ("L acq_rel", "L ! acq_rel"),
        ("S relaxed", "S relaxed"),
        ("S | release", "S | release"),
        ("acquire L", "acquire ! L"),
        ("acquire S S", "acquire ! S S"),
        ("acquire relaxed", "acquire ! relaxed"),
        ("relaxed release", "relaxed ! release"),
        ("acq_rel acq_rel", "acq_rel ! acq_rel"),
        ("acquire Wa", "acquire Wa"),
        ("release release", "release ! release"),
    ],
)
def test_straight_lines(steps, shown):
    k = Kernel()
    k.steps(steps.split())
    assert k.shown() == shown


def test_a_loop_meets_itself():
    k = Kernel()
    k.loop("Wa", "Ra")
    assert k.shown() == "for( ! Wa ! Ra )"
    k = Kernel()
    k.loop("Wa", "|", "Ra", "|")
    assert k.shown() == "for( Wa | Ra | )"


def test_a_loop_meets_what_is_around_it():
    k = Kernel()
    k.steps(["Wa"])
    k.loop("Ra")
    k.steps(["Wa"])
    assert k.shown() == "Wa ! for( Ra ) ! Wa"


def test_a_loop_that_may_not_run_leaves_open_what_was():
    k = Kernel()
    k.steps(["Wa"])
    k.loop("|")
    k.steps(["Ra"])
    assert k.shown() == "Wa for( | ) ! Ra"


def test_loops_in_loops():
    k = Kernel()
    with k.build.region([I32]) as body:
        k.loop("Ra")
        k.steps(["Wa"])
        k(control.yield_)
    k(control.for_, k.zero, k.n, k.n, descending=False, regions=(body.done,))
    assert k.shown() == "for( ! for( Ra ) ! Wa )"


def test_branches():
    k = Kernel()
    k.steps(["Wa"])
    k.branch(["Ra"], [])
    k.steps(["Ra"])
    assert k.shown() == "Wa if( ! Ra ) ) ! Ra"
    k = Kernel()
    k.branch(["Wa"], ["Ra"])
    assert k.shown() == "if( Wa ) Ra )"


def test_a_while_is_left_after_its_condition():
    """The barrier at the end of the body does not help what follows: the condition was the last to run."""
    k = Kernel()
    k.spin(["Ra"], ["|"])
    k.steps(["Wa"])
    assert k.shown() == "while( Ra ) | ) ! Wa"


def test_a_while_meets_itself():
    k = Kernel()
    k.spin(["Ra"], ["Wa"])
    assert k.shown() == "while( ! Ra ) ! Wa )"


def test_an_acquire_is_waited_for_before_branches_and_loops():
    """Loads may stand where not all threads come, and there no barrier may."""
    k = Kernel()
    k.steps(["acquire"])
    k.branch(["L"], [])
    k.steps(["L"])
    assert k.shown() == "acquire ! if( L ) ) L"
    k = Kernel()
    k.steps(["acquire"])
    k.branch(["Wa"], [])
    k.loop("L", "L")
    assert k.shown() == "acquire if( Wa ) ) ! for( L L )"
    k = Kernel()
    k.loop("L", "acquire")
    assert k.shown() == "for( ! L acquire )"


def test_adding_up_meets_itself():
    k = Kernel()
    index, one = (k(arith.constant, value=v, type=RegsType(int32, 1)) for v in (0, 1))
    memory = k(shared.scratch, dtype=int32, count=4, tag=9, offset=0)
    k(shared.atomic_at, memory, index, one, None, kind="add")
    k(debug.print_, k(shared.load_at, memory, index), prefix="")
    assert k.shown().strip() == "!"


def test_says_why():
    k = Kernel()
    k.steps(["Wa", "Ra"])
    k(control.return_)
    func = insert_sync(
        k.build.func("k", (k.n, k.p), FuncAttrs(num_warps=4, stage="lowered", params=(ParamFacts(),) * 2))
    )
    (barrier,) = (op for op in func.body.ops if op.kind is sync.barrier)
    assert barrier.attrs["reason"] == "before shared.load_regs"
