"""Tensors that a kernel describes itself: descriptors made from addresses, extents and strides that are known at run time."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, bits, frozen, poison, random, same
from weft import language as gl
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma

DTYPES = (gl.float16, gl.float32)


@weft.jit
def fetched(desc, coord, bar, smem, phase):
    """Load a block and wait for it."""
    mbarrier.expect(bar, desc.block_type.nbytes)
    tma.async_load(desc, coord, bar, smem)
    mbarrier.wait(bar, phase)


@weft.jit
def lines(x, out, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    src = tma.make_tensor_descriptor(x, [n], [1], [BLOCK], layout)
    dst = tma.make_tensor_descriptor(out, [n], [1], [BLOCK], layout)
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    at = [gl.program_id(0) * BLOCK]
    fetched(src, at, bar, smem, 0)
    tma.async_store(dst, at, smem)
    tma.store_wait(0)


@weft.jit
def sums(x, y, out, rows, columns, pitch, layout: gl.constexpr, own: gl.constexpr):
    """x + y of matrices with rows `pitch` apart, 32 x 64 elements a program."""
    a = tma.make_tensor_descriptor(x, [rows, columns], [pitch, 1], [32, 64], layout)
    b = tma.make_tensor_descriptor(y, [rows, columns], [pitch, 1], [32, 64], layout)
    dst = tma.make_tensor_descriptor(out, [rows, columns], [pitch, 1], [32, 64], layout)
    smem = gl.allocate_shared_memory(a.dtype, [2, 32, 64], layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    at = [gl.program_id(0) * 32, gl.program_id(1) * 64]
    fetched(a, at, bar, smem.index(0), 0)
    fetched(b, at, bar, smem.index(1), 1)
    smem.index(0).store(smem.index(0).load(own) + smem.index(1).load(own))
    fence_async_shared()
    tma.async_store(dst, at, smem.index(0))
    tma.store_wait(0)


@weft.jit
def cubes(x, out, planes, rows, columns, row_pitch, plane_pitch, layout: gl.constexpr):
    shape, strides = [planes, rows, columns], [plane_pitch, row_pitch, 1]
    src = tma.make_tensor_descriptor(x, shape, strides, [2, 8, 32], layout)
    dst = tma.make_tensor_descriptor(out, shape, strides, [2, 8, 32], layout)
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    at = [gl.program_id(0) * 2, gl.program_id(1) * 8, gl.program_id(2) * 32]
    fetched(src, at, bar, smem, 0)
    tma.async_store(dst, at, smem)
    tma.store_wait(0)


def written(out, shape: tuple[slice, ...], expected: np.ndarray) -> None:
    """The tensor holds what it should. Behind its last column the copy engine may write up to a chunk of 16 bytes."""
    same(np.ascontiguousarray(out[shape]), np.ascontiguousarray(expected))
    chunk = 16 // out.itemsize
    columns = -(-expected.shape[-1] // chunk) * chunk
    rest = np.ones(out.shape, bool)
    rest[(*shape[:-1], slice(0, columns))] = False
    assert (bits(out)[rest] == bits(poison(1, out.dtype))[0]).all()


NUMPY = {gl.float16: np.float16, gl.float32: np.float32}


@pytest.mark.parametrize("n", [1, 77, 256, 1003])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lines(run, rng, dtype, n):
    x, out = random(rng, NUMPY[dtype], n + 40), poison(n + 40, NUMPY[dtype])
    layout = gl.NVMMASharedLayout(0, dtype.bits, 1)
    run(lines, -(-n // 256), x, out, n, 256, layout)
    written(out, (slice(0, n),), x[:n])


@pytest.mark.parametrize(("rows", "columns"), [(1, 64), (33, 65), (70, 200), (5, 7)])
@pytest.mark.parametrize(
    ("dtype", "swizzle"), [(gl.float16, 128), (gl.float32, 128), (gl.float32, 0), (gl.float16, 32)], ids=str
)
def test_sums(run, rng, dtype, swizzle, rows, columns):
    kind, pitch = NUMPY[dtype], columns + 8 + -columns % 8
    x, y = (random(rng, kind, (rows + 3, pitch)) for _ in range(2))
    out = poison((rows + 3, pitch), kind)
    layout, own = gl.NVMMASharedLayout(swizzle, dtype.bits, 2), gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    run(sums, (-(-rows // 32), -(-columns // 64)), x, y, out, rows, columns, pitch, layout, own)
    expected = (x.astype(np.float64) + y.astype(np.float64)).astype(kind)
    written(out, (slice(0, rows), slice(0, columns)), expected[:rows, :columns])


@pytest.mark.parametrize(("planes", "rows", "columns"), [(1, 1, 32), (3, 9, 33), (2, 17, 100)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cubes(run, rng, dtype, planes, rows, columns):
    kind, pitch = NUMPY[dtype], columns + 8 + -columns % 8
    x, out = random(rng, kind, (planes, rows + 2, pitch)), poison((planes, rows + 2, pitch), kind)
    grid = (-(-planes // 2), -(-rows // 8), -(-columns // 32))
    layout = gl.NVMMASharedLayout(64, dtype.bits, 3)
    run(cubes, grid, x, out, planes, rows, columns, pitch, (rows + 2) * pitch, layout)
    written(out, (slice(0, planes), slice(0, rows), slice(0, columns)), x[:, :rows, :columns])


@weft.jit
def padded(x, out, rows, columns, padding: gl.constexpr, layout: gl.constexpr, own: gl.constexpr):
    """A block that hangs over all edges of the tensor."""
    src = tma.make_tensor_descriptor(x, [rows, columns], [64, 1], [32, 64], layout, padding_option=padding)
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    fetched(src, [-3, -8], bar, smem, 0)
    i = gl.arange(0, 32, layout=gl.SliceLayout(1, own))[:, None]
    j = gl.arange(0, 64, layout=gl.SliceLayout(0, own))[None, :]
    gl.store(out + i * 64 + j, smem.load(own))


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_padding(run, rng, dtype, padding):
    kind = NUMPY[dtype]
    x, out = random(rng, kind, (20, 64)), poison((32, 64), kind)
    own = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    run(padded, 1, x, out, 20, 43, padding, gl.NVMMASharedLayout(128, dtype.bits, 2), own)
    expected = np.full((32, 64), np.nan if padding == "nan" else 0, kind)
    expected[3:23, 8:51] = x[:, :43]
    same(out, expected)


@weft.jit
def groups(x, out, first, count, layout: gl.constexpr):
    """Matrices of different heights behind one another; one program copies them all, a descriptor after the other."""
    smem = gl.allocate_shared_memory(x.dtype.element_ty, [16, 64], layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    phase = 0
    for group in range(count):
        begin, end = gl.load(first + group), gl.load(first + group + 1)
        src = tma.make_tensor_descriptor(x + begin * 64, [end - begin, 64], [64, 1], [16, 64], layout)
        dst = tma.make_tensor_descriptor(out + begin * 64, [end - begin, 64], [64, 1], [16, 64], layout)
        for row in range(0, end - begin, 16):
            fetched(src, [row, 0], bar, smem, phase)
            tma.async_store(dst, [row, 0], smem)
            tma.store_wait(0)
            phase = phase ^ 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_groups(run, rng, dtype):
    """Each pass of a loop makes descriptors in the place of the last pass's."""
    heights = [3, 16, 1, 40, 17]
    first = frozen(np.cumsum([0, *heights]).astype(np.int32))
    x, out = random(rng, NUMPY[dtype], (80, 64)), poison((80, 64), NUMPY[dtype])
    compiled = run(groups, 1, x, out, first, len(heights), gl.NVMMASharedLayout(128, dtype.bits, 2))
    written(out, (slice(0, 77), slice(0, 64)), x[:77])
    assert compiled.asm["cuda"].count(", true>(") == 2


