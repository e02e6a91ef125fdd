"""Tensor memory as text, and the instructions that become of it: the block's columns, loads and stores of tiles."""

from __future__ import annotations

import re

import pytest

from tests.cuda.build import Kernel, compiled, needs_nvrtc, pointer, text_of
from tests.cuda.rules.test_async import room, sass
from tests.effort import crossed
from weft import targets
from weft.cuda import emit
from weft.cuda.rules.tensor_memory import Moves
from weft.ir.core import Value
from weft.ir.types import bfloat16, float8e4nv, float16, float32, int8, int32, uint8, uint32
from weft.layout.tensor_memory.load_store import FRAGMENTS
from weft.ops import arith, memory, program, sync, tcgen05, tensor_memory

ARCH = "sm_100a"
SASS = {"32x32b": "", "16x64b": ".16dp64bit", "16x128b": ".16dp128bit", "16x256b": ".16dp256bit"}


def lines(func) -> str:
    return re.sub(r" *#line.*\n", "", text_of(func, ARCH))


def prelude_and_lines(func) -> str:
    return re.sub(r" *#line.*\n", "", emit(func, targets.get(ARCH)))


def own(k: Kernel, address: Value) -> Value:
    """The address of the warp's lanes."""
    warp = k.emit(program.warp_id, name="warp")
    return k.emit(arith.add, address, k.emit(arith.mul, warp, k.number(32 << 16)), name="own")


def runs(instructions: int, each: int) -> tuple[tuple[int, ...], ...]:
    return tuple([tuple(range(i * each, (i + 1) * each)) for i in range(instructions)])


def copied(element, variant, repeat, offsets, registers, on=False, **more):
    """A tile that is loaded from tensor memory, kept in global memory, and stored again."""
    k = Kernel(("out", pointer(element)), ("at", int32), ("n", int32))
    out, at, n = k.params
    at = own(k, at)
    given = {"variant": variant, "repeat": repeat, "offsets": offsets, "registers": registers, **more}
    x = k.emit(tensor_memory.load_regs, at, element=element, name="x", **given)
    k.store(k.emit(memory.addptr, out, k.thread()), x)
    pred = k.emit(arith.cmp, n, k.number(3), predicate="lt", name="on") if on else None
    k.emit(tensor_memory.store_regs, at, x, pred, **given)
    return k.done()


# The block's columns


@pytest.mark.parametrize("two_ctas", [False, True])
def test_columns_are_taken_and_given_back(two_ctas):
    """By the first warp; all threads meet before they know the address, and before it is given up."""
    k = Kernel()
    smem = room(k, uint32, 1, 64, "smem")
    address = k.emit(tensor_memory.reserve, smem, columns=128, two_ctas=two_ctas, name="base")
    k.emit(tensor_memory.release, address, columns=128, two_ctas=two_ctas)
    text = prelude_and_lines(k.done())
    pair, group = ("_pair", "cta_group::2") if two_ctas else ("", "cta_group::1")
    assert (
        text[text.index("  if (warp") :]
        == f"""\
  if (warp == 0) tmem_alloc{pair}<128>(smem);
  tcgen05_fence_before(); __syncthreads(); tcgen05_fence_after();
  const int base = tmem_address(smem);
  tcgen05_fence_before(); __syncthreads(); tcgen05_fence_after();
  if (warp == 0) tmem_dealloc{pair}<128>(base);
}}
"""
    )
    for instruction in ("alloc", "relinquish_alloc_permit", "dealloc"):
        assert f"tcgen05.{instruction}.{group}.sync.aligned" in text


@needs_nvrtc
@pytest.mark.parametrize("two_ctas", [False, True])
@pytest.mark.parametrize("columns", [32, 512])
def test_columns_compile(columns, two_ctas):
    k = Kernel(("out", pointer(int32)))
    smem = room(k, uint32, 1, 64)
    address = k.emit(tensor_memory.reserve, smem, columns=columns, two_ctas=two_ctas)
    k.emit(tensor_memory.release, address, columns=columns, two_ctas=two_ctas)
    text = sass(k.done(), ARCH)
    assert re.search(rf"UTCATOMSWS\.{'2CTA.' * two_ctas}FIND_AND_SET", text)
    assert len(re.findall(r"BAR\.SYNC", text)) >= 2 and "UVIRTCOUNT.DEALLOC" in text


