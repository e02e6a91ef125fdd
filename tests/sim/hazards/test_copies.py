"""Copies that run beside the threads: each verdict on a correct kernel, and with one thing left out."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.sim.both import compiled_for, run_stage, verdict
from weft import language as gl
from weft.errors import Hazard, hazard
from weft.language.nvidia.ampere import async_copy
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor

N = 64
SMEM = gl.NVMMASharedLayout.get_default_for([N, N], gl.float32)
PLAIN = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
ROWS = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
COLUMNS = gl.BlockedLayout([4, 1], [16, 2], [1, 4], [0, 1])


def matrices() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(N * N, dtype=np.float32).reshape(N, N), np.zeros((N, N), np.float32)


def descriptors():
    return tuple(TensorDescriptor.from_tensor(array, [N, N], SMEM) for array in matrices())


def expected(found: Hazard | None, kind: type[Hazard] | None) -> None:
    assert type(found) is (kind or type(None)), str(found)
    if found is None:
        return
    assert found.rule == found.code
    assert found.first is not None
    assert found.second is found.loc
    assert found.fix
    assert str(found).count("test_copies.py") >= 2


@weft.jit(sync="none")
def through(src, dst, fault: gl.constexpr, layout: gl.constexpr):
    """Double a tile: TMA in, registers, TMA out, from one buffer."""
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    gl.barrier()
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, [0, 0], bar, smem)
    if fault != "wait":
        mbarrier.wait(bar, 0)
    if fault == "write":
        smem.store(gl.full([64, 64], 1.0, gl.float32, layout))
    x = smem.load(layout)
    if fault != "barrier between":
        gl.barrier()
    smem.store(x * 2)
    if fault != "fence":
        fence_async_shared()
    if fault != "barrier":
        gl.barrier()
    tma.async_copy_shared_to_global(dst, [0, 0], smem)
    if fault != "store_wait":
        tma.store_wait(pendings=0)
    if fault in ("reuse", "known to one"):
        gl.barrier() if fault == "reuse" else None
        smem.store(x)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("", None),
        ("reuse", None),
        ("wait", hazard.ReadInFlight),
        ("barrier between", None),
        ("fence", hazard.MissingFence),
        ("barrier", hazard.ThreadRace),
        ("store_wait", hazard.StoreUnread),
        ("known to one", hazard.ThreadRace),
    ],
)
def test_through_one_buffer(fault, kind):
    found = verdict(through, lambda: (*descriptors(), fault, ROWS))
    if kind is hazard.StoreUnread:
        assert found is not None
        assert found.code == "hazard-store-unread"
        return
    expected(found, kind)
    if found is not None:
        assert found.buffer == "smem"
        assert found.partitions == ("the block", "the block")


CODES = {
    "wait": "hazard-read-in-flight", "fence": "hazard-missing-fence", "barrier": "hazard-thread-race",
}  # fmt: skip


@pytest.mark.parametrize(("fault", "code"), CODES.items())
def test_codes(fault, code):
    found = verdict(through, lambda: (*descriptors(), fault, ROWS))
    assert found is not None
    assert found.code == code
    assert "smem" in found.message


@weft.jit(sync="none")
def overwritten(src, dst, fault: gl.constexpr, layout: gl.constexpr):
    """A buffer that is written while a copy writes it, or while a store reads it."""
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    gl.barrier()
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, [0, 0], bar, smem)
    if fault == "load":
        smem.store(gl.full([64, 64], 1.0, gl.float32, layout))
    mbarrier.wait(bar, 0)
    tma.async_copy_shared_to_global(dst, [0, 0], smem)
    if fault == "store":
        smem.store(gl.full([64, 64], 1.0, gl.float32, layout))
    if fault == "next load":
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_copy_global_to_shared(src, [0, 0], bar, smem)
    tma.store_wait(pendings=0)


@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [
        ("", None, ""),
        ("load", hazard.WriteInFlight, "hazard-write-in-flight"),
        ("store", hazard.StoreSourceReused, "hazard-store-source-reused"),
        ("next load", hazard.StoreSourceReused, "hazard-store-source-reused"),
    ],
)
def test_overwritten(fault, kind, code):
    found = verdict(overwritten, lambda: (*descriptors(), fault, ROWS))
    expected(found, kind)
    assert found is None or found.code == code


@weft.jit(sync="none")
def by_threads(x, out, fault: gl.constexpr, rows: gl.constexpr, columns: gl.constexpr, shared: gl.constexpr):
    """cp.async in rows, read in columns."""
    smem = gl.allocate_shared_memory(gl.float32, [64, 64], shared)
    i = gl.arange(0, 64, layout=gl.SliceLayout(1, rows))[:, None]
    j = gl.arange(0, 64, layout=gl.SliceLayout(0, rows))[None, :]
    async_copy.async_copy_global_to_shared(smem, x + i * 64 + j)
    async_copy.commit_group()
    if fault != "wait":
        async_copy.wait_group(1 if fault == "pendings" else 0)
    if fault != "barrier":
        gl.barrier()
    i = gl.arange(0, 64, layout=gl.SliceLayout(1, columns))[:, None]
    j = gl.arange(0, 64, layout=gl.SliceLayout(0, columns))[None, :]
    gl.store(out + i * 64 + j, smem.load(columns))


@pytest.mark.parametrize(
    ("fault", "layout", "kind"),
    [
        ("", COLUMNS, None),
        ("wait", COLUMNS, hazard.ReadInFlight),
        ("pendings", COLUMNS, hazard.ReadInFlight),
        ("barrier", COLUMNS, hazard.ThreadRace),
        # Each thread reads what it has copied itself.
        ("barrier", ROWS, None),
    ],
)
def test_cp_async(fault, layout, kind):
    expected(verdict(by_threads, lambda: (*matrices(), fault, ROWS, layout, PLAIN)), kind)


@weft.jit(sync="none")
def announced(x, out, fault: gl.constexpr, rows: gl.constexpr, columns: gl.constexpr, shared: gl.constexpr):
    """cp.async that an mbarrier is told of, by each thread for itself."""
    smem = gl.allocate_shared_memory(gl.float32, [64, 64], shared)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    counted: gl.constexpr = fault in ("counted", "counted late")
    mbarrier.init(bar, count=1 if counted else 128)
    gl.barrier()
    i = gl.arange(0, 64, layout=gl.SliceLayout(1, rows))[:, None]
    j = gl.arange(0, 64, layout=gl.SliceLayout(0, rows))[None, :]
    async_copy.async_copy_global_to_shared(smem, x + i * 64 + j)
    async_copy.mbarrier_arrive(bar, increment_count=counted)
    # Threads add their own arrivals: the last other one holds the phase up until all have.
    if fault == "counted":
        gl.barrier()
    if counted:
        mbarrier.arrive(bar, count=1)
    if fault == "later":
        async_copy.async_copy_global_to_shared(smem, x + i * 64 + j)
    if fault != "wait":
        mbarrier.wait(bar, 0)
    i = gl.arange(0, 64, layout=gl.SliceLayout(1, columns))[:, None]
    j = gl.arange(0, 64, layout=gl.SliceLayout(0, columns))[None, :]
    gl.store(out + i * 64 + j, smem.load(columns))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("", None),
        ("counted", None),
        ("counted late", hazard.ReadInFlight),
        ("wait", hazard.ReadInFlight),
        ("later", hazard.WriteInFlight),
    ],
)
def test_copies_that_arrive_on_an_mbarrier(fault, kind):
    expected(verdict(announced, lambda: (*matrices(), fault, ROWS, COLUMNS, PLAIN)), kind)
    if kind is None:
        x, out = matrices()
        announced[1](x, out, fault, ROWS, COLUMNS, PLAIN)
        np.testing.assert_array_equal(out, x)


def test_numbers_of_cp_async():
    x, out = matrices()
    by_threads[1](x, out, "", ROWS, COLUMNS, PLAIN)
    np.testing.assert_array_equal(out, x)


@weft.jit(sync="none")
def unwritten(out, layout: gl.constexpr, shared: gl.constexpr, half: gl.constexpr, keep: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.float32, [64, 64], shared)
    smem.slice(0, 32).store(gl.full([32, 64], 1.0, gl.float32, layout))
    gl.barrier()
    count: gl.constexpr = 32 if half else 64
    i = gl.arange(0, count, layout=gl.SliceLayout(1, layout))[:, None]
    j = gl.arange(0, 64, layout=gl.SliceLayout(0, layout))[None, :]
    gl.store(out + i * 64 + j, smem.slice(0, count).load(layout), mask=i < keep)


def test_memory_that_was_never_written():
    found = verdict(unwritten, lambda: (matrices()[1], ROWS, PLAIN, False, 64))
    assert type(found) is hazard.UninitializedRead
    assert found.code == "hazard-uninitialized"
    assert "smem" in found.message
    assert verdict(unwritten, lambda: (matrices()[1], ROWS, PLAIN, True, 64)) is None


def test_poison_is_reported_where_it_reaches_memory():
    with weft.simulate(uninitialized="poison"), pytest.raises(hazard.UninitializedRead) as caught:
        unwritten[1](matrices()[1], ROWS, PLAIN, False, 33)
    assert caught.value.code == "hazard-undefined-shared"
    assert "reaches a store" in caught.value.message
    _, out = matrices()
    with weft.simulate(uninitialized="poison"):
        unwritten[1](out, ROWS, PLAIN, False, 32)
    assert (out[:32] == 1).all()
    assert (out[32:] == 0).all()


def test_memory_that_was_never_written_can_be_ignored():
    _, out = matrices()
    with weft.simulate(uninitialized="ignore"):
        unwritten[1](out, ROWS, PLAIN, False, 64)
        assert (out[:32] == 1).all()
        # Races are found all the same: another warp reads what this one writes, without a barrier.
        with pytest.raises(hazard.ThreadRace):
            unordered[1](out, ROWS, PLAIN)


@weft.jit(sync="none")
def unordered(out, layout: gl.constexpr, shared: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.float32, [64, 64], shared)
    value = smem.permute((1, 0)).load(layout)
    smem.store(value + 1.0)
    i = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))[:, None]
    j = gl.arange(0, 64, layout=gl.SliceLayout(0, layout))[None, :]
    gl.store(out + i * 64 + j, value)


def test_without_checks_copies_come_late():
    src, dst = matrices()
    given = tuple(TensorDescriptor.from_tensor(array, [N, N], SMEM) for array in (src, dst))
    with weft.simulate(hazards=False, uninitialized="poison", schedule="early"):
        through[1](*given, "wait", ROWS)
    np.testing.assert_array_equal(dst, 2 * src)


@weft.jit
def leftover(src, out, wanted: gl.constexpr):
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, [0, 0], bar, smem)
    if wanted:
        mbarrier.wait(bar, 0)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_load_in_flight_at_the_end_is_advice(wanted):
    compiled = leftover[1](*descriptors(), wanted)
    assert [a.rule for a in compiled.report.advice] == ([] if wanted else ["in-flight-at-exit"])


@weft.jit(sync="none")
def cautious(out, layout: gl.constexpr):
    gl.store(out + gl.arange(0, 128, layout=layout), 1.0)
    gl.barrier()
    gl.barrier()
    fence_async_shared()
    fence_async_shared()


def test_what_orders_nothing_is_advice():
    compiled = cautious[1](np.zeros(128, np.float32), gl.BlockedLayout([1], [32], [4], [0]))
    lines = [a.loc.line for a in compiled.report.advice if a.rule == "redundant-sync"]
    assert len(lines) == 2
    assert lines[1] - lines[0] == 2


@weft.jit(sync="none")
def beyond(out, index, layout: gl.constexpr, shared: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.float32, [3, 16, 16], shared)
    smem.index(index).store(gl.full([16, 16], 1.0, gl.float32, layout))


def test_views_outside_of_their_allocation():
    assert verdict(beyond, lambda: (matrices()[1], 2, ROWS, PLAIN)) is None
    for index in (3, -1):
        found = verdict(beyond, lambda i=index: (matrices()[1], i, ROWS, PLAIN))
        assert type(found) is hazard.OutOfBounds
        assert found.code == "hazard-shared-range"
        assert "smem" in found.message
    compiled = compiled_for(beyond, (matrices()[1], 2, ROWS, PLAIN), {})
    assert run_stage(compiled.front.tile, beyond, compiled, (matrices()[1], 0, ROWS, PLAIN), 1).programs == 1


@weft.jit(sync="none")
def picked(x, out, layout: gl.constexpr, shared: gl.constexpr, by: gl.constexpr):
    at = gl.arange(0, 128, layout=layout)
    smem = gl.allocate_shared_memory(gl.float32, [128], shared)
    smem.store(gl.load(x + at))
    gl.barrier()
    gl.store(out + at, smem.gather(127 - at + by, 0))


def test_gather_in_shared_memory():
    line, flat = gl.BlockedLayout([1], [32], [4], [0]), gl.SwizzledSharedLayout(1, 1, 1, [0])
    x = np.arange(128, dtype=np.float32)
    assert verdict(picked, lambda: (x, np.zeros(128, np.float32), line, flat, 0)) is None
    out = np.zeros(128, np.float32)
    picked[1](x, out, line, flat, 0)
    np.testing.assert_array_equal(out, x[::-1])
    with pytest.raises(hazard.OutOfBounds) as caught:
        picked[1](x, out, line, flat, 1)
    assert caught.value.code == "hazard-shared-index"
    assert "index 128 along axis 0 of length 128" in caught.value.message


# Loads from nowhere


@weft.jit
def loaded_from_a_quotient(src, out, divisor, rows: gl.constexpr, layout: gl.constexpr):
    """The row of a load is a quotient, and the first `rows` rows of what it brings are stored."""
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, [64 // divisor * 64, 0], bar, smem)
    mbarrier.wait(bar, 0)
    if rows is not None:
        i = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))[:, None]
        j = gl.arange(0, 64, layout=gl.SliceLayout(0, layout))[None, :]
        gl.store(out + i * 64 + j, smem.load(layout), mask=i < rows)


@pytest.mark.parametrize(("divisor", "rows"), [(0, None), (0, 0), (0, 1), (65, 64)])
def test_a_load_from_undefined_coordinates_brings_undefined_elements(divisor, rows):
    """A pipeline that prefetches past its last tile is right, as long as it uses nothing of it."""
    found = verdict(loaded_from_a_quotient, lambda: (descriptors()[0], matrices()[1], divisor, rows, ROWS))
    if not rows or divisor:
        assert found is None
        return
    assert type(found) is hazard.DivisionByZero
    assert "64 // divisor" in str(found)
