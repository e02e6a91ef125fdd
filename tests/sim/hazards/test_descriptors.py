"""Descriptors that a kernel makes: tensors that TMA cannot take, and descriptors in the place of others."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.sim.both import results, verdict
from weft import language as gl
from weft.errors import hazard
from weft.language.nvidia.hopper import mbarrier, tma

LAYOUT = gl.NVMMASharedLayout(0, 32, 2)


@weft.jit
def one(x, skipped, rows, columns, pitch, layout: gl.constexpr):
    desc = tma.make_tensor_descriptor(x + skipped, [rows, columns], [pitch, 1], [8, 32], layout)
    smem = gl.allocate_shared_memory(gl.float32, [8, 32], layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, desc.block_type.nbytes)
    tma.async_load(desc, [0, 0], bar, smem)
    mbarrier.wait(bar, 0)


def describe(skipped=0, rows=16, columns=40, pitch=40):
    x = np.zeros(16 * 40 + 4, np.float32)
    start = -x.ctypes.data // 4 % 4
    return verdict(one, lambda: (x[start:], skipped, rows, columns, pitch, LAYOUT))


@pytest.mark.parametrize(
    "tensor", [{}, {"skipped": 4}, {"rows": 1, "pitch": 3}, {"columns": 37}, {"rows": 3, "pitch": 80}], ids=str
)
def test_tensors_that_tma_takes(tensor):
    assert describe(**tensor) is None


@pytest.mark.parametrize(
    ("tensor", "texts"),
    [
        ({"skipped": 1}, ("whose address is 4 bytes past a multiple of 16", "an element whose address is one")),
        ({"pitch": 42}, ("of x whose stride 0 is 168 bytes", "pad rows")),
        ({"pitch": 0}, ("stride 0 is 0 bytes, but TMA takes positive multiples of 16",)),
        ({"pitch": -40}, ("stride 0 is -160 bytes",)),
        ({"rows": 0}, ("extent 0 is 0, but TMA takes at least 1", "under a condition")),
        ({"columns": -3}, ("extent 1 is -3",)),
    ],
)
def test_tensors_that_tma_does_not_take(tensor, texts):
    found = describe(**tensor)
    assert isinstance(found, hazard.BadDescriptor) and found.code == "hazard-descriptor"
    assert all(text in str(found) for text in texts)


@weft.jit
def repeated(x, out, count, fault: gl.constexpr, layout: gl.constexpr):
    """Copy matrices one after another; the load of each is in flight when the next descriptor is made, or not."""
    smem = gl.allocate_shared_memory(gl.float32, [2, 8, 32], layout)
    bars = mbarrier.allocate_mbarrier(batch=2)
    for i in gl.static_range(2):
        mbarrier.init(bars.index(i), count=1)
    kept = tma.make_tensor_descriptor(x, [8, 32], [32, 1], [8, 32], layout)
    for step in range(count):
        src = tma.make_tensor_descriptor(x + step * 256, [8, 32], [32, 1], [8, 32], layout)
        dst = tma.make_tensor_descriptor(out + step * 256, [8, 32], [32, 1], [8, 32], layout)
        buffer, bar, phase = smem.index(step % 2), bars.index(step % 2), (step // 2) & 1
        mbarrier.expect(bar, src.block_type.nbytes)
        if fault == "kept" and step > 0:
            tma.async_load(kept, [0, 0], bar, buffer)
        else:
            tma.async_load(src, [0, 0], bar, buffer)
        if fault != "late":
            mbarrier.wait(bar, phase)
        elif step > 0:
            mbarrier.wait(bars.index((step - 1) % 2), ((step - 1) // 2) & 1)
        tma.async_store(
            dst, [0, 0], buffer if fault != "late" else smem.index((step + 1) % 2)
        ) if step > 0 or fault != "late" else None
        tma.store_wait(0)
        kept = src


def arguments(fault):
    return lambda: (np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32), 4, fault, LAYOUT)


def test_one_after_another():
    (out,) = results(repeated, arguments(""), lambda x, out, *_: [out])
    np.testing.assert_array_equal(out, np.arange(1024))


@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        ("late", "hazard-descriptor-in-use", "through which a load is in flight"),
        ("kept", "hazard-descriptor-replaced", "a newer one from the same line has overwritten"),
    ],
)
def test_descriptors_that_are_needed_still(fault, code, text):
    found = verdict(repeated, arguments(fault))
    assert isinstance(found, hazard.DescriptorReplaced) and found.code == code
    assert text in str(found)
    assert str(found).count("test_descriptors.py") >= 2, "both lines are named"


def test_two_places_are_two_descriptors():
    """A descriptor that another line made stays as it is."""

    @weft.jit
    def kernel(x, out, layout: gl.constexpr):
        smem = gl.allocate_shared_memory(gl.float32, [8, 32], layout)
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        src = tma.make_tensor_descriptor(x, [8, 32], [32, 1], [8, 32], layout)
        for step in range(3):
            dst = tma.make_tensor_descriptor(out + step * 256, [8, 32], [32, 1], [8, 32], layout)
            mbarrier.expect(bar, src.block_type.nbytes)
            tma.async_load(src, [0, 0], bar, smem)
            mbarrier.wait(bar, step & 1)
            tma.async_store(dst, [0, 0], smem)
            tma.store_wait(0)

    x = np.arange(256, dtype=np.float32)
    (out,) = results(kernel, lambda: (x, np.zeros(768, np.float32), LAYOUT), lambda x, out, _: [out])
    np.testing.assert_array_equal(out, np.tile(x, 3))


@weft.jit
def updated(x, out, count, fault: gl.constexpr, layout: gl.constexpr):
    """As `repeated`, with descriptors that replace the address of one."""
    smem = gl.allocate_shared_memory(gl.float32, [2, 8, 32], layout)
    bars = mbarrier.allocate_mbarrier(batch=2)
    for i in gl.static_range(2):
        mbarrier.init(bars.index(i), count=1)
    whole = tma.make_tensor_descriptor(x, [8, 32], [32, 1], [8, 32], layout)
    kept = whole
    for step in range(count):
        src = tma.update_tensor_descriptor(whole, x + step * 256)
        # BUG of "old": the descriptor of the last step is not there any more when another one is made from it.
        dst = tma.update_tensor_descriptor(kept if fault == "old" else src, out + step * 256)
        buffer, bar, phase = smem.index(step % 2), bars.index(step % 2), (step // 2) & 1
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_load(src, [0, 0], bar, buffer)
        # BUG of "late": the load is in flight when the next step overwrites its descriptor.
        if fault != "late":
            mbarrier.wait(bar, phase)
            tma.async_store(dst, [0, 0], buffer)
        tma.store_wait(0)
        kept = src


def test_updated_one_after_another():
    (out,) = results(updated, arguments(""), lambda x, out, *_: [out])
    np.testing.assert_array_equal(out, np.arange(1024))


@pytest.mark.parametrize(
    ("fault", "code"), [("late", "hazard-descriptor-in-use"), ("old", "hazard-descriptor-replaced")]
)
def test_updated_descriptors_that_are_needed_still(fault, code):
    found = verdict(updated, arguments(fault))
    assert isinstance(found, hazard.DescriptorReplaced) and found.code == code
    assert str(found).count("test_descriptors.py") >= 2, "both lines are named"


@weft.jit
def updated_badly(x, past, rows, pitch, layout: gl.constexpr):
    whole = tma.make_tensor_descriptor(x, [8, 32], [32, 1], [8, 32], layout)
    desc = tma.update_tensor_descriptor(whole, x + past, [rows, None], [pitch, None])
    smem = gl.allocate_shared_memory(gl.float32, [8, 32], layout)
    tma.async_store(desc, [0, 0], smem)
    tma.store_wait(0)


@pytest.mark.parametrize(
    ("past", "rows", "pitch", "text"),
    [(1, 8, 32, "address is 4 bytes past"), (4, 0, 32, "extent 0 is 0"), (4, 8, 33, "stride 0 is 132 bytes")],
)
def test_updates_that_tma_does_not_take(past, rows, pitch, text):
    with weft.simulate(uninitialized="ignore"):
        found = verdict(updated_badly, lambda: (np.zeros(1024, np.float32), past, rows, pitch, LAYOUT))
    assert isinstance(found, hazard.BadDescriptor)
    assert text in str(found)
