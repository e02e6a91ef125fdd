from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from weft import targets
from weft.errors import Loc
from weft.errors.launch import OutOfResources
from weft.ir.build import Builder
from weft.ir.core import FuncAttrs, ParamFacts, Value, walk
from weft.ir.types import RegsType, ScalarType, float16, float32, int1, int32
from weft.ir.verify import verify
from weft.ops import arith, control, shared
from weft.passes.lowered.allocate_scratch import allocate_scratch

SM90 = targets.get("sm_90a")
I32 = ScalarType(int32)


class Kernel:
    def __init__(self) -> None:
        self.build = Builder()
        self.n = Value(I32, "n")
        self.zero = self(arith.constant, value=0, type=I32)
        self.count = 0

    def __call__(self, op, /, *operands, **attrs):
        return self.build.emit(op, *operands, **attrs)

    def alloc(self, count, dtype=float32):
        self.count += 1
        self.build.loc = Loc("kernel.py", self.count)
        return self(shared.scratch, dtype=dtype, count=count, tag=self.count, name=f"s{self.count}")

    def write(self, memory):
        x = self(arith.constant, value=0.0, type=RegsType(memory.type.element, 1))
        self(shared.store_regs, memory, self.zero, x, None, offsets=(0,), registers=((0,),), vec=1)

    def read(self, memory):
        self(shared.load_regs, memory, self.zero, offsets=(0,), registers=((0,),), vec=1)

    def loop(self, body):
        with self.build.region([I32]) as region:
            body()
            self(control.yield_)
        self(control.for_, self.zero, self.n, self.n, descending=False, regions=(region.done,))

    def branch(self, then, orelse):
        with self.build.region() as a:
            then()
            self(control.yield_)
        with self.build.region() as b:
            orelse()
            self(control.yield_)
        test = self(arith.constant, value=True, type=ScalarType(int1))
        self(control.if_, test, regions=(a.done, b.done))

    def run(self, target=SM90):
        self(control.return_)
        func = self.build.func("k", (self.n,), FuncAttrs(num_warps=4, stage="lowered", params=(ParamFacts(),)))
        new = allocate_scratch(func, target)
        verify(new)
        return new

    def offsets(self):
        func = self.run()
        return [op.attrs["offset"] for op in walk(func.body) if op.kind is shared.scratch], func.attrs.shared_bytes


def test_no_scratch_no_bytes():
    assert Kernel().offsets() == ([], 0)


def test_bytes_are_shared_one_after_another():
    k = Kernel()
    for count in (100, 30):
        memory = k.alloc(count)
        k.write(memory)
        k.read(memory)
    assert k.offsets() == ([0, 0], 400)


def test_what_is_alive_together_lies_apart_and_aligned():
    k = Kernel()
    a, b, c = k.alloc(5, float16), k.alloc(3), k.alloc(1)
    for memory in (a, b, c, a, b, c):
        k.write(memory)
    assert k.offsets() == ([0, 16, 32], 48)


def test_gaps_are_filled():
    k = Kernel()
    a, b = k.alloc(8), k.alloc(8)
    c, d = k.alloc(8), k.alloc(16)
    for memory in (a, b, a, c, d, c, b):
        k.write(memory)
    assert k.offsets() == ([0, 32, 0, 64], 128)


def test_memory_from_before_a_loop_lives_through_it():
    k = Kernel()
    a = k.alloc(8)
    k.write(a)

    def body():
        k.read(a)
        b = k.alloc(8)
        k.write(b)

    k.loop(body)
    c = k.alloc(8)
    k.write(c)
    assert k.offsets() == ([0, 32, 0], 64)


def test_memory_that_only_a_loop_uses_lives_through_it_too():
    """What one iteration leaves in it the next one may read."""
    k = Kernel()
    a = k.alloc(8)

    def body():
        b = k.alloc(8)
        k.write(b)
        k.read(a)
        k.write(a)

    k.loop(body)
    assert sorted(k.offsets()[0]) == [0, 32]


def test_memory_made_in_a_loop_is_free_after_its_last_use():
    k = Kernel()

    def body():
        for _ in range(2):
            memory = k.alloc(8)
            k.write(memory)
            k.read(memory)

    k.loop(body)
    assert k.offsets() == ([0, 0], 32)


def test_branches_share_bytes():
    k = Kernel()
    k.branch(lambda: k.write(k.alloc(8)), lambda: k.write(k.alloc(16)))
    assert k.offsets() == ([0, 0], 64)


def test_unused_memory_does_no_harm():
    k = Kernel()
    k.alloc(8)
    assert k.offsets() == ([0], 32)


