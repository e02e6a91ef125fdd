"""What cannot be written as CUDA text is said at the author's line."""

from __future__ import annotations

import pytest

from tests.cuda.build import Kernel, pointer, text_of
from weft.errors import CompilationError
from weft.ir.types import float8e4nv, float8e5, float16, float32, int8, int32
from weft.ops import arith, asm, memory, regs


def refused(kernel: Kernel, arch: str = "sm_90a") -> CompilationError:
    with pytest.raises(CompilationError) as caught:
        text_of(kernel.done(), arch)
    return caught.value


@pytest.mark.parametrize("dtype", [float8e4nv, float8e5])
@pytest.mark.parametrize("direction", ["to", "from"])
def test_float8(dtype, direction):
    k = Kernel(("x", pointer(dtype)), ("y", pointer(float32)))
    source, target = k.params if direction == "from" else k.params[::-1]
    k.at(7).store(target, k.emit(arith.cast, k.load(source, 2), dtype=target.type.element.element_ty))
    error = refused(k, "sm_80")
    assert error.code == "cuda-float8"
    assert error.loc.line == 7
    assert "sm_80" in error.message


def test_float8_in_memory_needs_nothing():
    k = Kernel(("x", pointer(float8e4nv)))
    k.store(*k.params, k.load(*k.params, 4, 4), 4)
    assert "store_f8e4m3x4" in text_of(k.done(), "sm_80")


def test_float8_rounding():
    k = Kernel(("x", pointer(float32)), ("y", pointer(float8e5)))
    k.store(k.params[1], k.emit(arith.cast, k.load(k.params[0], 2), dtype=float8e5, rounding="rz"))
    assert refused(k).code == "cuda-float8-rounding"


def test_atomic_type():
    k = Kernel(("x", pointer(int8)))
    ptr = k.emit(regs.splat, *k.params, count=1)
    k.emit(memory.atomic_regs, ptr, k.number(1, int8, 1), None, kind="add", order="relaxed", scope="gpu")
    assert refused(k).code == "cuda-atomic-type"


@pytest.mark.parametrize(
    ("text", "constraints", "code"),
    [
        ("add.s32 $0, $1, $2;", "=r,r", "cuda-asm-constraints"),
        ("mov.b32 $0, $1;", "=r,x", "cuda-asm-constraint"),
        ("mov.b32 $0, $1;", "r,r", "cuda-asm-constraint"),
        ("mov.b32 $0, $1;", "=r,1", "cuda-asm-constraint"),
        ("mov.b32 $0, $2;", "=r,r", "cuda-asm-operand"),
    ],
)
def test_asm(text, constraints, code):
    k = Kernel(("x", pointer(int32)))
    operands = [k.load(*k.params, 4)] * (2 if code == "cuda-asm-constraints" else 1)
    k.emit(asm.inline_asm, *operands, asm=text, constraints=constraints, dtypes=(int32,), pack=1)
    assert refused(k).code == code


def test_asm_packs_narrow_elements():
    """Two halves to a register: a pack of four takes two registers each way."""
    k = Kernel(("x", pointer(float16)))
    x = k.load(*k.params, 8)
    text = "add.f16x2 $0, $2, $2; add.f16x2 $1, $3, $3; // 50% of $$"
    k.store(*k.params, k.emit(asm.inline_asm, x, asm=text, constraints="=r,=r,r,r", dtypes=(float16,), pack=4))
    written = text_of(k.done())
    assert '"add.f16x2 %0, %2, %2; add.f16x2 %1, %3, %3; // 50%% of $"' in written
    assert "for (int r = 0; r < 2; ++r)" in written
