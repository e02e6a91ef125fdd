"""Notes: single findings about a line of a kernel, and text that several of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weft.errors import Loc

Topic = Literal["sync", "conversion", "shared access", "global access", "own array", "machine code", "TMA"]


@dataclass(frozen=True, slots=True)
class Note:
    """A finding about a line. `warning`: the author may want to change the line."""

    topic: Topic
    loc: Loc | None
    text: str
    warning: bool = False


def in_bytes(count: int) -> str:
    """A number of bytes as text."""
    return "1 byte" if count == 1 else f"{count} bytes"
