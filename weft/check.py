"""`python -m weft check script.py`: run a script's kernels in the simulator and report every hazard.

Each launch on host arrays runs several times on the same inputs. The first run starts programs in grid order and lets
asynchronous copies land as late as they may; the second starts programs in reverse; later runs choose both at random. A hazard
ends its run only when nothing after it would be meaningful, and it never ends the script. After all runs the arrays hold what
the first run wrote.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from weft import simulation
from weft.errors import Hazard
from weft.errors.base import counted
from weft.runtime.arguments import HostBuffer
from weft.runtime.descriptor import HostMap
from weft.script import run_script
from weft.sim import Advice, Report

GIVEN, IN_REVERSE = "in order", "in reverse"
"""Names of the first two runs: with the script's own options, and with programs in reverse. Later runs are named by seed."""


@dataclass(slots=True)
class Finding:
    """A hazard of a kernel, the runs that reported it, and how often the first of them did."""

    kernel: str
    hazard: Hazard
    runs: list[str]
    times: int = 1


@dataclass(slots=True)
class Check:
    """Result of a check: the number of launches, hazards, advice by kernel, and the error that stopped the script, if any."""

    launches: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])
    advice: list[tuple[str, Advice]] = field(default_factory=list[tuple[str, Advice]])
    stopped: str = ""

    @property
    def clean(self) -> bool:
        """Whether the script ran to its end without a hazard."""
        return not (self.findings or self.stopped)

    def found(self, kernel: str, hazard: Hazard, run: str) -> None:
        """Record a hazard. One with the same code and locations as an earlier one only adds the run's name to that finding."""
        for known in self.findings:
            if (known.kernel, _key(known.hazard)) == (kernel, _key(hazard)):
                known.runs += [run] * (run not in known.runs)
                if run == GIVEN:
                    known.hazard, known.times = hazard, hazard.times
                return
        self.findings.append(Finding(kernel, hazard, [run], hazard.times))

    def advised(self, kernel: str, report: Report) -> None:
        """Record the advice of a launch without duplicates."""
        for advice in report.advice:
            if (kernel, advice) not in self.advice:
                self.advice.append((kernel, advice))


def check_script(
    script: Path, arguments: Sequence[str] = (), *, runs: int, uninitialized: simulation.Uninitialized | None = None
) -> Check:
    """Run a script, each of its simulated launches `runs` times. Raises OSError when the script cannot be read.

    `uninitialized`: how reads of unwritten shared memory are treated in launches for which the script sets nothing."""
    check = Check()

    def supervise(kernel: str, values: Mapping[str, Any], run: Callable[[], Report]) -> Report:
        check.launches += 1
        given = simulation.current()
        way = replace(given, keep_going=True, uninitialized=uninitialized or given.uninitialized)
        for number in range(1, runs):
            with _unchanged(values), _way(way, number), contextlib.redirect_stdout(io.StringIO()):
                _attempt(check, kernel, run, IN_REVERSE if number == 1 else f"seed {number - 1}")
        with simulation.following(way):
            return _attempt(check, kernel, run, GIVEN)

    with simulation.supervised(supervise):
        check.stopped = run_script(script, arguments)
    return check


def _attempt(check: Check, kernel: str, run: Callable[[], Report], name: str) -> Report:
    """Run the launch once. The report is empty when a hazard ended the run."""
    try:
        report = run()
    except Hazard as hazard:
        for each in (*hazard.earlier, hazard):
            check.found(kernel, each, name)
        return Report()
    for each in report.hazards:
        check.found(kernel, each, name)
    check.advised(kernel, report)
    return report


def _way(way: simulation.Simulation, number: int) -> contextlib.AbstractContextManager[None]:
    """The script's options with programs in reverse (run 1), or with random order and random completion of copies (others)."""
    if number == 1:
        return simulation.following(replace(way, order="reverse"))
    return simulation.following(replace(way, order="random", seed=number - 1, schedule="random"))


@contextlib.contextmanager
def _unchanged(values: Mapping[str, Any]) -> Iterator[None]:
    """Restore the contents of writable arrays after the block, so that every run sees the same inputs."""
    buffers: list[Any] = [value.buffer if isinstance(value, HostMap) else value for value in values.values()]
    arrays = [buffer.bytes() for buffer in buffers if isinstance(buffer, HostBuffer) and buffer.writable]
    kept: list[Any] = [array.copy() for array in arrays]
    try:
        yield
    finally:
        for array, before in zip(arrays, kept, strict=True):
            array[...] = before


def _key(hazard: Hazard) -> tuple[str, frozenset[str]]:
    """The identity of a hazard: its code and the set of its lines. The set is unordered because another order of programs
    reports the same pair of accesses the other way round."""
    return hazard.code, frozenset(str(loc) for loc in (hazard.loc, *(loc for _, loc in hazard.related)))


def show(check: Check, console: Any) -> None:
    """Print the result of a check on a `rich.console.Console`."""
    for finding in check.findings:
        often = f", {finding.times} times" if finding.times > 1 else ""
        head = f"{type(finding.hazard).__name__} in {finding.kernel} ({_listed(finding.runs)}{often})"
        console.print(head, style="bold red", markup=False)
        console.print(str(finding.hazard), markup=False, soft_wrap=True)
        console.print()
    for kernel, advice in check.advice:
        console.print(f"advice for {kernel}: {advice}", style="yellow", markup=False, soft_wrap=True)
    if check.stopped:
        console.print(f"the script stopped: {check.stopped}", style="bold red", markup=False, soft_wrap=True)
    console.print(f"{_some(check.launches, 'launch', 'es')} checked, {_some(len(check.findings), 'hazard')}")


def _listed(runs: Sequence[str]) -> str:
    """Names of runs in order of execution number: the script's own first, then reverse, then seeds."""
    return ", ".join(sorted(runs, key=lambda run: (run != GIVEN, run != IN_REVERSE, len(run), run)))


def _some(count: int, noun: str, plural: str = "s") -> str:
    return counted(count, noun, plural) if count else f"no {noun}{plural}"
