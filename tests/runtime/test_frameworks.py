"""Arrays, streams and graphs of other libraries, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import LaunchError
from weft.kernels import cumsum, matmul, softmax, topk

pytestmark = pytest.mark.gpu

LINE = gl.BlockedLayout([4], [32], [4], [0])
SIZE = 1000


@weft.jit
def twice(src, dst, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(dst + at, 2 * gl.load(src + at, mask=at < n), mask=at < n)


@pytest.fixture
def numbers() -> np.ndarray:
    return np.random.default_rng(0).random(SIZE, np.float32)


def launch(src, dst, **options):
    return twice[(2,)](src, dst, SIZE, 512, LINE, **options)


def test_cupy(numbers):
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    src = cupy.asarray(numbers)
    dst, streamed = cupy.zeros_like(src), cupy.zeros_like(src)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    launch(src, dst)
    launch(src, streamed, stream=stream)
    cupy.cuda.runtime.deviceSynchronize()
    np.testing.assert_array_equal(cupy.asnumpy(dst), 2 * numbers)
    np.testing.assert_array_equal(cupy.asnumpy(streamed), 2 * numbers)


def test_numba(numbers):
    cuda = pytest.importorskip("numba.cuda", reason="needs Numba")
    dst = cuda.to_device(np.zeros_like(numbers))
    launch(cuda.to_device(numbers), dst)
    cuda.synchronize()
    np.testing.assert_array_equal(dst.copy_to_host(), 2 * numbers)


@pytest.fixture
def gpu(jax):
    if not any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("needs JAX with CUDA: pip install jax[cuda13]")
    return jax


def test_jax(numbers, gpu):
    """Nothing is waited for here: the launch waits for JAX, and JAX need not wait for the kernel."""
    src, dst = gpu.numpy.asarray(numbers), gpu.numpy.zeros(SIZE)
    launch(src + 1, dst)
    np.testing.assert_array_equal(np.asarray(dst + 0), 2 * (numbers + 1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
def test_products_of_jax(gpu, dtype):
    numbers = np.random.default_rng(0)
    a, b = (gpu.numpy.asarray(numbers.integers(-4, 5, (n, 4096))).astype(dtype) for n in (2048, 1024))
    for _ in range(3):  # Garbage of one call is memory of the next.
        found = matmul(a, b.T, out_dtype="float32") + 0
        want = np.asarray(a).astype(np.float32) @ np.asarray(b).astype(np.float32).T
        np.testing.assert_array_equal(np.asarray(found), want)


def test_functions_of_jax(gpu):
    numbers = np.random.default_rng(0)
    x = gpu.numpy.asarray(numbers.standard_normal((512, 4096)).astype(np.float32))
    probabilities = np.asarray(softmax(x) + 0)
    np.testing.assert_allclose(probabilities, np.asarray(gpu.nn.softmax(x)), rtol=1e-4, atol=1e-7)
    values, places = topk(x, 5)
    assert places.dtype == np.int64
    np.testing.assert_array_equal(np.asarray(places), np.argsort(-np.asarray(x), axis=1)[:, :5])
    np.testing.assert_array_equal(np.asarray(values), -np.sort(-np.asarray(x), axis=1)[:, :5])
    steps = gpu.numpy.asarray(numbers.integers(-9, 10, (8, 100_000)).astype(np.int32))
    np.testing.assert_array_equal(np.asarray(cumsum(steps)), np.cumsum(np.asarray(steps), axis=1))


def test_the_current_stream_of_torch(numbers, torch):
    src = torch.tensor(numbers, device="cuda")
    dst, stream = torch.zeros_like(src), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        launch(src, dst)
    stream.synchronize()
    assert torch.equal(dst, 2 * src)


def test_capture_into_a_graph(numbers, torch):
    src = torch.tensor(numbers, device="cuda")
    dst = torch.zeros_like(src)
    launch(src, dst)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(src, dst)
    dst.zero_()
    graph.replay()
    assert torch.equal(dst, 2 * src)


def test_arrays_of_two_places(numbers, torch):
    with pytest.raises(LaunchError) as caught:
        launch(torch.tensor(numbers, device="cuda"), numbers)
    assert caught.value.code == "launch-ambiguous"
