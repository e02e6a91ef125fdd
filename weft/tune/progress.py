"""The progress display of a search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft import settings
from weft.tune.config import Config


class Display:
    """The interface of progress displays; this one shows nothing."""

    def phase(self, what: str, steps: int) -> None:
        """Begin a phase of the search with a number of steps."""

    def step(self) -> None:
        """Count a completed step. Safe to call from several threads."""

    def best(self, config: Config, ms: float) -> None:
        """Show the fastest config so far."""


class _Bar(Display):
    def __init__(self, bar: Any, name: str) -> None:
        self._bar = bar
        self._name = name
        self._task = bar.add_task(f"tuning {name}", total=None, best="")

    def phase(self, what: str, steps: int) -> None:
        self._bar.reset(self._task, total=steps, description=f"tuning {self._name}: {what}")

    def step(self) -> None:
        self._bar.advance(self._task)

    def best(self, config: Config, ms: float) -> None:
        self._bar.update(self._task, best=f"best {ms:.4g} ms: {config}")


@contextmanager
def display(name: str, wanted: bool | None) -> Iterator[Display]:
    """A display on stderr. `wanted`: True always, False never, None by the settings, by default only on a terminal."""
    wanted = settings.current().tune_progress if wanted is None else wanted
    if wanted is False:
        yield Display()
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    if wanted is None and not console.is_terminal:
        yield Display()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[best]}", markup=False),
    )
    with Progress(*columns, console=console, transient=wanted is None) as bar:
        yield _Bar(bar, escape(name))
