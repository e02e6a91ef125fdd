"""Errors travel between processes, and copies of them say the same."""

from __future__ import annotations

import copy
import linecache
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import CATALOGUE, ErrorGroup, Hazard, Loc, UserError, WeftError, fail
from weft.errors.hazard import OUT_OF_BOUNDS, Deadlock, OutOfBounds
from weft.ir.text import TextError
from weft.ir.verify import VerificationError
from weft.ops.check import TypingError

INNER = Loc(__file__, 3, 0, 3, 4, "helper", Loc(__file__, 5, function="kernel"))
OUTER = Loc(__file__, 9, function="other")


class Anything:
    """Fills any field of a message."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key):
        return self

    def __format__(self, spec):
        return "7"

    def __str__(self):
        return "7"


def both_ways(error):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - made in this line
    yield copy.copy(error)
    yield copy.deepcopy(error)


def same(error, other):
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert other.args == error.args
    known, found = dict(vars(error)), dict(vars(other))
    errors, others = known.pop("errors", []), found.pop("errors", [])
    assert found == known
    for one, two in zip(errors, others, strict=True):
        same(one, two)
    if isinstance(error, UserError):
        assert [loc.function for loc in other.loc.chain()] == [loc.function for loc in error.loc.chain()]


@pytest.mark.parametrize("code", CATALOGUE)
def test_every_row_of_the_catalogue(code):
    entry = CATALOGUE[code]
    error = fail(entry, loc=INNER, related=(("before", OUTER),), **dict.fromkeys(entry.fields, Anything()))
    if isinstance(error, Hazard):
        error.buffer, error.partitions = "x", ("producer", "consumer")
    for other in both_ways(error):
        same(error, other)


def test_groups_and_errors_of_the_ir():
    first = fail(OUT_OF_BOUNDS, loc=INNER, **dict.fromkeys(OUT_OF_BOUNDS.fields, 7))
    group = ErrorGroup([first, UserError("some-code", "message", loc=OUTER)])
    for other in both_ways(group):
        same(group, other)
    for kind in (WeftError, TypingError, VerificationError, TextError):
        for other in both_ways(kind("told")):
            same(kind("told"), other)


def test_a_line_is_shown_where_its_file_is_not():
    name = "<cell 7>"
    linecache.cache[name] = (9, None, ["x = [1\n"], name)
    error = UserError("some-code", "message", loc=Loc(name, 1, 0, 1, 1))
    sent, told = pickle.dumps(error), str(error)
    del linecache.cache[name]
    assert "x = [1" in told
    assert str(pickle.loads(sent)) == told  # noqa: S301
    assert pickle.loads(sent).loc == error.loc  # noqa: S301


@weft.jit
def beyond(x):
    gl.store(x + 4, 1)


@weft.jit
def waiting(x):
    while gl.atomic_add(x, 0) == 0:
        pass


def launch(kernel):
    {"beyond": beyond, "waiting": waiting}[kernel][(1,)](np.zeros(4, np.int32))


def test_an_error_of_a_worker_is_raised_in_its_parent():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        with pytest.raises(OutOfBounds) as caught:
            pool.apply_async(launch, ("beyond",)).get(timeout=120)
        with pytest.raises(Deadlock) as stuck:
            pool.apply_async(launch, ("waiting",)).get(timeout=120)
    assert "gl.store(x + 4, 1)" in str(caught.value)
    assert stuck.value.related


def test_an_error_of_an_executor():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool, pytest.raises(OutOfBounds):
        pool.submit(launch, "beyond").result(timeout=120)
