"""Inline PTX, functions of single elements, and fp4."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.kernels.harness import NUMPY, frozen, kept_poison, poison, random, same
from weft import language as gl

LINE = gl.BlockedLayout([4], [32], [4], [0])
BLOCK = 512


def with_carry(x, y):
    """What `add_and_or` below computes, on arrays."""
    return x + y, x | y


@weft.jit
def simple(out, x, y, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    a, b = gl.load(x + at, mask=at < n, other=0), gl.load(y + at, mask=at < n, other=0)
    r = gl.inline_asm_elementwise(
        "lop3.b32 $0, $1, $2, $3, 0x96;", "=r,r,r,r", [a, b, 77], gl.int32, is_pure=True, pack=1
    )
    gl.store(out + at, r, mask=at < n)
    total, union = gl.inline_asm_elementwise(
        "add.s32 $0, $2, $3; or.b32 $1, $2, $3;", "=&r,=r,r,r", [a, b], (gl.int32, gl.int32), is_pure=False, pack=1,
        sim=with_carry,
    )  # fmt: skip
    gl.store(out + BLOCK + at, total, mask=at < n)
    gl.store(out + 2 * BLOCK + at, union, mask=at < n)


def test_instructions(run, rng):
    x, y, out = random(rng, np.int32, 500), random(rng, np.int32, 500), poison((3, BLOCK), np.int32)
    run(simple, 1, out, x, y, 500, BLOCK, LINE)
    with np.errstate(over="ignore"):
        for row, want in zip(out, (x ^ y ^ 77, x + y, x | y), strict=True):
            same(row[:500], want)
            kept_poison(row, 500)


@weft.jit
def packed(out, x, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    value = gl.load(x + at)
    r = gl.inline_asm_elementwise(
        "prmt.b32 $0, $1, $1, 0x0123;", "=r,r", [value], gl.uint8, is_pure=True, pack=4, sim=None
    )
    gl.store(out + at, r)


@weft.jit
def packed_halves(out, x, y, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    r = gl.inline_asm_elementwise(
        "fma.rn.f16x2 $0, $1, $2, $2;", "=r,r,r", [gl.load(x + at), gl.load(y + at)], gl.float16, is_pure=True, pack=2
    )
    gl.store(out + at, r)


def test_packed_elements(run, rng):
    x, out = random(rng, np.uint8, BLOCK), poison(BLOCK, np.uint8)
    run(packed, 1, out, x, BLOCK, LINE)
    same(out, np.ascontiguousarray(x.reshape(-1, 4)[:, ::-1]).ravel())
    a, b = (frozen(rng.integers(-8, 9, BLOCK).astype(np.float16)) for _ in range(2))
    out = poison(BLOCK, np.float16)
    run(packed_halves, 1, out, a, b, BLOCK, LINE)
    same(out + np.float16(0), a * b + b + np.float16(0))


@weft.jit
def pair_sums(a, b):
    return a + b, a - b


@weft.jit
def short_packs(out, x, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    value = gl.load(x + at)
    r = gl.inline_asm_elementwise("prmt.b32 $0, $1, $1, 0x0123;", "=r,r", [value], gl.uint8, is_pure=True, pack=4)
    gl.store(out + at, r)
    r = gl.inline_asm_elementwise("prmt.b32 $0, $1, $1, 0x0123;", "=r,r", [value], gl.uint8, is_pure=False, pack=4)
    gl.store(out + BLOCK + at, r)
    gl.store(out + 2 * BLOCK + at, gl.map_elementwise(pair_sums, value, pack=2))
    first = gl.load(x)
    one = gl.inline_asm_elementwise("prmt.b32 $0, $1, $1, 0x0123;", "=r,r", [first], gl.uint8, is_pure=True, pack=4)
    gl.store(out + 3 * BLOCK, one)


@pytest.mark.parametrize("held", [1, 2])
def test_packs_of_more_elements_than_a_thread_holds(run, rng, held):
    """The rest of a pack is copies of the last element."""
    count = 128 * held
    x, out = random(rng, np.uint8, count), poison((4, count), np.uint8)
    run(short_packs, 1, out, x, count, gl.BlockedLayout([held], [32], [4], [0]))
    groups = np.array(x).reshape(-1, held)
    turned = groups[:, np.minimum([3, 2], held - 1)][:, :held].ravel()
    same(out[0], turned)
    same(out[1], turned)
    last = groups[:, held - 1]
    same(out[2].reshape(-1, held)[:, 0], groups[:, 0] + last)
    assert held == 1 or np.array_equal(out[2].reshape(-1, 2)[:, 1], groups[:, 0] - last)
    assert out[3][0] == x[0]


@weft.jit
def widen(out, x, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    r = gl.inline_asm_elementwise("cvt.f64.f32 $0, $1;", "=d,f", [gl.load(x + at)], gl.float64, is_pure=True, pack=1)
    gl.store(out + at, r)


def test_registers_of_several_widths(run, rng):
    x, out = random(rng, np.float32, BLOCK), poison(BLOCK, np.float64)
    run(widen, 1, out, x, BLOCK, LINE)
    same(out, x.astype(np.float64))


# Once in each thread

NARROW = gl.BlockedLayout([1], [32], [4], [0])
TOTAL = gl.distributed_type(gl.float32, [128], NARROW)
SUM_AND_TURN = """{ .reg .f32 t; add.f32 t, $5, $6; add.f32 $0, $7, $8; add.f32 $0, $0, t; mul.f32 $0, $0, $9;
    mov.f32 $1, $8; mov.f32 $2, $7; mov.f32 $3, $6; mov.f32 $4, $5; }"""
TEN = ["=&f"] * 5 + ["f"] * 5


def next_lane(x):
    """What `shfl.sync.down` by one computes; the last lane keeps its own."""
    return np.where(np.arange(len(x))[:, None] % 32 == 31, x, np.roll(x, -1, 0))


@weft.jit
def by_threads(out, turned, kept, after, x, h, scale):
    """Results of two shapes from a tile and a scalar, a tied operand of packed elements, and lanes that speak to each other."""
    at, line = gl.arange(0, 512, LINE), gl.arange(0, 128, NARROW)
    a = gl.load(x + at)
    total, reverse = gl.inline_asm(SUM_AND_TURN, TEN, [a, scale], (TOTAL, a.type), is_pure=True)
    gl.store(out + line, total)
    gl.store(turned + at, reverse)
    b = gl.load(h + at)
    gl.store(kept + at, gl.inline_asm("", "=r,=r,0,1", [b], b.type))
    lane = gl.inline_asm("shfl.sync.down.b32 $0, $1, 1, 31, -1;", "=r,r", [total], TOTAL, sim=next_lane)
    gl.store(after + line, lane)
    gl.inline_asm("// $0", "r", [gl.inline_asm("shl.b32 $0, $1, 4;", "=r,r", [3], gl.int32)], (), sim=nothing)


def nothing(x):
    """No results."""
    assert int(np.max(x)) == 48
    return ()


def test_once_in_each_thread(run, rng):
    x, h = frozen(random(rng, np.float32, 512)), frozen(rng.integers(-99, 99, 512).astype(np.float16))
    out, turned, kept, after = (
        poison(128, np.float32),
        poison(512, np.float32),
        poison(512, np.float16),
        poison(128, np.float32),
    )
    run(by_threads, 1, out, turned, kept, after, x, h, 2.0)
    four = x.reshape(-1, 4)
    same(out, ((four[:, 2] + four[:, 3]) + (four[:, 0] + four[:, 1])) * np.float32(2))
    same(turned, np.ascontiguousarray(four[:, ::-1]).ravel())
    same(kept, h)
    same(after, next_lane(out[:, None])[:, 0])


STORE = "{ .reg .u32 p; shl.b32 p, $2, 2; add.u32 p, p, $1; st.shared.f32 [p], $3; mov.f32 $0, $3; }"


def stored(buffer, at, value):
    """What `STORE` does, on arrays."""
    buffer[at[:, 0]] = value[:, 0]
    return value


def through_memory(out, x, synced: gl.constexpr):
    """The text stores to one tile of a buffer, at elements of other threads."""
    line = gl.arange(0, 128, NARROW)
    a = gl.load(x + line)
    tiles = gl.allocate_shared_memory(gl.float32, [2, 128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    tiles.index(1).store(a * 0)
    if synced:
        gl.barrier()
    b = gl.inline_asm(STORE, "=f,r,r,f", [tiles.index(1), 127 - line, a], a.type, sim=stored)
    if synced:
        gl.barrier()
    gl.store(out + line, tiles.index(1).load(NARROW) + b)


def test_memory_of_the_text(run, rng):
    x, out = frozen(random(rng, np.float32, 128)), poison(128, np.float32)
    compiled = run(weft.jit(through_memory), 1, out, x, False)
    same(out, x[::-1] + x)
    assert compiled.asm["sync"].count("barrier, inserted") == 2


def test_a_text_needs_barriers_around_it():
    by_hand = weft.jit(sync="none")(through_memory)
    x, out = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    by_hand[1](out, x, True)
    same(out, x[::-1] + x)
    with pytest.raises(weft.errors.Hazard) as caught:
        by_hand[1](out, x, False)
    assert "inline_asm" in str(caught.value) or "asm.block_memory" in str(caught.value)


# Functions of one element


@weft.jit
def digits(x):
    count = 0
    while x != 0:
        x = x // 10
        count += 1
    return count


@weft.jit
def split_sign(x, y):
    if x < y:
        return -1, y - x
    return 1, x - y


@weft.jit
def swapped(a, b):
    return b, a


@weft.jit
def mapped(out, x, y, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    a, b = gl.load(x + at, mask=at < n, other=0), gl.load(y + at, mask=at < n, other=0)
    gl.store(out + at, gl.map_elementwise(digits, a), mask=at < n)
    sign, distance = gl.map_elementwise(split_sign, a, b)
    gl.store(out + BLOCK + at, sign, mask=at < n)
    gl.store(out + 2 * BLOCK + at, distance, mask=at < n)
    gl.store(out + 3 * BLOCK + at, gl.map_elementwise(swapped, a, pack=2), mask=at < n)


def test_functions_with_branches_on_each_element(run, rng):
    n = 500
    x, y = (frozen(rng.integers(0, 10 ** rng.integers(0, 7, n)).astype(np.int32)) for _ in range(2))
    out = poison((4, BLOCK), np.int32)
    run(mapped, 1, out, x, y, n, BLOCK, LINE)
    count = np.array([len(str(v)) if v else 0 for v in x.tolist()], np.int32)
    wanted = (count, np.where(x < y, -1, 1).astype(np.int32), np.abs(x - y), x.reshape(-1, 2)[:, ::-1].ravel())
    for row, want in zip(out, wanted, strict=True):
        same(row[:n], np.ascontiguousarray(want))
        kept_poison(row, n)


# fp4

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@weft.jit
def unpack(out, x, axis: gl.constexpr, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    i, j = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    tile = gl.fp4_to_fp(gl.load(x + i[:, None] * N + j[None, :]), out.dtype.element_ty, axis)
    gl.static_assert(tile.shape == ([2 * M, N] if axis == 0 else [M, 2 * N]))
    at = gl.set_auto_layout(gl.arange(0, 2 * M * N), tile.ravel().layout)
    gl.store(out + at, tile.ravel())


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [gl.float16, gl.bfloat16, gl.float32], ids=str)
def test_fp4(run, rng, dtype, axis):
    x = np.array(random(rng, np.uint8, (16, 32)))
    x.ravel()[:256] = np.arange(256)
    out = poison((32, 32) if axis == 0 else (16, 64), NUMPY[dtype])
    run(unpack, 1, out, frozen(x), axis, 16, 32, gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]))
    pairs = np.stack([E2M1[x & 15], E2M1[x >> 4]], axis + 1)
    same(out, np.ascontiguousarray(pairs.reshape(out.shape).astype(NUMPY[dtype])))
    assert np.isin(out.astype(np.float64), E2M1).all()
    assert ml_dtypes.finfo(NUMPY[dtype]).max > 6


@weft.jit
def special_registers(out):
    rank = gl.inline_asm_elementwise("mov.u32 $0, %cluster_ctarank;", "=r", [], dtype=gl.int32, is_pure=True, pack=1)
    block, blocks = gl.inline_asm_elementwise(
        "mov.u32 $0, %ctaid.x;\nmov.u32 $1, %nctaid.x;", "=r,=r", [], dtype=(gl.int32, gl.int32), is_pure=True, pack=1
    )
    gl.store(out + 3 * gl.program_id(0), rank)
    gl.store(out + 3 * gl.program_id(0) + 1, block)
    gl.store(out + 3 * gl.program_id(0) + 2, blocks)


def test_text_without_operands_gives_scalars(run):
    out = poison((5, 3), np.int32)
    run(special_registers, 5, out)
    same(out, np.array([[0, program, 5] for program in range(5)], np.int32))
