"""Products on tensor cores: every operand type, operands in registers and in memory in either order, accumulators that count or
do not, several warpgroups; and products of `mma.sync`.

References are float64 sums. A tensor core cuts what lies far below the largest term of a sum, so results are off by as much as
`off` says at most; with integers in the operands they are exact.
"""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import NUMPY, Described, frozen, poison, same
from weft import language as gl
from weft.language.nvidia.ampere import mma_v2
from weft.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_layout, warpgroup_mma_wait

LINE = {w: gl.BlockedLayout([1, 8], [4, 8], [w, 1], [1, 0]) for w in (4, 8)}


@weft.jit
def to_shared(x, turned: gl.constexpr, rows: gl.constexpr, columns: gl.constexpr, line: gl.constexpr):
    """The array [rows, columns] in shared memory, which holds its transpose if it is turned, as the array does."""
    outer: gl.constexpr = columns if turned else rows
    inner: gl.constexpr = rows if turned else columns
    i, j = gl.arange(0, outer, gl.SliceLayout(1, line)), gl.arange(0, inner, gl.SliceLayout(0, line))
    tile = gl.load(x + i[:, None] * inner + j[None, :])
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([outer, inner], x.dtype.element_ty)
    memory = gl.allocate_shared_memory(x.dtype.element_ty, [outer, inner], layout, tile)
    if turned:
        return memory.permute((1, 0))
    return memory


@weft.jit
def put(out, acc, rows: gl.constexpr, columns: gl.constexpr):
    layout: gl.constexpr = acc.type.layout
    i, j = gl.arange(0, rows, gl.SliceLayout(1, layout)), gl.arange(0, columns, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * columns + j[None, :], acc)


