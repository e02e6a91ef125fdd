"""Locks and memory of values that work in a forked process too.

A fork copies locks as they are, and of threads only the one that forks: a lock that another thread held at that moment would be
held for ever in the new process. What weft's locks guard is whole at each step of Python, so the new process takes them anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload
from weakref import WeakSet

T = TypeVar("T")


class Lock:
    """A reentrant lock that nobody holds in a forked process, except the thread that forked."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Take a new lock in place of one whose holder is gone."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


_locks: WeakSet[Lock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_locks):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


class lazy(Generic[T]):  # noqa: N801 - a decorator, as `property` is
    """A property that is computed at its first look and then kept with the object.

    `functools.cached_property` does the same, and up to Python 3.11 holds a lock for all objects of the class meanwhile.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> lazy[T] | T:
        if instance is None:
            return self
        value = vars(instance)[self._name] = self._make(instance)
        return value
