"""Mistakes about the machine a kernel is compiled for."""

from __future__ import annotations

from weft.errors.base import LaunchError, row

UNKNOWN = row(
    "target-unknown",
    LaunchError,
    "there is no target {spelling!r}; weft compiles for {known}",
    "write one of those names, its number as in 90, or 'cuda:90', in WEFT_TARGET too",
)
