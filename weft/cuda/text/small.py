"""Small numbers to floats, without the conversion instructions that take one number each.

Four-bit integers. The lowest bit of a float16 of 1024 (0x6400), or of a bfloat16 of 128 (0x4300), is worth 1. One LOP3 puts
an integer n in the lowest four bits, which gives 1024 + n, and one HFMA2 subtracts 1024 from two numbers. For signed integers
the LOP3 also inverts bit 3, which adds 8. A float16 has room for a field at bit 4, where it gives 1024 + 16 n: the HFMA2 also
divides by 16. Two numbers share a register if they are 16 bits apart, as those at bits 4k and 4k + 16 are; neighbours first
take a PRMT.

Bytes. A PRMT puts a byte into the significand of 1024 (float16, two bytes at a time) or 2^23 (float32). Signed ones are
inverted at bit 7 beforehand, four at a time, which adds 128.

Floats. A bfloat16 is the upper half of a float32, and cvt takes fp8 in pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.cuda.text.prelude import Piece, Pieces
from weft.cuda.text.spelling import c_type, is_small_float
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


def widener(pieces: Pieces, source: DType, dtype: DType) -> str:
    """The function `name(y, x0, x1, ...)`, which converts a word of numbers of 8 or 16 bits."""
    each, type = 32 // source.bits, c_type(source)
    name = f"widen_{source.code}_{dtype.code}"
    parameters = ", ".join(f"{type} x{j}" for j in range(each))
    if source.is_int():
        lines = _of_bytes(source.kind == "int", dtype)
    elif source.is_fp8():
        lines = _of_fp8(source, dtype)
    else:
        lines = _OF_BFLOAT16
    body = "\n  ".join([_word_of_bytes() if each == 4 else _WORD_OF_HALVES, *lines])
    text = f"DEV void {name}({c_type(dtype)}* y, {parameters}) {{\n  {body} }}"
    return pieces.define(name, Piece(text, tuple(t.code for t in (source, dtype) if is_small_float(t))))


# ptxas sees through this move to the register that `unpack16` took apart, while NVRTC does not see through assembly: with
# shifts instead of the move the upper half took two instructions (13.0, sm_90a).
_WORD_OF_HALVES = 'u32 w; asm("mov.b32 %0, {%1, %2};" : "=r"(w) : "h"(x0.bits), "h"(x1.bits));'
_OF_BFLOAT16 = ["y[0] = __uint_as_float(w << 16);", "y[1] = __uint_as_float(w & 0xffff0000u);"]


def _word_of_bytes() -> str:
    parts = [f"(u32)__builtin_bit_cast(u8, x{j})" for j in range(4)]
    return f"u32 w = {' | '.join(f'{part} << {8 * j}' if j else part for j, part in enumerate(parts))};"


def _of_bytes(signed: bool, dtype: DType) -> list[str]:
    lines = ["w ^= 0x80808080u;"] if signed else []
    if dtype.bits == 32:
        rest = "8388736.0f" if signed else "8388608.0f"
        words = [f"__byte_perm(w, 0x4b000000u, {0x7540 + j:#x})" for j in range(4)]
        return [*lines, *(f"y[{j}] = __uint_as_float({word}) - {rest};" for j, word in enumerate(words))]
    rest = "0xe480e480u" if signed else "0xe400e400u"
    for pair in (0, 1):
        word = f"__byte_perm(w, 0x64646464u, {0x4140 + 0x202 * pair:#x})"
        lines.append(f'u32 p{pair}; asm("add.f16x2 %0, %1, %2;" : "=r"(p{pair}) : "r"({word}), "r"({rest}));')
    return [*lines, *_halves()]


def _of_fp8(source: DType, dtype: DType) -> list[str]:
    ptx = f"cvt.rn.f16x2.{source.code.removeprefix('f8')}x2"
    both = f"{{.reg .b16 a, b; mov.b32 {{a, b}}, %2; {ptx} %0, a; {ptx} %1, b;}}"
    line = f'u32 p0, p1; asm("{both}" : "=r"(p0), "=r"(p1) : "r"(w));'
    if dtype.bits == 16:
        return [line, *_halves()]
    wide = "{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
    return [line, *(f'asm("{wide}" : "=f"(y[{2 * p}]), "=f"(y[{2 * p + 1}]) : "r"(p{p}));' for p in (0, 1))]


def _halves() -> list[str]:
    """The four float16 of two registers."""
    return [
        f'asm("mov.b32 {{%0, %1}}, %2;" : "=h"(y[{2 * p}].bits), "=h"(y[{2 * p + 1}].bits) : "r"(p{p}));'
        for p in (0, 1)
    ]
