"""Views as arguments of launches: types, tables, packing, devices, streams. The views are stand-ins for real ones."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import numpy as np
import pytest

from tests.runtime.fake_driver import WARM, FakeArray, FakeJaxArray, FakeTensor, float16
from tests.runtime.test_block_launch import caught
from weft.kernel import jit
from weft.layout import BlockedLayout
from weft.runtime import MockTensor, views
from weft.runtime import fingerprint as fp
from weft.runtime.compiled import CompileRequest, Options
from weft.runtime.launch import packing
from weft.runtime.manifest import _encode
from weft.runtime.specialise import Constexpr, Pointer, Scalar, View, specialise

LAYOUT, OTHER = BlockedLayout([1], [32], [4], [0]), BlockedLayout([2], [32], [4], [0])
NAMES = ("dim_0", "stride_0", "dim_1")


class FakeView:
    """A view that says of itself what launches ask, and counts how often they do."""

    def __init__(self, array, numbers=(), *, byte_offset=0, key=LAYOUT, wide=False):
        self.asked = 0
        self.argument = SimpleNamespace(
            array=array,
            byte_offset=byte_offset,
            key=key,
            numbers=numbers,
            names=NAMES[: len(numbers)],
            wide=wide,
            memo=None,
            kinds=None,
        )

    def __weft_view__(self):
        self.asked += 1
        return self.argument


def make(**options):
    @jit(**options)
    def scale(x, n, y):
        """Take two views, and a number between them."""

    return scale


def view(pointer=0x1000, numbers=(), *, dtype=None, device=0, **options):
    tensor = FakeTensor(pointer, device=device) if dtype is None else FakeTensor(pointer, dtype, device)
    return FakeView(tensor, numbers, **options)


def test_its_type():
    kind = View(Pointer("float32", True), LAYOUT, (Scalar("int32", True), Scalar("int32")), ("dim_0", "stride_0"))
    assert specialise("kernel", "x", view(0x1000, (32, 1))) == specialise("kernel", "x", view(0x2000, (64, 3))) == kind
    assert kind.dtype == "float32"
    assert views.names("x", kind) == ("x", "x.dim_0", "x.stride_0")
    plain = View(Pointer("float32"), LAYOUT, (Scalar("int32"), Scalar("int32")), ("dim_0", "stride_0"))
    assert specialise("kernel", "x", view(0x1000, (32, 16)), facts=False) == plain


@pytest.mark.parametrize(
    ("pointer", "offset", "aligned"),
    [(0x1000, 0, True), (0x1000, 8, False), (0x1008, 8, True), (0x1008, 0, False), (0x1000, -16, True)],
)
def test_alignment_is_that_of_the_first_element(cuda, compiler, pointer, offset, aligned):
    assert specialise("kernel", "x", view(pointer, byte_offset=offset)).pointer.aligned is aligned
    scale = make()
    cuda.parameters = 3
    for _ in range(2):
        scale[1](view(pointer, byte_offset=offset), 2, view())
        assert cuda.launches[-1].words == (pointer + offset, 2, 0x1000)
    assert [request.arguments["x"].pointer.aligned for request in compiler.requests] == [aligned]


def test_a_wide_view_has_numbers_of_64_bits(cuda, compiler):
    kind = specialise("kernel", "x", view(0x1000, (7, 48), wide=True))
    assert kind.numbers == (Scalar("int64"), Scalar("int64", True))
    scale = make()
    cuda.parameters = 5
    for wide in (False, True, False, True):
        scale[1](view(0x1000, (7, 2**31 * wide), wide=wide), 2, view())
        assert cuda.launches[-1].words[:3] == (0x1000, 7, 2**31 * wide)
    assert [r.arguments["x"].numbers[0].dtype for r in compiler.requests] == ["int32", "int64"]


def test_a_launch_passes_the_address_and_the_numbers(cuda, compiler):
    scale = make()
    cuda.parameters = 6
    for x, y in ((0x1000, 0x2000), (0x3000, 0x1000)):
        for rows in (48, 64):
            scale[4](view(x, (rows, 5, 7)), 9, view(y))
            assert cuda.launches[-1].words == (x, rows, 5, 7, 9, y)
    assert len(compiler.requests) == 1


def test_numbers_that_the_kernel_does_not_take(cuda, compiler):
    compiler.unused = ("x.dim_0", "y.stride_0")
    cuda.parameters = 6
    scale = make()
    for n in (5, 6):
        scale[1](view(0x1000, (48, 5, 7)), n, view(0x2000, (3, 4)))
        assert cuda.launches[-1].words == (0x1000, 5, 7, n, 0x2000, 3)


def test_packing():
    number = Scalar("int32")
    several = View(Pointer("float32"), LAYOUT, (number, Scalar("int64")), ("dim_0", "stride_0"))
    alone = View(Pointer("float32"), LAYOUT)
    made = packing([Constexpr(None), several, alone, number], "xaby", ["a.dim_0"])
    assert made.format.format == struct.Struct("<qQqqQq").format
    assert (made.packed, made.spread, made.slots) == ((0, 1, 2, 3), {1}, 6)
    assert made.table == (1, 3, 4, 5)


def test_the_short_way_is_taken_once_the_launch_function_is_made(cuda, compiler, monkeypatch):
    scale = make()
    for _ in range(WARM):
        scale[1](view(), 2, view(0x1000, (5,)))
    monkeypatch.setattr(scale, "_compile", None)
    x, y = view(0x3000), view(0x5000, (6,))
    cuda.parameters = 4
    for pointer in (0x3000, 0x7000):
        x.argument.array.pointer = pointer
        scale[1](x, 2, y)
        assert cuda.launches[-1].words == (pointer, 2, 0x5000, 6)
    assert (x.asked, y.asked) == (2, 2), "once a launch"


def test_the_class_of_views_has_a_way_of_its_own(cuda, compiler, monkeypatch):
    scale = make()
    for _ in range(WARM):
        scale[1](view(), 2, view())
    monkeypatch.setattr(scale, "_compile", None)
    monkeypatch.setitem(scale.launch.__globals__, "_w_other", None)
    scale[1](view(0x3000), 2, view(0x4000))
    assert len(cuda.launches) == WARM + 1


@pytest.mark.parametrize(
    "other",
    [
        lambda: view(key=OTHER),
        lambda: view(dtype=float16),
        lambda: view(byte_offset=4),
        lambda: view(numbers=(5,)),
        lambda: FakeTensor(0x1000),
        lambda: 0x1000,
    ],
    ids=["layout", "dtype", "alignment", "numbers", "array", "number"],
)
def test_what_makes_another_variant(cuda, compiler, other):
    scale = make()
    tensor = FakeTensor(0x1000)
    scale[1](FakeView(tensor), 2, view())
    for _ in range(2):
        scale[1](other(), 2, view())
        scale[1](FakeView(tensor), 2, view())
    assert len(compiler.requests) == 2


def test_two_layouts_of_one_array_are_two_kernels(cuda, compiler):
    scale, tensor = make(), FakeTensor(0x1000)
    kernels = [scale[1](FakeView(tensor, key=key), 2, view()) for key in (LAYOUT, OTHER, LAYOUT, OTHER)]
    assert kernels[0] is kernels[2] is not kernels[1]
    assert kernels[1] is kernels[3]
    assert len({fp.key0(request) for request in compiler.requests}) == 2
    assert len(scale._compiled) == 2


def test_divisibility_of_numbers_is_a_variant_unless_it_must_not_be(cuda, compiler):
    for options, count in (({}, 3), ({"do_not_specialize": ["x"]}, 1)):
        scale = make(**options)
        compiler.requests.clear()
        for _ in range(2):
            for rows, offset in ((5, 0), (48, 0), (1, 0), (48, 4)):
                scale[1](view(0x1000, (rows,), byte_offset=offset), 2, view())
        assert len(compiler.requests) == count


def test_the_stream_is_that_of_pytorch_where_the_arrays_are(cuda, compiler):
    scale = make()
    for _ in range(WARM):
        scale[1](view(), 2, 3)
        scale[1](FakeView(FakeArray(0x1000)), 2, 3)
        scale[1](view(), 2, 3, stream=5)
    assert [launched.stream for launched in cuda.launches] == [700, 0, 5] * WARM
    assert len(compiler.requests) == 1, "the code is the same"


def test_launches_with_arrays_of_jax_wait(cuda, compiler):
    scale = make()
    for kind, waited in ((FakeArray, 0), (FakeJaxArray, 1)) * WARM:
        cuda.waited.clear()
        scale[1](FakeView(kind(0x1000)), 2, 3)
        assert len(cuda.waited) == waited


def test_arrays_of_other_libraries_launch(cuda, compiler):
    cuda.parameters = 4
    scale = make()
    for pointer in (0x1000, 0x2000):
        scale[1](FakeView(FakeArray(pointer), (7,), byte_offset=16), 2, 3)
        assert cuda.launches[-1].words == (pointer + 16, 7, 2, 3)


def test_the_device_is_that_of_the_array(cuda, compiler):
    cuda.devices = 2
    scale = make()
    for device in (1, 0, 1):
        scale[1](view(device=device), 2, view(device=device))
    assert [launched.stream for launched in cuda.launches] == [701, 700, 701]
    caught(lambda: scale[1](view(device=1), 2, view(device=0)), "launch-device-mismatch")


def test_host_and_device_do_not_mix(cuda, compiler):
    host = np.zeros(8, np.float32)
    error = caught(lambda: make()[1](view(), 2, FakeView(host)), "launch-ambiguous")
    assert "y" in error.message
    caught(lambda: make()[1](host, 2, view()), "launch-ambiguous")


def test_a_view_of_a_stand_in_compiles_and_does_not_launch(cuda, compiler):
    stand_in = FakeView(MockTensor("fp32"), (16,), byte_offset=8)
    compiled = make().warmup(stand_in, 2, stand_in, target="sm_90a")
    assert compiled.request.arguments["x"] == View(Pointer("float32"), LAYOUT, (Scalar("int32", True),), ("dim_0",))
    aligned = make().warmup(FakeView(MockTensor("fp32")), 2, stand_in, target="sm_90a").request.arguments["x"]
    assert aligned.pointer.aligned
    for _ in range(2):
        caught(lambda: make()[1](stand_in, 2, view()), "launch-mock-argument")


def test_a_view_of_what_is_no_array(cuda, compiler):
    error = caught(lambda: make()[1](FakeView("text"), 2, view()), "launch-argument-kind")
    assert "a view of a str ('text')" in error.message


def test_host_arrays_are_simulated(no_gpu, compiler):
    host = np.zeros(64, np.float32)
    scale = make()
    for _ in range(2):
        scale[2](FakeView(host[8:], (5, 6), byte_offset=16), 2, FakeView(host))
    ((_, _, arguments), _) = compiler.simulated
    assert list(arguments) == ["x", "x.dim_0", "x.stride_0", "n", "y"]
    assert (arguments["x.dim_0"], arguments["x.stride_0"]) == (5, 6)
    assert arguments["x"].pointer == host.ctypes.data + 8 * 4 + 16
    assert (arguments["x"].address, arguments["x"].nbytes) == (host.ctypes.data, 256), "all of it may be reached"


def test_the_bare_launch_takes_an_address_with_the_numbers(cuda, compiler):
    cuda.parameters = 5
    compiled = make()[1](view(0x1000, (5, 6)), 48, view())
    compiled.launch((1, 1, 1), None, [(0x3000, 7, 8), 16, 0x2000])
    assert cuda.launches[-1].words == (0x3000, 7, 8, 16, 0x2000)
    for wrong in ((0x3000, 7), (0x3000, 7, 2**70), 0x3000):
        error = caught(
            lambda wrong=wrong: compiled.launch((1, 1, 1), None, [wrong, 16, 0x2000]), "launch-argument-range"
        )
        assert "argument x=" in error.message


def test_keys_of_the_disk_cache_hold_in_another_process(cuda, compiler):
    scale = make()

    def key(key, numbers=()):
        kind = specialise("kernel", "x", view(0x1000, numbers, key=key))
        return fp.key0(CompileRequest(scale, {"x": kind}, Options(), "sm_90a"))

    keys = [key(LAYOUT), key(OTHER), key((LAYOUT, 1)), key((LAYOUT, True)), key(LAYOUT, (5,)), key(LAYOUT, (16,))]
    assert len(set(keys)) == len(keys)
    assert keys[0] == key(BlockedLayout([1], [32], [4], [0]))
    assert _encode(CompileRequest(scale, {"x": specialise("kernel", "x", view())}, Options(), "sm_90a"), ()) == []