@weft.jit
def leave(src, bar, smem):
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_load(src, [gl.program_id(0) * 32, 0], bar, smem)


@weft.jit
def take(dst, bar, smem):
    mbarrier.wait(bar, 0)
    tma.async_store(dst, [gl.program_id(0) * 32, 0], smem)
    tma.store_wait(0)


@weft.jit
def handed_over(x, out, rows, layout: gl.constexpr):
    """A worker loads through a descriptor that was made before it began."""
    src = tma.make_tensor_descriptor(x, [rows, 64], [64, 1], [32, 64], layout)
    dst = tma.make_tensor_descriptor(out, [rows, 64], [64, 1], [32, 64], layout)
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    gl.warp_specialize([(take, (dst, bar, smem)), (leave, (src, bar, smem))], [1], [24])


def test_partitions_make_their_own(run, rng):
    x, out = random(rng, np.float32, (75, 64)), poison((80, 64), np.float32)
    compiled = run(handed_over, 3, x, out, 75, gl.NVMMASharedLayout(128, 32, 2))
    written(out, (slice(0, 75), slice(0, 64)), x)
    assert compiled.asm["lowered"].count("tma.write_descriptor") == 2
    assert compiled.front.lowered.attrs.workspace_bytes == 256


@pytest.mark.gpu
def test_capture_into_a_graph(torch):
    """A captured launch allocates its workspace each time it runs."""
    x = torch.arange(1000, dtype=torch.float32, device="cuda")
    out, layout = torch.zeros_like(x), gl.NVMMASharedLayout(0, 32, 1)
    lines[4](x, out, 1000, 256, layout)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lines[4](x, out, 1000, 256, layout)
    for factor in (2, 3):
        x.mul_(factor)
        out.zero_()
        graph.replay()
        assert torch.equal(out, x)


