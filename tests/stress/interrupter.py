"""Interrupts the first launch of weft in many new processes, and has each of them launch again.

    python tests/stress/interrupter.py lines 50 --seed 0      # KeyboardInterrupt at a random line of weft
    python tests/stress/interrupter.py signals 50 --seed 0    # SIGINT after a random time
    python tests/stress/interrupter.py compiles 50 --seed 0   # the same in NVRTC's first compilation

The processes are forks of one that has imported NumPy and nothing of weft, or for "compiles" NVRTC and what needs it.
Prints one line of JSON: how many were tried, how many were interrupted, how many did not answer, and what else went wrong by
the line or the time of the interrupt.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import ml_dtypes  # noqa: F401 - loaded before the forks, as NumPy is
import numpy as np  # noqa: F401

ROOT = Path(__file__).parents[2]
PATIENCE_S = 5
UNANSWERED = f"no answer within {PATIENCE_S} s"
OURS = (str(ROOT / "weft"), str(Path(__file__).with_name("first_launch.py")))


def first_launch() -> str:
    """Import weft and launch."""
    from tests.stress import first_launch

    return first_launch.launch()


def first_compilation() -> str:
    """Compile a text with NVRTC."""
    from weft.runtime import nvrtc

    text = 'extern "C" __global__ void fill(float* x) { x[threadIdx.x] = 1; }'
    return nvrtc.compile_cuda(text, name="fill", arch="sm_90a").ptx


def healthy(work: Callable[[], str], expected: str) -> str:
    """What is broken in this process; empty if the work succeeds now and leaves what it found."""
    try:
        text = work()
        from weft import settings, simulation
    except BaseException:  # noqa: BLE001 - whatever it is, it is reported
        return traceback.format_exc(limit=-4)
    if text != expected:
        return "the text differs"
    if settings.current().target != "sm_90a" or simulation.current() != simulation.Simulation():
        return f"still set: {settings.current()} {simulation.current()}"
    return "" if signal.getsignal(signal.SIGINT) is signal.default_int_handler else "SIGINT has another handler"


class Lines:
    """Counts the lines of weft that are executed, and raises KeyboardInterrupt at one of them."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.count = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        """A trace function for `sys.settrace`."""
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            self.count += 1
            if self.count == self.left:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def child(work: Callable[[Callable[[], Any]], Any]) -> tuple[int, int]:
    """Run a function in a fork, and give the process and where its result can be read. What the function gets, it calls when a
    signal may come: that writes a space, which JSON may begin with."""
    out, into = os.pipe()
    process = os.fork()
    if process:
        os.close(into)
        return process, out
    os.close(2)
    os.write(into, json.dumps(work(lambda: os.write(into, b" "))).encode())
    os._exit(0)


def result(process: int, out: int) -> Any:
    """The result of a fork."""
    with os.fdopen(out, "rb") as stream:
        text = stream.read()
    status = os.waitpid(process, 0)[1]
    if text.strip():
        return json.loads(text)
    return [True, UNANSWERED if status == signal.SIGALRM else f"the process ended with status {status}"]


def at_line(line: int, expected: str) -> tuple[bool, str]:
    """Interrupt the first launch at a line: whether the interrupt was seen, and what is broken after it."""
    sys.settrace(Lines(line))
    try:
        first_launch()
        seen = False
    except KeyboardInterrupt:
        seen = True
    except BaseException:  # noqa: BLE001 - whatever it is, it is reported
        return True, "not a KeyboardInterrupt: " + traceback.format_exc(limit=-4)
    finally:
        sys.settrace(None)
    return seen, healthy(first_launch, expected)


def after(work: Callable[[], str], expected: str, ready: Callable[[], Any]) -> tuple[bool, str]:
    """Wait for the signal in the work and after it: for a lock, as no handler ends that has become one that restarts calls."""
    signal.alarm(PATIENCE_S)
    try:
        ready()
        work()
        threading.Event().wait()
        seen = False
    except KeyboardInterrupt:
        seen = True
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
        # So Python before 3.12 says it where the interrupt met `__set_name__` of a class.
        seen = isinstance(error.__cause__, KeyboardInterrupt)
        if not seen:
            return True, "not a KeyboardInterrupt: " + traceback.format_exc(limit=-4)
    return seen, healthy(work, expected)


def calibrate(work: Callable[[], str]) -> tuple[str, int, float]:
    """The text that the work gives, and its lines and its seconds in a new process."""

    def timed(_: object) -> tuple[str, float]:
        start = time.perf_counter()
        return work(), time.perf_counter() - start

    def counted(_: object) -> int:
        lines = Lines(0)
        sys.settrace(lines)
        work()
        sys.settrace(None)
        return lines.count

    text, seconds = result(*child(timed))
    return text, result(*child(counted)), seconds


def main() -> None:
    """Read the command line, interrupt, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=("lines", "signals", "compiles"))
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ.update(WEFT_CACHE="0", WEFT_TARGET="sm_90a")
    work = first_launch
    if given.way == "compiles":
        from cuda.bindings import nvrtc

        import weft.runtime.nvrtc  # noqa: F401

        nvrtc.nvrtcVersion()
        work = first_compilation
    expected, lines, seconds = calibrate(work)
    chance, seen, wrong = random.Random(given.seed), 0, {}
    for _ in range(given.count):
        if given.way == "lines":
            place: float = chance.randint(1, lines)
            interrupted, broken = result(*child(lambda _, line=place: at_line(line, expected)))
        else:
            place = chance.uniform(0, seconds * 1.2)
            process, out = child(lambda ready: after(work, expected, ready))
            os.read(out, 1)
            time.sleep(place)
            os.kill(process, signal.SIGINT)
            interrupted, broken = result(process, out)
        seen += interrupted
        if broken:
            wrong[place] = broken
    unanswered = [place for place, text in wrong.items() if text == UNANSWERED]
    wrong = {place: text for place, text in wrong.items() if text != UNANSWERED}
    print(json.dumps({"tried": given.count, "interrupted": seen, "unanswered": len(unanswered), "wrong": wrong}))


if __name__ == "__main__":
    main()
