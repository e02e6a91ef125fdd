"""`python -m weft tune`: the stored choices, shown, carried to other machines, forgotten."""

from __future__ import annotations

import argparse
from typing import Any

from weft.tune.key import Value
from weft.tune.store import Choice, choices, clear_choices, export_choices, import_choices


def run(given: argparse.Namespace, console: Any) -> int:
    """Do what `weft.cli` read from the command line; the exit status. `console` is one of `rich`."""
    if given.action == "list":
        console.print(table(choices(given.kernel)))
        return 0
    if given.action == "export":
        console.print(f"{_counted(export_choices(given.file, given.kernel))} exported to {given.file}")
    elif given.action == "import":
        console.print(f"{_counted(import_choices(given.file))} imported")
    else:
        console.print(f"{_counted(clear_choices(given.kernel))} forgotten")
    return 0


def table(found: list[Choice]) -> Any:
    """Choices as a table of `rich`."""
    from rich.table import Table
    from rich.text import Text

    shown = Table()
    for heading in ("kernel", "device", "key", "dtypes", "config", "ms"):
        shown.add_column(heading, justify="right" if heading == "ms" else "left", overflow="fold")
    for choice in found:
        key = ", ".join(f"{label}={_text(value)}" for label, value in choice.point.values)
        dtypes = ", ".join(f"{name}: {dtype}" for name, dtype in choice.point.dtypes)
        cells = (choice.kernel, choice.point.device, key, dtypes, choice.config, f"{choice.ms:.4g}")
        shown.add_row(*map(Text, cells))
    return shown


def _text(value: Value) -> str:
    return "x".join(map(_text, value)) if isinstance(value, tuple) else str(value)


def _counted(count: int) -> str:
    return "1 choice" if count == 1 else f"{count} choices"
