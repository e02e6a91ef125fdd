"""Four-bit integers to floats without conversion instructions.

The lowest bit of a float16 of 1024 (0x6400), or of a bfloat16 of 128 (0x4300), is worth 1. One LOP3 puts an integer n in the
lowest four bits, which gives 1024 + n, and one HFMA2 subtracts 1024 from two numbers. For signed integers the LOP3 also inverts
bit 3, which adds 8. A float16 has room for a field at bit 4, where it gives 1024 + 16 n: the HFMA2 also divides by 16.

Two numbers share a register if they are 16 bits apart, as those at bits 4k and 4k + 16 are; neighbours first take a PRMT.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.cuda.text.prelude import Piece, Pieces
from weft.cuda.text.spelling import c_type
from weft.ir.types import DType


@dataclass(frozen=True, slots=True)
class _Half:
    """One of the two numbers of a register: the bit at which its field begins, and whether it is signed."""

    bfloat: bool
    signed: bool
    at: int = 0

    @property
    def mask(self) -> int:
        """The field."""
        return 0xF << self.at

    @property
    def magic(self) -> int:
        """XORed to the field: the exponent, and bit 3 of a signed number."""
        return (0x4300 if self.bfloat else 0x6400) | (8 << self.at if self.signed else 0)

    @property
    def factor(self) -> int:
        """1, or 1/16 for a field at bit 4."""
        return 0x3F80 if self.bfloat else 0x2C00 if self.at else 0x3C00

    @property
    def rest(self) -> int:
        """What is left to add after multiplication by the factor: -128 or -1024, or -64 for a field at bit 4, and -8 of a
        signed number."""
        if self.bfloat:
            return 0xC308 if self.signed else 0xC300
        if self.at:
            return 0xD480 if self.signed else 0xD400
        return 0xE408 if self.signed else 0xE400


def unpacker(pieces: Pieces, dtype: DType, source: DType, interleaved: bool) -> str:
    """The function `name(y, w)`, which writes the eight numbers of a word, the one in the lowest bits first."""
    signed = source.kind == "int"
    name = f"unpack_int4_{'s' if signed else 'u'}{'_interleaved' if interleaved else ''}_{dtype.code}"
    made = [_apart(k, dtype, signed) if interleaved else _neighbours(k, dtype, signed) for k in range(4)]
    lines = "\n  ".join(made)
    shifted = "  const u32 t = w >> 4;\n" if dtype.is_bf16() and not interleaved else ""
    text = f"DEV void {name}({c_type(dtype)}* y, u32 w) {{\n{shifted}  {lines} }}"
    pieces.define(f"int4_pair_{dtype.code}", _pair(dtype))
    return pieces.define(name, Piece(text))


def _pair(dtype: DType) -> Piece:
    type, ptx = c_type(dtype), f"fma.rn.{dtype.code}x2"
    return Piece(
        "// (w & mask ^ magic) * factor + rest, which is exact\n"
        f"DEV void int4_pair_{dtype.code}({type}& low, {type}& high, u32 w, u32 mask, u32 magic, u32 factor, u32 rest) {{\n"
        '  u32 x; asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(x) : "r"(w), "r"(mask), "r"(magic));\n'
        f'  asm("{ptx} %0, %0, %1, %2;" : "+r"(x) : "r"(factor), "r"(rest));\n'
        '  asm("mov.b32 {%0, %1}, %2;" : "=h"(low.bits), "=h"(high.bits) : "r"(x)); }',
        (dtype.code,),
    )


def _neighbours(k: int, dtype: DType, signed: bool) -> str:
    """Numbers 2k and 2k + 1: byte k in both halves. In bfloat16, whose significand has seven bits, the upper one is that of
    the word shifted by four."""
    bfloat = dtype.is_bf16()
    low, high = _Half(bfloat, signed), _Half(bfloat, signed, 0 if bfloat else 4)
    both = f"__byte_perm(w, {'t' if bfloat else '0'}, {k | (4 + k if bfloat else k) << 8:#x})"
    return _call(2 * k, 2 * k + 1, both, dtype, low, high)


def _apart(k: int, dtype: DType, signed: bool) -> str:
    """Numbers k and k + 4."""
    at = 0 if dtype.is_bf16() else 4 * (k % 2)
    half, shift = _Half(dtype.is_bf16(), signed, at), 4 * k - at
    return _call(k, k + 4, f"w >> {shift}" if shift else "w", dtype, half, half)


def _call(low: int, high: int, word: str, dtype: DType, a: _Half, b: _Half) -> str:
    numbers = ((a.mask, b.mask), (a.magic, b.magic), (a.factor, b.factor), (a.rest, b.rest))
    texts = ", ".join(f"{x | y << 16:#010x}u" for x, y in numbers)
    return f"int4_pair_{dtype.code}(y[{low}], y[{high}], {word}, {texts});"
