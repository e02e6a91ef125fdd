"""Products on tensor cores: the text, and the machine code that decides how fast they are."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cuda import matmuls
from tests.cuda.build import Kernel, compiled, needs_nvrtc, pointer, text_of
from tests.effort import crossed
from weft import language as gl
from weft.errors import PerformanceWarning
from weft.ir.types import float16, float32, int1
from weft.layout.tensor_cores.shared_operands import Operand
from weft.ops import mma, regs, shared
from weft.runtime.nvrtc import CompiledCuda, compile_cuda
from weft.runtime.sass import disassemble

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

import matmul_ladder as ladder
from matmul_parts import WGMMA, PersistentTileScheduler

NAMES = {
    gl.float16: "fp16", gl.bfloat16: "bf16", gl.float32: "fp32", gl.float8e4nv: "fp8e4nv", gl.float8e5: "fp8e5",
    gl.int8: "i8", gl.uint8: "u8", gl.int32: "i32",
}  # fmt: skip


class Built:
    """A kernel's text, what NVRTC said of it, and its machine code."""

    def __init__(self, kernel: Any, *args: Any, arch: str = "sm_90a", **options: Any) -> None:
        self.text: str = kernel.warmup(*args, target=arch, **options).asm["cuda"]
        self.made: CompiledCuda = compile_cuda(self.text, name=kernel.__name__, arch=arch)
        self.sass = disassemble(self.made.cubin)

    @property
    def complaints(self) -> list[str]:
        """What ptxas says of products that it could not leave asynchronous."""
        return re.findall(r"\(C75\d\d\).*", self.made.log)

    def count(self, name: str) -> int:
        return len(re.findall(rf"\b{name}\b", self.sass))

    @property
    def inner(self) -> list[str]:
        """The instructions of the smallest loop with products."""
        lines = self.sass.splitlines()
        labels = {line[:-1]: i for i, line in enumerate(lines) if line.startswith(".L")}
        jumps = ((i, re.search(r"BRA `\((\.L\w+)\)", line)) for i, line in enumerate(lines))
        bodies = [lines[labels[to[1]] : i + 1] for i, to in jumps if to and labels.get(to[1], i) < i]
        loops = [[x for x in body if not x.startswith(".L")] for body in bodies if any("GMMA" in x for x in body)]
        return min(loops, key=len)


def ladder_descriptors(block_n: int = 256, c_n: int = 256) -> list[Any]:
    a, b, c = (np.zeros((1024, 1024), np.float16) for _ in range(3))
    return ladder.describe(a, b, c, 128, block_n, 64, c_n)


@cache
def fast(name: str) -> Built:
    """The kernels that have to be fast."""
    d = matmuls.descriptor
    pipelined = ladder.persistent_matmul_pipelined_kernel
    scheduled = (WGMMA, PersistentTileScheduler)
    return {
        "pipelined": lambda: Built(ladder.matmul_pipelined_kernel, *ladder_descriptors(), WGMMA, 3, num_warps=8),
        "four buffers": lambda: Built(ladder.matmul_pipelined_kernel, *ladder_descriptors(), WGMMA, 4, num_warps=8),
        "persistent": lambda: Built(
            ladder.persistent_matmul_kernel, *ladder_descriptors(), *scheduled, 3, num_warps=8
        ),
        "overlapping": lambda: Built(
            pipelined, *ladder_descriptors(), *scheduled, 3, STEALB=False, num_warps=8
        ),
        "stolen": lambda: Built(
            pipelined, *ladder_descriptors(256, 128), *scheduled, 4, STEALB=True, num_warps=8
        ),
        "specialised": lambda: Built(
            matmuls.specialised, d(128, 64), d(64, 256), d(64, 256), "i32", "i32", 3, num_warps=4
        ),
        "ping-pong": lambda: Built(
            matmuls.ping_pong, d(128, 64), d(64, 128), d(128, 128), "i32", "i32", 4, num_warps=4
        ),
    }[name]()  # fmt: skip


# Most instructions of the inner loop for each product, and loads of TMA in the loop: one instruction for the requests of warps
# that follow one another.
FAST = {
    "pipelined": (24, 2), "four buffers": (26, 2), "persistent": (25, 2), "overlapping": (24, 2), "stolen": (26, 2),
    "specialised": (14, 0), "ping-pong": (9, 0),
}  # fmt: skip


