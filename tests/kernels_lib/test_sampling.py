"""`sample`: the tokens that are kept, how often each is taken, and that results repeat."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels_lib.rows import MATRIX, Recorder
from tests.kernels_lib.test_errors import refused
from weft.kernels import RowConfig, sample
from weft.kernels.device.sampling import sample_rows
from weft.kernels.rows import sampling
from weft.runtime import nvrtc

LOGITS = np.array([0.3, -1.0, 2.0, 1.1, -3.0, 0.9, 2.4, -0.2, 0.0], np.float32)


def probabilities(temperature=1.0, top_p=1.0, min_p=0.0):
    """By sorting, in float64."""
    p = np.exp(LOGITS.astype(np.float64) / temperature)
    p /= p.sum()
    order = np.argsort(-p)
    kept = np.zeros(p.size, bool)
    kept[order[: np.searchsorted(np.cumsum(p[order]), top_p) + 1]] = True
    p = np.where(kept & (p >= min_p * p.max()), p, 0)
    return p / p.sum()


@pytest.mark.parametrize(
    "numbers",
    [{}, {"temperature": 0.7, "top_p": 0.8}, {"temperature": 1.5, "min_p": 0.2}, {"top_p": 0.9, "min_p": 0.1}],
    ids=str,
)
def test_frequencies(device, numbers):
    """Within four standard deviations of each token's expected count."""
    rows, p = 2000, probabilities(**numbers)
    taken = device.numpy(sample(device.array(np.tile(LOGITS, (rows, 1))), seed=5, **numbers))
    counts = np.bincount(taken, minlength=p.size)
    assert np.all(np.abs(counts - rows * p) <= 4 * np.sqrt(rows * p * (1 - p)))


@pytest.mark.parametrize("config", [RowConfig(1, 4), pytest.param(RowConfig(4, 1, programs=2), marks=MATRIX)], ids=str)
@pytest.mark.parametrize("cols", [1, 129, 1000, pytest.param(131_073, marks=MATRIX)])
def test_rows_of_their_own(device, rng, config, cols):
    """Each row has its numbers; those with a temperature of 0 take the largest, and others what is likely enough."""
    x = (rng.standard_normal((6, cols)) * 3).astype(np.float32)
    temperature, top_p = np.array([0, 1, 0, 2, 0.5, 0], np.float32), np.array([1, 0.5, 0.1, 0.9, 0.7, 1], np.float32)
    config = config if cols < 10_000 else None
    taken = device.numpy(
        sample(device.array(x), seed=1, temperature=device.array(temperature), top_p=device.array(top_p), config=config)
    )
    assert taken.dtype == np.int64
    for row in range(6):
        if temperature[row] == 0:
            assert taken[row] == x[row].argmax()
            continue
        p = np.exp((x[row] - x[row].max()).astype(np.float64) / temperature[row])
        p /= p.sum()
        assert p[p > p[taken[row]]].sum() < top_p[row] + 1e-5


def test_results_repeat_and_follow_the_offset(device):
    given = device.array(np.tile(LOGITS, (64, 1)))
    first, second = (device.numpy(sample(given, seed=7, offset=offset)) for offset in (0, 10))
    np.testing.assert_array_equal(first, device.numpy(sample(given, seed=7)))
    np.testing.assert_array_equal(first[10:], second[:-10])
    assert (first != device.numpy(sample(given, seed=8))).any()


def test_a_cluster_takes_what_a_block_takes(device):
    """Sums are rounded in another order, which seldom moves a sample."""
    given = device.array(np.tile(LOGITS, (12, 30)))
    one, other = (device.numpy(sample(given, seed=2, config=RowConfig(blocks, 1))) for blocks in (1, 2))
    np.testing.assert_array_equal(one, other)


def test_values_that_are_not_finite(device):
    x = np.zeros((4, 20), np.float32)
    x[0], x[1], x[2, 3:], x[3, 5] = np.nan, -np.inf, np.nan, np.inf
    taken = device.numpy(sample(device.array(x), seed=0, top_p=0.9))
    assert taken[0] == taken[1] == -1 and taken[2] in (0, 1, 2) and taken[3] == 5


def test_empty(device):
    assert sample(device.array(np.zeros((0, 5), np.float32)), seed=0).shape == (0,)


def test_mistakes():
    x = np.zeros((4, 8), np.float32)
    refused("kernels-rows-parameter", lambda: sample(x, seed=-1), "seed=-1")
    refused("kernels-rows-parameter", lambda: sample(x, seed=0, offset=0.5), "offset=0.5")
    refused("kernels-rows-parameter", lambda: sample(x, seed=0, temperature=-1.0), "temperature=-1.0")
    refused("kernels-rows-parameter", lambda: sample(x, seed=0, top_p=1.5), "top_p=1.5", "from 0 to 1")
    refused(
        "kernels-rows-shape", lambda: sample(x, seed=0, min_p=np.zeros(3, np.float32)), "min_p has shape [3]", "[4]"
    )
    refused("kernels-rows-parameter", lambda: sample(x[:, :0], seed=0), "at least one token")
    refused("kernels-rows-columns", lambda: sample(np.zeros((1, 300_000), np.float32), seed=0), "300000")


@pytest.mark.matrix
@pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")
@pytest.mark.parametrize("cols", [128_256, 4096])
def test_machine_code(monkeypatch, cols):
    """A row is read once, and nothing is spilled."""
    recorder = Recorder()
    monkeypatch.setattr(sampling, "sample_rows", recorder)
    sample(np.zeros((8, cols), np.float16), seed=0, top_p=0.9)
    ((arguments, options),) = recorder.given
    compiled = sample_rows.warmup(*arguments, **options, target="sm_90a")
    assert compiled.n_spills == 0 and compiled.asm["sass"].count("LDG.E.128") == 4
