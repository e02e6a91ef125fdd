"""While a CUDA graph is captured nothing is measured."""

from __future__ import annotations

import warnings

import pytest

from tests.runtime.fake_driver import CUresult, FakeTensor
from tests.tune.kernels import tuned
from weft import Config, tune
from weft.errors import UserError

X, Y = FakeTensor(0x1000), FakeTensor(0x2000)


@pytest.fixture(params=[1, CUresult.CUDA_ERROR_INVALID_CONTEXT], ids=["capturing", "implicit"])
def capturing(machine, request, monkeypatch):
    """A stream that is captured, or the default stream while another one is."""
    if request.param != 1:
        implicit = type("Status", (int,), {})(906)
        monkeypatch.setattr(machine.cuda, "cuStreamIsCapturing", lambda stream: (implicit, None))
    else:
        machine.capturing = 1
    return machine


def test_the_first_config_is_taken_with_a_warning(capturing):
    kernel = tuned(capturing)
    with pytest.warns(RuntimeWarning, match=r"takes the first config \(BLOCK=64\)") as caught:
        kernel[1](X, Y, 8)
    assert caught[0].filename == __file__
    assert kernel.best_config == Config({"BLOCK": 64})
    assert (capturing.measured, tune.choices()) == ([], [])


def test_the_choice_of_the_nearest_key_is_taken(machine):
    kernel = tuned(machine, times={128: 1.0})
    kernel[1](X, Y, 1024)
    machine.times = {256: 1.0}
    kernel[1](X, Y, 16)
    measured = len(machine.measured)
    machine.capturing = 1
    with pytest.warns(RuntimeWarning, match=r"that of the nearest stored key \(BLOCK=128\)"):
        kernel[1](X, Y, 2000)
    assert len(machine.measured) == measured
    machine.capturing = 0
    kernel[1](X, Y, 2000)
    assert len(machine.measured) > measured, "what was taken in the capture is not remembered"


def test_a_stored_choice_is_taken_without_a_warning(machine):
    tuned(machine, times={256: 1.0})[1](X, Y, 8)
    machine.capturing = 1
    again = tuned(machine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again[1](X, Y, 8)
    assert again.best_config == Config({"BLOCK": 256})


def test_the_stream_of_the_launch_is_asked(machine, monkeypatch):
    asked = []
    monkeypatch.setattr(machine.cuda, "cuStreamIsCapturing", lambda stream: (asked.append(stream), (CUresult(0), 0))[1])
    kernel = tuned(machine)
    kernel[1](X, Y, 8, stream=77)
    kernel[1](X, Y, 16)
    assert asked == [77, 700]


def test_tuning_on_purpose_is_refused(capturing):
    with pytest.raises(UserError) as caught:
        tuned(capturing).tune(X, Y, 8, grid=1)
    assert caught.value.code == "tune-capturing"
