"""`rms_norm` and `layer_norm`, forward and backward, against float64 and finite differences."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from tests.kernels_lib.rows import COLUMNS, MATRIX, TYPES, Recorder, close, poisoned, slope
from tests.kernels_lib.test_errors import Elsewhere, refused
from weft.kernels import RowConfig, layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from weft.kernels.device.norms import normalise, normalise_backward
from weft.kernels.rows import norms
from weft.kernels.rows.choice import chosen_moments, chosen_sums
from weft.runtime import nvrtc

LAYOUTS = [
    RowConfig(1, 1), RowConfig(1, 4, each=8), RowConfig(2, 1), pytest.param(RowConfig(4, 2, programs=2), marks=MATRIX)
]  # fmt: skip


def normalised(x, weight, bias=None, centred=False, eps=1e-6):
    """The formula in float64."""
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
        wide = wide - wide.mean(-1, keepdims=True) if centred else wide
        y = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + eps)
        return y * weight.astype(np.float64) + (0 if bias is None else bias.astype(np.float64))


def numbers(rng, *shape, dtype=np.float32, scale=1.0, shift=0.0):
    return (rng.standard_normal(shape) * scale + shift).astype(dtype)


@pytest.mark.parametrize(
    "dtype", ["bfloat16", pytest.param("float16", marks=MATRIX), pytest.param("float32", marks=MATRIX)]
)
@pytest.mark.parametrize("cols", COLUMNS)
def test_rms_norm(device, rng, cols, dtype):
    x, weight = numbers(rng, 3, cols, dtype=TYPES[dtype]), numbers(rng, cols, dtype=TYPES[dtype])
    out = poisoned(device, x.shape, x.dtype)
    assert rms_norm(device.array(x), device.array(weight), out=out) is out
    close(device.numpy(out), normalised(x, weight))


@pytest.mark.parametrize("cols", COLUMNS)
def test_layer_norm_of_a_large_mean(device, rng, cols):
    x, weight, bias = numbers(rng, 5, cols, shift=1000.0), numbers(rng, cols), numbers(rng, cols)
    y = layer_norm(*map(device.array, (x, weight, bias)))
    close(device.numpy(y), normalised(x, weight, bias, True, 1e-5), 3e-4)


@pytest.mark.parametrize("config", LAYOUTS, ids=str)
@pytest.mark.parametrize("cols", [40, 517])
def test_layouts(device, rng, config, cols):
    """Several rows to a program, and rows over the blocks of a cluster, by few programs."""
    x, weight, bias, grad = numbers(rng, 7, cols), numbers(rng, cols), numbers(rng, cols), numbers(rng, 7, cols)
    given = [device.array(each) for each in (x, weight, bias)]
    done = layer_norm(*given, statistics=True, config=config)
    close(device.numpy(done.out), normalised(x, weight, bias, True, 1e-5))
    few = RowConfig(config.num_ctas, config.num_warps, config.each, programs=2)
    dx, dw, db = layer_norm_backward(device.array(grad), given[0], given[1], done.mean, done.rstd, config=few)
    normal = normalised(x, np.ones(cols), None, True, 1e-5)
    close(device.numpy(db), grad.astype(np.float64).sum(0))
    close(device.numpy(dw), (grad * normal).sum(0))
    g = grad * weight.astype(np.float64)
    want = g - g.mean(1, keepdims=True) - normal * (g * normal).mean(1, keepdims=True)
    close(device.numpy(dx), want / np.sqrt(x.astype(np.float64).var(1, keepdims=True) + 1e-5))


@pytest.mark.parametrize(("cols", "config"), [
    (2100, RowConfig(4, 2)), (4097, RowConfig(4, 2)), (6008, RowConfig(4, 2)), (200, RowConfig(16, 4)),
    (3000, RowConfig(8, 1, ahead=0)),
])  # fmt: skip
def test_blocks_of_a_cluster_have_about_as_many_columns(device, rng, cols, config):
    """Also where fewer blocks could hold the row, and where some have none."""
    x, weight, bias, grad = numbers(rng, 3, cols), numbers(rng, cols), numbers(rng, cols), numbers(rng, 3, cols)
    given = [device.array(each) for each in (x, weight, bias)]
    done = layer_norm(*given, statistics=True, config=config)
    close(device.numpy(done.out), normalised(x, weight, bias, True, 1e-5))
    close(device.numpy(done.mean), x.astype(np.float64).mean(1))
    _, dw, db = layer_norm_backward(device.array(grad), *given[:2], done.mean, done.rstd, config=config)
    close(device.numpy(db), grad.astype(np.float64).sum(0))
    close(device.numpy(dw), (grad * normalised(x, np.ones(cols), None, True, 1e-5)).sum(0))


@pytest.mark.parametrize("centred", [False, True])
def test_gradients_are_the_slope(device, rng, centred):
    x, weight, bias, grad = (numbers(rng, *shape) for shape in ((3, 9), (9,), (9,), (3, 9)))
    given = [device.array(each) for each in (x, weight)]
    if centred:
        done = layer_norm(*given, device.array(bias), statistics=True)
        dx, dw, _ = layer_norm_backward(device.array(grad), *given, done.mean, done.rstd)
    else:
        done = rms_norm(*given, statistics=True, eps=1e-5)
        dx, dw = rms_norm_backward(device.array(grad), *given, done.rstd)
    wide = x.astype(np.float64), weight.astype(np.float64)
    close(device.numpy(dx), slope(lambda x: normalised(x, weight, None, centred, 1e-5), wide[0], grad), 1e-4)
    close(device.numpy(dw), slope(lambda w: normalised(x, w, None, centred, 1e-5), wide[1], grad), 1e-4)


@pytest.mark.parametrize("config", [RowConfig(), RowConfig(2, 1, programs=3)], ids=str)
def test_residual(device, rng, config):
    """h is rounded to the residual's type before it is normalised; its gradient flows to both."""
    x, residual = numbers(rng, 4, 264, dtype=ml_dtypes.bfloat16), numbers(rng, 4, 264)
    weight, grad, above = numbers(rng, 264), numbers(rng, 4, 264, dtype=ml_dtypes.bfloat16), numbers(rng, 4, 264)
    done = rms_norm(
        device.array(x), device.array(weight), residual=device.array(residual), statistics=True, config=config
    )
    h = x.astype(np.float32) + residual
    np.testing.assert_array_equal(device.numpy(done.total), h)
    assert done.mean is None and done.scales is None
    close(device.numpy(done.out), normalised(h, weight))
    close(device.numpy(done.rstd), 1 / np.sqrt((h.astype(np.float64) ** 2).mean(1) + 1e-6))
    dx, _ = rms_norm_backward(
        device.array(grad), done.total, device.array(weight), done.rstd, added=device.array(above), config=config
    )
    normal, g = normalised(h, np.ones(264)), grad.astype(np.float64) * weight
    want = (g - normal * (g * normal).mean(1, keepdims=True)) * device.numpy(done.rstd).astype(np.float64)[:, None]
    close(device.numpy(dx), want + above)


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("config", [RowConfig(), pytest.param(RowConfig(2, 1), marks=MATRIX)], ids=str)
def test_eight_bits(device, rng, dtype, config):
    x, weight = numbers(rng, 5, 300), numbers(rng, 300)
    x[2] = 0
    done = layer_norm(device.array(x), device.array(weight), out_dtype=dtype, config=config)
    want, scales = normalised(x, weight, None, True, 1e-5), device.numpy(done.scales).astype(np.float64)
    most = {"int8": 127, "float8_e4m3fn": 448, "float8_e5m2": 57344}[dtype]
    np.testing.assert_allclose(scales, np.abs(want).max(1) / most, rtol=1e-5, atol=1e-30)
    got = device.numpy(done.out).astype(np.float64) * scales[:, None]
    # Half a step of the type: of integers the same everywhere, of floats in proportion.
    step = {"int8": scales[:, None] * 0.501, "float8_e4m3fn": np.abs(want) / 16, "float8_e5m2": np.abs(want) / 8}[dtype]
    assert np.all(np.abs(got - want) <= step * 1.001 + scales[:, None] * 2.0**-9 + 1e-12)
    assert np.all(got[2] == 0)


