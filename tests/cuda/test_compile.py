"""Every rule's text compiles for every target: one kernel per family with all its operations on all types."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.cuda.build import ARCHITECTURES, Kernel, compiled, needs_nvrtc, pointer
from tests.effort import some
from weft import targets
from weft.cuda import RULES
from weft.ir.define import OPS
from weft.ir.types import (
    DTYPES,
    Pointer,
    RegsType,
    ScalarType,
    bfloat16,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from weft.ops import (
    arith,
    asm,
    control,
    debug,
    elements,
    hints,
    libdevice,
    memory,
    program,
    regs,
    shared,
    sync,
    warp,
)

pytestmark = needs_nvrtc
INTEGERS = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
FLOATS = tuple(d for d in DTYPES if d.is_floating())
DTYPES_OF = {dtype.name: dtype for dtype in DTYPES}
WIDE = tuple(d for d in DTYPES if not d.is_fp8())


def types_of(arch):
    """What the target computes with: float8 needs conversions that sm_80 lacks."""
    return WIDE if arch == "sm_80" else DTYPES


def arguments(dtypes):
    return Kernel(*((dtype.code, pointer(dtype)) for dtype in dtypes), ("n", int32))


def parameter(k, dtype):
    return next(p for p in k.params if p.name == dtype.code)


def combinations(k, dtype, x, y, z):
    """Results of the type, and comparisons, of everything that takes it."""
    e = k.emit
    same = [e(kind, x, y) for kind in (arith.add, arith.sub, arith.mul, arith.div, arith.rem)]
    same += [e(kind, x, y, nan=nan) for kind in (arith.minimum, arith.maximum) for nan in (False, True)]
    flags = [e(arith.cmp, x, y, predicate=p) for p in ("eq", "ne", "lt", "le", "gt", "ge")]
    if dtype.is_floating():
        same += [
            e(arith.div_rn, x, y),
            e(arith.fma, x, y, z),
            e(arith.clamp, x, y, z),
            e(arith.clamp, x, y, z, nan=True),
        ]
        same += [e(arith.math, x, fn=fn) for fn in arith.MATH]
    else:
        same += [e(kind, x, y) for kind in (arith.and_, arith.or_, arith.xor, arith.shl, arith.shr)]
        if dtype.bits >= 32:
            same += [e(arith.umulhi, x, y), e(arith.cast, e(arith.popcount, x), dtype=dtype)]
        if dtype.kind == "int":
            same += [e(arith.math, x, fn=fn) for fn in ("abs", "neg")]
    same += [e(arith.select, flag, x, y) for flag in flags]
    return same


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_arith(arch):
    """All functions of all types, on arrays and on scalars; each result is stored."""
    dtypes = [d for d in types_of(arch) if d is not int1 and (arch == "sm_90a" or d in (int32, *FLOATS))]
    k = arguments(dtypes)
    for dtype in dtypes:
        ptr = k.emit(memory.addptr, parameter(k, dtype), k.thread())
        x, y, z = (k.load(ptr, 4) for _ in range(3))
        for value in combinations(k, dtype, x, y, z):
            k.store(ptr, value)
        xs, ys, zs = (k.emit(regs.extract, v, index=1) for v in (x, y, z))
        k.store(ptr, k.emit(regs.concat, *combinations(k, dtype, xs, ys, zs)))
        k.store(ptr, k.emit(arith.add, x, k.number(-2, dtype, 4)))
        if dtype.kind != "uint":
            k.store(ptr, k.emit(arith.math, k.number(-2, dtype, 4), fn="neg"))
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_library(arch):
    """The intrinsics of CUDA's device library; `tests/kernels/test_libdevice.py` compiles the rest, which no target changes."""
    dtypes = (int1, int32, int64, uint32, uint64, float32, float64)
    k = arguments(dtypes)
    places = {d: k.emit(memory.addptr, parameter(k, d), k.thread()) for d in dtypes}
    loaded = {d: [k.load(places[d], 2) for _ in range(4)] for d in dtypes}
    for name, function in libdevice.FUNCTIONS.items():
        for version in function.overloads:
            if "__" in version.cuda:
                values = [each[at] for at, each in enumerate(loaded[d] for d in version.arguments)]
                k.store(places[version.result], k.emit(libdevice.call, *values, fn=name))
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_casts(arch):
    dtypes = types_of(arch)
    k = arguments(dtypes)
    places = {d: k.emit(memory.addptr, parameter(k, d), k.thread()) for d in dtypes}
    loaded = {d: k.load(places[d], 2) for d in dtypes}
    for source, dtype in itertools.product(dtypes, dtypes):
        k.store(places[dtype], k.emit(arith.cast, loaded[source], dtype=dtype))
        if dtype.is_floating() and not dtype.is_fp8():
            k.store(places[dtype], k.emit(arith.cast, loaded[source], dtype=dtype, rounding="rz"))
        if source.bits == dtype.bits:
            k.store(places[dtype], k.emit(arith.bitcast, loaded[source], element=dtype))
    address = k.emit(arith.bitcast, places[float32], element=int64)
    k.store(k.emit(arith.bitcast, address, element=pointer(int32)), loaded[int32])
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_global_memory(arch):
    """Every width of every type, with every kind of mask and modifier; off sm_90a only the widest."""
    k = arguments(DTYPES)
    widest = 32 if arch == "sm_100a" else 16
    narrowest = 1 if arch == "sm_90a" else widest
    flag = k.emit(arith.cmp, k.thread(), k.params[-1], predicate="lt")
    for dtype in DTYPES:
        ptr = k.emit(memory.addptr, parameter(k, dtype), k.thread())
        for vec in (v for v in (1, 2, 4, 8, 16, 32) if narrowest <= v * dtype.itemsize <= widest):
            count = 2 * vec
            mask = k.emit(regs.splat, flag, count=2)
            for options in (
                {}, {"cache": ".cg"}, {"mask": mask, "eviction": "evict_last"},
                {"l2": ("evict_last", 0.25, "evict_first"), "prefetch": 64},
                {"mask": mask, "eviction": "no_allocate", "l2": ("evict_first", 1.0, "evict_unchanged")},
                {"mask": flag, "other": k.number(1, dtype, count)}, {"volatile": True},
                *({"order": order, "scope": "sys"} for order in ("relaxed", "acquire") if vec == 1),
            ):  # fmt: skip
                value = k.load(ptr, count, vec, **options)
                mask_only = {"mask": options["mask"]} if "mask" in options else {}
                k.store(ptr, value, vec, eviction=options.get("eviction", ""), **mask_only)
            k.store(ptr, k.number(0, dtype, count), vec, cache=".wt")
            turned = (tuple(range(vec - 1, -1, -1)), tuple(range(2 * vec - 1, vec - 1, -1)))
            places = {"offsets": ((0, 128),), "registers": turned, "vec": vec}
            value = k.emit(memory.load_regs, ptr, flag, k.number(1, dtype, count), count=count, **places)
            k.emit(memory.store_regs, ptr, value, flag, **places)
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_parts_of_vectors(arch):
    """`memory.load_part`, `memory.store_part` and `regs.within`, with one bound, with both and with none."""
    dtypes = (int8, float16, float32, float64)
    k = arguments(dtypes)
    for dtype in dtypes:
        ptr = k.emit(memory.addptr, parameter(k, dtype), k.thread())
        on = k.emit(regs.splat, k.emit(arith.cmp, k.thread(), k.params[-1], predicate="lt"), count=2)
        low, high = (k.emit(regs.splat, n, count=2) for n in (k.thread(), k.params[-1]))
        for turned in (False, True):
            registers = tuple([tuple(range(4 * i, 4 * i + 4))[:: -1 if turned else 1] for i in range(2)])
            places = {"offsets": ((0, 128),), "registers": registers, "vec": 4}
            for begin, end in ((low, high), (low, None), (None, high), (None, None)):
                value = k.emit(memory.load_part, ptr, k.number(1, dtype, 8), on, begin, end, **places)
                value = k.emit(regs.within, value, k.number(2, dtype), on, on, begin, end, vec=4)
                k.emit(memory.store_part, ptr, value, on, begin, end, eviction="evict_last", **places)
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_strides_and_pointer_arrays(arch):
    k = Kernel(("x", pointer(float32)), ("stride", int32), ("long_stride", int64))
    x, stride, long_stride = k.params
    places = {"registers": ((0,), (1,), (2,), (3,)), "vec": 1}
    offsets = ((0, 0, 2, 2), (0, 1, 0, 1), (0, 0, 3, 3))
    value = k.emit(memory.load_regs, x, None, None, stride, long_stride, offsets=offsets, count=4, **places)
    many = k.emit(regs.concat, *(k.emit(memory.addptr, x, k.number(i)) for i in range(4)))
    k.emit(memory.store_regs, many, value, None, offsets=((0, 2**33, 5, 7),), **places)
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_constants_that_an_int_does_not_hold(arch):
    k = Kernel(("n", int32), ("m", int64), ("out", pointer(int32)), ("wide", pointer(int64)))
    n, m, out, wide = k.params
    for table in ((0, 2**30, 2**31, 3 * 2**30), (0, 2**25, 2**31, 2**31 + 2**25), (0, 2**32 - 1, 5, 7)):
        k.store(out, k.emit(regs.affine, n, n, offsets=(table, table)))
        k.store(wide, k.emit(regs.affine, m, m, offsets=(table, table)))
        places = {"registers": ((0,), (1,), (2,), (3,)), "vec": 1, "count": 4}
        k.store(out, k.emit(memory.load_regs, out, None, None, offsets=(table,), **places))
    assert compiled(k.done(), arch).n_regs > 0


