"""The memories of kernels: one operation for each load and store of a view, with the tables that its places ask for."""

from __future__ import annotations

import warnings

import pytest

from tests.language.support import mistake
from weft import language as gl
from weft.errors import PerformanceWarning
from weft.errors import thread as errors
from weft.ir.core import Value
from weft.ir.types import RegsType, ScalarType
from weft.language.storages import GlobalStorage, allocate_memory, open_memory
from weft.layout.nested.layouts import Layout
from weft.views.storage import AddressSpace, Places


def shared(element=gl.float32, count=256):
    return allocate_memory(element, count, AddressSpace.SHARED)


def local(element=gl.float32, count=16):
    return allocate_memory(element, count, AddressSpace.LOCAL)


def vector(element=gl.float32, size=4, name="v"):
    return gl.SIMD(Value(RegsType(element, size), name))


# Global memory


def test_one_element_is_a_scalar(kernel):
    x = GlobalStorage(kernel.pointer()).load(0, Places((0,)), None)
    assert x.handle.type == ScalarType(gl.float32)
    assert kernel.names == ["memory.load_regs", "regs.extract"]
    assert kernel.ops[0].attrs["offsets"] == ((0,),)


def test_a_known_base_costs_nothing(kernel):
    GlobalStorage(kernel.pointer()).load(12, Places((0, 8)), None)
    assert kernel.names == ["memory.load_regs"]
    assert kernel.ops[0].attrs["offsets"] == ((12, 20),)


def test_a_run_time_base_moves_the_pointer(kernel):
    GlobalStorage(kernel.pointer()).load(kernel.scalar(gl.int32), Places((0, 8)), None)
    assert kernel.names == ["memory.addptr", "memory.load_regs"]
    assert kernel.ops[1].attrs["offsets"] == ((0, 8),)


def test_a_fragment_is_one_load(kernel):
    storage = GlobalStorage(kernel.pointer())
    places = Places((0, 1), 4, (kernel.scalar(gl.int32, "stride"),), ((0, 2),))
    x = storage.load(0, places, None)
    assert x.handle.type == RegsType(gl.float32, 8)
    (op,) = kernel.ops
    assert op.attrs["offsets"] == ((0, 1), (0, 2))
    assert op.attrs["registers"] == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert (op.attrs["vec"], op.attrs["count"]) == (4, 8)


def test_accesses_are_as_wide_as_instructions(kernel):
    storage = GlobalStorage(kernel.pointer())
    storage.load(0, Places((0, 100), 8, (kernel.scalar(gl.int32),), ((0, 3),)), None)
    op = kernel.last("memory.load_regs")
    assert op.attrs["offsets"] == ((0, 4, 100, 104), (0, 0, 3, 3))
    assert (op.attrs["vec"], op.attrs["count"]) == (4, 16)
    storage.load(0, Places((0,), 6), None)
    assert kernel.last("memory.load_regs").attrs["vec"] == 2
    storage.load(0, Places((0,), 3), None)
    assert kernel.ops[-1].attrs["vec"] == 1
    GlobalStorage(kernel.pointer(gl.float64)).load(0, Places((0,), 4), None)
    assert kernel.last("memory.load_regs").attrs["vec"] == 2


def test_strides_are_of_one_type(kernel):
    strides = (kernel.scalar(gl.int32), kernel.scalar(gl.int64))
    GlobalStorage(kernel.pointer()).load(0, Places((0,), 2, strides, ((1,), (1,))), None)
    assert kernel.names == ["arith.cast", "memory.load_regs"]


def test_masks(kernel):
    storage, condition, other = GlobalStorage(kernel.pointer()), kernel.scalar(gl.int1), kernel.scalar(gl.int1)

    def mask_of(mask, width=1):
        storage.load(0, Places((0, 8), width), mask)
        return kernel.last("memory.load_regs").operands[1]

    assert mask_of(None) is None
    assert mask_of((True, True)) is None
    assert mask_of((condition, condition)) is condition.handle
    assert mask_of((condition, other)).type == RegsType(gl.int1, 2)
    assert mask_of((condition, True)).type == RegsType(gl.int1, 2)
    assert mask_of((condition, other), 8).type == RegsType(gl.int1, 4)
    assert mask_of((False, False)).type == ScalarType(gl.int1)


