"""Kernels of single threads as CUDA: how the text reads, and what their machine code contains."""

from __future__ import annotations

import re

import pytest

from tests.cuda.build import ARCHITECTURES, Kernel, compiled, needs_nvrtc, pointer, text_of
from tests.effort import some
from tests.passes.threads import (
    Threads,
    add_one,
    asynchronous,
    flag,
    lowered,
    pointers,
    product,
    transpose,
    vector_copy,
)
from weft.ir.core import Func
from weft.ir.types import DTYPES, Pointer, float32, float64, int32, int64, uint32, uint64
from weft.ops import arith, mbarrier, memory, program, regs, shared, sync, thread
from weft.runtime.sass import disassemble

KERNELS = {"add_one": add_one, "vector_copy": vector_copy, "transpose": transpose, "asynchronous": asynchronous}
each_hopper = pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])


@pytest.mark.parametrize("name", KERNELS)
def test_text(name, golden):
    golden(text_of(lowered(KERNELS[name]().done())), ".cu")


def own_array() -> Threads:
    """A running sum in an array of the thread's own, by a run-time index in loops of few rounds."""
    k = Threads(*pointers("x", "out"), block=(96,))
    x, out = k.params
    acc = k.at(2).own(float32, 8, "acc")
    start = k.times(k.global_idx(0), 8, "start")
    with k.at(3).loop(8) as i:
        k.at(4).write(acc, i, k.load(x, k.plus(start, i)))
    with k.at(5).loop(8, lower=1) as i:
        k.at(6).write(acc, i, k.add(k.read(acc, i), k.read(acc, k.plus(i, -1))))
    for j in (0, 4):
        four = k.at(7).emit(thread.load_local, acc, None, offsets=(j, j + 1, j + 2, j + 3))
        k.store(out, k.plus(start, j), four)
    return k


def test_own_arrays(golden):
    golden(text_of(lowered(own_array().done())), ".cu")


# Every rule compiles


@needs_nvrtc
@pytest.mark.parametrize("arch", some(("sm_90a", "sm_100a", "sm_80"), 3))
def test_memory_of_every_type(arch):
    """Every width of every type, with every kind of mask, in arrays of the thread's own and in shared memory."""
    k = Kernel(*((dtype.code, pointer(dtype)) for dtype in DTYPES), ("n", int32), block=(100, 1, 1))
    k.attrs["shared_bytes"] = 32768
    n, t = k.params[-1], k.emit(program.thread_id)
    on = k.emit(arith.cmp, t, n, predicate="lt")
    for tag, (dtype, ptr) in enumerate(zip(DTYPES, k.params, strict=False)):
        room = k.emit(shared.array, dtype=dtype, count=1024, tag=tag, offset=1024 * tag)
        own = k.emit(thread.alloc_local, dtype=dtype, count=32, tag=100 + tag)
        for vec in (v for v in (1, 2, 4, 8, 16) if v * dtype.itemsize <= 16):
            for index, offsets in ((t, (0, 5 * vec)), (k.number(4 * vec), (vec,)), (n, (16, 0, 48))):
                places = {"offsets": offsets, "vec": vec}
                count = len(offsets)
                for mask in (None, on, k.emit(regs.splat, on, count=count)):
                    value = k.emit(thread.load_shared, room, index, mask, **places)
                    k.emit(thread.store_shared, room, index, value, mask, **places)
                k.store(ptr, value)
        for index, offsets in ((None, (3,)), (None, (0, 1, 2, 3)), (t, (2,)), (t, (4, 1, 9))):
            value = k.emit(thread.load_local, own, index, offsets=offsets)
            for mask in (None, on, k.emit(regs.splat, on, count=len(offsets))):
                k.emit(thread.store_local, own, index, value, mask, offsets=offsets)
            k.store(ptr, value)
    assert compiled(k.done(), arch).n_regs > 0


ATOMICS = [
    *(("add", d) for d in (int32, uint32, int64, uint64, float32, float64)),
    *((kind, d) for kind in ("min", "max") for d in (int32, uint32, int64, uint64, float32, float64)),
    *((kind, d) for kind in ("and", "or", "xor") for d in (int32, uint64)),
    *(("xchg", d) for d in (uint32, int64, float32, float64)),
]  # fmt: skip


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_atomics_on_shared_memory(arch):
    k = Kernel(*pointers("p"), ("n", int32), shared_bytes=32768)
    on = k.emit(arith.cmp, k.emit(program.thread_id), k.params[1], predicate="lt")
    for tag, (kind, dtype) in enumerate(ATOMICS):
        room = k.emit(shared.array, dtype=dtype, count=64, tag=tag, offset=512 * tag)
        for mask in (None, on):
            old = k.emit(thread.atomic_shared, room, k.params[1], k.number(3, dtype), mask, kind=kind)
            k.emit(thread.store_shared, room, k.number(1), k.emit(regs.concat, old), None, offsets=(0,), vec=1)
    made = compiled(k.done(), arch)
    assert made.n_regs > 0
    sass = disassemble(made.cubin)
    assert "ATOMS.ADD" in sass and "ATOMS.CAS" in sass and not re.search(r"\bATOMG?\b", sass)


