"""How the text reads: golden texts of small kernels, and what their machine code contains."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from tests.cuda.build import Kernel, compiled, needs_nvrtc, pointer, text_of
from weft import targets
from weft.cuda import emit
from weft.ir.types import RegsType, ScalarType, bfloat16, float16, float32, int1, int32
from weft.ops import arith, control, memory, program, regs, shared, sync
from weft.runtime.sass import disassemble


def add_kernel() -> Kernel:
    """z = x + y over 1024 elements a program, four to a thread and access, masked."""
    k = Kernel(*((name, pointer(float32)) for name in "xyz"), ("n", int32), name="add_kernel")
    x, y, z, n = k.params
    first = k.at(2).emit(arith.mul, k.emit(program.program_id, axis=0, name="pid"), k.number(1024), name="first")
    start = k.at(3).emit(arith.add, first, k.emit(arith.mul, k.thread(), k.number(4)), name="start")
    offsets = k.emit(regs.affine, start, offsets=((0, 512),), name="offsets")
    mask = k.at(4).emit(arith.cmp, offsets, k.emit(regs.splat, n, count=2), predicate="lt", name="mask")
    places = {"offsets": ((0, 512),), "registers": ((0, 1, 2, 3), (4, 5, 6, 7)), "vec": 4}
    values = [
        k.at(5 + i).emit(memory.load_regs, k.emit(memory.addptr, p, start), mask, other, count=8, name=name, **places)
        for i, (p, name, other) in enumerate([(x, "a", None), (y, "b", k.number(0, float32, 8))])
    ]
    total = k.at(7).emit(arith.add, *values, name="total")
    k.at(8).emit(memory.store_regs, k.emit(memory.addptr, z, start), total, mask, **places)
    return k


def accumulate(element=float32, registers: int = 16) -> Kernel:
    """Sum of many tiles: one accumulator, no move in the loop."""
    k = Kernel(("x", pointer(element)), ("out", pointer(element)), ("count", int32), name="accumulate")
    x, out, count = k.params
    vec = 16 // element.itemsize
    thread = k.at(2).emit(arith.mul, k.thread(), k.number(vec))
    place = k.emit(memory.addptr, x, thread, name="place")
    zero = k.at(3).number(0, element, registers)
    k.at(4)
    with k.region([ScalarType(int32), RegsType(element, registers), place.type], ["i", "acc", "place"]) as body:
        _, acc, here = body.args
        tile = k.at(5).load(here, registers, vec, "tile")
        acc = k.at(6).emit(arith.add, acc, tile, name="acc")
        here = k.at(7).emit(memory.addptr, here, k.number(128 * registers), name="place")
        k.emit(control.yield_, acc, here)
    k.at(4)
    acc, _ = k.emit(control.for_, k.number(0), count, k.number(1), zero, place, descending=False, regions=(body.done,))
    k.at(8).store(k.emit(memory.addptr, out, thread), acc, vec)
    return k


def transpose() -> Kernel:
    """Registers through shared memory, with a swizzle, a permutation and a table that is no formula."""
    k = Kernel(("x", pointer(float16)), ("out", pointer(float16)), name="transpose", shared_bytes=8192)
    x, out = k.params
    thread = k.at(2).thread()
    value = k.at(3).load(k.emit(memory.addptr, x, thread), 16, 8, "value")
    room = k.at(4).emit(shared.scratch, dtype=float16, count=4096, tag=0, offset=1024)
    turned = k.emit(regs.gather, value, table=(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15))
    k.emit(
        shared.store_regs,
        room,
        thread,
        turned,
        None,
        offsets=(0, 16),
        registers=(tuple(range(8)), tuple(range(8, 16))),
        vec=8,
    )
    k.emit(sync.barrier)
    odd = tuple([(i,) for i in (3, 1, 2, 0, 7, 5, 4, 6)])
    back = k.emit(shared.load_regs, room, thread, offsets=(0, 32, 64, 96, 128, 160, 192, 224), registers=odd, vec=1)
    k.at(5).store(k.emit(memory.addptr, out, thread), back)
    return k


def collatz() -> Kernel:
    """While, if and scalars."""
    k = Kernel(("out", pointer(int32)), ("n", int32), name="collatz")
    out, n = k.params
    zero, one = k.at(2).number(0), k.number(1)
    k.at(3)
    with k.region([ScalarType(int32)] * 2, ["n", "steps"]) as before:
        k.emit(control.condition, k.emit(arith.cmp, before.args[0], one, predicate="gt", name="more"), *before.args)
    with k.region([ScalarType(int32)] * 2, ["n", "steps"]) as after:
        m, steps = after.args
        odd = k.at(4).emit(arith.cmp, k.emit(arith.and_, m, one), one, predicate="eq", name="odd")
        with k.region() as then:
            k.at(5).emit(control.yield_, k.emit(arith.add, k.emit(arith.mul, m, k.number(3)), one, name="n"))
        with k.region() as orelse:
            k.at(7).emit(control.yield_, k.emit(arith.shr, m, one, name="n"))
        m = k.at(4).emit(control.if_, odd, regions=(then.done, orelse.done), name="n")
        k.at(8).emit(control.yield_, m, k.emit(arith.add, steps, one, name="steps"))
    _, steps = k.at(3).emit(control.while_, n, zero, regions=(before.done, after.done))
    k.at(9).store(out, k.emit(regs.splat, steps, count=1))
    return k


def swap() -> Kernel:
    """The yield is a parallel assignment."""
    k = Kernel(("x", pointer(float32)), ("n", int32), name="swap")
    x, n = k.params
    a, b = (k.at(2 + i).load(k.emit(memory.addptr, x, k.number(i)), 4, name=name) for i, name in enumerate("ab"))
    k.at(4)
    with k.region([ScalarType(int32), a.type, b.type], ["i", "a", "b"]) as body:
        _, p, q = body.args
        k.emit(control.yield_, q, p)
    a, b = k.emit(control.for_, k.number(0), n, k.number(1), a, b, descending=False, regions=(body.done,))
    k.at(5).store(x, a)
    k.store(k.emit(memory.addptr, x, n), b)
    return k


KERNELS = {"add": add_kernel, "accumulate": accumulate, "transpose": transpose, "collatz": collatz, "swap": swap}


@pytest.mark.parametrize("name", KERNELS)
def test_text(name, golden):
    golden(text_of(KERNELS[name]().done()), ".cu")


def test_prelude(golden):
    """The whole text, prelude included."""
    golden(emit(add_kernel().done(), targets.get("sm_90a")), ".cu")


def test_the_loop_moves_nothing():
    text = text_of(accumulate().done())
    loop = text[text.index("for (int i") :]
    assert len(re.findall(r"acc\[r\] = ", loop)) == 1
    assert len(re.findall(r"float \w+\[", text)) == 2


def test_lines_lead_home():
    """Every statement's number is the author's line, as a preprocessor counts."""
    text = text_of(accumulate().done())
    number, homes = 0, {}
    for line in text.splitlines():
        if match := re.match(r"#line (\d+)", line):
            number = int(match[1])
            continue
        homes[line.strip()] = number
        number += 1
    assert next(n for line, n in homes.items() if "load_f32x4(" in line) == 5
    assert next(n for line, n in homes.items() if line.endswith("acc[r] = acc[r] + tile[r];")) == 6
    assert next(n for line, n in homes.items() if line.startswith("for (int i")) == 4
    assert next(n for line, n in homes.items() if "store_f32x4(" in line) == 8


def test_file_names_are_escaped():
    k = Kernel(("x", pointer(float32)))
    k.loc = type(k.loc)('C:\\a "b"\n.py', 3)
    k.load(*k.params, 1)
    assert "#line 3 \"C:\\\\a 'b' .py\"" in text_of(k.done())


def test_author_names_stay():
    """Names that C or the prelude has are changed, others are not."""
    k = Kernel(("int", pointer(float32)), ("shl", int32), ("threadIdx", int32), ("size", int32))
    assert "kernel(float* int_1, const int shl_1, const int threadIdx_1, const int size)" in text_of(k.done())


def test_an_operation_is_few_lines():
    """Under 40 lines of CUDA an operation, whatever the size of the tile."""
    small, large = (len(text_of(accumulate(registers=n).done()).splitlines()) for n in (16, 256))
    assert small == large < 40


# Machine code


def instructions(kernel: Kernel, arch: str = "sm_90a") -> str:
    return disassemble(compiled(kernel.done(), arch).cubin)


@needs_nvrtc
def test_vector_accesses():
    sass = instructions(add_kernel())
    assert len(re.findall(r"LDG\.E\.128", sass)) == 4
    assert len(re.findall(r"STG\.E\.128", sass)) == 2
    assert not re.search(r"\b(LDL|STL)\b", sass)
    assert "+0x800]" in sass, "the second access's offset is part of the instruction"


@needs_nvrtc
@pytest.mark.parametrize("element", [float16, bfloat16])
def test_halves_travel_packed(element):
    sass = instructions(accumulate(element))
    assert re.search(r"LDG\.E\.128", sass)
    assert re.search(r"STG\.E\.128", sass)
    assert not re.search(r"\b(LDL|STL)\b", sass)


@needs_nvrtc
def test_shared_accesses():
    sass = instructions(transpose())
    assert len(re.findall(r"STS\.128", sass)) == 2
    assert len(re.findall(r"LDS\.U16", sass)) == 8
    assert not re.search(r"\b(LDL|STL)\b", sass)


@needs_nvrtc
def test_256_registers_are_no_longer_text():
    """A tile of 256 registers: no run-time index, so no local memory but what does not fit; and a loop, not 256 statements."""
    k = accumulate(registers=128)
    made = compiled(k.done())
    assert made.n_spills == made.stack == 0
    wide = accumulate(registers=256).done()
    compiled(wide)
    target = targets.get("sm_90a")
    assert len(emit(wide, target).splitlines()) <= 1.1 * len(emit(k.done(), target).splitlines())


@needs_nvrtc
def test_loads_are_in_flight_together():
    """All loads of a tile are issued before the first of their values is used."""
    sass = [line for line in instructions(add_kernel()).splitlines() if re.search(r"LDG|FADD", line)]
    kinds = ["LDG" in line for line in sass]
    assert sum(a != b for a, b in pairwise(kinds)) == 1


def test_any_bits_but_zero_are_true():
    """A byte of a bool may come from anywhere; taken as a bool it would be what its lowest bit says, or worse."""
    k = Kernel(("x", pointer(int1)), ("out", pointer(int1)))
    k.store(k.params[1], k.load(k.params[0], 4, 4), 4)
    text = emit(k.done(), targets.get("sm_90a"))
    assert "unpack_bool<4>(x + 0, w[0]);" in text
    assert "x[i] = (u8)(w >> 8 * i) != 0;" in text
