"""Arrays of JAX in library functions: outputs and temporaries in memory of their own. The simulator runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.runtime import fake_driver
from tests.runtime.fake_driver import FakeJaxArray
from weft.errors import LaunchError
from weft.kernels import (
    attention,
    attention_backward,
    count_experts,
    cross_entropy,
    cumsum,
    matmul,
    memory,
    rms_norm,
    rms_norm_backward,
    softmax,
    sort_experts,
    swiglu_backward,
    topk,
)

BITS = {"float32": 23, "float16": 10, "bfloat16": 7, "float8_e4m3fn": 3, "float8_e5m2": 2}


@pytest.fixture
def array(jax):
    """A function that makes an array of random numbers, on the CPU."""
    numbers = np.random.default_rng(0)
    place = jax.devices("cpu")[0]

    def make(*shape: int, dtype: str = "float32") -> Any:
        return jax.device_put(numbers.standard_normal(shape, np.float32), place).astype(dtype)

    return make


def exact(x) -> Any:
    return np.asarray(x).astype(np.float64)


def apart(*calls):
    """No two results share memory, of one call or of several."""
    arrays = [x for call in calls for x in (call if isinstance(call, tuple) else (call,)) if x is not None]
    spans = sorted((x.unsafe_buffer_pointer(), x.unsafe_buffer_pointer() + x.nbytes) for x in arrays)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def refused(code, call, *words):
    with pytest.raises(LaunchError) as caught:
        call()
    assert caught.value.code == code
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("dtype", BITS)
def test_matmul(array, dtype):
    a, b = array(70, 96, dtype=dtype), array(40, 96, dtype=dtype)
    one, other = matmul(a, b.T), matmul(a, b.T)
    assert type(one) is type(a)
    assert str(one.dtype) == (dtype if BITS[dtype] > 3 else "bfloat16")
    apart(one, other, a, b)
    # float32 is multiplied as tf32, which has 10 bits, and sums of products of float8 have 13.
    bits = 10 if dtype == "float32" else 12 if dtype.startswith("float8") else 20
    error = np.abs(exact(a)) @ np.abs(exact(b).T) * 2.0**-bits
    error += np.abs(exact(a) @ exact(b).T) * 2.0 ** -(BITS[str(one.dtype)] + 1)
    assert (np.abs(exact(one) - exact(a) @ exact(b).T) <= error).all()
    np.testing.assert_array_equal(exact(one), exact(other))


def test_operands_that_are_packed(array):
    a, b = array(33, 37, dtype="float16"), array(29, 37, dtype="float16")
    np.testing.assert_allclose(exact(matmul(a, b.T)), exact(a) @ exact(b).T, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_softmax(array, dtype):
    x = array(7, 333, dtype=dtype)
    one, other = softmax(x), softmax(x)
    apart(one, other, x)
    powers = np.exp(exact(x) - exact(x).max(1, keepdims=True))
    assert one.dtype == x.dtype
    np.testing.assert_allclose(exact(one), powers / powers.sum(1, keepdims=True), rtol=2.0 ** -BITS[dtype] + 1e-5)


def test_rms_norm(array):
    x, weight, grad = array(5, 256), array(256), array(5, 256)
    done = rms_norm(x, weight, statistics=True)
    h, w, g = exact(x), exact(weight), exact(grad)
    r = 1 / np.sqrt((h * h).mean(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(exact(done.out), h * r * w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(exact(done.rstd), r[:, 0], rtol=1e-5)
    one, other = (rms_norm_backward(grad, x, weight, done.rstd) for _ in range(2))
    apart(one, other, done.out, done.rstd, x, weight, grad)
    dx = r * (g * w - h * r * (g * w * h * r).mean(1, keepdims=True))
    np.testing.assert_allclose(exact(one[0]), dx, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(exact(one[1]), (g * h * r).sum(0), rtol=1e-4, atol=1e-5)


def test_cross_entropy(array, jax):
    x = array(6, 500)
    labels = jax.device_put(np.random.default_rng(1).integers(0, 500, 6).astype(np.int32), x.device)
    losses, lse = cross_entropy(x, labels)
    apart((losses, lse), cross_entropy(x, labels))
    want = np.log(np.exp(exact(x)).sum(1))
    np.testing.assert_allclose(exact(lse), want, rtol=1e-5)
    np.testing.assert_allclose(exact(losses), want - exact(x)[np.arange(6), np.asarray(labels)], rtol=1e-5)


@pytest.mark.parametrize("columns", [500, 20_000])
def test_topk(array, columns):
    """Positions have 64 bits, although JAX makes no such arrays unless it is told to."""
    x = array(3, columns)
    values, places = topk(x, 5)
    apart((values, places), topk(x, 5))
    want = np.argsort(-exact(x), axis=1)[:, :5]
    assert places.dtype == np.int64
    assert np.asarray(places).nbytes == 8 * 15
    np.testing.assert_array_equal(np.asarray(places), want)
    np.testing.assert_array_equal(np.asarray(places.astype("int32")), want)
    np.testing.assert_array_equal(np.asarray(values), np.take_along_axis(np.asarray(x), want, 1))


def test_gradients_of_halves(array):
    """Slices of JAX arrays are copies, through which nothing can be written."""
    grad, x = array(6, 256), array(6, 512)
    gate, up = exact(x)[:, :256], exact(x)[:, 256:]
    s = 1 / (1 + np.exp(-gate))
    want = exact(grad) * np.stack([up * (s + gate * s * (1 - s)), gate * s])
    np.testing.assert_allclose(exact(swiglu_backward(grad, x)), np.concatenate(list(want), 1), rtol=1e-4, atol=1e-5)
    refused("kernels-rows-parameter", lambda: swiglu_backward(grad, x, out=x), "out", "JAX")


def test_cumsum(array):
    x = (array(3, 5000) * 8).astype("int32")
    one, other = cumsum(x), cumsum(x)
    apart(one, other, x)
    np.testing.assert_array_equal(np.asarray(one), np.cumsum(np.asarray(x), axis=1))
    assert cumsum(x, out=one) is one


def test_attention(array):
    q, k, v, grad = (array(1, 2, 100, 64, dtype="bfloat16") for _ in range(4))
    out, lse = attention(q, k, v, return_lse=True)
    apart((out, lse), attention(q, k, v, return_lse=True))
    scores = exact(q) @ exact(k).swapaxes(2, 3) / 8
    powers = np.exp(scores)
    weights = powers / powers.sum(3, keepdims=True)
    np.testing.assert_allclose(exact(out), weights @ exact(v), rtol=2e-2, atol=1e-2)
    np.testing.assert_allclose(exact(lse), np.log(powers.sum(3)), rtol=1e-3)
    dq, dk, dv = attention_backward(grad, q, k, v, out, lse)
    apart((dq, dk, dv), q, k, v, grad)
    dweights = exact(grad) @ exact(v).swapaxes(2, 3)
    dscores = weights * (dweights - (weights * dweights).sum(3, keepdims=True)) / 8
    np.testing.assert_allclose(exact(dv), weights.swapaxes(2, 3) @ exact(grad), rtol=3e-2, atol=2e-2)
    np.testing.assert_allclose(exact(dq), dscores @ exact(k), rtol=3e-2, atol=2e-2)
    np.testing.assert_allclose(exact(dk), dscores.swapaxes(2, 3) @ exact(q), rtol=3e-2, atol=2e-2)


def test_sort_experts(array):
    ids = (abs(array(300)) * 4).astype("int32") % 8
    found = sort_experts(ids, 8)
    apart(tuple(found), tuple(sort_experts(ids, 8)), ids)
    np.testing.assert_array_equal(np.asarray(found.order), np.argsort(np.asarray(ids), kind="stable"))
    np.testing.assert_array_equal(np.asarray(found.counts), np.bincount(np.asarray(ids), minlength=8))


def test_nothing_to_compute(array):
    assert softmax(array(0, 64)).shape == (0, 64)
    assert matmul(array(0, 64, dtype="float16"), array(64, 32, dtype="float16")).shape == (0, 32)
    assert not np.asarray(matmul(array(16, 0, dtype="float16"), array(0, 32, dtype="float16"))).any()
    assert not np.asarray(count_experts(array(0).astype("int32"), 8)).any()


def test_an_output_of_the_caller(array, jax):
    x = array(4, 64)
    out = jax.device_put(jax.numpy.zeros((4, 64)), x.device).block_until_ready()
    want = np.asarray(softmax(x))
    assert softmax(x, out) is out
    np.testing.assert_array_equal(np.asarray(out), want)
    np.testing.assert_array_equal(np.asarray(softmax(x, x)), want)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int8", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 4)])
def test_memory(array, jax, shape, dtype):
    """Arrays of one shape have memory of their own, also against JAX's constants."""
    x = array(2)
    one, other = (memory.empty_like(x, shape, dtype) for _ in range(2))
    assert (one.shape, one.dtype.name, one.device) == (shape, dtype, x.device)
    if one.size:
        apart(one, other)
    memory.fill(one, 1)
    memory.fill_zero(other)
    assert (exact(one) == 1).all()
    assert (exact(other) == 0).all()
    assert not exact(jax.numpy.zeros(shape, "float32")).any()
    kept = np.asarray(memory.zeros_kept(x, 5, None, "int64"))
    assert (kept.nbytes, kept.any()) == (40, False)


