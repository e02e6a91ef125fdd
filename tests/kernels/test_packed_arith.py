"""Arithmetic on pairs of floats: the numbers of the scalar operations, for every type, count and target."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from tests.conftest import Device
from tests.kernels.harness import NUMPY, frozen, poison, random, same
from tests.language.support import building
from weft import language as gl
from weft.errors import CompilationError, LayoutError
from weft.language.nvidia.blackwell import add2, float2, fma2, max2, min2, mul2, sub2

LINE = gl.BlockedLayout([4], [32], [4], [0])
SINGLE = gl.BlockedLayout([1], [32], [4], [0])
HALVES = (gl.float16, gl.bfloat16)


@weft.jit
def computed(out, x, y, z, N: gl.constexpr, layout: gl.constexpr, halves: gl.constexpr):
    at = gl.arange(0, N, layout)
    a, b, c = gl.load(x + at), gl.load(y + at), gl.load(z + at)
    gl.store(out + at, add2(a, b))
    gl.store(out + N + at, sub2(a, b))
    gl.store(out + 2 * N + at, add2(mul2(a, b), c))
    gl.store(out + 3 * N + at, fma2(a, b, c))
    gl.store(out + 4 * N + at, mul2(a, 2.0, dtype=a.dtype))
    if halves:
        gl.store(out + 5 * N + at, min2(a, b))
        gl.store(out + 6 * N + at, max2(a, b))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("layout", [LINE, SINGLE], ids=["pairs", "single"])
@pytest.mark.parametrize("dtype", [*HALVES, gl.float32], ids=str)
def test_numbers(rng, device: Device, dtype, layout, target):
    """`add2(mul2(a, b), c)` rounds twice; `fma2` once."""
    kind, n = NUMPY[dtype], 512
    x, y, z = (random(rng, kind, n) for _ in range(3))
    out = poison(7 * n, kind)
    arrays = [device.array(a) for a in (out, x, y, z)]
    if device.name == "sim":
        with weft.simulate(target=target):
            made = computed[1](*arrays, n, layout, dtype in HALVES)
        # f32x2 exists since Blackwell.
        assert ("f32x2" in made.asm["cuda"]) == (target == "sm_100a" and dtype == gl.float32)
    else:
        computed[1](*arrays, n, layout, dtype in HALVES)
    found = np.asarray(device.numpy(arrays[0])).reshape(7, n)
    wide = [a.astype(np.float64) for a in (x, y, z)]
    wanted = [wide[0] + wide[1], wide[0] - wide[1], (wide[0] * wide[1]).astype(kind).astype(np.float64) + wide[2]]
    wanted += [wide[0] * 2, np.minimum(x, y), np.maximum(x, y)]
    with np.errstate(over="ignore"):
        for row, numbers in zip((0, 1, 2, 4, 5, 6)[: 6 if dtype in HALVES else 4], wanted, strict=False):
            same(found[row], numbers.astype(kind))
    exact = wide[0] * wide[1] + wide[2]
    assert np.allclose(found[3].astype(np.float64), exact.astype(kind).astype(np.float64), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("dtype", "target"), [(gl.float16, "sm_90a"), (gl.bfloat16, "sm_90a"), (gl.float32, "sm_100a")]
)
def test_machine_code(dtype, target):
    """One instruction for two elements, and none that puts pairs together."""
    kind = NUMPY[dtype]
    arrays = [np.zeros(7 * 512, kind)] + [np.zeros(512, kind) for _ in range(3)]
    with weft.simulate(target=target):
        code = computed[1](*arrays, 512, LINE, False).asm["sass"]
    words = r"\b(?:HADD2|HMUL2|HFMA2)\S*" if dtype != gl.float32 else r"\b(?:FADD2|FMUL2|FFMA2)\b"
    assert len(re.findall(words, code)) >= 8 and "PRMT" not in code
    assert dtype != gl.float32 or not re.search(r"\b(?:FADD|FFMA) ", code)


@pytest.mark.parametrize(
    ("call", "texts"),
    [
        (lambda k: add2(k.tile(gl.float64), k.tile(gl.float64)), ("add2 computes pairs of", "not of float64")),
        (lambda k: min2(k.tile(), k.tile()), ("min2 computes pairs of float16, bfloat16, not of float32",)),
        (lambda k: fma2(k.tile(gl.int32), 1, 2), ("not of int32", ".to(gl.float16)")),
        (lambda k: mul2(k.tile(), k.tile(), dtype=gl.int8), ("not of int8",)),
    ],
)
def test_types_without_pairs(call, texts):
    with building() as kernel, pytest.raises(CompilationError) as caught:
        call(kernel)
    assert caught.value.code == "language-packed-type"
    assert all(text in str(caught.value) for text in texts)


@weft.jit
def pairwise(a, b, c, d):
    parent: gl.constexpr = gl.BlockedLayout([1, 2], [1, 32], [1, gl.num_warps()], [1, 0])
    lanes = gl.arange(0, 2, gl.SliceLayout(0, parent))
    return gl.split(add2(gl.where(lanes == 0, a, b), gl.where(lanes == 0, c, d)))


@weft.jit
def shuffled(a, b, c, d):
    """Through every operation on tiles that a function of scalars may have: the larger of each, in pairs made by hand."""
    layout: gl.constexpr = gl.BlockedLayout([2, 1], [32, 1], [gl.num_warps(), 1], [0, 1])
    rows = gl.arange(0, 2, gl.SliceLayout(1, layout))
    left, right = gl.where(rows > 0, b, a), gl.where(rows > 0, d, c)
    both = gl.join(left, right).permute(1, 0)
    x, y = gl.split(gl.permute(both.reshape([2, 2]), 1, 0))
    first, second = gl.split(gl.maximum(x, y))
    return first, second


@weft.jit
def joint_reduction(out_a, out_b, x, combine: gl.constexpr, layout: gl.constexpr):
    i, j = gl.arange(0, 16, gl.SliceLayout(1, layout)), gl.arange(0, 64, gl.SliceLayout(0, layout))
    at = i[:, None] * 64 + j[None, :]
    a, b = gl.reduce((gl.load(x + at), gl.load(x + 1024 + at)), axis=1, combine_fn=combine)
    gl.store(out_a + i, a)
    gl.store(out_b + i, b)


def test_tiles_in_a_combine_function_are_each_threads_own(run, rng):
    layout = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    x = frozen(rng.integers(-8, 8, (2, 16, 64)).astype(np.float32))
    for combine, want in ((pairwise, x.sum(2)), (shuffled, x.max(2))):
        out_a, out_b = poison(16, np.float32), poison(16, np.float32)
        run(joint_reduction, 1, out_a, out_b, x.reshape(-1), combine, layout)
        same(out_a, want[0])
        same(out_b, want[1])


PLANE = gl.BlockedLayout([2, 2], [4, 8], [2, 2], [1, 0])


@weft.jit
def in_pairs(out, columns, x, layout: gl.constexpr):
    at = (
        gl.arange(0, 16, gl.SliceLayout(1, layout))[:, None] * 32 + gl.arange(0, 32, gl.SliceLayout(0, layout))[None, :]
    )
    value = float2.pack(gl.load(x + at), axis=1)
    two = float2.full_like(value, 2.0)
    for _ in range(2):
        value = float2.fma(value, two, value * value - two) + two
    gl.store(out + at, float2.unpack(value, axis=1))
    first, second = float2.unpack2(float2.pack2(gl.load(x + at), gl.load(x + 512 + at)))
    total = float2.unpack(float2.pack(first + second, axis=0), axis=0)
    gl.store(columns + at, gl.convert_layout(total, layout, assert_trivial=True))


def test_pairs_as_values(run, rng):
    x = frozen(rng.integers(-3, 4, (2, 16, 32)).astype(np.float32))
    out, columns = poison((16, 32), np.float32), poison((16, 32), np.float32)
    run(in_pairs, 1, out, columns, x, PLANE)
    want = x[0]
    for _ in range(2):
        want = want * 2 + (want * want - 2) + 2
    same(out, want)
    same(columns, x[0] + x[1])
    with weft.simulate(target="sm_100a"):
        made = in_pairs[1](out, columns, x, PLANE)
    assert "fma.rn.f32x2" in made.asm["cuda"] and "mul.rn.f32x2" in made.asm["cuda"]
    code = made.asm["sass"]
    assert re.search(r"\bFFMA2\b", code) and not re.search(r"\b(?:FMUL|FFMA|PRMT)\b", code)


@weft.jit
def rebuilt(out, x, layout: gl.constexpr):
    """The value of pairs as kernels read it: its type, shape and layout, and pairs of a converted value."""
    i, j = gl.arange(0, 16, gl.SliceLayout(1, layout)), gl.arange(0, 32, gl.SliceLayout(0, layout))
    at = i[:, None] * 32 + j[None, :]
    pairs = float2.pack(gl.load(x + at), axis=1)
    gl.static_assert(pairs.value.dtype == gl.int64)
    gl.static_assert(pairs.value.type.shape == (16, 16))
    gl.static_assert(pairs.value.layout == pairs.value.type.layout)
    other: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [gl.num_warps(), 1], [0, 1])
    moved = float2.Float2Tensor(gl.convert_layout(pairs.value, other))
    one = float2.pack2(gl.full([16, 16], 1.0, gl.float32, other), gl.full([16, 16], -1.0, gl.float32, other))
    back = gl.convert_layout((moved + one).value, pairs.value.type.layout)
    result = float2.unpack(float2.Float2Tensor(back), axis=1)
    gl.store(out + at, gl.convert_layout(result, layout))


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_the_value_of_pairs(run, rng, target):
    x, out = frozen(rng.standard_normal((16, 32)).astype(np.float32)), poison((16, 32), np.float32)
    run(rebuilt, 1, out, x, PLANE)
    same(out, x + np.tile(np.float32([1, -1]), 16))
    with weft.simulate(target=target):
        made = rebuilt[1](out, x, PLANE)
    assert ("add.f32x2" in made.asm["cuda"]) == (target == "sm_100a") and made.asm["cubin"]


@weft.jit
def sums_of_pairs(out, x, layout: gl.constexpr):
    at = (
        gl.arange(0, 16, gl.SliceLayout(1, layout))[:, None] * 32 + gl.arange(0, 32, gl.SliceLayout(0, layout))[None, :]
    )
    total = float2.pack2(gl.load(x + at), gl.load(x + 512 + at)).sum(axis=1)
    first, second = float2.unpack2(float2.fma(total, total, total))
    rows = gl.arange(0, 16, gl.SliceLayout(1, layout))
    gl.store(out + rows, gl.convert_layout(first, gl.SliceLayout(1, layout)))
    gl.store(out + 16 + rows, gl.convert_layout(second, gl.SliceLayout(1, layout)))


def test_sums_of_pairs(run, rng):
    x, out = frozen(rng.integers(-3, 4, (2, 16, 32)).astype(np.float32)), poison((2, 16), np.float32)
    run(sums_of_pairs, 1, out, x, PLANE)
    want = x.sum(axis=2)
    same(out, want * want + want)
    with weft.simulate(target="sm_100a"):
        made = sums_of_pairs[1](out, x, PLANE)
    assert re.search(r"\bFADD2\b", made.asm["sass"]) and not re.search(r"\bFADD\b", made.asm["sass"])


@weft.jit
def mixed(out, x, layout: gl.constexpr):
    gl.store(out, gl.max(float2.unpack(float2.pack(gl.full([512], 1.0, gl.float32, layout), 0) + x, 0), 0))


def test_pairs_and_numbers():
    with pytest.raises(CompilationError):
        mixed[1](np.zeros(1, np.float32), 2.0, LINE)


def test_pairs_of_other_values():
    with building() as kernel:
        for value in (kernel.tile(gl.float32), kernel.tile(gl.int32), 1):
            with pytest.raises(CompilationError, match="a tile of int64, of two float32 each, not") as caught:
                float2.Float2Tensor(value)
            assert caught.value.code == "language-float2-value"


@weft.jit
def apart(x, layout: gl.constexpr):
    float2.pack(gl.full([512], x, gl.float32, layout), axis=0)


def test_neighbours_in_two_threads():
    with pytest.raises(LayoutError) as caught:
        apart[1](2.0, SINGLE)
    assert caught.value.code == "layout-split"
