"""What a launch must not pass over in silence: options that mean nothing, and arrays whose memory says something else."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.errors.users import shown
from weft import language as gl


@weft.jit
def touch(x):
    gl.store(x, gl.load(x) + 1.0)


@pytest.mark.parametrize("given", [["typo"], [1], [-1], [True], "ab"])
def test_do_not_specialize_names_parameters(given):
    kernel = weft.jit(do_not_specialize=given)(touch.fn)
    assert "x" in shown(lambda: kernel[(1,)](np.zeros(1, np.float32)), "launch-option-value")


@pytest.mark.parametrize("stream", ["a", 1.5, True, object()])
def test_a_stream_is_checked_in_the_simulator_too(stream):
    shown(lambda: touch[(1,)](np.zeros(1, np.float32), stream=stream), "launch-stream")


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": "a"}, {"seed": 1.5}, {"seed": True}, {"seed": None}, {"progress": "yes"}, {"hazards": "no"}, {"hazards": 0},
        {"programs": 3}, {"programs": [True]}, {"programs": [1.0]}, {"max_resident": True}, {"max_resident": 1.5},
    ],
    ids=repr,
)  # fmt: skip
def test_options_of_simulate(wrong):
    def run():
        with weft.simulate(**wrong):
            pass

    assert next(iter(wrong)) in shown(run, "launch-option-value")


def test_numpy_numbers_are_numbers():
    x = np.zeros(1, np.float32)
    with weft.simulate(seed=np.int64(3), programs=[np.int32(0)], max_resident=np.int64(2)):
        touch[(1,)](x)
    assert x[0] == 1.0


def test_masked_arrays():
    text = shown(lambda: touch[(1,)](np.ma.masked_array(np.zeros(3, np.float32), [1, 0, 0])), "launch-array-form")
    assert "filled(0)" in text


@pytest.mark.parametrize("form", ["negated", "sparse", "fake", "compressed"])
def test_tensors_whose_memory_says_something_else(torch, form):
    from torch._subclasses import FakeTensorMode

    made = {
        "negated": lambda: torch.zeros(4, dtype=torch.complex64).conj().imag,
        "sparse": lambda: torch.zeros(3, 3).to_sparse(),
        "compressed": lambda: torch.zeros(3, 3).to_sparse_csr(),
        "fake": lambda: FakeTensorMode().from_tensor(torch.zeros(3)),
    }
    shown(lambda: touch[(1,)](made[form]()), "launch-array-form")


def test_a_resolved_tensor_is_taken(torch):
    x = torch.ones(4, dtype=torch.complex64).mul(1j).conj().imag.resolve_neg()
    touch[(1,)](x)
    assert x[0] == 0.0