@needs_nvrtc
def test_the_address_is_uniform():
    """Instructions take it, and what is added to it, from a uniform register: one for the whole warp."""
    k = Kernel(("out", pointer(float32)))
    base = k.emit(tensor_memory.reserve, room(k, uint32, 1, 64), columns=128, two_ctas=False)
    x = k.emit(
        tensor_memory.load_regs, own(k, base), element=float32, variant="32x32b", repeat=16, offsets=(16, 32, 80),
        registers=runs(3, 16),
    )  # fmt: skip
    k.store(k.emit(memory.addptr, k.params[0], k.thread()), x)
    k.emit(tensor_memory.release, base, columns=128, two_ctas=False)
    found = re.findall(r"LDTM\.x16 R\d+, tmem\[(UR\d+)(\+0x\w+)?\]", sass(k.done(), ARCH))
    assert [offset for _, offset in found] == ["+0x10", "+0x20", "+0x50"]
    assert len({register for register, _ in found}) == 1


# Tiles


def test_a_load_and_a_store_read_well():
    func = copied(float32, "32x32b", 64, (0, 64), runs(2, 64), on=True)
    text = lines(func)
    assert "  float x[128];\n  tmem_load_32x32b_x64_f32_2_times(x, own);\n" in text
    assert "  if (on) tmem_store_32x32b_x64_f32_2_times(x, own);\n" in text


def test_a_wait_stands_behind_all_instructions():
    """In the same statement, which no use of a register comes before."""
    moves = Moves(True, float32, "16x64b", 2, "", None, (0, 16 << 16), 4)
    assert moves.piece("load").text == (
        "DEV void load(float* x, int at) {\n"
        "  asm volatile(\n"
        '    "tcgen05.ld.sync.aligned.16x64b.x2.b32 {%0, %1}, [%4];\\n"\n'
        '    "tcgen05.ld.sync.aligned.16x64b.x2.b32 {%2, %3}, [%4 + 1048576];\\n"\n'
        '    "tcgen05.wait::ld.sync.aligned;"\n'
        '    : "=&f"(x[0]), "=&f"(x[1]), "=&f"(x[2]), "=&f"(x[3])\n'
        '    : "r"(at)); }'
    )
    moves = Moves(False, float16, "32x32b", 2, ".unpack::16b", None, (0,), 4)
    assert moves.name == "tmem_store_32x32b_x2_f16_unpack"
    assert moves.piece("store").text == (
        "DEV void store(const f16* x, int at) {\n"
        "  u32 words[2];\n"
        "  #pragma unroll\n"
        "  for (int i = 0; i < 2; ++i) words[i] = pack16(x + 2 * i);\n"
        "  asm volatile(\n"
        '    "tcgen05.st.sync.aligned.32x32b.x2.unpack::16b.b32 [%2], {%0, %1};\\n"\n'
        '    "tcgen05.wait::st.sync.aligned;"\n'
        '    :: "r"(words[0]), "r"(words[1]), "r"(at) : "memory"); }'
    )


def test_loads_at_other_places():
    """Where the first instruction begins stands in the call; how far others lie from it in the function."""
    k = Kernel(("out", pointer(float32)), ("at", int32))
    for offsets in ((0, 32), (0, 64), (128, 160)):
        given = {"variant": "32x32b", "repeat": 2, "offsets": offsets, "registers": runs(2, 2)}
        k.emit(tensor_memory.load_regs, k.params[1], element=float32, **given)
    calls = re.findall(r"(tmem_load_\w+)\(t\w*, (.*)\);", text_of(k.done(), ARCH))
    name = "tmem_load_32x32b_x2_f32_2_times"
    assert calls == [(name, "at"), (f"{name}_2", "at"), (name, "at + 128")]


def test_registers_in_another_order():
    """They go by way of an array that is in the order of the instructions."""
    text = lines(copied(float32, "16x256b", 1, (0,), ((0, 2, 1, 3),)))
    assert "float x[4];\n  float x_1[4];\n  tmem_load_16x256b_x1_f32(x_1, own);" in text
    assert "for (int r = 0; r < 4; ++r) x[r / 2 + 2 * (r % 2)] = x_1[r];" in text
    assert "for (int r = 0; r < 4; ++r) x_2[r] = x[r / 2 + 2 * (r % 2)];" in text
    assert "tmem_store_16x256b_x1_f32(x_2, own);" in text


