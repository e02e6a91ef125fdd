"""Aggregates as persistent kernels use them: state that methods return, unions, classes made by functions and passed around."""

from __future__ import annotations

from typing import Any, Union

import pytest

import weft
from tests.lang.support import INT, POINTER, descriptor, jit, mistake, ops, read
from weft import language as gl
from weft.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_accumulator,
    warpgroup_mma_layout,
    warpgroup_mma_wait,
)


@gl.aggregate
class Mma:
    acc: Union[warpgroup_mma_accumulator, gl.tensor]  # noqa: UP007
    use_acc: gl.tensor

    def __init__(self, acc, use_acc):
        self.acc = acc
        self.use_acc = use_acc

    @jit
    def initialize(dtype: gl.constexpr, M: gl.constexpr, N: gl.constexpr, num_warps: gl.constexpr):  # noqa: N805
        layout: gl.constexpr = warpgroup_mma_layout(dtype, [M, N], num_warps)
        return Mma(gl.zeros([M, N], gl.float32, layout), gl.to_tensor(False))

    @jit
    def start(self, a, b):
        acc = warpgroup_mma(a, b, self.acc, is_async=True, use_acc=self.use_acc)
        return Mma(acc, gl.to_tensor(True))

    @jit
    def wait(self, count: gl.constexpr):
        return Mma(warpgroup_mma_wait(count, (self.acc,)), self.use_acc)

    @jit
    def take(self):
        return self.acc, Mma(self.acc, gl.to_tensor(False))


def scheduler(GROUP):
    GROUP = gl.constexpr(GROUP)

    @gl.aggregate
    class Scheduler:
        first: gl.tensor
        tiles: gl.tensor

        @jit
        def initialize(tiles):  # noqa: N805
            return Scheduler(gl.program_id(0), tiles)

        @jit
        def count(self):
            return gl.cdiv(self.tiles - self.first, gl.num_programs(0))

        @jit
        def tile(self, index):
            return self.first + index * GROUP, min(self.tiles, GROUP)

    Scheduler.__name__ = f"Scheduler({GROUP.value})"
    return Scheduler


