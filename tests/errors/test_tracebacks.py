"""An error of a launch shows the line that launched and the message; how it came through weft, on demand only."""

from __future__ import annotations

import pickle
import traceback

import pytest

import weft
from tests.errors.users import LINE, copy, zeros
from weft import language as gl
from weft import settings
from weft.errors import UserError


@weft.jit
def broken(out, n):
    gl.store(out + n, lenght)  # noqa: F821


@weft.jit
def wrongly_called(out, n):
    gl.store(out, n, 1, 2, 3, 4, 5)


def caught(launch) -> UserError:
    with pytest.raises(UserError) as found:
        launch()
    return found.value


def places(error: BaseException) -> list[str]:
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


LAUNCHES = {
    "a mistake in the kernel": lambda: broken[1](zeros(), 1),
    "a hazard": lambda: copy[1](zeros(), zeros(), 1024, LINE),
    "a mistake in the launch": lambda: copy[1](zeros(), 128, LINE, nothing=1),
    "a call that does not fit": lambda: wrongly_called[1](zeros(), 1),
}


@pytest.mark.parametrize("case", LAUNCHES)
def test_the_line_that_launched_and_the_message(case):
    error = caught(LAUNCHES[case])
    own = [place for place in places(error) if place != __file__]
    assert len(own) == 1 and own[0].startswith("<launch of "), own
    shown = "".join(traceback.format_exception(error))
    assert shown.count("Traceback") == 1 and str(error) in shown
    assert "weft/kernel.py" not in shown


def test_a_compiled_launch_function_shows_as_little():
    kernel = weft.jit(broken.fn)
    kernel._binder.make({"out": zeros(), "n": 1})
    own = [place for place in places(caught(lambda: kernel[1](zeros(), 1))) if place != __file__]
    assert own == ["<launch of broken>"]


def test_compiling_ahead_shows_one_frame_of_weft():
    own = [place for place in places(caught(lambda: broken.warmup(zeros(), 1))) if place != __file__]
    assert len(own) == 1


def test_the_whole_way_on_demand():
    with settings.using(traceback=True):
        error = caught(LAUNCHES["a mistake in the kernel"])
    assert len(places(error)) > 10


def test_what_an_error_was_caused_by_stays():
    def grid(meta):
        return meta["M"]

    error = caught(lambda: copy[grid](zeros(), zeros(), 128, LINE))
    assert isinstance(error.__cause__, KeyError)


def test_a_short_error_is_pickled():
    error = caught(LAUNCHES["a mistake in the kernel"])
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301
