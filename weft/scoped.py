"""Values that a `with` block sets for its own thread or asyncio task, as `weft.simulate` does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class Scoped(Generic[T]):
    """A stack of values, one for each `with` block that is open in the current thread or asyncio task.

    Blocks may overlap and end in any order, as those of two generators do; each removes its own value. A task starts with its
    creator's values, a thread with none; `contextvars.copy_context().run` passes them on.
    """

    def __init__(self, name: str) -> None:
        self._entries: ContextVar[tuple[_Entry, ...]] = ContextVar(name, default=())
        self.under_way: Callable[[], object] = self._entries.get
        """`under_way()` is true within a block. It is the bound method of the context variable itself, without a Python frame
        around it, because every launch calls it."""

    def values(self) -> tuple[T, ...]:
        """The values in force, the innermost last."""
        return tuple(cast("T", entry.value) for entry in self._entries.get())

    def innermost(self, outside: T) -> T:
        """The innermost value, or `outside` when no block is open."""
        entries = self._entries.get()
        return cast("T", entries[-1].value) if entries else outside

    @contextmanager
    def block(self, value: T) -> Iterator[None]:
        """Set a value for a block of code."""
        entry = _Entry(value)
        # The value is set inside of `try`: an interrupt right after it must still remove the entry.
        try:
            self._entries.set((*self._entries.get(), entry))
            yield
        finally:
            self._entries.set(tuple(other for other in self._entries.get() if other is not entry))


class _Entry:
    """A stack entry, compared by identity: equal values of two blocks are two entries."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value
