"""Rows that begin anywhere: odd lengths, distances and first elements, among neighbours that no kernel may read or write."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import Device
from tests.cuda.build import needs_nvrtc
from tests.kernels_lib.rows import MATRIX, TYPES, Recorder, close, launched_twice
from tests.kernels_lib.test_losses import expected as cross_entropies
from tests.kernels_lib.test_norms import normalised
from tests.kernels_lib.test_softmax import expected as softmaxes
from weft.kernels import (
    RowConfig,
    cross_entropy,
    cross_entropy_backward,
    layer_norm,
    log_softmax,
    log_softmax_backward,
    rms_norm,
    rowwise,
    sample,
    softmax,
    softmax_backward,
)
from weft.kernels.device.losses import cross_entropy_clusters
from weft.kernels.device.norms import normalise
from weft.kernels.device.softmax import softmax_rows
from weft.kernels.rows import losses, norms
from weft.kernels.rows.operands import access_of, lines_of

ROWS = [
    # Rows, columns, elements from row to row, elements before the first.
    (5, 513, 513, 0), (3, 1001, 1003, 1), (2, 2047, 2047, 3), (2, 4091, 4096, 5), (2, 9000, 9001, 2), (3, 20_003, 20_003, 7),
    pytest.param((1, 50_257, 50_259, 6), marks=MATRIX), pytest.param((2, 100_003, 100_003, 1), marks=MATRIX),
]  # fmt: skip


class Padded:
    """An array of rows within a larger one, which is NaN elsewhere."""

    def __init__(self, device, values, pitch, before):
        rows, cols = values.shape
        self.around = np.full(before + rows * pitch + 64, np.nan, values.dtype)
        self._rows(self.around, before, pitch, values.shape)[:] = values
        self.device, self.given = device, device.array(self.around)
        self.array = self._rows(self.given, before, pitch, values.shape)
        self.place = before, pitch, values.shape

    @staticmethod
    def _rows(flat, before, pitch, shape):
        rows, cols = shape
        return flat[before : before + rows * pitch].reshape(rows, pitch)[:, :cols]

    @property
    def values(self):
        """The rows; raises AssertionError if anything else was written."""
        now = self.device.numpy(self.given)
        found = np.array(self._rows(now, *self.place))
        left = np.array(now)
        self._rows(left, *self.place)[:] = self._rows(self.around, *self.place)
        np.testing.assert_array_equal(left.view(np.uint8), self.around.view(np.uint8))
        return found


def padded(device, rng, shape, dtype, *values):
    """Random rows of a shape, or the given ones."""
    rows, cols, pitch, before = shape
    made = values[0] if values else (rng.standard_normal((rows, cols)) * 3).astype(TYPES[dtype])
    return made, Padded(device, made, pitch, before)


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("shape", ROWS)
def test_softmax(device, rng, shape, dtype):
    values, x = padded(device, rng, shape, dtype)
    _, out = padded(device, rng, (*shape[:3], shape[3] + 16), dtype)
    want = softmaxes(values)
    softmax(x.array, out.array)
    close(out.values, want)
    log_softmax(x.array, out.array)
    close(out.values, np.log(want))
    softmax(x.array, x.array)
    close(x.values, want)


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("shape", ROWS)
def test_softmax_backward(device, rng, shape, dtype):
    upper, grad = padded(device, rng, (*shape[:3], shape[3] + 8), dtype)
    values, _ = padded(device, rng, shape, dtype)
    y = softmaxes(values)
    for function, given in ((softmax_backward, y), (log_softmax_backward, np.log(y))):
        rounded = given.astype(TYPES[dtype])
        _, of = padded(device, rng, shape, dtype, rounded)
        _, out = padded(device, rng, shape, dtype)
        function(grad.array, of.array, out.array)
        g, p = upper.astype(np.float64), rounded.astype(np.float64)
        want = p * (g - (g * p).sum(1, keepdims=True))
        if function is log_softmax_backward:
            want = g - np.exp(p) * g.sum(1, keepdims=True)
        close(out.values, want)


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("shape", ROWS)
def test_norms(device, rng, shape, dtype):
    values, x = padded(device, rng, shape, dtype)
    second, residual = padded(device, rng, (*shape[:3], shape[3] + 8), dtype)
    weight, bias = (rng.standard_normal(shape[1]).astype(TYPES[dtype]) for _ in range(2))
    given = [device.array(each) for each in (weight, bias)]
    _, out = padded(device, rng, (*shape[:3], shape[3] + 16), dtype)
    rms_norm(x.array, given[0], out=out.array)
    close(out.values, normalised(values, weight))
    layer_norm(x.array, *given, out=out.array)
    close(out.values, normalised(values, weight, bias, True, 1e-5))
    _, total = padded(device, rng, (*shape[:3], shape[3] + 24), dtype)
    rms_norm(x.array, given[0], residual=residual.array, total=total.array, out=out.array)
    added = (values.astype(np.float32) + second.astype(np.float32)).astype(TYPES[dtype])
    close(total.values, added)
    close(out.values, normalised(added, weight))


@pytest.mark.parametrize("numbers", [{}, {"label_smoothing": 0.1, "z_loss": 1e-2}])
@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("shape", ROWS)
def test_cross_entropy(device, rng, shape, dtype, numbers):
    values, x = padded(device, rng, shape, dtype)
    _, grad = padded(device, rng, (*shape[:3], shape[3] + 24), dtype)
    labels = rng.integers(0, shape[1], shape[0])
    labels[-1] = shape[1] - 1
    want = cross_entropies(values, labels, **numbers)
    given = device.array(labels)
    loss, lse = cross_entropy(x.array, given, **numbers)
    close(device.numpy(loss), want[0])
    close(device.numpy(lse), want[1])
    loss, _ = cross_entropy(x.array, given, grad=grad.array, **numbers)
    close(device.numpy(loss), want[0])
    close(grad.values, want[2])
    cross_entropy_backward(1.0, x.array, given, lse, out=grad.array, **numbers)
    close(grad.values, want[2])
    cross_entropy(x.array, given, grad=x.array, **numbers)
    close(x.values, want[2])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("power", [10, 11, 12])
def test_lengths_near_a_power_of_two(device, rng, power, dtype):
    """What is before a row makes its tile as long as can be, or one too long."""
    for cols in range(2**power - 9, 2**power + 2):
        values, x = padded(device, rng, (2, cols, cols, 0), dtype)
        labels = rng.integers(0, cols, 2)
        want = cross_entropies(values, labels)
        _, grad = padded(device, rng, (2, cols, cols, 0), dtype)
        loss, _ = cross_entropy(x.array, device.array(labels), grad=grad.array)
        close(device.numpy(loss), want[0])
        close(grad.values, want[2])
        softmax(x.array, grad.array)
        close(grad.values, softmaxes(values))


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 598, 599, 2), (2, 1001, 1003, 5)])
def test_both_stages(rng, shape, ahead, monkeypatch):
    """What a copy takes along from before a row is no access of it, also where a program overwrites the rows that it copies."""
    for module in (rowwise, losses):
        monkeypatch.setattr(module, "launched", launched_twice)
    device, config = Device("sim"), RowConfig(programs=1, ahead=ahead)
    values, x = padded(device, rng, shape, "float16")
    softmax(x.array, x.array, config=config)
    close(x.values, softmaxes(values))
    values, x = padded(device, rng, shape, "float16")
    labels = rng.integers(0, shape[1], shape[0])
    cross_entropy(x.array, labels, grad=x.array, config=config)
    close(x.values, cross_entropies(values, labels)[2])


@pytest.mark.parametrize("shape", ROWS)
def test_sample(device, rng, shape):
    values, x = padded(device, rng, shape, "float32")
    np.testing.assert_array_equal(device.numpy(sample(x.array, seed=1, temperature=0.0)), values.argmax(1))


def test_which_rows_are_accessed_in_vectors():
    def chosen(cols, pitch, before=0, dtype=np.float16, other=0):
        x, y = (np.zeros(2 * pitch + 64, dtype)[at:][: 2 * pitch].reshape(2, pitch)[:, :cols] for at in (before, other))
        return access_of(None, lines_of("softmax", "x", x), lines_of("softmax", "y", y))

    assert chosen(50_256, 50_256) == (8, 0)
    assert chosen(50_257, 50_257) == (8, 8)
    assert chosen(50_256, 50_256, 3, other=11) == (8, 8), (
        "both arrays begin at the same distance from an aligned address"
    )
    assert chosen(50_256, 50_256, 3, other=4) == (1, 0), "they do not"
    assert chosen(50_257, 50_257, dtype=np.float32) == (4, 4)
    assert chosen(500, 501) == (1, 0), "short rows"
    assert chosen(8191, 8191) == (1, 0), "tiles would be half empty"
    assert chosen(262_143, 262_143) == (1, 0), "no cluster has so many columns"


@pytest.mark.parametrize(("module", "name", "kernel"), [
    (rowwise, "softmax_rows", softmax_rows), (losses, "cross_entropy_clusters", cross_entropy_clusters),
])  # fmt: skip
def test_they_are_copied_ahead_in_vectors(module, name, kernel, monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(module, name, recorder)
    monkeypatch.setattr(module, "persistent", lambda *_: 1)
    x = np.zeros((3, 50_257), np.float16)
    if module is rowwise:
        softmax(x, np.empty_like(x))
    else:
        cross_entropy(x, np.zeros(3, np.int64), grad=np.empty_like(x))
    ((arguments, options),) = recorder.given
    text = kernel.warmup(*arguments, **options, target="sm_90a").asm["cuda"]
    assert "copy_async_16_part(" in text and "store_f16x8_if(" in text and "store_f16x8_part(" in text


@pytest.mark.parametrize("shape", ROWS)
def test_layer_norm_of_vectors(device, rng, shape):
    """Also without vectors of its own, with what a backward pass needs, and in 8 bits."""
    values, x = padded(device, rng, shape, "bfloat16")
    want = normalised(values, np.ones(shape[1]), None, True, 1e-5)
    _, out = padded(device, rng, (*shape[:3], shape[3] + 8), "bfloat16")
    done = layer_norm(x.array, out=out.array, statistics=True)
    close(out.values, want)
    close(device.numpy(done.mean), values.astype(np.float64).mean(1))
    small = layer_norm(x.array, out_dtype="int8")
    scaled = device.numpy(small.out).astype(np.float64) * device.numpy(small.scales)[:, None]
    np.testing.assert_allclose(scaled, want, atol=0.51 * np.abs(want).max() / 127)


@needs_nvrtc
@pytest.mark.parametrize(
    ("cols", "vectors", "residual", "want"),
    [
        (2007, 1, False, True),
        (5003, 1, False, False),  # more elements of the weight than that is worth
        (5003, 1, True, True),
        (1001, 2, False, True),
        (2007, 2, True, False),
        (20_003, 0, False, False),  # a mean over a cluster
        (20_003, 1, True, True),
    ],
)
def test_which_norms_are_read_in_vectors(monkeypatch, cols, vectors, residual, want):
    recorder = Recorder()
    monkeypatch.setattr(norms, "normalise", recorder)
    monkeypatch.setattr(norms, "persistent", lambda *_: 1)
    x = np.zeros((3, cols), np.float16)
    weight, more = np.zeros(cols, np.float16), {"residual": x.copy()} if residual else {}
    mean = vectors == 2 or (not residual and vectors == 0)
    (layer_norm if mean else rms_norm)(x, *[weight] * vectors, **more)
    ((arguments, options),) = recorder.given
    assert bool(arguments[-1].align) is want
    if want:
        assert normalise.warmup(*arguments, **options, target="sm_90a").n_spills == 0
