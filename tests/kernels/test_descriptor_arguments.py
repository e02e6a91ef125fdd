"""What a kernel sees of the tensors whose descriptors it is launched with, in the simulator and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, poison
from weft import compiler, settings
from weft import language as gl
from weft.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col
from weft.runtime import MockTensor
from weft.runtime.descriptor import HostMap, host_map

LAYOUT = gl.NVMMASharedLayout(0, 32, 2)


@weft.jit
def see(out, a_desc, scale, b_desc):
    gl.store(out, a_desc.shape[0])
    gl.store(out + 1, b_desc.shape[1] * scale)
    gl.store(out + 2, b_desc.strides[0])
    gl.store(out + 3, a_desc.strides[1] + a_desc.shape[1])
    gl.store(out + 4, a_desc.block_type.nbytes)


@weft.jit
def ignore(out, a_desc, b_desc):
    gl.store(out, b_desc.shape[0])


@pytest.mark.parametrize(("rows", "columns", "pitch"), [(48, 40, 44), (3, 100, 100), (1000, 7, 8)])
def test_extents_and_strides(run, rows, columns, pitch):
    a, b = np.zeros((rows, pitch), np.float32), np.zeros((columns, 1024), np.float32)
    out = poison(5, np.int64)
    first, second = Described(a, [8, 32], LAYOUT, columns=columns), Described(b, [16, 4], LAYOUT, columns=rows)
    run(see, 1, out, first, 3, second)
    assert out.tolist() == [rows, 3 * rows, 1024, columns + 1, 8 * 32 * 4]


def test_parameters_that_are_not_used(device):
    x = device.array(np.zeros((5, 16), np.float32))
    out = device.array(np.full(1, -1))
    desc = TensorDescriptor.from_tensor(x, [4, 16], LAYOUT)
    compiled = ignore[1](out, desc, desc)
    assert device.numpy(out).tolist() == [5]
    header = compiled.asm["cuda"].split("ignore(", 1)[1].split(")")[0]
    assert [text.split()[-1] for text in header.split(", ")] == ["out", "a_desc", "b_desc", "b_desc_shape_0"]
    assert header.count("const __grid_constant__ CUtensorMap") == 2
    assert "b_desc.shape_0" not in compiled.binary.unused
    assert set(compiled.binary.unused) == {
        f"{name}.{part}" for name in ("a_desc", "b_desc") for part in ("shape_0", "shape_1", "stride_0", "stride_1")
    } - {"b_desc.shape_0"}


def test_the_disk_cache_knows_what_is_not_used(tmp_path):
    stand_in = TensorDescriptor(MockTensor("fp32"), [64, 64], [64, 1], [8, 32], LAYOUT)
    arguments = (MockTensor("i64"), stand_in, stand_in)
    with settings.using(cache_dir=tmp_path):
        first = ignore.warmup(*arguments, target="sm_90a")
        ignore.forget()
        again = ignore.warmup(*arguments, target="sm_90a")
    assert again is not first
    assert again.binary == first.binary
    assert again.binary.unused


def test_what_the_simulator_is_given():
    image = np.zeros((2, 6, 8, 32), np.float16)[:, 1:]
    desc = TensorDescriptorIm2Col.from_tensor(
        image, [16, 32], gl.NVMMASharedLayout(64, 16, 2), "nan", [1, 2, 1, 1], [-1, 0], [0, 2]
    )
    compiled = ignore.warmup(MockTensor("i64"), desc, desc, target="sm_90a")
    arguments: dict[str, HostMap] = {name: host_map(desc) for name in ("a_desc", "b_desc")}
    out, a, _, extent = compiler.given(compiled.front.tile, {"out": 0, **arguments})
    assert (out, extent) == (0, 2)
    assert (a.element, a.shape, a.strides) == (gl.float16, (2, 5, 8, 32), image.strides)
    assert (a.block_shape, a.layout, a.padding, a.mode) == ((16, 32), desc.layout, "nan", "im2col")
    assert (a.lower, a.upper, a.steps) == ((-1, 0), (0, 2), (1, 2, 1, 1))
    assert (a.buffer.name, a.buffer.offset) == ("a_desc", 8 * 32 * 2)
    assert a.buffer.data.size == 2 * 6 * 8 * 32 * 2