ATOMICS = [
    *(("add", d) for d in (int16, int32, uint32, int64, uint64, float16, bfloat16, float32, float64)),
    *((kind, d) for kind in ("min", "max") for d in (int16, int32, uint32, int64, uint64, float16, bfloat16, float32, float64)),
    *((kind, d) for kind in ("and", "or", "xor") for d in (uint16, int32, uint64)),
    *(("xchg", d) for d in (int16, uint32, int64, float16, float32, float64)),
]  # fmt: skip


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_atomics(arch):
    dtypes = sorted({d for _, d in ATOMICS}, key=lambda d: d.code)
    k = arguments(dtypes)
    flag = k.emit(arith.cmp, k.thread(), k.params[-1], predicate="lt")
    for (kind, dtype), order in zip(ATOMICS, itertools.cycle(("relaxed", "acquire", "release", "acq_rel"))):
        value = k.number(3, dtype, 2)
        ptr = k.emit(regs.concat, *[k.emit(memory.addptr, parameter(k, dtype), k.number(i)) for i in range(2)])
        for mask in (None, k.emit(regs.splat, flag, count=2)):
            old = k.emit(memory.atomic_regs, ptr, value, mask, kind=kind, order=order, scope="gpu")
            k.emit(memory.store_regs, ptr, old, None, offsets=((0, 0),), registers=((0,), (1,)), vec=1)
            old = k.emit(memory.atomic_cas_regs, ptr, value, value, mask, order=order, scope="sys")
            k.emit(memory.store_regs, ptr, old, None, offsets=((0, 0),), registers=((0,), (1,)), vec=1)
    vectors = [(float32, (2, 4)), (float16, (2, 8)), (bfloat16, (4,))] if targets.get(arch).has_vector_atomics else []
    given = {"kind": "add", "order": "relaxed"}
    for (dtype, widths), scope in zip(vectors, itertools.cycle(("gpu", "sys"))):
        for vec, mask in itertools.product(widths, (None, flag)):
            value, there = k.number(3, dtype, vec), (tuple(range(vec)),)
            k.emit(
                memory.reduce_regs, parameter(k, dtype), value, mask, offsets=((0,),), registers=there, vec=vec,
                scope=scope, **given,
            )  # fmt: skip
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_multimem(arch):
    dtypes = [DTYPES_OF[name] for name in memory.MULTIMEM["add"]]
    k = arguments([*dtypes, int16])
    flag = k.emit(arith.cmp, k.thread(), k.params[-1], predicate="lt")
    for dtype, mask in itertools.product((*dtypes, int16), (None, flag)):
        # Floats of up to 32 bits have vectors of 16 bytes, others words.
        wide = dtype.is_floating() and dtype.bits < 64
        vec, ptr = (16 if wide else max(dtype.itemsize, 4)) // dtype.itemsize, parameter(k, dtype)
        tables = {"offsets": ((0,),), "registers": (tuple(range(vec)),), "vec": vec}
        k.emit(memory.store_regs, ptr, k.number(3, dtype, vec), mask, multimem=True, **tables)
        for kind in (kind for kind, names in memory.MULTIMEM.items() if dtype.name in names):
            old = k.emit(memory.load_regs, ptr, mask, None, multimem=kind, count=vec, **tables)
            attrs = {"kind": kind, "order": "relaxed", "scope": "sys", "multimem": True}
            k.emit(memory.reduce_regs, ptr, old, mask, **tables, **attrs)
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("debug", [False, True])
def test_polls(arch, debug):
    dtypes = [int16, uint16, int32, uint32, int64, uint64]
    k = arguments(dtypes)
    k.attrs["debug"] = debug
    flag = k.emit(arith.cmp, k.thread(), k.params[-1], predicate="lt")
    for dtype, order, scope in zip(
        dtypes, itertools.cycle(("relaxed", "acquire")), itertools.cycle(("cta", "gpu", "sys"))
    ):
        value = k.number(3, dtype, 2)
        ptr = k.emit(regs.concat, *[k.emit(memory.addptr, parameter(k, dtype), k.number(i)) for i in range(2)])
        for mask in (None, k.emit(regs.splat, flag, count=2)):
            for timeout in (None, k.number(100, int64)):
                met = k.emit(memory.poll_regs, ptr, value, mask, timeout, order=order, scope=scope)
                met = k.emit(arith.cast, met, dtype=dtype)
                k.emit(memory.store_regs, ptr, met, None, offsets=((0, 0),), registers=((0,), (1,)), vec=1)
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_registers_and_shuffles(arch):
    k = arguments(DTYPES)
    thread = k.thread()
    for dtype in DTYPES:
        ptr = k.emit(memory.addptr, parameter(k, dtype), thread)
        x = k.load(ptr, 8)
        turned = k.emit(regs.gather, x, table=(3, 1, 0, 2, 7, 5, 4, 6))
        both = k.emit(regs.concat, turned, k.emit(regs.extract, x, index=2), k.number(1, dtype))
        k.store(ptr, both)
        k.store(ptr, k.emit(warp.shuffle_xor, x, mask=5))
        k.store(ptr, k.emit(warp.shuffle_idx, x, k.emit(program.lane_id)))
        k.store(ptr, k.emit(regs.splat, k.emit(warp.shuffle_xor, k.emit(regs.extract, x, index=0), mask=1), count=2))
        if dtype in INTEGERS:
            base = k.emit(regs.extract, x, index=0)
            k.store(ptr, k.emit(regs.affine, base, base, offsets=((0, 1, 5, 5), (0, 1, 2, 3))))
            k.store(ptr, k.emit(regs.xor, base, offsets=(0, 16, 3, 19)))
        if dtype in FLOATS and (arch != "sm_80" or not dtype.is_fp8()):
            k.store(ptr, dot(k, x, x, k.emit(regs.gather, x, table=(0, 1, 2, 3))))
    lanes = k.emit(memory.addptr, parameter(k, float32), thread)
    assert isinstance(k.emit(warp.shuffle_xor, lanes, mask=2).type.element, Pointer)
    word = k.emit(warp.vote, k.emit(arith.cmp, thread, k.number(7), predicate="lt"))
    k.store(parameter(k, uint32), k.emit(regs.splat, word, count=1))
    assert compiled(k.done(), arch).n_regs > 0


