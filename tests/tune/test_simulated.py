"""Kernels and host functions under `@autotune` in the simulator: they run, and nothing is measured."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import Config, tune
from weft import language as gl
from weft.errors import DeviceError, UserError
from weft.nvidia.hopper import TensorDescriptor
from weft.runtime import rehearsal
from weft.runtime.driver import simulated_target
from weft.runtime.specialise import MockTensor
from weft.tune import search
from weft.tune.key import Point
from weft.tune.store import Choice, default

pytestmark = pytest.mark.usefixtures("no_gpu")


def never(run, prepare):
    raise AssertionError("something was measured")


@weft.jit
def add_one(src, dst, n, BLOCK: gl.constexpr, num_warps: gl.constexpr = 4):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [num_warps], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(dst + offsets, gl.load(src + offsets, mask=offsets < n) + 1, mask=offsets < n)


@weft.jit
def greedy(src, dst, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    buffer = gl.allocate_shared_memory(gl.float32, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    buffer.store(gl.load(src + offsets, mask=offsets < n, other=0.0))
    gl.store(dst + offsets, buffer.load(layout) + 1, mask=offsets < n)


@weft.jit
def copy_tile(src, dst, layout: gl.constexpr):
    offsets = gl.program_id(0) * src.block_shape[0]
    tile = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], gl.nvidia.hopper.mbarrier.MBarrierLayout())
    gl.nvidia.hopper.mbarrier.init(bar, count=1)
    gl.nvidia.hopper.mbarrier.expect(bar, src.block_type.nbytes)
    gl.nvidia.hopper.tma.async_copy_global_to_shared(src, [offsets, 0], bar, tile)
    gl.nvidia.hopper.mbarrier.wait(bar, 0)
    gl.nvidia.hopper.tma.async_copy_shared_to_global(dst, [offsets, 0], tile)
    gl.nvidia.hopper.tma.store_wait(0)


def grid(arguments):
    return (weft.cdiv(arguments["n"], arguments["BLOCK"]),)


def data(n: int = 1000):
    return np.random.default_rng(n).standard_normal(n).astype(np.float32), np.full(n, np.nan, np.float32)


def test_a_kernel_takes_the_first_config_that_compiles():
    x, y = data()
    kernel = weft.autotune([Config({"BLOCK": 1 << 17}), Config({"BLOCK": 256})], key=["n"], bench=never)(greedy)
    compiled = kernel[grid](x, y, 1000)
    np.testing.assert_array_equal(y, x + 1)
    assert kernel.best_config == Config({"BLOCK": 256})
    assert compiled.report is not None
    assert (len(kernel.results), tune.choices()) == (0, [])


def test_a_stored_choice_is_taken():
    x, y = data()
    kernel = weft.autotune({"BLOCK": [128, 256], "num_warps": [4, 8]}, key=["n"], bench=never)(add_one)
    dtypes = (("dst", "float32"), ("src", "float32"))
    point = Point((("n", 1000),), dtypes, "Some GPU", simulated_target().arch)
    store = default()
    assert store is not None
    store.put(Choice("add_one", kernel.identity, point, "BLOCK=256, num_warps=8", 1.0))
    compiled = kernel[grid](x, y, 1000)
    np.testing.assert_array_equal(y, x + 1)
    assert (kernel.best_config, compiled.num_warps) == (Config({"BLOCK": 256}, num_warps=8), 8)


def test_a_stored_choice_that_is_no_config_any_more_is_not_taken():
    x, y = data()
    kernel = weft.autotune({"BLOCK": [128, 256]}, key=["n"])(add_one)
    point = kernel._keys.point({"src": x, "dst": y, "n": 1000})
    store = default()
    assert store is not None
    store.put(Choice("add_one", kernel.identity, point, "BLOCK=999", 1.0))
    kernel[grid](x, y, 1000)
    assert kernel.best_config == Config({"BLOCK": 128})


def test_tuning_on_purpose_needs_a_gpu():
    x, y = data()
    with pytest.raises(DeviceError, match="the arguments of add_one run in the simulator") as caught:
        weft.autotune({"BLOCK": [128]})(add_one).tune(x, y, 1000, grid=1)
    assert caught.value.code == "device-no-benchmark"


def test_a_clock_of_ones_own_measures_in_the_simulator_too():
    x, y = data()

    def bench(run, prepare):
        prepare()
        return abs(run().request.arguments["BLOCK"].value - 200.0)

    kernel = weft.autotune({"BLOCK": [128, 256]}, key=["n"], bench=bench)(add_one)
    results = kernel.tune(x, y, 1000, grid=grid)
    assert [result.config.kwargs["BLOCK"] for result in results] == [256, 128]
    assert results[0].registers > 0
    assert tune.choices()[0].point.device == "simulator"
    np.testing.assert_array_equal(y, x + 1)


def test_warmup_compiles_every_config_without_a_gpu():
    kernel = weft.autotune([Config({"BLOCK": 64}), Config({"BLOCK": 1 << 17}), Config({"BLOCK": 128})])(greedy)
    compiled = kernel.warmup(MockTensor("fp32"), "*fp32:16", "i32")
    assert [k.request.arguments["BLOCK"].value for k in compiled] == [64, 128]
    assert all(k.asm["cubin"] for k in compiled)


def test_warmup_says_why_nothing_compiles():
    kernel = weft.autotune([Config({"BLOCK": 1 << 17})])(greedy)
    with pytest.raises(UserError, match=r"BLOCK=131072: .*\[shared-memory\]") as caught:
        kernel.warmup("*fp32", "*fp32", "i32")
    assert caught.value.code == "tune-all-failed"


def test_tiles_beyond_all_registers_are_not_compiled():
    x, y = data()
    kernel = weft.autotune({"BLOCK": [1 << 20, 128]}, bench=lambda run, prepare: 1.0)(add_one)
    results = kernel.tune(x, y, 1000, grid=grid)
    assert results[1].status == "refused"
    assert "takes 8192 registers of each of 128 threads, which have 255" in results[1].reason


@weft.jit
def square(dst, N: gl.constexpr, num_warps: gl.constexpr):
    layout: gl.constexpr = gl.nvidia.hopper.warpgroup_mma_layout(gl.float16, [128, N], num_warps)
    shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([128, 64], gl.float16)
    a = gl.allocate_shared_memory(gl.float16, [128, 64], shared)
    b = gl.allocate_shared_memory(gl.float16, [64, N], gl.NVMMASharedLayout.get_default_for([64, N], gl.float16))
    acc = gl.zeros([128, N], gl.float32, layout)
    acc = gl.nvidia.hopper.warpgroup_mma(a, b, acc)
    gl.store(dst, gl.sum(gl.sum(acc, 1), 0))


def test_accumulators_beyond_a_threads_registers_are_not_compiled():
    space = tune.Space({"N": [256, 128], "num_warps": [4, 8], "maxnreg": [None, 64]})
    kernel = weft.autotune(space, bench=lambda run, prepare: 1.0)(square)
    call = search.Call("square", {}, lambda config: square[1]("*fp32", **config.arguments), -1)
    found = {}
    for config in kernel.configs:
        with rehearsal.rehearsal(lambda k, config=config: found.update({config: search.too_many_registers(k)})):
            call.run(config)
    refused = {str(config): reason for config, reason in found.items() if reason}
    assert refused.keys() == {
        "N=256, num_warps=4",
        "N=256, num_warps=4, maxnreg=64",
        "N=256, num_warps=8, maxnreg=64",
        "N=128, num_warps=4, maxnreg=64",
    }
    assert "an accumulator of 128x256 takes 256 registers of each of 128 threads, which have 255" in refused.values()


# Host functions


@weft.autotune({"ROWS": [64, 32], "num_warps": [4, 8]}, key=["src"], bench=never)
def copy(src, dst=None, *, ROWS, num_warps):
    """Copy a matrix by TMA in tiles of ROWS rows."""
    dst = np.empty_like(src) if dst is None else dst
    layout = gl.NVMMASharedLayout.get_default_for([ROWS, 64], gl.float16)
    tiles = [TensorDescriptor.from_tensor(array, [ROWS, 64], layout) for array in (src, dst)]
    copy_tile[weft.cdiv(src.shape[0], ROWS),](*tiles, layout, num_warps=num_warps)
    return dst


def test_a_function_gets_its_config_by_keyword():
    src = np.random.default_rng(1).standard_normal((100, 64)).astype(np.float16)
    np.testing.assert_array_equal(copy(src), src)
    assert copy.best_config == Config({"ROWS": 64}, num_warps=4)
    assert (copy.__name__, copy.__doc__) == ("copy", "Copy a matrix by TMA in tiles of ROWS rows.")
    given = np.zeros_like(src)
    assert copy(src, dst=given) is given
    np.testing.assert_array_equal(given, src)


def test_a_functions_kernels_are_compiled_and_do_not_run():
    src, dst = np.ones((100, 64), np.float16), np.zeros((100, 64), np.float16)
    kernels = copy.warmup(src, dst)
    assert [(k.name, k.num_warps) for k in kernels] == [("copy_tile", 4), ("copy_tile", 8)] * 2
    assert not dst.any()


def test_a_functions_own_error_is_a_reason():
    @weft.autotune({"SIZE": [1, 2]})
    def broken(x, SIZE):
        raise KeyError(f"no {SIZE}")

    with pytest.raises(UserError, match="SIZE=2: KeyError: 'no 2'") as caught:
        broken(np.zeros(3))
    assert caught.value.code == "tune-all-failed"


def test_a_function_may_take_anything():
    @weft.autotune([Config({"BLOCK": 64}, num_warps=2)])
    def anything(*arrays, **options):
        return len(arrays), options

    assert anything(1, 2) == (2, {"BLOCK": 64, "num_warps": 2})


def test_tuned_kernels_inside_a_tuned_function():
    inner = weft.autotune({"BLOCK": [128, 256]}, key=["n"])(add_one)

    @weft.autotune({"TIMES": [2, 1]}, bench=lambda run, prepare: run())
    def outer(x, y, TIMES):
        for _ in range(TIMES):
            inner[grid](x, y, len(x))
        return TIMES

    x, y = data()
    assert outer.tune(x, y).best.config == Config({"TIMES": 1})
    assert outer(x, y) == 1
    np.testing.assert_array_equal(y, x + 1)
    assert outer.results[0].registers > 0


def test_rehearsed_launches_check_their_arguments():
    seen = []
    x, y = data()
    with rehearsal.rehearsal(seen.append):
        compiled = add_one[4](x, y, 1000, 64)
        with pytest.raises(UserError, match="without BLOCK"):
            add_one[4](x, y, 1000)
        with pytest.raises(UserError, match="has no programs"):
            add_one[0](x, y, 1000, 64)
    assert seen == [compiled]
    assert np.isnan(y).all()
    assert rehearsal.under_way == 0
    add_one[16](x, y, 1000, 64)
    np.testing.assert_array_equal(y, x + 1)


def test_keys_are_shapes_dtypes_and_what_functions_return():
    def major(arguments):
        return arguments["x"].strides[0] < arguments["x"].strides[1]

    @weft.autotune({"SIZE": [1]}, key=["x", "n", "dtype", "flag", "sizes", major])
    def f(x, n, dtype, flag=None, sizes=(), SIZE=0):
        return SIZE

    x = np.zeros((2, 3), np.float16)
    point = f._keys.point({"x": x, "n": np.int64(4), "dtype": np.dtype("float32"), "flag": True, "sizes": [1, (2,)]})
    assert point.values == (
        ("x", (2, 3)), ("n", 4), ("dtype", "float32"), ("flag", True), ("sizes", (1, (2,))), ("major#0", False),
    )  # fmt: skip
    assert (point.dtypes[-1], point.device, point.arch, point.simulated) == (("x", "float16"), "simulator", 90, True)
    assert f(x, 4, gl.float32) == f(x, 4, gl.float32, sizes=[1]) == 1
    assert f._keys.point({"dtype": gl.bfloat16, "x": x}).values[2] == ("dtype", "bfloat16")
