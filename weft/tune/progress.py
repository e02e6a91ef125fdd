"""How far a search is, for whoever waits at a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft import settings
from weft.tune.config import Config


class Display:
    """Shows steps of a search; this one shows nothing."""

    def phase(self, what: str, steps: int) -> None:
        """Begin a part of the search that has so many steps."""

    def step(self) -> None:
        """One step is done. Threads may call it."""

    def best(self, config: Config, ms: float) -> None:
        """The fastest config so far."""


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
    """A display on the error stream: always, never, or (None) as the settings say, and else where that is a terminal."""
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
