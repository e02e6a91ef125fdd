"""What of an array a kernel may access: the bytes between the array's own lowest and highest."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import LaunchError
from weft.errors.hazard import GlobalRace, OutOfBounds


@weft.jit
def read(x, index, out):
    gl.store(out, gl.load(x + index))


@weft.jit
def write(x, index):
    gl.store(x + index, 1)


def read_at(x, index):
    out = np.zeros(1, x.dtype)
    read[(1,)](x, index, out)
    return out[0]


WHOLE = np.arange(100, dtype=np.int32)
CASES = {
    "slice": (WHOLE[10:20], 0, 9),
    "steps": (WHOLE[10:20:3], 0, 9),
    "backwards": (WHOLE[19:9:-1], -9, 0),
    "column": (WHOLE.reshape(10, 10)[2:5, 3], 0, 20),
    "broadcast": (np.broadcast_to(WHOLE[7:8], (5,)), 0, 0),
    "number": (np.array(7, np.int32), 0, 0),
}


@pytest.mark.parametrize("case", CASES)
def test_bounds_are_the_arguments_own(case):
    x, low, high = CASES[case]
    for index in (low, high):
        read_at(x, index)
    for index in (low - 1, high + 1, high + 31):
        with pytest.raises(OutOfBounds) as caught:
            read_at(x, index)
        assert f"elements {low} to {high}" in caught.value.message


def test_nothing_belongs_to_an_empty_slice():
    with pytest.raises(OutOfBounds):
        read_at(WHOLE[10:10], 0)


def test_the_rest_of_the_memory_is_there_for_who_asks():
    with pytest.raises(OutOfBounds) as caught:
        read_at(WHOLE[10:20], 40)
    assert "weft.simulate(bounds='storage')" in caught.value.fix
    with weft.simulate(bounds="storage"):
        assert read_at(WHOLE[10:20], 40) == 50
        with pytest.raises(OutOfBounds) as caught:
            read_at(WHOLE[10:20], 90)
    assert "bounds" not in caught.value.fix
    with pytest.raises(LaunchError), weft.simulate(bounds="page"):
        pass


def test_a_slice_is_written_within_its_bounds():
    x = np.zeros(8, np.int32)
    write[(1,)](x[2:4], 1)
    assert x.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    with pytest.raises(OutOfBounds):
        write[(1,)](x[2:4], 2)


def test_views_of_tensors(torch):
    x = torch.arange(100, dtype=torch.int32)
    out = torch.zeros(1, dtype=torch.int32)
    for view, high in ((x[10:20], 9), (x.view(10, 10)[:, 3], 90), (x[5:6].expand(4), 0)):
        read[(1,)](view, high, out)
        with pytest.raises(OutOfBounds):
            read[(1,)](view, high + 1, out)


@weft.jit
def both(a, b):
    if gl.program_id(0) == 0:
        gl.store(a + 7, 1)
    else:
        gl.store(b + 2, 2)


@pytest.mark.parametrize("way", ["slices", "two objects", pytest.param("tensor", marks=pytest.mark.torch)])
def test_arguments_that_share_memory_race(way, request):
    x = np.zeros(16, np.int32)
    pairs = {
        "slices": lambda: (x[0:10], x[5:15]),
        "two objects": lambda: (np.frombuffer(x.data, np.int32)[0:10], np.frombuffer(x.data, np.int32)[5:15]),
        "tensor": lambda: (x, request.getfixturevalue("torch").from_numpy(x[5:])),
    }
    with pytest.raises(GlobalRace):
        both[(2,)](*pairs[way]())
    both[(2,)](x[0:8], x[8:])
