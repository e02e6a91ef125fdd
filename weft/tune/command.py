"""`python -m weft tune`: list, export, import and clear the stored choices."""

from __future__ import annotations

import argparse
from typing import Any

from weft.errors.base import counted
from weft.tune.key import Value
from weft.tune.store import Choice, choices, clear_choices, export_choices, import_choices


def run(given: argparse.Namespace, console: Any) -> int:
    """Execute the action that `weft.cli` parsed. Returns the exit status. `console` is a `rich` console."""
    if given.action == "list":
        for choice in choices(given.kernel):
            console.print(line(choice), markup=False)
    elif given.action == "export":
        console.print(f"{_counted(export_choices(given.file, given.kernel))} exported to {given.file}")
    elif given.action == "import":
        console.print(f"{_counted(import_choices(given.file))} imported")
    else:
        console.print(f"{_counted(clear_choices(given.kernel))} forgotten")
    return 0


def line(choice: Choice) -> str:
    """A choice as a line of text: kernel, device and key, then the config and its time."""
    point = choice.point
    key = [f"{label}={_text(value)}" for label, value in point.values]
    key += [f"{name}: {dtype}" for name, dtype in point.dtypes]
    return f"{choice.kernel} on {point.device} for {', '.join(key) or 'any call'}: {choice.config} ({choice.ms:.4g} ms)"


def _text(value: Value) -> str:
    return "x".join(map(_text, value)) if isinstance(value, tuple) else str(value)


def _counted(count: int) -> str:
    return counted(count, "choice")
