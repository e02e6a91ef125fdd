"""Inline PTX: the author's function, and the instructions that the simulator knows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.sim.build import BY_NUMPY, elementwise
from weft.errors import Hazard
from weft.ir.types import float16, float32, int8, int32
from weft.ops import asm
from weft.sim.numbers import ptx

N = 128
RNG = np.random.default_rng(11)
U32 = st.integers(0, 2**32 - 1)
M = 2**32 - 1


LETTERS = {"float32": "f", "float64": "d", "float16": "h"}


def inline(text, inputs, result, pack=1, sim=None):
    outs = [BY_NUMPY[np.dtype(result)]]
    letters = ["r" if pack > 1 else LETTERS.get(np.dtype(d).name, "r") for d in (result, *(x.dtype for x in inputs))]
    constraints = "=" + ",".join(letters)

    def body(k, *tiles):
        return k.emit(asm.inline_asm, *tiles, asm=text, constraints=constraints, dtypes=tuple(outs), pack=pack, sim=sim)

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


INTEGER = {
    "mad.lo.u32 $0, $1, $2, 7;": lambda a, b: a * b + 7,
    "mad.lo.s32 $0, $1, -3, 0x10;": lambda a, b: a * -3 + 16,
    "add.u32 $0, $1, 010;": lambda a, b: a + 8,
    "xor.b32 $0, $1, 0b101U;": lambda a, b: a ^ 5,
    "lop3.b32 $0, $1, $2, 0xF0F0F0F0, 0x96;": lambda a, b: a ^ b ^ 0xF0F0F0F0,
    "prmt.b32 $0, $1, $2, 0x5410;": lambda a, b: (a & 0xFFFF) | (b & 0xFFFF) << 16,
    "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $1; mov.b32 $0, {hi, lo}; }": lambda a, b: a >> 16 | (a & 0xFFFF) << 16,
    "{ .reg .b16 h; mov.b32 {h, _}, $1; cvt.u32.u16 $0, h; }": lambda a, b: a & 0xFFFF,
    "cvt.u32.u8 $0, $1;": lambda a, b: a & 0xFF,
    "cvt.s8.s32 $0, $1;": lambda a, b: ((a & 0xFF) ^ 0x80) - 0x80,
    "{ .reg .b64 w; mul.wide.u32 w, $1, $2; shr.u64 w, w, 16; cvt.u32.u64 $0, w; }": lambda a, b: a * b >> 16,
    "{ .reg .pred p<2>; setp.lt.u32 p0, $1, $2; setp.eq.or.u32 p1, $1, 7, !p0; selp.b32 $0, $1, $2, p1; }":
        lambda a, b: a if a >= b or a == 7 else b,
    "{ add.u32 $0, $1, 1; { .reg .b32 t; mov.b32 t, $0; add.u32 $0, t, t; } }": lambda a, b: 2 * (a + 1),
}  # fmt: skip


@pytest.mark.parametrize("text", INTEGER)
@settings(deadline=None, max_examples=examples(40))
@given(a=U32, b=st.one_of(U32, st.integers(0, 40)))
def test_text(text, a, b):
    with np.errstate(all="ignore"):
        (found,) = ptx.run(text, [32], [np.array([a], np.uint32), np.array([b], np.uint32)])
    assert found.bits.dtype == np.uint32
    assert int(found.bits[0]) == INTEGER[text](a, b) & M


def one(text, *values, dtype=np.uint32, width=32):
    """The result of a text on single numbers."""
    with np.errstate(all="ignore"):
        (found,) = ptx.run(text, [width], [np.array([v], dtype).view(f"u{np.dtype(dtype).itemsize}") for v in values])
    return int(found.bits[0])


def test_saturating_integers_clamp_to_their_range():
    assert one("add.sat.s32 $0, $1, $2;", 2**31 - 1, 5, dtype=np.int32) == 2**31 - 1
    assert one("sub.sat.s32 $0, $1, $2;", -(2**31), 5, dtype=np.int32) == 2**31
    assert one("add.sat.s32 $0, $1, $2;", 40, 2, dtype=np.int32) == 42


def test_predicates_are_negated_as_one_bit():
    text = "{{ .reg .pred p; setp.eq.u32 p, $1, $1; {} not.pred p, p; selp.u32 $0, 1, 0, p; }}"
    assert one(text.format(""), 3) == 0
    assert one(text.format("not.pred p, p;"), 3) == 1


@pytest.mark.parametrize(
    ("order", "wanted"), [("ne", 0), ("neu", 1), ("equ", 1), ("nan", 1), ("num", 0), ("ltu", 1), ("le", 0)]
)
def test_comparisons_with_nan(order, wanted):
    text = f"{{ .reg .pred p; setp.{order}.f32 p, $1, 0f3F800000; selp.u32 $0, 1, 0, p; }}"
    assert one(text, math.nan, dtype=np.float32) == wanted


def test_nan_as_an_integer():
    """Zero between types of 32 bits and less, the top bit otherwise."""
    assert one("cvt.rzi.s32.f32 $0, $1;", math.nan, dtype=np.float32) == 0
    assert one("cvt.rzi.s64.f32 $0, $1;", math.nan, dtype=np.float32, width=64) == 1 << 63
    assert one("cvt.rzi.u64.f32 $0, $1;", math.nan, dtype=np.float32, width=64) == 1 << 63
    assert one("cvt.rni.s32.f64 $0, $1;", math.nan, dtype=np.float64) == 1 << 31


def test_an_operand_in_a_result_s_register():
    found = ptx.run(
        "add.u32 $0, $0, $2; add.u32 $0, $1, 1;", [32], [np.array([v], np.uint32) for v in (4, 9)], [0, None]
    )
    assert int(found[0].bits[0]) == 14


def test_division_by_zero_is_undefined_where_it_counts():
    x, zeros = np.arange(N, dtype=np.int32), (np.arange(N, dtype=np.int32) % 4)
    guarded = "{ .reg .pred p; .reg .s32 q; setp.eq.s32 p, $2, 0; div.s32 q, $1, $2; selp.s32 $0, -1, q, p; }"
    wanted = np.where(zeros == 0, -1, x // np.maximum(zeros, 1))
    np.testing.assert_array_equal(inline(guarded, [x, zeros], np.int32), wanted)
    with pytest.raises(Hazard) as caught:
        inline("div.s32 $0, $1, $2;", [x, zeros], np.int32)
    assert caught.value.rule == "hazard-division-by-zero"


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
    ("text", "reason"),
    [
        ("add.f32x9 $0, $1;", "the modifier .f32x9 of add"),
        ("add $0, $1, $1;", "add of no type"),
        ("add.rz.f32 $0, $1, $1;", "the modifier .rz of add"),
        ("add.sat.u32 $0, $1, $1;", "add.sat.u32 (of these types it models add.u32)"),
        ("min.xorsign.abs.f32 $0, $1, $1;", "the modifier .abs of min"),
        ("mov.b32 $0, %laneid;", "the register %laneid, which is not declared"),
        ("mov.u32 $0, %tid.x;", "the operand %tid.x as .u32"),
        ("cvt.rn.f32 $0, $1;", "cvt of .f32"),
        ("cvt.s32.f32 $0, $1;", "cvt.s32.f32 (of these types it models"),
        ("@p add.u32 $0, $1, $1;", "a guard (@)"),
        ("L: add.u32 $0, $1, $1;", "directives and labels"),
        ("ld.global.u32 $0, [$1];", "the instruction ld"),
        ("add.u64 $0, $1, $1;", "the register $1, which has 32 bits, for add.u64"),
        ("{ .reg .pred p; setp.eq.u32 p, $1, 0; mov.b32 $0, p; }", "the register p, which is a predicate, for mov.b32"),
        ("add.f32 $0, $1, 1;", "the operand 1 as .f32"),
        ("{ .reg .b32 t; add.u32 $0, t, 1; }", "reading t before it is written"),
        ("add.u32 $0, $1, $1", "a statement without a semicolon"),
        ("lop3.b32 $0, $1, $1, $1, $1;", "the operand $1 as .b32"),
        ("add.u32 $0, $1;", "add.u32 of 1 operands"),
        ("add.cc.u32 $0, $1, $1;", "the modifier .cc of add"),
        ("", "text that never writes its result $0"),
    ],
)
def test_what_is_not_modelled(text, reason):
    with pytest.raises(ptx.UnknownInstruction) as caught:
        ptx.run(text, [32], [np.zeros(1, np.uint32)])
    assert caught.value.reason.startswith(reason)


def test_constants_of_both_widths():
    (found,) = ptx.run("add.f64 $0, $1, 0d3FF8000000000000;", [64], [np.array([1.0]).view(np.uint64)])
    assert found.bits.view(np.float64)[0] == 2.5
    assert BY_NUMPY[np.dtype(np.float32)] is float32
