"""Rows that programs draw by tickets: every row once, whatever programs there are, and again in the next launch."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels_lib.rows import close, poisoned
from weft.kernels import RowConfig, cross_entropy, layer_norm, log_softmax, rms_norm, rowwise, softmax
from weft.kernels.rows import launch, losses, norms
from weft.kernels.rows.plan import plan_of

CONFIGS = [
    RowConfig(1, 8, each=8, programs=2, ahead=1), RowConfig(2, 2, programs=2, ahead=1), RowConfig(4, 1, programs=3, ahead=1),
    RowConfig(2, 1, programs=1, ahead=1),
]  # fmt: skip
ROWS, COLS = 23, 1024


def power(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def moment(x, centred):
    x = x - x.mean(1, keepdims=True) if centred else x
    return x / np.sqrt((x * x).mean(1, keepdims=True) + (1e-5 if centred else 1e-6))


OPS = {
    "softmax": (softmax, power),
    "log_softmax": (log_softmax, lambda x: np.log(power(x))),
    "rms_norm": (rms_norm, lambda x: moment(x, False)),
    "layer_norm": (layer_norm, lambda x: moment(x, True)),
}


@pytest.fixture
def counters(device, monkeypatch):
    """The counters of launches, one array for all of them."""
    kept, given = device.full((1,), 0, np.int32), []

    def counter_of(plan, like, stream):
        given.append(plan.tickets)
        return kept if plan.tickets else None

    for module in (rowwise, norms, losses):
        monkeypatch.setattr(module, "counter_of", counter_of)
    yield
    assert given and all(given) and device.numpy(kept)[0] == 0


@pytest.mark.parametrize(
    "config", [pytest.param(each, marks=pytest.mark.matrix) if each.num_ctas > 2 else each for each in CONFIGS], ids=str
)
@pytest.mark.parametrize("op", OPS)
def test_every_row_once(device, rng, counters, op, config):
    function, exact = OPS[op]
    for cols in (COLS, COLS - 100):
        x = (rng.standard_normal((ROWS, cols)) * 3).astype(np.float32)
        out = poisoned(device, x.shape, x.dtype)
        for _ in range(2):
            out[...] = poisoned(device, x.shape, x.dtype)
            function(device.array(x), out=out, config=config)
            close(device.numpy(out), exact(x.astype(np.float64)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("config", CONFIGS[1:], ids=str)
def test_losses(device, rng, counters, config, smoothing):
    x, labels = (rng.standard_normal((ROWS, COLS)) * 3).astype(np.float32), rng.integers(0, COLS, ROWS)
    wide = x.astype(np.float64)
    for _ in range(2):
        grad = poisoned(device, x.shape, x.dtype)
        found, _ = cross_entropy(
            device.array(x), device.array(labels), label_smoothing=smoothing, grad=grad, config=config
        )
        p, rows = power(wide), np.arange(ROWS)
        logs, wanted = np.log(p), p - smoothing / COLS
        wanted[rows, labels] -= 1 - smoothing
        close(device.numpy(found), -(1 - smoothing) * logs[rows, labels] - smoothing * logs.mean(1))
        close(device.numpy(grad), wanted, 2e-4)


def test_who_draws():
    """Programs that copy one row ahead and whose warps exchange numbers, as long as a ticket is a float32 number."""
    cases = {(1, 1, 0): False, (1, 1, 1): False, (1, 4, 1): True, (1, 4, 2): False, (2, 1, 1): True}
    for (blocks, warps, ahead), wanted in cases.items():
        plan = plan_of(RowConfig(blocks, warps), 64, 4096 if warps > 1 or blocks > 1 else 64, 4, ahead=ahead)
        assert launch.drawing(plan, 64, 1).tickets is wanted
    assert launch.drawing(plan, 64, 3).numbers == 4
    assert not launch.drawing(plan, launch.MOST_TICKETS + 1, 1).tickets
