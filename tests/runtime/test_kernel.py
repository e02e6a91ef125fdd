"""Launches, from brackets to the driver: binding, specialisation, tables, streams, the simulator's share."""

from __future__ import annotations

import struct
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.runtime.fake_driver import WARM, CUresult, FakeArray, FakeJaxArray, FakeTensor, float16
from weft import settings as weft_settings
from weft.errors import DeviceError, LaunchError
from weft.kernel import jit
from weft.runtime import binder
from weft.runtime.launch import packing
from weft.runtime.manifest import Read
from weft.runtime.paths import path_of
from weft.runtime.specialise import Constexpr, MockTensor, Pointer, Scalar

FACTOR = 3


class constexpr:  # noqa: N801 - poses as gl.constexpr
    def __init__(self, value):
        self.value = value


gl = SimpleNamespace(constexpr=constexpr)


def make(**options):
    @jit(**options)
    def scale(x, y, n, alpha, BLOCK: gl.constexpr = 128):
        """Scale x into y."""

    return scale


X, Y = FakeTensor(0x1000), FakeTensor(0x2004, float16)


def test_a_kernel_keeps_its_identity():
    scale = make()
    assert (scale.__name__, scale.__doc__) == ("scale", "Scale x into y.")
    assert [p.name for p in scale.params if p.constexpr] == ["BLOCK"]
    assert "scale" in repr(scale)


def test_first_launch_compiles_and_the_next_ones_do_not(cuda, compiler):
    scale = make()
    cuda.parameters = 4
    for pointer in (0x1000, 0x3000, 0x5000):
        compiled = scale[(4, 2)](FakeTensor(pointer), Y, 48, 0.5)
    (request,) = compiler.requests
    assert request.arguments == {
        "x": Pointer("float32", True),
        "y": Pointer("float16", False),
        "n": Scalar("int32", True),
        "alpha": Scalar("float32"),
        "BLOCK": Constexpr(128),
    }
    assert request.target == "sm_90a"
    assert compiled.request is request
    half = struct.unpack("<I", struct.pack("<f", 0.5))[0]
    last = cuda.launches[-1]
    assert last.words == (0x5000, 0x2004, 48, half)
    assert (last.grid, last.block) == ((4, 2, 1), (128, 1, 1))


def test_what_is_folded_takes_no_parameter(cuda, compiler):
    cuda.parameters = 2
    make()[1](X, None, 1, True)
    assert compiler.requests[0].arguments["n"] == Constexpr(1)
    assert compiler.requests[0].arguments["y"] == Constexpr(None)
    assert cuda.launches[0].words == (0x1000, 1)


@pytest.mark.parametrize(
    "other",
    [
        lambda k: k[1](FakeTensor(0x1004), Y, 48, 0.5),
        lambda k: k[1](FakeTensor(0x1000, float16), Y, 48, 0.5),
        lambda k: k[1](X, Y, 47, 0.5),
        lambda k: k[1](X, Y, 1, 0.5),
        lambda k: k[1](X, Y, 2**40, 0.5),
        lambda k: k[1](X, Y, 2**63, 0.5),
        lambda k: k[1](X, Y, 48, 5),
        lambda k: k[1](X, Y, 48, True),
        lambda k: k[1](X, None, 48, 0.5),
        lambda k: k[1](X, Y, 48, 0.5, 64),
        lambda k: k[1](X, Y, 48, 0.5, 128.0),
        lambda k: k[1](X, Y, 48, 0.5, BLOCK=(128,)),
        lambda k: k[1](X, Y, 48, 0.5, num_warps=8),
        lambda k: k[1](X, Y, 48, 0.5, maxnreg=64),
        lambda k: k[1](X, Y, 48, 0.5, debug=True),
    ],
)
def test_what_makes_another_variant(cuda, compiler, other):
    scale = make()
    scale[1](X, Y, 48, 0.5)
    other(scale)
    assert len(compiler.requests) == 2
    other(scale)
    scale[2](X, Y, 64, 1.5)
    assert len(compiler.requests) == 2


