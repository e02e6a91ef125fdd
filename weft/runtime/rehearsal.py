"""Launches that are checked and compiled, and do not run.

A tuner wants to compile the kernels of a host function before it measures any of them, in many threads, perhaps on a machine
without a GPU. So it runs the function with its launches rehearsed: each gives its compiled kernel to a visitor and ends there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from weft.runtime.compiled import CompiledKernel

Visitor = Callable[[CompiledKernel], object]
"""Gets each kernel that would have been launched; what it raises, the launch raises."""

under_way = 0
"""Rehearsals in this process. Launches look at this number first, since a context variable costs them more."""

_lock = threading.Lock()
_visitor: ContextVar[Visitor | None] = ContextVar("weft.runtime.rehearsal", default=None)


def visitor() -> Visitor | None:
    """Who gets the kernels of this thread's launches, if they are rehearsed."""
    return _visitor.get()


@contextmanager
def rehearsal(visit: Visitor) -> Iterator[None]:
    """Rehearse the launches of this thread in a block of code."""
    token = _visitor.set(visit)
    _count(1)
    try:
        yield
    finally:
        _count(-1)
        _visitor.reset(token)


def _count(more: int) -> None:
    global under_way
    with _lock:
        under_way += more