def test_gradients_repeat_to_the_bit(device, rng):
    x, grad, weight = numbers(rng, 50, 96), numbers(rng, 50, 96), numbers(rng, 96)
    given = [device.array(each) for each in (grad, x, weight)]
    rstd = rms_norm(given[1], statistics=True).rstd
    found = [device.numpy(rms_norm_backward(*given, rstd, config=RowConfig(programs=5))[1]) for _ in range(2)]
    np.testing.assert_array_equal(*found)


def test_strides_and_in_place(device, rng):
    """Rows that lie apart, three dimensions, and an output over its input; what lies between rows stays."""
    wide = numbers(rng, 2, 5, 40)
    given, weight = device.array(wide), np.ones(24, np.float32)
    part = given[:, :, 8:32]
    assert rms_norm(part, device.array(weight), out=part) is part
    left = device.numpy(given)
    np.testing.assert_array_equal(left[:, :, :8], wide[:, :, :8])
    np.testing.assert_array_equal(left[:, :, 32:], wide[:, :, 32:])
    close(left[:, :, 8:32].copy(), normalised(wide[:, :, 8:32], weight))


def test_values_that_are_not_finite(device):
    x = np.ones((4, 130), np.float32)
    x[0, 5], x[1, 129], x[3] = np.nan, np.inf, 0
    y = device.numpy(rms_norm(device.array(x)))
    assert np.isnan(y[0]).all() and np.isnan(y[1, 129]) and (y[1, :129] == 0).all()
    np.testing.assert_allclose(y[2], 1, rtol=1e-5)
    assert (y[3] == 0).all()
    assert np.isnan(device.numpy(layer_norm(device.array(x)))[:2]).all()


