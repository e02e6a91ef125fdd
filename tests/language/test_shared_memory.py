"""Allocations of shared memory, views of them, and tiles that go in and out."""

from __future__ import annotations

import pytest

from tests.language.support import BLOCKED, MATRIX, mistake
from weft import language as gl
from weft.ir.types import SharedType
from weft.language.nvidia.hopper import mbarrier
from weft.language.runtime_value import describe, is_handle, name_of, wrap

NVMMA = gl.NVMMASharedLayout(128, 16, 2)
SWIZZLED = gl.SwizzledSharedLayout(4, 1, 8, [1, 0])
PLAIN = gl.SwizzledSharedLayout(1, 1, 1, [0])


def buffer(shape=(64, 64), layout=NVMMA, element=gl.float16):
    return gl.allocate_shared_memory(element, shape, layout)


# Allocations


def test_an_allocation(kernel):
    smem = buffer([3, 64, 128])
    assert (smem.dtype, smem.shape, smem.rank, smem.numel, smem.layout) == (gl.float16, [3, 64, 128], 3, 24576, NVMMA)
    assert smem.type == gl.shared_memory_descriptor_type(gl.float16, [3, 64, 128], NVMMA, [64, 128])
    assert smem.handle.type == SharedType(gl.float16, (3, 64, 128), NVMMA, (64, 128))
    assert isinstance(smem, gl.shared_memory_descriptor)
    assert kernel.last("shared.alloc").attrs["offset"] == -1


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("columns", [64, 96, 320])
def test_bytes_of_a_block_of_any_width(columns):
    memory = buffer([2, 64, columns], gl.NVMMASharedLayout(64, 16, 2))
    assert memory.nbytes_per_cta == 2 * 64 * columns * 2


def test_allocations_are_told_apart(kernel):
    for _ in range(3):
        buffer()
    assert len({op.attrs["tag"] for op in kernel.ops}) == 3


def test_an_allocation_with_a_value(kernel):
    smem = gl.allocate_shared_memory(gl.float32, [16, 32], SWIZZLED, kernel.tile(shape=(16, 32)))
    assert kernel.names == ["shared.alloc", "shared.store"]
    assert kernel.ops[1].operands[0] is smem.handle


def test_constants_come_boxed_or_not(kernel):
    shape = [gl.constexpr(2)] + [gl.constexpr(64)] * 2
    assert gl.allocate_shared_memory(gl.constexpr(gl.float16), shape, gl.constexpr(NVMMA)).shape == [2, 64, 64]


def test_bools_take_bytes(kernel):
    smem = gl.allocate_shared_memory(gl.int1, [32, 32], gl.NVMMASharedLayout(32, 8, 2))
    assert smem.load(MATRIX).dtype == gl.int1


def test_barriers_are_memory_too(kernel):
    one = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    many = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
    assert [describe(x) for x in (one, many, many.index(0))] == [
        "an mbarrier",
        "an array of 3 mbarriers",
        "an mbarrier",
    ]


def test_what_a_buffer_is_called(kernel):
    smem = buffer([2, 64, 64])
    assert name_of(smem) == "a float16 buffer [2, 64, 64]"
    smem.handle.name = "smem"
    assert name_of(smem) == "'smem' (a float16 buffer [2, 64, 64])"
    assert is_handle(smem) and not is_handle(kernel.tile()) and not is_handle(3)
    assert type(wrap(smem.handle)) is gl.shared_memory_descriptor


# Accesses


def test_load(kernel):
    x = buffer().load(MATRIX)
    assert (x.dtype, x.shape, x.layout) == (gl.float16, [64, 64], MATRIX)
    kernel.last("shared.load")


def test_store(kernel):
    smem, x = buffer(), kernel.tile(gl.float16, (64, 64))
    assert smem.store(x) is None
    assert kernel.last("shared.store").operands == (smem.handle, x.handle)


