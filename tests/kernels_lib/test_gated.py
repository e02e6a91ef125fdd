"""`swiglu` and `geglu`, of two arrays and of packed ones, against float64 and finite differences."""

from __future__ import annotations

import math
import re

import ml_dtypes
import numpy as np
import pytest

from tests.kernels_lib.rows import COLUMNS, MATRIX, TYPES, Recorder, close, poisoned, slope
from tests.kernels_lib.test_errors import refused
from weft.kernels import geglu, geglu_backward, swiglu, swiglu_backward
from weft.kernels.device.gated import gate_backward_rows, gate_rows
from weft.kernels.rows import gated
from weft.runtime import nvrtc

erf = np.vectorize(math.erf, otypes=[float])


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


KINDS = {
    "silu": (silu, swiglu, swiglu_backward, {}),
    "gelu": (gelu, geglu, geglu_backward, {}),
    "gelu_tanh": (gelu_tanh, geglu, geglu_backward, {"approximate": "tanh"}),
}


def arrays(rng, shape, dtype=np.float32, count=3):
    return [(rng.standard_normal(shape) * 2).astype(dtype) for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "dtype", ["bfloat16", pytest.param("float16", marks=MATRIX), pytest.param("float32", marks=MATRIX)]
)
@pytest.mark.parametrize("cols", COLUMNS)
def test_forward(device, rng, cols, dtype, kind):
    function, forward, _, options = KINDS[kind]
    gate, up = arrays(rng, (3, cols), TYPES[dtype], 2)
    out, want = poisoned(device, gate.shape, gate.dtype), function(gate.astype(np.float64)) * up.astype(np.float64)
    assert forward(device.array(gate), device.array(up), out=out, **options) is out
    close(device.numpy(out), want)
    packed = device.array(np.concatenate([gate, up], 1))
    close(device.numpy(forward(packed, **options)), want)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(device, rng, kind):
    """By the slope, of two arrays and over a packed one."""
    function, _, backward, options = KINDS[kind]
    gate, up, grad = arrays(rng, (2, 3, 5))
    wide = [each.astype(np.float64) for each in (gate, up)]
    of_gate = slope(lambda x: function(x) * wide[1], wide[0], grad)
    of_up = function(wide[0]) * grad
    found = backward(*map(device.array, (grad, gate, up)), **options)
    for got, want in zip(found, (of_gate, of_up), strict=True):
        close(device.numpy(got), want, 1e-4)
    packed = device.array(np.concatenate([gate, up], -1))
    assert backward(device.array(grad), packed, out=packed, **options) is packed
    close(device.numpy(packed), np.concatenate([of_gate, of_up], -1), 1e-4)


def test_gradients_over_inputs(device, rng):
    gate, up, grad = arrays(rng, (4, 300))
    given = [device.array(each) for each in (gate, up)]
    found = swiglu_backward(device.array(grad), *given, out=tuple(given))
    assert found[0] is given[0] and found[1] is given[1]
    s = 1 / (1 + np.exp(-gate.astype(np.float64)))
    close(device.numpy(given[0]), grad * up * s * (1 + gate * (1 - s)), 1e-4)
    close(device.numpy(given[1]), grad * gate * s, 1e-4)


def test_values_that_are_not_finite(device):
    """As in PyTorch: silu(-inf) is NaN by the formula x * sigmoid(x)."""
    gate = device.array(np.array([[np.nan, np.inf, -200.0, 200.0, -np.inf]], np.float32))
    y = device.numpy(swiglu(gate, device.array(np.ones((1, 5), np.float32))))
    np.testing.assert_allclose(y, [[np.nan, np.inf, 0, 200, np.nan]], atol=1e-30)


def test_empty(device):
    none = device.array(np.zeros((0, 6), np.float32))
    assert swiglu(none).shape == (0, 3) and geglu(none, none).shape == (0, 6)
    assert swiglu_backward(none[:, :3], none).shape == (0, 6)


def test_mistakes():
    x = np.zeros((4, 7), np.float32)
    refused("kernels-rows-shape", lambda: swiglu(x), "gate has shape [4, 7]", "even")
    refused("kernels-rows-shape", lambda: swiglu(x, x[:2]), "up has shape [2, 7]")
    refused("kernels-rows-shape", lambda: swiglu_backward(x[:2], x, x), "grad has shape [2, 7]")
    refused("kernels-rows-parameter", lambda: geglu(x, x, approximate="erf"), "approximate='erf'", "tanh")
    refused("kernels-rows-strides", lambda: swiglu(x.T, x.T), "gate has shape [7, 4]")
    refused("kernels-out-overlaps", lambda: swiglu(x[:2], x[:2], out=x[1:3]), "gate")


@pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")
@pytest.mark.parametrize("kind", ["silu", *(pytest.param(kind, marks=MATRIX) for kind in ("gelu", "gelu_tanh"))])
def test_machine_code(monkeypatch, kind):
    """16 bytes an access, all loads before the first use, no spills."""
    _, forward, backward, options = KINDS[kind]
    recorders = {"gate_rows": Recorder(), "gate_backward_rows": Recorder()}
    for name, recorder in recorders.items():
        monkeypatch.setattr(gated, name, recorder)
    x = np.zeros((64, 14336), ml_dtypes.bfloat16)
    forward(x, x, **options)
    backward(x, x, x, **options)
    for kernel, recorder, loads in zip((gate_rows, gate_backward_rows), recorders.values(), (4, 6), strict=True):
        ((arguments, launched),) = recorder.given
        compiled = kernel.warmup(*arguments, **launched, target="sm_90a")
        code = compiled.asm["sass"]
        assert compiled.n_spills == 0 and compiled.n_regs <= 96
        assert len(re.findall(r"LDG\.", code)) == len(re.findall(r"LDG\S*\.128", code)) == loads