def test_stores_convert_and_repeat_a_number(kernel):
    storage = GlobalStorage(kernel.pointer(gl.float16))
    storage.store(0, Places((0,), 4), vector(), None)
    assert kernel.names == ["arith.cast", "memory.store_regs"]
    storage.store(0, Places((0,), 4), 1, None)
    assert kernel.names[2:] == ["arith.constant", "memory.store_regs"]
    storage.store(0, Places((0,)), kernel.scalar(gl.float16), None)
    assert kernel.names[4:] == ["regs.splat", "memory.store_regs"]


def test_a_value_of_another_size(kernel):
    for storage in (GlobalStorage(kernel.pointer()), shared(), local()):
        for value in (vector(size=2), kernel.tile(), "text"):
            with mistake("thread-stored") as found:
                storage.store(0, Places((0,), 4), value, None)
            assert "4 elements of float32" in found.text


def test_an_index_is_one_whole_number(kernel):
    for storage in (GlobalStorage(kernel.pointer()), shared(), local()):
        for index in (kernel.scalar(gl.float32), vector(gl.int32), kernel.tile(gl.int32)):
            with mistake("thread-index"):
                storage.load(index, Places((0,)), None)


# Shared memory


def test_shared_memory_is_the_authors(kernel):
    one, other = shared(), shared()
    assert kernel.names == ["shared.array", "shared.array"]
    assert len({op.attrs["tag"] for op in kernel.ops}) == 2
    assert one.memory.describe() == "256 float32 of shared memory"
    assert other.space is AddressSpace.SHARED


def test_shared_accesses(kernel):
    storage = shared()
    x = storage.load(kernel.scalar(gl.int32), Places((0, 64), 8), None)
    assert x.handle.type == RegsType(gl.float32, 16)
    op = kernel.last("thread.load_shared")
    assert (op.attrs["offsets"], op.attrs["vec"]) == ((0, 4, 64, 68), 4)
    storage.store(3, Places((0,)), 1.0, None)
    op = kernel.last("thread.store_shared")
    assert (op.attrs["offsets"], op.attrs["vec"]) == ((3,), 1)


def test_a_64_bit_index_of_shared_memory_is_narrowed(kernel):
    shared().load(kernel.scalar(gl.int64), Places((0,)), None)
    assert kernel.names == ["shared.array", "arith.cast", "thread.load_shared", "regs.extract"]


def test_run_time_strides_of_shared_memory_make_an_operation_each(kernel):
    storage, stride = shared(), kernel.scalar(gl.int32)
    x = storage.load(0, Places((0, 1), 2, (stride,), ((1, 2),)), None)
    assert x.handle.type == RegsType(gl.float32, 4)
    assert kernel.names.count("thread.load_shared") == 2
    storage.store(0, Places((0, 1), 2, (stride,), ((1, 2),)), x, None)
    assert kernel.names.count("thread.store_shared") == 2


def test_asynchronous_copies(kernel):
    to, of = shared(), GlobalStorage(kernel.pointer())
    places = Places((0, 64), 8)
    to.copy_async(kernel.scalar(gl.int32), places, of, 5, Places((0, 100), 8), (kernel.scalar(gl.int1), True))
    op = kernel.last("async_copy.copy")
    assert op.attrs["offsets"] == ((5, 9, 105, 109),)
    assert (op.attrs["places"], op.attrs["added"], op.attrs["vec"]) == ((0,) * 4, (0, 4, 64, 68), 4)
    assert op.operands[3].type == RegsType(gl.int1, 4)


def test_copies_that_the_hardware_does_not_start(kernel):
    halves = GlobalStorage(kernel.pointer(gl.float16))
    for to, of in ((shared(), halves), (shared(gl.float16), halves), (local(gl.float16), halves), (halves, halves)):
        with mistake("thread-copy"):
            to.copy_async(0, Places((0,)), of, 0, Places((0,)), None)


def test_a_buffer_of_shared_memory(kernel):
    plain = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    opened = open_memory(gl.allocate_shared_memory(gl.float32, [16, 32], plain))
    assert opened.layout == Layout.row_major(16, 32)
    assert kernel.names == ["shared.alloc", "thread.shared_of"]
    columns = gl.SwizzledSharedLayout(1, 1, 1, [0, 1])
    assert open_memory(gl.allocate_shared_memory(gl.float32, [16, 32], columns)).layout == Layout.col_major(16, 32)