@needs_nvrtc
def test_an_atomic_on_global_memory():
    """Of one register: a scalar in the text."""
    k = Threads(("p", Pointer(int32)))
    ptr, one = (k.emit(regs.concat, x) for x in (k.params[0], k.number(1)))
    old = k.emit(memory.atomic_regs, ptr, one, None, kind="add", order="relaxed", scope="gpu", name="old")
    k.store(k.params[0], 1, old)
    func = lowered(k.done())
    assert "old = atomic_add_i32_relaxed_gpu(p, 1);" in text_of(func)
    assert compiled(func).n_regs > 0


@needs_nvrtc
@each_hopper
@pytest.mark.parametrize("parity", [False, True])
def test_mbarriers_of_each_thread(arch, parity):
    """One call each: the arrivals and tests of PTX, on a word that the thread's index names."""
    k = Kernel(*pointers("p"), ("at", int32), shared_bytes=64, target=arch, block=(128, 1, 1))
    bars = k.emit(shared.array, dtype=int64, count=2, tag=0, offset=0)
    k.emit(mbarrier.init_at, bars, k.params[1], count=128)
    k.emit(sync.barrier)
    k.emit(mbarrier.arrive_at, bars, k.params[1], bytes=16)
    state = k.emit(mbarrier.arrive_at, bars, k.params[1])
    done = k.emit(mbarrier.probe, bars, k.params[1], k.number(0) if parity else state, parity=parity)
    found = k.emit(arith.select, done, k.number(1.0, float32), k.number(0.0, float32))
    k.store(k.params[0], k.emit(regs.concat, found))
    k.emit(sync.barrier)
    k.emit(mbarrier.invalidate_at, bars, k.params[1])
    func = k.done()
    text = text_of(func)
    test = "mbar_test_wait" if parity else "mbar_test_state"
    for call in ("mbar_init", "mbar_expect_own", "mbar_arrive_own", test, "mbar_invalidate"):
        assert text.count(f"{call}(scratch + 8 * at") == 1, call
    assert compiled(func, arch).n_regs > 0


@needs_nvrtc
@each_hopper
def test_mbarriers_of_another_block(arch):
    k = Kernel(*pointers("p"), ("at", int32), shared_bytes=64, target=arch, block=(128, 1, 1), num_ctas=2)
    bars = k.emit(shared.array, dtype=int64, count=2, tag=0, offset=0)
    for number in (-1, 16):
        k.emit(mbarrier.arrive_in, bars, k.params[1], k.number(1), bytes=number)
    func = k.done()
    text = text_of(func)
    for call, number in (("mbar_arrive_peer_in", 1), ("mbar_expect_peer_in", 16)):
        assert text.count(f"{call}(scratch + 8 * at, 1, {number});") == 1
    assert compiled(func, arch).n_regs > 0


# Blocks


def odd_block(threads: int) -> Func:
    k = Threads(("out", Pointer(int32)), block=(threads,))
    k.barrier()
    with k.when(flag(k)):
        k.store(k.params[0], k.emit(program.thread_id), k.emit(program.warp_id, name="w"))
    return lowered(k.done())


@needs_nvrtc
@pytest.mark.parametrize("threads", [5, 100, 96, 128])
def test_blocks_of_any_size(threads):
    """As many threads as the launch has, a barrier without a count, and a shuffle only where all lanes are there."""
    func = odd_block(threads)
    text = text_of(func)
    assert f"__launch_bounds__({threads})" in text and "__syncthreads();" in text
    assert ("__shfl_sync" in text) == (threads % 32 == 0)
    assert "BAR.SYNC" in disassemble(compiled(func).cubin) or threads <= 32


def test_a_shuffle_is_where_all_threads_come():
    text = text_of(odd_block(128))
    assert text.index("__shfl_sync") < text.index("if (")


# Checks of indices


@needs_nvrtc
@each_hopper
def test_bounds(arch):
    k = Threads(("n", int32), ("wide", int64), debug=True)
    n, wide = k.params
    i = k.at(3).emit(program.thread_id, name="i")
    k.emit(thread.bounds, i, i, n, sizes=(8, -1), view='t.tile[4, 4](1, "a%")')
    k.emit(thread.bounds, wide, sizes=(8,), view="u")
    func = lowered(k.done())
    text = text_of(func)
    assert "if (i < 0 || i >= 8 || i < 0 || i >= n) { printf(" in text
    assert 'index (%lld, %lld) is outside of t.tile[4, 4](1, \\"a%%\\"), which has (%lld, %lld) elements' in text
    assert compiled(func, arch).n_regs > 0


# Barriers of warps