@needs_nvrtc
@pytest.mark.parametrize("name", FAST)
def test_fast_kernels_stay_asynchronous(name):
    """Products are never serialised, nothing is spilled, the epilogue stores matrices of packed pairs."""
    built = fast(name)
    assert built.complaints == []
    assert built.made.n_spills == 0
    assert built.made.n_regs <= 168
    assert built.count("LDL") == built.count("STL") == 0
    assert "UTMALDG.2D" in built.sass and "UTMASTG.2D" in built.sass
    assert built.count("STSM") > 0 and built.count("STS") == 0
    assert "PRMT" not in built.sass[built.sass.rindex("HGMMA") :]


@needs_nvrtc
@pytest.mark.parametrize("name", FAST)
def test_loops_that_wait_for_products_are_not_repeated(name):
    """There are as many products in the machine code as in the text, where calls say how many they are."""
    built = fast(name)
    calls = re.findall(r"^ +(?:for \(int r = 0; r < (\d+); \+\+r\) )?wgmma_64\w+_x(\d+)\(", built.text, re.MULTILINE)
    assert built.count("HGMMA\\S*") == sum(int(times or 1) * int(count) for times, count in calls)
    assert built.text.count("#pragma unroll 1") == len(re.findall(r"for \((?!int r )", built.text))


@needs_nvrtc
@pytest.mark.parametrize("name", FAST)
def test_accumulators_never_move(name):
    """They are set to zero once; a product, a wait and another name are the same array. Only the epilogue reads them."""
    text = fast(name).text
    arrays = set(re.findall(r"wgmma_64x\d+x16_f32_f16_tb_x\d+\((\w+)(?: \+ [^,]+)?, lefts", text))
    assert len(arrays) == (2 if name in ("specialised", "ping-pong") else 1)
    for array in arrays:
        assert re.findall(rf"[^;{{]*= {array}\[|{array}\[[^]]*\] = [^;]*;", text) == []
        assert text.count(f"zeros_f32x128({array});") == 1
        assert len(re.findall(rf"narrow_f16\([^;]*, {array}\[", text)) == 1


