"""`python -m weft check script.py`: run a script's kernels in the simulator and report every hazard.

Each launch on host arrays runs several times on the same inputs: with programs in the order of the grid and copies as late as
they may be, with programs in reverse, and with both at random. A hazard ends a run only if nothing after it means anything, and
never ends the script. The arrays end as the first run leaves them.
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
from weft.errors.words import counted
from weft.runtime.arguments import HostBuffer
from weft.runtime.descriptor import HostMap
from weft.script import run_script
from weft.sim import Advice, Report

GIVEN, IN_REVERSE = "in order", "in reverse"
"""Names of the first two runs: as the script has it, and with programs in reverse. Others are named by their seeds."""


@dataclass(slots=True)
class Finding:
    """A hazard of a kernel, the runs in which it showed, and how often in the first of them."""

    kernel: str
    hazard: Hazard
    runs: list[str]
    times: int = 1


@dataclass(slots=True)
class Check:
    """What a check found: hazards, advice by kernel, how many launches ran, and what stopped the script, if something did."""

    launches: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])
    advice: list[tuple[str, Advice]] = field(default_factory=list[tuple[str, Advice]])
    stopped: str = ""

    @property
    def clean(self) -> bool:
        """Whether the script ran to its end without a hazard."""
        return not (self.findings or self.stopped)

    def found(self, kernel: str, hazard: Hazard, run: str) -> None:
        """Enter a hazard; one that was found at the same place before is the same."""
        for known in self.findings:
            if (known.kernel, _key(known.hazard)) == (kernel, _key(hazard)):
                known.runs += [run] * (run not in known.runs)
                if run == GIVEN:
                    known.hazard, known.times = hazard, hazard.times
                return
        self.findings.append(Finding(kernel, hazard, [run], hazard.times))

    def advised(self, kernel: str, report: Report) -> None:
        """Enter the advice of a launch, each piece once."""
        for advice in report.advice:
            if (kernel, advice) not in self.advice:
                self.advice.append((kernel, advice))


def check_script(
    script: Path, arguments: Sequence[str] = (), *, runs: int, uninitialized: simulation.Uninitialized | None = None
) -> Check:
    """Run a script, each of its simulated launches `runs` times. Raises OSError where the script cannot be read.

    `uninitialized`: what it is to read shared memory that was never written, where the script does not say."""
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
    """One run; an empty report where a hazard ended it."""
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
    """As the script wants it, but with another order of programs, and after the first of these runs copies at random times."""
    if number == 1:
        return simulation.following(replace(way, order="reverse"))
    return simulation.following(replace(way, order="random", seed=number - 1, schedule="random"))


@contextlib.contextmanager
def _unchanged(values: Mapping[str, Any]) -> Iterator[None]:
    """Give arrays the contents again that they had before."""
    buffers: list[Any] = [value.buffer if isinstance(value, HostMap) else value for value in values.values()]
    arrays = [buffer.bytes() for buffer in buffers if isinstance(buffer, HostBuffer) and buffer.writable]
    kept: list[Any] = [array.copy() for array in arrays]
    try:
        yield
    finally:
        for array, before in zip(arrays, kept, strict=True):
            array[...] = before


def _key(hazard: Hazard) -> tuple[str, frozenset[str]]:
    """The rule and the lines: of two accesses that clash another order of programs meets the other one first."""
    return hazard.code, frozenset(str(loc) for loc in (hazard.loc, *(loc for _, loc in hazard.related)))


def show(check: Check, console: Any) -> None:
    """Print what a check found on a `rich.console.Console`."""
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
    """The runs in the order in which they are counted: the script's own first."""
    return ", ".join(sorted(runs, key=lambda run: (run != GIVEN, run != IN_REVERSE, len(run), run)))


def _some(count: int, noun: str, plural: str = "s") -> str:
    return counted(count, noun, plural) if count else f"no {noun}{plural}"