def test_equal_numbers_of_other_types_are_other_constants(cuda, compiler):
    scale = make()
    for value in (1, True, 1.0, (1,), (True,), 0.0, -0.0):
        for _ in range(2):
            scale[1](X, Y, 8, 0.5, value)
    assert [r.arguments["BLOCK"] for r in compiler.requests] == [
        Constexpr(v) for v in (1, True, 1.0, (1,), (True,), 0.0, -0.0)
    ]


def test_constexpr_objects_are_unwrapped(cuda, compiler):
    scale = make()
    scale[1](X, Y, 8, 0.5, constexpr(32))
    scale[1](X, Y, 8, 0.5, 32)
    assert [r.arguments["BLOCK"] for r in compiler.requests] == [Constexpr(32)]


def test_do_not_specialize(cuda, compiler):
    scale = make(do_not_specialize=["n", 0])
    for n in (1, 16, 17):
        scale[1](FakeTensor(0x1000 + 4 * n), Y, n, 0.5)
    (request,) = compiler.requests
    assert request.arguments["n"] == Scalar("int32")
    assert request.arguments["x"] == Pointer("float32")


integers = st.integers(-(2**63), 2**64 - 1) | st.integers(-40, 40)


@given(st.lists(st.tuples(integers, st.integers(0, 64), st.floats(width=32) | st.booleans()), max_size=12))
@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tables_agree_with_the_checked_way(cuda, compiler, launches):
    """Whatever was launched before, a launch runs what a kernel without a past would compile, with its own values."""
    scale = make()
    for _ in range(WARM):
        scale[1](X, Y, 8, 0.5)
    for n, offset, alpha in launches:
        x = FakeTensor(0x1000 + offset)
        cuda.parameters = 2 + (n != 1) + 1
        compiled = [scale[1](x, Y, n, alpha) for _ in range(2)][-1]
        fresh = make()[1](x, Y, n, alpha)
        assert compiled.request.arguments == fresh.request.arguments
        assert cuda.launches[-1].words == cuda.launches[-2].words


KINDS = {
    "tensor": lambda: FakeTensor(0x1000),
    "tensor of another dtype": lambda: FakeTensor(0x1008, float16),
    "array": lambda: FakeArray(0x2000, "<i4"),
    "nothing": lambda: None,
    "int": lambda: 48,
    "one": lambda: 1,
    "large int": lambda: 2**40,
    "NumPy's int": lambda: np.int32(7),
    "bool": lambda: True,
    "float": lambda: 0.5,
}


@pytest.mark.parametrize("made_for", KINDS)
def test_a_launch_function_takes_arguments_of_other_classes(cuda, compiler, made_for):
    """The function is made for the classes of one launch; what it answers for others is what a new kernel answers."""
    scale, beside = make(), FakeTensor(0x4000)
    cuda.parameters = 3
    for _ in range(WARM):
        scale[1](beside, Y, KINDS[made_for](), 0.5)
    code = scale.launch.__code__
    for kind, value in KINDS.items():
        for _ in range(2):
            compiled = scale[1](beside, Y, value(), 0.5)
            assert compiled.request.arguments == make()[1](beside, Y, value(), 0.5).request.arguments, kind
            assert cuda.launches[-1].words == cuda.launches[-2].words
    assert scale.launch.__code__ is code, "made once"


def test_a_launch_that_was_taken_early_becomes_fast_too(cuda, compiler, monkeypatch):
    scale = make()
    early = scale[1]
    cuda.parameters = 4
    for _ in range(WARM):
        early(X, Y, 8, 0.5)
    monkeypatch.setattr(scale, "_compile", None)
    early(X, Y, 8, 0.5)
    assert len(cuda.launches) == WARM + 1


def test_a_lazy_minus_is_refused_at_every_launch(cuda, compiler, monkeypatch):
    scale = make()
    for _ in range(WARM):
        scale[1](X, Y, 8, 0.5)
    monkeypatch.setattr(FakeTensor, "is_neg", lambda self: True)
    with pytest.raises(LaunchError) as caught:
        scale[1](X, Y, 8, 0.5)
    assert caught.value.code == "launch-array-form"