def dot(k, a, b, acc):
    return k.emit(
        regs.dot, a, b, acc, rows=(0, 0, 1, 1), columns=(0, 1, 0, 1),
        a_table=((0, 1, 2, 3), (4, 5, 6, 7)), b_table=((0, 2, 4, 6), (1, 3, 5, 7)),
    )  # fmt: skip


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_pairs(arch):
    """Arrays of an odd length and scalars too, which have elements without a partner; an int64 is a pair of its own."""
    halves, floats = [t for t in DTYPES if t.is_floating() and t.bits == 16], [float32]
    k = arguments([*halves, *floats, int64])
    for dtype in (*halves, *floats, int64):
        ptr = parameter(k, dtype)
        for count in (1, 2, 5):
            x = k.load(ptr, count)
            k.store(ptr, k.emit(arith.packed_fma, x, x, x))
            for kind in ("add", "sub", "mul", *(("min", "max") if dtype.bits == 16 else ())):
                k.store(ptr, k.emit(arith.packed, x, x, kind=kind))
    made = compiled(k.done(), arch)
    assert made.n_regs > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_four_bit_integers(arch):
    """Of arrays whose last word is not full too, and of scalars."""
    sources = (int8, uint8, int32, uint32)
    k = arguments([float16, bfloat16, *sources])
    for source in sources:
        ptr = parameter(k, source)
        for dtype in (float16, bfloat16):
            for count in (1, 5):
                x = k.load(ptr, count)
                for interleaved in (False,) if source.bits == 8 else (False, True):
                    for number in k.create(arith.unpack_int4, (x,), {"dtype": dtype, "interleaved": interleaved}):
                        k.store(parameter(k, dtype), number)
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_words_of_small_numbers(arch):
    """Without instructions that convert one integer or one fp8 number."""
    cases = [(regs.narrow, source, dtype) for dtype, sources in regs.NARROW.items() for source in sources]
    cases += [(regs.widen, source, dtype) for source, dtypes in regs.WIDEN.items() for dtype in dtypes]
    known = types_of(arch)
    for kind, source, dtype in cases:
        if source in known and dtype in known:
            k = arguments([source, dtype])
            k.store(parameter(k, dtype), k.emit(kind, k.load(parameter(k, source), 8), dtype=dtype))
            made = compiled(k.done(), arch)
            assert made.n_regs > 0 and "cvt.rn.f32.s" not in made.ptx and "cvt.rn.f32.u" not in made.ptx


