"""The text of an explanation, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.errors import Loc
from weft.errors.launch import NVRTC_SLOW
from weft.explain.notes import Note
from weft.explain.report import Explanation, KernelFacts, Times

LONG_MS = 2000
"""NVRTC time in milliseconds above which an explanation advises how to shorten it; a launch warns much later."""


def show(explanation: Explanation, console: Any) -> None:
    """Print an explanation on a `rich.console.Console`."""
    for facts in explanation.kernels:
        _show_kernel(facts, console)
    if not explanation.kernels:
        console.print("the script compiles no kernel")
    if explanation.stopped:
        console.print(f"the script stopped: {explanation.stopped}", style="bold red", markup=False)


def _show_kernel(facts: KernelFacts, console: Any) -> None:
    warps = "1 warp" if facts.num_warps == 1 else f"{facts.num_warps} warps"
    head = f"{facts.name} for {facts.target}, {warps if facts.block is None else f'blocks of {facts.block} threads'}"
    if facts.num_ctas > 1:
        head += f", clusters of {facts.num_ctas} blocks"
        head += "" if facts.portable else " (which not every GPU can place: see active_clusters())"
    if facts.registers is not None:
        head += f", {facts.registers} registers a thread, {facts.spills} bytes spilled"
    console.print(head, style="bold", markup=False)
    if facts.constants:
        console.print(f"  {', '.join(f'{name}={value}' for name, value in facts.constants)}", markup=False)
    if facts.partitions:
        console.print(f"  {'; '.join(map(str, facts.partitions))}", markup=False)
    if facts.problem:
        console.print(f"  cannot be lowered: {facts.problem}", style="red", markup=False)
    for loc, notes in _by_line(facts.notes):
        console.print(f"  {'(no line)' if loc is None else f'{loc}: {loc.source.strip()}'}", style="cyan", markup=False)
        for text, warning in dict.fromkeys((note.text, note.warning) for note in notes):
            console.print(f"      {text}", style="yellow" if warning else None, markup=False)
    _show_bill(facts, console)
    _show_columns(facts, console)
    _show_times(facts.times, console)
    console.print()


def _show_times(times: Times, console: Any) -> None:
    if times.nvrtc is not None:
        nvrtc = f"NVRTC {times.nvrtc:.1f} ms"
    else:
        nvrtc = "machine code from the cache on disk" if times.from_disk else "NVRTC not run (--registers runs it)"
    console.print(f"  compilation: weft {times.front:.1f} ms, {nvrtc}", markup=False)
    if (times.nvrtc or 0) > LONG_MS:
        console.print(f"      {NVRTC_SLOW.fix}", style="yellow", markup=False)


def _by_line(notes: Iterable[Note]) -> list[tuple[Loc | None, list[Note]]]:
    """Notes grouped by file and line, in that order."""
    lines: dict[tuple[str, int], tuple[Loc | None, list[Note]]] = {}
    for note in notes:
        key = ("", 0) if note.loc is None else (note.loc.file, note.loc.line)
        lines.setdefault(key, (note.loc, []))[1].append(note)
    return [lines[key] for key in sorted(lines)]


def _show_bill(facts: KernelFacts, console: Any) -> None:
    from rich.padding import Padding
    from rich.table import Table

    if not facts.shared_bytes:
        console.print("  no shared memory")
        return
    each = "" if facts.num_ctas == 1 else " in each block"
    console.print(f"  shared memory: {facts.shared_bytes} of {facts.shared_limit} bytes{each}")
    if facts.buffers:
        table = Table("buffer", "line", "bytes", "offset", "in use", box=None, pad_edge=False, padding=(0, 2))
        for item in facts.buffers:
            line = "" if item.loc is None else str(item.loc.line)
            table.add_row(item.name or "(unnamed)", line, str(item.bytes), str(item.offset), item.lines or "never")
        console.print(Padding(table, (0, 0, 0, 4)))


def _show_columns(facts: KernelFacts, console: Any) -> None:
    from rich.padding import Padding
    from rich.table import Table

    if not facts.tensor_columns:
        return
    console.print(f"  tensor memory: {facts.tensor_columns} of {facts.tensor_limit} columns")
    table = Table("buffer", "line", "columns", "first", box=None, pad_edge=False, padding=(0, 2))
    for item in facts.tensor_buffers:
        line = "" if item.loc is None else str(item.loc.line)
        table.add_row(item.name or "(unnamed)", line, str(item.columns), str(item.first))
    console.print(Padding(table, (0, 0, 0, 4)))