@needs_nvrtc
@pytest.mark.parametrize("name", FAST)
def test_inner_loops_are_lean(name):
    """Nothing but products, addresses in uniform registers, waiting, and the loads of one step."""
    loop = fast(name).inner
    text = "\n".join(loop)
    products = text.count("HGMMA")
    most, loads = FAST[name]
    assert products >= 4
    assert len(loop) <= most * products
    assert text.count("UTMALDG") * 4 == loads * products
    assert "R2UR" not in text and "CTAID" not in text
    sums = {
        int(first) + i
        for n, first in re.findall(r"HGMMA\.64x(\d+)x16\.F32 R(\d+)", text)
        for i in range(int(n) // 2)
    }  # fmt: skip
    others = {int(r) for line in loop if "HGMMA" not in line for r in re.findall(r"\bR(\d+)\b", line)}
    assert len(sums) == 128 and not sums & others
    assert (
        text.count("WARPGROUP.ARRIVE")
        == text.count("WARPGROUP.DEPBAR")
        == products // (8 if name == "ping-pong" else 4)
    )


TYPES = [
    (gl.float16, gl.float16, gl.float32, None, "HGMMA"),
    (gl.float16, gl.float16, gl.float16, None, "HGMMA"),
    (gl.bfloat16, gl.bfloat16, gl.float32, None, "HGMMA"),
    (gl.float32, gl.float32, gl.float32, None, "HGMMA"),
    (gl.float8e4nv, gl.float8e5, gl.float32, None, "QGMMA"),
    (gl.float8e5, gl.float8e5, gl.float16, None, "QGMMA"),
    (gl.float8e4nv, gl.float8e4nv, gl.float32, 64, "QGMMA"),
    (gl.int8, gl.uint8, gl.int32, None, "IGMMA"),
]


def product(kernel: Any, types: tuple[Any, ...], shape: tuple[int, int, int], *more: Any, **options: Any) -> Built:
    a, b, total = types
    pointers = [f"*{NAMES[x]}" for x in (total, a, b)]
    return Built(kernel, *pointers, *shape, total, *more, num_warps=4, **options)


@needs_nvrtc
@pytest.mark.parametrize(("types", "in_registers"), crossed(TYPES, [False, True]), ids=str)
def test_types_of_warpgroups(types, in_registers):
    """Left operands in memory and in registers; 64 x 64 x 128."""
    *abc, limit, name = types
    built = product(matmuls.one_product, tuple(abc), (64, 64, 128), in_registers, limit)
    assert built.complaints == [] and built.made.n_spills == 0
    products = re.findall(rf"{name}\.64x64x\d+\S* R\d+, (R\d+|gdesc)", built.sass)
    assert len(products) >= 128 * abc[0].primitive_bitwidth // 256
    assert all(left.startswith("R") == in_registers for left in products)
    assert built.count(name) == len(products) or limit


@needs_nvrtc
@pytest.mark.parametrize("dtype", [gl.float32, gl.float16], ids=str)
def test_descriptors_of_operands_that_stay_are_not_kept(dtype):
    """In a loop whose products read the same memory each round: formed anew, which is cheaper than to bring them back."""
    arguments = [f"*{NAMES[x]}" for x in (gl.float32, dtype, dtype)]
    built = Built(matmuls.one_product, *arguments, 128, 128, 128, gl.float32, False, None, num_warps=8)
    assert built.complaints == [] and built.made.n_spills == 0
    assert built.count("HGMMA\\S*") == 128 * dtype.primitive_bitwidth // 256 and built.count("R2UR") <= 1


OF_WARPS = [
    param
    for param in crossed([types for types in TYPES if types[3] is None], ("sm_90a", "sm_80", "sm_100a"))
    if not (param.values[1] == "sm_80" and param.values[0][0].is_fp8())
]


@needs_nvrtc
@pytest.mark.parametrize(("types", "arch"), OF_WARPS, ids=str)
def test_types_of_warps(types, arch):
    *abc, _, name = types
    built = product(matmuls.one_product_of_warps, tuple(abc), (64, 64, 64), arch=arch)
    assert built.made.n_spills == 0
    assert built.count("LDSM") > 0
    assert re.search(r"IMMA\.16832\.S8\.U8" if name == "IGMMA" else r"HMMA\.(16816|1688)\.F", built.sass)


@needs_nvrtc
def test_a_tile_that_does_not_fit_warns_and_compiles():
    with pytest.warns(PerformanceWarning, match="accumulator-registers") as caught:
        built = Built(ladder.matmul_pipelined_kernel, *ladder_descriptors(), WGMMA, 3, num_warps=4)
    warning = caught[0].message
    assert isinstance(warning, PerformanceWarning)
    assert "1024 of the 1020 bytes of registers of each thread" in warning.message
    assert warning.loc is not None and "warpgroup_mma(" in warning.loc.source
    assert (caught[0].filename, caught[0].lineno) == (warning.loc.file, warning.loc.line)
    assert built.made.n_spills > 0 and built.count("HGMMA\\S*") >= 8


# The text

LEFT = Operand(128, False, 16, 1024, (0, 0, 8192))
RIGHT = Operand(128, True, 8192, 1024, (0, 0, 0))


def wgmma(k: Kernel, acc: Any, use_acc: Any, **more: Any) -> Any:
    a = k.emit(shared.scratch, dtype=float16, count=8192, tag=1, offset=0, name="a")
    b = k.emit(shared.scratch, dtype=float16, count=16384, tag=2, offset=16384, name="b")
    steps = tuple([(0, 32 * i, 2048 * i, i == 0) for i in range(4)])
    given = {"n": 256, "k": 16, "element": "f16", "other": "f16", "left": LEFT, "right": RIGHT, "steps": steps, **more}
    return k.emit(mma.wgmma, a, b, acc, use_acc, name="acc", **given)


def test_a_product_reads_well():
    k = Kernel(("out", pointer(float32)), ("more", int1), num_warps=8)
    begun = k.emit(mma.begin, k.number(0, float32, 128), name="acc")
    acc = k.emit(mma.warpgroup_wait, wgmma(k, begun, k.params[1]), pendings=0)
    k.store(k.params[0], acc)
    text = text_of(k.done())
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#line"))
    assert (
        text[text.index("  float acc[128];") : text.index("  #pragma unroll\n  for (int r = 0; r < 128; ++r) store")]
        == """\
  float acc[128];
  zeros_f32x128(acc);
  const u32 left = matrix_start(a + 8192 * (warp / 4));
  const u32 right = matrix_start(b);
  u64 lefts[4];
  u64 rights[4];
  #pragma unroll
  for (int r = 0; r < 4; ++r) {
    lefts[r] = matrix(0x40000040u, 0x10000u + left + 2 * r);
    rights[r] = matrix(0x40000040u, 0x2000000u + right + 128 * r);
  }
  wgmma_fence();
  wgmma_64x256x16_f32_f16_tb_x4(acc, lefts, rights, more);
  wgmma_commit();
  wgmma_wait_f32x128<0>(acc);
"""
    )


def test_instructions_on_one_accumulator_share_a_statement():
    """Those that take turns on two have one each; runs that are not alike too."""
    calls = {
        (0, 0, 64, 64): "for (int r = 0; r < 2; ++r) wgmma_64x128x16_f32_f16_tb_x2"
        "(acc + 64 * r, lefts + 2 * r, rights + 2 * r, more);",
        (0, 64, 0, 64): "for (int r = 0; r < 4; ++r) wgmma_64x128x16_f32_f16_tb_x1"
        "(acc + 64 * (r % 2), lefts + r, rights + r, r >= 2 || more);",
    }
    for order, call in calls.items():
        k = Kernel(("out", pointer(float32)), ("more", int1), num_warps=8)
        acc = k.emit(mma.begin, k.number(0, float32, 128), name="acc")
        steps = tuple([(start, 32 * i, 2048 * i, start not in order[:i]) for i, start in enumerate(order)])
        acc = wgmma(k, acc, k.params[1], n=128, steps=steps)
        k.store(k.params[0], k.emit(mma.warpgroup_wait, acc, pendings=0))
        assert call in text_of(k.done())


@needs_nvrtc
def test_a_condition_that_is_known_costs_nothing():
    k = Kernel(("out", pointer(float32)), num_warps=8)
    acc = k.emit(mma.begin, k.number(0, float32, 128))
    acc = wgmma(k, acc, k.number(True, int1))
    acc = wgmma(k, acc, None)
    k.store(k.params[0], k.emit(mma.warpgroup_wait, acc, pendings=0))
    func = k.done()
    assert text_of(func).count(", true);") == 2
    assert "UP0" not in disassemble(compiled(func).cubin)


@needs_nvrtc
def test_an_old_value_that_is_needed_is_copied_before():
    k = Kernel(("out", pointer(float32)), num_warps=8)
    first = k.load(k.params[0], 128, vec=4, name="first")
    second = k.emit(mma.warpgroup_wait, wgmma(k, first, None), pendings=0)
    k.store(k.params[0], first, vec=4)
    k.store(k.params[0], second, vec=4)
    func = k.done()
    text = text_of(func)
    assert text.index("acc[r] = first[r];") < text.index("wgmma_fence();")
    assert compiled(func).n_spills == 0


@needs_nvrtc
@pytest.mark.parametrize("dtype", regs.NARROW, ids=str)
def test_pairs_are_narrowed_together(dtype):
    k = Kernel(("x", pointer(float32)), ("y", pointer(dtype)))
    k.store(k.params[1], k.emit(regs.narrow, k.load(k.params[0], 8, vec=4), dtype=dtype), vec=8)
    func = k.done()
    assert f"for (int r = 0; r < 4; ++r) narrow_{dtype.code}(t_1 + 2 * r, t[2 * r], t[2 * r + 1]);" in text_of(func)
    sass = disassemble(compiled(func).cubin)
    assert len(re.findall(r"F2FP\.\S*F32\.PACK_AB", sass)) == 4
    assert re.findall(r"\b(PRMT|LOP3|SHF)\b", sass[sass.index("F2FP") :]) == []


@needs_nvrtc
def test_warps_multiply_in_place():
    k = Kernel(("x", pointer(float16)), ("out", pointer(float32)))
    a, b = k.load(k.params[0], 16, vec=8), k.load(k.params[0], 8, vec=8)
    acc = k.load(k.params[1], 4, vec=4, name="acc")
    steps = ((0, 0, 0), (0, 8, 4))
    acc = k.emit(mma.mma_sync, a, b, acc, k=16, element="f16", other="f16", steps=steps)
    k.store(k.params[1], acc, vec=4)
    func = k.done()
    assert "for (int r = 0; r < 2; ++r) mma_16x8x16_f32_f16(acc, t + 8 * r, t_1 + 4 * r);" in text_of(func)
    assert disassemble(compiled(func, "sm_80").cubin).count("HMMA.16816.F32") == 2
