"""Asynchronous copies, barriers and shared memory as text: what it looks like, that it compiles, and what it becomes."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from tests.cuda.build import Kernel, compiled, needs_nvrtc, pointer, text_of
from tests.effort import crossed
from weft.ir.core import Func, Value
from weft.ir.types import (
    DescriptorType,
    DType,
    ScalarType,
    bfloat16,
    float8e5,
    float16,
    float32,
    int1,
    int16,
    int32,
    int64,
    uint8,
)
from weft.layout import NVMMASharedLayout
from weft.ops import arith, async_copy, control, mbarrier, memory, program, regs, shared, sync, tma
from weft.runtime.sass import disassemble

FIRST = ("evict_first", 1.0, "evict_unchanged")
HOPPER = ("sm_90a", "sm_100a")
each_hopper = pytest.mark.parametrize("arch", HOPPER)


def descriptor(k: Kernel, name: str, shape=(64, 64), element: DType = float16, mode="tiled") -> Value:
    layout = NVMMASharedLayout.get_default_for(list(shape), element)
    value = Value(DescriptorType(element, tuple(shape), layout, mode), name)
    k.params = (*k.params, value)
    return value


def room(k: Kernel, dtype: DType, count: int, offset: int, name: str = "") -> Value:
    return k.emit(shared.scratch, dtype=dtype, count=count, tag=offset, offset=offset, name=name)


def barriers(k: Kernel, count: int = 1, offset: int = 0) -> list[Value]:
    bars = room(k, int64, count, offset, "bars")
    return [k.emit(shared.view, bars, k.number(8 * i), element=int64, count=1) for i in range(count)]


def sass(func: Func, arch: str = "sm_90a") -> str:
    """Machine code without spills and, unless it prints, without local memory."""
    made = compiled(func, arch)
    assert made.n_spills == 0
    text = disassemble(made.cubin)
    assert func.attrs.debug or not re.search(r"\b(LDL|STL)\b", text)
    return text


# Every operation compiles


@needs_nvrtc
@each_hopper
@pytest.mark.parametrize("debug", [False, True])
def test_barriers_compile(arch, debug):
    k = Kernel(("n", int32), debug=debug)
    on = k.emit(arith.cmp, k.params[0], k.number(3), predicate="lt")
    bars = barriers(k, 2)
    for bar in bars:
        k.emit(mbarrier.init, bar, count=3)
    k.emit(sync.barrier)
    for pred in (None, on):
        k.emit(mbarrier.expect, bars[0], pred, bytes=1024)
        k.emit(mbarrier.arrive, bars[1], pred, count=2)
        k.emit(mbarrier.wait, bars[0], k.params[0], pred)
    for increment in (True, False):
        k.emit(async_copy.mbarrier_arrive, bars[0], increment=increment)
    for cluster in (True, False):
        k.emit(sync.fence_async, cluster=cluster)
    for bar in bars:
        k.emit(mbarrier.invalidate, bar)
    text = sass(k.done(), arch)
    assert "SYNCS" in text and "ARRIVES.LDGSTSBAR" in text


@needs_nvrtc
@pytest.mark.parametrize("debug", [False, True])
def test_barriers_of_ampere_compile(debug):
    """They count arrivals, one at a time, and are polled."""
    k = Kernel(("n", int32), debug=debug)
    (bar,) = barriers(k)
    k.emit(mbarrier.init, bar, count=3)
    k.emit(sync.barrier)
    k.emit(async_copy.mbarrier_arrive, bar, increment=True)
    k.emit(mbarrier.arrive, bar, None, count=2)
    k.emit(mbarrier.wait, bar, k.params[0], None)
    k.emit(mbarrier.invalidate, bar)
    func = k.done()
    assert "if (threadIdx.x == 0) mbar_arrive_each(bars, 2);" in text_of(func, "sm_80")
    assert "ARRIVES" in sass(func, "sm_80")


@needs_nvrtc
@each_hopper
def test_tma_compiles(arch):
    """Every rank, mode and reduction."""
    k = Kernel(("x", int32), ("step", int16))
    x, step = k.params
    (bar,), smem = barriers(k), room(k, int32, 4096, 1024, "smem")
    for rank in range(1, 6):
        desc = descriptor(k, f"desc_{rank}", (16,) * rank if rank < 4 else (2,) * (rank - 1) + (16,), int32)
        boxes = (((0,) * rank, 0), ((0,) * (rank - 1) + (32,), 4096))
        k.emit(tma.load, desc, bar, smem, None, *[x] * rank, boxes=boxes)
        k.emit(tma.store, desc, smem, *[x] * rank, boxes=boxes)
        for kind in get_args(tma.Reduction):
            k.emit(tma.reduce, desc, smem, *[x] * rank, kind=kind, boxes=boxes)
        k.emit(tma.store_wait, pendings=rank)
    for rank in (3, 4, 5):
        desc = descriptor(k, f"im2col_{rank}", (64, 32), int32, mode="im2col")
        boxes = (((0, 0), 0), ((0, 32), 4096))
        k.emit(tma.load_im2col, desc, bar, smem, None, *[x] * rank, *[step] * (rank - 2), boxes=boxes)
    text = sass(k.done(), arch)
    for rank in range(1, 6):
        assert f"UTMALDG.{rank}D " in text and f"UTMASTG.{rank}D" in text and f"UTMAREDG.{rank}D" in text
    for rank in (3, 4, 5):
        assert f"UTMALDG.{rank}D.IM2COL" in text


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", *HOPPER])
def test_copies_compile(arch):
    """Every width and modifier, masked by copy, by thread, or not."""
    k = Kernel(("p", pointer(float32)), ("n", int32))
    p, n = k.params
    thread = k.thread()
    smem = room(k, float32, 8192, 0, "smem")
    ptr = k.emit(memory.addptr, p, k.emit(arith.mul, thread, k.number(4)))
    on = k.emit(arith.cmp, thread, n, predicate="lt")
    each = k.emit(regs.splat, on, count=2)
    modifiers = [{}, {"cache": ".ca"}, {"cache": ".cg"}, {"l2": FIRST}, {"l2": FIRST, "prefetch": 128}]
    for vec in (1, 2, 4):
        part = k.number(vec - 1, count=2)
        for mask, active, sizes in (
            (None, None, None),
            (on, None, None),
            (each, on, None),
            (each, None, part),
            (None, on, part),
        ):
            for modifier in modifiers:
                k.emit(
                    async_copy.copy, smem, thread, ptr, mask, active, None, sizes, n, offsets=((0, 8), (0, 4)), places=(0, 16),
                    added=(0, 512), vec=vec, pads=((64, 4),), **modifier,
                )  # fmt: skip
    k.emit(async_copy.commit)
    k.emit(async_copy.wait, pendings=1)
    text = sass(k.done(), arch)
    for width in ("LDGSTS.E ", "LDGSTS.E.64 ", "LDGSTS.E.128 ", "LDGSTS.E.BYPASS.128 "):
        assert width in text
    assert "LDGDEPBAR" in text and "DEPBAR.LE SB0, 0x1" in text


def test_a_copy_reads_well():
    k = Kernel(("p", pointer(float16)), ("n", int32))
    smem = room(k, float16, 8192, 1024, "smem")
    thread = k.emit(program.thread_id, name="thread")
    on = k.emit(arith.cmp, thread, k.params[1], predicate="lt", name="on")
    k.emit(
        async_copy.copy,
        smem,
        thread,
        k.params[0],
        on,
        None,
        None,
        None,
        offsets=((0, 1024),),
        places=(0, 0),
        added=(0, 512),
        vec=8,
    )
    k.emit(async_copy.commit)
    text = text_of(k.done())
    assert "copy_async_16_or_zero(smem + 2 * thread + 1024 * r, p + 1024 * r, on);" in text


@needs_nvrtc
@pytest.mark.parametrize(
    ("element", "arch"), crossed([float16, uint8, float8e5, bfloat16, float32, int32], [*HOPPER, "sm_80"]), ids=str
)
def test_matrices_compile(arch, element):
    """Loads and (from sm_90 on) stores of one, two and four matrices."""
    if arch == "sm_80" and element.is_fp8():
        element = int1
    k = Kernel(("p", pointer(element)), ("n", int32))
    thread = k.thread()
    ptr = k.emit(memory.addptr, k.params[0], thread)
    smem = room(k, element, 4096, 0, "smem")
    on = k.emit(arith.cmp, k.params[1], k.number(3), predicate="lt")
    for matrices in (1, 2, 4):
        for transposed in (False, True) if element.itemsize == 2 else (False,):
            each = matrices * 4 // element.itemsize
            places = {
                "offsets": (0, 64), "registers": (tuple(range(each)), tuple(range(each, 2 * each))),
                "matrices": matrices, "transposed": transposed, "added": (0, 256),
            }  # fmt: skip
            k.store(ptr, k.emit(shared.load_matrix, smem, thread, **places))
            for mask in (None, on) if arch != "sm_80" else ():
                k.emit(shared.store_matrix, smem, thread, k.load(ptr, 2 * each), mask, **places)
    text = sass(k.done(), arch)
    for words in ("", ".2", ".4"):
        assert re.search(rf"LDSM\.16\.M88{re.escape(words)} ", text)
        assert arch == "sm_80" or re.search(rf"STSM\.16\.M88{re.escape(words)} ", text)
    assert element.itemsize != 2 or "LDSM.16.MT88.4" in text


@needs_nvrtc
@pytest.mark.parametrize("element", [int1, uint8, float16, float32, int64], ids=str)
def test_chosen_places_compile(element):
    k = Kernel(("p", pointer(element)), ("n", int32))
    thread = k.thread()
    ptr = k.emit(memory.addptr, k.params[0], thread)
    smem = room(k, element, 4096, 0, "smem")
    index = k.emit(regs.affine, thread, offsets=((0, 128, 256, 384),))
    on = k.emit(arith.cmp, thread, k.params[1], predicate="lt")
    for pads in ((), ((64, 4),), ((16, 1), (64, 4))):
        for mask in (None, on):
            k.emit(shared.store_at, smem, index, k.load(ptr, 4), mask, pads=pads)
        k.store(ptr, k.emit(shared.load_at, smem, index, pads=pads))
        places = {"offsets": (0, 64), "registers": ((0,), (1,)), "vec": 1, "pads": pads, "added": (0, 3)}
        k.emit(shared.store_regs, smem, thread, k.load(ptr, 2), on, **places)
        k.store(ptr, k.emit(shared.load_regs, smem, thread, **places))
    assert "LDS" in sass(k.done())


@needs_nvrtc
def test_memory_is_carried():
    """Buffers that swap are two addresses; so are descriptors."""
    k = Kernel(("n", int32))
    maps = [descriptor(k, name) for name in ("first", "second")]
    (bar,) = barriers(k)
    a, b = (room(k, float16, 4096, 1024 + 8192 * i, name) for i, name in enumerate("ab"))
    with k.region([ScalarType(int32), a.type, b.type, *(m.type for m in maps)], ["i", "p", "q", "d", "e"]) as body:
        i, p, q, d, e = body.args
        k.at(3).emit(tma.load, d, bar, p, None, i, k.number(0), boxes=(((0, 0), 0),))
        k.at(4).emit(control.yield_, q, p, e, d)
    k.at(2).emit(
        control.for_, k.number(0), k.params[0], k.number(1), a, b, *maps, regions=(body.done,), descending=False
    )
    func = k.done()
    text = text_of(func)
    assert re.search(r"u32 p = a;", text) and re.search(r"const CUtensorMap\* d = &first;", text)
    assert "tma_load_2d(p, d, bars, 0, i);" in text
    assert "UTMALDG.2D" in sass(func)


@needs_nvrtc
@each_hopper
@pytest.mark.parametrize("masked", [False, True])
def test_a_store_that_signals(arch, masked):
    """Each access is one st.async as wide as its vector, whose bytes complete on the mbarrier."""
    k = Kernel(("n", int32), shared_bytes=4096 + 8)
    memory, (bar,) = room(k, float32, 1024, 0), barriers(k, offset=4096)
    base = k.emit(arith.mul, k.thread(), k.number(4))
    mask = k.emit(arith.cmp, base, k.params[0], predicate="lt") if masked else None
    values = k.number(1.0, float32, 8)
    registers = ((0, 1, 2, 3), (4, 5, 6, 7))
    k.emit(shared.async_store_regs, memory, base, values, bar, mask, offsets=(0, 512), registers=registers, vec=4)
    func = k.done()
    assert len(re.findall(r"\bSTAS\.128", sass(func, arch))) == 2
