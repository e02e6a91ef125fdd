"""Row kernels on rows of random lengths that begin anywhere: both stages give the same bits, close to float64.

Inputs and outputs lie within larger arrays of NaN, of which the kernel is given a part. An access outside of that part is
reported, and a store between its rows shows in the bits.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.conftest import Device
from tests.kernels_lib.rows import TYPES, close, launched_twice
from tests.kernels_lib.test_anywhere import Padded
from tests.kernels_lib.test_losses import expected as cross_entropies
from tests.kernels_lib.test_softmax import expected as softmaxes
from weft.kernels import (
    RowConfig,
    cross_entropy,
    cross_entropy_backward,
    log_softmax,
    log_softmax_backward,
    rowwise,
    sample,
    softmax,
    softmax_backward,
)
from weft.kernels.rows import losses

TRIED = 100
SIMULATED = Device("sim")


class Case:
    """Random rows, and arrays of the same kind."""

    def __init__(self, seed: int) -> None:
        self.draw, self.rng = random.Random(seed), np.random.default_rng(seed)
        near = self.draw.choice([1 << bit for bit in range(5, 13)]) + self.draw.randint(-9, 9)
        self.cols = self.draw.choice([self.draw.randint(1, 600), near])
        self.rows, self.dtype = self.draw.randint(1, 4), self.draw.choice(list(TYPES))
        self.alike = self.draw.random() < 0.7
        self.place = self.cols + self.draw.choice([0, 0, 1, 3, 8]), self.draw.randint(0, 17)
        programs = RowConfig(programs=1, ahead=self.draw.choice([None, 0, 1, 2]))
        self.config = programs if self.cols <= 4000 and self.draw.random() < 0.5 else None

    def random(self) -> np.ndarray:
        return (self.rng.standard_normal((self.rows, self.cols)) * 3).astype(TYPES[self.dtype])

    def array(self, values: np.ndarray | None = None) -> Padded:
        """In most cases at the same distance from an aligned address as the other arrays."""
        pitch, before = self.place
        if not self.alike:
            pitch, before = self.cols + self.draw.choice([0, 1, 5, 8]), self.draw.randint(0, 17)
        elif self.draw.random() < 0.5:
            before += 8 * self.draw.randint(0, 2)
        return Padded(SIMULATED, self.random() if values is None else values, pitch, before)


def forward(case: Case) -> None:
    values, log = case.random(), case.draw.random() < 0.5
    x = case.array(values)
    out = x if case.draw.random() < 0.2 else case.array()
    (log_softmax if log else softmax)(x.array, out.array, config=case.config)
    close(out.values, np.log(softmaxes(values)) if log else softmaxes(values))


def backward(case: Case) -> None:
    upper, log = case.random(), case.draw.random() < 0.5
    y = softmaxes(case.random())
    given = (np.log(y) if log else y).astype(TYPES[case.dtype])
    grad, of, out = case.array(upper), case.array(given), case.array()
    (log_softmax_backward if log else softmax_backward)(grad.array, of.array, out.array, config=case.config)
    g, p = upper.astype(np.float64), given.astype(np.float64)
    total = (g if log else g * p).sum(1, keepdims=True)
    close(out.values, g - np.exp(p) * total if log else p * (g - total))


def loss(case: Case) -> None:
    numbers = case.draw.choice([{}, {"label_smoothing": 0.1}, {"z_loss": 1e-2}])
    values, labels = case.random(), case.rng.integers(0, case.cols, case.rows)
    x, target = case.array(values), case.draw.choice(["none", "grad", "in place", "later"])
    want = cross_entropies(values, labels, **numbers)
    grad = {"grad": case.array(), "in place": x}.get(target)
    found, lse = cross_entropy(x.array, labels, grad=grad and grad.array, config=case.config, **numbers)
    if target == "later":
        grad = case.array()
        cross_entropy_backward(1.0, x.array, labels, lse, out=grad.array, **numbers)
    close(found, want[0])
    close(lse, want[1])
    # Of a single class the exact gradient is 0, and float64 is off by its own rounding.
    if grad is not None and case.cols > 1:
        close(grad.values, want[2])


def largest(case: Case) -> None:
    values = case.random().astype(np.float32)
    x = case.array(values)
    np.testing.assert_array_equal(sample(x.array, seed=1, temperature=0.0), values.argmax(1))


@pytest.mark.parametrize("function", [forward, backward, loss, largest])
def test_rows(function, scale, stress_report, monkeypatch):
    for module in (rowwise, losses):
        monkeypatch.setattr(module, "launched", launched_twice)
    wrong: list[str] = []
    for seed in range(TRIED * scale):
        case = Case(seed)
        try:
            function(case)
        except Exception as error:  # noqa: BLE001 whatever it is, the seed says how to see it again
            wrong.append(f"seed {seed}: {case.rows} x {case.cols} of {case.dtype}, {case.place}: {error}"[:400])
    stress_report(f"rows: {function.__name__}", TRIED * scale, len(wrong))
    assert not wrong, "\n".join(wrong)