@weft.jit
def updated_groups(x, out, given, first, count, how: gl.constexpr, layout: gl.constexpr):
    """As `groups`, with descriptors that differ from another one in their address and height."""
    smem = gl.allocate_shared_memory(x.dtype.element_ty, [16, 64], layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    phase = 0
    last = given
    if how == "made":
        last = tma.make_tensor_descriptor(x, [1, 64], [64, 1], [16, 64], layout)
    for group in range(count):
        begin, end = gl.load(first + group), gl.load(first + group + 1)
        src = tma.update_tensor_descriptor(last, x + begin * 64, [end - begin, None])
        dst = tma.update_tensor_descriptor(src, out + begin * 64)
        if how == "carried":
            last = src
        for row in range(0, end - begin, 16):
            fetched(src, [row, 0], bar, smem, phase)
            tma.async_store(dst, [row, 0], smem)
            tma.store_wait(0)
            phase ^= 1


@pytest.mark.parametrize("how", ["given", "made", "carried"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_updated_descriptors(run, rng, dtype, how):
    heights = [1, 40, 3, 16, 17]
    first = frozen(np.cumsum([0, *heights]).astype(np.int32))
    kind = NUMPY[dtype]
    x, out = random(rng, kind, (100, 64)), poison((100, 64), kind)
    layout = gl.NVMMASharedLayout(128, dtype.bits, 2)
    # What is described here is replaced: another address, and fewer rows.
    given = Described(random(rng, kind, (2, 64)), [16, 64], layout)
    run(updated_groups, 1, x, out, given, first, len(heights), how, layout)
    total = sum(heights)
    same(out[:total], x[:total])
    assert (bits(out[total:]) == bits(poison(1, kind))[0]).all()


@weft.jit
def restrided(x, out, given, rows, pitch, layout: gl.constexpr, own: gl.constexpr):
    """Every other row, the rows behind the last one as NaN."""
    src = tma.update_tensor_descriptor(given, strides=[pitch, None, 1], shape=[rows, None, 20], base=x)
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    fetched(src, [0, 0, 0], bar, smem, 0)
    gl.device_assert(src.shape[0] == rows)
    gl.device_assert(src.strides[0] == pitch)
    at = gl.arange(0, 8, gl.SliceLayout(1, own))[:, None] * 32 + gl.arange(0, 32, gl.SliceLayout(0, own))[None, :]
    gl.store(out + at, smem.reshape([8, 32]).load(own))


@pytest.mark.parametrize("rows", [1, 5, 8])
def test_other_extents_and_strides(run, rng, rows):
    x, out = random(rng, np.float32, (16, 32)), poison((8, 32), np.float32)
    layout = gl.NVMMASharedLayout.get_default_for([8, 1, 32], gl.float32)
    given = Described(random(rng, np.float32, (3, 1, 32)), [8, 1, 32], layout, "nan")
    own = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    run(restrided, 1, x, out, given, rows, 64, layout, own)
    wanted = np.full((8, 32), np.nan, np.float32)
    wanted[:rows, :20] = x[: 2 * rows : 2, :20]
    same(out, wanted)