def test_the_bill():
    k = Kernel()
    a, b = k.alloc(1000), k.alloc(2000)
    for memory in (a, b, a):
        k.write(memory)
    with pytest.raises(OutOfResources) as error:
        k.run(replace(SM90, shared_bytes=10000))
    assert error.value.code == "shared-memory"
    assert error.value.message.startswith(
        "the kernel needs 12000 bytes of shared memory, but the target has 10000 per block: "
    )
    assert error.value.message.endswith(
        "s2 takes 8000 bytes at kernel.py:2, in use at line 2; s1 takes 4000 bytes at kernel.py:1, in use at line 2"
    )
    assert error.value.loc == Loc("kernel.py", 2)


@settings(deadline=None, max_examples=examples(60))
@given(st.data())
def test_no_two_that_are_alive_overlap(data):
    k = Kernel()
    sizes = data.draw(st.lists(st.integers(1, 64), min_size=1, max_size=6))
    memories = [k.alloc(size) for size in sizes]
    order = data.draw(st.lists(st.sampled_from(range(len(sizes))), min_size=1, max_size=14))
    for i in order:
        k.write(memories[i])
    offsets, total = k.offsets()
    for i, at in enumerate(offsets):
        assert at % 16 == 0
        assert at + 4 * sizes[i] <= total
        for j in range(i):
            if i not in order or j not in order:
                continue
            spans = [(order.index(m), len(order) - 1 - order[::-1].index(m)) for m in (i, j)]
            together = spans[0][0] <= spans[1][1] and spans[1][0] <= spans[0][1]
            apart = at + 4 * sizes[i] <= offsets[j] or offsets[j] + 4 * sizes[j] <= at
            assert apart or not together


# Beside the author's buffers


class LoweredKernel:
    """The author's buffer of 64 bytes at byte 0, and scratch memory."""

    def __init__(self) -> None:
        self.build = Builder()
        self.zero = self.build.emit(arith.constant, value=0, type=ScalarType(int32))
        self.own = self.alloc(0, offset=0)

    def alloc(self, tag: int, offset: int = -1) -> Value:
        return self.build.emit(shared.scratch, dtype=float32, count=16, tag=tag, offset=offset)

    def write(self, memory: Value) -> None:
        x = self.build.emit(arith.constant, value=0.0, type=RegsType(float32, 1))
        self.build.emit(shared.store_regs, memory, self.zero, x, None, offsets=(0,), registers=((0,),), vec=1)

    def offsets(self, **attrs: object) -> tuple[list[int], int]:
        self.build.emit(control.return_)
        func = allocate_scratch(self.build.func("k", (), FuncAttrs(num_warps=4, stage="lowered", **attrs)), SM90)
        found = [op.attrs["offset"] for op in walk(func.body) if op.kind is shared.scratch]
        return found, func.attrs.shared_bytes


def test_scratch_lies_beside_what_is_alive_and_where_it_is_not():
    k = LoweredKernel()
    before, among, after = k.alloc(1), k.alloc(2), k.alloc(3)
    for memory in (before, k.own, among, k.own, after):
        k.write(memory)
    assert k.offsets(shared_bytes=64) == ([0, 0, 64, 0], 128)


def test_shared_bytes_never_shrink():
    k = LoweredKernel()
    k.write(k.alloc(1))
    assert k.offsets(shared_bytes=4096)[1] == 4096


def test_scratch_stays_away_from_what_the_author_keeps_alive():
    k = LoweredKernel()
    k.write(k.own)
    k.write(k.alloc(1))
    assert k.offsets(shared_bytes=64, kept_bytes=((0, 64),)) == ([0, 64], 128)


def test_scratch_of_partitions_lies_apart():
    k = LoweredKernel()
    regions = []
    for tag in (1, 2):
        with k.build.region() as body:
            memory = k.alloc(tag)
            k.write(memory)
            k.build.emit(control.yield_)
        regions.append(body.done)
    k.build.emit(control.partitions, regions=tuple(regions), first_warps=(0, 4), num_warps=(4, 4), num_regs=(0, 0))
    assert k.offsets()[0] == [0, 0, 64]


@pytest.mark.parametrize(("columns", "most"), [(512, 1), (256, 2), (128, 4), (32, 16)])
def test_clusters_that_a_multiprocessor_has_no_tensor_memory_for_do_not_fit_on_it(columns, most):
    target = targets.get("sm_100a")

    def taken(**attrs):
        k = Kernel()
        k.write(k.alloc(8))
        k(control.return_)
        func = k.build.func(
            "k", (k.n,), FuncAttrs(**{"num_warps": 4, "stage": "lowered", "params": (ParamFacts(),), **attrs})
        )
        return allocate_scratch(func, target).attrs.shared_bytes

    assert target.resident_blocks(32, 32, taken(num_ctas=2, tensor_columns=columns)) == most
    assert taken(tensor_columns=columns) == taken(num_ctas=2) == 32