def test_empty(device):
    none = device.array(np.zeros((0, 5), np.float32))
    assert rms_norm(none).shape == (0, 5)
    assert layer_norm(device.array(np.zeros((3, 0), np.float32))).shape == (3, 0)
    weight, numbers_of_rows = device.array(np.ones(5, np.float32)), device.array(np.zeros(0, np.float32))
    dx, dw, db = layer_norm_backward(none, none, weight, numbers_of_rows, numbers_of_rows)
    assert dx.shape == (0, 5) and not device.numpy(dw).any() and not device.numpy(db).any()


def test_mistakes():
    x, w = np.zeros((4, 64), np.float32), np.zeros(64, np.float32)
    refused("kernels-rows-array", lambda: rms_norm([1.0]), "rms_norm", "x is a list")
    refused("kernels-rows-array", lambda: layer_norm(np.ones((), np.float32)), "without a last axis")
    refused("kernels-rows-dtype", lambda: rms_norm(x.astype(np.int32)), "int32", "bfloat16")
    refused("kernels-rows-dtype", lambda: rms_norm(x, out_dtype="int16"), "int16", "float8_e4m3fn")
    refused("kernels-rows-strides", lambda: rms_norm(x.T), "x has shape [64, 4] and strides [1, 64]", "2048 bytes")
    refused("kernels-rows-strides", lambda: rms_norm(np.zeros((4, 6, 8), np.float32)[:, :3]), "[4, 3, 8]")
    refused("kernels-rows-shape", lambda: rms_norm(x, w[:5]), "weight has shape [5]", "[64]")
    refused("kernels-rows-shape", lambda: rms_norm(x, residual=x[:2]), "residual has shape [2, 64]", "[4, 64]")
    refused("kernels-rows-strides", lambda: rms_norm(x, np.zeros(128, np.float32)[::2]), "weight", "[2]")
    refused("kernels-rows-devices", lambda: rms_norm(x, Elsewhere(w, 1)), "x lies on the host, weight on GPU 1")
    refused("kernels-rows-parameter", lambda: rms_norm(x, eps=-1.0), "eps=-1.0")
    refused("kernels-rows-parameter", lambda: rms_norm(x, total=x), "total")
    refused("kernels-rows-columns", lambda: rms_norm(np.zeros((1, 300_000), np.float32)), "300000", "262144")
    refused("kernels-out-overlaps", lambda: rms_norm(x[:2], out=x[1:3]), "x")
    refused("kernels-out-repeats", lambda: rms_norm(x, out=np.lib.stride_tricks.as_strided(w, (4, 64), (0, 4))))


@pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")
@pytest.mark.parametrize("cols", [4096, *(pytest.param(cols, marks=MATRIX) for cols in (128, 8192, 16384, 65536))])
def test_machine_code(monkeypatch, cols):
    """16 bytes an access, no spills, and at most the registers for the rows in flight: 64 for 32 elements of a thread."""
    forward, backward = Recorder(), Recorder()
    monkeypatch.setattr(norms, "normalise", forward)
    monkeypatch.setattr(norms, "normalise_backward", backward)
    monkeypatch.setattr(norms, "persistent", lambda *_: 1)
    monkeypatch.setattr(norms, "added", lambda *_: None)
    x = np.zeros((1024, cols), ml_dtypes.bfloat16)
    weight, rstd = np.zeros(cols, x.dtype), np.zeros(1024, np.float32)
    rms_norm(x, weight, out=x)
    rms_norm_backward(x, x, weight, rstd, out=x)
    for kernel, (recorded,) in ((normalise, forward.given), (normalise_backward, backward.given)):
        arguments, options = recorded
        plan = arguments[-1]
        most = 64 if kernel is normalise and plan.each <= 32 else 128
        compiled = kernel.warmup(*arguments, **options, target="sm_90a")
        code = compiled.asm["sass"]
        assert compiled.n_spills == 0 and compiled.n_regs <= most
        copies = re.findall(r"LDG\S*\.128|LDGSTS\S*\.128", code)
        assert len(copies) >= plan.each // plan.vec and not re.search(r"(LDG|STG)\.E\.(U16|64)", code)


@pytest.mark.matrix
@pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")
@pytest.mark.parametrize("cols", [128, 4096, 16384, 65536])
def test_machine_code_of_two_sums(monkeypatch, cols):
    """Two sums over rows take more registers of smaller blocks, and are not spilled."""
    recorder = Recorder()
    monkeypatch.setattr(norms, "normalise_backward", recorder)
    monkeypatch.setattr(norms, "persistent", lambda *_: 1)
    monkeypatch.setattr(norms, "added", lambda *_: None)
    x, weight, numbers_of_rows = (np.zeros(shape, ml_dtypes.bfloat16) for shape in ((64, cols), cols, 64))
    layer_norm_backward(x, x, weight, *[numbers_of_rows.astype(np.float32)] * 2)
    ((arguments, options),) = recorder.given
    assert normalise_backward.warmup(*arguments, **options, target="sm_90a").n_spills == 0


@pytest.mark.parametrize(
    ("cols", "few", "want"),
    [
        (128, True, RowConfig()),  # short
        (768, True, RowConfig(1, 2, 64, ahead=0)),
        (1536, True, RowConfig(1, 2, 40, ahead=0)),
        (5120, True, RowConfig(1, 4, 72, ahead=0)),
        (10240, True, RowConfig(1, 8, 64)),
        (16384, True, RowConfig(1, 16)),
        (768, False, RowConfig(1, 2)),
        (5120, False, RowConfig(1, 4, 64)),
        (9216, False, RowConfig(1, 16)),
    ],
)
def test_layer_norm_of_few_registers_takes_few_warps(cols, few, want):
    assert chosen_moments(cols, few=few, short=True) == want


@pytest.mark.parametrize(
    ("cols", "one", "both"),
    [
        (512, RowConfig(), RowConfig()),
        (1024, RowConfig(1, 4, 8), RowConfig(1, 4, 8)),
        (2048, RowConfig(1, 4, 16), RowConfig(1, 4, 16)),
        (4096, RowConfig(1, 8, 16), RowConfig(1, 4)),
        (5120, RowConfig(1, 8), RowConfig(2, 4)),
        (8192, RowConfig(4, 4), RowConfig(2, 4)),
        (16384, RowConfig(1, 16), RowConfig(4, 4)),
    ],
)
def test_sums_over_rows_are_by_small_blocks(cols, one, both):
    assert (chosen_sums(cols, both=False), chosen_sums(cols, both=True)) == (one, both)
