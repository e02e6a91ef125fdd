"""Inline PTX: the author's function, and the instructions that the simulator knows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.build import BY_NUMPY, elementwise
from weft.ir.types import float16, float32, int8, int32
from weft.ops import asm
from weft.sim import ptx

N = 128
RNG = np.random.default_rng(11)
U32 = st.integers(0, 2**32 - 1)
M = 2**32 - 1


def inline(text, inputs, result, pack=1, sim=None):
    outs = [BY_NUMPY[np.dtype(result)]]

    def body(k, *tiles):
        return k.emit(asm.inline_asm, *tiles, asm=text, constraints="", dtypes=tuple(outs), pack=pack, sim=sim)

    return elementwise(inputs, np.dtype(result), body)


def test_the_author_s_function():
    x = RNG.normal(size=N).astype(np.float32)
    found = inline("unheard.of $0, $1;", [x], np.float32, sim=lambda a: a * 2)
    np.testing.assert_array_equal(found, x * 2)


def test_several_results():
    x = np.arange(N, dtype=np.int32)

    def body(k, a):
        text = "{ .reg .b32 t; mul.lo.s32 t, $2, 3; add.s32 $0, t, 1; sub.s32 $1, t, 1; }"
        first, second = k.emit(asm.inline_asm, a, asm=text, constraints="=r,=r,r", dtypes=(int32, int32), pack=1)
        return k.add(k.mul(first, k.number(1000, first)), second)

    np.testing.assert_array_equal(elementwise([x], np.dtype(np.int32), body), (3 * x + 1) * 1000 + 3 * x - 1)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("add.f32 $0, $1, $2;", lambda a, b: a + b),
        ("mul.rn.f32 $0, $1, $2;", lambda a, b: a * b),
        ("max.f32 $0, $1, $2;", np.maximum),
        ("fma.rn.f32 $0, $1, 0f40000000, $2;", lambda a, b: (a.astype(np.float64) * 2 + b).astype(np.float32)),
        ("add.sat.f32 $0, $1, $2;", lambda a, b: np.clip(a + b, 0, 1)),
        ("ex2.approx.ftz.f32 $0, $1;", lambda a, b: np.exp2(a.astype(np.float64)).astype(np.float32)),
        ("rcp.approx.f32 $0, $1;", lambda a, b: 1 / a),
        ("abs.f32 $0, $1; // $2 is not used", lambda a, b: np.abs(a)),
        (
            "{ .reg .pred p; setp.lt.f32 p, $1, $2; selp.f32 $0, $1, $2, p; }",
            lambda a, b: np.where(a < b, a, b),
        ),
    ],
)
def test_float_instructions(text, reference):
    x, y = RNG.normal(size=(2, N)).astype(np.float32)
    np.testing.assert_array_equal(inline(text, [x, y], np.float32), reference(x, y))


def bits(x: int, width: int = 32) -> str:
    return f"{x & (1 << width) - 1:0{width}b}"


INTEGER = {
    "add.u32 $0, $1, $2;": lambda a, b: a + b,
    "sub.s32 $0, $1, $2;": lambda a, b: a - b,
    "mul.lo.u32 $0, $1, $2;": lambda a, b: a * b,
    "mul.hi.u32 $0, $1, $2;": lambda a, b: a * b >> 32,
    "mul.hi.s32 $0, $1, $2;": lambda a, b: signed(a) * signed(b) >> 32,
    "mad.lo.u32 $0, $1, $2, 7;": lambda a, b: a * b + 7,
    "min.s32 $0, $1, $2;": lambda a, b: min(signed(a), signed(b)),
    "and.b32 $0, $1, $2;": lambda a, b: a & b,
    "not.b32 $0, $1;": lambda a, b: ~a,
    "shl.b32 $0, $1, $2;": lambda a, b: a << min(b, 32),
    "shr.u32 $0, $1, $2;": lambda a, b: a >> min(b, 32),
    "shr.s32 $0, $1, $2;": lambda a, b: signed(a) >> min(b, 32),
    "shf.l.wrap.b32 $0, $1, $2, 5;": lambda a, b: (b << 32 | a) << 5 >> 32,
    "shf.r.clamp.b32 $0, $1, $2, 40;": lambda a, b: b,
    "popc.b32 $0, $1;": lambda a, b: bits(a).count("1"),
    "clz.b32 $0, $1;": lambda a, b: 32 - a.bit_length(),
    "brev.b32 $0, $1;": lambda a, b: int(bits(a)[::-1], 2),
    "bfind.u32 $0, $1;": lambda a, b: a.bit_length() - 1,
    "bfind.s32 $0, $1;": lambda a, b: (a if signed(a) >= 0 else ~a & M).bit_length() - 1,
    "lop3.b32 $0, $1, $2, 0xF0F0F0F0, 0x96;": lambda a, b: a ^ b ^ 0xF0F0F0F0,
    "lop3.b32 $0, $1, $2, 12345, 0xEA;": lambda a, b: (a & b) | 12345,
    "prmt.b32 $0, $1, $2, 0x5410;": lambda a, b: (a & 0xFFFF) | (b & 0xFFFF) << 16,
    "prmt.b32 $0, $1, $2, 0x8;": lambda a, b: (0xFF if a & 0x80 else 0) | (a & 0xFF) * 0x01010100,
    "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $1; mov.b32 $0, {hi, lo}; }": lambda a, b: a >> 16 | (a & 0xFFFF) << 16,
    "cvt.u32.u8 $0, $1;": lambda a, b: a & 0xFF,
    "cvt.s32.s8 $0, $1;": lambda a, b: ((a & 0xFF) ^ 0x80) - 0x80,
    "{ .reg .b64 w; mul.wide.u32 w, $1, $2; shr.u64 w, w, 16; cvt.u32.u64 $0, w; }": lambda a, b: a * b >> 16,
}


def signed(x: int) -> int:
    return x - 2**32 if x >= 2**31 else x


@pytest.mark.parametrize("text", INTEGER)
@settings(deadline=None, max_examples=40)
@given(a=U32, b=st.one_of(U32, st.integers(0, 40)))
def test_integer_instructions(text, a, b):
    with np.errstate(all="ignore"):
        (found,) = ptx.run(text, [32], [np.array([a], np.uint32), np.array([b], np.uint32)])
    assert found.dtype == np.uint32
    assert int(found[0]) == INTEGER[text](a, b) & M


def test_pairs_of_halves():
    x, y = RNG.normal(size=(2, N)).astype(np.float16)
    found = inline("add.f16x2 $0, $1, $2;", [x, y], np.float16, pack=2)
    np.testing.assert_array_equal(found, x + y)


def test_conversions_of_pairs():
    x = RNG.normal(size=N).astype(np.float32)

    def body(k, a):
        return k.emit(
            asm.inline_asm, a, asm="cvt.rn.f16x2.f32 $0, $2, $1;", constraints="=r,f,f", dtypes=(float16,), pack=2
        )

    np.testing.assert_array_equal(elementwise([x], np.dtype(np.float16), body), x.astype(np.float16))


def test_rounding_to_integers():
    x = np.array([0.5, 1.5, -0.5, -1.5, 2.7, -2.7, 3e10, math.nan] * 16, np.float32)
    for mode, reference in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        expected = np.clip(np.nan_to_num(reference(x.astype(np.float64))), -(2**31), 2**31 - 1)
        np.testing.assert_array_equal(inline(f"cvt.{mode}.s32.f32 $0, $1;", [x], np.int32), expected.astype(np.int32))


def test_four_bytes_in_a_register():
    x = np.arange(N, dtype=np.int8)

    def body(k, a):
        return k.emit(asm.inline_asm, a, asm="xor.b32 $0, $1, 0x01010101;", constraints="=r,r", dtypes=(int8,), pack=4)

    np.testing.assert_array_equal(elementwise([x], np.dtype(np.int8), body), x ^ 1)


def test_subnormals_are_flushed():
    x = np.full(N, 1e-40, np.float32)
    assert not inline("mul.ftz.f32 $0, $1, $1;", [x], np.float32).any()
    assert inline("add.f32 $0, $1, $1;", [x], np.float32).all()


@pytest.mark.parametrize(
    "text",
    [
        "add.f32x9 $0, $1;",
        "add $0, $1, $1;",
        "add.rz.f32 $0, $1, $1;",
        "mov.b32 $0, %laneid;",
        "cvt.rn.f32 $0, $1;",
        "",
    ],
)
def test_what_is_not_known(text):
    with pytest.raises(ptx.UnknownInstruction):
        ptx.run(text, [32], [np.zeros(1, np.uint32)])


def test_constants_of_both_widths():
    (found,) = ptx.run("add.f64 $0, $1, 0d3FF8000000000000;", [64], [np.array([1.0]).view(np.uint64)])
    assert found.view(np.float64)[0] == 2.5
    assert BY_NUMPY[np.dtype(np.float32)] is float32