def test_numbers_of_numpy_and_arrays_of_other_libraries(cuda, compiler):
    scale = make()
    cuda.parameters = 4
    for _ in range(WARM + 1):
        scale[1](FakeArray(64, "<i4"), FakeArray(128, "|u1"), np.int32(8), np.float32(2))
    (request,) = compiler.requests
    assert [request.arguments[name] for name in "xy"] == [Pointer("int32", True), Pointer("uint8", True)]
    assert cuda.launches[0].words == cuda.launches[-1].words == (64, 128, 8, 0x40000000)


def test_streams(cuda, compiler):
    scale = make()
    torch_like = SimpleNamespace(cuda_stream=5)
    protocol = SimpleNamespace(__cuda_stream__=lambda: (0, 6))
    for _ in range(2):
        for stream in (None, 4, torch_like, protocol, SimpleNamespace(ptr=7)):
            scale[1](X, Y, 8, 0.5, stream=stream)
        scale[1](FakeArray(64), FakeArray(64), 8, 0.5)
        scale[1](X, Y, 8, 0.5)
    assert [launched.stream for launched in cuda.launches] == [700, 4, 5, 6, 7, 0, 700] * 2


def test_launches_with_arrays_of_jax_wait_before_and_after(cuda, compiler):
    cuda.devices = 2
    scale, x = make(), FakeJaxArray(64, device=1)
    for number in range(WARM):
        scale[1](x, FakeJaxArray(128, device=1), 8, 0.5)
        assert x.awaited > number
        assert cuda.waited == [(0, n + 1) for n in range(number + 1)]
    scale[1](x, FakeJaxArray(128, device=1), 8, 0.5, stream=5)
    assert cuda.waited[-1] == (5, WARM + 1)


def test_launches_with_arrays_of_others_do_not_wait(cuda, compiler):
    scale = make()
    for _ in range(WARM):
        scale[1](FakeArray(64), FakeArray(128), 8, 0.5)
        assert cuda.waited == []
        scale[1](FakeArray(64), FakeJaxArray(128), 8, 0.5)
        assert len(cuda.waited) == 1
        cuda.waited.clear()
    assert len(compiler.requests) == 1, "the code is the same"


def test_a_stream_that_is_captured_is_not_waited_for(cuda, compiler):
    scale = make()
    cuda.captured.add(5)
    for _ in range(WARM):
        scale[1](FakeJaxArray(64), FakeJaxArray(128), 8, 0.5, stream=5)
    assert len(cuda.launches) == WARM
    assert cuda.waited == []


def test_a_subclass_of_a_tensor_goes_to_its_stream_too(cuda, compiler):
    class Parameter(FakeTensor):
        pass

    scale = make()
    for _ in range(WARM + 1):
        scale[1](Parameter(64), Parameter(64), 8, 0.5)
    assert {launched.stream for launched in cuda.launches} == {700}


