"""Launches that are checked and compiled, and do not run.

A tuner wants to compile the kernels of a host function before it measures any of them, in many threads, perhaps on a machine
without a GPU. So it runs the function with its launches rehearsed: each gives its compiled kernel to a visitor and ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from weft.locks import Lock
from weft.runtime.compiled import CompiledKernel
from weft.scoped import Scoped

Visitor = Callable[[CompiledKernel], object]
"""Gets each kernel that would have been launched; what it raises, the launch raises."""

under_way = 0
"""Rehearsals in this process. Launches look at this number first, since a context variable costs them more."""

_lock = Lock()
_visitor: Scoped[Visitor | None] = Scoped("weft.runtime.rehearsal")


def visitor() -> Visitor | None:
    """Who gets the kernels of this thread's launches, if they are rehearsed."""
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
