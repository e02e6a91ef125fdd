"""`python -m weft check script.py`: run a script's kernels in the simulator and report every hazard.

Each launch on host arrays runs several times on the same inputs: once with copies as late as they may be and programs in order,
then at random under several seeds. A hazard ends its launch, not the script. The arrays end as the first way leaves them.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft import simulation
from weft.errors import Hazard, Loc
from weft.runtime.arguments import HostBuffer
from weft.runtime.descriptor import HostMap
from weft.script import run_script
from weft.sim import Advice, Report


@dataclass(slots=True)
class Finding:
    """A hazard of a kernel, and the seeds under which it showed."""

    kernel: str
    hazard: Hazard
    seeds: list[int]


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

    def found(self, kernel: str, hazard: Hazard, seed: int) -> None:
        """Enter a hazard; one that was found at the same place before is the same."""
        for known in self.findings:
            if (known.kernel, _key(known.hazard)) == (kernel, _key(hazard)):
                if seed not in known.seeds:
                    known.seeds.append(seed)
                return
        self.findings.append(Finding(kernel, hazard, [seed]))

    def advised(self, kernel: str, report: Report) -> None:
        """Enter the advice of a launch, each piece once."""
        for advice in report.advice:
            if (kernel, advice) not in self.advice:
                self.advice.append((kernel, advice))


def check_script(script: Path, arguments: Sequence[str] = (), *, seeds: int) -> Check:
    """Run a script, each of its simulated launches `seeds` times. Raises OSError where the script cannot be read."""
    check = Check()

    def supervise(kernel: str, values: Mapping[str, Any], run: Callable[[], Report]) -> Report:
        check.launches += 1
        for seed in range(1, seeds):
            with _unchanged(values), _at_random(seed), contextlib.redirect_stdout(io.StringIO()):
                _attempt(check, kernel, run, seed)
        return _attempt(check, kernel, run, 0)

    with simulation.supervised(supervise):
        check.stopped = run_script(script, arguments)
    return check


def _attempt(check: Check, kernel: str, run: Callable[[], Report], seed: int) -> Report:
    """One run; an empty report where a hazard ended it."""
    try:
        report = run()
    except Hazard as hazard:
        check.found(kernel, hazard, seed)
        return Report()
    check.advised(kernel, report)
    return report


def _at_random(seed: int) -> contextlib.AbstractContextManager[None]:
    """As the script wants it, but with copies at random times and another order of programs."""
    way = simulation.current()
    return simulation.simulate(
        programs=way.programs,
        seed=seed,
        progress=way.progress,
        max_resident=way.max_resident,
        schedule="random",
        uninitialized=way.uninitialized,
        hazards=way.hazards,
        bounds=way.bounds,
    )


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


def _key(hazard: Hazard) -> tuple[str, Loc | None, tuple[tuple[str, Loc], ...]]:
    return hazard.code, hazard.loc, hazard.related


def show(check: Check, console: Any) -> None:
    """Print what a check found on a `rich.console.Console`."""
    for finding in check.findings:
        seeds = ", ".join(map(str, sorted(finding.seeds)))
        head = f"{type(finding.hazard).__name__} in {finding.kernel} (seed{'s' * (len(finding.seeds) > 1)} {seeds})"
        console.print(head, style="bold red", markup=False)
        console.print(str(finding.hazard), markup=False, soft_wrap=True)
        console.print()
    for kernel, advice in check.advice:
        console.print(f"advice for {kernel}: {advice}", style="yellow", markup=False, soft_wrap=True)
    if check.stopped:
        console.print(f"the script stopped: {check.stopped}", style="bold red", markup=False, soft_wrap=True)
    console.print(f"{_counted(check.launches, 'launch', 'es')} checked, {_counted(len(check.findings), 'hazard', 's')}")


def _counted(count: int, noun: str, plural: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else plural}"