@needs_nvrtc
@each_hopper
def test_a_barrier_of_a_warp(arch):
    """What is shared within a warp is stored before it and loaded after it, and no other warp is waited for."""
    k = Threads(*pointers("x", "out"), block=(64,))
    smem = k.at(2).emit(shared.array, dtype=float32, count=64, tag=1, name="smem")
    i = k.at(3).emit(program.thread_id, name="i")
    k.emit(thread.store_shared, smem, i, k.emit(regs.splat, k.load(k.params[0], i), count=1), None, offsets=(0,), vec=1)
    k.at(4).emit(sync.warp_barrier)
    other = k.emit(arith.xor, i, k.value(1))
    found = k.at(5).emit(thread.load_shared, smem, other, None, offsets=(0,), vec=1)
    k.store(k.params[1], i, k.emit(regs.extract, found, index=0))
    func = lowered(k.done())
    assert text_of(func).count("__syncwarp();") == 1
    names = [name for name in instructions(func, arch) if name.startswith(("STS", "LDS", "WARPSYNC", "BAR"))]
    assert names[0] == "STS" and names[-1] == "LDS" and not [name for name in names if name.startswith("BAR")]


# Machine code


def instructions(func: Func, arch: str = "sm_90a") -> list[str]:
    """Names of the instructions, in order, without padding."""
    found = disassemble(compiled(func, arch).cubin)
    names = re.findall(r"^\S+:\d+ +(?:@\S+ +)?([A-Z][\w.]+)", found, re.MULTILINE)
    return [name for name in names if name != "NOP"]


def count(found: list[str], name: str) -> int:
    return sum(each == name or each.startswith(f"{name}.") for each in found)


def in_registers(found: list[str]) -> bool:
    return not count(found, "LDL") and not count(found, "STL")


@needs_nvrtc
@each_hopper
def test_a_vector_is_one_access(arch):
    found = instructions(lowered(vector_copy().done()), arch)
    assert count(found, "LDG.E.128") == count(found, "LDG") == 1
    assert count(found, "STG.E.128") == count(found, "STG") == 1


@needs_nvrtc
@each_hopper
def test_shared_memory_of_threads(arch):
    found = instructions(lowered(transpose().done()), arch)
    assert count(found, "LDS") == count(found, "STS") == count(found, "LDG") == count(found, "STG") == 4
    assert count(found, "BAR") == 1 and in_registers(found)


@needs_nvrtc
@each_hopper
def test_a_tile_of_products_stays_in_registers(arch):
    """64 products a step of k, of two times 8 numbers that four accesses bring."""
    func = lowered(product().done())
    found, made = instructions(func, arch), compiled(func, arch)
    assert made.n_spills == made.stack == 0 and in_registers(found)
    steps, rest = divmod(count(found, "FFMA"), 64)
    assert steps and not rest
    assert count(found, "LDS.128") == count(found, "LDS") == 4 * steps
    assert count(found, "LDG.E.128") == 4 and count(found, "STG.E.128") == 16
    # Beside its own, a step takes at most a tenth of what it computes.
    assert len(found) < 68 * steps * 1.1 + 150


@needs_nvrtc
@each_hopper
@pytest.mark.parametrize("mask", [False, True])
def test_asynchronous_copies(arch, mask):
    found = instructions(lowered(asynchronous(mask).done()), arch)
    assert count(found, "LDGSTS") == 1 and any(name.endswith("128") for name in found if name.startswith("LDGSTS"))
    assert count(found, "LDS.128") == 1 and not count(found, "STS")


@needs_nvrtc
def test_own_arrays_with_run_time_indices():
    func = lowered(own_array().done())
    assert len(re.findall(r"#pragma unroll\n(#line \d+\n)?  for \(int i", text_of(func))) == 2
    found = instructions(func)
    assert in_registers(found) and count(found, "FADD") == 7


def test_long_loops_stay_loops():
    """Too many rounds to write out, and rounds whose number is not known."""
    for upper in (1000, None):
        k = Threads(("n", int32))
        acc = k.own(float32, 1000, "acc")
        with k.loop(k.params[0] if upper is None else upper) as i:
            k.write(acc, i, k.number(0.0, float32))
        assert "#pragma" not in text_of(lowered(k.done()))


def divisions(block: tuple[int, ...], divisor: int) -> Func:
    k = Threads(("out", Pointer(int32)), block=block)
    i = k.global_idx(0)
    places = k.plus(k.times(k.over(i, divisor), 1000), k.modulo(i, divisor))
    k.store(k.params[0], k.emit(program.thread_id), places)
    return lowered(k.done())


@needs_nvrtc
def test_divisions_of_indices():
    """By 4 a shift and a mask; by 12 one product and a shift, without corrections for numbers below zero."""
    four = instructions(divisions((128,), 4))
    shifts = [name for name in four if name.startswith(("SHF", "LEA.HI"))]
    assert len(shifts) == count(four, "LOP3") == 1
    twelve = instructions(divisions((96,), 12))
    assert count(twelve, "SHF.R.U32") == 1 and not count(twelve, "SHF.R.S32") and not count(twelve, "LEA.HI")
