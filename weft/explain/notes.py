"""One thing to know about a line of a kernel, and words that several of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weft.errors import Loc

Topic = Literal["sync", "conversion", "shared access", "global access", "own array"]


@dataclass(frozen=True, slots=True)
class Note:
    """One thing to know about a line. `warning`: the author may want to change it."""

    topic: Topic
    loc: Loc | None
    text: str
    warning: bool = False


def in_bytes(count: int) -> str:
    """A number of bytes in words."""
    return "1 byte" if count == 1 else f"{count} bytes"
