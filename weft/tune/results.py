"""The results of a search: one row per config with its time, or the reason why it has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

from weft.tune.config import Config

Status = Literal["timed", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a config: "timed", "refused" before it was measured, or "failed".

    `ms` is the median time of a run; `reason` explains its absence. `registers` and `spills` (bytes) are per thread, `shared`
    (bytes) per block: each the maximum over the config's kernels, None if none was compiled.
    """

    config: Config
    status: Status
    ms: float | None = None
    reason: str = ""
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None


class Results(Sequence[Result]):
    """The results of a search, the fastest config first. Its text is a table."""

    def __init__(self, name: str, results: Sequence[Result] = ()) -> None:
        self.name = name
        order = {"timed": 0, "refused": 1, "failed": 2}
        self._results = tuple(sorted(results, key=lambda result: (order[result.status], result.ms or 0.0)))

    @property
    def best(self) -> Result | None:
        """The result of the fastest config; None if nothing was measured."""
        return self._results[0] if self._results and self._results[0].status == "timed" else None

    def table(self) -> Any:
        """The table for a `rich` console."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"configs of {self.name}", title_justify="left")
        for heading in ("config", "ms", "registers", "spills", "shared", ""):
            table.add_column(heading, justify="left" if heading in ("config", "") else "right")
        for result in self._results:
            ms = "" if result.ms is None else f"{result.ms:.4g}"
            numbers = ("" if n is None else str(n) for n in (result.registers, result.spills, result.shared))
            note = f"{result.status}: {result.reason}" if result.reason else ""
            # As `Text`, so that brackets around error codes are not taken for markup.
            table.add_row(*map(Text, (str(result.config), ms, *numbers, note)))
        return table

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Result]: ...
    def __getitem__(self, index: int | slice) -> Result | Sequence[Result]:
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        text = StringIO()
        Console(file=text, width=160).print(self.table())
        return text.getvalue()


def reasons(results: Sequence[Result]) -> str:
    """One line per unusable config, for a message."""
    return "\n".join(f"  {result.config}: {result.reason}" for result in results)


def reason_of(error: BaseException) -> str:
    """The first line of an error, with its code if it has one."""
    code = getattr(error, "code", None)
    first = (str(getattr(error, "message", error)) or "no message").splitlines()[0]
    return f"{first} [{code}]" if isinstance(code, str) else f"{type(error).__name__}: {first}"