def test_load_fits_the_warps(kernel):
    with mistake("layout-num-warps"):
        buffer([64], PLAIN).load(gl.BlockedLayout([1], [32], [8], [0]))
    with mistake("tile-not-a-layout"):
        buffer().load(NVMMA)


def test_gather_and_scatter(kernel):
    smem, indices = buffer([64], PLAIN), kernel.tile(gl.int32, (32,))
    x = smem.gather(indices, 0)
    assert (x.dtype, x.shape, x.layout) == (gl.float16, [32], BLOCKED)
    smem.scatter(x, indices, axis=-1)
    assert kernel.last("shared.scatter").operands == (smem.handle, x.handle, indices.handle)
    assert kernel.ops[-1].attrs["axis"] == 0


def test_keep_alive(kernel):
    buffer()._keep_alive()
    kernel.last("shared.keep_alive")


# Views


def test_index_by_a_constant_and_by_a_scalar(kernel):
    smem = buffer([3, 64, 64])
    assert smem.index(2).shape == [64, 64]
    assert kernel.names == ["shared.alloc", "arith.constant", "shared.index"]
    smem.index(kernel.scalar(gl.int64))
    assert kernel.names[-2:] == ["arith.cast", "shared.index"]
    i = kernel.scalar(gl.int32)
    smem.index(i)
    assert kernel.last("shared.index").operands == (smem.handle, i.handle)


def test_slices(kernel):
    smem = buffer([3, 64, 64])
    assert smem.slice(1, 2).type == gl.shared_memory_descriptor_type(gl.float16, [2, 64, 64], NVMMA)
    part = smem.index(0).slice(32, 16, dim=-1)
    assert (part.shape, part.memory.alloc_shape) == ([64, 16], (64, 64))
    assert kernel.last("shared.slice").attrs == {"start": 32, "length": 16, "dim": 1}
    assert buffer([3, 2, 64, 64]).slice(0, 2, dim=1).shape == [3, 2, 64, 64], (
        "all of an inner dimension is the same view"
    )


def test_permute(kernel):
    smem = buffer([3, 64, 128])
    across = smem.permute((0, 2, 1))
    assert across.type == gl.shared_memory_descriptor_type(
        gl.float16, [3, 128, 64], gl.NVMMASharedLayout(128, 16, 2, transposed=True)
    )
    assert across.permute([0, 2, 1]).type == smem.type


def test_reshape(kernel):
    smem = buffer([16, 32], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    flat = smem.reshape([512])
    assert flat.shape == [512]
    assert flat.layout == PLAIN


def test_reinterpret(kernel):
    smem = buffer([2, 64, 64])
    view = smem.index(1)._reinterpret(gl.float32, [64, 32], gl.NVMMASharedLayout(128, 32, 2))
    assert (view.dtype, view.shape) == (gl.float32, [64, 32])
    larger = smem._reinterpret(gl.int8, [1 << 16], PLAIN)
    assert larger.numel == 1 << 16


# On the host


def test_bank_conflicts_on_the_host():
    tile = gl.distributed_type(gl.float32, [32, 32], gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1]))
    rows = gl.shared_memory_descriptor_type(gl.float32, [32, 32], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    columns = gl.shared_memory_descriptor_type(gl.float32, [32, 32], gl.SwizzledSharedLayout(1, 1, 1, [0, 1]))
    assert (gl.bank_conflicts(tile, rows), gl.bank_conflicts(tile, columns)) == (31, 0)


def test_bank_conflicts_in_a_kernel(kernel):
    smem = buffer([64, 64])
    assert gl.bank_conflicts(smem.load(MATRIX).type, smem.type) >= 0


@pytest.mark.parametrize("method", ["load", "store", "index", "slice", "permute", "reshape", "_keep_alive"])
def test_methods_work_in_kernels_only(method):
    from tests.language.support import building

    with building():
        smem = buffer()
    arguments = {"slice": (0, 1), "_keep_alive": ()}.get(method, (0,))
    with mistake("language-host-call") as found:
        getattr(smem, method)(*arguments)
    assert f"{method} was called on the host" in found.text
