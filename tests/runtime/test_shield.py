"""Signals while a library of C++ replaces their handlers, as NVRTC does during the first compilation of a process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from weft.runtime.shield import shielded

pytestmark = pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="needs POSIX signals")
IGNORE = 1
ROOT = Path(__file__).parents[2]
BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


class Answered(Exception):
    pass


def answer(number: int, _: object) -> None:
    raise Answered(number)


@pytest.fixture(autouse=True)
def answered():
    before = {number: signal.signal(number, answer) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def ignoring(number: int, *then: object) -> None:
    """What the front end does: it ignores the signal for a while, and gives the handler back by `signal`."""
    replace = ctypes.CDLL(None).signal
    replace.restype, replace.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    found = replace(number, IGNORE)
    for step in then:
        assert callable(step)
        step()
    replace(number, found)


IN_A_PROCESS = """
import os, signal, sys, time
from tests.runtime.test_shield import Answered, answer, ignoring
from weft.runtime.shield import shielded

number, sent, done = int(sys.argv[1]), [int(each) for each in sys.argv[2:]], []
signal.signal(number, answer)


def call():
    for each in sent:
        os.kill(os.getpid(), each)
        time.sleep(0.2)
    ignoring(number)  # discards what is still pending
    done.append(True)


try:
    shielded(lambda: ignoring(number, call))
except Answered as answered:
    print(answered.args[0], done)
"""


def in_a_process(number: int, *sent: int) -> str:
    """The output of a process whose call sends these signals and then discards `number`. Where other threads take signals, as
    those of a test runner may, one of them can discard it."""
    command = [sys.executable, "-c", IN_A_PROCESS, *(str(int(each)) for each in (number, *sent))]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout


@BOTH
def test_a_signal_is_answered_after_the_call(number):
    assert in_a_process(number, number) == f"{int(number)} [True]\n"


@BOTH
def test_a_wake_up_by_others_does_not_end_the_wait(number):
    assert in_a_process(number, signal.SIGURG, number) == f"{int(number)} [True]\n"


def test_a_signal_of_others_that_looks_like_the_wake_up_is_answered():
    assert in_a_process(signal.SIGURG, signal.SIGURG) == f"{int(signal.SIGURG)} [True]\n"


@BOTH
def test_later_signals_end_waits(number):
    shielded(lambda: ignoring(number))
    later = threading.Timer(0.05, os.kill, (os.getpid(), number))
    with pytest.raises(Answered):  # on a busy machine the signal may come before the wait
        later.start() or threading.Event().wait()


def test_signals_that_were_blocked_stay_blocked():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        shielded(lambda: None)
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before | {signal.SIGTERM}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_another_thread_makes_the_call_itself():
    found: list[str] = []
    thread = threading.Thread(
        target=lambda: shielded(lambda: found.append(threading.current_thread().name)), name="own"
    )
    thread.start()
    thread.join()
    assert found == ["own"]
