"""How parts of weft load, so that an interrupted import leaves nothing half done.

Parts are imported where they are first needed, which may be in the middle of a launch, and Ctrl-C may come at any line of it.
Python forgets a module whose import was interrupted and executes it anew the next time. `Registry` lets the second execution
replace what the first one entered; `load_module` holds Ctrl-C back meanwhile, since extension modules such as NumPy's cannot
be loaded twice in a process; `Later` keeps two modules that need one another from holding on to a half of the other.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Registry(dict[K, V]):
    """A table that modules fill while they are imported; each key has one entry.

    A module that is executed again, because its first import did not end, replaces its own entries.
    """

    def __init__(self, what: str) -> None:
        """`what` names a key in messages, as in "error code"."""
        super().__init__()
        self._what = what
        self._entered: dict[K, dict[str, Any]] = {}

    def enter(self, key: K, value: V) -> V:
        """Enter a value and return it. Raises ValueError for a key that another entry has."""
        module, earlier = _importing(), self._entered.get(key)
        if earlier is not None and (earlier is module or earlier.get("__name__") != module.get("__name__")):
            raise ValueError(f"{self._what} {getattr(key, 'name', key)} is defined twice")
        self._entered[key] = module
        self[key] = value
        return value


def _importing() -> dict[str, Any]:
    """The namespace of the module that is being executed: a new one at each attempt to import it."""
    # The documented way to it, `inspect.currentframe`, costs the import of `inspect`.
    frame = sys._getframe()  # noqa: SLF001
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals


class Later:
    """A module that is imported when one of its functions is first called: for two modules that need one another."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value


def load_module(name: str) -> ModuleType:
    """A module of weft by its full name; Ctrl-C is answered once it and everything it needs are imported."""
    found = sys.modules.get(name)
    # A module stands in the table before it has been executed; its import waits for the thread that does that.
    if found is not None and not getattr(getattr(found, "__spec__", None), "_initializing", False):
        return found
    with uninterrupted():
        try:
            _loading.append(threading.get_ident())
            return import_module(name)
        finally:
            _loading.remove(threading.get_ident())


_loading: list[int] = []
"""The threads that are loading modules. A fork waits for them: of a half that it copies, nobody would load the rest."""
_PATIENCE_S = 10.0


def _wait_for_others() -> None:
    patient_until = time.monotonic() + _PATIENCE_S
    while any(thread != threading.get_ident() for thread in list(_loading)) and time.monotonic() < patient_until:
        time.sleep(0.001)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_others)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back in a block of code. Only the main thread gets it, so elsewhere there is nothing to do."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[FrameType | None] = []
    try:
        signal.signal(signal.SIGINT, lambda _, frame: held.append(frame))
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if held:
        handler(signal.SIGINT, held[-1])