def test_grids(cuda, compiler):
    scale = make()
    for grid in (3, (3,), [3, 4], (3, 4, 5), lambda bound: (bound["n"] // bound["BLOCK"], 2), np.int64(6)):
        scale[grid](X, Y, 1024, 0.5)
    assert [launched.grid for launched in cuda.launches] == [
        (3, 1, 1), (3, 1, 1), (3, 4, 1), (3, 4, 5), (8, 2, 1), (6, 1, 1),
    ]  # fmt: skip
    assert scale[3] is scale[3]


def test_an_option_that_is_a_parameter_feeds_both(cuda, compiler):
    @jit
    def kernel(x, num_warps: gl.constexpr, n):
        pass

    kernel[1](X, 8, 3)
    kernel[1](X, num_warps=2, n=3)
    kernel[1](X, n=3)
    assert [(r.options.num_warps, r.arguments["num_warps"]) for r in compiler.requests] == [
        (8, Constexpr(8)), (2, Constexpr(2)), (4, Constexpr(4)),
    ]  # fmt: skip


def test_parameters_may_have_any_name(cuda, compiler):
    @jit
    def kernel(type, int, key, grid, self, run: gl.constexpr, value=16):  # noqa: A002 - the point of the test
        pass

    cuda.parameters = 6
    for _ in range(WARM + 1):
        kernel[1](X, 2, 3, 4, 5, run=7)
    assert cuda.launches[0].words == cuda.launches[-1].words == (0x1000, 2, 3, 4, 5, 16)


def test_debug_comes_from_launch_then_kernel_then_settings(cuda, compiler):
    with weft_settings.using(debug=True):
        make()[1](X, Y, 2, 0.5)
        make(debug=False)[1](X, Y, 2, 0.5)
        make(debug=False)[1](X, Y, 2, 0.5, debug=True)
    assert [r.options.debug for r in compiler.requests] == [True, False, True]


def test_settings_that_change_between_launches_count(cuda, compiler):
    scale, told = make(), make(debug=False)
    for kernel in (scale, told):
        for _ in range(WARM + 1):
            kernel[1](X, Y, 2, 0.5)
        with weft_settings.using(debug=True):
            assert kernel[1](X, Y, 2, 0.5).request.options.debug == (kernel is scale)
        assert not kernel[1](X, Y, 2, 0.5).request.options.debug


def test_sync_is_the_kernels(cuda, compiler):
    make(sync="explicit")[1](X, Y, 2, 0.5)
    assert compiler.requests[0].options.sync == "explicit"


def test_a_rebound_global_compiles_anew(cuda, compiler, monkeypatch):
    scale = make()
    compiler.reads = (Read(make, path_of("FACTOR"), "int:3"), Read(make, path_of("np.int32"), "class"))
    for _ in range(WARM + 1):
        scale[1](X, Y, 2, 0.5)
    assert len(compiler.requests) == 1
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 4)
    for _ in range(2):
        scale[1](X, Y, 2, 0.5)
    assert len(compiler.requests) == 2


def test_eight_threads_compile_once_and_keep_their_values(cuda, compiler):
    scale = make()
    cuda.parameters = 4
    barrier = threading.Barrier(8)

    def work(me):
        barrier.wait()
        for i in range(50):
            scale[me + 1](FakeTensor(0x1000 * (me + 1)), Y, 16 * (i + 2), 0.5)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiler.requests) == 1
    assert len(cuda.launches) == 400
    assert all(launched.words[0] == 0x1000 * launched.grid[0] for launched in cuda.launches)


def test_a_thread_without_a_context_gets_one(cuda, compiler):
    scale = make()
    cuda.results = [CUresult.CUDA_ERROR_INVALID_CONTEXT]
    scale[1](X, Y, 2, 0.5)
    assert len(cuda.launches) == 1


def test_the_device_of_the_arrays_is_made_current(cuda, compiler):
    cuda.devices = 2
    seen = []
    launch = cuda.cuLaunchKernelEx
    cuda.cuLaunchKernelEx = lambda *arguments: seen.append(cuda.current) or launch(*arguments)
    scale = make()
    for device in (1, 0, 1):
        scale[1](FakeTensor(64, device=device), FakeTensor(64, device=device), 2, 0.5)
    assert seen == [1001, 1000, 1001]
    assert [launched.stream for launched in cuda.launches] == [701, 700, 701]
    assert len(compiler.requests) == 1, "one architecture, one compilation"