@pytest.mark.parametrize("arch", some(("sm_90a", "sm_100a", "sm_80"), 3))
def test_scratch(arch):
    k = arguments(DTYPES)
    k.attrs["shared_bytes"] = 32768
    thread = k.thread()
    flag = k.emit(arith.cmp, thread, k.params[-1], predicate="lt")
    for tag, dtype in enumerate(DTYPES):
        room = k.emit(shared.scratch, dtype=dtype, count=1024, tag=tag, offset=1024 * tag)
        ptr = k.emit(memory.addptr, parameter(k, dtype), thread)
        for vec in (v for v in (1, 2, 4, 8, 16) if v * dtype.itemsize <= 16):
            places = {"offsets": (0, vec), "registers": (tuple(range(vec)), tuple(range(vec, 2 * vec))), "vec": vec}
            for mask in (None, flag):
                k.emit(shared.store_regs, room, thread, k.load(ptr, 2 * vec), mask, **places)
            k.emit(sync.barrier)
            k.emit(sync.schedule_barrier)
            k.emit(sync.fence, order="sc", scope="sys")
            k.emit(sync.fence)
            k.store(ptr, k.emit(shared.load_regs, room, thread, **places))
        index = k.emit(regs.affine, thread, offsets=((0, 3, 5, 9),))
        k.store(ptr, k.emit(shared.load_at, room, index))
        value = k.load(ptr, 4)
        for kind in ("add", "max", "min", "xchg", "and", "or", "xor"):
            works = kind == "add" if dtype.bits == 16 and dtype.is_floating() else dtype.bits >= 32
            if not works or (kind in ("and", "or", "xor") and not dtype.is_int()):
                continue
            for mask in (None, k.emit(regs.splat, flag, count=4)):
                k.emit(shared.atomic_at, room, index, value, mask, kind=kind)
                k.store(ptr, k.emit(shared.atomic_at, room, index, value, mask, kind=kind))
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_debug(arch):
    k = arguments(types_of(arch))
    for dtype in types_of(arch):
        x = k.load(parameter(k, dtype), 2)
        places = [k.emit(regs.affine, k.number(0), offsets=((0, 1),)) for _ in range(2)]
        k.emit(debug.print_, x, *places, prefix='100% "x"', hex=dtype.is_int(), coordinates=2)
        k.emit(debug.print_, k.emit(regs.extract, x, index=0), prefix="one")
        holds = k.emit(arith.cmp, x, x, predicate="eq")
        k.emit(debug.assert_, holds, None, message="50% of x\ndiffer")
        k.emit(debug.assert_, holds, holds, message="masked")
        k.emit(debug.breakpoint_, x, names=("x",))
    k.emit(debug.print_, prefix="here")
    k.emit(debug.print_, k.params[0], prefix="pointer")
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_program_and_promises(arch):
    k = Kernel(("out", pointer(int32)), ("n", int32))
    out, n = k.params
    k.emit(hints.assume, k.emit(arith.cmp, n, k.number(0), predicate="gt"))
    n = k.emit(hints.axes, k.emit(hints.uniform, n), divisible=(16,))
    parts = [k.emit(kind, axis=axis) for kind in (program.program_id, program.num_programs) for axis in range(3)]
    k.store(k.emit(memory.addptr, out, n), k.emit(regs.concat, *parts, k.thread(), k.emit(program.thread_id)))
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_dependent_launches(arch):
    k = Kernel(("out", pointer(int32)))
    k.emit(sync.gdc_launch_dependents)
    k.emit(sync.gdc_wait)
    k.store(k.params[0], k.emit(regs.splat, k.thread(), count=1))
    ptx = compiled(k.done(), arch).ptx
    assert 0 < ptx.index("griddepcontrol.launch_dependents") < ptx.index("griddepcontrol.wait") < ptx.index("st.global")


