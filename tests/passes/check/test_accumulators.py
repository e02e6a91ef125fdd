"""Accumulators in flight: what the compiler refuses, with both lines, what it lets through, and what becomes of waits."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tests.lang.support import INT, POINTER, build, jit, ops, pointed, read
from weft import language as gl
from weft import targets
from weft.errors import CompilationError, PerformanceWarning
from weft.ir.core import Func
from weft.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_init, warpgroup_mma_layout, warpgroup_mma_wait
from weft.passes.pipeline import lower_pipeline, tile_pipeline

SM90 = targets.get("sm_90a")
LAYOUT = gl.constexpr(warpgroup_mma_layout(gl.float16, [64, 64], 4))
SHARED = gl.constexpr(gl.NVMMASharedLayout(128, 16, 2))


@jit
def buffer():
    return gl.allocate_shared_memory(gl.float16, [64, 64], SHARED)


@jit
def zeros():
    return gl.zeros([64, 64], gl.float32, LAYOUT)


@jit
def start(a, acc):
    return warpgroup_mma(a, a, acc, is_async=True)


@jit
def save(out, x):
    at = (
        gl.arange(0, 64, gl.SliceLayout(1, LAYOUT))[:, None] * 64 + gl.arange(0, 64, gl.SliceLayout(0, LAYOUT))[None, :]
    )
    gl.store(out + at, x)


def lowered(kernel: Any, **params: Any) -> Func:
    func = read(kernel, **{"out": POINTER, "n": INT, **params})
    return lower_pipeline(tile_pipeline(func, SM90), SM90)


def refused(kernel: Any, code: str, use: str) -> CompilationError:
    """The error of a kernel, whose carets point to the use and to the product, which `start` starts."""
    with pytest.raises(CompilationError) as caught:
        lowered(kernel)
    error = caught.value
    assert error.code == code
    assert error.loc is not None and list(error.loc.chain())[-1].source.strip() == use
    label, product = error.related[0]
    assert (
        label == "the MMA was issued here"
        and product.source.strip() == "return warpgroup_mma(a, a, acc, is_async=True)"
    )
    return error


# Reading


def test_reading_what_a_wait_left_under_way():
    @jit
    def kernel(out, n):
        acc = start(buffer(), zeros())
        acc = warpgroup_mma_wait(1, acc)
        save(out, acc)

    error = refused(kernel, "accumulator-in-flight", "save(out, acc)")
    assert "acc is used here" in error.message
    assert "acc = warpgroup_mma_wait(0, (acc,))" in error.fix


def test_reading_the_name_from_before_the_wait():
    @jit
    def kernel(out, n):
        acc = gl.zeros([64, 64], gl.float32, LAYOUT)
        for _ in range(n):
            acc = start(buffer(), acc)
        done = warpgroup_mma_wait(0, acc)
        save(out, acc + done)

    refused(kernel, "accumulator-in-flight", "save(out, acc + done)")


def test_reading_on_one_way_only():
    @jit
    def kernel(out, n):
        acc = zeros()
        if n > 3:
            acc = start(buffer(), acc)
        save(out, acc)

    refused(kernel, "accumulator-in-flight", "save(out, acc)")


def test_reading_in_the_next_round():
    @jit
    def kernel(out, n):
        acc = zeros()
        i = 0
        while i < n:
            save(out, acc)
            acc = start(buffer(), acc)
            i += 1
        warpgroup_mma_wait(0, acc)

    refused(kernel, "accumulator-in-flight", "save(out, acc)")


def test_a_loop_may_have_started_fewer_products():
    @jit
    def kernel(out, n):
        a = buffer()
        first = start(a, zeros())
        second = warpgroup_mma_init(zeros())
        for _ in range(n):
            second = start(a, second)
        first = warpgroup_mma_wait(1, first)
        save(out, first)
        save(out, warpgroup_mma_wait(0, second))

    refused(kernel, "accumulator-in-flight", "save(out, first)")


def test_sums_in_parts_read_their_accumulator():
    """The threads themselves add the parts, so one in flight would be read before anything is waited for."""
    layout = gl.constexpr(warpgroup_mma_layout(gl.float8e5, [64, 64], 4))
    memory = gl.constexpr(gl.NVMMASharedLayout(64, 8, 2))

    @jit
    def kernel(out, n):
        a = gl.allocate_shared_memory(gl.float8e5, [64, 64], memory)
        b = a.permute((1, 0))
        acc = gl.zeros([64, 64], gl.float32, layout)
        acc = warpgroup_mma(a, b, acc, is_async=True)
        acc = warpgroup_mma(a, b, acc, use_acc=n > 3, max_num_imprecise_acc=32)
        gl.device_print("sum", acc)

    with pytest.raises(CompilationError) as caught:
        lowered(kernel)
    assert caught.value.code == "accumulator-in-flight"
    assert pointed(caught.value) == "warpgroup_mma(a, b, acc, use_acc=n > 3, max_num_imprecise_acc=32)"


# Keeping


def test_two_products_take_one_accumulator():
    @jit
    def kernel(out, n):
        a = buffer()
        acc = start(a, zeros())
        left = start(a, acc)
        right = start(a, acc)
        left, right = warpgroup_mma_wait(0, (left, right))
        save(out, left + right)

    error = refused(kernel, "accumulator-kept", "right = start(a, acc)")
    assert error.related[1][0] == "it was handed on here"
    assert list(error.related[1][1].chain())[-1].source.strip() == "left = start(a, acc)"


def test_a_loop_takes_what_is_outside_again_and_again():
    @jit
    def kernel(out, n):
        a = buffer()
        acc = start(a, zeros())
        for _ in range(n):
            save(out, warpgroup_mma_wait(0, start(a, acc)))

    error = refused(kernel, "accumulator-kept", "save(out, warpgroup_mma_wait(0, start(a, acc)))")
    assert pointed(error) == "warpgroup_mma(a, a, acc, is_async=True)"


def test_accumulators_that_change_places():
    @jit
    def kernel(out, n):
        a = buffer()
        one = start(a, zeros())
        other = start(a, zeros())
        for _ in range(n):
            one, other = other, one
        one, other = warpgroup_mma_wait(0, (one, other))
        save(out, one)
        save(out, other)

    refused(kernel, "accumulator-moved", "for _ in range(n):")


# What is fine


def test_groups_complete_in_order():
    @jit
    def kernel(out, n):
        a = buffer()
        first = start(a, zeros())
        second = start(a, zeros())
        first = warpgroup_mma_wait(1, first)
        save(out, first)
        save(out, warpgroup_mma_wait(0, second))

    waits = ops(lowered(kernel), "mma.warpgroup_wait")
    assert [(op.attrs["pendings"], len(op.results)) for op in waits] == [(1, 1), (0, 1)]


def test_another_wait_may_have_completed_it():
    @jit
    def kernel(out, n):
        a = buffer()
        first = start(a, zeros())
        second = warpgroup_mma_wait(0, start(a, zeros()))
        first = warpgroup_mma_wait(7, first)
        save(out, first + second)

    assert len(ops(lowered(kernel), "mma.wgmma")) == 2


def test_what_is_under_way_goes_past_a_wait_untouched():
    @jit
    def kernel(out, n):
        a = buffer()
        acc = warpgroup_mma_init(zeros())
        for _ in range(n):
            acc = start(a, acc)
            acc = warpgroup_mma_wait(1, acc)
        save(out, warpgroup_mma_wait(0, acc))

    func = lowered(kernel)
    within, after = ops(func, "mma.warpgroup_wait")
    assert (within.results, len(after.results)) == ((), 1)
    (loop,) = ops(func, "control.for")
    (product,) = ops(func, "mma.wgmma")
    (begun,) = ops(func, "mma.begin")
    storage = func.attrs.storage
    assert len({storage[v] for v in (begun.result, *loop.results, product.result, after.result)}) == 1


def test_a_sum_that_nobody_reads():
    @jit
    def kernel(out, n):
        a = buffer()
        warpgroup_mma_wait(0, start(a, zeros()))
        warpgroup_mma(a, a, zeros())

    func = lowered(kernel)
    assert {wait.operands for wait in ops(func, "mma.warpgroup_wait")} == {()}
    assert not ops(func, "mma.wgmma")


def test_an_old_value_that_is_complete_may_be_kept():
    @jit
    def kernel(out, n):
        a = buffer()
        old = warpgroup_mma_wait(0, start(a, zeros()))
        new = warpgroup_mma_wait(0, start(a, old))
        save(out, old)
        save(out, new)

    func = lowered(kernel)
    first, second = ops(func, "mma.wgmma")
    storage = func.attrs.storage
    assert storage[first.result] != storage[second.result]


def test_two_names_for_one_accumulator_are_one_array():
    @jit
    def kernel(out, n):
        a = buffer()
        acc = warpgroup_mma_init(zeros())
        for i in range(n):
            acc = warpgroup_mma_wait(0, warpgroup_mma(a, a, acc, use_acc=i > 0, is_async=True))
            result = acc
            save(out, result)

    func = lowered(kernel)
    (wait,) = ops(func, "mma.warpgroup_wait")
    (loop,) = ops(func, "control.for")
    assert len({func.attrs.storage[v] for v in (*wait.results, *loop.regions[0].args[1:])}) == 1


# Operands in registers


@jit
def left_operand(out):
    layout: gl.constexpr = gl.DotOperandLayout(0, LAYOUT, 2)
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    return gl.load(out + rows * 64 + gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]).to(gl.float16)


def test_registers_that_are_read_are_waited_for_at_once():
    """Where the wait stands in another round of a loop that is not unrolled, nothing would keep the operand's registers."""

    @jit
    def kernel(out, n):
        a = buffer()
        acc = warpgroup_mma_init(zeros())
        while n > 0:
            acc = warpgroup_mma_wait(0, acc)
            acc = warpgroup_mma(left_operand(out), a, acc, is_async=True)
            n -= 1
        save(out, warpgroup_mma_wait(0, acc))

    with pytest.warns(PerformanceWarning, match="mma-registers-wait"):
        func = lowered(kernel)
    (product,) = ops(func, "mma.wgmma")
    waits = [op for op in ops(func, "mma.warpgroup_wait") if product.result in op.uses]
    assert [op.attrs["pendings"] for op in waits] == [0]