def test_a_sticky_error_says_what_to_do(cuda, compiler):
    scale = make()
    scale[1](X, Y, 2, 0.5)
    cuda.results = [CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    with pytest.raises(DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        scale[1](X, Y, 2, 0.5)
    assert "new process" in caught.value.fix


def test_a_kernel_that_is_loaded_during_a_capture_says_what_to_do(cuda, compiler):
    cuda.load_result = CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    with pytest.raises(DeviceError, match="CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED") as caught:
        make()[1](X, Y, 2, 0.5)
    assert "before the capture" in caught.value.fix


def test_host_arrays_run_in_the_simulator(no_gpu, compiler):
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float16)
    scale = make()
    compiled = scale[2](x, y[8:], 48, 0.5)
    assert compiled.report == "report of (2, 1, 1)"
    ((kernel, grid, arguments),) = compiler.simulated
    assert kernel.asm["ir"] == "func"
    assert grid == (2, 1, 1)
    assert list(arguments) == ["x", "y", "n", "alpha"]
    assert (arguments["n"], arguments["alpha"]) == (48, 0.5)
    assert (arguments["y"].pointer, arguments["y"].address, arguments["y"].nbytes) == (
        y.ctypes.data + 16, y.ctypes.data, 128,
    )  # fmt: skip
    scale[lambda bound: 3](x, y, 32, 0.5)
    assert len(compiler.requests) == 1
    assert compiler.simulated[1][1] == (3, 1, 1)


def test_cpu_tensors_run_in_the_simulator(torch, no_gpu, compiler):
    x = torch.zeros(64, dtype=torch.bfloat16)
    for _ in range(2):
        make()[1](x, x, 48, 0.5)
    assert compiler.simulated[1][2]["x"].dtype == "bfloat16"


def test_without_arrays_the_gpu_runs_it_where_there_is_one(cuda, compiler):
    make()[1](1.0, 2, 3, 4)
    assert len(cuda.launches) == 1
    assert compiler.simulated == []


def test_without_arrays_and_gpu_the_simulator_runs_it(no_gpu, compiler):
    make()[1](1.0, 2, 3, 4)
    assert len(compiler.simulated) == 1


def test_warmup_compiles_and_launches_nothing(no_gpu, compiler):
    scale = make()
    compiled = scale.warmup("*fp32:16", MockTensor("int8"), "i32:16", 0.5, grid=(4,), target="sm_100a", num_warps=2)
    assert compiled.request.target == "sm_100a"
    assert compiled.request.options.num_warps == 2
    assert list(compiled.request.arguments.values())[:3] == [
        Pointer("float32", True), Pointer("int8", True), Scalar("int32", True),
    ]  # fmt: skip
    with weft_settings.using(target="sm_80"):
        assert scale.warmup(np.float32, np.zeros(4), 3, 4, BLOCK=np.float16).request.target == "sm_80"
    assert compiler.requests[1].arguments["BLOCK"] == Constexpr(np.float16)


def test_warmup_takes_types_of_torch(torch, no_gpu, compiler):
    make().warmup(torch.float32, MockTensor(torch.int8), 3, 4, BLOCK=torch.float16)
    assert [*compiler.requests[0].arguments.values()][:2] == [Pointer("float32", True), Pointer("int8", True)]
    assert compiler.requests[0].arguments["BLOCK"] == Constexpr(torch.float16)


def test_annotations_as_text_and_as_objects():
    for annotation in (constexpr, "gl.constexpr", "constexpr", "weft.language.constexpr"):
        assert binder.is_constexpr_annotation(annotation)
    for annotation in (int, "gl.tensor", "constexpr_function", None, "x: constexpr.y"):
        assert not binder.is_constexpr_annotation(annotation)


kinds = st.one_of(
    st.builds(Scalar, st.sampled_from(["int32", "int64", "uint64", "float32", "bool"])),
    st.just(Pointer("int8")),
    st.just(Constexpr(None)),
)


@given(st.lists(kinds, min_size=1, max_size=20))
@settings(deadline=None, max_examples=examples(60))
def test_frames_point_at_the_slots_a_kernel_takes(arguments):
    layout = packing(arguments)
    buffer, table = layout.frame()
    start = table - 8 * len(arguments)
    taken = [slot for slot, kind in enumerate(arguments) if not isinstance(kind, Constexpr)]
    assert [int(word) for word in buffer[len(arguments) :]] == [start + 8 * slot for slot in taken]
    layout.format.pack_into(buffer, 0, *range(len(arguments)))
    for slot in taken:
        kind = arguments[slot]
        raw = struct.pack("<Q", buffer[slot])
        if kind == Scalar("float32"):
            assert struct.unpack("<f4x", raw)[0] == slot
        else:
            assert buffer[slot] == (bool(slot) if kind == Scalar("bool") else slot)
