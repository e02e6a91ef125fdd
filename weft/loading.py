"""Lazy imports that survive an interrupt.

Packages are imported on first use, which may be in the middle of a launch, and Ctrl-C may arrive at any line of it. CPython
drops a module whose import was interrupted from `sys.modules` and executes it again at the next import. `Registry` lets the
second execution replace the entries of the first. `load_module` defers Ctrl-C during the import, because extension modules such
as NumPy's cannot be loaded twice in a process. `Later` resolves circular imports without keeping a partly executed module.
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
    """A table that modules fill while they are imported; each key is entered once.

    A module that is executed again, because its first import was interrupted, replaces its own entries.
    """

    def __init__(self, what: str) -> None:
        """`what` is the noun for a key in messages, as in "error code"."""
        super().__init__()
        self._what = what
        self._entered: dict[K, dict[str, Any]] = {}

    def enter(self, key: K, value: V) -> V:
        """Add an entry and return its value. Raises ValueError for a key that is already defined elsewhere."""
        module, earlier = _importing(), self._entered.get(key)
        if earlier is not None and (earlier is module or earlier.get("__name__") != module.get("__name__")):
            raise ValueError(f"{self._what} {getattr(key, 'name', key)} is defined twice")
        self._entered[key] = module
        self[key] = value
        return value

    def module_of(self, key: K) -> str:
        """The name of the module that entered a key."""
        return self._entered[key]["__name__"]


def _importing() -> dict[str, Any]:
    """The namespace of the module that is being executed. Each attempt to import a module has a new namespace."""
    # The documented function, `inspect.currentframe`, would cost the import of `inspect`.
    frame = sys._getframe()  # noqa: SLF001
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals


class Later:
    """A module that is imported when one of its attributes is first used. Breaks import cycles between two modules."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value


def load_module(name: str) -> ModuleType:
    """Import a module of weft by its full name. Ctrl-C is deferred until it and all its imports are complete."""
    found = sys.modules.get(name)
    # CPython enters a module in `sys.modules` before executing it. `_initializing` means that another thread is executing it;
    # `import_module` waits for that thread.
    if found is not None and not getattr(getattr(found, "__spec__", None), "_initializing", False):
        return found
    with uninterrupted():
        try:
            _loading.append(threading.get_ident())
            return import_module(name)
        finally:
            _loading.remove(threading.get_ident())


_loading: list[int] = []
"""The threads that are importing modules. A fork waits for them: the child would inherit a partly executed module, and the
thread that executes it does not exist in the child."""
_PATIENCE_S = 10.0


def _wait_for_others() -> None:
    patient_until = time.monotonic() + _PATIENCE_S
    while any(thread != threading.get_ident() for thread in list(_loading)) and time.monotonic() < patient_until:
        time.sleep(0.001)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_others)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C to the end of a block of code. CPython delivers it to the main thread only, so other threads do nothing."""
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
