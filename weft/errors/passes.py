"""Mistakes that the passes over tile IR find: tiles whose layouts do not come together."""

from __future__ import annotations

from weft.errors.base import CompilationError, row

LAYOUT_CONFLICT = row(
    "resolve-conflict",
    CompilationError,
    "{value} is left to the compiler, but its uses need two layouts: {first} and {second}",
    "make one tile for each use, or give it the first layout and convert_layout(value, layout) for the second",
)
LAYOUT_OPEN = row(
    "resolve-open",
    CompilationError,
    "nothing says how the elements of {value} lie in threads: no tile that it meets has a layout",
    "make it with layout=..., or call set_auto_layout(value, layout) on it",
)
FENCE = row(
    "sync-fence",
    CompilationError,
    "{what} reaches {buffer} through the async proxy, but threads accessed it {line}, and nothing orders the two proxies",
    "write fence_async_shared() between the two, or let weft place it: drop sync='explicit'",
)