@weft.jit
def product(
    out, a, b, c, counts, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, turned: gl.constexpr, where: gl.constexpr,
    use: gl.constexpr, imprecise: gl.constexpr, layout: gl.constexpr, line: gl.constexpr,
):  # fmt: skip
    i, j = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    acc = gl.load(c + i[:, None] * N + j[None, :])
    right = to_shared(b, turned[1], K, N, line)
    if where == "registers":
        operand: gl.constexpr = gl.DotOperandLayout(0, layout, 32 // a.dtype.element_ty.primitive_bitwidth)
        i, k = gl.arange(0, M, gl.SliceLayout(1, operand)), gl.arange(0, K, gl.SliceLayout(0, operand))
        left = gl.load(a + i[:, None] * K + k[None, :])
    else:
        left = to_shared(a, turned[0], M, K, line)
    if use == "run time":
        acc = warpgroup_mma(left, right, acc, use_acc=gl.load(counts) != 0, max_num_imprecise_acc=imprecise)
    else:
        acc = warpgroup_mma(left, right, acc, use_acc=use, max_num_imprecise_acc=imprecise)
    put(out, acc, M, N)


def operands(rng, left, right, m: int, n: int, k: int, whole: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Random matrices; of small integers if they shall be `whole`."""

    def made(dtype, shape):
        if dtype in (gl.int8, gl.uint8):
            info = np.iinfo(NUMPY[dtype])
            return rng.integers(info.min, info.max + 1, shape).astype(NUMPY[dtype])
        numbers = rng.integers(-3, 4, shape) if whole else rng.normal(size=shape)
        return numbers.astype(NUMPY[dtype])

    return made(left, (m, k)), made(right, (k, n))


def given(x: np.ndarray, turned: bool) -> np.ndarray:
    return frozen(np.ascontiguousarray(x.T if turned else x))


def off(a: np.ndarray, b: np.ndarray, c: np.ndarray, bits: int, instruction: int) -> np.ndarray:
    """How far a sum may be off where the terms of each instruction and its result keep so many bits."""
    size = np.abs(a) @ np.abs(b) + np.abs(c)
    steps = -(-a.shape[1] // instruction)
    return size * steps * (instruction + 2) * 2.0**-bits


def check(found: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, bits: int, instruction: int) -> None:
    wide = [x.astype(np.float32).astype(np.float64) for x in (a, b, c)]
    exact = wide[0] @ wide[1] + wide[2]
    np.testing.assert_array_less(np.abs(found.astype(np.float64) - exact), off(*wide, bits, instruction) + 1e-30)


PAIRS = [(gl.float16, gl.float16), (gl.bfloat16, gl.bfloat16), (gl.float32, gl.float32)]
FP8 = [(left, right) for left in (gl.float8e4nv, gl.float8e5) for right in (gl.float8e4nv, gl.float8e5)]
INTEGERS = [(left, right) for left in (gl.int8, gl.uint8) for right in (gl.int8, gl.uint8)]
BITS = {16: (23, 16), 32: (23, 8), 8: (13, 32)}


def launch(run, rng, types, turned, *, shape=(64, 64, 64), warps=4, where="memory", use=True, imprecise=None, acc=None,
           whole=False, **options):  # fmt: skip
    """Run `product`; gives the result, the operands and what the accumulator begins with."""
    m, n, k = shape
    a, b = operands(rng, *types, m, n, k, whole)
    acc = acc or (gl.int32 if types[0] in (gl.int8, gl.uint8) else gl.float32)
    kind = NUMPY[acc]
    c = frozen(rng.integers(-99, 100, (m, n)).astype(kind) if whole else rng.normal(size=(m, n)).astype(kind))
    out = poison((m, n), kind)
    layout = warpgroup_mma_layout(types[0], [m, n], warps)
    counts = frozen(np.array([options.pop("counts", 1)], np.int32))
    run(
        product, 1, out, given(a, turned[0]), given(b, turned[1]), c, counts, m, n, k, turned, where, use, imprecise, layout,
        LINE[warps], num_warps=warps, **options,
    )  # fmt: skip
    return out, a, b, c


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("types", PAIRS[:2], ids=str)
def test_operands_of_16_bits_in_either_order(run, rng, types, turned):
    out, a, b, c = launch(run, rng, types, turned)
    check(out, a, b, c, *BITS[16])


def test_tf32(run, rng):
    """Of float32 operands the tensor core looks at ten bits of mantissa."""
    out, a, b, c = launch(run, rng, PAIRS[2], (False, True), shape=(64, 32, 32))
    cut = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b)]
    check(out, *cut, c, *BITS[32])
    assert np.abs(out - (a.astype(np.float64) @ b + c)).max() > 1e-4


@pytest.mark.parametrize("types", FP8, ids=str)
def test_fp8(run, rng, types):
    out, a, b, c = launch(run, rng, types, (False, True))
    check(out, a, b, c, *BITS[8])


@pytest.mark.parametrize(("imprecise", "rows"), [(32, 64), (64, 64), (64, 128)])
def test_fp8_sums_in_parts(run, rng, imprecise, rows):
    """What a part is off by does not grow with what is there before it; with 128 rows two accumulators take turns."""
    out, a, b, c = launch(run, rng, FP8[0], (False, True), shape=(rows, 64, 128), imprecise=imprecise)
    wide = [x.astype(np.float32).astype(np.float64) for x in (a, b)]
    exact = wide[0] @ wide[1] + c
    zero = np.zeros_like(c)
    allowed = sum(
        off(wide[0][:, k : k + imprecise], wide[1][k : k + imprecise], zero, *BITS[8]) for k in range(0, 128, imprecise)
    )
    assert np.all(np.abs(out - exact) <= allowed + np.abs(exact) * 2.0**-20)


@pytest.mark.parametrize("types", INTEGERS, ids=str)
def test_integers(run, rng, types):
    """Over their whole range, and exact."""
    out, a, b, c = launch(run, rng, types, (False, True), whole=True)
    same(out, (a.astype(np.int64) @ b.astype(np.int64) + c).astype(np.int32))


@pytest.mark.parametrize("types", [*PAIRS, FP8[0], INTEGERS[0]], ids=str)
def test_left_operands_in_registers(run, rng, types):
    out, a, b, c = launch(run, rng, types, (False, True), where="registers", whole=True)
    wide = [x.astype(np.float32).astype(np.float64) for x in (a, b)]
    same(out, (wide[0] @ wide[1] + c).astype(out.dtype))


@pytest.mark.parametrize("where", ["memory", "registers"])
@pytest.mark.parametrize(("use", "counts"), [(True, 0), (False, 1), ("run time", 1), ("run time", 0)])
def test_accumulators_that_do_not_count(run, rng, where, use, counts):
    out, a, b, c = launch(run, rng, PAIRS[0], (False, False), where=where, use=use, counts=counts, whole=True)
    adds = use is True or (use == "run time" and counts)
    same(out, (a.astype(np.float64) @ b.astype(np.float64) + (c if adds else 0)).astype(np.float32))


@pytest.mark.parametrize("types", [PAIRS[0], FP8[0]], ids=str)
def test_fp16_accumulators(run, rng, types):
    """Each instruction's sum is rounded to fp16."""
    out, a, b, c = launch(run, rng, types, (False, True), acc=gl.float16, exact=False)
    check(out, a, b, c, *((13, 32) if types[0] in FP8[0] else (14, 16)))
    assert out.dtype == np.float16


@pytest.mark.parametrize("shape", [(64, 16, 16), (64, 256, 32), (128, 128, 64), (256, 8, 16)], ids=str)
@pytest.mark.parametrize("warps", [4, 8])
def test_shapes_and_warpgroups(run, rng, shape, warps):
    out, a, b, c = launch(run, rng, PAIRS[0], (False, False), shape=shape, warps=warps, whole=True)
    same(out, (a.astype(np.float64) @ b.astype(np.float64) + c).astype(np.float32))


# Loops


@weft.jit
def pipelined(out, a, b, K, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    BK: gl.constexpr = a.block_shape[1]
    a_parts = gl.allocate_shared_memory(a.dtype, [3, *a.block_shape], a.layout)
    b_parts = gl.allocate_shared_memory(b.dtype, [3, *b.block_shape], b.layout)
    bars = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(3):
        mbarrier.init(bars.index(i), count=1)
    acc = gl.zeros([M, N], gl.float32, layout)
    for i in range(gl.cdiv(K, BK) + 1):
        if i * BK < K:
            mbarrier.expect(bars.index(i % 3), a.block_type.nbytes + b.block_type.nbytes)
            tma.async_copy_global_to_shared(a, [0, i * BK], bars.index(i % 3), a_parts.index(i % 3))
            tma.async_copy_global_to_shared(b, [i * BK, 0], bars.index(i % 3), b_parts.index(i % 3))
        j = i - 1
        if j >= 0:
            mbarrier.wait(bars.index(j % 3), j // 3 & 1)
            acc = warpgroup_mma(a_parts.index(j % 3), b_parts.index(j % 3), acc, is_async=True)
            acc = warpgroup_mma_wait(1, [acc])
    put(out, warpgroup_mma_wait(0, [acc]), M, N)


@pytest.mark.parametrize("k", [32, 200, 256])
@pytest.mark.parametrize("warps", [4, 8])
def test_products_under_way_go_round_loops(run, rng, k, warps):
    a, b = operands(rng, *PAIRS[0], 128, 64, k)
    out = poison((128, 64), np.float32)
    smem = [gl.NVMMASharedLayout.get_default_for(shape, gl.float16) for shape in ([128, 32], [32, 64])]
    run(
        pipelined, 1, out, Described(frozen(a), [128, 32], smem[0]), Described(frozen(b), [32, 64], smem[1]), k, 128, 64,
        warpgroup_mma_layout(gl.float16, [128, 64], warps), num_warps=warps,
    )  # fmt: skip
    check(out, a, b, np.zeros((128, 64), np.float32), *BITS[16])


@weft.jit
def scaled_in_registers(
    out, a, b, first, last, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, STEP: gl.constexpr, BOUNDS: gl.constexpr,
    layout: gl.constexpr, line: gl.constexpr,
):  # fmt: skip
    """The sum of (i + 1) a @ b for i in a range: every left operand is computed while the MMA before it is under way."""
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    i, k = gl.arange(0, M, gl.SliceLayout(1, operand)), gl.arange(0, K, gl.SliceLayout(0, operand))
    left = gl.load(a + i[:, None] * K + k[None, :])
    right = to_shared(b, False, K, N, line)
    acc = gl.zeros([M, N], gl.float32, layout)
    if BOUNDS is None:
        begin, end = gl.load(first) & 255, gl.load(last)
    else:
        begin, end = BOUNDS
    for step in range(begin, end, STEP):
        acc = warpgroup_mma(left * (step + 1).to(gl.float16), right, acc, is_async=True)
        acc = warpgroup_mma_wait(1, acc)
    put(out, warpgroup_mma_wait(0, acc), M, N)


@pytest.mark.filterwarnings("error::weft.errors.PerformanceWarning")
@pytest.mark.parametrize("bounds", [(0, 0), (0, 1), (0, 2), (0, 3), (2, 9), (5, 3)], ids=str)
@pytest.mark.parametrize(("known", "step"), [(True, 1), (False, 1), (False, 3)], ids=str)
def test_left_operands_in_registers_outlive_their_iteration(run, rng, bounds, known, step):
    """Such loops are unrolled by two, for any number of iterations, known or not."""
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((64, 32), (32, 16)))
    out, layout = poison((64, 16), np.float32), warpgroup_mma_layout(gl.float16, [64, 16], 4)
    first, last = (np.array([bound], np.int32) for bound in bounds)
    run(
        scaled_in_registers, 1, out, frozen(a), frozen(b), frozen(first), frozen(last), 64, 16, 32, step,
        bounds if known else None, layout, LINE[4], num_warps=4,
    )  # fmt: skip
    factor = sum(i + 1 for i in range(*bounds, step))
    same(out, (factor * (a.astype(np.float64) @ b.astype(np.float64)) + 0.0).astype(np.float32))


# mma.sync


@weft.jit
def by_warps(out, a, b, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, layout: gl.constexpr):
    width: gl.constexpr = 32 // a.dtype.element_ty.primitive_bitwidth
    left: gl.constexpr = gl.DotOperandLayout(0, layout, width)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, width)
    i, k = gl.arange(0, M, gl.SliceLayout(1, left)), gl.arange(0, K, gl.SliceLayout(0, left))
    x = gl.load(a + i[:, None] * K + k[None, :])
    k, j = gl.arange(0, K, gl.SliceLayout(1, right)), gl.arange(0, N, gl.SliceLayout(0, right))
    y = gl.load(b + k[:, None] * N + j[None, :])
    i, j = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    put(out, mma_v2(x, y, gl.load(c + i[:, None] * N + j[None, :])), M, N)


@pytest.mark.parametrize("warps", [[4, 1], [2, 2], [1, 4]], ids=str)
@pytest.mark.parametrize("types", [*PAIRS, INTEGERS[0]], ids=str)
def test_mma_sync(run, rng, types, warps):
    a, b = operands(rng, *types, 64, 32, 64, whole=True)
    kind = np.int32 if types[0] is gl.int8 else np.float32
    c = frozen(rng.integers(-99, 100, (64, 32)).astype(kind))
    out = poison((64, 32), kind)
    layout = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=warps, instr_shape=[16, 8])
    run(by_warps, 1, out, frozen(a), frozen(b), c, 64, 32, 64, layout)
    wide = [x.astype(np.float32).astype(np.float64) for x in (a, b)]
    same(out, (wide[0] @ wide[1] + c).astype(kind))


@pytest.mark.parametrize("acc", [gl.float32, gl.float16], ids=str)
def test_mma_sync_of_any_numbers(run, rng, acc):
    a, b = operands(rng, *PAIRS[0], 32, 32, 64)
    c = frozen(rng.normal(size=(32, 32)).astype(NUMPY[acc]))
    out = poison((32, 32), NUMPY[acc])
    layout = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[2, 2], instr_shape=[16, 8])
    run(by_warps, 1, out, frozen(a), frozen(b), c, 32, 32, 64, layout, exact=False)
    check(out, a, b, c, 23 if acc is gl.float32 else 14, 16)


