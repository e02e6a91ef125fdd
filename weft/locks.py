"""Locks and cached properties that work in a forked process.

`fork` copies every lock in its current state but only the calling thread. A lock that another thread held at that moment would
stay locked in the child for ever. The state that weft's locks guard is consistent after every step of Python code, so the
child replaces held locks by new ones.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload
from weakref import WeakSet

T = TypeVar("T")


class Lock:
    """A reentrant lock. In a forked child it is free, unless the forking thread itself held it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Replace the lock when its holder does not exist in this process."""
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
    """A property that is computed on first access and then stored in the object.

    `functools.cached_property` does the same, but up to Python 3.11 it holds one lock for all objects of the class while it
    computes. Compilations of different kernels would serialise, and a fork during one would leave that lock held.
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