def inline(k, kind, values, **attrs):
    made = k.emit(kind, *values, **attrs)
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_asm(arch):
    k = arguments((float16, int8, int32, int64, float32))
    h, b, i, q, f = (k.load(parameter(k, d), 8) for d in (float16, int8, int32, int64, float32))
    cases = [
        ((i, i), "add.s32 $0, $1, $2;", "=r,r,r", (int32,), 1),
        ((q,), "not.b64 $0, $1;", "=l,l", (int64,), 1),
        ((f,), "sin.approx.f32 $0, $1;", "=f,f", (float32,), 1),
        ((f,), "mov.b32 $0, $1;", "=r,r", (int32,), 1),
        ((h, h), "add.f16x2 $0, $1, $2;", "=r,r,r", (float16,), 2),
        ((h,), "neg.f16 $0, $1;", "=h,h", (float16,), 1),
        ((b, b), "vadd4.u32.u32.u32 $0, $1, $2, $1;", "=r,r,r", (int8,), 4),
        ((i,), "{ .reg .b32 t; and.b32 t, $2, 0xff; mov.b32 $0, t; mov.b32 $1, %laneid; }", "=&r,=r,r", (int32, int32), 1),
        ((i, i, i), "mad.lo.s32 $0, $2, $3, $1;", "=r,0,r,r", (int32,), 1),
    ]  # fmt: skip
    for values, text, constraints, dtypes, pack in cases:
        for kind in (asm.inline_asm, asm.inline_asm_volatile):
            attrs = {"asm": text, "constraints": constraints, "dtypes": dtypes, "pack": pack, "sim": None}
            for result, dtype in zip(inline(k, kind, values, **attrs), dtypes, strict=True):
                k.store(parameter(k, dtype), result)
    scalar = k.emit(regs.extract, i, index=0)
    (one,) = inline(k, asm.inline_asm, (scalar,), asm="neg.s32 $0, $1;", constraints="=r,r", dtypes=(int32,), pack=1)
    k.store(parameter(k, int32), k.emit(regs.splat, one, count=1))
    halves = k.load(parameter(k, float16), 3)
    attrs = {"asm": "mov.b32 $0, $3; mov.b16 $1, $4; mov.b32 $2, $5;", "constraints": "=r,=h,=r,r,h,r", "sim": None}
    for kind in (asm.block, asm.block_volatile):
        turned, number = inline(k, kind, (halves, scalar), **attrs, dtypes=(float16, int32), shapes=((3,), (1,)))
        k.store(parameter(k, float16), turned)
        k.store(parameter(k, int32), number)
    memory = k.emit(shared.array, dtype=float32, count=64, tag=0, offset=0)
    k.emit(
        asm.block_memory, memory, None, None, scalar, asm="st.shared.b32 [$0], $1;", constraints="r,r", dtypes=(), shapes=(),
        places=(0,), sim=None,
    )  # fmt: skip
    assert compiled(k.done(), arch).n_regs > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_control_and_maps(arch):
    k = Kernel(("out", pointer(float32)), ("n", int64), ("u", uint32))
    out, n, u = k.params
    zero = k.number(0, int64)
    with k.region([ScalarType(int64), RegsType(float32, 4), ScalarType(int64)], ["i", "acc", "odd"]) as body:
        i, acc, odd = body.args
        flag = k.emit(arith.cmp, i, odd, predicate="gt")
        with k.region() as then:
            k.emit(control.yield_, k.emit(arith.mul, acc, acc))
        with k.region() as orelse:
            k.emit(control.yield_, acc)
        chosen = k.emit(control.if_, flag, regions=(then.done, orelse.done))
        k.emit(control.yield_, chosen, i)
    step = k.number(-1, int64)
    acc, _ = k.emit(control.for_, n, zero, step, k.number(1.0, float32, 4), zero, regions=(body.done,), descending=True)
    with k.region([ScalarType(uint32)], ["left"]) as before:
        (left,) = before.args
        k.emit(control.condition, k.emit(arith.cmp, left, k.number(0, uint32), predicate="ne"), left, acc)
    with k.region([ScalarType(uint32), acc.type], ["left", "acc"]) as after:
        left, _ = after.args
        k.emit(control.yield_, k.emit(arith.shr, left, k.number(1, uint32)))
    _, acc = k.emit(control.while_, u, regions=(before.done, after.done))
    with k.region([ScalarType(float32)] * 2, ["a", "b"]) as pair:
        a, b = pair.args
        with k.region() as then:
            k.emit(control.yield_, a)
        with k.region() as orelse:
            k.emit(control.yield_, b)
        larger = k.emit(
            control.if_, k.emit(arith.cmp, a, b, predicate="gt"), regions=(then.done, orelse.done), name="larger"
        )
        k.emit(control.yield_, larger, b)
    k.store(out, k.emit(elements.map_elements, acc, pack=2, regions=(pair.done,)), 4)
    assert compiled(k.done(), arch).n_regs > 0


def test_every_operation_has_a_rule():
    lowered = {kind for kind in OPS.values() if not kind.removed_by}
    assert lowered <= set(RULES), sorted(kind.name for kind in lowered - set(RULES))
    assert not [kind.name for kind in RULES if kind.removed_by]


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("dtype", [int32, int64])
def test_trips(arch, dtype):
    unsigned = {int32: uint32, int64: uint64}[dtype]
    k = Kernel(("out", pointer(unsigned)), *((name, dtype) for name in ("lower", "upper", "step")))
    out, *bounds = k.params
    k.store(out, k.emit(regs.splat, k.emit(control.trips, *bounds), count=1))
    assert compiled(k.done(), arch).n_spills == 0


def test_every_operation_is_compiled_here():
    """The kernels of this folder's tests contain every operation that has a rule."""
    source = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("*.py"))
    names = {kind: f"{kind.rule.__module__.rpartition('.')[2]}.{kind.rule.__name__}" for kind in RULES}
    assert not [name for kind, name in names.items() if name not in source and not kind.terminator]
