"""Arrays, streams and graphs of other libraries, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import LaunchError

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


def test_jax(numbers, torch):
    jax = pytest.importorskip("jax", reason="needs JAX")
    src, dst = jax.numpy.asarray(numbers), jax.numpy.zeros(SIZE)
    jax.block_until_ready((src, dst))
    launch(src, dst)
    torch.cuda.synchronize()
    np.testing.assert_array_equal(np.asarray(dst), 2 * numbers)


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
