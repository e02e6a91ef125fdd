"""Rehearsed launches: checked and compiled, but not run; and launches left out altogether.

A tuner compiles the kernels of a host function before it measures any of them, in many threads, perhaps on a machine without a
GPU. It runs the function with its launches rehearsed: each passes its compiled kernel to a visitor and returns.

An operator of PyTorch learns the shapes of its results by running its host function on tensors without memory, for which
nothing can be checked or compiled: its launches return at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.locks import Lock
from weft.scoped import Scoped

Visitor = Callable[[Any], object]
"""Called with each `CompiledKernel` that would have been launched. Its exceptions propagate from the launch."""

under_way = 0
"""Number of open rehearsals in this process. Launches test it first, since reading a context variable takes longer."""


def leave_out(_: Any) -> None:
    """The visitor of launches that are left out: there is no compiled kernel to visit."""


def leaving_out() -> bool:
    """Whether this thread's launches are left out."""
    return under_way > 0 and visitor() is leave_out


_lock = Lock()
_visitor: Scoped[Visitor | None] = Scoped("weft.runtime.rehearsal")


def visitor() -> Visitor | None:
    """The visitor of this thread's launches, if they are rehearsed."""
    return _visitor.innermost(None)


@contextmanager
def rehearsal(visit: Visitor) -> Iterator[None]:
    """Rehearse the launches of this thread in a block of code."""
    _count(1)
    try:
        with _visitor.block(visit):
            yield
    finally:
        _count(-1)


def _count(more: int) -> None:
    global under_way
    with _lock:
        under_way += more
