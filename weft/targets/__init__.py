"""Capabilities of the GPUs that weft compiles for: one constant per architecture, and `get` to find it by name."""

from __future__ import annotations

import re

from weft.errors import fail
from weft.errors.launch import TARGET_UNKNOWN
from weft.targets.sm80 import SM80
from weft.targets.sm90 import SM90
from weft.targets.sm100 import SM100
from weft.targets.target import Target

TARGETS: dict[int, Target] = {target.arch: target for target in (SM80, SM90, SM100)}

_SPELLING = re.compile(r"(?:sm_|cuda:)?(\d+)a?")


def get(spelling: str | int | Target) -> Target:
    """The target of a name, a number, a `backend:number` pair, or a target itself.

    Raises LaunchError (target-unknown) for an unknown name; targets are never rounded to the nearest known one.

    >>> get("sm_90a") is get(90) is get("cuda:90")
    True
    """
    if isinstance(spelling, Target):
        return spelling
    match = _SPELLING.fullmatch(str(spelling))
    target = TARGETS.get(int(match[1])) if match else None
    if target is None:
        name = f"sm_{spelling}" if isinstance(spelling, int) else spelling
        raise fail(TARGET_UNKNOWN, spelling=name, known=", ".join(t.name for t in TARGETS.values()))
    return target


__all__ = ["SM80", "SM90", "SM100", "TARGETS", "Target", "get"]