@jit
def persistent(a_desc, b_desc, c_desc, Impl: gl.constexpr, Schedule: gl.constexpr, stages: gl.constexpr, n):
    BM: gl.constexpr = c_desc.block_type.shape[0]
    BN: gl.constexpr = c_desc.block_type.shape[1]
    BK: gl.constexpr = a_desc.block_type.shape[1]
    dtype: gl.constexpr = a_desc.dtype
    gl.static_assert(stages >= 2, "expected at least 2 buffers")
    bars = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    step = 0
    mma = Impl.initialize(dtype, BM, BN, 4)
    schedule = Schedule.initialize(n)
    for index in range(schedule.count()):
        m, limit = schedule.tile(index)
        a_bufs = gl.allocate_shared_memory(dtype, [stages] + a_desc.block_type.shape, a_desc.layout)  # noqa: RUF005
        b_bufs = gl.allocate_shared_memory(dtype, [stages] + b_desc.block_type.shape, b_desc.layout)  # noqa: RUF005
        for k in range(0, a_desc.shape[1], BK):
            slot = step % stages
            pred = step < limit
            mbarrier.expect(bars.index(slot), a_desc.block_type.nbytes + b_desc.block_type.nbytes, pred)
            tma.async_copy_global_to_shared(a_desc, [m * BM, k], bars.index(slot), a_bufs.index(slot), pred)
            mbarrier.wait(bars.index(slot), step // stages & 1)
            mma = mma.wait(0)
            mma = mma.start(a_bufs.index(slot), b_bufs.index(slot))
            step += 1
        c_buf = b_bufs.index(step % stages)._reinterpret(dtype, c_desc.block_type.shape, c_desc.layout)
        mma = mma.wait(0)
        c, mma = mma.take()
        c_buf.store(c.to(dtype))


def params(**changed: Any) -> dict[str, Any]:
    descs = {f"{x}_desc": descriptor(f"{x}_desc") for x in "abc"}
    return {**descs, "Impl": Mma, "Schedule": scheduler(8), "stages": 3, "n": INT, **changed}


def test_a_persistent_kernel():
    func = read(persistent, **params())
    outer, inner = ops(func, "control.for")
    # The accumulator, whether it counts, and the step; the scheduler stays as it is.
    assert sorted(v.name for v in outer.results) == ["mma_acc", "mma_use_acc", "step"]
    assert len(inner.results) == 3
    buffers = [op for op in ops(func, "shared.alloc") if len(op.attrs["shape"]) == 3]
    assert [op in outer.regions[0].ops for op in buffers] == [True, True]
    (stolen,) = ops(func, "shared.reinterpret")
    assert stolen.results[0].type.shape == (64, 64)
    (product,) = ops(func, "mma.warpgroup")
    assert product.operands[3] in inner.regions[0].args


def test_a_class_that_a_function_makes():
    constants = {
        group: {
            op.attrs["value"] for op in ops(read(persistent, **params(Schedule=scheduler(group))), "arith.constant")
        }
        for group in (5, 7)
    }
    assert 5 in constants[5]
    assert 5 not in constants[7]
    assert 7 in constants[7]


def test_a_renamed_class_is_called_by_its_name():
    @jit
    def kernel(a_desc, Schedule: gl.constexpr):
        Schedule(gl.program_id(0), a_desc)

    error = mistake(kernel, "language-field-type", a_desc=descriptor("a_desc"), Schedule=scheduler(3))
    assert "Scheduler(3).tiles is declared tensor, but got" in str(error)


@gl.aggregate
class Either:
    value: gl.tensor | gl.shared_memory_descriptor
    other: Union[gl.tensor, None]  # noqa: UP007


def test_a_field_of_a_union_holds_any_of_its_types():
    @jit
    def kernel(out, n):
        memory = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        one = Either(memory, None)
        two = Either(n, 3)
        gl.static_assert(one.other is None)
        gl.store(out, two.other + two.value)
        mbarrier.init(one.value, count=1)

    func = read(kernel, out=POINTER, n=INT)
    (added,) = ops(func, "arith.add")
    assert [str(x.type) for x in added.operands] == ["i32", "i32"]


def test_and_nothing_else():
    @jit
    def kernel(a_desc):
        Either(a_desc, 3)

    error = mistake(kernel, "language-field-type", a_desc=descriptor("a_desc"))
    assert "Either.value is declared tensor or shared_memory_descriptor, but got" in str(error)


@gl.aggregate
class Sums:
    acc: warpgroup_mma_accumulator

    @jit
    def add(self, a):
        return Sums(warpgroup_mma(a, a, self.acc, is_async=True))


def test_an_accumulator_goes_round_loops_and_through_branches():
    @jit
    def kernel(n):
        layout: gl.constexpr = warpgroup_mma_layout(gl.float16, [64, 64], 4)
        a = gl.allocate_shared_memory(gl.float16, [64, 64], gl.NVMMASharedLayout(128, 16, 2))
        sums = Sums(gl.zeros([64, 64], gl.float32, layout))
        i = 0
        while i < n:
            sums = sums.add(a)
            if i % 2 == 0:
                sums = Sums(warpgroup_mma_wait(1, sums.acc))
            i += 1
        gl.allocate_shared_memory(
            gl.float32, [64, 64], gl.NVMMASharedLayout(128, 32, 2), warpgroup_mma_wait(0, sums.acc)
        )

    func = read(kernel, n=INT)
    (loop,) = ops(func, "control.while")
    assert sorted(v.name for v in loop.results) == ["i", "sums_acc"]
    (branch,) = ops(func, "control.if")
    assert [v.name for v in branch.results] == ["sums_acc"]


def test_a_tuple_of_accumulators_goes_round():
    @jit
    def kernel(n):
        layout: gl.constexpr = warpgroup_mma_layout(gl.float16, [64, 64], 4)
        a = gl.allocate_shared_memory(gl.float16, [128, 64], gl.NVMMASharedLayout(128, 16, 2))
        b = gl.allocate_shared_memory(gl.float16, [64, 64], gl.NVMMASharedLayout(128, 16, 2))
        accs = (gl.zeros([64, 64], gl.float32, layout), gl.zeros([64, 64], gl.float32, layout))
        for _ in range(n):
            top = warpgroup_mma(a.slice(0, 64), b, accs[0], is_async=True)
            accs = (top, warpgroup_mma(a.slice(64, 64), b, accs[1], is_async=True))
            accs = warpgroup_mma_wait(0, accs)
        gl.device_print("sums", accs[0] + accs[1])

    func = read(kernel, n=INT)
    (wait,) = ops(func, "mma.warpgroup_wait")
    (loop,) = ops(func, "control.for")
    assert loop.regions[0].terminator.operands == wait.results


# Partitions


@gl.aggregate
class Ring:
    bufs: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    desc: tma.tensor_descriptor
    stages: gl.constexpr

    @jit
    def slot(self, i):
        return i % self.stages, i // self.stages & 1


@jit
def fills(ring, n):
    for i in range(n):
        slot, _ = ring.slot(i)
        mbarrier.expect(ring.full.index(slot), ring.desc.block_type.nbytes)
        tma.async_copy_global_to_shared(ring.desc, [0, i * 64], ring.full.index(slot), ring.bufs.index(slot))


@jit
def multiplies(ring, n, num_warps: gl.constexpr):
    acc = gl.zeros([64, 64], gl.float32, warpgroup_mma_layout(gl.float16, [64, 64], num_warps))
    for i in range(n):
        slot, phase = ring.slot(i)
        mbarrier.wait(ring.full.index(slot), phase)
        acc = warpgroup_mma(ring.bufs.index(slot), ring.bufs.index(slot), acc, is_async=True)
        acc = warpgroup_mma_wait(0, (acc,))
    gl.device_print("sums", acc)


@pytest.mark.parametrize("workers", [4, 8])
def test_partitions_take_aggregates(workers):
    @jit
    def kernel(desc, n, workers: gl.constexpr):
        bufs = gl.allocate_shared_memory(desc.dtype, [3] + desc.block_type.shape, desc.layout)  # noqa: RUF005
        ring = Ring(bufs, mbarrier.allocate_mbarrier(batch=3), desc, 3)
        gl.warp_specialize([(fills, (ring, n)), (multiplies, (ring, n, workers))], [workers])

    func = read(kernel, desc=descriptor("desc"), n=INT, workers=workers)
    (product,) = ops(func, "mma.warpgroup")
    assert product.results[0].type.layout.num_warps == workers


# The cache


def test_classes_with_unions_are_known_again_in_another_process():
    from weft.runtime.fingerprint import fingerprint

    def make(kind):
        @weft.aggregate
        class Box:
            value: gl.tensor

        Box.__annotations__["value"] = kind
        Box.__weft_aggregate__["value"] = kind
        return Box

    texts = {fingerprint(make(kind)) for kind in (Union[gl.tensor, None], Union[gl.tensor, None])}  # noqa: UP007
    assert len(texts) == 1
    assert fingerprint(make(gl.tensor | gl.shared_memory_descriptor)) not in texts
