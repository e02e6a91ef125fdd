"""Copies between global and shared memory as accesses to global memory: when they are over, and who knows."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.sim.both import results, verdict
from weft import language as gl
from weft.errors import Hazard, hazard
from weft.language.nvidia.hopper import async_copy, fence_async_shared, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor

N = 64
SMEM = gl.NVMMASharedLayout.get_default_for([N, N], gl.float32)
PLAIN = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
ROWS = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
COLUMNS = gl.BlockedLayout([4, 1], [16, 2], [1, 4], [0, 1])
LINE = gl.BlockedLayout([1], [32], [4], [0])


def matrix() -> np.ndarray:
    return np.arange(N * N, dtype=np.float32).reshape(N, N)


def described(array: np.ndarray) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(array, [N, N], SMEM)


def both_ways() -> tuple[TensorDescriptor, np.ndarray]:
    """A matrix by its descriptor and as a pointer."""
    array = matrix()
    return described(array), array


def refused(found: Hazard | None, code: str, *words: str) -> None:
    assert found is not None
    assert found.code == found.rule == code, str(found)
    assert found.first is not None
    assert found.second is found.loc
    assert len(found.partitions) == 2
    assert found.buffer
    assert found.fix
    for word in words:
        assert word in str(found)


@weft.jit
def tile(layout: gl.constexpr):
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))
    return rows[:, None] * 64 + gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]


# Copies that read while a thread writes


@weft.jit(sync="none")
def copied_and_written(x, fault: gl.constexpr, layout: gl.constexpr, across: gl.constexpr, smem: gl.constexpr):
    buffer = gl.allocate_shared_memory(gl.float32, [64, 64], smem)
    async_copy.async_copy_global_to_shared(buffer, x + tile(layout))
    async_copy.commit_group()
    if fault != "early":
        async_copy.wait_group(0)
    if fault == "later":
        gl.barrier()
    if fault == "across" or fault == "later":
        gl.store(x + tile(across), gl.full([64, 64], 1.0, gl.float32, across))
    else:
        gl.store(x + tile(layout), gl.full([64, 64], 1.0, gl.float32, layout))
    async_copy.wait_group(0)


@pytest.mark.parametrize("fault", ["", "later"])
def test_in_place_after_the_wait(fault):
    assert verdict(copied_and_written, lambda: (matrix(), fault, ROWS, COLUMNS, PLAIN)) is None


@pytest.mark.parametrize("fault", ["early", "across"])
def test_a_copy_still_reads_what_is_written(fault):
    found = verdict(copied_and_written, lambda: (matrix(), fault, ROWS, COLUMNS, PLAIN))
    refused(
        found, "hazard-global-in-flight", "writes x[", "while a copy from it that the block started", "wait_group()"
    )


@weft.jit(sync="none")
def loaded_and_written(src, x, fault: gl.constexpr, layout: gl.constexpr):
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    gl.barrier()
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, [0, 0], bar, buffer)
    if fault == "early":
        # A barrier orders threads, not the copy that one of them has started.
        gl.barrier()
        gl.store(x + tile(layout), gl.full([64, 64], 1.0, gl.float32, layout))
    mbarrier.wait(bar, 0)
    if fault != "early":
        gl.store(x + tile(layout), buffer.load(layout) * 2)


def test_a_load_still_reads_what_is_written():
    """The pointer and the descriptor are two arguments over the same memory."""
    assert verdict(loaded_and_written, lambda: (*both_ways(), "", ROWS)) is None
    found = verdict(loaded_and_written, lambda: (*both_ways(), "early", ROWS))
    refused(found, "hazard-global-in-flight", "writes x[0]", "mbarrier.wait()")


# What TMA stores write


@weft.jit(sync="none")
def stored_and(dst, x, fault: gl.constexpr, read_only: gl.constexpr, layout: gl.constexpr):
    buffer = gl.allocate_shared_memory(dst.dtype, [2, 64, 64], dst.layout)
    buffer.index(0).store(gl.full([64, 64], 1.0, gl.float32, layout))
    buffer.index(1).store(gl.full([64, 64], 2.0, gl.float32, layout))
    fence_async_shared()
    gl.barrier()
    if fault == "reduced":
        tma.async_atomic_add(dst, [0, 0], buffer.index(0))
    else:
        tma.async_copy_shared_to_global(dst, [0, 0], buffer.index(0))
    tma.store_wait(pendings=0, read_only=read_only)
    if fault != "alone":
        gl.barrier()
    if fault == "read" or fault == "alone":
        gl.store(x + 4096 + tile(layout), gl.load(x + tile(layout)))
    if fault == "stored":
        tma.async_copy_shared_to_global(dst, [0, 0], buffer.index(1))
    if fault == "reduced":
        tma.async_atomic_add(dst, [0, 0], buffer.index(1))
    tma.store_wait(pendings=0)


@pytest.mark.parametrize(
    ("fault", "verb"), [("", ""), ("reduced", ""), ("read", "reads x[0]"), ("stored", "writes dst[0]")]
)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_is_complete_after_a_wait_for_its_writes(fault, read_only, verb):
    def arguments():
        array = np.zeros((2 * N, N), np.float32)
        return described(array), array, fault, read_only, ROWS

    found = verdict(stored_and, arguments)
    if not verb or not read_only:
        assert found is None
        return
    refused(found, "hazard-global-stored", verb, "waits only until the store has read shared memory")


def test_one_thread_waits_for_the_writes():
    def arguments():
        array = np.zeros((2 * N, N), np.float32)
        return described(array), array, "alone", False, ROWS

    refused(verdict(stored_and, arguments), "hazard-global-stored", "reads x[", "then gl.barrier()")


# What threads write and TMA reads or writes


@weft.jit(sync="none")
def written_and_moved(src, x, fault: gl.constexpr, layout: gl.constexpr, smem: gl.constexpr):
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    gl.store(x + tile(layout), gl.full([64, 64], 1.0, gl.float32, layout))
    fence_async_shared()
    gl.barrier()
    if fault == "cp.async":
        async_copy.async_copy_global_to_shared(gl.allocate_shared_memory(gl.float32, [64, 64], smem), x + tile(layout))
        async_copy.commit_group()
        async_copy.wait_group(0)
    if fault == "load":
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_copy_global_to_shared(src, [0, 0], bar, buffer)
        mbarrier.wait(bar, 0)
    if fault == "store":
        buffer.store(gl.full([64, 64], 2.0, gl.float32, layout))
        fence_async_shared()
        gl.barrier()
        tma.async_copy_shared_to_global(src, [0, 0], buffer)
        tma.store_wait(pendings=0)


@pytest.mark.parametrize(("fault", "verb"), [("cp.async", ""), ("load", "reads src[0]"), ("store", "writes src[0]")])
def test_global_memory_needs_a_fence_of_its_own_for_tma(fault, verb):
    found = verdict(written_and_moved, lambda: (*both_ways(), fault, ROWS, PLAIN))
    if not verb:
        assert found is None
        return
    assert type(found) is hazard.MissingFence
    refused(
        found,
        "hazard-global-fence",
        f"{verb} by TMA, which the block wrote in this launch, and no proxy fence lies between",
    )


# From one program to another


@weft.jit
def read_then_handed_on(x, flag, fault: gl.constexpr, layout: gl.constexpr, smem: gl.constexpr):
    """Program 0 copies a tile and then lets program 1 overwrite it."""
    if gl.program_id(0) == 0:
        buffer = gl.allocate_shared_memory(gl.float32, [64, 64], smem)
        async_copy.async_copy_global_to_shared(buffer, x + tile(layout))
        async_copy.commit_group()
        if fault != "wait":
            async_copy.wait_group(0)
        gl.barrier()
        gl.atomic_xchg(flag, 1, sem="release")
        async_copy.wait_group(0)
    else:
        while gl.atomic_cas(flag, 1, 1, sem="acquire") != 1:
            pass
        gl.barrier()
        gl.store(x + tile(layout), gl.full([64, 64], 1.0, gl.float32, layout))


def test_a_release_after_the_wait_hands_on_what_a_copy_read():
    def arguments(fault):
        return lambda: (matrix(), np.zeros(1, np.int32), fault, ROWS, PLAIN)

    assert verdict(read_then_handed_on, arguments(""), grid=2) is None
    found = verdict(read_then_handed_on, arguments("wait"), grid=2)
    refused(found, "hazard-global-race", "program (1, 0, 0) writes x[0], which program (0, 0, 0) read")
    assert found.partitions == ("program (0, 0, 0)", "program (1, 0, 0)")


@weft.jit
def stored_then_handed_on(dst, x, out, flag, read_only: gl.constexpr, layout: gl.constexpr):
    """Program 0 stores a tile by TMA, and program 1 reads it after an acquire: with `read_only` the store may still be on its
    way. weft inserts a barrier between the wait of one thread and the release."""
    if gl.program_id(0) == 0:
        buffer = gl.allocate_shared_memory(dst.dtype, dst.block_shape, dst.layout)
        buffer.store(gl.full([64, 64], 1.0, gl.float32, layout))
        fence_async_shared()
        gl.barrier()
        tma.async_copy_shared_to_global(dst, [0, 0], buffer)
        tma.store_wait(pendings=0, read_only=read_only)
        gl.atomic_xchg(flag, 1, sem="release")
    else:
        while gl.atomic_cas(flag, 1, 1, sem="acquire") != 1:
            pass
        gl.barrier()
        gl.store(out + tile(layout), gl.load(x + tile(layout)))


def test_a_release_does_not_hand_on_what_a_store_writes():
    def arguments(read_only):
        return lambda: (*both_ways(), matrix(), np.zeros(1, np.int32), read_only, ROWS)

    found = verdict(stored_then_handed_on, arguments(True), grid=2)
    refused(found, "hazard-global-stored", "which a TMA store of program (0, 0, 0) wrote")
    assert verdict(stored_then_handed_on, arguments(False), grid=2) is None
    (out,) = results(stored_then_handed_on, arguments(False), lambda dst, x, out, *_: [out], grid=2)
    np.testing.assert_array_equal(out, 1)


# Arguments that share memory


@weft.jit
def shifted(x, out, shift, layout: gl.constexpr):
    at = gl.program_id(0) * 128 + gl.arange(0, 128, layout)
    gl.store(out + at, gl.load(x + (at + shift) % 256) + 1)


def test_two_arguments_over_the_same_memory():
    def arguments(shift, offset=0):
        array = np.arange(512, dtype=np.int32)
        return lambda: (array[:256], array[offset:][:256], shift, LINE)

    assert verdict(shifted, arguments(0), grid=2) is None
    assert verdict(shifted, arguments(128, offset=256), grid=2) is None
    refused(verdict(shifted, arguments(128), grid=2), "hazard-global-race", "reads x[0], which program (0, 0, 0) wrote")
    assert type(verdict(shifted, arguments(0, offset=1), grid=2)) is hazard.GlobalRace
