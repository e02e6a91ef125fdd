"""Results of a benchmark: one line per figure, with its goals, as a table, as JSON and as Markdown."""

from __future__ import annotations

import datetime as dt
import json
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from typing import Any

import weft

PACKAGES = ("torch", "triton", "cuda-bindings", "nvidia-cuda-nvrtc", "numpy")


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a figure, or on its ratio to that of a peer. Throughputs have a floor, times a ceiling.

    `Goal(1.0, "gluon")`: at least Gluon's figure. `Goal(5.5, ceiling=True)`: at most 5.5 in the figure's own unit.
    """

    bound: float
    peer: str = ""
    ceiling: bool = False

    def value(self, line: Line) -> float | None:
        """The value that is compared with the bound; None if the peer was not measured."""
        if not self.peer:
            return line.ours
        theirs = line.peers.get(self.peer)
        return line.ours / theirs if theirs and line.ours else None

    def met(self, line: Line) -> bool | None:
        """Whether the goal is met; None if a value is missing."""
        value = self.value(line)
        if value is None:
            return None
        return value <= self.bound if self.ceiling else value >= self.bound

    def __str__(self) -> str:
        sign = "<=" if self.ceiling else ">="
        return f"{sign} {self.bound:g} x {self.peer}" if self.peer else f"{sign} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Line:
    """One figure: its name, weft's value (None if it is missing or wrong), its unit, the peers' values, goals and a remark.

    `facts` are further columns, which are compared with nothing."""

    what: str
    ours: float | None
    unit: str
    peers: dict[str, float] = field(default_factory=dict)
    goals: tuple[Goal, ...] = ()
    note: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """`pass`, `FAIL`, or nothing if there is no goal or a peer is missing."""
        met = [goal.met(self) for goal in self.goals]
        if False in met or (self.goals and self.ours is None):
            return "FAIL"
        return "pass" if met and None not in met else ""


def show(title: str, lines: Sequence[Line], footer: Sequence[str] = ()) -> None:
    """Print the lines as a table, and remarks below it."""
    from rich.console import Console

    console = Console(width=None if Console().is_terminal else 170, highlight=False)
    console.print(_table(title, lines))
    for remark in footer:
        console.print(f"- {remark}", markup=False)


def save(
    folder: Path, name: str, title: str, lines: Sequence[Line], about: dict[str, str], footer: Sequence[str] = ()
) -> None:
    """Write `name.json` (everything) and `name.md` (the table) into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"title": title, "about": about, "lines": [_plain(line) for line in lines]}
    if footer:
        record["footer"] = list(footer)
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(markdown(title, lines, about, footer), encoding="utf-8")


def markdown(title: str, lines: Sequence[Line], about: dict[str, str], footer: Sequence[str] = ()) -> str:
    """A page with machine, date and versions, the table, and remarks."""
    peers, facts = _peers(lines), _facts(lines)
    head = ["what", "weft", *peers, *(f"weft / {peer}" for peer in peers), *facts, "unit", "goal", "", "note"]
    rows = [head, ["---"] * len(head), *(_cells(line, peers, facts) for line in lines)]
    where = "; ".join(f"{name} {value}" for name, value in about.items())
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return "\n".join(
        [f"# {title}\n\n{where}.\n\n{table}\n", *(f"- {remark}" for remark in footer), *([""] * bool(footer))]
    )


def about() -> dict[str, str]:
    """The machine, the date and the versions behind a result."""
    found = {"date": dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d"), **_device()}
    found |= {"weft": weft.__version__, "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def folder_of(device: str) -> str:
    """The name of the folder of a device's results."""
    return re.sub(r"\W+", "-", device.lower())


def _device() -> dict[str, str]:
    try:
        import torch
    except ImportError:
        return {"device": platform.machine()}
    if not torch.cuda.is_available():
        return {"device": platform.machine()}
    from cuda.bindings import driver, nvrtc

    _, number = driver.cuDriverGetVersion()
    _, major, minor = nvrtc.nvrtcVersion()
    return {
        "device": torch.cuda.get_device_name(),
        "driver": f"CUDA {number // 1000}.{number % 1000 // 10}{_driver_release()}",
        "NVRTC": f"{major}.{minor}",
    }


def _driver_release() -> str:
    """The release of the kernel driver, if the system reports it."""
    file = Path("/proc/driver/nvidia/version")
    found = re.search(r"\s(\d{3}\.[\d.]+)\s", file.read_text(encoding="utf-8")) if file.exists() else None
    return f" ({found[1]})" if found else ""


def _peers(lines: Iterable[Line]) -> list[str]:
    return list(dict.fromkeys(peer for line in lines for peer in line.peers))


def _facts(lines: Iterable[Line]) -> list[str]:
    return list(dict.fromkeys(fact for line in lines for fact in line.facts))


def _cells(line: Line, peers: Sequence[str], facts: Sequence[str]) -> list[str]:
    ratios = [line.ours / line.peers[peer] if line.ours and line.peers.get(peer) else None for peer in peers]
    return [
        line.what,
        _number(line.ours),
        *(_number(line.peers.get(peer)) for peer in peers),
        *(_number(ratio) for ratio in ratios),
        *(_fact(line.facts.get(fact)) for fact in facts),
        line.unit,
        ", ".join(map(str, line.goals)),
        line.verdict,
        line.note,
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def _fact(value: Any) -> str:
    if isinstance(value, float):
        return _number(value)
    return "" if value is None else str(value)


def _table(title: str, lines: Sequence[Line]) -> Any:
    from rich.table import Table

    peers, facts = _peers(lines), _facts(lines)
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    for name in ("weft", *peers, *(f"weft / {peer}" for peer in peers)):
        table.add_column(name, justify="right", style="bold" if name == "weft" else None)
    for name in facts:
        table.add_column(name, justify="right")
    for name in ("unit", "goal", "", "note"):
        table.add_column(name)
    colors = {"pass": "green", "FAIL": "red"}
    for line in lines:
        cells = _cells(line, peers, facts)
        cells[-2] = f"[{colors[line.verdict]}]{line.verdict}[/]" if line.verdict else ""
        table.add_row(*cells)
    return table


def _plain(line: Line) -> dict[str, Any]:
    return {
        "what": line.what,
        "weft": line.ours,
        "unit": line.unit,
        "peers": line.peers,
        "goals": [str(goal) for goal in line.goals],
        "verdict": line.verdict,
        "note": line.note,
        **({"facts": line.facts} if line.facts else {}),
    }


def rendered(title: str, lines: Sequence[Line]) -> str:
    """The table as plain text."""
    from rich.console import Console

    out = StringIO()
    Console(file=out, width=170).print(_table(title, lines))
    return out.getvalue()


def warn(text: str) -> None:
    """Print a remark on standard error, apart from the tables."""
    print(text, file=sys.stderr, flush=True)