@pytest.mark.parametrize(
    "layout",
    [gl.SwizzledSharedLayout(4, 2, 4, [1, 0]), gl.PaddedSharedLayout.with_identity_for([[32, 4]], [16, 32], [1, 0])],
    ids=["swizzle", "padding"],
)
def test_a_buffer_whose_elements_lie_in_no_strides(kernel, layout):
    with mistake("thread-shared-layout") as found:
        open_memory(gl.allocate_shared_memory(gl.float32, [16, 32], layout))
    assert "stack_allocation" in found.text


def test_a_part_of_a_buffer(kernel):
    buffers = gl.allocate_shared_memory(gl.float32, [2, 16, 32], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    for part in (buffers, buffers.index(0).slice(0, 8)):
        with mistake("thread-shared-part"):
            open_memory(part)
    assert open_memory(buffers.index(1)).extent == (0, 512)


def test_what_cannot_be_viewed(kernel):
    for value in (kernel.scalar(gl.float32), kernel.tile(), vector()):
        with mistake("thread-opened"):
            open_memory(value)
    assert open_memory([1, 2]) is None


# A thread's own memory


def test_local_memory_with_known_places(kernel):
    storage = local()
    storage.store(2, Places((0, 4), 2), 0.0, None)
    assert kernel.last("thread.store_local").attrs["offsets"] == (2, 3, 6, 7)
    x = storage.load(2, Places((0, 4), 2), None)
    op = kernel.last("thread.load_local")
    assert (op.operands[1], op.attrs["offsets"]) == (None, (2, 3, 6, 7))
    assert x.handle.type == RegsType(gl.float32, 4)


def test_local_memory_indexed_at_run_time(kernel):
    storage, index = local(), kernel.scalar(gl.int32)
    storage.memory.handle.name = "acc"
    with pytest.warns(PerformanceWarning, match="'acc'.* is indexed at run time") as found:
        storage.load(index, Places((0, 4)), None)
    advice = found[0].message
    assert isinstance(advice, PerformanceWarning)
    assert advice.code == errors.LOCAL_INDEX.code == "thread-local-index"
    assert "gl.static_range" in advice.fix
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        storage.load(index, Places((1, 5)), None)
        storage.load(index, Places((0, 4)), None)
    op = kernel.last("thread.load_local")
    assert (op.operands[1], op.attrs["offsets"]) == (index.handle, (0, 4))


def test_a_masked_read_of_local_memory_stays_inside(kernel):
    with pytest.warns(PerformanceWarning):
        local().load(kernel.scalar(gl.int32), Places((0, 4)), (kernel.scalar(gl.int1), True))
    assert kernel.names.count("thread.load_local") == 2
    assert kernel.names.count("arith.select") == 1


def test_memory_is_allocated_in_kernels_only():
    assert allocate_memory(gl.float32, 4, AddressSpace.SHARED) is None


# Beside loads and stores


def test_bounds_of_indices(kernel):
    i, n = kernel.scalar(gl.int32, "i"), kernel.scalar(gl.int32, "n")
    local().check([i, 3, i], [8, n, n], "t.tile[8, 8](i, j)", ("of", "to", "in"))
    op = kernel.last("thread.bounds")
    assert op.attrs["sizes"] == (8, -1, -1)
    assert [value.name for value in op.uses] == ["i", "", "i", "n", "n"]
    assert op.attrs["view"] == "t.tile[8, 8](i, j)"
    assert op.attrs["where"] == ("of", "to", "in")


def test_wide_and_clamped_indices(kernel):
    storage, i = GlobalStorage(kernel.pointer()), kernel.scalar(gl.int32)
    assert storage.wide(3) == 3
    assert storage.wide(i).dtype == gl.int64
    assert storage.clamp(i, 0, 8).dtype == gl.int32
    assert (storage.width(1.0), storage.width(vector(size=8))) == (1, 8)
    assert storage.address(0) is storage.pointer
    assert storage.address(i).dtype == gl.pointer_type(gl.float32)
    for memory in (shared(), local()):
        with mistake("thread-address"):
            memory.address(0)
