"""Products of warpgroups that run beside the threads: what goes wrong around them, in both stages and any order of events."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.sim.both import ORDERS, compiled_for, results, run_stage, verdict
from weft import language as gl
from weft import ops
from weft.errors import Hazard, hazard
from weft.ir.core import walk
from weft.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_layout,
    warpgroup_mma_wait,
)
from weft.nvidia.hopper import TensorDescriptor

N = 64
SMEM = gl.NVMMASharedLayout.get_default_for([N, N], gl.float16)
LINE = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
ACC = warpgroup_mma_layout(gl.float16, [N, N], 4)
WIDE = warpgroup_mma_layout(gl.float16, [2 * N, N], 8)


def matrix(rows: int = N) -> np.ndarray:
    return (np.arange(rows * N).reshape(rows, N) % 7 - 3).astype(np.float16)


def described(array: np.ndarray) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(array, list(array.shape), SMEM)


def poisoned(rows: int = N) -> np.ndarray:
    return np.full((rows, N), np.nan, np.float32)


def refused(found: Hazard | None, code: str, *words: str) -> None:
    """The report has a code, both lines, and these words."""
    assert found is not None
    assert found.code == found.rule == code, str(found)
    assert found.first is not None, str(found)
    assert found.second is found.loc
    assert found.fix
    for word in words:
        assert word in str(found), str(found)


@weft.jit
def keep(out, acc, rows: gl.constexpr):
    layout: gl.constexpr = acc.type.layout
    i = gl.arange(0, rows, gl.SliceLayout(1, layout))
    gl.store(out + i[:, None] * 64 + gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :], acc)


# Operands


@weft.jit(sync="none")
def loaded(src, out, fault: gl.constexpr, layout: gl.constexpr, line: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    b = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    gl.barrier()
    mbarrier.expect(bar, (1 if fault == "fresh" else 2) * src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, [0, 0], bar, a)
    if fault != "fresh":
        tma.async_copy_global_to_shared(src, [0, 0], bar, b)
    if fault != "early":
        mbarrier.wait(bar, 0)
    acc = warpgroup_mma_init(gl.zeros([64, 64], gl.float32, layout))
    acc = warpgroup_mma(a, b, acc, is_async=True)
    if fault == "written":
        a.store(gl.full([64, 64], 1.0, gl.float16, line))
    if fault == "reloaded":
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_copy_global_to_shared(src, [0, 0], bar, b)
    if fault == "second":
        acc = warpgroup_mma(b, b, acc, is_async=True)
        acc = warpgroup_mma_wait(1, [acc])
        b.store(gl.full([64, 64], 1.0, gl.float16, line))
    if fault == "first":
        acc = warpgroup_mma(b, b, acc, is_async=True)
        acc = warpgroup_mma_wait(1, [acc])
        a.store(gl.full([64, 64], 1.0, gl.float16, line))
    done = warpgroup_mma_wait(0, [acc])
    if fault == "after":
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_copy_global_to_shared(src, [0, 0], bar, b)
        mbarrier.wait(bar, 1)
    keep(out, done, 64)


@pytest.mark.parametrize("fault", ["", "first", "after"])
def test_operands_of_complete_products_are_free(fault):
    assert verdict(loaded, lambda: (described(matrix()), poisoned(), fault, ACC, LINE)) is None


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("early", "hazard-read-in-flight", ["multiplies a", "mbarrier.wait()"]),
        ("fresh", "hazard-uninitialized", ["b, which was never written"]),
        ("written", "hazard-operand-reused", ["writes a", "the MMA", "multiplied it here", "warpgroup_mma_wait("]),
        ("reloaded", "hazard-operand-reused", ["copies into b", "the MMA", "warpgroup_mma_wait("]),
        ("second", "hazard-operand-reused", ["writes b", "fewer outstanding"]),
    ],
)
def test_operands_under_way(fault, code, words):
    refused(verdict(loaded, lambda: (described(matrix()), poisoned(), fault, ACC, LINE)), code, *words)


@weft.jit(sync="none")
def stored(x, out, fault: gl.constexpr, layout: gl.constexpr, line: gl.constexpr, smem: gl.constexpr):
    a = gl.allocate_shared_memory(gl.float16, [64, 64], smem)
    i, j = gl.arange(0, 64, gl.SliceLayout(1, line)), gl.arange(0, 64, gl.SliceLayout(0, line))
    a.store(gl.load(x + i[:, None] * 64 + j[None, :]))
    if fault != "fence":
        fence_async_shared()
    if fault != "barrier":
        gl.barrier()
    acc = warpgroup_mma(a, a, gl.zeros([64, 64], gl.float32, layout))
    # Nothing lies between: the warpgroup knows that all of it has read.
    a.store(gl.full([64, 64], 1.0, gl.float16, line))
    keep(out, acc, 64)


@pytest.mark.parametrize(
    ("fault", "code"), [("", ""), ("fence", "hazard-missing-fence"), ("barrier", "hazard-thread-race")]
)
def test_what_threads_wrote(fault, code):
    found = verdict(stored, lambda: (matrix(), poisoned(), fault, ACC, LINE, SMEM))
    if code:
        refused(found, code, "multiplies a", "wrote")
    else:
        assert found is None


@weft.jit(sync="none")
def two_warpgroups(a_src, b_src, out, fault: gl.constexpr, layout: gl.constexpr):
    a = gl.allocate_shared_memory(a_src.dtype, a_src.block_shape, a_src.layout)
    b = gl.allocate_shared_memory(b_src.dtype, b_src.block_shape, b_src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    gl.barrier()
    mbarrier.expect(bar, a_src.block_type.nbytes + b_src.block_type.nbytes)
    tma.async_copy_global_to_shared(a_src, [0, 0], bar, a)
    tma.async_copy_global_to_shared(b_src, [0, 0], bar, b)
    mbarrier.wait(bar, 0)
    acc = warpgroup_mma(a, b, gl.zeros([128, 64], gl.float32, layout), is_async=True)
    acc = warpgroup_mma_wait(0, [acc])
    if fault != "barrier":
        gl.barrier()
    mbarrier.expect(bar, b_src.block_type.nbytes)
    tma.async_copy_global_to_shared(b_src, [0, 0], bar, b)
    mbarrier.wait(bar, 1)
    keep(out, acc, 128)


@pytest.mark.parametrize("fault", ["", "barrier"])
def test_a_warpgroup_knows_of_its_own_products_only(fault):
    def arguments():
        return described(matrix(2 * N)), described(matrix()), poisoned(2 * N), fault, WIDE

    found = verdict(two_warpgroups, arguments, num_warps=8)
    if fault:
        refused(found, "hazard-thread-race", "copies into b", "gl.barrier() between warpgroup_mma_wait() and")
    else:
        assert found is None


# Between partitions


@weft.jit
def load_all(src, a, full, empty, fault: gl.constexpr):
    for i in range(4):
        mbarrier.wait(empty.index(i % 2), (i // 2 + 1) & 1)
        mbarrier.expect(full.index(i % 2), src.block_type.nbytes)
        tma.async_copy_global_to_shared(src, [0, 0], full.index(i % 2), a.index(i % 2))


@weft.jit
def multiply_all(out, a, full, empty, fault: gl.constexpr, layout: gl.constexpr):
    rows: gl.constexpr = a.shape[1]
    acc = warpgroup_mma_init(gl.zeros([rows, 64], gl.float32, layout))
    for i in range(4):
        mbarrier.wait(full.index(i % 2), i // 2 & 1)
        acc = warpgroup_mma(a.index(i % 2), a.index(i % 2).slice(0, 64), acc, is_async=True)
        if fault == "one late":
            acc = warpgroup_mma_wait(1, [acc])
            mbarrier.arrive(empty.index(i % 2), count=1)
        else:
            if fault != "never":
                acc = warpgroup_mma_wait(0, [acc])
            mbarrier.arrive(empty.index(i % 2), count=1)
    keep(out, warpgroup_mma_wait(0, [acc]), rows)


@weft.jit
def specialised(src, out, fault: gl.constexpr, layout: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [(multiply_all, (out, a, full, empty, fault, layout)), (load_all, (src, a, full, empty, fault))], [1]
    )


@pytest.mark.parametrize(("warps", "rows", "layout"), [(4, N, ACC), (8, 2 * N, WIDE)])
@pytest.mark.parametrize("fault", ["", "one late", "never"])
def test_buffers_are_given_back_once_products_have_read_them(fault, warps, rows, layout):
    """Each warp arrives for itself, so that what its warpgroup alone knows is told as well."""

    def arguments():
        return described(matrix(rows)), poisoned(rows), fault, layout

    tile = compiled_for(specialised, arguments(), {"num_warps": warps}).front.tile
    assert [op.attrs["each_warp"] for op in walk(tile.body) if op.kind is ops.mbarrier.arrive] == [True]
    found = verdict(specialised, arguments, num_warps=warps)
    if fault:
        refused(found, "hazard-operand-reused", "partition 1 copies into a[", "arrive on an mbarrier after that wait")
        assert found is not None
        assert found.partitions == ("partition 0", "partition 1")
    else:
        assert found is None


def test_results_do_not_depend_on_when_products_read():
    found = results(specialised, lambda: (described(matrix()), poisoned(), "", ACC), lambda src, out, *_: [out])
    square = matrix().astype(np.float64) @ matrix().astype(np.float64)
    np.testing.assert_array_equal(found[0], 4 * square)


# Accumulators


@weft.jit
def accumulators(src, out, fault: gl.constexpr, layout: gl.constexpr):
    a = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, [0, 0], bar, a)
    mbarrier.wait(bar, 0)
    zero = warpgroup_mma_init(gl.zeros([64, 64], gl.float32, layout))
    # The wait makes it an ordinary tile for the language, which would refuse the rest at once.
    first = warpgroup_mma_wait(1, [warpgroup_mma(a, a, zero, is_async=True)])
    if fault == "stored":
        keep(out, first, 64)
    elif fault == "old name":
        warpgroup_mma_wait(0, [first])
        keep(out, first, 64)
    elif fault == "taken":
        second = warpgroup_mma(a, a, first, is_async=True)
        warpgroup_mma_wait(0, [second])
        keep(out, first, 64)
    elif fault == "twice":
        second = warpgroup_mma_wait(1, [warpgroup_mma(a, a, first, is_async=True)])
        third = warpgroup_mma_wait(2, [warpgroup_mma(a, a, first, is_async=True)])
        second, third = warpgroup_mma_wait(0, [second, third])
        keep(out, second + third, 64)
    elif fault == "forgotten":
        keep(out, gl.zeros([64, 64], gl.float32, layout), 64)
    else:
        keep(out, warpgroup_mma_wait(0, [first]), 64)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("fault", "code", "lines", "words"),
    [
        ("stored", "hazard-accumulator", 1, ["whose MMA is in flight", "acc = warpgroup_mma_wait("]),
        ("old name", "hazard-accumulator-old", 2, ["since a wait claimed it", "a wait claimed it here"]),
        ("taken", "hazard-accumulator-old", 2, ["since another MMA claimed it"]),
        ("twice", "hazard-accumulator-old", 2, ["another MMA claimed it here"]),
    ],
)
def test_accumulators_in_flight_have_no_value(fault, code, lines, words, order):
    """A compile for the GPU refuses these kernels, so there is no lowered stage."""
    arguments = described(matrix()), poisoned(), fault, ACC
    compiled = compiled_for(accumulators, arguments, {})
    with pytest.raises(hazard.AccumulatorInFlight) as caught:
        run_stage(compiled.front.tile, accumulators, compiled, arguments, 1, **order)
    refused(caught.value, code, "the MMA was issued here", *words)
    assert len(caught.value.related) == lines


def test_the_product_that_nobody_waits_for():
    arguments = described(matrix()), poisoned(), "forgotten", ACC
    compiled = compiled_for(accumulators, arguments, {})
    report = run_stage(compiled.front.tile, accumulators, compiled, arguments, 1)
    assert [advice.message for advice in report.advice if advice.rule == "in-flight-at-exit"] == [
        "no thread waits for this MMA before the kernel ends"
    ]


def test_the_call_chain_is_told():
    arguments = described(matrix()), poisoned(), "stored", ACC
    compiled = compiled_for(accumulators, arguments, {})
    with pytest.raises(hazard.AccumulatorInFlight) as caught:
        run_stage(compiled.front.tile, accumulators, compiled, arguments, 1)
    assert "in keep\n" in str(caught.value)
    assert "in accumulators\n" in str(caught.value)
