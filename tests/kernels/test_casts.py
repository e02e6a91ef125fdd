"""Conversions between all element types, against roundings worked out from the formats themselves; and the promotion table."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from tests.kernels.harness import (
    DTYPES,
    FP8,
    FP8_MAX,
    NUMPY,
    Viewed,
    frozen,
    is_nan,
    kept_poison,
    poison,
    random,
    rounded,
    same,
    specials,
)  # fmt: skip
from weft import language as gl

LINE = gl.BlockedLayout([4], [32], [4], [0])
BLOCK = 1024
BY_CODE = {str(dtype): dtype for dtype in DTYPES}
ORDER = ["i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"]
FLOAT_CODES = ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2")


def inputs(rng, dtype):
    """Random numbers, special ones, and ones at the edges of every other type."""
    kind = np.dtype(NUMPY[dtype])
    found = [specials(kind), np.array(random(rng, kind, 300))]
    if kind.kind != "b":
        edges = [2.0**b for b in (-24, -16, -14, -9, -6, 3, 4, 7, 8, 10, 11, 15, 16, 23, 24, 31, 32, 53, 63, 64)]
        edges += [65504.0, 65519.0, 65520.0, 448.0, 464.0, 465.0, 57344.0, 61440.0, 127.0, 255.0, 32767.0, 65535.0]
        near = [
            s * e * (1 + d)
            for e in edges
            for d in (0, 2.0**-30, -(2.0**-30), 2.0**-9, -(2.0**-9), 0.5)
            for s in (1, -1)
        ]
        if kind.kind in "iu":
            info = np.iinfo(kind)
            whole = {int(v) + d for v in near for d in (-1, 0, 1)}
            found.append(np.array(sorted(v for v in whole if info.min <= v <= info.max), kind))
        else:
            found.append(rounded(np.array(near), kind))
    numbers = np.concatenate([np.asarray(f, kind) for f in found])[:BLOCK]
    return frozen(np.array(numbers))


def converted(x, dtype, toward_zero=False):
    """`x` as the language promises to convert it."""
    kind = np.dtype(NUMPY[dtype])
    if x.dtype == kind:
        return x
    source_float = x.dtype.kind not in "iub"
    if kind == np.bool_:
        return x.astype(np.float64) != 0 if source_float else x != 0
    if kind.kind not in "iu":
        return rounded(x, kind, toward_zero)
    if not source_float:
        bits = np.array([int(v) & ((1 << 8 * kind.itemsize) - 1) for v in x.tolist()], f"u{kind.itemsize}")
        return bits.view(kind)
    info = np.iinfo(kind)
    out = np.zeros(x.shape, kind)
    for i, v in enumerate(x.astype(np.float64).tolist()):
        out[i] = 0 if v != v else info.max if v >= info.max else info.min if v <= info.min else int(v)
    return out


@weft.jit
def to_one(out, x, n, how: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    value = gl.load(x + at, mask=at < n)
    gl.store(out + at, gl.cast(value, out.dtype.element_ty, fp_downcast_rounding=how), mask=at < n)


@weft.jit
def to_many(x, n, i1, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32, f64,
            BLOCK: gl.constexpr, layout: gl.constexpr):  # fmt: skip
    at = gl.arange(0, BLOCK, layout)
    value = gl.load(x + at, mask=at < n)
    outs = (i1, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32, f64)
    for i in gl.static_range(len(outs)):
        gl.store(outs[i] + at, value.to(outs[i].dtype.element_ty), mask=at < n)


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_every_conversion(run, rng, source):
    x = inputs(rng, source)
    outs = {code: poison(BLOCK, NUMPY[BY_CODE[code]]) for code in ORDER}
    run(to_many, 1, x, x.size, *outs.values(), BLOCK, LINE)
    for code, out in outs.items():
        same(out[: x.size], converted(x, BY_CODE[code]), f"{source} to {code}")
        if code != "i1":
            kept_poison(out, x.size)


@weft.jit
def of_vectors(x, f64, f32, f16, bf16, f8e4m3, f8e5m2, WIDTH: gl.constexpr):
    outs = (f64, f32, f16, bf16, f8e4m3, f8e5m2)
    first = gl.global_idx.x * WIDTH
    if first < x.shape[0]:
        value = x.load[WIDTH](first)
        for i in gl.static_range(len(outs)):
            outs[i].store(first, gl.SIMD[outs[i].dtype, WIDTH](value))


@pytest.mark.parametrize("width", [8, 2])
@pytest.mark.parametrize("source", ["i8", "u8", "f8e4m3", "f8e5m2", "f16", "bf16", "f32"])
def test_conversions_of_the_vectors_of_threads(run, rng, source, width):
    """In whole words of registers, and in less."""
    x = inputs(rng, BY_CODE[source])
    x = frozen(x[: x.size // 8 * 8].copy())
    outs = [poison(x.size, NUMPY[BY_CODE[code]]) for code in FLOAT_CODES]
    run(of_vectors, weft.cdiv(x.size, 32 * width), Viewed(x), *map(Viewed, outs), width, block=32)
    for code, out in zip(FLOAT_CODES, outs, strict=True):
        same(out, converted(x, BY_CODE[code]), f"{source} to {code}")


@weft.jit
def plainly(out, x, layout: gl.constexpr):
    at = gl.arange(0, 1024, layout)
    gl.store(out + at, gl.load(x + at).to(out.dtype.element_ty))


SIZES = {
    # Of eight numbers of a thread: the instructions that convert them, and how many may take a half or a byte apart.
    ("bf16", "f32"): (r"LOP3", 4, 0), ("f8e4m3", "f32"): (r"F2FP\S*UNPACK|HADD2\.F32", 12, 0),
    ("f8e5m2", "f16"): (r"F2FP\S*UNPACK", 4, 0), ("f16", "f8e4m3"): (r"F2FP\S*UNPACK", 4, 0),
    ("f32", "bf16"): (r"F2FP", 4, 0), ("i8", "f16"): (r"HADD2|LOP3", 6, 4), ("u8", "f32"): (r"FADD", 8, 8),
    ("i8", "bf16"): (r"FADD|F2FP|LOP3", 14, 8),
}  # fmt: skip


@pytest.mark.parametrize(("source", "target"), SIZES)
def test_machine_code(source, target):
    """No conversion of single numbers (`I2F`), and no more instructions than these."""
    names, count, permutations = SIZES[source, target]
    out, x = (np.zeros(1024, NUMPY[BY_CODE[code]]) for code in (target, source))
    with weft.simulate(target="sm_90a"):
        code = plainly[1](out, x, gl.BlockedLayout([8], [32], [4], [0])).asm["sass"]
    assert not re.search(r"\bI2F", code)
    assert len(re.findall(rf"\b(?:{names})", code)) == count
    assert len(re.findall(r"\bPRMT\b", code)) == permutations


NARROWING = [(a, b) for a in FLOAT_CODES for b in FLOAT_CODES if 8 < BY_CODE[b].bits < BY_CODE[a].bits]


@pytest.mark.parametrize(("source", "target"), NARROWING)
def test_rounding_toward_zero(run, rng, source, target):
    x, out = inputs(rng, BY_CODE[source]), poison(BLOCK, NUMPY[BY_CODE[target]])
    run(to_one, 1, out, x, x.size, "rtz", BLOCK, LINE, compiles=source == "f64")
    same(out[: x.size], converted(x, BY_CODE[target], toward_zero=True))


def test_rounding_to_nearest_by_name(run, rng):
    x, out = inputs(rng, gl.float64), poison(BLOCK, np.float16)
    run(to_one, 1, out, x, x.size, "rtne", BLOCK, LINE)
    same(out[: x.size], converted(x, gl.float16))


@weft.jit
def bits_of(out, x, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    value = gl.load(x + at, mask=at < n)
    gl.store(out + at, value.to(out.dtype.element_ty, bitcast=True), mask=at < n)


SAME_SIZE = [(a, b) for a in DTYPES for b in DTYPES if a != b and a.bits == b.bits]


@pytest.mark.parametrize(("source", "target"), SAME_SIZE, ids=str)
def test_bitcasts_keep_the_bits(run, rng, source, target):
    x = inputs(rng, source)
    out = poison(BLOCK, NUMPY[target])
    run(bits_of, 1, out, x, x.size, BLOCK, LINE, compiles=source.is_floating() and source.bits == target.bits <= 16)
    # Nothing computed with these numbers, so that NaNs keep their payloads too.
    np.testing.assert_array_equal(out[: x.size].view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("dtype", FP8, ids=str)
def test_all_fp8_numbers_go_up_and_come_back(run, dtype):
    kind = NUMPY[dtype]
    x = frozen(np.arange(256, dtype=np.uint8).view(kind))
    up, back = poison(256, np.float16), poison(256, kind)
    run(to_one, 1, up, x, 256, None, 256, LINE)
    same(up, x.astype(np.float16))
    run(to_one, 1, back, frozen(up.copy()), 256, None, 256, LINE)
    wide = x.astype(np.float32)
    finite = np.clip(wide, -FP8_MAX[x.dtype.name], FP8_MAX[x.dtype.name]).astype(kind)
    same(back, finite)
    assert is_nan(back).sum() == np.isnan(wide).sum()


# Which type an operation computes in

# Rows and columns as in ORDER; fp8 has no arithmetic, so the table is that of `where`.
PROMOTIONS = """
i1      i1      i8      i16     i32     i64     u8      u16     u32     u64     f8e4m3  f8e5m2  f16     bf16    f32     f64
i8      i8      i8      i16     i32     i64     u8      u16     u32     u64     f8e4m3  f8e5m2  f16     bf16    f32     f64
i16     i16     i16     i16     i32     i64     i16     u16     u32     u64     f8e4m3  f8e5m2  f16     bf16    f32     f64
i32     i32     i32     i32     i32     i64     i32     i32     u32     u64     f8e4m3  f8e5m2  f16     bf16    f32     f64
i64     i64     i64     i64     i64     i64     i64     i64     i64     u64     f8e4m3  f8e5m2  f16     bf16    f32     f64
u8      u8      u8      i16     i32     i64     u8      u16     u32     u64     f8e4m3  f8e5m2  f16     bf16    f32     f64
u16     u16     u16     u16     i32     i64     u16     u16     u32     u64     f8e4m3  f8e5m2  f16     bf16    f32     f64
u32     u32     u32     u32     u32     i64     u32     u32     u32     u64     f8e4m3  f8e5m2  f16     bf16    f32     f64
u64     u64     u64     u64     u64     u64     u64     u64     u64     u64     f8e4m3  f8e5m2  f16     bf16    f32     f64
f8e4m3  f8e4m3  f8e4m3  f8e4m3  f8e4m3  f8e4m3  f8e4m3  f8e4m3  f8e4m3  f8e4m3  f8e4m3  f16     f16     f32     f32     f64
f8e5m2  f8e5m2  f8e5m2  f8e5m2  f8e5m2  f8e5m2  f8e5m2  f8e5m2  f8e5m2  f8e5m2  f16     f8e5m2  f16     f32     f32     f64
f16     f16     f16     f16     f16     f16     f16     f16     f16     f16     f16     f16     f16     f16     f32     f64
bf16    bf16    bf16    bf16    bf16    bf16    bf16    bf16    bf16    bf16    f32     f32     f16     bf16    f32     f64
f32     f32     f32     f32     f32     f32     f32     f32     f32     f32     f32     f32     f32     f32     f32     f64
f64     f64     f64     f64     f64     f64     f64     f64     f64     f64     f64     f64     f64     f64     f64     f64
"""
TABLE = [
    (BY_CODE[row.split()[0]], BY_CODE[column], BY_CODE[want])
    for row in PROMOTIONS.strip().splitlines()
    for column, want in zip(ORDER, row.split()[1:], strict=True)
]


@weft.jit
def check_types(table: gl.constexpr, layout: gl.constexpr):
    for i in gl.static_range(len(table)):
        a, b = gl.zeros([128], table[i][0], layout), gl.zeros([128], table[i][1], layout)
        chosen = gl.where(a == b, a, b)
        gl.static_assert(chosen.dtype == table[i][2], f"{table[i][0]} and {table[i][1]} gave {chosen.dtype}")
        if not chosen.dtype.is_fp8() and chosen.dtype != gl.int1:
            gl.static_assert((a + b).dtype == table[i][2])


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_promotion_of_every_pair(run, source):
    run(check_types, 1, [row for row in TABLE if row[0] == source], LINE, compiles=False)


# A Python number takes the type of what it meets, unless its kind is higher.
WEAK = [
    (gl.int1, 1, gl.int32), (gl.int1, True, gl.int32), (gl.int8, 100, gl.int8), (gl.uint8, 255, gl.uint8),
    (gl.int16, 3, gl.int16),
    (gl.uint16, 3, gl.uint16), (gl.uint64, 3, gl.uint64), (gl.int32, 2**31 - 1, gl.int32),
    (gl.int64, 1 << 40, gl.int64), (gl.int32, 1.5, gl.float32),
    (gl.int64, 1.5, gl.float32), (gl.float16, 3, gl.float16), (gl.float16, 1e30, gl.float16), (gl.bfloat16, 0.1, gl.bfloat16),
    (gl.float32, 1e300, gl.float32), (gl.float64, 0.1, gl.float64), (gl.float16, True, gl.float16),
]  # fmt: skip


@weft.jit
def check_weak(table: gl.constexpr, layout: gl.constexpr):
    for i in gl.static_range(len(table)):
        tile = gl.zeros([128], table[i][0], layout)
        gl.static_assert((tile + table[i][1]).dtype == table[i][2], f"row {i} gave {(tile + table[i][1]).dtype}")
        gl.static_assert((table[i][1] + tile).dtype == table[i][2])


def test_python_numbers_are_weak(run):
    run(check_weak, 1, WEAK, LINE, compiles=False)


@weft.jit
def mixed(out, x, y, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    inside = at < n
    gl.store(out + at, gl.load(x + at, mask=inside) + gl.load(y + at, mask=inside), mask=inside)


MIXED = [
    (gl.int32, gl.float16),
    (gl.int64, gl.float32),
    (gl.uint8, gl.int16),
    (gl.int32, gl.uint32),
    (gl.bfloat16, gl.float16),
]


@pytest.mark.parametrize(("left", "right"), MIXED, ids=str)
def test_numbers_of_mixed_sums(run, rng, left, right):
    x, y = (frozen(rng.integers(0, 100, 300).astype(NUMPY[d])) for d in (left, right))
    want = next(w for a, b, w in TABLE if (a, b) == (left, right))
    out = poison(512, NUMPY[want])
    run(mixed, 1, out, x, y, 300, 512, LINE)
    same(out[:300], rounded_or_whole(x.astype(np.float64) + y.astype(np.float64), NUMPY[want]))


def rounded_or_whole(x, kind):
    return x.astype(kind) if np.dtype(kind).kind in "iu" else rounded(x, kind)


@weft.jit
def of_a_number(out, n):
    gl.store(out, n.to(gl.float32) / 2 + (n.dtype.primitive_bitwidth if hasattr(n, "dtype") else 0))


@pytest.mark.parametrize("n", [1, 5])
def test_a_number_has_the_methods_of_a_scalar(run, n):
    """Also 1, which a kernel is specialised on, so that it is a constant there."""
    out = np.full(1, np.nan, np.float32)
    run(of_a_number, 1, out, n)
    assert out == n / 2 + 32