def test_a_number_is_stored():
    k = Kernel(("at", int32))
    zeros = k.number(0, float32, 4)
    given = {"variant": "32x32b", "repeat": 4, "offsets": (0,), "registers": runs(1, 4)}
    k.emit(tensor_memory.store_regs, k.params[0], zeros, None, **given)
    text = lines(k.done())
    assert "for (int r = 0; r < 4; ++r) part[r] = 0.0f;\n  tmem_store_32x32b_x4_f32(part, at);" in text


@needs_nvrtc
@pytest.mark.parametrize(("variant", "repeat"), crossed(SASS, [None, 1, 4]))
def test_shapes_of_instructions(variant, repeat):
    """Every one that is asked for, not more, straight to and from the registers of the tile."""
    fragment = FRAGMENTS[variant]
    repeat = repeat or fragment.repeats
    words = repeat << len(fragment.registers)
    text = sass(copied(float32, variant, repeat, (0,), runs(1, words)), ARCH)
    name = SASS[variant] + (f".x{repeat}" if repeat > 1 else "")
    assert len(re.findall(rf"LDTM{re.escape(name)} R", text)) == len(re.findall("LDTM", text)) == 1
    assert len(re.findall(rf"STTM{re.escape(name)} tmem", text)) == len(re.findall("STTM", text)) == 1


@needs_nvrtc
@pytest.mark.parametrize("split", [0, 64])
def test_halves_of_a_warp_in_other_columns(split):
    text = sass(copied(float32, "16x32bx2", 16, (0, 16), runs(2, 16), split=split), ARCH)
    assert len(re.findall(r"LDTM\.16dp32bit_t0_t15\.x16", text)) == 2
    found = re.findall(r"LDTM\.16dp32bit_t16_t31\.x16 R\d+, tmem\[UR\d+(?:\+(0x\w+))?\]", text)
    assert sorted(int(at or "0", 16) for at in found) == [split, split + 16]


@needs_nvrtc
@pytest.mark.parametrize("per_word", [1, 2])
@pytest.mark.parametrize("element", [float16, bfloat16], ids=str)
def test_pairs_of_16_bits(element, per_word):
    """Two in a word, as memory has them or as the instruction packs them, or one alone."""
    for packed in (False, True) if per_word == 2 else (False,):
        text = sass(copied(element, "32x32b", 8, (0,), runs(1, 8 * per_word), packed=packed), ARCH)
        assert len(re.findall(rf"LDTM\.x8{'.PACK16BIT' * packed} R", text)) == 1
        assert len(re.findall(rf"STTM\.x8{'.EXPAND16BIT' * packed} tmem", text)) == 1


@needs_nvrtc
@pytest.mark.parametrize(("element", "per_word"), crossed([uint8, int8, float8e4nv], [4, 1, 2]), ids=str)
def test_bytes(element, per_word):
    func = copied(element, "32x32b", 4, (0,), runs(1, 4 * per_word), on=True)
    text = sass(func, ARCH)
    assert "LDTM.x4 R" in text and "STTM.x4 tmem" in text
    assert ("a_word(" in text_of(func, ARCH)) == (per_word < 4)


@needs_nvrtc
@pytest.mark.parametrize("on", [False, True])
def test_large_tiles_stay_in_registers(on):
    """128 registers of each thread come and go without a move, in reasonable time."""
    func = copied(float32, "32x32b", 64, (0, 64), runs(2, 64), on)
    made = compiled(func, ARCH)
    assert made.n_spills == 0 and made.n_regs <= 144
    text = sass(func, ARCH)
    loads, stores = (
        {int(first) for first in re.findall(pattern, text)}
        for pattern in (r"LDTM\.x64 R(\d+)", r"STTM\.x64 tmem\[[^]]*\], R(\d+)")
    )
    assert loads == stores and len(loads) == 2
    assert len(re.findall(r"\bMOV\b", text)) < 8


@needs_nvrtc
def test_fences():
    k = Kernel()
    k.emit(tcgen05.fence, before=True)
    k.emit(sync.barrier)
    k.emit(tcgen05.fence, before=False)
    func = k.done()
    assert "tcgen05_fence_before();\n  __syncthreads();\n  tcgen05_fence_after();" in lines(func)
    ptx = compiled(func, ARCH).ptx
    at = [ptx.index(part) for part in ("fence::before_thread_sync", "bar.sync", "fence::after_thread_sync")]
    assert at == sorted(at)