def test_registers_that_are_read_wait_for_a_wait_beside_the_product():
    @jit
    def kernel(out, n):
        a = buffer()
        acc = warpgroup_mma_init(zeros())
        for _ in range(n):
            acc = warpgroup_mma(left_operand(out), a, acc, is_async=True)
            save(out, left_operand(out))
            acc = warpgroup_mma_wait(0, acc)
        save(out, acc)

    assert len(ops(lowered(kernel), "mma.warpgroup_wait")) == 1


# Registers


@pytest.mark.parametrize(
    ("rows", "columns", "warps", "said"),
    [
        (128, 256, 4, "1024 of the 1020 bytes of registers of each thread"),
        (128, 256, 16, ""),
        (128, 256, 8, ""),
        (256, 256, 16, "512 of the 512 bytes of registers of each thread"),
    ],
)
def test_accumulators_that_leave_no_room(rows, columns, warps, said):
    @jit
    def kernel(out, n, rows: gl.constexpr, columns: gl.constexpr, layout: gl.constexpr):
        a = gl.allocate_shared_memory(gl.float16, [rows, 64], SHARED)
        b = gl.allocate_shared_memory(gl.float16, [64, columns], SHARED)
        acc = warpgroup_mma_init(gl.zeros([rows, columns], gl.float32, layout))
        for _ in range(n):
            acc = warpgroup_mma(a, b, acc, is_async=True)
            acc = warpgroup_mma_wait(0, acc)
        gl.device_print("sum", acc)

    layout = warpgroup_mma_layout(gl.float16, [rows, columns], warps)
    func = build(kernel, warps, out=POINTER, n=INT, rows=rows, columns=columns, layout=layout).func
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lower_pipeline(tile_pipeline(func, SM90), SM90)
    assert [w.category for w in caught] == [PerformanceWarning] * bool(said)
    if said:
        warning = caught[0].message
        assert isinstance(warning, PerformanceWarning)
        assert (warning.code, said in warning.message, str(warps) in warning.fix) == (
            "accumulator-registers",
            True,
            True,
        )
        assert pointed(warning) == "warpgroup_mma(a, b, acc, is_async=True)"


def test_zeros_that_are_needed_again_take_no_room():
    @jit
    def kernel(out, n, layout: gl.constexpr):
        a = gl.allocate_shared_memory(gl.float16, [128, 64], gl.NVMMASharedLayout(128, 16))
        acc = gl.zeros([128, 128], gl.float32, layout)
        for _ in range(n):
            acc = warpgroup_mma(a, a.permute([1, 0]), acc)
        gl.device_print("sum", gl.maximum(acc, 0.0))

    layout = warpgroup_mma_layout(gl.float16, [128, 128], 4)
    func = build(kernel, 4, out=POINTER, n=INT, layout=layout).func
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lower_pipeline(tile_pipeline(func, SM90), SM90)
