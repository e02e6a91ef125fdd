"""What synchronisation a kernel has, by the author's line: inserted with its reason, or the author's own."""

from __future__ import annotations

from weft.ir.core import Func, walk
from weft.ops import program


def sync_report(func: Func) -> str:
    """One line per barrier of a lowered function, in program order; says so when there is none."""
    lines: list[str] = []
    for op in walk(func.body):
        if op.kind is not program.barrier:
            continue
        reason: str = op.attrs["reason"]
        lines.append(f"{op.loc}: barrier, {f'inserted {reason}' if reason else 'as written'}")
    return "\n".join(lines) if lines else f"{func.name}: no barriers"