@weft.jit
def in_wide_fragments(
    out, a, b, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, k_width: gl.constexpr, warps: gl.constexpr
):
    layout: gl.constexpr = gl.NVMMADistributedLayout([2, 0], warps, [16, 8])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, k_width)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, k_width)
    i, k = gl.arange(0, M, gl.SliceLayout(1, left)), gl.arange(0, K, gl.SliceLayout(0, left))
    x = gl.load(a + i[:, None] * K + k[None, :])
    k, j = gl.arange(0, K, gl.SliceLayout(1, right)), gl.arange(0, N, gl.SliceLayout(0, right))
    y = gl.load(b + k[:, None] * N + j[None, :])
    put(out, mma_v2(x, y, gl.zeros([M, N], gl.float32, layout)), M, N)


@pytest.mark.parametrize(
    ("dtype", "k_width", "k"),
    [
        (gl.float32, 2, 16), (gl.float32, 4, 64), (gl.float16, 4, 32), (gl.float16, 8, 32), (gl.bfloat16, 8, 128),
        (gl.float8e4nv, 4, 128), (gl.float8e4nv, 8, 64), (gl.float8e5, 8, 128),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("warps", [[4, 1], [2, 2]], ids=str)
def test_mma_sync_of_operands_with_more_neighbours_along_k_in_a_thread(run, rng, dtype, k_width, k, warps):
    a, b = operands(rng, dtype, dtype, 64, 32, k, whole=dtype is gl.float32)
    out = poison((64, 32), np.float32)
    run(in_wide_fragments, 1, out, frozen(a), frozen(b), 64, 32, k, k_width, warps)
    check(out, a, b, np.zeros((64, 32), np.float32), *BITS[dtype.bits])