def test_results_are_committed_as_arguments_are(jax):
    free = jax.numpy.ones((2, 64))
    assert softmax(jax.device_put(free, jax.devices("cpu")[0])).committed
    with jax.default_device(jax.devices("cpu")[0]):
        assert not softmax(jax.numpy.ones((2, 64))).committed


def test_arrays_without_numbers(array, jax):
    gone = array(2, 64)
    gone.delete()
    refused("launch-array-form", lambda: softmax(gone), "deleted")
    x = array(2, 64)
    refused("launch-array-form", lambda: jax.jit(softmax)(x), "jax.jit")
    refused("launch-array-form", lambda: jax.grad(lambda x: softmax(x).sum())(x), "jax.grad")


SEVERAL = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from weft.errors import LaunchError
from weft.kernels import softmax

x, (_, second) = jax.numpy.ones((4, 64)), jax.devices("cpu")
y = softmax(jax.device_put(x, second))
assert y.device == second and np.asarray(y).sum() == 4, y
try:
    softmax(jax.device_put(x, NamedSharding(Mesh(jax.devices("cpu"), "x"), PartitionSpec("x"))))
except LaunchError as error:
    print(error)
"""


@pytest.mark.usefixtures("jax")
def test_several_devices():
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL], env={**os.environ, **flags}, capture_output=True, text=True, check=False
    )
    assert "it lies on several devices" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("typestr", "number", "filled"),
    [("<f4", 0, (8, 64, 0, 24)), ("<f4", 1, (32, 64, 0x3F800000, 6)), ("<i4", -1, (32, 64, 0xFFFFFFFF, 6))],
)
def test_fills_on_a_gpu(monkeypatch, typestr, number, filled):
    cuda = fake_driver.install_driver(monkeypatch)
    memory.fill(FakeJaxArray(64, typestr, shape=(2, 3)), number)
    memory.fill(FakeJaxArray(0, typestr, shape=(0, 3)), number)
    assert cuda.filled == [filled]
    assert len(cuda.waited) == 1
    fake_driver.forget_devices()
