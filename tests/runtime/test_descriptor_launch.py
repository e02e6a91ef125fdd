"""Tensor descriptors as arguments of launches: tables, packing, devices, streams."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from tests.runtime.fake_driver import WARM, CUresult, FakeArray, FakeJaxArray, FakeTensor, float16
from weft.errors import LaunchError
from weft.kernel import jit
from weft.layout import NVMMASharedLayout
from weft.nvidia import hopper
from weft.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col
from weft.runtime import MockTensor
from weft.runtime.descriptor import Descriptor, HostMap, parts
from weft.runtime.launch import packing
from weft.runtime.specialise import Constexpr, Pointer, Scalar, specialise

LAYOUT = NVMMASharedLayout(0, 32, 2)
KIND = Descriptor("float32", 2, (8, 8), LAYOUT)
EXTENTS = 64 | 32 << 32
"""Two extents as one word, as the fake driver reads them."""


@pytest.fixture(autouse=True)
def forget():
    hopper._known.clear()


def make():
    @jit
    def product(a_desc, n, b_desc):
        """Take two descriptors, and a number between them."""

    return product


def describe(pointer=0x1000, block=(8, 8), **options):
    tensor = FakeTensor(pointer, shape=(64, 32), **options)
    return TensorDescriptor.from_tensor(tensor, list(block), LAYOUT)


def test_the_parameters_of_a_descriptor():
    assert [part.name for part in parts("a", 2)] == ["a", "a.shape_0", "a.shape_1", "a.stride_0", "a.stride_1"]
    assert [part.offset for part in parts("a", 5)] == [0, 128, 132, 136, 140, 144, 152, 160, 168, 176, 184]


def test_its_type():
    assert specialise("kernel", "x", describe()) == specialise("kernel", "x", describe(0x2000)) == KIND
    assert specialise("kernel", "x", describe(), facts=False) == KIND
    assert hash(KIND) == hash(specialise("kernel", "x", describe()))
    assert repr(KIND) in repr(specialise("kernel", "x", describe()))


def test_a_launch_points_into_the_descriptors(cuda, compiler):
    cuda.parameters = 11
    product = make()
    for a, b in ((0x1000, 0x2000), (0x3000, 0x1000)):
        product[4](describe(a), 48, describe(b))
        assert cuda.launches[-1].words == (
            a, EXTENTS, 32, 32, 1,
            48,
            b, EXTENTS, 32, 32, 1,
        )  # fmt: skip
    (request,) = compiler.requests
    assert request.arguments == {"a_desc": KIND, "n": Scalar("int32", True), "b_desc": KIND}
    assert [arguments[2] for _, arguments in cuda.encoded] == [0x1000, 0x2000, 0x3000], "each tensor is encoded once"


def test_parts_that_the_kernel_does_not_take(cuda, compiler):
    taken = [p.name for p in parts("b_desc", 2)]
    compiler.unused = (*[p.name for p in parts("a_desc", 2)][1:], taken[1], taken[3])
    cuda.parameters = 5
    product = make()
    for n in (7, 9):
        product[1](describe(), n, describe(0x2000))
        assert cuda.launches[-1].words == (0x1000, n, 0x2000, 32 | 0 << 32, 1)


def test_a_map_that_the_kernel_does_not_take(cuda, compiler):
    """Extents alone are enough to find the memory."""
    compiler.unused = ("a_desc", *[p.name for p in parts("b_desc", 2)][1:])
    cuda.parameters = 6
    product = make()
    for a, b in ((0x1000, 0x2000), (0x3000, 0x2000)):
        product[1](describe(a), 7, describe(b))
        assert cuda.launches[-1].words == (EXTENTS, 32, 32, 1, 7, b)


def test_a_frame_is_pointed_anew_only_where_descriptors_change(cuda, compiler):
    cuda.parameters = 11
    product = make()
    a, b = describe(0x1000), describe(0x2000)
    for first, second in ((a, b), (a, b), (b, a), (b, b), (a, b)):
        product[1](first, 3, second)
        words = cuda.launches[-1].words
        assert (words[0], words[6]) == (first.tensor_map.spec.pointer, second.tensor_map.spec.pointer)
        assert words[1:5] == words[7:] == (EXTENTS, 32, 32, 1)


def test_packing():
    made = packing([Constexpr(None), KIND, Pointer("float32"), KIND], "xayb", ["a.shape_0", "b.stride_1"])
    assert made.packed == (0, 2)
    a, b = [(1, 0), (1, 132), (1, 152), (1, 160)], [(3, 0), (3, 128), (3, 132), (3, 152)]
    assert made.table == (*a, 1, *b)
    buffer, table = made.frame()
    assert table == ctypes.addressof(buffer) + 2 * 8
    assert list(buffer) == [0] * 6 + [ctypes.addressof(buffer) + 8] + [0] * 4


def test_the_short_way_is_taken_once_the_launch_function_is_made(cuda, compiler, monkeypatch):
    product = make()
    for _ in range(WARM):
        product[1](describe(), 2, describe())
    monkeypatch.setitem(product.launch.__globals__, "_w_other", None)
    monkeypatch.setattr(product, "_compile", None)
    product[1](describe(0x3000), 2, describe(0x5000))
    assert len(cuda.launches) == WARM + 1


@pytest.mark.parametrize(
    "other",
    [
        lambda: describe(block=(8, 16)),
        lambda: TensorDescriptor.from_tensor(
            FakeTensor(0x1000, float16, shape=(64, 32)), [8, 8], NVMMASharedLayout(0, 16, 2)
        ),
        lambda: TensorDescriptor.from_tensor(FakeTensor(0x1000, shape=(64, 32)), [8, 8], NVMMASharedLayout(32, 32, 2)),
        lambda: TensorDescriptorIm2Col.from_tensor(FakeTensor(0x1000, shape=(2, 64, 32)), [8, 8], LAYOUT),
        lambda: FakeTensor(0x1000),
    ],
)
def test_what_makes_another_variant(cuda, compiler, other):
    product = make()
    product[1](describe(), 2, describe())
    for _ in range(2):
        product[1](other(), 2, describe())
        product[1](describe(0x7000), 2, describe())
    assert len(compiler.requests) == 2


def test_padding_and_extents_are_no_variant(cuda, compiler):
    product = make()
    product[1](describe(), 2, describe())
    tensor = FakeTensor(0x1000, shape=(128, 16))
    product[1](TensorDescriptor.from_tensor(tensor, [8, 8], LAYOUT, padding="nan"), 2, describe())
    assert len(compiler.requests) == 1


def test_im2col_descriptors_launch(cuda, compiler):
    cuda.parameters = 7 + 1 + 5
    image = FakeTensor(0x1000, shape=(2, 8, 8))
    desc = TensorDescriptorIm2Col.from_tensor(image, [8, 8], LAYOUT)
    for _ in range(2):
        make()[1](desc, 2, describe())
    assert cuda.launches[-1].words[:7] == (0x1000, 2 | 8 << 32, 8 | 8 << 32, 8, 64, 8, 1)


def test_the_stream_is_that_of_pytorch(cuda, compiler):
    product = make()
    for _ in range(WARM):
        product[1](describe(), 2, describe())
    product[1](describe(), 2, describe(), stream=5)
    assert [launched.stream for launched in cuda.launches] == [700] * WARM + [5]


def test_launches_with_arrays_of_jax_wait(cuda, compiler):
    product = make()
    for kind, waited in ((FakeArray, 0), (FakeJaxArray, 1)) * WARM:
        cuda.waited.clear()
        desc = TensorDescriptor.from_tensor(kind(0x1000, shape=(64, 32)), [8, 8], LAYOUT)
        product[1](desc, 2, desc)
        assert len(cuda.waited) == waited


def test_the_device_is_that_of_the_tensor(cuda, compiler):
    cuda.devices = 2
    product = make()
    for device in (1, 0, 1):
        product[1](describe(device=device), 2, describe(0x2000, device=device))
    assert [launched.stream for launched in cuda.launches] == [701, 700, 701]
    with pytest.raises(LaunchError) as caught:
        product[1](describe(device=1), 2, describe(0x2000, device=0))
    assert caught.value.code == "launch-device-mismatch"


def test_host_and_device_do_not_mix(cuda, compiler):
    host = np.zeros((64, 32), np.float32)
    for x in (describe(), FakeTensor(0x1000)):
        with pytest.raises(LaunchError) as caught:
            make()[1](x, 2, TensorDescriptor.from_tensor(host, [8, 8], LAYOUT))
        assert caught.value.code == "launch-ambiguous"
        assert "b_desc" in caught.value.message


def test_a_stand_in_compiles_and_does_not_launch(cuda, compiler):
    for base in (MockTensor("fp32"), "fp32"):
        stand_in = TensorDescriptor(base, [64, 32], [32, 1], [8, 8], LAYOUT)
        assert make().warmup(stand_in, 2, stand_in, target="sm_90a").request.arguments["a_desc"] == KIND
        with pytest.raises(LaunchError) as caught:
            make()[1](stand_in, 2, stand_in)
        assert caught.value.code == "launch-mock-argument"
    assert cuda.encoded == []


def test_host_tensors_are_simulated(no_gpu, compiler):
    host = np.zeros((64, 32), np.float32)
    product = make()
    for _ in range(2):
        product[2](TensorDescriptor.from_tensor(host, [8, 8], LAYOUT), 2, describe_host(host))
    ((_, _, arguments), _) = compiler.simulated
    assert isinstance(arguments["a_desc"], HostMap)
    assert arguments["a_desc"].buffer.pointer == host.ctypes.data
    assert arguments["a_desc"].tensor_map.spec.shape == (64, 32)


def describe_host(host):
    return TensorDescriptor(host, [64, 32], [32, 1], [8, 8], LAYOUT)


def test_the_bare_launch_takes_descriptors(cuda, compiler):
    cuda.parameters = 11
    product = make()
    compiled = product[1](describe(), 48, describe(0x2000))
    compiled.launch((1, 1, 1), None, [describe(0x3000), 16, describe(0x2000)])
    assert cuda.launches[-1].words[::5] == (0x3000, 16, 1)


def test_a_wrong_number_beside_descriptors_is_named(cuda, compiler):
    product = make()
    compiled = product[1](describe(), 48, describe())
    with pytest.raises(LaunchError, match="argument n="):
        compiled.launch((1, 1, 1), None, [describe(), 2**63, describe()])


def test_threads_agree_on_one_memory(cuda):
    tensor_map = describe().tensor_map
    barrier, found = threading.Barrier(8), []

    def work():
        barrier.wait()
        found.append(tensor_map.address or tensor_map.encode())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [tensor_map.address] * 8


def test_a_thread_without_a_context_encodes_in_that_of_the_tensor(cuda):
    """A plain thread has no current context, in which the driver refuses to make a tensor map."""
    cuda.current = 0
    cuda.results = [CUresult.CUDA_ERROR_INVALID_CONTEXT]
    contexts = []
    cuda.cuCtxPushCurrent = lambda context: (contexts.append(context), (CUresult.CUDA_SUCCESS,))[1]
    assert describe().tensor_map.encode()
    assert contexts == [1000]
    assert len(cuda.encoded) == 2
